/**
 * Serves the configuration of the reverse proxy, byte for byte as it was hashed. With `wait` the
 * request is held while the proxy already has this configuration. If-None-Match tells what the
 * proxy has. Traefik sends none, so the last answer on the connection counts instead
 * (docs/interfaces.md "Held answers").
 */
import type { Socket } from 'node:net';
import type { FastifyReply } from 'fastify';
import { type Define, SENT } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { matchesEtag } from '../etag.ts';
import type { Holds } from '../long-poll.ts';

export function traefikRoutes(route: Define, deps: ApiDeps & { holds: Holds }): void {
  const { source, holds } = deps;
  const tagOf = (hash: string): string => `"${hash}"`;
  /**
   * Hash of the last answer on each connection. The first request on a connection is never held.
   */
  const lastOn = new WeakMap<Socket, string>();

  /**
   * Returns the current configuration, or waits for one that the proxy does not have. Throws
   * routes_unknown.
   */
  async function next(
    has: (hash: string) => boolean,
    waitMs: number,
    address: string,
    reply: FastifyReply,
  ) {
    const first = source.current();
    const hold =
      waitMs > 0 && has(first.hash) ? holds.begin('config', reply.raw, `address ${address}`) : null;
    if (hold === null) return first;
    const end = performance.now() + waitMs;
    try {
      for (let config = first; ; config = source.current()) {
        const left = end - performance.now();
        if (!has(config.hash) || left <= 0 || hold.signal.aborted) return config;
        await source.changed(config.hash, left, hold.signal);
      }
    } finally {
      hold.release();
    }
  }

  route('traefikConfig', async ({ query, setEtag, request, reply }) => {
    const { socket } = request.raw;
    const knownEtag = request.headers['if-none-match'];
    const last = lastOn.get(socket);
    const has = (hash: string): boolean =>
      knownEtag === undefined ? last === hash : matchesEtag(knownEtag, tagOf(hash));
    const { bytes, hash } = await next(has, (query.wait ?? 0) * 1000, request.ip, reply);
    if (request.method === 'GET') {
      lastOn.set(socket, hash);
      // A configuration counts as fetched only after it was sent completely.
      reply.raw.once('finish', () => source.served(hash));
    }
    setEtag(tagOf(hash));
    if (matchesEtag(knownEtag, tagOf(hash))) void reply.code(304).send();
    else void reply.code(200).type('application/json').send(bytes);
    return SENT;
  });
}
