// The folder in which a private engine keeps its images, build cache and logs.
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type FolderLock, lockFolder } from './lock.ts';
import { isRunning, signalProcess, statOf } from './process.ts';
import { waitFor } from './wait.ts';

/** A folder for one engine. This process owns it while it holds `lock`. */
export interface Home {
  readonly dir: string;
  readonly lock: FolderLock;
  /** true: it is removed at stop. */
  readonly temporary: boolean;
}

/**
 * Lasting folders of one name, for test files that run at the same time. Each takes about 300 MB
 * with the base images.
 */
const PLACES = 3;

/**
 * Takes a free lasting folder of this name: `dir/engine-<name>`, `dir/engine-<name>-2` and so on.
 * Without a name, or when other processes have all of them, takes a temporary one beside them.
 */
export async function takeHome(
  dir: string,
  name: string | undefined,
  log: (line: string) => void,
): Promise<Home> {
  await mkdir(dir, { recursive: true });
  await sweepTemporaryHomes(dir);
  if (name === undefined) return temporaryHome(dir);
  const first = join(await realpath(dir), `engine-${name}`);
  if (first.startsWith('/run/'))
    throw new Error(`${first}: an engine's folder cannot be under /run`);
  for (let place = 1; place <= PLACES; place++) {
    const lasting = place === 1 ? first : `${first}-${place}`;
    await mkdir(lasting, { recursive: true });
    const lock = await lockFolder(lasting);
    if (lock !== undefined) return { dir: lasting, lock, temporary: false };
  }
  log(`other runs use ${first} and its copies: this run starts without images and cache`);
  return temporaryHome(dir);
}

async function temporaryHome(dir: string): Promise<Home> {
  for (let tries = 0; tries < 10; tries++) {
    const fresh = await mkdtemp(join(await realpath(dir), temporaryPrefix));
    const lock = await lockIfThere(fresh);
    if (lock !== undefined) return { dir: fresh, lock, temporary: true };
    // Another start took it for the folder of a killed process, and holds and removes it.
  }
  throw new Error(`cannot lock a temporary folder in ${dir}`);
}

const temporaryPrefix = 'engine-tmp-';

/** Removes temporary folders whose process was killed. */
async function sweepTemporaryHomes(dir: string): Promise<void> {
  for (const entry of await readdir(dir)) {
    if (!entry.startsWith(temporaryPrefix)) continue;
    const home = join(dir, entry);
    const lock = await lockIfThere(home);
    if (lock === undefined) continue;
    await endPredecessor(home);
    await rm(home, { recursive: true, force: true });
    await lock.release();
  }
}

/** Also returns undefined when another sweep has removed the folder meanwhile. */
async function lockIfThere(home: string): Promise<FolderLock | undefined> {
  try {
    return await lockFolder(home);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/**
 * Records, for the run after a kill of this one, the first process to wait for and the folder to
 * remove.
 */
export async function noteHolder(home: string, pid: number, runDir: string): Promise<void> {
  await writeFile(join(home, 'holder'), `${pid} ${startTime(pid)} ${runDir}\n`);
}

/**
 * Waits until the engine of a killed run is gone, and removes the run's folder with its socket and
 * logins. The engine dies with its run, but not at once, and two daemons would corrupt one data
 * root.
 */
export async function endPredecessor(home: string): Promise<void> {
  const holder = join(home, 'holder');
  const text = await readFile(holder, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  const [pid, since, runDir] = text.trim().split(' ');
  if (pid === undefined || since === undefined) return;
  const alive = (): boolean => isRunning(Number(pid)) && startTime(Number(pid)) === since;
  if (alive()) {
    signalProcess(Number(pid), 'SIGKILL');
    await waitFor(`the previous run's engine (process ${pid}) is gone`, () => !alive(), {
      deadlineMs: 10_000,
    });
  }
  if (runDir !== undefined) await rm(runDir, { recursive: true, force: true });
  await rm(holder);
}

/**
 * Derives a network from the folder's path: the same network in each run lets docker recognise a
 * registry by its address.
 */
export function preferredNetwork(folder: string): number {
  return createHash('sha256').update(folder).digest().readUInt16BE(0) % 250;
}

/**
 * Start time of a process in clock ticks since boot, which together with its id identifies it; ''
 * when it is gone.
 */
function startTime(pid: number): string {
  try {
    // Field 22.
    return statOf(pid)[19] ?? '';
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) return '';
    throw error;
  }
}
