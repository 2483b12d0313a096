/** The agent put together by hand from its parts; main.ts and the tests start it the same way. */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '@berth/kit/log';
import { type Loop, startLoop } from '@berth/kit/loop';
import { createClient } from '@berth/wire/client';
import type { Node } from '@berth/wire/node';
import type { AgentConfig as RegistryConfig } from '@berth/wire/task';
import type { AgentConfig } from './config.ts';
import { readCredentials } from './credentials.ts';
import { createData, type Data, type DataOptions } from './data/data.ts';
import { readAgentId } from './data/agent-id.ts';
import { createDiskUse } from './disk-use.ts';
import { createEngineStatus } from './engine-status.ts';
import { type HealthServer, type Readiness, startHealthServer } from './health.ts';
import { createHostIp } from './host-ip.ts';
import { createImages } from './images.ts';
import { createLocks } from './locks.ts';
import { createTaskLoop } from './loop.ts';
import { createMetrics } from './metrics.ts';
import { createNodeIds, listOurs } from './node-ids.ts';
import { watch } from './observe.ts';
import { createNetworks } from './networks.ts';
import { createPortRule, enginePorts, iptablesOf } from './port-rule.ts';
import { reconcile } from './reconcile.ts';
import { AGENT_VERSION, createRegistration } from './registration.ts';
import { logIn } from './registry-login.ts';
import { untilAnswered } from './retry.ts';
import { createRevival } from './revive.ts';
import { runTask } from './run-task.ts';
import { createStorage } from './storage.ts';
import { createBuildHandler } from './tasks/build.ts';
import { createDeployHandler } from './tasks/deploy.ts';
import { createRetireHandler } from './tasks/retire.ts';
import { createSyncHandler } from './tasks/sync.ts';
import type { Handlers } from './tasks/task.ts';
import { createBuild } from './tools/buildx.ts';
import { createDockerCli } from './tools/docker-cli.ts';
import { createDocker } from './tools/docker.ts';
import { createDockerNetworks } from './tools/docker-networks.ts';
import { engineUse } from './tools/engine-use.ts';
import { createClone } from './tools/git.ts';
import { createIsInsecure } from './tools/insecure.ts';
import { createPushAccess } from './tools/push-access.ts';
import { createWorkspaces } from './workspace.ts';
import { createWritable } from './writable.ts';

export type Agent = {
  readiness(): Promise<Readiness>;
  /** Port of /healthz, /readyz and /metrics; null where LISTEN is not set. */
  healthPort(): number | null;
  nodeId(): string | null;
  /** Takes no new work, ends what runs, and resolves. */
  stop(): Promise<void>;
};

const REGISTER_MS = 30_000;
const LOOK_AGAIN_MS = 5_000;
const SWEEP_IMAGES_MS = 86_400_000;
/** Three registrations missed. */
const SILENT_MS = 100_000;
const OTHER_TASKS_AT_ONCE = 8;
const RETIREMENTS_AT_ONCE = 200;
/** They wait for their turn here (COPIES_AT_ONCE), not at the control plane, which would take them for lost. */
const SYNCS_AT_ONCE = 200;
/** Of the 20 s that closing may take (kit/closers). */
const DRAIN_MS = 8_000;

