/**
 * The parts of an agent that work on this machine: the container engine, the disks and the dataset
 * cache. Wired by hand.
 */
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import type { Logger } from '@berth/kit/log';
import { messageOf } from '@berth/kit/message-of';
import { type Client, createClient } from '@berth/wire/client';
import type { Watermarks } from '@berth/wire/eviction';
import { LABELS } from '@berth/wire/vocabulary';
import type { AgentConfig } from '@berth/wire/task';
import type { AgentOptions } from './config.ts';
import { type Credentials, readCredentials } from './link/credentials.ts';
import { readAgentId } from './link/agent-id.ts';
import {
  createDatasetParts,
  type DatasetParts,
  type DatasetPartsOptions,
} from './data/dataset-parts.ts';
import { createVolumeInventory, type VolumeInventory } from './data/volumes/inventory.ts';
import { createVolumes, type Volumes } from './data/volumes/volumes.ts';
import { createDiskUse, type DiskUse } from './disk/disk-use.ts';
import { createEngineSpace } from './disk/engine-space.ts';
import { createEngineStatus, type EngineStatus } from './engine/engine-status.ts';
import { createEvictableImages } from './disk/evictable-images.ts';
import { createShownHealth, type ShownHealth } from './engine/health-check.ts';
import { createHostIp } from './link/host-ip.ts';
import { createHostPorts, type HostPorts } from './engine/host-ports.ts';
import { createImages, type Images } from './disk/old-images.ts';
import { createLocks, type Locks } from './locks.ts';
import { createExits, type Exits } from './logs/exits.ts';
import { createLogReaders, type LogReaders } from './logs/readers.ts';
import { createRedactOf } from './logs/secrets-of.ts';
import type { Metrics } from './link/metrics.ts';
import { createNetworks, type Networks } from './engine/networks.ts';
import {
  createNodeIds,
  type ListNodeContainers,
  listNodeContainers,
  type NodeIds,
} from './link/node-ids.ts';
import { createPortGuard, type PortGuard } from './engine/port-guard.ts';
import { createPullSize } from './disk/pull-size.ts';
import { createRegistryApi } from './registry/api.ts';
import { createRevival, type Revival } from './engine/revive.ts';
import { createRoom, type KeepOptions, RECENT_MS, type Room } from './disk/eviction.ts';
import type { StateFolder } from './link/state-folder.ts';
import { type BuildDigests, createBuildDigests } from './build/build-digests.ts';
import { createSecretFiles, type SecretFiles } from './secrets/files.ts';
import { createStorage, type StorageMeter } from './disk/storage.ts';
import { createDockerCli, type DockerCli } from './engine/docker-cli.ts';
import { createEngineClient, type EngineClient } from './engine/engine-client.ts';
import {
  createRegistryCredentials,
  type RegistryCredentials,
} from './engine/registry-credentials.ts';
import { createDocker } from './engine/create-docker.ts';
import type { Docker } from './engine/docker.ts';
import { createDockerNetworks } from './engine/docker-networks.ts';
import { createIsInsecure } from './engine/insecure-registries.ts';
import { createImageSizes } from './engine/engine-use.ts';
import { createControlGroups } from './usage/control-groups.ts';
import { createMeter, type Meter } from './usage/meter.ts';
import { createOomMemory } from './usage/oom-memory.ts';

export type AgentParts = {
  credentials: Credentials;
  client: Client;
  /** Starts the docker command, for builds. */
  cli: DockerCli;
  engine: EngineClient;
  registryLogin: RegistryCredentials;
  docker: Docker;
  revival: Revival;
  ids: NodeIds;
  listContainers: ListNodeContainers;
  images: Images;
  locks: Locks;
  networks: Networks;
  ports: PortGuard;
  hostIp: () => Promise<string>;
  /** The address on which containers publish their ports; undefined: all addresses. */
  publishIp: string | undefined;
  hostPorts: HostPorts;
  storage: StorageMeter;
  /** Null on a builder, and if SVC_ROOT is not usable. */
  data: DatasetParts | null;
  /** Why a deploy node takes no datasets. */
  dataProblem: string | null;
  /** Null on a builder, and if SVC_ROOT is not usable. */
  volumes: Volumes | null;
  volumeInventory: VolumeInventory | null;
  diskUse: DiskUse;
  /** Keeps the disk of this node within its budget. */
  keepRoom: KeepRoom;
  /** Notes about the budget for the operator. */
  diskNotes: () => string[];
  /** Counts the bytes that a pull is about to add. */
  expectPull: ExpectPull;
  /** Ends the evictions that run in the background. */
  stopKeepingRoom: () => void;
  /** Null on a builder. */
  usage: Meter | null;
  buildDigests: BuildDigests;
  secretFiles: SecretFiles;
  exits: Exits;
  engineStatus: EngineStatus;
  shownHealth: ShownHealth;
  logReaders: LogReaders;
};
/** Never rejects, except with the signal’s reason. */
/** A pull in progress. `bytes`: what it is about to add; 0: unknown. */
export type ExpectedPull = { bytes: number; pulled(): Promise<void>; release(): void };
export type ExpectPull = (image: string, signal: AbortSignal) => Promise<ExpectedPull>;
export type KeepRoom = (signal: AbortSignal, options?: KeepOptions) => Promise<void>;
export type AgentPartsOptions = {
  keepReleases: () => number;
  /** Null before the first answer of the control plane. */
  registrySettings: () => AgentConfig | null;
  state: StateFolder;
  metrics: Metrics;
  wakeRegistration: () => void;
  /** Null: not registered yet. */
  nodeId: () => string | null;
  log: Logger;
};

