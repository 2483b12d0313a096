/**
 * Decides where a request goes: entry point (removes headers that clients must not set) -> route ->
 * middlewares -> backend.
 */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { isIPv6, type Socket } from 'node:net';
import { trimOws } from '@berth/kit/ows';
import { applyMiddlewares, type Exchange, isHopByHop, type Reply } from './middlewares.ts';
import { json, page } from './pages.ts';
import type { Route } from './router.ts';
import type { ProxyState } from './state.ts';

export type Target = {
  route: Route;
  backend: URL;
  /** The other servers of the service, in the order in which they are tried. */
  others: readonly URL[];
  responseHeaders: Exchange['responseHeaders'];
};
export type Decision = { reply: Reply } | Target;

/**
 * Headers that the entry point removes from the client's request (Traefik's list) and partly sets
 * itself. Middlewares handle `X-Forwarded-User`.
 */
const ENTRY_POINT_HEADERS = [
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-method',
  'x-forwarded-port',
  'x-forwarded-prefix',
  'x-forwarded-proto',
  'x-forwarded-server',
  'x-forwarded-tls-client-cert',
  'x-forwarded-tls-client-cert-info',
  'x-forwarded-uri',
  'x-real-ip',
] as const;

export async function decide(
  state: ProxyState,
  req: IncomingMessage,
  signal: AbortSignal,
): Promise<Decision> {
  const uri = req.url ?? '/';
  const host = req.headers.host ?? '';
  const accept = req.headers.accept;
  if (!uri.startsWith('/'))
    return {
      reply: page(400, 'The request line must contain a path, not a complete URL.', accept),
    };
  const path = uri.replace(/\?.*$/s, '');
  const status = isOwnAddress(state, host, req.socket) ? statusAnswer(state, path) : null;
  if (status !== null) return { reply: status };

  deleteAliases(req.headers);
  const route = state.table.find({
    method: req.method ?? 'GET',
    headers: req.headers,
    host: host.toLowerCase().replace(/\.?(:\d+)?$/, ''),
    path,
  });
  if (route === null)
    return { reply: page(404, 'No application is published at this address.', accept) };

  const exchange: Exchange = {
    method: req.method ?? 'GET',
    uri,
    host,
    remoteAddress: withoutMapping(req.socket.remoteAddress ?? ''),
    headers: req.headers,
    responseHeaders: new Map(),
    signal,
  };
  enter(exchange, isWebSocket(req), state.serverName);
  const reply = await applyMiddlewares(route.middlewares, exchange, state.authAgents);
  if (reply !== null) return { reply };
  if (route.service.kind === 'noop')
    return { reply: { status: 418, headers: {}, body: "I'm a teapot" } };
  const [backend, ...others] = inTurn(state, route.service.servers);
  if (backend === undefined)
    return { reply: page(503, 'The application at this address is stopped.', accept) };
  return { route, backend, others, responseHeaders: exchange.responseHeaders };
}

/** Returns the servers from the one whose turn it is. */
function inTurn(state: ProxyState, servers: readonly URL[]): URL[] {
  state.turn = (state.turn + 1) % Math.max(1, servers.length);
  return [...servers.slice(state.turn), ...servers.slice(0, state.turn)];
}

/** The entry point: removes hop-by-hop headers and sets `X-Forwarded-…` itself. */
function enter(
  { headers, host, remoteAddress }: Exchange,
  webSocket: boolean,
  serverName: string,
): void {
  for (const name of (headers.connection ?? '').split(',')) {
    const named = trimOws(name).toLowerCase();
    if (named !== '' && !isHopByHop(named)) delete headers[named];
  }
  // Keep `transfer-encoding` for the body. Node has already answered `expect`.
  for (const name of Object.keys(headers))
    if (name === 'expect' || (isHopByHop(name) && name !== 'transfer-encoding'))
      delete headers[name];
  if (webSocket) Object.assign(headers, { connection: 'Upgrade', upgrade: 'websocket' });
  for (const name of ENTRY_POINT_HEADERS) delete headers[name];
  headers['x-forwarded-for'] = remoteAddress;
  headers['x-forwarded-host'] = host;
  headers['x-forwarded-port'] = /:(\d+)$/.exec(host)?.[1] ?? '80';
  headers['x-forwarded-proto'] = webSocket ? 'ws' : 'http';
  headers['x-forwarded-server'] = serverName;
  headers['x-real-ip'] = remoteAddress;
}

/**
 * Deletes headers that an application server can confuse with other headers (X_Forwarded_User,
 * X.Forwarded.User), like Traefik with `aliasHeadersStrategy: delete`.
 */
function deleteAliases(headers: IncomingHttpHeaders): void {
  for (const name of Object.keys(headers)) if (/[^a-z0-9-]/.test(name)) delete headers[name];
}

function statusAnswer({ closing, unready, table }: ProxyState, path: string): Reply | null {
  if (path === '/healthz') return json(200, { status: 'ok' });
  if (path !== '/readyz') return null;
  const reason = closing ? 'shutting down' : unready;
  return json(reason === null ? 200 : 503, {
    status: reason === null ? 'ready' : 'not ready',
    reasons: reason === null ? [] : [reason],
    routes: table.size,
    problems: table.problems,
  });
}

/**
 * True if the host is the proxy's own address. Only operators use this address; projects have host
 * names.
 */
function isOwnAddress(
  { listens }: ProxyState,
  host: string,
  { localAddress = '', localPort }: Socket,
): boolean {
  const address = withoutMapping(localAddress);
  return (
    host === `${isIPv6(address) ? `[${address}]` : address}:${localPort}` ||
    (listens !== null && host === `${listens.host}:${localPort}`)
  );
}

/** Returns an IPv4 address that was mapped into IPv6 (RFC 4291 section 2.5.5.2) as IPv4. */
const withoutMapping = (address: string): string => address.replace(/^::ffff:(?=\d+\.)/, '');

export const isWebSocket = (req: IncomingMessage): boolean =>
  req.headers.upgrade?.toLowerCase() === 'websocket' && req.method === 'GET';
