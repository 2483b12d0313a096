/**
 * The HTTP server below Fastify. It equals the server that Fastify would create, except that
 * registrations are batched, repeated beats are answered at once, and connections are limited.
 */
import {
  createServer,
  type IncomingMessage,
  type Server as HttpServer,
  ServerResponse,
} from 'node:http';
import type { Socket } from 'node:net';
import { type ConnectionOptions, type Connections, limitConnections } from '@berth/kit/connections';
import { cookieRemedy, headersSize, MAX_HEADERS_READ } from '@berth/kit/header-size';
import { MAX_HOLD_SECONDS } from '@berth/wire/route';
import { ROUTES } from '@berth/wire/routes';
import { createBatcher } from './batcher.ts';
import type { Beats } from './beats.ts';
import { answerBrokenRequests, refuseHeaders } from './plugins/broken-requests.ts';
import { isUpgrade, offerUpgrade } from './upgrades.ts';

/** Size limit: 128 KiB of headers (docs/interfaces.md "Limits"), plus the request line. */
const MAX_HEADER_BYTES = 144 * 1024;
/** Idle time of a connection before TCP keep-alive probes. Agents use the same time. */
const PROBE_AFTER_MS = 60_000;

const OPTIONS = {
  maxHeaderSize: MAX_HEADERS_READ,
  // TCP keep-alive detects connections of dead agents. Otherwise their held requests would stay
  // open until `wait` ends.
  keepAlive: true,
  keepAliveInitialDelay: PROBE_AFTER_MS,
  keepAliveTimeout: 95_000,
  // Time limit in ms for receiving a request. Long polls can hold the answer much longer.
  requestTimeout: 60_000,
  // plugins/errors.ts checks the Host header and answers with a problem document.
  requireHostHeader: false,
  // All other requests are answered as if they did not ask for another protocol.
  shouldUpgradeCallback: isUpgrade,
};

export function createHttpServer(
  handle: (request: IncomingMessage, response: ServerResponse) => void,
  beats: Pick<Beats, 'answer'>,
  limits: Omit<ConnectionOptions, 'now'>,
): { server: HttpServer; connections: Connections } {
  const inBatch = createBatcher();
  const server = createServer(OPTIONS, (request, response) => {
    connections.requested(request.socket, response);
    if (headersSize(request) > MAX_HEADER_BYTES)
      refuseHeaders(response, cookieRemedy(request, MAX_HEADER_BYTES));
    else if (beats.answer(request, response)) return;
    else if (request.url === ROUTES.agentRegister.path) inBatch(() => handle(request, response));
    else handle(request, response);
  });
  server.on('upgrade', (request, socket, head) => {
    // The routes answer it as any request; the one that accepts the WebSocket takes the socket.
    const response = new ServerResponse(request);
    const plain = socket as Socket;
    response.shouldKeepAlive = false;
    response.assignSocket(plain);
    response.once('finish', () => plain.destroySoon());
    offerUpgrade(request, { socket: plain, head, response });
    connections.requested(plain, response);
    if (headersSize(request) > MAX_HEADER_BYTES)
      refuseHeaders(response, cookieRemedy(request, MAX_HEADER_BYTES));
    else handle(request, response);
  });
  const connections = limitConnections(server, limits);
  answerBrokenRequests(server);
  // Idle timeout of a connection. It is longer than any hold and than Traefik's idle timeout
  // (90 s).
  server.setTimeout((MAX_HOLD_SECONDS + 30) * 1000);
  return { server, connections };
}