export async function createParts(
  config: AgentOptions,
  {
    keepReleases,
    registrySettings,
    state,
    metrics,
    wakeRegistration,
    nodeId,
    log,
  }: AgentPartsOptions,
): Promise<AgentParts> {
  const { inherit } = config;
  const credentials = await readCredentials({
    stateDir: state.root,
    shared: config.AGENT_SECRET ?? [],
    joinToken: config.JOIN_TOKEN,
    log,
  });
  const client = createClient({ baseUrl: config.CONTROL_PLANE_URL, headers: credentials.headers });

  const registryLogin = createRegistryCredentials({
    configDir: join(state.root, 'docker'),
    pluginsDir: config.DOCKER_PLUGINS_DIR,
  });
  await registryLogin.use(null);
  const dockerHost = config.DOCKER_HOST;
  const cli = createDockerCli({ credentials: registryLogin, inherit, dockerHost });
  const engine = createEngineClient({ credentials: registryLogin, inherit, dockerHost });
  const revival = await createRevival(createDocker({ engine, credentials: registryLogin }), {
    path: join(state.root, 'containers.json'),
    log,
  });
  const ids = await createNodeIds(join(state.root, 'node-ids.json'), log);
  const agentId = await readAgentId(join(state.root, 'agent-id'));
  const secretFiles = await createSecretFiles({
    folder: join(config.SECRETS_DIR, agentId),
    copies: join(state.root, 'secret-files'),
    docker: revival.docker,
    log,
  });
  // Before the first look at the containers: a container that the engine could not start is started
  // then.
  await secretFiles.restore();
  if (config.NODE_ROLE === 'deploy' && secretFiles.problem !== null)
    log.warn({ reason: secretFiles.problem }, 'this node mounts no file secrets');
  const redactOf = createRedactOf(revival.docker, secretFiles);
  const exits = createExits({
    docker: revival.docker,
    redactOf,
    client,
    nodeId,
    isOwn: ({ labels }) => ids.all().includes(labels[LABELS.node] ?? ''),
    log,
  });
  const { docker } = exits;
  const listContainers = listNodeContainers(docker, ids);
  // Set below; they are called only later.
  let room: Room | null = null;
  const stopping = new AbortController();
  const keepRoom: KeepRoom = async (signal, options) => {
    await room?.keep(signal, options).catch((err: unknown) => {
      signal.throwIfAborted();
      log.warn(
        { err },
        'keeping the disk within its budget failed; will retry after the next task',
      );
    });
  };
  const keepRoomLater = (recount: boolean): Promise<void> =>
    keepRoom(stopping.signal, { recount }).catch(() => undefined);
  const images = createImages({
    docker: onRemovedImages(docker, () => {
      metrics.imageRemoved();
      engineSpace.changed();
    }),
    keepNewest: keepReleases,
    onCleaned: () => keepRoomLater(true),
    log,
  });
  const registryApi = createRegistryApi({
    settings: registrySettings,
    isInsecure: createIsInsecure(engine),
    url: config.REGISTRY_URL,
  });
  const pullSize = createPullSize({ docker, layersOf: registryApi.layersOf, log });
  const engineSpace = createEngineSpace({
    engine,
    root: config.SVC_ROOT,
    images: createEvictableImages({
      docker,
      images,
      sizes: createImageSizes(engine),
      keepNewest: keepReleases,
      registry: () => registrySettings()?.registry_addr ?? '',
      registryHas: registryApi.holds,
      log,
    }),
  });

  const locks = createLocks();
  const pool = config.PROJECT_NETWORK_POOL?.range ?? null;
  const dockerNetworks = createDockerNetworks(engine);
  const ports = await createPortGuard(config, { docker: dockerNetworks, owner: agentId, log });
  const networks = createNetworks({
    docker: dockerNetworks,
    locks,
    pool,
    owner: agentId,
    onCreated: () => ports.guard(true),
    log,
  });

  const storage = createStorage({
    root: config.SVC_ROOT,
    maxStorage: config.MAX_STORAGE,
    inherit,
    log,
  });
  const { data, problem: dataProblem } =
    config.NODE_ROLE === 'deploy'
      ? await openData(
          dataOptions(config, {
            client,
            storage,
            engine: engineSpace,
            listContainers,
            agentId,
            keepReleases,
            metrics,
            wakeRegistration,
            log,
          }),
        )
      : { data: null, problem: null };
  room =
    data?.room ??
    createRoom({
      storage,
      datasets: null,
      engine: engineSpace,
      // A node without datasets has MAX_STORAGE for the engine, wherever the engine’s disk is.
      engineMax: config.MAX_STORAGE ?? null,
      locks,
      watermarks: watermarksOf(config),
      log,
    });
  const volumes = data === null ? null : await createVolumes(config.SVC_ROOT);
  const volumeInventory =
    volumes === null
      ? null
      : createVolumeInventory({
          root: config.SVC_ROOT,
          listContainers,
          inherit,
          onChange: wakeRegistration,
          log,
        });
  const diskUse = createDiskUse({
    folders: [config.SVC_ROOT, state.root],
    datasets: () => (data === null ? 0 : storage.used()),
    engine: (signal) => engineSpace.count(signal, RECENT_MS),
    onFirst: wakeRegistration,
    onCounted: () => void keepRoomLater(false),
    log,
  });

  const usage =
    config.NODE_ROLE === 'deploy'
      ? createMeter({
          groups: createControlGroups(),
          memory: await createOomMemory(join(state.root, 'oom-kills.json'), log),
          onChange: wakeRegistration,
        })
      : null;

  return {
    credentials,
    client,
    cli,
    engine,
    registryLogin,
    docker,
    revival,
    ids,
    listContainers,
    images,
    locks,
    networks,
    ports,
    hostIp: createHostIp(config.HOST_IP, config.CONTROL_PLANE_URL),
    // The firewall rules cover IPv4 only, so with PROXY_IPS the engine must not publish on IPv6.
    publishIp: config.PUBLISH_IP ?? (config.PROXY_IPS === undefined ? undefined : '0.0.0.0'),
    hostPorts: await createHostPorts({
      range: config.PUBLISH_PORTS,
      path: join(state.root, 'host-ports.json'),
      listAll: (signal) => docker.list({ [LABELS.node]: null }, signal),
      locks,
      log,
    }),
    storage,
    data,
    dataProblem,
    volumes,
    volumeInventory,
    diskUse,
    keepRoom,
    diskNotes: room.notes,
    async expectPull(image, signal) {
      const bytes = await pullSize(image, signal);
      const release = engineSpace.reserve(bytes);
      return {
        bytes,
        release,
        async pulled() {
          // The image shares layers with others, so it may have added less than its size.
          engineSpace.grew(bytes || ((await docker.imageSize(image, signal)) ?? 0));
        },
      };
    },
    stopKeepingRoom: () => stopping.abort(),
    usage,
    secretFiles,
    exits,
    engineStatus: createEngineStatus(docker),
    shownHealth: createShownHealth(redactOf, log),
    logReaders: createLogReaders({
      client,
      docker,
      listContainers,
      redactOf,
      nodeId,
      onRestart: exits.restarted,
      log,
    }),
    buildDigests: await createBuildDigests(join(state.root, 'build-secrets.json'), log),
  };
}

