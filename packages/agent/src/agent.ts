/**
 * Starts and stops an agent, for main.ts and for the tests.
 *
 *   state folder -> parts (engine, disks, dataset cache) -> handlers -> registration loop
 *                         after the first registration: configuration, tasks, events ┘
 */
import type { Logger } from '@berth/kit/log';
import type { Tracing } from '@berth/kit/spans';
import type { Loop } from '@berth/kit/loop';
import { METRICS_CAPABILITY } from '@berth/wire/metrics';
import { BEAT } from '@berth/wire/node';
import { REGISTRY_CAPABILITY } from '@berth/wire/clean-up';
import { CAN_SECRET_FILES, CAN_SECRETS } from '@berth/wire/secret';
import { CAN_INSTANCES, CAN_PROCESSES } from '@berth/wire/task';
import { listRuns } from './tasks/sweep-runs.ts';
import { CAN_RUN, CAN_RUN_INPUT } from '@berth/wire/run-payload';
import { CAN_DEVICES, CAN_RUN_DEVICES } from '@berth/wire/machine';
import { CAN_EXEC, EXEC_ALLOWED } from '@berth/wire/exec';
import { LOGS_CAPABILITY } from '@berth/wire/runtime';
import { DATASET_PINS } from '@berth/wire/data-copies';
import { CAN_MOVE_VOLUMES, CAN_VOLUMES } from '@berth/wire/volume';
import type { AgentConfig, Task } from '@berth/wire/task';
import type { Replace } from '@berth/kit/reload';
import type { AGENT_SETTINGS, AgentOptions } from './config.ts';
import { createHandlers, createRegistryParts, gitHome } from './handlers.ts';
import { type HealthServer, startHealthServer } from './link/health.ts';
import type { Locks } from './locks.ts';
import { createTaskLoop, type TaskLoop } from './link/poll-loop.ts';
import { createBeats } from './link/beats.ts';
import { createExecSessions } from './link/exec-sessions.ts';
import { importKnownHosts } from './git/import-known-hosts.ts';
import { createMetrics, type Metrics } from './metrics.ts';
import { createExecContainers } from './engine/exec-session.ts';
import { publishedHost } from './engine/probe.ts';
import { watchContainers } from './engine/observe.ts';
import { createParts, type AgentParts } from './parts.ts';
import { type Readiness, readinessOf } from './link/readiness.ts';
import { reconcile } from './engine/reconcile.ts';
import { createRestarts } from './engine/restarts.ts';
import { startRegistrationLoop } from './link/registration-loop.ts';
import { AGENT_VERSION, createRegistration, type Registration } from './link/registration.ts';
import {
  createRegistrySettings,
  keptReleases,
  type RegistrySettings,
} from './link/registry-settings.ts';
import { runTask } from './tasks/run-task.ts';
import { openStateFolder, type StateFolder } from './state/state-folder.ts';
import { sendUsage } from './usage/sender.ts';
import { pause } from './stopped.ts';
import { REGISTRY_LOCK, type RegistryParts } from './tasks/clean.ts';
import { createWritable } from './disk/writable.ts';

export type Agent = {
  readiness(): Promise<Readiness>;
  /** Returns the port of /healthz, /readyz and /metrics; null if LISTEN is not set. */
  healthPort(): number | null;
  nodeId(): string | null;
  /** Replaces settings that can change while the agent runs. */
  replace: Replace<typeof AGENT_SETTINGS>;
  /** Stops taking new tasks, ends the running ones, and resolves when the agent has stopped. */
  stop(): Promise<void>;
};

const SWEEP_IMAGES_MS = 86_400_000;
const RECOVER_PAUSE_MS = 3_000;
const LONGEST_RECOVER_PAUSE_MS = 60_000;
/** Times in ms after the end of a move at which the node registers. */
const AFTER_MOVE_MS = [0, 1_000, 3_000, 10_000];
const OTHER_TASKS_AT_ONCE = 8;
const RETIREMENTS_AT_ONCE = 200;
/** Commands mostly wait for their containers, so they have a limit of their own. */
const RUNS_AT_ONCE = 50;
/**
 * Maximum number of claimed copies, which wait for COPIES_AT_ONCE inside the agent. If they waited
 * unclaimed, the control plane would count them as lost.
 */
