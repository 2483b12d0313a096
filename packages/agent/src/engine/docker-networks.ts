/** The networks of the container engine. */
import { LABELS } from '@berth/wire/vocabulary';
import { classify, outputTail, PULL_FAILURES, TaskFailure } from '../failures.ts';
import { type Answer, type EngineClient, EngineError } from './engine-client.ts';
import { isNetworkGone, orElse } from './engine-errors.ts';

export type Network = {
  id: string;
  name: string;
  labels: Record<string, string>;
  /** IPv4 networks in CIDR notation. */
  subnets: readonly string[];
};

export type DockerNetworks = {
  /** Returns all networks, including those that Berth did not create. */
  list(signal?: AbortSignal): Promise<Network[]>;
  /**
   * Returns the new network’s id; null if its addresses overlap with those of an existing network.
   */
  create(
    network: { name: string; subnet: string; labels: Record<string, string> },
    signal?: AbortSignal,
  ): Promise<string | null>;
  /**
   * Tells whether any container uses the network. A stopped container counts too: it could not
   * start again without its network.
   */
  isUsed(id: string): Promise<boolean>;
  /**
   * Returns the engine's default network, which is used by build steps and by containers for which
   * no network was chosen; null if the engine has none. `isShared`: a container that is not Berth's
   * uses it, running or stopped.
   */
  defaultNetwork(signal?: AbortSignal): Promise<{ bridge: string; isShared: boolean } | null>;
  /** Returns false if the engine refuses because the network is in use. */
  remove(id: string): Promise<boolean>;
};

const OVERLAPS = /overlap|conflicts with network/i;
const BRIDGE_OPTION = 'com.docker.network.bridge.name';

export function createDockerNetworks(engine: EngineClient): DockerNetworks {
  return {
    list: (signal) => listNetworks(engine, signal),
    create: (network, signal) => createNetwork(engine, network, signal),
    isUsed: async (id) => (await containersOn(engine, id)).length > 0,
    defaultNetwork: (signal) => defaultNetworkOf(engine, signal),
    remove: (id) => removeNetwork(engine, id),
  };
}

async function listNetworks(engine: EngineClient, signal?: AbortSignal): Promise<Network[]> {
  const networks = await withNetworkCode(engine.call('GET /networks', { signal }));
  return networks.map((raw) => ({
    id: raw.Id ?? '',
    name: raw.Name ?? '',
    labels: raw.Labels ?? {},
    subnets: subnetsOf(raw),
  }));
}
const subnetsOf = ({ IPAM }: Answer<'GET /networks/{id}'>): string[] =>
  (IPAM?.Config ?? []).flatMap(({ Subnet = '' }) =>
    Subnet === '' || Subnet.includes(':') ? [] : [Subnet],
  );

async function createNetwork(
  engine: EngineClient,
  { name, subnet, labels }: Parameters<DockerNetworks['create']>[0],
  signal?: AbortSignal,
): Promise<string | null> {
  const body = {
    Name: name,
    // Without CheckDuplicate, engines before API 1.44 allow two networks with the same name.
    CheckDuplicate: true,
    Driver: 'bridge',
    IPAM: { Config: [{ Subnet: subnet }] },
    Labels: labels,
  };
  const creating = engine
    .call('POST /networks/create', { body, signal })
    .then(({ Id }) => Id ?? null);
  return withNetworkCode(orElse(creating, isOverlap, null));
}
const isOverlap = (error: unknown): boolean =>
  error instanceof EngineError && OVERLAPS.test(error.reason);

const containersOn = (engine: EngineClient, network: string, signal?: AbortSignal) =>
  engine.call('GET /containers/json', {
    query: { all: true, filters: JSON.stringify({ network: [network] }) },
    signal,
  });

async function defaultNetworkOf(
  engine: EngineClient,
  signal?: AbortSignal,
): Promise<{ bridge: string; isShared: boolean } | null> {
  const asking = engine.call('GET /networks/{id}', { params: { id: 'bridge' }, signal });
  const network = await withNetworkCode(orElse(asking, isNetworkGone, null));
  if (network === null) return null;
  const users = await containersOn(engine, 'bridge', signal);
  return {
    bridge: network.Options?.[BRIDGE_OPTION] || 'docker0',
    isShared: users.some(({ Labels }) => !Labels?.[LABELS.project]),
  };
}

async function removeNetwork(engine: EngineClient, id: string): Promise<boolean> {
  const removing = engine.call('DELETE /networks/{id}', { params: { id } }).then(() => true);
  const isActive = (error: unknown): boolean =>
    error instanceof EngineError && /active endpoints/i.test(error.reason);
  return withNetworkCode(orElse(orElse(removing, isNetworkGone, true), isActive, false));
}

/** "Not found" must not get the code of a missing image when a network is missing. */
async function withNetworkCode<T>(promise: Promise<T>): Promise<T> {
  try {
    return await promise;
  } catch (error) {
    if (!(error instanceof EngineError)) throw error;
    const reason = error.reason.replaceAll('not found', 'gone');
    const code = classify(PULL_FAILURES, reason, 'task_failed');
    throw new TaskFailure(code, outputTail(error.reason), { cause: error });
  }
}
