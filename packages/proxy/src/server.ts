/**
 * The proxy's server. One request: entry point (headers a client may not set) -> route -> middlewares -> backend.
 *
 *   no route                         404
 *   middleware answers               its answer
 *   middleware cannot decide         500, never let through
 *   no server for the service        503
 *   backend refuses, resets          502 (once more on a fresh connection when a kept one was stale and nothing was done)
 *   backend breaks off               the client's connection is broken off too: half an answer must not look whole
 *
 * A switch of routes is one assignment. A request keeps the route it found; connections kept to backends that no
 * route leads to any more are closed as soon as they are idle.
 */
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, isIPv6, type Socket } from 'node:net';
import { hostname } from 'node:os';
import { type Duplex, pipeline } from 'node:stream';
import type { Listen } from '@berth/kit/config';
import type { Logger } from '@berth/kit/log';
import { trimOws } from '@berth/kit/ows';
import { createProxyServer } from 'http-proxy-3';
import { applyMiddlewares, type Exchange, isHopByHop, type Reply } from './middlewares.ts';
import { json, page } from './pages.ts';
import { createAgents, destroyAgents, isStaleConnection } from './request.ts';
import { EMPTY_TABLE, type Route, type Table } from './router.ts';

export type ProxyServer = {
  /** From the next request on, these routes and no others. */
  use(table: Table): void;
  /** Why it is not ready, or null when it is. */
  setUnready(reason: string | null): void;
  listen(listen: Listen): Promise<AddressInfo>;
  /** No new connections; requests under way have `drainMs` to finish. */
  close(drainMs?: number): Promise<void>;
};

/** What the entry point decides, whatever the client said (Traefik's list). `X-Forwarded-User` is a middleware's business. */
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

const MAX_HEADER_BYTES = 256 * 1024;
const CONNECT_TIMEOUT_MS = 10_000;
/** A request by one of these without a body may be sent twice without harm (RFC 9110, 9.2.2). */
const REPEATABLE = new Set(['GET', 'HEAD', 'OPTIONS']);

