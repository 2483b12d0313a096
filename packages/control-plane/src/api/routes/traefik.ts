/**
 * The reverse proxy's configuration, exactly the bytes that its hash is of. With `wait` it is held while the proxy has them
 * already: by If-None-Match where that is sent; else by the connection, since Traefik sends no ETag (docs/interfaces.md "Held answers").
 */
import type { Socket } from 'node:net';
import type { FastifyReply } from 'fastify';
import { type Define, SENT } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { matchesEtag } from '../etag.ts';
import type { Holds } from '../holds.ts';

export function traefikRoutes(route: Define, deps: ApiDeps & { holds: Holds }): void {
  const { source, holds } = deps;
  const tagOf = (hash: string): string => `"${hash}"`;
  /** Hash of the last answer on a connection; the first request on one is answered at once. */
  const lastOn = new WeakMap<Socket, string>();

  /** The present configuration, or the first that is another than what the proxy has. Throws routes_unknown. */
  async function next(has: (hash: string) => boolean, waitMs: number, address: string, reply: FastifyReply) {
    const first = source.current();
    const hold = waitMs > 0 && has(first.hash) ? holds.begin('config', reply.raw, `address ${address}`) : null;
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

  route('traefikConfig', async ({ query, tag, request, reply }) => {
    const { socket } = request.raw;
    const known = request.headers['if-none-match'];
    const last = lastOn.get(socket);
    const has = (hash: string): boolean => (known === undefined ? last === hash : matchesEtag(known, tagOf(hash)));
    const { bytes, hash } = await next(has, (query.wait ?? 0) * 1000, request.ip, reply);
    if (request.method === 'GET') {
      lastOn.set(socket, hash);
      // Only what has left this process was given to the proxy.
      reply.raw.once('finish', () => source.served(hash));
    }
    tag(tagOf(hash));
    if (matchesEtag(known, tagOf(hash))) void reply.code(304).send();
    else void reply.code(200).type('application/json').send(bytes);
    return SENT;
  });
}
