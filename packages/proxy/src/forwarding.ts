/** Forwards requests and WebSockets to backends. */
import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { pipeline } from 'node:stream';
import { defined } from '@berth/kit/defined';
import { createProxyServer } from 'http-proxy-3';
import type { Target } from './decision.ts';
import { isHopByHop } from './middlewares.ts';
import { page } from './pages.ts';
import { send, sendRaw } from './reply.ts';
import { isStaleConnection, isUnreached } from './request.ts';
import type { ProxyState } from './state.ts';

export type Forwarding = {
  request(target: Target, req: IncomingMessage, res: ServerResponse): void;
  webSocket(target: Target, req: IncomingMessage, socket: Socket, head: Buffer): void;
};

const CONNECT_TIMEOUT_MS = 10_000;
/** Time limit if there is another server: a machine without power sends no refusal. */
const SHORT_CONNECT_TIMEOUT_MS = 500;
/**
 * Idempotent methods (RFC 9110 section 9.2.2). Such a request can be sent twice safely if it has no
 * body.
 */
const REPEATABLE = new Set(['GET', 'HEAD', 'OPTIONS']);
const NO_ANSWER = 'The application at this address did not answer.';

type Forwarder = {
  state: ProxyState;
  proxy: ReturnType<typeof newProxy>;
  /** Requests to the backend, by the request of the client. */
  outgoing: WeakMap<IncomingMessage, ClientRequest>;
  targets: WeakMap<IncomingMessage, Target>;
};

const newProxy = () =>
  createProxyServer({
    // Forward the path unchanged: normalization would change `/a/../b` and `//` to other resources.
    toProxy: true,
    prependPath: false,
    connectTimeout: CONNECT_TIMEOUT_MS,
    selfHandleResponse: true,
  });

export function createForwarding(state: ProxyState): Forwarding {
  const proxy = newProxy();
  const forwarder: Forwarder = { state, proxy, outgoing: new WeakMap(), targets: new WeakMap() };
  proxy.on('proxyReq', (request, req) => forwarder.outgoing.set(req, request));
  proxy.on('proxyRes', (answer, req, res) => passAnswer(forwarder, answer, req, res));
  return {
    request: (target, req, res) => toBackend(forwarder, target, req, res),
    webSocket: (target, req, socket, head) =>
      toWebSocketBackend(forwarder, target, req, socket, head),
  };
}

function passAnswer(
  { state, targets }: Forwarder,
  answer: IncomingMessage,
  req: IncomingMessage,
  res: ServerResponse,
): void {
  res.statusCode = answer.statusCode ?? 502;
  res.statusMessage = answer.statusMessage ?? '';
  for (const [name, values] of Object.entries(answer.headersDistinct))
    if (values !== undefined && !isHopByHop(name))
      res.setHeader(name, name === 'set-cookie' ? values : single(values));
  for (const [name, value] of targets.get(req)?.responseHeaders ?? []) {
    if (value === null) res.removeHeader(name);
    else res.setHeader(name, value);
  }
  // Send the headers now: an event stream can have no data for a while, and its client waits for
  // the headers.
  res.flushHeaders();
  pipeline(answer, res, (error) => {
    if (error) state.log.debug({ err: error, host: req.headers.host }, 'answer broke off');
  });
}

function toBackend(
  forwarder: Forwarder,
  target: Target,
  req: IncomingMessage,
  res: ServerResponse,
  isRetry = false,
): void {
  const { state, proxy, outgoing, targets } = forwarder;
  const { route, backend } = target;
  const [next, ...others] = isRepeatable(req) ? target.others : [];
  targets.set(req, target);
  // A request that cannot be repeated uses a new connection, because the backend might just be
  // closing a kept-alive connection.
  const agent = isRepeatable(req) && !isRetry ? state.backends.get(backend.origin) : undefined;
  const connectTimeout = next === undefined ? CONNECT_TIMEOUT_MS : SHORT_CONNECT_TIMEOUT_MS;
  proxy.web(req, res, { target: backend, connectTimeout, ...defined({ agent }) }, (error) => {
    const request = outgoing.get(req);
    const wasStale = request !== undefined && isStaleConnection(error, request);
    if (wasStale && !isRetry && !res.headersSent)
      return toBackend(forwarder, target, req, res, true);
    state.log.warn(
      { err: error, router: route.name, backend: backend.origin },
      'backend did not answer',
    );
    if (res.headersSent) res.destroy();
    else if (next !== undefined && isUnreached(error))
      toBackend(forwarder, { ...target, backend: next, others }, req, res);
    else send(res, req, page(502, NO_ANSWER, req.headers.accept));
  });
}

const isRepeatable = ({ method, headers }: IncomingMessage): boolean =>
  REPEATABLE.has(method ?? '') &&
  headers['content-length'] === undefined &&
  headers['transfer-encoding'] === undefined;

function toWebSocketBackend(
  { state, proxy, targets }: Forwarder,
  target: Target,
  req: IncomingMessage,
  socket: Socket,
  head: Buffer,
): void {
  const { route, backend } = target;
  targets.set(req, target);
  const bytesBefore = socket.bytesWritten;
  proxy.ws(req, socket, head, { target: backend }, (error) => {
    state.log.warn(
      { err: error, router: route.name, backend: backend.origin },
      'backend refused the WebSocket',
    );
    if (socket.bytesWritten === bytesBefore) sendRaw(socket, page(502, NO_ANSWER, undefined));
  });
}

const single = (values: string[]): string | string[] =>
  values.length === 1 && values[0] !== undefined ? values[0] : values;
