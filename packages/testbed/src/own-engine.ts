// A container engine of our own, in namespaces of its own (namespace.ts). Its images and build cache stay in
// `dir` between runs; everything that runs ends with us, however we end.
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, readdir, realpath, rm, rmdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { searchPath } from './config.ts';
import { writeDockerConfig } from './docker-config.ts';
import { describeEngine, type Engine, engineAnswers, type EngineOptions } from './engine-handle.ts';
import { type FolderLock, lockFolder } from './lock.ts';
import { cableNetwork, type Namespace, onlyChild, slirpNameServer, startNamespace } from './namespace.ts';
import { type Argv, isRunning, type RunningProcess, signalProcess, startProcess, untilReady } from './process.ts';
import { waitFor } from './wait.ts';

/** A folder for one engine, ours alone while `lock` is held. */
interface Home {
  readonly dir: string;
  readonly lock: FolderLock;
  /** true: another run has the lasting one; this one goes at stop. */
  readonly temporary: boolean;
}

/** @throws Error with the daemon's last lines when it does not come up within 30 s */
export async function startOwnEngine(options: EngineOptions): Promise<Engine> {
  const name = options.name ?? 'main';
  const log = options.log ?? (() => undefined);
  // Undone from the last to the first, at stop and when a later step fails.
  const undo: (() => Promise<void>)[] = [];
  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopped ??= undoAll(undo);
    return stopped;
  };
  try {
    const home = await takeHome(options.dir, name, log);
    undo.push(async () => {
      if (home.temporary) await rm(home.dir, { recursive: true, force: true });
      await home.lock.release();
    });
    await endPredecessor(home.dir);
    await sweepCgroups();

    // Short: the kernel refuses socket paths of more than about 100 characters.
    const runDir = await mkdtemp(join(tmpdir(), 'berth-'));
    undo.push(() => rm(runDir, { recursive: true, force: true }));
    const dockerConfigDir = await writeDockerConfig(join(runDir, 'docker-config'));

    const namespace = await startNamespace({
      log,
      logFile: join(home.dir, 'namespace.log'),
      preferredNetwork: createHash('sha256').update(home.dir).digest().readUInt16BE(0) % 250,
    });
    await writeFile(join(home.dir, 'holder'), `${namespace.pid} ${await startTime(namespace.pid)} ${runDir}\n`);
    const cgroup = `berth-${namespace.pid}`;
    undo.push(async () => {
      await namespace.stop();
      await waitFor(`the engine's first process ${namespace.pid} is gone`, () => !isRunning(namespace.pid));
      await sweepCgroups();
    });

    await writeFile(namespace.inside(daemonConfig), '{}\n');
    const host = `unix://${join(runDir, 'engine.sock')}`;
    const argv = daemonArgv({ namespace, host, home: home.dir, cgroup });
    const logFile = join(home.dir, 'dockerd.log');
    let daemon = await startDaemon(argv, host, logFile);
    const daemonPid = () => onlyChild(daemon.pid) ?? daemon.pid;
    undo.push(async () => {
      // To dockerd itself: nsenter, which waits for it, would die of the signal and not pass it on.
      if (daemon.exit() === undefined) signalProcess(daemonPid(), 'SIGTERM');
      await Promise.race([daemon.exited, sleep(10_000, undefined, { ref: false })]);
      await daemon.stop(0);
    });

    const engine = describeEngine({
      name,
      host,
      dockerConfigDir,
      hostIp: namespace.hostIp,
      gatewayIp: namespace.gatewayIp,
      publishIp: undefined,
      owned: true,
      outward: namespace.outward,
      faults: {
        daemonPid,
        nsenterArgv: namespace.enter,
        connect: namespace.connect,
        async restartDaemon(how = 'power-cut') {
          if (how === 'power-cut') for (const pid of await namespace.processes()) signalProcess(pid, 'SIGKILL');
          else signalProcess(daemonPid(), how);
          await daemon.exited;
          if (how === 'power-cut') {
            await waitFor('all of the engine has ended', async () => (await namespace.processes()).length === 0);
            // Its process ids would be taken for the new daemon's.
            for (const file of ['/run/docker.pid', '/run/docker-exec/containerd/containerd.pid'])
              await rm(namespace.inside(file), { force: true });
          }
          daemon = await startDaemon(argv, host, logFile);
        },
      },
      stop,
    });
    await removeContainers(engine);
    undo.push(() => removeContainers(engine));
    return engine;
  } catch (error) {
    await stop();
    throw error;
  }
}

async function undoAll(undo: (() => Promise<void>)[]): Promise<void> {
  const failures: unknown[] = [];
  for (const step of undo.toReversed()) {
    try {
      await step();
    } catch (error) {
      // The steps below must still run; the failure is told at the end.
      failures.push(error);
    }
  }
  if (failures.length > 0) throw new AggregateError(failures, 'the engine did not stop cleanly');
}

/** Inside the namespace; empty, so that the machine's own /etc/docker/daemon.json is not read. */
const daemonConfig = '/run/berth/daemon.json';

