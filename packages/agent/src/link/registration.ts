/**
 * Registers the node with POST /api/agent/register: its identity, its capacity, and the containers
 * and datasets on it (docs/contract.md "Node", docs/interfaces.md "Register").
 */
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import { BUILD_SETTINGS, GIT_ACCESS, GIT_LFS } from '@berth/wire/git';
import { LOOK_CAPABILITY } from '@berth/wire/look';
import { REPOSITORY_LOOK_CAPABILITY } from '@berth/wire/repository-look';
import type { Node, NodeDisk, NodeRegister, ObservedContainer } from '@berth/wire/node';
import type { NodeRole } from '@berth/wire/vocabulary';
import type { Credentials } from './credentials.ts';
import type { EngineStatus } from '../engine/engine-status.ts';
import type { PortGuard } from '../engine/port-guard.ts';
import type { ShownHealth } from '../engine/health-check.ts';
import { type ListNodeContainers, type NodeIds } from '../engine/node-ids.ts';
import { observe, toObserved } from '../engine/observe.ts';
import type { Meter } from '../usage/meter.ts';
import type { Container } from '../engine/docker.ts';
import type { Revival } from '../engine/revive.ts';

/** The part of data/inventory.ts that a registration needs. */
type ReportedDatasets = {
  cached(): Promise<NodeRegister['cached']>;
  copyRate(): NonNullable<NodeRegister['copy_rate']> | null;
  /** Evicts all unused versions of these datasets. */
  forget(datasetIds: readonly string[]): Promise<void>;
};
/** The part of data/volumes/inventory.ts that a registration needs. */
type ReportedVolumes = {
  reported(): Promise<Pick<NodeRegister, 'volumes' | 'removed_volumes'> | undefined>;
  work(copies: { remove: readonly string[]; setAside: readonly string[] }): void;
};

export const AGENT_VERSION = '0.1.0';

const OBSERVE_MS = 15_000;

export type RegistrationDeps = {
  client: Client;
  list: ListNodeContainers;
  ids: NodeIds;
  /** Null on a builder. */
  usage: Pick<Meter, 'seen' | 'notesOf'> | null;
  /** Called with the containers of each registration. */
  onSeen?: (containers: readonly Container[]) => void;
  /** Starts containers that an engine restart left stopped. */
  revive: Revival['revive'];
  engine: EngineStatus;
  /** The results of the HEALTHCHECKs of images. */
  health: ShownHealth;
  /** Null before the first count. */
  disk: () => NodeDisk | null;
  log: Logger;
  nodeName: string;
  role: NodeRole;
  maxBuilds: number;
  /** The control plane’s /readyz warns if these are not set. */
  limits: { publishIp: string | undefined; defaultMemory: number | undefined };
  credentials: Credentials;
  /**
   * Takes over the addresses of nodes with published ports; null: this agent does not ask for them.
   */
  neighbours: PortGuard['knows'];
  /** Features of this agent that are not part of the contract. */
  capabilities: () => readonly string[];
  hostIp: () => Promise<string>;
  storage: (signal: AbortSignal) => Promise<{ max: number; free: number | null }>;
  /** Null on a node that takes no datasets. */
  inventory: ReportedDatasets | null;
  /** Null on a node that takes no volumes. */
  volumes: ReportedVolumes | null;
};
export type Registration = {
  /** Sends one registration. Rejects if it did not succeed. */
  register(signal: AbortSignal): Promise<Node>;
  nodeId(): string | null;
  /** Monotonic clock in ms. */
  lastOkAt(): number | null;
  /**
   * Another machine is registered under this name, and the tasks of the node are its tasks; null if
   * not.
   */
  problem(): string | null;
  /** Why the control plane refuses this machine; null if it does not. */
  refusal(): string | null;
  /** Whether the engine answered the last request; null before the first. */
  engineOk(): boolean | null;
};

