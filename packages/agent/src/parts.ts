/**
 * Creates and connects the parts of an agent. Each function below adds a group of parts:
 *
 *   control plane -> engine -> network -> disk -> datasets and volumes -> the rest
 */
import { join } from 'node:path';
import type { Logger } from '@berth/kit/log';
import { messageOf } from '@berth/kit/message-of';
import { type Client, createClient } from '@berth/wire/client';
import type { Watermarks } from '@berth/wire/eviction';
import { LABELS } from '@berth/wire/vocabulary';
import type { AgentConfig } from '@berth/wire/task';
import { type BuildDigests, createBuildDigests } from './build/build-digests.ts';
import type { AgentOptions } from './config.ts';
import {
  createDatasetParts,
  type DatasetParts,
  type DatasetPartsOptions,
} from './data/dataset-parts.ts';
import { createVolumeInventory, type VolumeInventory } from './data/volumes/inventory.ts';
import { createVolumes, type Volumes } from './data/volumes/volumes.ts';
import { createDiskUse, type DiskUse } from './disk/disk-use.ts';
import { createEngineSpace, type EngineSpace } from './disk/engine-space.ts';
import { createEvictableImages } from './disk/evictable-images.ts';
import { createRoom, RECENT_MS, type Room } from './disk/eviction.ts';
import {
  createExpectPull,
  createRoomKeeper,
  type ExpectPull,
  type KeepRoom,
  type RoomKeeper,
} from './disk/keep-room.ts';
import { createImages, type Images } from './disk/old-images.ts';
import { createPullSize } from './disk/pull-size.ts';
import { createStorage, type StorageMeter } from './disk/storage.ts';
import { createDockerCli, type DockerCli } from './engine/docker-cli.ts';
import { createDockerNetworks } from './engine/docker-networks.ts';
import { createDocker } from './engine/create-docker.ts';
import type { Docker } from './engine/docker.ts';
import { createEngineClient, type EngineClient } from './engine/engine-client.ts';
import { createEngineStatus, type EngineStatus } from './engine/engine-status.ts';
import { createReadMachine, type ReadMachine } from './engine/machine.ts';
import { createImageSizes } from './engine/engine-use.ts';
import { createShownHealth, type ShownHealth } from './engine/health-check.ts';
import { createHostPorts, type HostPorts } from './engine/host-ports.ts';
import { createIsInsecure } from './engine/insecure-registries.ts';
import { createNetworks, type Networks } from './engine/networks.ts';
import {
  createNodeIds,
  type ListNodeContainers,
  listNodeContainers,
  type NodeIds,
} from './engine/node-ids.ts';
import { createPortGuard, type PortGuard } from './engine/port-guard.ts';
import {
  createRegistryCredentials,
  type RegistryCredentials,
} from './engine/registry-credentials.ts';
import { publishedHost } from './engine/probe.ts';
import { createRevival, type Revival } from './engine/revive.ts';
import { createRunningProbe, type RunningProbe } from './engine/running-probe.ts';
import { type Credentials, readCredentials } from './link/credentials.ts';
import { createHostIp } from './link/host-ip.ts';
import { createLocks, type Locks } from './locks.ts';
import { createExits, type Exits } from './logs/exits.ts';
import { createLogReaders, type LogReaders } from './logs/readers.ts';
import type { Metrics } from './metrics.ts';
import { createRegistryApi } from './registry/api.ts';
import { createRunMarks } from './tasks/run-marks.ts';
import { createRunInputs, type RunInputs } from './engine/run-input.ts';
import {
  createSweepRuns,
  listRuns,
  type SweepRuns,
  type SweepRunsDeps,
} from './tasks/sweep-runs.ts';
import { createRefCounts } from '@berth/kit/ref-count';
import { createSecretFiles, type SecretFiles } from './secrets/files.ts';
import { createRedactOf } from './secrets/secrets-of.ts';
import { readAgentId } from './state/agent-id.ts';
import type { StateFolder } from './state/state-folder.ts';
import { createControlGroups } from './usage/control-groups.ts';
import { createMeter, type Meter } from './usage/meter.ts';
import { createOomMemory } from './usage/oom-memory.ts';