function onRemovedImages(docker: Docker, onRemoved: () => void): Docker {
  return {
    ...docker,
    async removeImageRef(ref) {
      const removed = await docker.removeImageRef(ref);
      if (removed) onRemoved();
      return removed;
    },
  };
}

const watermarksOf = ({ CACHE_HIGH, CACHE_LOW }: AgentOptions): Watermarks => ({
  high: CACHE_HIGH / 100,
  low: CACHE_LOW / 100,
});

type DataDeps = Pick<
  DatasetPartsOptions,
  'client' | 'storage' | 'engine' | 'listContainers' | 'keepReleases' | 'log'
> &
  Pick<AgentPartsOptions, 'metrics' | 'wakeRegistration'> & { agentId: string };
const dataOptions = (
  config: AgentOptions,
  {
    client,
    storage,
    engine,
    listContainers,
    agentId,
    keepReleases,
    metrics,
    wakeRegistration,
    log,
  }: DataDeps,
): DatasetPartsOptions => ({
  client,
  storage,
  ...defined({ engine }),
  listContainers,
  log,
  root: config.SVC_ROOT,
  share: config.DATASET_NFS_BASE_PATH,
  agent: agentId,
  keepReleases,
  keepVersions: config.KEEP_VERSIONS,
  copiesAtOnce: config.COPIES_AT_ONCE,
  onCopyEnded: metrics.copyEnded,
  watermarks: watermarksOf(config),
  rsync: {
    inherit: config.inherit,
    stallMs: config.COPY_STALL,
    timeoutMs: config.COPY_TIMEOUT,
    bandwidth: config.COPY_BANDWIDTH,
  },
  onChange: wakeRegistration,
});

/** `data` is null if SVC_ROOT is not usable: projects without datasets run all the same. */
async function openData(
  options: DatasetPartsOptions,
): Promise<{ data: DatasetParts | null; problem: string | null }> {
  try {
    return { data: await createDatasetParts(options), problem: null };
  } catch (err) {
    options.log.warn(
      { err, SVC_ROOT: options.root },
      'opening SVC_ROOT failed; this node takes no datasets',
    );
    const message = messageOf(err);
    return {
      data: null,
      problem:
        `SVC_ROOT (${options.root}) was not usable at the start (${message}); repair it and ` +
        'restart the agent',
    };
  }
}
