/**
 * Registers the node with POST /api/agent/register: its identity, capacity, containers and datasets
 * (docs/contract.md "Node", docs/interfaces.md "Register").
 */
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import type { DatasetPins } from '@berth/wire/data-copies';
import { BUILD_SETTINGS, GIT_ACCESS, GIT_LFS } from '@berth/wire/git';
import type { Labels } from '@berth/wire/machine';
import { LOOK_CAPABILITY } from '@berth/wire/look';
import { REPOSITORY_LOOK_CAPABILITY } from '@berth/wire/repository-look';
import type { Node, NodeDisk, NodeRegister, ObservedContainer } from '@berth/wire/node';
import { CAN_CONFIG_FILE } from '@berth/wire/task';
import { LABELS, type NodeRole } from '@berth/wire/vocabulary';
import type { Credentials } from './credentials.ts';
import type { EngineStatus } from '../engine/engine-status.ts';
import type { PortGuard } from '../engine/port-guard.ts';
import type { ShownHealth } from '../engine/health-check.ts';
import type { ReadMachine } from '../engine/machine.ts';
import { type ListNodeContainers, type NodeIds } from '../engine/node-ids.ts';
import { observe, toObserved } from '../engine/observe.ts';
import type { Restarts } from '../engine/restarts.ts';
import type { RunningProbe } from '../engine/running-probe.ts';
import type { Meter } from '../usage/meter.ts';
import type { Container } from '../engine/docker.ts';
import type { Revival } from '../engine/revive.ts';

/** The part of data/inventory.ts that a registration uses. */
type ReportedDatasets = {
  cached(): Promise<NodeRegister['cached']>;
  copyRate(): NonNullable<NodeRegister['copy_rate']> | null;
  /** Evicts all unused versions of these datasets. */
  forget(datasetIds: readonly string[]): Promise<void>;
};
/** The part of data/pins.ts that a registration uses. */
type ReportedPins = { etag(): string; replace(pins: DatasetPins): Promise<void> };
/** The part of data/volumes/inventory.ts that a registration uses. */
type ReportedVolumes = {
  reported(): Promise<Pick<NodeRegister, 'volumes' | 'removed_volumes'> | undefined>;
  work(copies: { remove: readonly string[]; setAside: readonly string[] }): void;
};

export const AGENT_VERSION = '0.2.0';

const OBSERVE_MS = 15_000;

export type RegistrationDeps = {
  client: Client;
  list: ListNodeContainers;
  /** Lists the containers of runs; absent on a builder. */
  listRuns?: (signal?: AbortSignal) => Promise<Container[]>;
  ids: NodeIds;
  /** Null on a builder. */
  usage: Pick<Meter, 'seen' | 'notesOf'> | null;
  /** Called with the containers of each registration. */
  onSeen?: (containers: readonly Container[]) => void;
  /** Starts containers that are stopped after an engine restart. */
  revive: Revival['revive'];
  engine: EngineStatus;
  /** Reads CPUs, memory and devices. */
  machine: ReadMachine;
  /** NODE_LABELS. */
  labels: Labels | undefined;
  /** Results of the images' HEALTHCHECKs. */
  health: ShownHealth;
  restarts: Pick<Restarts, 'of'>;
  /** Results of the probes of running containers; null on a builder. */
  probe: Pick<RunningProbe, 'resultOf'> | null;
  /** Returns the disk use; null before the first count. */
  disk: () => NodeDisk | null;
  log: Logger;
  nodeName: string;
  role: NodeRole;
  maxBuilds: number;
  /** Limits that the control plane’s /readyz warns about if they are not set. */
  limits: { publishIp: string | undefined; defaultMemory: number | undefined };
  credentials: Credentials;
  /**
   * Receives the addresses of nodes with published ports; null if this agent does not request them.
   */
  neighbours: PortGuard['knows'];
  /** Returns the features of this agent that are not part of the contract. */
  capabilities: () => readonly string[];
  hostIp: () => Promise<string>;
  storage: (signal: AbortSignal) => Promise<{ max: number; free: number | null }>;
  /** Null on a node without datasets. */
  inventory: ReportedDatasets | null;
  /** Null on a node without datasets. */
  pins: ReportedPins | null;
  /** Null on a node without volumes. */
  volumes: ReportedVolumes | null;
};
export type Registration = {
  /** Sends one registration. Rejects if it did not succeed. */
  register(signal: AbortSignal): Promise<Node>;
  nodeId(): string | null;
  /** Time of the last successful registration on the monotonic clock in ms. */
  lastOkAt(): number | null;
  /**
   * Returns an error if another machine is registered under this name and owns the node's tasks,
   * else null.
   */
  problem(): string | null;
  /** Returns why the control plane refuses this machine; null if it does not. */
  refusal(): string | null;
  /** Tells whether the engine answered the last request; null before the first. */
  engineOk(): boolean | null;
};