/** Makes its folders, clears what an earlier process left in them, and starts. */
export async function startAgent(config: AgentConfig, log: Logger): Promise<Agent> {
  const ending = new AbortController();
  const { signal } = ending;
  // A folder for each role: a machine may run both, and each clears up after its own.
  const stateDir = join(config.STATE_DIR, config.NODE_ROLE);
  const scratchDir = join(stateDir, 'scratch');
  await mkdir(stateDir, { recursive: true, mode: 0o700 });
  // An earlier process that was killed may have left an env-file here.
  await rm(scratchDir, { recursive: true, force: true });
  await mkdir(scratchDir, { recursive: true, mode: 0o700 });
  const workspaces = createWorkspaces(join(stateDir, 'work'), log);
  await workspaces.removeLeftovers();

  const credentials = await readCredentials({ stateDir, shared: config.AGENT_SECRET, joinToken: config.JOIN_TOKEN, log });
  const client = createClient({ baseUrl: config.CONTROL_PLANE_URL, headers: credentials.headers });
  const cli = createDockerCli({
    configDir: join(stateDir, 'docker'),
    inherit: config.inherit,
    dockerHost: config.DOCKER_HOST,
    pluginsDir: config.DOCKER_PLUGINS_DIR,
  });
  await cli.useRegistry(null);
  const revival = await createRevival(createDocker(cli, { scratchDir }), { path: join(stateDir, 'containers.json'), log });
  const { docker } = revival;
  const ids = await createNodeIds(join(stateDir, 'node-ids.json'), log);
  const ours = listOurs(docker, ids);
  const metrics = createMetrics(
    { version: AGENT_VERSION, role: config.NODE_ROLE, disk: () => diskUse.last(), engineOk: () => registration.engineOk() },
    { ofProcess: config.LISTEN !== undefined },
  );
  const images = createImages({
    docker: {
      ...docker,
      async removeImageRef(ref) {
        const removed = await docker.removeImageRef(ref);
        if (removed) metrics.imageRemoved();
        return removed;
      },
    },
    keep: config.KEEP_RELEASES,
    log,
  });
  const locks = createLocks();
  const hostIp = createHostIp(config.HOST_IP, config.CONTROL_PLANE_URL);

  const agentId = await readAgentId(join(stateDir, 'agent-id'));
  const pool = config.PROJECT_NETWORK_POOL;
  const networks = createNetworks({ docker: createDockerNetworks(cli), locks, pool: pool?.range ?? null, owner: agentId, log });
  const ports = await createPortGuard(config, log);

  let wakeRegistration: () => void = () => undefined;
  const storage = createStorage({ root: config.SVC_ROOT, maxStorage: config.MAX_STORAGE, inherit: config.inherit, log });
  const { data, problem: dataProblem } =
    config.NODE_ROLE !== 'deploy'
      ? { data: null, problem: null }
      : await openData({
          client,
          storage,
          ours,
          log,
          root: config.SVC_ROOT,
          share: config.DATASET_NFS_BASE_PATH,
          agent: agentId,
          keepReleases: config.KEEP_RELEASES,
          keepVersions: config.KEEP_VERSIONS,
          copiesAtOnce: config.COPIES_AT_ONCE,
          onCopyEnded: metrics.copyEnded,
          watermarks: { high: config.CACHE_HIGH / 100, low: config.CACHE_LOW / 100 },
          rsync: {
            inherit: config.inherit,
            stallMs: config.COPY_STALL,
            timeoutMs: config.COPY_TIMEOUT,
            bandwidth: config.COPY_BANDWIDTH,
          },
          onChange: () => wakeRegistration(),
        });

  let registry: RegistryConfig | null = null;
  // The rule is of IPv4: over IPv6 the engine would answer on the same port without it.
  const publishIp = config.PUBLISH_IP ?? (config.PROXY_IPS === undefined ? undefined : '0.0.0.0');
  const handlers: Handlers = {
    build: createBuildHandler({
      clone: createClone({
        homeDir: join(stateDir, 'git'),
        inherit: config.inherit,
        cloneTimeoutMs: config.CLONE_TIMEOUT,
        stallTimeoutMs: config.GIT_STALL_TIMEOUT,
        sshKeyHosts: config.SSH_KEY_HOSTS ?? [],
      }),
      build: createBuild(
        cli,
        createPushAccess(() => registry, createIsInsecure(cli)),
        { frontends: config.BUILD_FRONTENDS ?? [] },
      ),
      workspaces,
      images,
      buildTimeoutMs: config.BUILD_TIMEOUT,
    }),
    deploy: createDeployHandler({
      docker,
      ours,
      images,
      locks,
      networks,
      prepare: data?.prepare ?? null,
      hostIp,
      publishIp,
      pullTimeoutMs: config.PULL_TIMEOUT,
      pidsLimit: config.PIDS_LIMIT,
      defaultMemory: config.DEFAULT_MEMORY,
      logMaxSize: config.LOG_MAX_SIZE,
      logMaxFiles: config.LOG_MAX_FILES,
    }),
    retire: createRetireHandler({
      docker,
      ours,
      images,
      locks,
      networks,
      data,
      repositoryOf: (project) => (registry === null || registry.registry_addr === '' ? null : `${registry.registry_addr}/${project}`),
    }),
    sync: createSyncHandler({ cache: data?.cache ?? null }),
  };

  const diskUse = createDiskUse({
    folders: [config.SVC_ROOT, stateDir],
    datasets: () => (data === null ? 0 : storage.used()),
    engineUse: (stopping) => engineUse(cli, stopping),
    onFirst: () => wakeRegistration(),
    log,
  });
  const registration = createRegistration({
    client,
    list: ours,
    ids,
    look: revival.look,
    log,
    hostIp,
    nodeName: config.nodeName,
    role: config.NODE_ROLE,
    maxBuilds: config.MAX_BUILDS,
    credentials,
    storage: storage.read,
    engine: createEngineStatus(docker),
    disk: diskUse.now,
    inventory: data?.inventory ?? null,
    limits: { publishIp, defaultMemory: config.DEFAULT_MEMORY },
  });
  const tasks = createTaskLoop({
    client,
    log,
    // Not before the registry is known: a task would fail for want of it.
    nodeId: () => (registry === null ? null : registration.nodeId()),
    run: (task) => runTask(task, { client, handlers, log, onFailure, meter: metrics }),
    limits: { build: config.MAX_BUILDS, retire: RETIREMENTS_AT_ONCE, sync: SYNCS_AT_ONCE, other: OTHER_TASKS_AT_ONCE },
    onUnknownNode: () => wakeRegistration(),
    onLost: () => wakeRegistration(),
    onFirstList: async (open) => {
      await reconcile(docker, registration.nodeId() ?? '', open, log, signal).catch((err: unknown) =>
        log.warn({ err }, 'what an earlier run left could not be looked at; everything is reported all the same'),
      );
      // Deleting may take long; no task has to wait for it.
      void data
        ?.tidy(signal)
        .catch((err: unknown) => void (signal.aborted || log.warn({ err }, 'what earlier copies left could not be removed')));
    },
  });

  async function register(stopping: AbortSignal): Promise<Node> {
    try {
      const node = await registration.register(stopping);
      metrics.registered();
      return node;
    } catch (error) {
      if (!stopping.aborted) metrics.registrationFailed();
      throw error;
    }
  }

  /** Once, after the first registration (contract "GET /api/agent/config"). */
  async function configure(): Promise<void> {
    const onFailure = (err: unknown): void => log.warn({ err }, 'cannot get the configuration yet');
    const answer = await untilAnswered(() => client.call('agentConfig', { signal }), { signal, onFailure });
    const complaint = await logIn(cli, answer, signal);
    if (complaint !== null)
      log.warn(
        { registry: answer.registry_addr, complaint },
        'the registry did not take the login; tasks will say for themselves what they meet',
      );
    registry = answer;
    if (answer.registry_addr !== '') images.sweepLater(answer.registry_addr);
  }

  /** The registry's password may have been changed since we asked: the next task has the new one. */
  function onFailure(code: string): void {
    if (code === 'registry_refused') background('configuration', configure());
  }

  const ended: Promise<void>[] = [];
  const background = (name: string, work: Promise<void>): void =>
    void ended.push(work.catch((err: unknown) => void (signal.aborted || log.fatal({ err, what: name }, 'a part of the agent ended'))));
  let begun = false;
  const registering: Loop = startLoop(
    {
      name: 'register',
      periodMs: REGISTER_MS,
      async run(stopping) {
        const both = AbortSignal.any([stopping, signal]);
        const node = await register(both).catch(async (error: unknown) => {
          if (registration.problem() !== null) tasks.letGo();
          // Waiting 30 s for the next turn would be long while the control plane only restarts.
          if (both.aborted) throw error;
          log.warn({ err: error }, 'cannot register yet');
          return untilAnswered(() => register(both), { signal: both, minMs: 500, maxMs: 5_000 });
        });
        await ports.guard();
        tasks.heard(node.open_tasks);
        // It may be back in a moment, and what runs is not known until then.
        if (registration.engineOk() === false) setTimeout(() => registering.wake(), LOOK_AGAIN_MS).unref();
        if (begun) return;
        begun = true;
        background('configuration', configure());
        background('tasks', tasks.run(signal));
        background('events', watch(docker, { onChange: () => registering.wake(), onBroken: revival.suspect }, signal, log));
      },
    },
    log,
  );
  wakeRegistration = () => registering.wake();

  const writable = createWritable([
    { setting: 'STATE_DIR', path: stateDir },
    ...(data === null ? [] : [{ setting: 'SVC_ROOT' as const, path: config.SVC_ROOT }]),
  ]);
  async function readiness(): Promise<Readiness> {
    const reasons = await writable();
    if (dataProblem !== null) reasons.push(`this node takes no datasets: ${dataProblem}`);
    const problem = registration.problem();
    if (problem !== null) reasons.push(problem);
    else if (registration.nodeId() === null) reasons.push('not registered yet');
    else if (Date.now() - (registration.lastOkAt() ?? 0) > SILENT_MS) reasons.push('the control plane does not answer');
    if (registry === null) reasons.push('no configuration from the control plane yet');
    else if (tasks.lastPollOkAt() === null) reasons.push('tasks were not asked for yet');
    if (registration.engineOk() === false) reasons.push('the container engine does not answer');
    if (ports.problem() !== null) reasons.push(`PROXY_IPS is not in force: ${ports.problem()}`);
    return { ready: reasons.length === 0, reasons };
  }
  const sweeping = setInterval(() => {
    if (registry !== null && registry.registry_addr !== '') images.sweepLater(registry.registry_addr);
  }, SWEEP_IMAGES_MS).unref();
  const health: HealthServer | null =
    config.LISTEN === undefined ? null : await startHealthServer(config.LISTEN, { readiness, metrics: metrics.render });

  return {
    readiness,
    healthPort: () => health?.port ?? null,
    nodeId: () => registration.nodeId(),
    async stop() {
      // First the work, while leases are still renewed and reports still arrive; then the rest.
      await tasks.drain(DRAIN_MS);
      ending.abort();
      await registering.stop();
      await Promise.all(ended);
      await diskUse.stop();
      clearInterval(sweeping);
      await images.stop();
      await networks.stop();
      await data?.stop();
      await health?.close();
    },
  };
}

