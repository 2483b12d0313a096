/**
 * The server of the proxy. A request passes these steps: entry point (removes headers that clients
 * must not set) -> route -> middlewares -> backend.
 *
 *   no route                         404
 *   a middleware answers             its answer
 *   a middleware fails               500; the request never passes
 *   service without servers          503
 *   backend refuses or resets        502; before, one retry if a kept-alive connection was stale,
 *                                    and a GET that reached no server goes to the next one
 *   backend breaks off its answer    the client's connection is closed: it shows the failure
 *
 * Routes are switched by one assignment. A request in progress keeps its route. Kept-alive
 * connections to backends without a route are closed as soon as they are idle.
 */
import http, { type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Listen } from '@berth/kit/config';
import type { Logger } from '@berth/kit/log';
import { decide, isWebSocket } from './decision.ts';
import { createForwarding, type Forwarding } from './forwarding.ts';
import { page } from './pages.ts';
import { send, sendRaw } from './reply.ts';
import { destroyAgents } from './request.ts';
import type { Table } from './router.ts';
import { newState, type ProxyState } from './state.ts';

export type ProxyServer = {
  /** Replaces all routes, starting with the next request. */
  use(table: Table): void;
  /** Sets the reason why the proxy is not ready; null means ready. */
  setUnready(reason: string | null): void;
  listen(listen: Listen): Promise<AddressInfo>;
  /** Stops new connections; requests in progress have `drainMs` to finish. */
  close(drainMs?: number): Promise<void>;
};

const MAX_HEADER_BYTES = 256 * 1024;
const DRAIN_MS = 5_000;
const NOT_CHECKED = 'The proxy could not check whether this request is allowed. Try again later.';

export function createProxy(log: Logger): ProxyServer {
  const state = newState(log);
  const forwarding = createForwarding(state);
  const server: Server = http.createServer(
    {
      maxHeaderSize: MAX_HEADER_BYTES,
      requestTimeout: 0,
      keepAliveTimeout: 65_000,
      shouldUpgradeCallback: isWebSocket,
    },
    (req, res) => onRequest({ state, forwarding, server }, req, res),
  );
  server.on('upgrade', (req: IncomingMessage, socket: Socket, head: Buffer) =>
    onUpgrade({ state, forwarding }, req, socket, head),
  );
  return {
    use: (table) => use(state, table),
    setUnready: (reason) => void (state.unready = reason),
    listen: (address) => listen(state, server, address),
    close: (drainMs = DRAIN_MS) => close(state, server, drainMs),
  };
}

type Parts = { state: ProxyState; forwarding: Forwarding };

function onRequest(
  { state, forwarding, server }: Parts & { server: Server },
  req: IncomingMessage,
  res: ServerResponse,
): void {
  // While draining, close the connection after this answer.
  if (state.closing) res.setHeader('connection', 'close');
  const gone = new AbortController();
  // A retry and a pipeline together add 11 listeners; Node warns above 10.
  res.setMaxListeners(20).on('close', () => {
    gone.abort();
    if (state.closing) setImmediate(() => server.closeIdleConnections());
  });
  decide(state, req, gone.signal).then(
    (decision) =>
      'reply' in decision ? send(res, req, decision.reply) : forwarding.request(decision, req, res),
    (error: unknown) => {
      if (gone.signal.aborted) return;
      logNotRouted(state, req, error);
      send(res, req, page(500, NOT_CHECKED, req.headers.accept));
    },
  );
}

function onUpgrade(
  { state, forwarding }: Parts,
  req: IncomingMessage,
  socket: Socket,
  head: Buffer,
): void {
  const gone = new AbortController();
  state.upgraded.add(socket);
  socket.on('close', () => {
    state.upgraded.delete(socket);
    gone.abort();
  });
  socket.on('error', (error) =>
    state.log.debug({ err: error, host: req.headers.host }, 'WebSocket client disconnected'),
  );
  decide(state, req, gone.signal).then(
    (decision) =>
      'reply' in decision
        ? sendRaw(socket, decision.reply)
        : forwarding.webSocket(decision, req, socket, head),
    (error: unknown) => {
      if (gone.signal.aborted) return;
      logNotRouted(state, req, error);
      sendRaw(socket, page(500, NOT_CHECKED, undefined));
    },
  );
}

const logNotRouted = ({ log }: ProxyState, req: IncomingMessage, error: unknown): void =>
  log.error({ err: error, host: req.headers.host }, 'request could not be routed');

function use(state: ProxyState, table: Table): void {
  const { backends } = state;
  state.table = table;
  for (const origin of table.origins)
    if (!backends.has(origin)) backends.set(origin, new http.Agent({ keepAlive: true }));
  for (const [origin, agent] of backends) {
    if (table.origins.has(origin)) continue;
    backends.delete(origin);
    retire(agent);
  }
}

/** Closes idle connections now and each busy connection after its request. */
function retire(agent: http.Agent): void {
  agent.maxFreeSockets = 0;
  for (const sockets of Object.values(agent.freeSockets))
    for (const socket of sockets ?? []) socket.destroy();
}

async function listen(state: ProxyState, server: Server, address: Listen): Promise<AddressInfo> {
  state.listens = address;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(address.port, address.host, () => {
      server.off('error', reject);
      resolve();
    });
  });
  const bound = server.address();
  if (bound === null || typeof bound === 'string') throw new Error('the server has no address');
  return bound;
}

async function close(state: ProxyState, server: Server, drainMs: number): Promise<void> {
  state.closing = true;
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  // WebSockets never end by themselves, so close them; their clients reconnect.
  for (const socket of state.upgraded) socket.destroy();
  const late = setTimeout(() => server.closeAllConnections(), drainMs);
  await closed;
  clearTimeout(late);
  destroyAgents(state.authAgents);
  for (const agent of state.backends.values()) agent.destroy();
}