/** The dependencies, and the result of the last registration. */
type Registering = RegistrationDeps & {
  nodeId: string | null;
  problem: string | null;
  /** True if the control plane refused the secret or join token of this machine. */
  isUnknown: boolean;
  lastOkAt: number | null;
  /** `last_seen_at` in the last answer. */
  lastAnswerAt: string | null;
  neighboursEtag: string;
  evicting: Promise<void> | null;
};

export function createRegistration(deps: RegistrationDeps): Registration {
  const state: Registering = {
    ...deps,
    nodeId: null,
    problem: null,
    isUnknown: false,
    lastOkAt: null,
    lastAnswerAt: null,
    neighboursEtag: '',
    evicting: null,
  };
  return {
    nodeId: () => state.nodeId,
    engineOk: () => deps.engine.now()?.ok ?? null,
    lastOkAt: () => state.lastOkAt,
    problem: () => state.problem,
    refusal: () => state.problem ?? (state.isUnknown ? REFUSED : null),
    register: (signal) => register(state, signal),
  };
}

const REFUSED = 'the control plane refuses the secret or join token of this machine';

async function register(state: Registering, signal: AbortSignal): Promise<Node> {
  const previousId = state.nodeId;
  const node = await send(state, signal).catch((error: unknown) => {
    noteRefusal(state, error);
    throw error;
  });
  state.problem = null;
  state.isUnknown = false;
  state.nodeId = node.id;
  await state.ids.add(node.id);
  if (previousId === node.id) return node;
  state.log.info({ node: node.id, role: state.role, host_ip: node.host_ip }, 'node registered');
  // The node has a new id. Register again with its containers, which are found by that id.
  return send(state, signal);
}

function noteRefusal(state: Registering, error: unknown): void {
  const code = error instanceof ApiError ? error.code : null;
  // Another machine registers under this name, and owns the node's tasks.
  state.problem = error instanceof ApiError && code === 'node_doubled' ? error.message : null;
  if (state.problem !== null) state.nodeId = null;
  state.isUnknown = code === 'agent_secret';
}

async function send(state: Registering, signal: AbortSignal): Promise<Node> {
  const body = await bodyOf(state, signal);
  await failPoint('agent.register.before');
  const node = await state.credentials.register((headers, maySave) =>
    state.client.call('agentRegister', {
      body: { ...body, capabilities: capabilitiesOf(state, maySave) },
      headers,
      signal,
    }),
  );
  await failPoint('agent.register.after');
  takeAnswer(state, node);
  return node;
}

async function bodyOf(state: Registering, signal: AbortSignal): Promise<NodeRegister> {
  const { engine, inventory, role } = state;
  // Read this before listing the containers: otherwise, a list that arrives late would seem newer
  // than it is.
  const last_answer_at = state.lastAnswerAt;
  const [host_ip, storage, containers, machine, cached, volumes] = await Promise.all([
    state.hostIp(),
    state.storage(signal),
    observedContainers(state, signal),
    state.machine(signal),
    inventory?.cached(),
    state.volumes?.reported(),
  ]);
  return {
    hostname: state.nodeName,
    role,
    host_ip,
    max_storage: storage.max,
    max_builds: state.maxBuilds,
    ...volumes,
    agent_version: AGENT_VERSION,
    last_answer_at,
    boot_id: state.credentials.bootId,
    arch: engine.arch(),
    ...machine,
    ...defined({
      free_storage: storage.free ?? undefined,
      labels: state.labels,
      cached,
      copy_rate: inventory === null ? undefined : inventory.copyRate(),
      containers,
      engine: engine.now() ?? undefined,
      disk: state.disk() ?? undefined,
      neighbours_etag: state.neighbours === null ? undefined : state.neighboursEtag,
      dataset_pins_etag: state.pins?.etag(),
    }),
    ...deploySettings(state),
  };
}