export function createProxy(log: Logger): ProxyServer {
  let table = EMPTY_TABLE;
  let unready: string | null = 'no configuration has been loaded yet';
  let closing = false;
  let turn = 0;
  const upgraded = new Set<Duplex>();
  const backends = new Map<string, http.Agent>();
  const authAgents = createAgents({ keepAlive: true, maxSockets: 256 });
  const serverName = hostname();

  const proxy = createProxyServer({
    // The path goes on as it came; joined and normalized, `/a/../b` and `//` would become other resources.
    toProxy: true,
    prependPath: false,
    connectTimeout: CONNECT_TIMEOUT_MS,
    selfHandleResponse: true,
  });
  const outgoing = new WeakMap<IncomingMessage, http.ClientRequest>();
  const exchanges = new WeakMap<IncomingMessage, Exchange>();
  proxy.on('proxyReq', (request, req) => outgoing.set(req, request));
  proxy.on('proxyRes', (answer, req, res) => {
    res.statusCode = answer.statusCode ?? 502;
    res.statusMessage = answer.statusMessage ?? '';
    const own = exchanges.get(req)?.responseHeaders;
    for (const [name, values] of Object.entries(answer.headersDistinct))
      if (values !== undefined && !isHopByHop(name)) res.setHeader(name, name === 'set-cookie' ? values : single(values));
    for (const [name, value] of own ?? []) {
      if (value === null) res.removeHeader(name);
      else res.setHeader(name, value);
    }
    // An event stream says nothing for a while, and its client waits for the headers.
    res.flushHeaders();
    pipeline(answer, res, (error) => {
      if (error) log.debug({ err: error, host: req.headers.host }, 'an answer was not carried to its end');
    });
  });

  const server = http.createServer(
    { maxHeaderSize: MAX_HEADER_BYTES, requestTimeout: 0, keepAliveTimeout: 65_000, shouldUpgradeCallback: isWebSocket },
    (req, res) => {
      // While draining, a connection ends with its answer.
      if (closing) res.setHeader('connection', 'close');
      const gone = new AbortController();
      // A retry and a pipeline together come to eleven listeners, one more than Node takes for a leak.
      res.setMaxListeners(20).on('close', () => {
        gone.abort();
        if (closing) setImmediate(() => server.closeIdleConnections());
      });
      decide(req, gone.signal).then(
        (decision) => ('reply' in decision ? send(res, req, decision.reply) : toBackend(decision, req, res)),
        (error: unknown) => {
          if (gone.signal.aborted) return;
          log.error({ err: error, host: req.headers.host }, 'a request could not be decided on');
          send(res, req, page(500, 'The proxy could not find out whether this request is allowed.', req.headers.accept));
        },
      );
    },
  );
  server.on('upgrade', (req: IncomingMessage, socket: Socket, head: Buffer) => {
    upgraded.add(socket);
    const gone = new AbortController();
    socket.on('close', () => {
      upgraded.delete(socket);
      gone.abort();
    });
    socket.on('error', (error) => log.debug({ err: error, host: req.headers.host }, 'a WebSocket client broke off'));
    decide(req, gone.signal).then(
      (decision) => ('reply' in decision ? sendRaw(socket, decision.reply) : toWebSocketBackend(decision, req, socket, head)),
      (error: unknown) => {
        if (gone.signal.aborted) return;
        log.error({ err: error, host: req.headers.host }, 'a request could not be decided on');
        sendRaw(socket, page(500, 'The proxy could not find out whether this request is allowed.', undefined));
      },
    );
  });

  type Decision = { reply: Reply } | { route: Route; backend: URL };

  async function decide(req: IncomingMessage, signal: AbortSignal): Promise<Decision> {
    const uri = req.url ?? '/';
    const host = req.headers.host ?? '';
    const accept = req.headers.accept;
    if (!uri.startsWith('/')) return { reply: page(400, 'A path is expected, not a whole address.', accept) };
    const path = uri.replace(/\?.*$/s, '');
    const own = isOwnAddress(host, req.socket) ? ownAnswer(path) : null;
    if (own !== null) return { reply: own };

    deleteAliases(req.headers);
    const route = table.find({ headers: req.headers, host: host.toLowerCase().replace(/\.?(:\d+)?$/, ''), path });
    if (route === null) return { reply: page(404, 'There is nothing at this address.', accept) };

    const exchange: Exchange = {
      method: req.method ?? 'GET',
      uri,
      host,
      remoteAddress: (req.socket.remoteAddress ?? '').replace(/^::ffff:(?=\d+\.)/, ''),
      headers: req.headers,
      responseHeaders: new Map(),
      signal,
    };
    enter(exchange, isWebSocket(req));
    exchanges.set(req, exchange);
    const reply = await applyMiddlewares(route.middlewares, exchange, authAgents);
    if (reply !== null) return { reply };
    if (route.service.kind === 'noop') return { reply: { status: 418, headers: {}, body: "I'm a teapot" } };
    const { servers } = route.service;
    turn = (turn + 1) % Math.max(1, servers.length);
    const backend = servers[turn];
    if (backend === undefined) return { reply: page(503, 'No server is available for this address.', accept) };
    return { route, backend };
  }

  /** The entry point: nothing of a neighbour's connection, and `X-Forwarded-…` by us alone. */
  function enter({ headers, host, remoteAddress }: Exchange, webSocket: boolean): void {
    for (const name of (headers.connection ?? '').split(',')) {
      const named = trimOws(name).toLowerCase();
      if (named !== '' && !isHopByHop(named)) delete headers[named];
    }
    // A body's own framing stays; `expect` was answered when the request came in.
    for (const name of Object.keys(headers))
      if (name === 'expect' || (isHopByHop(name) && name !== 'transfer-encoding')) delete headers[name];
    if (webSocket) Object.assign(headers, { connection: 'Upgrade', upgrade: 'websocket' });
    for (const name of ENTRY_POINT_HEADERS) delete headers[name];
    headers['x-forwarded-for'] = remoteAddress;
    headers['x-forwarded-host'] = host;
    headers['x-forwarded-port'] = /:(\d+)$/.exec(host)?.[1] ?? '80';
    headers['x-forwarded-proto'] = webSocket ? 'ws' : 'http';
    headers['x-forwarded-server'] = serverName;
    headers['x-real-ip'] = remoteAddress;
  }

  function toBackend({ route, backend }: { route: Route; backend: URL }, req: IncomingMessage, res: ServerResponse, again = false): void {
    const repeatable =
      REPEATABLE.has(req.method ?? '') && req.headers['content-length'] === undefined && req.headers['transfer-encoding'] === undefined;
    // What may not be sent twice goes over a fresh connection: a kept one may be closed just now.
    const agent = repeatable && !again ? backends.get(backend.origin) : undefined;
    proxy.web(req, res, { target: backend, ...(agent === undefined ? {} : { agent }) }, (error) => {
      const request = outgoing.get(req);
      if (!again && !res.headersSent && request !== undefined && isStaleConnection(error, request)) {
        toBackend({ route, backend }, req, res, true);
        return;
      }
      log.warn({ err: error, router: route.name, backend: backend.origin }, 'the backend did not answer');
      if (res.headersSent) res.destroy();
      else send(res, req, page(502, 'The application behind this address did not answer.', req.headers.accept));
    });
  }

  function toWebSocketBackend(
    { route, backend }: { route: Route; backend: URL },
    req: IncomingMessage,
    socket: Socket,
    head: Buffer,
  ): void {
    const bytesBefore = socket.bytesWritten;
    proxy.ws(req, socket, head, { target: backend }, (error) => {
      log.warn({ err: error, router: route.name, backend: backend.origin }, 'the backend did not take the WebSocket');
      if (socket.bytesWritten === bytesBefore) sendRaw(socket, page(502, 'The application behind this address did not answer.', undefined));
    });
  }

  function ownAnswer(path: string): Reply | null {
    if (path === '/healthz') return json(200, { status: 'ok' });
    if (path !== '/readyz') return null;
    const reasons = closing ? ['shutting down'] : unready === null ? [] : [unready];
    return json(reasons.length === 0 ? 200 : 503, {
      status: reasons.length === 0 ? 'ready' : 'not ready',
      reasons,
      routes: table.size,
      problems: table.problems,
    });
  }

  let configured: Listen | null = null;
  /** The address itself, as nobody but an operator uses it: projects have names. */
  function isOwnAddress(host: string, { localAddress = '', localPort }: Socket): boolean {
    const address = localAddress.replace(/^::ffff:(?=\d+\.)/, '');
    return (
      host === `${isIPv6(address) ? `[${address}]` : address}:${localPort}` ||
      (configured !== null && host === `${configured.host}:${localPort}`)
    );
  }

  return {
    use(next) {
      table = next;
      for (const origin of next.origins) if (!backends.has(origin)) backends.set(origin, new http.Agent({ keepAlive: true }));
      for (const [origin, agent] of backends) {
        if (next.origins.has(origin)) continue;
        backends.delete(origin);
        retire(agent);
      }
    },
    setUnready(reason) {
      unready = reason;
    },
    async listen(listen) {
      configured = listen;
      await new Promise<void>((resolve, reject) => {
        server.once('error', reject);
        server.listen(listen.port, listen.host, () => {
          server.off('error', reject);
          resolve();
        });
      });
      const address = server.address();
      if (address === null || typeof address === 'string') throw new Error('the server listens nowhere');
      return address;
    },
    async close(drainMs = 5_000) {
      closing = true;
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      // They never finish by themselves; their clients connect again.
      for (const socket of upgraded) socket.destroy();
      const late = setTimeout(() => server.closeAllConnections(), drainMs);
      await closed;
      clearTimeout(late);
      destroyAgents(authAgents);
      for (const agent of backends.values()) agent.destroy();
    },
  };
}