export function createRegistration(deps: RegistrationDeps): Registration {
  let nodeId: string | null = null;
  let problem: string | null = null;
  let isUnknown = false;
  let lastOkAt: number | null = null;
  let lastAnswerAt: string | null = null;
  let neighboursEtag = '';

  /** Undefined if the containers are unknown, which is not the same as an empty list. */
  async function observedContainers(signal: AbortSignal): Promise<ObservedContainer[] | undefined> {
    if (nodeId === null) {
      await deps.engine.ask(signal);
      return undefined;
    }
    try {
      // An engine that hangs must not delay the registration.
      const seen = await observe(
        deps.list,
        AbortSignal.any([signal, AbortSignal.timeout(OBSERVE_MS)]),
        deps.revive,
      );
      await deps.engine.answered(signal);
      await deps.ids.seen(seen, nodeId);
      deps.usage?.seen(seen);
      deps.onSeen?.(seen);
      const health = await deps.health(seen);
      return seen.map((container) => {
        const checked = health.get(container.id);
        return {
          ...toObserved(container),
          ...defined({ health: checked }),
          ...deps.usage?.notesOf(container.id),
        };
      });
    } catch (error) {
      signal.throwIfAborted();
      deps.engine.failed(error);
      deps.log.warn({ err: error }, 'listing containers failed; registering without them');
      return undefined;
    }
  }

  /** Evicts in the background: deleting may take long, and a registration must not wait for it. */
  let evicting: Promise<void> | null = null;
  function evictDeleted(datasetIds: readonly string[]): void {
    if (datasetIds.length === 0 || deps.inventory === null) return;
    evicting ??= deps.inventory
      .forget(datasetIds)
      .catch((err: unknown) =>
        deps.log.warn({ err }, 'evicting deleted datasets failed; will retry'),
      )
      .finally(() => (evicting = null));
  }

  async function send(signal: AbortSignal): Promise<Node> {
    // Read this before the list is made: a list that arrives late must not look newer than it is.
    const answeredAt = lastAnswerAt;
    const [hostIp, storage, seen, cached, volumes] = await Promise.all([
      deps.hostIp(),
      deps.storage(signal),
      observedContainers(signal),
      deps.inventory?.cached(),
      deps.volumes?.reported(),
    ]);
    const [engine, disk] = [deps.engine.now(), deps.disk()];
    const body: NodeRegister = {
      hostname: deps.nodeName,
      role: deps.role,
      host_ip: hostIp,
      max_storage: storage.max,
      ...defined({ free_storage: storage.free ?? undefined }),
      max_builds: deps.maxBuilds,
      ...defined({ cached }),
      ...volumes,
      ...defined({
        copy_rate: deps.inventory === null ? undefined : deps.inventory.copyRate(),
        containers: seen,
      }),
      agent_version: AGENT_VERSION,
      last_answer_at: answeredAt,
      boot_id: deps.credentials.bootId,
      arch: deps.engine.arch(),
      ...defined({
        engine: engine ?? undefined,
        disk: disk ?? undefined,
        neighbours_etag: deps.neighbours === null ? undefined : neighboursEtag,
      }),
      ...(deps.role === 'deploy'
        ? {
            publish_ip: deps.limits.publishIp ?? null,
            default_memory: deps.limits.defaultMemory ?? null,
          }
        : {}),
    };
    await failPoint('agent.register.before');
    const node = await deps.credentials.register((headers, maySave) =>
      deps.client.call('agentRegister', {
        body: {
          ...body,
          capabilities: [
            ...(maySave ? ['node_secret'] : []),
            ...(deps.role === 'builder'
              ? [GIT_ACCESS, BUILD_SETTINGS, GIT_LFS, LOOK_CAPABILITY, REPOSITORY_LOOK_CAPABILITY]
              : []),
            ...deps.capabilities(),
          ],
        },
        headers,
        signal,
      }),
    );
    await failPoint('agent.register.after');
    lastOkAt = performance.now();
    lastAnswerAt = node.last_seen_at;
    if (node.neighbours !== undefined) {
      neighboursEtag = node.neighbours.etag;
      deps.neighbours?.(node.neighbours.addresses);
    }
    evictDeleted(node.forget ?? []);
    deps.volumes?.work({
      remove: node.remove_volumes ?? [],
      setAside: node.set_aside_volumes ?? [],
    });
    return node;
  }

  return {
    nodeId: () => nodeId,
    engineOk: () => deps.engine.now()?.ok ?? null,
    lastOkAt: () => lastOkAt,
    problem: () => problem,
    refusal: () =>
      problem ??
      (isUnknown ? 'the control plane refuses the secret or join token of this machine' : null),
    async register(signal) {
      const previousId = nodeId;
      const node = await send(signal).catch((error: unknown) => {
        // Another machine registers under this name, and the tasks of the node are its tasks.
        problem = error instanceof ApiError && error.code === 'node_doubled' ? error.message : null;
        if (problem !== null) nodeId = null;
        isUnknown = error instanceof ApiError && error.code === 'agent_secret';
        throw error;
      });
      problem = null;
      isUnknown = false;
      nodeId = node.id;
      await deps.ids.add(node.id);
      if (previousId === node.id) return node;
      deps.log.info({ node: node.id, role: deps.role, host_ip: node.host_ip }, 'node registered');
      // The id of the node is new: register again, now with the containers, which are found by that
      // id.
      return send(signal);
    },
  };
}
