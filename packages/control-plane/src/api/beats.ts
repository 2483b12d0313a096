/**
 * Answers repeated beats before Fastify handles them: 10,000 agents send 1,000 beats each second,
 * and a beat only updates one time.
 *
 *   unknown ── the route accepts the same request (`accepted`) ──▶ known: answered here
 *   known ── KNOWN_MS later; another secret; a secret or a node that is gone ──▶ the route decides
 */
import { timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { LRUCache } from 'lru-cache';
import type { NodeStore } from '../domain/nodes/node-store.ts';
import type { UptimeClock } from '../domain/platform/uptime.ts';
import { growingTo } from './lru.ts';

export type Deps = {
  nodes: Pick<NodeStore, 'heard' | 'shownSecret'>;
  uptime: Pick<UptimeClock, 'estimate'>;
};
/** `hash`: of the secret, if it is the node’s own; null: AGENT_SECRET, or none is required. */
type Known = { nodeId: string; secret: Buffer; hash: string | null; until: number };
export type Beats = {
  /** Remembers a request that the route has accepted. */
  accepted(request: IncomingMessage, nodeId: string, hash: string | null): void;
  /** Answers the request if it repeats an accepted one. Returns false if the route must answer. */
  answer(request: IncomingMessage, response: ServerResponse): boolean;
};

/** Time in ms after which the route checks the secret again. */
const KNOWN_MS = 60_000;
const MOST_KNOWN = 20_000;

export function createBeats({ nodes, uptime }: Deps): Beats {
  /** By URL, which names the node. */
  const acceptedBeats = new LRUCache<string, Known>(growingTo(MOST_KNOWN));
  return {
    accepted(request, nodeId, hash) {
      acceptedBeats.set(request.url ?? '', {
        nodeId,
        secret: secretOf(request),
        hash,
        until: uptime.estimate().at + KNOWN_MS,
      });
    },
    answer(request, response) {
      if (request.method !== 'POST' || (request.headers['content-length'] ?? '0') !== '0')
        return false;
      const beat = acceptedBeats.get(request.url ?? '');
      const { at } = uptime.estimate();
      if (beat === undefined || at > beat.until || !isSame(beat.secret, secretOf(request)))
        return false;
      if (beat.hash !== null && !nodes.shownSecret(beat.nodeId, beat.hash)) return false;
      if (!nodes.heard(beat.nodeId, at)) return false;
      response.writeHead(204).end();
      return true;
    },
  };
}

const secretOf = ({ headers }: IncomingMessage): Buffer =>
  Buffer.from(String(headers['x-agent-secret'] ?? ''));

const isSame = (a: Buffer, b: Buffer): boolean => a.length === b.length && timingSafeEqual(a, b);