export type AgentPartsOptions = {
  keepReleases: () => number;
  /** Returns the registry settings; null before the control plane's first answer. */
  registrySettings: () => AgentConfig | null;
  state: StateFolder;
  metrics: Pick<Metrics, 'imageRemoved' | 'copyEnded'>;
  wakeRegistration: () => void;
  /** Returns the node's id; null before the registration. */
  nodeId: () => string | null;
  log: Logger;
};

type ControlPlaneParts = { credentials: Credentials; client: Client; agentId: string };
type EngineParts = {
  /** Runs the docker command, for builds. */
  cli: DockerCli;
  engineClient: EngineClient;
  registryLogin: RegistryCredentials;
  docker: Docker;
  revival: Revival;
  ids: NodeIds;
  listContainers: ListNodeContainers;
  engineStatus: EngineStatus;
  machine: ReadMachine;
  secretFiles: SecretFiles;
  exits: Exits;
  shownHealth: ShownHealth;
  logReaders: LogReaders;
};
type NetworkParts = {
  locks: Locks;
  networks: Networks;
  ports: PortGuard;
  hostIp: () => Promise<string>;
  /** The address on which containers publish their ports; undefined for all addresses. */
  publishIp: string | undefined;
  hostPorts: HostPorts;
};
type DiskParts = {
  images: Images;
  engine: EngineSpace;
  storage: StorageMeter;
  expectPull: ExpectPull;
};
type DataParts = {
  /** Null on a builder, and if SVC_ROOT is not usable. */
  data: DatasetParts | null;
  /** Why a deploy node accepts no datasets. */
  dataProblem: string | null;
};
type VolumeParts = {
  /** Null on a builder, and if SVC_ROOT is not usable. */
  volumes: Volumes | null;
  volumeInventory: VolumeInventory | null;
};

export type AgentParts = ControlPlaneParts &
  EngineParts &
  NetworkParts &
  DiskParts &
  DataParts &
  VolumeParts & {
    keepRoom: KeepRoom;
    /** Returns notes about the disk budget for the operator. */
    diskNotes: () => string[];
    /** Stops the background evictions. */
    stopKeepingRoom: () => void;
    diskUse: DiskUse;
    /** Null on a builder. */
    usage: Meter | null;
    /** Null on a builder. */
    runningProbe: RunningProbe | null;
    buildDigests: BuildDigests;
    /** Shared by tasks/run.ts and the sweep of old runs. */
    runs: Pick<SweepRunsDeps, 'inUse' | 'marks' | 'onDevicesFree'> & { inputs: RunInputs };
    sweepRuns: SweepRuns;
  };

export async function createParts(
  config: AgentOptions,
  options: AgentPartsOptions,
): Promise<AgentParts> {
  const { state, wakeRegistration, log } = options;
  const link = await createControlPlaneParts(config, options);
  const engine = await createEngineParts(config, options, link);
  const network = await createNetworkParts(config, options, { ...link, ...engine });
  const keeper = createRoomKeeper(log);
  const disk = createDiskParts(config, options, engine, keeper);
  const { data, dataProblem } = await createDataParts(config, options, {
    ...link,
    ...engine,
    ...disk,
  });
  const room = data?.room ?? roomWithoutDatasets(config, { ...disk, ...network, log });
  keeper.use(room);
  const runningProbe =
    config.NODE_ROLE === 'deploy'
      ? createRunningProbe({
          host: () => publishedHost(network),
          onChange: wakeRegistration,
          log,
        })
      : null;
  const runs = {
    inUse: createRefCounts(),
    marks: createRunMarks(join(state.root, 'runs')),
    // The last list has the container. Until the next list, the control plane leases its devices to
    // nobody else.
    onDevicesFree: wakeRegistration,
    inputs: createRunInputs(engine.docker),
  };
  return {
    ...link,
    ...engine,
    ...network,
    ...disk,
    data,
    dataProblem,
    ...(await createVolumeParts(config, options, { data, ...engine })),
    keepRoom: keeper.keep,
    diskNotes: room.notes,
    stopKeepingRoom: keeper.stop,
    diskUse: createDiskUse({
      folders: [config.SVC_ROOT, state.root],
      datasets: () => (data === null ? 0 : disk.storage.used()),
      engine: (signal) => disk.engine.count(signal, RECENT_MS),
      onFirst: wakeRegistration,
      onCounted: () => void keeper.keepLater(false),
      log,
    }),
    usage: config.NODE_ROLE === 'deploy' ? await createUsage(options) : null,
    runningProbe,
    docker: runningProbe?.around(engine.docker) ?? engine.docker,
    runs,
    sweepRuns: createSweepRuns({
      ...runs,
      docker: engine.docker,
      list: listRuns(engine.docker, engine.ids),
      prepare: data?.prepare ?? null,
      secretFiles: engine.secretFiles,
      log,
    }),
    buildDigests: await createBuildDigests(join(state.root, 'build-secrets.json'), log),
  };
}

