/**
 * Holds a person's request while the caller already has the current answer (docs/interfaces.md
 * "Held answers").
 */
import type { FastifyReply } from 'fastify';
import type { Changes, Topic } from '../domain/platform/changes.ts';
import { matchesEtag } from './etag.ts';
import { type Holds, readUntil } from './long-poll.ts';

/** Poll interval of a held request if no notification arrives. */
const POLL_MS = 5_000;

type Wait = {
  /** The If-None-Match header. */
  knownEtag: string | undefined;
  waitSeconds: number;
  topic: Topic;
  /** The person whose holds are counted. */
  holder: string;
};
export type HoldWhile = <T extends { etag: string }>(
  read: () => Promise<T>,
  wait: Wait,
  reply: FastifyReply,
) => Promise<T>;

export type Deps = { changes: Pick<Changes, 'on'>; holds: Pick<Holds, 'begin'> };

/**
 * Reads after each notification, and every 5 s because another control plane can change the answer.
 */
export const createHoldWhile =
  ({ changes, holds }: Deps): HoldWhile =>
  async (read, { knownEtag, waitSeconds, topic, holder }, reply) => {
    const hold =
      waitSeconds === 0 || knownEtag === undefined
        ? null
        : holds.begin('deployments', reply.raw, holder);
    if (hold === null) return read();
    const end = performance.now() + waitSeconds * 1000;
    const isNew = (result: { etag: string }): boolean => !matchesEtag(knownEtag, result.etag);
    try {
      for (;;) {
        const waitMs = Math.min(POLL_MS, end - performance.now());
        const result = await readUntil(read, isNew, { changes, topic, waitMs, hold });
        if (isNew(result) || hold.ended() || performance.now() >= end) return result;
      }
    } finally {
      hold.release();
    }
  };