/** `data` is null where SVC_ROOT cannot be written: projects without datasets run all the same. */
async function openData(options: DataOptions): Promise<{ data: Data | null; problem: string | null }> {
  try {
    return { data: await createData(options), problem: null };
  } catch (err) {
    options.log.warn({ err, SVC_ROOT: options.root }, 'SVC_ROOT cannot be used: this node can take no datasets');
    const why = err instanceof Error ? err.message : String(err);
    return { data: null, problem: `SVC_ROOT (${options.root}) could not be used at the start (${why}); mend it and restart the agent` };
  }
}

type PortGuard = {
  /** Sees to it that the rule is in force: whoever reloads the packet filter takes it away. */
  guard(): Promise<void>;
  /** Why it is not; null where it is, or is not asked for. */
  problem(): string | null;
};

/** PROXY_IPS, where the agent may change the packet filter. */
async function createPortGuard(config: AgentConfig, log: Logger): Promise<PortGuard> {
  const { PROXY_IPS: proxies, PROJECT_NETWORK_POOL: pool } = config;
  let problem: string | null = null;
  if (proxies === undefined || pool === null || config.NODE_ROLE !== 'deploy') return { guard: async () => undefined, problem: () => null };
  const rule = createPortRule({ pool: pool.cidr, proxies, ports: await enginePorts(), run: iptablesOf(config.inherit) });
  return {
    problem: () => problem,
    async guard() {
      const seen = process.getuid?.() === 0 ? await rule.ensure() : 'the agent is not root';
      if (seen !== null && seen !== problem) log.error({ problem: seen }, 'PROXY_IPS is not in force: published ports are open to all');
      problem = seen;
    },
  };
}
