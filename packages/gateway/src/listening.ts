/**
 * Listens at LISTEN, or on the socket that systemd keeps open: while the gateway restarts,
 * connections wait there and are not refused.
 */
import { lookup } from 'node:dns/promises';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import type { Listen } from '@berth/kit/config';
import type { Logger } from '@berth/kit/log';
import type { FastifyInstance } from 'fastify';

/**
 * `close` stops listening at the second address, if any. The server itself closes the first one.
 */
export type Listening = { close(): Promise<void> };

const NOTHING_MORE: Listening = { close: async () => undefined };

/**
 * @param inherited descriptor of the socket of systemd. If its address differs from LISTEN, the
 *   server listens at both.
 */
export async function listenOn(
  server: FastifyInstance,
  listen: Listen,
  inherited: number | undefined,
  log: Logger,
): Promise<Listening> {
  if (inherited === undefined) {
    await server.listen(listen);
    return NOTHING_MORE;
  }
  const wanted = await lookup(listen.host);
  // Fastify passes all options to net.Server, which prefers the descriptor to the address.
  // Fastify's type has no field for descriptors.
  const options = { host: wanted.address, port: listen.port, fd: inherited };
  await server.listen(options);
  const { address, port } = server.server.address() as AddressInfo;
  if (port === listen.port && address === wanted.address) return NOTHING_MORE;
  const names = { listen: `${listen.host}:${listen.port}`, socket: `${address}:${port}` };
  const more = createServer((connection) => void server.server.emit('connection', connection));
  try {
    more.listen(listen);
    await once(more, 'listening');
  } catch (error) {
    log.error(
      { ...names, err: error },
      'LISTEN is not the address of berth-gateway.socket and is not used: set ListenStream= in the unit',
    );
    return NOTHING_MORE;
  }
  log.warn(
    names,
    'LISTEN is not the address of berth-gateway.socket: requests to LISTEN fail during a ' +
      'restart; set ListenStream= in the unit',
  );
  return {
    close: () => new Promise((resolve) => void more.close(() => resolve())),
  };
}
