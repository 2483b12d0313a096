/**
 * What changed about a node that an operator should hear of: another address or name, a secret given out or taken away, a machine that
 * was refused. Each is a line of the log and of the audit log, and a count for /metrics; `on` hands it to whoever else wants it.
 */
import type { Logger } from '@berth/kit/log';
import { LRUCache } from 'lru-cache';
import type { AuditStore } from '../domain/identity-stores.ts';
import type { NodeRecord } from '../domain/records.ts';
import type { Registered } from '../domain/stores.ts';

export const NODE_NEWS = ['registered', 'moved', 'renamed', 'name_taken', 'secret_given', 'secret_reset', 'doubled'] as const;
export type NodeNewsKind = (typeof NODE_NEWS)[number];
export type NodeNews = { kind: NodeNewsKind; node: Pick<NodeRecord, 'id' | 'hostname' | 'role'>; message: string };
type Origin = { address: string; requestId: string };

export type NodeNewsDesk = {
  tell(news: NodeNews, from: Origin): void;
  on(listener: (news: NodeNews) => void): void;
};

/** One line of the audit log for each kind and node in so long: whoever makes an address flap does not fill it. */
const AUDIT_EVERY_MS = 60_000;

export function createNodeNews(audit: Pick<AuditStore, 'append'>, log: Logger, now: () => number): NodeNewsDesk {
  const listeners: ((news: NodeNews) => void)[] = [];
  const written = new LRUCache<string, number>({ max: 20_000 });

  async function write({ kind, node }: NodeNews, { address, requestId }: Origin): Promise<void> {
    // The admin’s own request is audited already.
    if (kind === 'secret_reset') return;
    const at = now();
    const key = `${kind} ${node.id}`;
    if (at - (written.get(key) ?? Number.NEGATIVE_INFINITY) < AUDIT_EVERY_MS) return;
    written.set(key, at);
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
    tell(news, from) {
      const { kind, node, message } = news;
      const loud = kind === 'doubled' || kind === 'name_taken' || kind === 'moved';
      log[loud ? 'warn' : 'info']({ node: node.id, hostname: node.hostname, role: node.role, address: from.address }, message);
      write(news, from).catch((err: unknown) => log.error({ err, node: node.id, kind }, 'a line of the audit log could not be written'));
      for (const listener of listeners) listener(news);
    },
  };
}

/** What a register that was taken changed. */
export function newsOf({ node, before, secret, nameTaken }: Registered, wanted: string): NodeNews[] {
  const news: NodeNews[] = [];
  const tell = (kind: NodeNewsKind, message: string): void => void news.push({ kind, node, message });
  if (before === null) tell('registered', `${node.role} node ${node.hostname} registered for the first time, at ${node.host_ip}`);
  else {
    if (before.host_ip !== node.host_ip)
      tell('moved', `node ${node.hostname} is at ${node.host_ip} now (was ${before.host_ip}); its routes follow`);
    if (before.hostname !== node.hostname) tell('renamed', `node ${before.hostname} is called ${node.hostname} now`);
  }
  if (nameTaken === true)
    tell('name_taken', `node ${node.hostname} calls itself ${wanted}, which is another node’s name; it keeps its own`);
  if (secret !== undefined) tell('secret_given', `node ${node.hostname} was given a secret of its own`);
  return news;
}