const SYNCS_AT_ONCE = 200;
/** Time in ms to end running tasks, within the 20 s that a shutdown can take (main.ts). */
const DRAIN_MS = 8_000;

/** State of a running agent, and first parameter of the functions below. */
type Running = {
  config: AgentOptions;
  log: Logger;
  /** Aborted when the agent stops. */
  signal: AbortSignal;
  state: StateFolder;
  parts: AgentParts;
  metrics: Metrics;
  registry: RegistrySettings;
  /** Null on a machine without the registry. */
  cleaning: RegistryParts | null;
  registration: Registration;
  background: Background;
  wakeRegistration: () => void;
};
/** Dependencies that are created after the parts, which use them only later. */
type Later = {
  registry: RegistrySettings | null;
  registration: Registration | null;
  /**
   * Null until the registrations start. A part that requests a registration before then gets the
   * first one anyway.
   */
  loop: Loop | null;
};

export async function startAgent(
  config: AgentOptions,
  log: Logger,
  tracing: Tracing | null = null,
): Promise<Agent> {
  const ending = new AbortController();
  const later: Later = { registry: null, registration: null, loop: null };
  const running = await openParts(config, later, ending.signal, log);
  const { parts, registration, metrics } = running;
  const tasks = createTasks(running, tracing);
  const loop = startRegistering(running, tasks);
  later.loop = loop;
  const sweeping = sweepImagesDaily(running);
  const readiness = createReadiness(running, tasks);
  const health: HealthServer | null =
    config.LISTEN === undefined
      ? null
      : await startHealthServer(config.LISTEN, { readiness, metrics: metrics.render });
  return {
    readiness,
    healthPort: () => health?.port ?? null,
    nodeId: () => registration.nodeId(),
    replace: replaceCredentials(running),
    async stop() {
      // End the tasks first, while leases can still be renewed and reports can still be sent.
      await tasks.drain(DRAIN_MS);
      ending.abort();
      await loop.stop();
      await running.background.ended();
      clearInterval(sweeping);
      await stopParts(parts);
      await health?.close();
    },
  };
}

async function openParts(
  config: AgentOptions,
  later: Later,
  signal: AbortSignal,
  log: Logger,
): Promise<Running> {
  const state = await openStateFolder(config, log);
  const wakeRegistration = (): void => later.loop?.wake();
  const registrySettings = (): AgentConfig | null => later.registry?.current() ?? null;
  const metrics = createMetrics(
    {
      version: AGENT_VERSION,
      role: config.NODE_ROLE,
      disk: () => parts.diskUse.last(),
      engineOk: () => later.registration?.engineOk() ?? null,
      usage: () => parts.usage?.last() ?? [],
    },
    { processMetrics: config.LISTEN !== undefined },
  );
  const parts = await createParts(config, {
    keepReleases: () => keptReleases(config.KEEP_RELEASES, registrySettings()),
    registrySettings,
    state,
    metrics,
    wakeRegistration,
    nodeId: () => later.registration?.nodeId() ?? null,
    log,
  });
  const registry = createRegistrySettings({
    client: parts.client,
    login: { engine: parts.engineClient, credentials: parts.registryLogin },
    signal,
    onFetched: parts.images.sweepLater,
    log,
  });
  const registration = createNodeRegistration(config, parts, log);
  later.registry = registry;
  later.registration = registration;
  return {
    config,
    log,
    signal,
    state,
    parts,
    metrics,
    registry,
    cleaning: createRegistryParts(config, parts, registry, state),
    registration,
    background: createBackground(signal, log),
    wakeRegistration,
  };
}

/**
 * The control plane uses the new copy of volumes when the old node has listed its containers after
 * both nodes have reported, and this node does not know when the other one reports.
 */