/** Requests under way finish; nothing is kept after them. */
function retire(agent: http.Agent): void {
  agent.maxFreeSockets = 0;
  for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
}

/**
 * Deletes each header whose name an application server may read as another one's (X_Forwarded_User, X.Forwarded.User), as Traefik
 * does with `aliasHeadersStrategy: delete`.
 */
function deleteAliases(headers: http.IncomingHttpHeaders): void {
  for (const name of Object.keys(headers)) if (/[^a-z0-9-]/.test(name)) delete headers[name];
}

const isWebSocket = (req: IncomingMessage): boolean => req.headers.upgrade?.toLowerCase() === 'websocket' && req.method === 'GET';
const single = (values: string[]): string | string[] => (values.length === 1 && values[0] !== undefined ? values[0] : values);

function send(res: ServerResponse, req: IncomingMessage, reply: Reply): void {
  if (res.destroyed) return;
  const body = Buffer.from(reply.body);
  res.writeHead(reply.status, { ...reply.headers, 'content-length': body.length });
  res.end(body);
  // What is left of the request is not wanted, but has to be read for the connection to be of further use.
  req.resume();
}

function sendRaw(socket: Duplex, reply: Reply): void {
  const body = Buffer.from(reply.body);
  const lines = [
    `HTTP/1.1 ${reply.status} ${http.STATUS_CODES[reply.status] ?? ''}`,
    `content-length: ${body.length}`,
    'connection: close',
  ];
  for (const [name, values] of Object.entries(reply.headers)) for (const value of [values].flat()) lines.push(`${name}: ${value}`);
  socket.end(Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), body]));
}