/** Returns the settings that only a deploy node reports. */
function deploySettings({
  role,
  limits,
}: RegistrationDeps): Pick<NodeRegister, 'publish_ip' | 'default_memory'> {
  if (role !== 'deploy') return {};
  return {
    publish_ip: limits.publishIp ?? null,
    default_memory: limits.defaultMemory ?? null,
  };
}

function capabilitiesOf({ role, capabilities }: RegistrationDeps, maySave: boolean): string[] {
  const names: string[] = maySave ? ['node_secret'] : [];
  if (role === 'builder') names.push(...BUILDER_CAPABILITIES);
  names.push(...capabilities());
  return names;
}

const BUILDER_CAPABILITIES = [
  GIT_ACCESS,
  BUILD_SETTINGS,
  GIT_LFS,
  CAN_CONFIG_FILE,
  LOOK_CAPABILITY,
  REPOSITORY_LOOK_CAPABILITY,
];

/**
 * Returns the containers of runs that have devices, so that the control plane knows when they are
 * free. Without the labels of a project and of a deployment, no list of deployments contains them.
 */
async function withDevices(
  { listRuns }: Registering,
  signal: AbortSignal,
): Promise<ObservedContainer[]> {
  const containers = (await listRuns?.(signal)) ?? [];
  return containers
    .filter(({ labels }) => labels[LABELS.devices] !== undefined)
    .map((container) => ({
      ...toObserved(container),
      labels: Object.fromEntries(
        RUN_LABELS.flatMap((name) => {
          const value = container.labels[name];
          return value === undefined ? [] : [[name, value]];
        }),
      ),
    }));
}

const RUN_LABELS = [LABELS.run, LABELS.run_node, LABELS.devices];

/** Returns the containers; undefined if they are unknown, which differs from an empty list. */
async function observedContainers(
  state: Registering,
  signal: AbortSignal,
): Promise<ObservedContainer[] | undefined> {
  const { nodeId, engine, usage, log } = state;
  if (nodeId === null) {
    await engine.ask(signal);
    return undefined;
  }
  try {
    // A hanging engine must not delay the registration.
    const inTime = AbortSignal.any([signal, AbortSignal.timeout(OBSERVE_MS)]);
    const containers = await observe(state.list, inTime, state.revive);
    const commands = await withDevices(state, inTime);
    await engine.answered(signal);
    await state.ids.seen(containers, nodeId);
    usage?.seen(containers);
    state.onSeen?.(containers);
    const health = await state.health(containers);
    const observed = containers.map((container) => ({
      ...toObserved(container),
      ...defined({
        health: health.get(container.id),
        probe: state.probe?.resultOf(container),
        restarts: state.restarts.of(container) || undefined,
      }),
      ...usage?.notesOf(container.id),
    }));
    return [...observed, ...commands];
  } catch (error) {
    signal.throwIfAborted();
    engine.failed(error);
    log.warn({ err: error }, 'listing containers failed; registering without them');
    return undefined;
  }
}

function takeAnswer(state: Registering, node: Node): void {
  state.lastOkAt = performance.now();
  state.lastAnswerAt = node.last_seen_at;
  if (node.neighbours !== undefined) {
    state.neighboursEtag = node.neighbours.etag;
    state.neighbours?.(node.neighbours.addresses);
  }
  if (node.dataset_pins !== undefined) keepPins(state, node.dataset_pins);
  evictDeleted(state, node.forget ?? []);
  state.volumes?.work({
    remove: node.remove_volumes ?? [],
    setAside: node.set_aside_volumes ?? [],
  });
}

/** Stores the pins in the background. If that fails, the next answer names them again. */
function keepPins({ pins, log }: Registering, answered: DatasetPins): void {
  pins
    ?.replace(answered)
    .catch((err: unknown) =>
      log.warn({ err }, 'storing the datasets that projects want here failed; will retry'),
    );
}

/** Evicts in the background, because a deletion can take long and a registration must not wait. */
function evictDeleted(state: Registering, datasetIds: readonly string[]): void {
  const { inventory, log } = state;
  if (datasetIds.length === 0 || inventory === null) return;
  state.evicting ??= inventory
    .forget(datasetIds)
    .catch((err: unknown) => log.warn({ err }, 'evicting deleted datasets failed; will retry'))
    .finally(() => (state.evicting = null));
}