function registerAfterMove({ wakeRegistration }: Running): void {
  for (const ms of AFTER_MOVE_MS) setTimeout(wakeRegistration, ms).unref();
}

function createTasks(running: Running, tracing: Tracing | null): TaskLoop {
  const { config, log, state, parts, metrics, registry, cleaning, registration } = running;
  const { client } = parts;
  const handlers = createHandlers(config, parts, { client, registry, cleaning, state });
  const execSessions = createExecSessions({
    baseUrl: config.CONTROL_PLANE_URL,
    headers: parts.credentials.headers,
    isAllowed: config.ALLOW_EXEC === 'true',
    inputs: parts.runs.inputs,
    containers: createExecContainers(parts.engineClient, parts.docker, parts.ids, {
      publishedHost: () => publishedHost({ publishIp: parts.publishIp, hostIp: parts.hostIp }),
    }),
    signal: running.signal,
    log,
  });
  /** The registry's password might have changed: fetch it for the next task. */
  const onFailure = (code: string): void => {
    if (code === 'registry_refused') fetchSettings(running);
  };
  return createTaskLoop({
    client,
    log,
    // Poll no tasks before the registry settings are known, because tasks would fail.
    nodeId: () => (registry.current() === null ? null : registration.nodeId()),
    run(task) {
      const one = runTask(task, { client, handlers, log, onFailure, meter: metrics, tracing });
      if (task.kind === 'move') void one.done.then(() => registerAfterMove(running));
      return one;
    },
    limits: {
      build: config.MAX_BUILDS,
      retire: RETIREMENTS_AT_ONCE,
      sync: SYNCS_AT_ONCE,
      run: RUNS_AT_ONCE,
      other: OTHER_TASKS_AT_ONCE,
    },
    onList: (list) => parts.sweepRuns.listed(list),
    onLogsWanted: parts.logReaders.wanted,
    onExecWaiting: execSessions.waiting,
    onUnknownNode: running.wakeRegistration,
    onLost: running.wakeRegistration,
    onFirstList: (open) => beginAfterFirstList(running, open),
  });
}

function beginAfterFirstList(
  { parts, cleaning, registration, background, signal, log }: Running,
  open: readonly Task[],
): Promise<void> {
  // If a clean-up task is open, give it time to resume: it makes the registry writable first.
  const firstMs = open.some((task) => task.kind === 'clean') ? RECOVER_PAUSE_MS : 0;
  if (cleaning !== null)
    background.run('registry', keepRegistryWritable(cleaning, firstMs, parts.locks, signal, log));
  return removeLeftovers(parts, registration.nodeId() ?? '', open, signal, log);
}

const fetchSettings = ({ background, registry }: Running): void =>
  background.run('configuration', registry.fetch());

/** Starts the registrations. The first answer starts all other loops. */
function startRegistering(running: Running, tasks: TaskLoop): Loop {
  const { parts, metrics, registry, registration, background, signal, log } = running;
  const beats = createBeats({
    client: parts.client,
    nodeId: () => registration.nodeId(),
    onUnknown: running.wakeRegistration,
    log,
    signal,
  });
  return startRegistrationLoop({
    registration,
    tasks,
    ports: parts.ports,
    metrics,
    onAnswer({ config_etag, beat_seconds }) {
      beats.every(beat_seconds);
      background.run('configuration', registry.announced(config_etag));
    },
    onFirst() {
      fetchSettings(running);
      background.run(
        'tasks',
        importHosts(running).then(() => tasks.run(signal)),
      );
      watchNode(running);
    },
    signal,
    log,
  });
}

/** Imports known hosts before the first build, which might need them. */
async function importHosts({
  config,
  state,
  parts: { client },
  registration,
  signal,
  log,
}: Running): Promise<void> {
  const nodeId = registration.nodeId();
  if (config.NODE_ROLE !== 'builder' || nodeId === null) return;
  await importKnownHosts({
    client,
    nodeId,
    homeDir: gitHome(state),
    sshKeyHosts: config.SSH_KEY_HOSTS ?? [],
    signal,
    log,
  });
}