async function createControlPlaneParts(
  config: AgentOptions,
  { state, log }: AgentPartsOptions,
): Promise<ControlPlaneParts> {
  const credentials = await readCredentials({
    stateDir: state.root,
    shared: config.AGENT_SECRET ?? [],
    joinToken: config.JOIN_TOKEN,
    log,
  });
  return {
    credentials,
    client: createClient({ baseUrl: config.CONTROL_PLANE_URL, headers: credentials.headers }),
    agentId: await readAgentId(join(state.root, 'agent-id')),
  };
}

async function createEngineParts(
  config: AgentOptions,
  { state, nodeId, log }: AgentPartsOptions,
  { client, agentId }: ControlPlaneParts,
): Promise<EngineParts> {
  const registryLogin = createRegistryCredentials({
    configDir: join(state.root, 'docker'),
    pluginsDir: config.DOCKER_PLUGINS_DIR,
  });
  await registryLogin.use(null);
  const access = {
    credentials: registryLogin,
    inherit: config.inherit,
    dockerHost: config.DOCKER_HOST,
  };
  const engineClient = createEngineClient(access);
  const plainDocker = createDocker({ engine: engineClient, credentials: registryLogin });
  const revival = await createRevival(plainDocker, {
    path: join(state.root, 'containers.json'),
    log,
  });
  const secretFiles = await openSecretFiles(config, {
    state,
    agentId,
    docker: revival.docker,
    log,
  });
  const ids = await createNodeIds(join(state.root, 'node-ids.json'), log);
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
  return {
    cli: createDockerCli(access),
    engineClient,
    registryLogin,
    docker,
    revival,
    ids,
    listContainers,
    engineStatus: createEngineStatus(docker),
    machine: createReadMachine(engineClient, { hasDevices: config.NODE_ROLE === 'deploy', log }),
    secretFiles,
    exits,
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
  };
}

type SecretFilesDeps = { state: StateFolder; agentId: string; docker: Docker; log: Logger };

/** Restores the secret files, so that revive.ts can start the containers that mount them. */
async function openSecretFiles(
  config: AgentOptions,
  { state, agentId, docker, log }: SecretFilesDeps,
): Promise<SecretFiles> {
  const secretFiles = await createSecretFiles({
    folder: join(config.SECRETS_DIR, agentId),
    copies: join(state.root, 'secret-files'),
    docker,
    log,
  });
  await secretFiles.restore();
  if (config.NODE_ROLE === 'deploy' && secretFiles.problem !== null)
    log.warn({ reason: secretFiles.problem }, 'this node mounts no file secrets');
  return secretFiles;
}

async function createNetworkParts(
  config: AgentOptions,
  { state, log }: AgentPartsOptions,
  { agentId, engineClient, docker }: ControlPlaneParts & EngineParts,
): Promise<NetworkParts> {
  const locks = createLocks();
  const dockerNetworks = createDockerNetworks(engineClient);
  const ports = await createPortGuard(config, { docker: dockerNetworks, owner: agentId, log });
  return {
    locks,
    ports,
    networks: createNetworks({
      docker: dockerNetworks,
      locks,
      pool: config.PROJECT_NETWORK_POOL?.range ?? null,
      owner: agentId,
      onCreated: () => ports.guard(true),
      log,
    }),
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
  };
}

