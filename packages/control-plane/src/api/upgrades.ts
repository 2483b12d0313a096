/**
 * WebSockets behind the routes of wire/exec.ts. Such a request goes through all checks of its route;
 * a refusal is an ordinary answer, and `acceptWebSocket` takes the connection.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { EXEC_PROTOCOL, EXEC_ROUTES, MAX_EXEC_MESSAGE } from '@berth/wire/exec';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type WebSocket, WebSocketServer } from 'ws';
import { DomainError } from '../domain/platform/errors.ts';

type Offer = { socket: Socket; head: Buffer; response: ServerResponse };

const offers = new WeakMap<IncomingMessage, Offer>();
const PATHS = Object.values(EXEC_ROUTES)
  .filter(({ status }) => status === 101)
  .map(({ path }) => path.replace(':id', ''));

/** Returns whether the request asks for a WebSocket at a path that has one. */
export const isUpgrade = ({ method, url = '', headers }: IncomingMessage): boolean =>
  method === 'GET' &&
  headers.upgrade?.toLowerCase() === 'websocket' &&
  PATHS.some((path) => url.startsWith(path));

export const offerUpgrade = (request: IncomingMessage, offer: Offer): void =>
  void offers.set(request, offer);

const webSockets = new WebSocketServer({
  noServer: true,
  clientTracking: false,
  maxPayload: MAX_EXEC_MESSAGE,
  perMessageDeflate: false,
  handleProtocols: (protocols) => (protocols.has(EXEC_PROTOCOL) ? EXEC_PROTOCOL : false),
});

/** Throws upgrade_required if the request asks for no WebSocket. */
export function checkUpgrade({ raw }: FastifyRequest): void {
  if (!offers.has(raw))
    throw new DomainError(
      'upgrade_required',
      `this address takes a WebSocket with the subprotocol ${EXEC_PROTOCOL}`,
    );
}

/** Takes the connection of the request, as a paused WebSocket. Throws upgrade_required. */
export function acceptWebSocket(request: FastifyRequest, reply: FastifyReply): Promise<WebSocket> {
  checkUpgrade(request);
  const { socket, head, response } = offers.get(request.raw) as Offer;
  offers.delete(request.raw);
  reply.hijack();
  response.detachSocket(socket);
  return new Promise((resolve, reject) => {
    const onClose = (): void => reject(new Error('the connection ended during the handshake'));
    socket.once('close', onClose);
    webSockets.handleUpgrade(request.raw, socket, head, (webSocket) => {
      socket.off('close', onClose);
      // The reader resumes it when its listeners are there.
      webSocket.pause();
      resolve(webSocket);
    });
  });
}