function daemonArgv(at: { namespace: Namespace; host: string; home: string; cgroup: string }): Argv {
  const nameServer = at.namespace.outward ? ['--dns', slirpNameServer] : [];
  // env: nsenter runs in the namespace's environment, and dockerd looks for containerd and iptables on PATH.
  const [program, ...prefix] = at.namespace.enter() as [string, ...string[]];
  return [
    program,
    ...prefix,
    'env',
    `PATH=${searchPath().join(':')}`,
    'dockerd',
    '--config-file',
    daemonConfig,
    '--host',
    at.host,
    '--group',
    'root',
    '--data-root',
    join(at.home, 'data'),
    '--exec-root',
    '/run/docker-exec',
    '--pidfile',
    '/run/docker.pid',
    '--exec-opt',
    'native.cgroupdriver=cgroupfs',
    '--cgroup-parent',
    `/${at.cgroup}`,
    '--insecure-registry',
    cableNetwork,
    ...nameServer,
    // A container's log must not fill the disk of the machine that tries Berth.
    '--log-opt',
    'max-size=10m',
    '--log-opt',
    'max-file=2',
  ];
}

async function startDaemon(argv: Argv, host: string, logFile: string): Promise<RunningProcess> {
  const daemon = await startProcess(argv, { name: 'dockerd', logFile });
  await untilReady(daemon, () => engineAnswers(host), 30_000);
  return daemon;
}

/** What the run before left (it was killed) and what the run that ends has made. Images and cache stay. */
async function removeContainers(engine: Engine): Promise<void> {
  const ids = (await engine.docker(['ps', '--all', '--quiet'])).stdout.split('\n').filter((id) => id !== '');
  if (ids.length > 0) await engine.docker(['rm', '--force', '--volumes', ...ids]);
}

/** The lasting home `dir/engine-<name>`, or a fresh one beside it when another process has that. */
async function takeHome(dir: string, name: string, log: (line: string) => void): Promise<Home> {
  await mkdir(dir, { recursive: true });
  await sweepTemporaryHomes(dir);
  const lasting = join(await realpath(dir), `engine-${name}`);
  if (lasting.startsWith('/run/')) throw new Error(`${lasting}: an engine's folder cannot be under /run`);
  await mkdir(lasting, { recursive: true });
  const lock = await lockFolder(lasting);
  if (lock !== undefined) return { dir: lasting, lock, temporary: false };
  log(`another run uses ${lasting}: this one starts without its images and cache`);
  const fresh = await mkdtemp(join(dir, temporaryPrefix));
  const own = await lockFolder(fresh);
  if (own === undefined) throw new Error(`cannot lock ${fresh}, which was made just now`);
  return { dir: fresh, lock: own, temporary: true };
}

const temporaryPrefix = 'engine-tmp-';

/** Removes temporary homes whose process was killed. */
async function sweepTemporaryHomes(dir: string): Promise<void> {
  for (const entry of await readdir(dir)) {
    if (!entry.startsWith(temporaryPrefix)) continue;
    const home = join(dir, entry);
    const lock = await lockFolder(home);
    if (lock === undefined) continue;
    await endPredecessor(home);
    await rm(home, { recursive: true, force: true });
    await lock.release();
  }
}

/**
 * Waits for a killed run's engine to be gone (it dies with its run, but not at once: two daemons on one data root
 * would ruin it) and removes the run's folder with its socket and logins.
 */
async function endPredecessor(home: string): Promise<void> {
  const holder = join(home, 'holder');
  const text = await readFile(holder, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  const [pid, since, runDir] = text.trim().split(' ');
  if (pid === undefined || since === undefined) return;
  const alive = async () => isRunning(Number(pid)) && (await startTime(Number(pid))) === since;
  if (await alive()) {
    signalProcess(Number(pid), 'SIGKILL');
    await waitFor(`the previous run's engine (process ${pid}) is gone`, async () => !(await alive()), { deadlineMs: 10_000 });
  }
  if (runDir !== undefined) await rm(runDir, { recursive: true, force: true });
  await rm(holder);
}

/** Start time of a process in clock ticks since boot; with its id it names a process for good. '' when it is gone. */
async function startTime(pid: number): Promise<string> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    // The name in parentheses may hold spaces; field 22 is the 20th behind it.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? '';
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) return '';
    throw error;
  }
}

/** Empty control groups `berth-<pid>` of engines whose first process is gone: the one thing a kill leaves. */
async function sweepCgroups(): Promise<void> {
  const root = '/sys/fs/cgroup';
  const parents = [root, ...(await folders(root)).map((name) => join(root, name))];
  for (const parent of parents) {
    for (const name of await folders(parent)) {
      const pid = /^berth-(\d+)$/.exec(name)?.[1];
      if (pid === undefined || isRunning(Number(pid))) continue;
      for (const child of await folders(join(parent, name))) await removeCgroup(join(parent, name, child));
      await removeCgroup(join(parent, name));
    }
  }
}

async function folders(dir: string): Promise<string[]> {
  try {
    return (await readdir(dir, { withFileTypes: true })).filter((entry) => entry.isDirectory()).map((entry) => entry.name);
  } catch (error) {
    // Another run swept it in between, or there is no such hierarchy.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

async function removeCgroup(path: string): Promise<void> {
  try {
    await rmdir(path);
  } catch (error) {
    // EBUSY: its last processes are just ending; the next start sweeps again.
    if (!['ENOENT', 'EBUSY', 'ENOTEMPTY'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}
