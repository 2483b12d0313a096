/**
 * Starts and stops an agent. main.ts and the tests start it in the same way.
 *
 *   state folder -> parts (engine, disks, dataset cache) -> handlers -> registration loop
 *                                                                          └ after the first registration: configuration, tasks, events
 */
import type { Logger } from '@berth/kit/log';
import type { Tracing } from '@berth/kit/tracing';
import type { Loop } from '@berth/kit/loop';
import { METRICS_CAPABILITY } from '@berth/wire/metrics';
import { REGISTRY_CAPABILITY } from '@berth/wire/clean-up';
import { CAN_SECRET_FILES, CAN_SECRETS } from '@berth/wire/secret';
import { LOGS_CAPABILITY } from '@berth/wire/runtime';
import { CAN_MOVE_VOLUMES, CAN_VOLUMES } from '@berth/wire/volume';
import type { AgentConfig, Task } from '@berth/wire/task';
import type { Replace } from '@berth/kit/reload';
import type { AGENT_SETTINGS, AgentOptions } from './config.ts';
import { createHandlers, createRegistryParts, gitHome } from './handlers.ts';
import { type HealthServer, startHealthServer } from './link/health.ts';
import type { Locks } from './locks.ts';
import { createTaskLoop } from './link/poll-loop.ts';
import { importKnownHosts } from './git/import-known-hosts.ts';
import { createMetrics } from './metrics.ts';
import { watchContainers } from './engine/observe.ts';
import { createParts, type AgentParts } from './parts.ts';
import { type Readiness, readinessOf } from './link/readiness.ts';
import { reconcile } from './engine/reconcile.ts';
import { startRegistrationLoop } from './link/registration-loop.ts';
import { AGENT_VERSION, createRegistration, type Registration } from './link/registration.ts';
import {
  createRegistrySettings,
  keptReleases,
  type RegistrySettings,
} from './link/registry-settings.ts';
import { runTask } from './tasks/run-task.ts';
import { openStateFolder } from './state/state-folder.ts';
import { sendUsage } from './usage/sender.ts';
import { pause } from './stopped.ts';
import { REGISTRY_LOCK, type RegistryParts } from './tasks/clean.ts';
import { createWritable } from './disk/writable.ts';

export type Agent = {
  readiness(): Promise<Readiness>;
  /** Port of /healthz, /readyz and /metrics; null if LISTEN is not set. */
  healthPort(): number | null;
  nodeId(): string | null;
  /** Settings that change while the agent runs. */
  replace: Replace<typeof AGENT_SETTINGS>;
  /** Takes no new tasks, ends the running ones, and resolves. */
  stop(): Promise<void>;
};

const SWEEP_IMAGES_MS = 86_400_000;
const RECOVER_PAUSE_MS = 3_000;
const LONGEST_RECOVER_PAUSE_MS = 60_000;
const OTHER_TASKS_AT_ONCE = 8;
const RETIREMENTS_AT_ONCE = 200;
/**
 * Copies wait for COPIES_AT_ONCE in the agent. If they waited unclaimed, the control plane would
 * count them as lost.
 */
const SYNCS_AT_ONCE = 200;
/** A part of the 20 s that closing may take (main.ts). */
const DRAIN_MS = 8_000;

