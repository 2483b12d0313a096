/**
 * Changes of a node that an operator should know: a new address or name, a secret issued or reset,
 * a refused machine. Each change becomes a log line, an entry of the audit log and a count in
 * /metrics.
 */
import type { Logger } from '@berth/kit/log';
import { LRUCache } from 'lru-cache';
import type { AuditStore } from '../domain/identity/identity-stores.ts';
import type { NodeRecord } from '../domain/platform/records.ts';
import type { Registered } from '../domain/nodes/node-store.ts';
import { growingTo } from './lru.ts';

export const NODE_CHANGES = [
  'registered',
  'moved',
  'renamed',
  'name_taken',
  'secret_given',
  'secret_reset',
  'doubled',
  'address_taken',
] as const;
export type NodeChangeKind = (typeof NODE_CHANGES)[number];
export type NodeChange = {
  kind: NodeChangeKind;
  node: Pick<NodeRecord, 'id' | 'hostname' | 'role'>;
  message: string;
};
/** The request that led to the change. */
type Source = { address: string; requestId: string };

export type NodeChangeLog = {
  record(change: NodeChange, source: Source): void;
  /** Calls the listener for each change. */
  on(listener: (change: NodeChange) => void): void;
};

/**
 * Minimum time between two audit entries of one kind for one node, so that a flapping address
 * cannot fill the audit log.
 */
const AUDIT_INTERVAL_MS = 60_000;

export function createNodeChangeLog(
  audit: Pick<AuditStore, 'append'>,
  log: Logger,
  now: () => number,
): NodeChangeLog {
  const listeners: ((change: NodeChange) => void)[] = [];
  const auditedAt = new LRUCache<string, number>(growingTo(20_000));

  async function appendToAudit(
    { kind, node }: NodeChange,
    { address, requestId }: Source,
  ): Promise<void> {
    // The admin's request has its own audit entry already.
    if (kind === 'secret_reset') return;
    const at = now();
    const key = `${kind} ${node.id}`;
    if (at - (auditedAt.get(key) ?? Number.NEGATIVE_INFINITY) < AUDIT_INTERVAL_MS) return;
    auditedAt.set(key, at);
    await audit.append({
      at,
      email: null,
      via: 'agent',
      action: `node.${kind}`,
      target: node.id,
      address: address.slice(0, 100),
      outcome: kind === 'doubled' || kind === 'name_taken' ? 'refused' : 'done',
      status: kind === 'doubled' ? 409 : 200,
      code: kind === 'doubled' ? 'node_doubled' : null,
      request_id: requestId,
    });
  }

  return {
    on: (listener) => void listeners.push(listener),
    record(change, source) {
      const { kind, node, message } = change;
      const isWarning =
        kind === 'doubled' || kind === 'name_taken' || kind === 'moved' || kind === 'address_taken';
      log[isWarning ? 'warn' : 'info'](
        { node: node.id, hostname: node.hostname, role: node.role, address: source.address },
        message,
      );
      appendToAudit(change, source).catch((err: unknown) =>
        log.error({ err, node: node.id, kind }, 'could not write to the audit log'),
      );
      for (const listener of listeners) listener(change);
    },
  };
}

/**
 * Returns the changes that an accepted registration made. `requestedName`: the host name in the
 * registration.
 */
export function changesOf(
  { node, before, secret, nameTaken, displaced, silentThere }: Registered,
  requestedName: string,
): NodeChange[] {
  const changes: NodeChange[] = [];
  const add = (kind: NodeChangeKind, message: string): void =>
    void changes.push({ kind, node, message });
  if (displaced !== undefined) {
    const why = `it was silent, and another machine, at ${node.host_ip}, has that name now`;
    changes.push({
      kind: 'renamed',
      node: displaced,
      message: `node ${node.hostname} was renamed to ${displaced.hostname}: ${why}`,
    });
  }
  if (before === null)
    add(
      'registered',
      `${node.role} node ${node.hostname} registered for the first time, with the address ` +
        node.host_ip,
    );
  else {
    if (before.host_ip !== node.host_ip)
      add(
        'moved',
        `the address of node ${node.hostname} changed from ${before.host_ip} to ` +
          `${node.host_ip}; its routes will follow`,
      );
    if (before.hostname !== node.hostname)
      add('renamed', `node ${before.hostname} was renamed to ${node.hostname}`);
  }
  if (silentThere !== undefined) {
    const { hostname } = silentThere;
    const message =
      `node ${node.hostname} has the address ${node.host_ip} of node ${hostname}, which is ` +
      `silent: routes of ${hostname} end where ${node.hostname} has their port`;
    changes.push({ kind: 'address_taken', node: silentThere, message });
  }
  if (nameTaken === true)
    add(
      'name_taken',
      `node ${node.hostname} asked for the name ${requestedName}, which another node has; it ` +
        'keeps its name',
    );
  if (secret !== undefined) add('secret_given', `node ${node.hostname} received its own secret`);
  return changes;
}
