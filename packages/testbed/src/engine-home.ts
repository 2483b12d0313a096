// The folder that an engine of our own keeps its images, build cache and logs in.
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type FolderLock, lockFolder } from './lock.ts';
import { isRunning, signalProcess, statOf } from './process.ts';
import { waitFor } from './wait.ts';

/** A folder for one engine, ours alone while `lock` is held. */
export interface Home {
  readonly dir: string;
  readonly lock: FolderLock;
  /** true: another run has the lasting one; this one goes at stop. */
  readonly temporary: boolean;
}

/** The lasting home `dir/engine-<name>`; without a name, and when another process has that, a temporary one beside it. */
export async function takeHome(dir: string, name: string | undefined, log: (line: string) => void): Promise<Home> {
  await mkdir(dir, { recursive: true });
  await sweepTemporaryHomes(dir);
  if (name === undefined) return temporaryHome(dir);
  const lasting = join(await realpath(dir), `engine-${name}`);
  if (lasting.startsWith('/run/')) throw new Error(`${lasting}: an engine's folder cannot be under /run`);
  await mkdir(lasting, { recursive: true });
  const lock = await lockFolder(lasting);
  if (lock !== undefined) return { dir: lasting, lock, temporary: false };
  log(`another run uses ${lasting}: this one starts without its images and cache`);
  return temporaryHome(dir);
}

async function temporaryHome(dir: string): Promise<Home> {
  for (let tries = 0; tries < 10; tries++) {
    const fresh = await mkdtemp(join(await realpath(dir), temporaryPrefix));
    const lock = await lockIfThere(fresh);
    if (lock !== undefined) return { dir: fresh, lock, temporary: true };
    // Another start, which took it for one whose process was killed, has it and removes it.
  }
  throw new Error(`no temporary folder in ${dir} could be kept`);
}

const temporaryPrefix = 'engine-tmp-';

/** Removes temporary homes whose process was killed. */
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

/** undefined too when another sweep has removed it meanwhile. */
async function lockIfThere(home: string): Promise<FolderLock | undefined> {
  try {
    return await lockFolder(home);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** For the run after us, should we be killed: which first process to wait for, and which folder to remove. */
export async function noteHolder(home: string, pid: number, runDir: string): Promise<void> {
  await writeFile(join(home, 'holder'), `${pid} ${startTime(pid)} ${runDir}\n`);
}

/**
 * Waits for a killed run's engine to be gone (it dies with its run, but not at once: two daemons on one data root
 * would ruin it) and removes the run's folder with its socket and logins.
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
    await waitFor(`the previous run's engine (process ${pid}) is gone`, () => !alive(), { deadlineMs: 10_000 });
  }
  if (runDir !== undefined) await rm(runDir, { recursive: true, force: true });
  await rm(holder);
}

/** Returns a number that stays the same for a folder, so that docker recognizes a registry of an earlier run by its address. */
export function preferredNetwork(folder: string): number {
  return createHash('sha256').update(folder).digest().readUInt16BE(0) % 250;
}

/** Start time of a process in clock ticks since boot; with its id it names a process for good. '' when it is gone. */
function startTime(pid: number): string {
  try {
    // Field 22.
    return statOf(pid)[19] ?? '';
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) return '';
    throw error;
  }
}
