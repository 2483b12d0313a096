/** POST /api/agent/register (contract "Node", INTERFACES.md): who we are, what we have, what we see. */
import { failPoint } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import type { Node, NodeDisk, NodeRegister, ObservedContainer } from '@berth/wire/node';
import type { NodeRole } from '@berth/wire/vocabulary';
import type { Credentials } from './credentials.ts';
import type { EngineStatus } from './engine-status.ts';
import { type ListOurs, type NodeIds } from './node-ids.ts';
import { observe, toObserved } from './observe.ts';
import type { Inventory } from './data/inventory.ts';
import type { Storage } from './storage.ts';
import type { Revival } from './revive.ts';

export const AGENT_VERSION = '0.1.0';

const OBSERVE_MS = 15_000;

export type RegistrationDeps = {
  client: Client;
  list: ListOurs;
  ids: NodeIds;
  /** Sets right what an engine that was restarted left undone. */
  look: Revival['look'];
  engine: EngineStatus;
  /** Null: not counted yet. */
  disk: () => NodeDisk | null;
  log: Logger;
  nodeName: string;
  role: NodeRole;
  maxBuilds: number;
  /** What /readyz of the control plane warns about where it is not set. */
  limits: { publishIp: string | undefined; defaultMemory: number | undefined };
  credentials: Credentials;
  hostIp: () => Promise<string>;
  storage: (signal: AbortSignal) => Promise<Storage>;
  /** Null on a node that takes no datasets. */
  inventory: Inventory | null;
};
export type Registration = {
  /** One registration; rejects when it did not arrive. */
  register(signal: AbortSignal): Promise<Node>;
  nodeId(): string | null;
  lastOkAt(): number | null;
  /** Why the control plane refuses this machine; null: it does not. */
  problem(): string | null;
  /** Whether the engine answered when it was last asked. */
  engineOk(): boolean | null;
};

export function createRegistration(deps: RegistrationDeps): Registration {
  let nodeId: string | null = null;
  let problem: string | null = null;
  let lastOkAt: number | null = null;
  let lastAnswerAt: string | null = null;

  /** Undefined: not looked at, which is something else than none. */
  async function containers(signal: AbortSignal): Promise<ObservedContainer[] | undefined> {
    if (nodeId === null) {
      await deps.engine.ask(signal);
      return undefined;
    }
    try {
      // An engine that hangs must not keep us from being seen.
      const seen = await observe(deps.list, AbortSignal.any([signal, AbortSignal.timeout(OBSERVE_MS)]), deps.look);
      await deps.engine.answered(signal);
      await deps.ids.seen(seen, nodeId);
      return seen.map(toObserved);
    } catch (error) {
      signal.throwIfAborted();
      deps.engine.failed(error);
      deps.log.warn({ err: error }, 'the container engine does not answer; registering without what runs');
      return undefined;
    }
  }

  /** Deleting may take long, and registering must not wait for it. */
  let forgetting: Promise<void> | null = null;
  function forget(datasetIds: readonly string[]): void {
    if (datasetIds.length === 0 || deps.inventory === null) return;
    forgetting ??= deps.inventory
      .forget(datasetIds)
      .catch((err: unknown) => deps.log.warn({ err }, 'datasets that are no more could not be evicted; tried again'))
      .finally(() => (forgetting = null));
  }

  async function send(signal: AbortSignal): Promise<Node> {
    // Before the look: a list that arrives late must not count as newer than it is.
    const answeredAt = lastAnswerAt;
    const [hostIp, storage, seen, cached] = await Promise.all([
      deps.hostIp(),
      deps.storage(signal),
      containers(signal),
      deps.inventory?.cached(),
    ]);
    const [engine, disk] = [deps.engine.now(), deps.disk()];
    const body: NodeRegister = {
      hostname: deps.nodeName,
      role: deps.role,
      host_ip: hostIp,
      max_storage: storage.max,
      ...(storage.free === null ? {} : { free_storage: storage.free }),
      max_builds: deps.maxBuilds,
      ...(cached === undefined ? {} : { cached }),
      ...(deps.inventory === null ? {} : { copy_rate: deps.inventory.copyRate() }),
      ...(seen === undefined ? {} : { containers: seen }),
      agent_version: AGENT_VERSION,
      last_answer_at: answeredAt,
      boot_id: deps.credentials.bootId,
      arch: deps.engine.arch(),
      ...(engine === null ? {} : { engine }),
      ...(disk === null ? {} : { disk }),
      ...(deps.role === 'deploy' ? { publish_ip: deps.limits.publishIp ?? null, default_memory: deps.limits.defaultMemory ?? null } : {}),
    };
    await failPoint('agent.register.before');
    const node = await deps.credentials.register((headers, mayAsk) =>
      deps.client.call('agentRegister', { body: { ...body, capabilities: mayAsk ? ['node_secret'] : [] }, headers, signal }),
    );
    await failPoint('agent.register.after');
    lastOkAt = Date.now();
    lastAnswerAt = node.last_seen_at;
    forget(node.forget ?? []);
    return node;
  }

  return {
    nodeId: () => nodeId,
    engineOk: () => deps.engine.now()?.ok ?? null,
    lastOkAt: () => lastOkAt,
    problem: () => problem,
    async register(signal) {
      const before = nodeId;
      const node = await send(signal).catch((error: unknown) => {
        // The tasks of that name are another machine's.
        problem = error instanceof ApiError && error.code === 'node_doubled' ? error.message : null;
        if (problem !== null) nodeId = null;
        throw error;
      });
      problem = null;
      nodeId = node.id;
      await deps.ids.add(node.id);
      if (before === node.id) return node;
      deps.log.info({ node: node.id, role: deps.role, host_ip: node.host_ip }, 'registered');
      // Containers are found by the node's id, which we have only now.
      return send(signal);
    },
  };
}