/** Sends resource usage and watches the engine's events until the agent stops. */
function watchNode(running: Running): void {
  const { parts, registration, background, wakeRegistration, signal, log } = running;
  const { client, docker, usage } = parts;
  if (usage !== null)
    background.run(
      'metrics',
      sendUsage({ client, meter: usage, nodeId: () => registration.nodeId(), log }, signal),
    );
  const watch = {
    onChange: wakeRegistration,
    onOutOfMemory: (id: string) =>
      background.run('metrics', usage?.oomKilled(id) ?? Promise.resolve()),
    onBroken: parts.revival.suspect,
  };
  background.run('events', watchContainers(docker, watch, signal, log));
}

const sweepImagesDaily = ({ registry, parts }: Running): NodeJS.Timeout =>
  setInterval(() => {
    const address = registry.current()?.registry_addr ?? '';
    if (address !== '') parts.images.sweepLater(address);
  }, SWEEP_IMAGES_MS).unref();

function createReadiness(running: Running, tasks: TaskLoop): () => Promise<Readiness> {
  const { config, state, parts, registry, registration } = running;
  const writable = createWritable([
    { setting: 'STATE_DIR', path: state.root },
    ...(parts.data === null ? [] : [{ setting: 'SVC_ROOT' as const, path: config.SVC_ROOT }]),
  ]);
  return async () =>
    readinessOf({
      folderProblems: await writable(),
      dataProblem: parts.dataProblem,
      refusal: registration.refusal(),
      isRegistered: registration.nodeId() !== null,
      silentMs: performance.now() - (registration.lastOkAt() ?? Number.NEGATIVE_INFINITY),
      hasRegistrySettings: registry.current() !== null,
      hasPolledTasks: tasks.lastPollOkAt() !== null,
      engineOk: registration.engineOk(),
      portProblem: parts.ports.problem(),
      portNotes: parts.ports.notes(),
      diskNotes: parts.diskNotes(),
    });
}

const replaceCredentials = ({ parts, wakeRegistration }: Running): Agent['replace'] => ({
  AGENT_SECRET(shared) {
    parts.credentials.use({ shared });
    wakeRegistration();
  },
  JOIN_TOKEN(joinToken) {
    parts.credentials.use({ joinToken });
    wakeRegistration();
  },
});

async function stopParts(parts: AgentParts): Promise<void> {
  parts.runningProbe?.stop();
  await parts.usage?.saved();
  await parts.logReaders.stop();
  await parts.exits.stop();
  await parts.sweepRuns.stop();
  await parts.diskUse.stop();
  parts.stopKeepingRoom();
  await parts.images.stop();
  await parts.networks.stop();
  await parts.secretFiles.stop();
  await parts.data?.stop();
  await parts.volumeInventory?.stop();
}

/**
 * Makes the registry writable again if a clean-up, of this process or of a previous one, left it
 * read-only. Until then no image can be pushed, and no later clean-up might come that would repair
 * it.
 */
async function keepRegistryWritable(
  { collector }: RegistryParts,
  firstMs: number,
  locks: Locks,
  signal: AbortSignal,
  log: Logger,
): Promise<void> {
  let pauseMs = RECOVER_PAUSE_MS;
  for (let waitMs = firstMs; !signal.aborted; waitMs = pauseMs) {
    let release: (() => void) | undefined;
    try {
      await pause(waitMs, signal);
      // A running clean-up holds this lock.
      release = await locks.acquire(REGISTRY_LOCK, signal);
      await collector.recover(signal);
      pauseMs = RECOVER_PAUSE_MS;
    } catch (err) {
      pauseMs = Math.min(2 * pauseMs, LONGEST_RECOVER_PAUSE_MS);
      if (!signal.aborted)
        log.error({ err }, 'making the registry writable again failed; will retry');
    } finally {
      release?.();
    }
  }
}

/**
 * Removes leftovers of a previous process: containers that never started, and then, in the
 * background, incomplete copies.
 */
