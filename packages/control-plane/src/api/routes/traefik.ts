/**
 * Serves the configuration of the reverse proxy, byte for byte as it was hashed. With `wait`, the
 * request is held while the proxy already has this configuration. If-None-Match says which one it
 * has. Traefik does not send it, so the last answer on the connection counts instead
 * (docs/interfaces.md "Held answers").
 */
import type { Socket } from 'node:net';
import type { FastifyReply } from 'fastify';
import { type Define, SENT, type Call } from '../define.ts';
import { matchesEtag } from '../etag.ts';
import type { Holds } from '../long-poll.ts';
import type { ConfigSource } from '../../domain/routes/configuration.ts';

export type Deps = {
  source: Pick<ConfigSource, 'changed' | 'current' | 'served'>;
  holds: Pick<Holds, 'begin'>;
};

/** State shared by all requests. */
type Context = Deps & {
  lastOn: WeakMap<Socket, string>;
};

export function traefikRoutes(route: Define, deps: Deps): void {
  /**
   * Hash of the last answer on each connection. The first request on a connection is never held.
   */
  const lastOn = new WeakMap<Socket, string>();
  const context: Context = { ...deps, lastOn };
  route('traefikConfig', (call) => traefikConfig(context, call));
}

function tagOf(hash: string): string {
  return `"${hash}"`;
}

/** Returns the current configuration; waits if the proxy already has it. Throws routes_unknown. */
async function next(
  deps: Deps,
  has: (hash: string) => boolean,
  waitMs: number,
  address: string,
  reply: FastifyReply,
) {
  const first = deps.source.current();
  const hold =
    waitMs > 0 && has(first.hash)
      ? deps.holds.begin('config', reply.raw, `address ${address}`)
      : null;
  if (hold === null) return first;
  const end = performance.now() + waitMs;
  try {
    for (let config = first; ; config = deps.source.current()) {
      const remainingMs = end - performance.now();
      if (!has(config.hash) || remainingMs <= 0 || hold.signal.aborted) return config;
      await deps.source.changed(config.hash, remainingMs, hold.signal);
    }
  } finally {
    hold.release();
  }
}

async function traefikConfig(
  context: Context,
  { query, setEtag, request, reply }: Call<'traefikConfig'>,
) {
  const { socket } = request.raw;
  const knownEtag = request.headers['if-none-match'];
  const last = context.lastOn.get(socket);
  const has = (hash: string): boolean =>
    knownEtag === undefined ? last === hash : matchesEtag(knownEtag, tagOf(hash));
  const { bytes, hash } = await next(context, has, (query.wait ?? 0) * 1000, request.ip, reply);
  if (request.method === 'GET') {
    context.lastOn.set(socket, hash);
    // Mark the configuration as fetched only after it was sent completely.
    reply.raw.once('finish', () => context.source.served(hash));
  }
  setEtag(tagOf(hash));
  if (matchesEtag(knownEtag, tagOf(hash))) void reply.code(304).send();
  else void reply.code(200).type('application/json').send(bytes);
  return SENT;
}
