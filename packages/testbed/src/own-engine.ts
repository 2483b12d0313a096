// A private container engine in separate namespaces (namespace.ts). Its images and build cache stay
// in `dir` between runs. Everything that runs in it ends with this process, however this process
// ends.
import { mkdir, mkdtemp, readdir, rm, rmdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cableNetwork, runs } from './cable.ts';
import { deviceEngine, searchPath } from './config.ts';
import { writeDockerConfig } from './docker-config.ts';
import { describeEngine, type Engine, engineAnswers, type EngineOptions } from './engine-handle.ts';
import { endPredecessor, noteHolder, preferredNetwork, takeHome } from './engine-home.ts';
import { type Namespace, slirpNameServer, startNamespace } from './namespace.ts';
import { describeProcesses, startInside } from './process-tree.ts';
import { type Argv, isRunning, type RunningProcess, signalProcess, untilReady } from './process.ts';
import { waitFor } from './wait.ts';

/** @throws Error with the daemon's last lines when it does not answer within 30 s */
export async function startOwnEngine(options: EngineOptions): Promise<Engine> {
  const name = options.name ?? 'main';
  const log = options.log ?? (() => undefined);
  // Cleanup steps, run from the last to the first at stop and when a later step fails.
  const undo: (() => Promise<void>)[] = [];
  let stopped: Promise<void> | undefined;
  const stop = () => {
    stopped ??= undoAll(undo);
    return stopped;
  };
  try {
    const home = await takeHome(options.dir, options.fresh === true ? undefined : name, log);
    undo.push(async () => {
      if (home.temporary) await rm(home.dir, { recursive: true, force: true });
      await home.lock.release();
    });
    await endPredecessor(home.dir);
    await sweepCgroups();

    // A short path: the kernel refuses socket paths of more than about 100 characters.
    const runDir = await mkdtemp(join(tmpdir(), 'berth-'));
    undo.push(() => rm(runDir, { recursive: true, force: true }));
    const dockerConfigDir = await writeDockerConfig(join(runDir, 'docker-config'));

    const namespace = await startNamespace({
      log,
      logFile: join(home.dir, 'namespace.log'),
      preferredNetwork: preferredNetwork(home.dir),
      network: options.network,
    });
    await noteHolder(home.dir, namespace.pid, runDir);
    const cgroup = `berth-${namespace.pid}`;
    undo.push(async () => {
      await namespace.stop();
      await waitFor(
        `the engine's first process ${namespace.pid} is gone`,
        () => !isRunning(namespace.pid),
      );
      await sweepCgroups();
    });

    await writeFile(namespace.inside(daemonConfig), '{}\n');
    const host = `unix://${join(runDir, 'engine.sock')}`;
    const devices = await layDevices(home.dir, options.devices);
    const argv = daemonArgv({ namespace, host, home: home.dir, cgroup, devices });
    const start = () => startDaemon(namespace.enter(), argv, host, join(home.dir, 'dockerd.log'));
    let daemon = await start();
    undo.push(() => (home.temporary ? daemon.stop(0) : stopDaemon(daemon, namespace)));
    const powerOff = async () => {
      await endAll(namespace);
      await waitFor(
        `the exit of the daemon (process ${daemon.pid}) is noticed`,
        () => daemon.exit() !== undefined,
      );
      // The new daemon would take the old process ids for its own.
      for (const file of ['/run/docker.pid', '/run/docker-exec/containerd/containerd.pid'])
        await rm(namespace.inside(file), { force: true });
    };
    const powerOn = async () => {
      daemon = await start();
    };

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
        daemonPid: () => daemon.pid,
        nsenterArgv: namespace.enter,
        connect: namespace.connect,
        powerOff,
        powerOn,
        async restartDaemon(how = 'power-cut') {
          if (how === 'power-cut') await powerOff();
          else daemon.kill(how);
          await daemon.exited;
          await powerOn();
        },
      },
      stop,
    });
    if (home.temporary) return engine;
    await removeContainers(engine);
    undo.push(async () => {
      if (daemon.exit() === undefined) await removeContainers(engine);
    });
    return engine;
  } catch (error) {
    await stop();
    throw error;
  }
}

/** @throws WaitTimeout that names the processes that are left */
async function endAll(namespace: Namespace): Promise<void> {
  let remaining: number[] = [];
  await waitFor(
    'every process of the engine has ended',
    () => {
      remaining = namespace.processes();
      for (const pid of remaining) signalProcess(pid, 'SIGKILL');
      return remaining.length === 0;
    },
    { deadlineMs: 30_000 },
  ).catch((error: Error) => {
    error.message += `; these are left:\n${describeProcesses(remaining)}`;
    throw error;
  });
}

async function undoAll(undo: (() => Promise<void>)[]): Promise<void> {
  const failures: unknown[] = [];
  for (const step of undo.toReversed()) {
    try {
      await step();
    } catch (error) {
      // The other steps must still run; the failures are thrown at the end.
      failures.push(error);
    }
  }
  if (failures.length > 0) throw new AggregateError(failures, 'the engine did not stop cleanly');
}

/**
 * Configuration file inside the namespace. It is empty, so that the machine's own
 * /etc/docker/daemon.json is not read.
 */