function createDiskParts(
  config: AgentOptions,
  { keepReleases, registrySettings, metrics, log }: AgentPartsOptions,
  { engineClient, docker }: EngineParts,
  keeper: RoomKeeper,
): DiskParts {
  const registryApi = createRegistryApi({
    settings: registrySettings,
    isInsecure: createIsInsecure(engineClient),
    url: config.REGISTRY_URL,
  });
  const images = createImages({
    docker: onRemovedImages(docker, () => {
      metrics.imageRemoved();
      engine.changed();
    }),
    keepNewest: keepReleases,
    onCleaned: () => keeper.keepLater(true),
    log,
  });
  const engine = createEngineSpace({
    engine: engineClient,
    root: config.SVC_ROOT,
    images: createEvictableImages({
      docker,
      images,
      sizes: createImageSizes(engineClient),
      keepNewest: keepReleases,
      registry: () => registrySettings()?.registry_addr ?? '',
      registryHas: registryApi.holds,
      log,
    }),
  });
  return {
    images,
    engine,
    storage: createStorage({
      root: config.SVC_ROOT,
      maxStorage: config.MAX_STORAGE,
      inherit: config.inherit,
      log,
    }),
    expectPull: createExpectPull({
      engine,
      pullSize: createPullSize({ docker, layersOf: registryApi.layersOf, log }),
      imageSize: docker.imageSize,
    }),
  };
}

function onRemovedImages(docker: Docker, onRemoved: () => void): Docker {
  return {
    ...docker,
    async removeImageRef(ref) {
      const isRemoved = await docker.removeImageRef(ref);
      if (isRemoved) onRemoved();
      return isRemoved;
    },
  };
}

/**
 * Creates the dataset parts. `data` is null if SVC_ROOT is not usable: projects without datasets
 * still run.
 */
async function createDataParts(
  config: AgentOptions,
  { log, ...options }: AgentPartsOptions,
  parts: ControlPlaneParts & EngineParts & DiskParts,
): Promise<DataParts> {
  if (config.NODE_ROLE !== 'deploy') return { data: null, dataProblem: null };
  const root = config.SVC_ROOT;
  try {
    const data = await createDatasetParts(datasetOptions(config, { log, ...options }, parts));
    return { data, dataProblem: null };
  } catch (err) {
    log.warn({ err, SVC_ROOT: root }, 'opening SVC_ROOT failed; this node takes no datasets');
    const message = messageOf(err);
    return {
      data: null,
      dataProblem:
        `SVC_ROOT (${root}) was not usable at the start (${message}); ` +
        'repair it and restart the agent',
    };
  }
}

const datasetOptions = (
  config: AgentOptions,
  { keepReleases, metrics, wakeRegistration, log }: AgentPartsOptions,
  parts: ControlPlaneParts & EngineParts & DiskParts,
): DatasetPartsOptions => ({
  client: parts.client,
  storage: parts.storage,
  engine: parts.engine,
  listContainers: parts.listContainers,
  listRuns: listRuns(parts.docker, parts.ids),
  log,
  root: config.SVC_ROOT,
  share: config.DATASET_NFS_BASE_PATH,
  agent: parts.agentId,
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

const watermarksOf = ({ CACHE_HIGH, CACHE_LOW }: AgentOptions): Watermarks => ({
  high: CACHE_HIGH / 100,
  low: CACHE_LOW / 100,
});

/**
 * Creates the disk budget of a node without datasets: MAX_STORAGE limits the engine, even if the
 * engine has its own disk.
 */
const roomWithoutDatasets = (
  config: AgentOptions,
  { storage, engine, locks, log }: DiskParts & NetworkParts & { log: Logger },
): Room =>
  createRoom({
    storage,
    datasets: null,
    engine,
    engineMax: config.MAX_STORAGE ?? null,
    locks,
    watermarks: watermarksOf(config),
    log,
  });

async function createVolumeParts(
  config: AgentOptions,
  { wakeRegistration, log }: AgentPartsOptions,
  { data, listContainers }: Pick<DataParts, 'data'> & EngineParts,
): Promise<VolumeParts> {
  if (data === null) return { volumes: null, volumeInventory: null };
  return {
    volumes: await createVolumes(config.SVC_ROOT),
    volumeInventory: createVolumeInventory({
      root: config.SVC_ROOT,
      listContainers,
      inherit: config.inherit,
      onChange: wakeRegistration,
      log,
    }),
  };
}

const createUsage = async ({ state, wakeRegistration, log }: AgentPartsOptions): Promise<Meter> =>
  createMeter({
    groups: createControlGroups(),
    memory: await createOomMemory(join(state.root, 'oom-kills.json'), log),
    onChange: wakeRegistration,
  });