export async function startAgent(
  config: AgentOptions,
  log: Logger,
  tracing: Tracing | null = null,
): Promise<Agent> {
  const ending = new AbortController();
  const { signal } = ending;
  // The loop starts last; a part that asks for a registration earlier gets the first one, which
  // comes anyway.
  let registering: Loop | null = null;
  const wakeRegistration = (): void => registering?.wake();

  const state = await openStateFolder(config, log);
  // Set below; the parts ask only later.
  let known: RegistrySettings | null = null;
  const metrics = createMetrics(
    {
      version: AGENT_VERSION,
      role: config.NODE_ROLE,
      disk: () => parts.diskUse.last(),
      engineOk: () => registration.engineOk(),
      usage: () => parts.usage?.last() ?? [],
    },
    { processMetrics: config.LISTEN !== undefined },
  );
  const registrySettings = (): AgentConfig | null => known?.current() ?? null;
  const keepReleases = (): number => keptReleases(config.KEEP_RELEASES, registrySettings());
  const nodeId = (): string | null => registration.nodeId();
  const parts = await createParts(config, {
    keepReleases,
    registrySettings,
    state,
    metrics,
    wakeRegistration,
    nodeId,
    log,
  });
  const { client, docker, images, data } = parts;
  const registry = createRegistrySettings({
    client,
    login: { engine: parts.engineClient, credentials: parts.registryLogin },
    signal,
    onFetched: images.sweepLater,
    log,
  });
  known = registry;
  const cleaning = createRegistryParts(config, parts, registry, state);
  const handlers = createHandlers(config, parts, { registry, cleaning, state });

  const registration = createNodeRegistration(config, parts, log);
  const tasks = createTaskLoop({
    client,
    log,
    // No tasks before the registry settings are known: they would fail.
    nodeId: () => (registry.current() === null ? null : registration.nodeId()),
    run: (task) => runTask(task, { client, handlers, log, onFailure, meter: metrics, tracing }),
    limits: {
      build: config.MAX_BUILDS,
      retire: RETIREMENTS_AT_ONCE,
      sync: SYNCS_AT_ONCE,
      other: OTHER_TASKS_AT_ONCE,
    },
    onLogsWanted: parts.logReaders.wanted,
    onUnknownNode: wakeRegistration,
    onLost: wakeRegistration,
    onFirstList(open) {
      // A clean-up that is still open is continued: it makes the registry writable first.
      const firstMs = open.some((task) => task.kind === 'clean') ? RECOVER_PAUSE_MS : 0;
      if (cleaning !== null)
        background.run(
          'registry',
          keepRegistryWritable(cleaning, firstMs, parts.locks, signal, log),
        );
      return removeLeftovers(parts, registration.nodeId() ?? '', open, signal, log);
    },
  });

  const background = createBackground(signal, log);
  const fetchSettings = (): void => background.run('configuration', registry.fetch());
  /** The registry's password may have been changed: fetch it for the next task. */
  function onFailure(code: string): void {
    if (code === 'registry_refused') fetchSettings();
  }
  /** Before the first build, which could need a host of them. */
  const importHosts = async (): Promise<void> => {
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
  };
  const loop = startRegistrationLoop({
    registration,
    tasks,
    ports: parts.ports,
    metrics,
    onAnswer: ({ config_etag }) => background.run('configuration', registry.announced(config_etag)),
    onFirst() {
      fetchSettings();
      background.run(
        'tasks',
        importHosts().then(() => tasks.run(signal)),
      );
      const { usage } = parts;
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
    },
    signal,
    log,
  });
  registering = loop;
  const sweeping = setInterval(() => {
    const address = registry.current()?.registry_addr ?? '';
    if (address !== '') images.sweepLater(address);
  }, SWEEP_IMAGES_MS).unref();

  const writable = createWritable([
    { setting: 'STATE_DIR', path: state.root },
    ...(data === null ? [] : [{ setting: 'SVC_ROOT' as const, path: config.SVC_ROOT }]),
  ]);
  const readiness = async (): Promise<Readiness> =>
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
  const health: HealthServer | null =
    config.LISTEN === undefined
      ? null
      : await startHealthServer(config.LISTEN, { readiness, metrics: metrics.render });

  return {
    readiness,
    healthPort: () => health?.port ?? null,
    nodeId: () => registration.nodeId(),
    replace: {
      AGENT_SECRET(shared) {
        parts.credentials.use({ shared });
        wakeRegistration();
      },
      JOIN_TOKEN(joinToken) {
        parts.credentials.use({ joinToken });
        wakeRegistration();
      },
    },
    async stop() {
      // End the tasks first, while leases are still renewed and reports still arrive.
      await tasks.drain(DRAIN_MS);
      ending.abort();
      await loop.stop();
      await background.ended();
      await parts.usage?.saved();
      await parts.logReaders.stop();
      await parts.exits.stop();
      await parts.diskUse.stop();
      clearInterval(sweeping);
      parts.stopKeepingRoom();
      await images.stop();
      await parts.networks.stop();
      await parts.secretFiles.stop();
      await data?.stop();
      await parts.volumeInventory?.stop();
      await health?.close();
    },
  };
}

/**
 * Makes the registry writable again when a clean-up could not, in this process or in an earlier
 * one: no image can be stored before. One process has to do it, also when no clean-up follows.
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
      // Not while a clean-up works.
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
 * Removes what an earlier process left: its unstarted containers, and then in the background its
 * unfinished copies.
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
  // Deleting files may take long, and no task has to wait for it.
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
  return createRegistration({
    client: parts.client,
    list: parts.listContainers,
    onSeen: parts.exits.seen,
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
      ...(parts.usage === null ? [] : [METRICS_CAPABILITY]),
      ...(config.REGISTRY_CONFIG === undefined ? [] : [REGISTRY_CAPABILITY]),
      ...(config.NODE_ROLE === 'deploy' ? [LOGS_CAPABILITY] : []),
      ...(config.NODE_ROLE === 'deploy' && parts.secretFiles.problem === null
        ? [CAN_SECRET_FILES]
        : []),
      ...(parts.volumes === null ? [] : [CAN_VOLUMES, CAN_MOVE_VOLUMES]),
    ],
    storage: parts.storage.read,
    engine: parts.engineStatus,
    health: parts.shownHealth,
    disk: parts.diskUse.now,
    inventory: parts.data?.inventory ?? null,
    volumes: parts.volumeInventory,
    limits: { publishIp: parts.publishIp, defaultMemory: config.DEFAULT_MEMORY },
  });
}

type Background = { run(name: string, work: Promise<void>): void; ended(): Promise<void> };
/** Collects work that runs until the agent stops; an earlier end is logged as fatal. */
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