const daemonConfig = '/run/berth/daemon.json';

/** Engine that knows devices, and the folder of its CDI files. */
type DeviceEngine = { programs: string; cdi: string };

/** Writes the CDI file of the devices. @throws Error without an engine that knows devices */
async function layDevices(
  home: string,
  devices: EngineOptions['devices'],
): Promise<DeviceEngine | undefined> {
  if (devices === undefined) return undefined;
  const programs = deviceEngine();
  if (programs === undefined) throw new Error('no engine with devices: npm run setup -- --devices');
  const cdi = join(home, 'cdi');
  await mkdir(cdi, { recursive: true });
  const file = {
    cdiVersion: '0.6.0',
    kind: 'berth.example/toy',
    devices: Object.entries(devices).map(([name, hostPath]) => ({
      name,
      containerEdits: {
        env: [`TOY_${name}=1`],
        deviceNodes: [{ path: `/dev/toy-${name}`, hostPath }],
      },
    })),
  };
  await writeFile(join(cdi, 'toy.json'), JSON.stringify(file));
  return { programs, cdi };
}

/**
 * Returns the settings of an engine with devices. Its runc is built without seccomp, which needs a
 * library of the system, and no docker-proxy of its version is here.
 */
const deviceSettings = ({ cdi }: DeviceEngine): string[] => [
  '--cdi-spec-dir',
  cdi,
  '--seccomp-profile',
  'unconfined',
  '--userland-proxy=false',
];

function daemonArgv(at: {
  namespace: Namespace;
  host: string;
  home: string;
  cgroup: string;
  devices: DeviceEngine | undefined;
}): Argv {
  const nameServer = at.namespace.outward ? ['--dns', slirpNameServer] : [];
  const programs = at.devices === undefined ? [] : [at.devices.programs];
  // env: nsenter runs in the namespace's environment, and dockerd finds containerd and iptables on
  // PATH.
  return [
    'env',
    `PATH=${[...programs, ...searchPath()].join(':')}`,
    // BuildKit would clip the output of a step that prints more than 200 KiB in a second.
    'BUILDKIT_STEP_LOG_MAX_SPEED=1000000000',
    'BUILDKIT_STEP_LOG_MAX_SIZE=1000000000',
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
    ...(at.devices === undefined ? [] : deviceSettings(at.devices)),
    // A container's log must not fill the disk of a machine on which somebody tries Berth.
    '--log-opt',
    'max-size=10m',
    '--log-opt',
    'max-file=2',
  ];
}

async function startDaemon(
  enter: readonly string[],
  argv: Argv,
  host: string,
  logFile: string,
): Promise<RunningProcess> {
  const daemon = await startInside(enter, argv, { name: 'dockerd', logFile });
  await untilReady(daemon, () => engineAnswers(host), 30_000);
  return daemon;
}

/**
 * Stops the daemon in order, so that its folder is complete. After that the daemon itself would wait
 * for another second, for a containerd that it has ended.
 */
async function stopDaemon(daemon: RunningProcess, namespace: Namespace): Promise<void> {
  daemon.kill('SIGTERM');
  const isComplete = (): boolean =>
    daemon.tail().includes('Daemon shutdown complete') &&
    !namespace.processes().some((pid) => runs(pid, 'containerd'));
  await waitFor(
    'the engine has ended in order',
    () => daemon.exit() !== undefined || isComplete(),
    { deadlineMs: 10_000, intervalMs: 20 },
  ).catch(() => undefined);
  await daemon.stop(0);
}

/**
 * Removes the containers and networks of this run and of a killed run before it. Images and build
 * cache stay.
 */
async function removeContainers(engine: Engine): Promise<void> {
  const ids = (await engine.docker(['ps', '--all', '--quiet'])).stdout
    .split('\n')
    .filter((id) => id !== '');
  if (ids.length > 0) await engine.docker(['rm', '--force', '--volumes', ...ids]);
  await engine.docker(['network', 'prune', '--force']);
}

/**
 * Removes empty control groups `berth-<pid>` of engines whose first process is gone: a kill leaves
 * nothing else behind.
 */
async function sweepCgroups(): Promise<void> {
  const root = '/sys/fs/cgroup';
  const parents = [root, ...(await folders(root)).map((name) => join(root, name))];
  for (const parent of parents) {
    for (const name of await folders(parent)) {
      const pid = /^berth-(\d+)$/.exec(name)?.[1];
      if (pid === undefined || isRunning(Number(pid))) continue;
      await removeCgroup(join(parent, name));
    }
  }
}

async function folders(dir: string): Promise<string[]> {
  try {
    return (await readdir(dir, { withFileTypes: true }))
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name);
  } catch (error) {
    // Another run removed the group meanwhile, or there is no such hierarchy.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

/** Removes nested groups first: killed builds leave groups within groups. */
async function removeCgroup(path: string): Promise<void> {
  for (const child of await folders(path)) await removeCgroup(join(path, child));
  try {
    await rmdir(path);
  } catch (error) {
    // EBUSY: its last processes are still ending; the next start removes the group.
    if (!['ENOENT', 'EBUSY', 'ENOTEMPTY'].includes((error as NodeJS.ErrnoException).code ?? ''))
      throw error;
  }
}