async function removeLeftovers(
  parts: AgentParts,
  nodeId: string,
  open: readonly Task[],
  signal: AbortSignal,
  log: Logger,
): Promise<void> {
  await reconcile(parts.docker, nodeId, open, log, signal).catch((err: unknown) =>
    log.warn(
      { err },
      'removing leftover containers failed; they are reported to the control plane',
    ),
  );
  // Remove files in the background: it can take long, and no task must wait for it.
  const moving = open.flatMap((task) => (task.kind === 'move' ? [task.payload.to] : []));
  void parts.volumes
    ?.removeIncoming(moving)
    .catch((err: unknown) => log.warn({ err }, 'removing unfinished copies of volumes failed'));
  void parts.data
    ?.removeLeftovers(signal)
    .catch(
      (err: unknown) =>
        void (signal.aborted || log.warn({ err }, 'removing leftover dataset copies failed')),
    );
}

function createNodeRegistration(
  config: AgentOptions,
  parts: AgentParts,
  log: Logger,
): Registration {
  const restarts = createRestarts();
  return createRegistration({
    client: parts.client,
    restarts,
    list: parts.listContainers,
    listRuns: listRuns(parts.docker, parts.ids),
    onSeen(containers) {
      parts.exits.seen(containers);
      parts.runningProbe?.seen(containers);
      restarts.seen(containers);
    },
    ids: parts.ids,
    revive: parts.revival.revive,
    log,
    hostIp: parts.hostIp,
    nodeName: config.nodeName,
    role: config.NODE_ROLE,
    maxBuilds: config.MAX_BUILDS,
    credentials: parts.credentials,
    usage: parts.usage,
    neighbours: parts.ports.knows,
    capabilities: () => [
      CAN_SECRETS,
      ...(config.NODE_ROLE === 'deploy' ? [CAN_INSTANCES, CAN_PROCESSES, BEAT, CAN_RUN] : []),
      ...(parts.usage === null ? [] : [METRICS_CAPABILITY]),
      ...(config.REGISTRY_CONFIG === undefined ? [] : [REGISTRY_CAPABILITY]),
      ...(config.NODE_ROLE === 'deploy'
        ? [LOGS_CAPABILITY, CAN_DEVICES, CAN_RUN_DEVICES, CAN_EXEC, CAN_RUN_INPUT]
        : []),
      ...(config.NODE_ROLE === 'deploy' && config.ALLOW_EXEC === 'true' ? [EXEC_ALLOWED] : []),
      ...(config.NODE_ROLE === 'deploy' && parts.secretFiles.problem === null
        ? [CAN_SECRET_FILES]
        : []),
      ...(parts.volumes === null ? [] : [CAN_VOLUMES, CAN_MOVE_VOLUMES]),
      ...(parts.data === null || config.DATASET_NFS_BASE_PATH === undefined ? [] : [DATASET_PINS]),
    ],
    storage: parts.storage.read,
    engine: parts.engineStatus,
    machine: parts.machine,
    labels: config.NODE_LABELS,
    health: parts.shownHealth,
    probe: parts.runningProbe,
    disk: parts.diskUse.now,
    inventory: parts.data?.inventory ?? null,
    pins: parts.data?.pins ?? null,
    volumes: parts.volumeInventory,
    limits: { publishIp: parts.publishIp, defaultMemory: config.DEFAULT_MEMORY },
  });
}

type Background = { run(name: string, work: Promise<void>): void; ended(): Promise<void> };
/**
 * Collects work that runs until the agent stops. If it ends before, the agent logs a fatal error.
 */
function createBackground(signal: AbortSignal, log: Logger): Background {
  const running = new Set<Promise<void>>();
  return {
    run(name, work) {
      const supervised = work
        .catch(
          (err: unknown) =>
            void (signal.aborted || log.fatal({ err, part: name }, 'a part of the agent failed')),
        )
        .finally(() => running.delete(supervised));
      running.add(supervised);
    },
    async ended() {
      await Promise.all(running);
    },
  };
}
