/**
 * The server of the proxy. A request passes these steps: entry point (removes headers that clients
 * may not set) -> route -> middlewares -> backend.
 *
 *   no route                         404
 *   a middleware answers             its answer
 *   a middleware fails               500; the request never passes
 *   service without servers          503
 *   backend refuses or resets        502; first one retry on a new connection if a kept-alive connection was stale
 *   backend breaks off its answer    the client's connection is closed too, so that half an answer does not look complete
 *
 * A switch of routes is one assignment. A request keeps its route. Kept-alive connections to
 * backends without a route are closed as soon as they are idle.
 */
import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, isIPv6, type Socket } from 'node:net';
import { hostname } from 'node:os';
import { type Duplex, pipeline } from 'node:stream';
import { defined } from '@berth/kit/defined';
import type { Listen } from '@berth/kit/config';
import type { Logger } from '@berth/kit/log';
import { trimOws } from '@berth/kit/ows';
import { createProxyServer } from 'http-proxy-3';
import { applyMiddlewares, type Exchange, isHopByHop, type Reply } from './middlewares.ts';
import { json, page } from './pages.ts';
import { createAgents, destroyAgents, isStaleConnection } from './request.ts';
import { EMPTY_TABLE, type Route, type Table } from './router.ts';

export type ProxyServer = {
  /** Replaces all routes, starting with the next request. */
  use(table: Table): void;
  /** Sets the reason why the proxy is not ready; null means ready. */
  setUnready(reason: string | null): void;
  listen(listen: Listen): Promise<AddressInfo>;
  /** Stops new connections; requests in progress have `drainMs` to finish. */
  close(drainMs?: number): Promise<void>;
};

/**
 * Headers that the entry point sets itself (Traefik's list). Middlewares handle `X-Forwarded-User`.
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

const MAX_HEADER_BYTES = 256 * 1024;
const CONNECT_TIMEOUT_MS = 10_000;
/**
 * Idempotent methods (RFC 9110 section 9.2.2): a request without a body can be sent twice safely.
 */
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
    // Forward the path unchanged: normalization would change `/a/../b` and `//` to other resources.
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
    const overrides = exchanges.get(req)?.responseHeaders;
    for (const [name, values] of Object.entries(answer.headersDistinct))
      if (values !== undefined && !isHopByHop(name))
        res.setHeader(name, name === 'set-cookie' ? values : single(values));
    for (const [name, value] of overrides ?? []) {
      if (value === null) res.removeHeader(name);
      else res.setHeader(name, value);
    }
    // Send the headers now: an event stream may have no data for a while, and its client waits for
    // the headers.
    res.flushHeaders();
    pipeline(answer, res, (error) => {
      if (error) log.debug({ err: error, host: req.headers.host }, 'answer broke off');
    });
  });

  const server = http.createServer(
    {
      maxHeaderSize: MAX_HEADER_BYTES,
      requestTimeout: 0,
      keepAliveTimeout: 65_000,
      shouldUpgradeCallback: isWebSocket,
    },
    (req, res) => {
      // While draining, close the connection after this answer.
      if (closing) res.setHeader('connection', 'close');
      const gone = new AbortController();
      // A retry and a pipeline together add 11 listeners; Node warns above 10.
      res.setMaxListeners(20).on('close', () => {
        gone.abort();
        if (closing) setImmediate(() => server.closeIdleConnections());
      });
      decide(req, gone.signal).then(
        (decision) =>
          'reply' in decision ? send(res, req, decision.reply) : toBackend(decision, req, res),
        (error: unknown) => {
          if (gone.signal.aborted) return;
          log.error({ err: error, host: req.headers.host }, 'request could not be routed');
          send(
            res,
            req,
            page(
              500,
              'The proxy could not check whether this request is allowed. Try again later.',
              req.headers.accept,
            ),
          );
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
    socket.on('error', (error) =>
      log.debug({ err: error, host: req.headers.host }, 'WebSocket client disconnected'),
    );
    decide(req, gone.signal).then(
      (decision) =>
        'reply' in decision
          ? sendRaw(socket, decision.reply)
          : toWebSocketBackend(decision, req, socket, head),
      (error: unknown) => {
        if (gone.signal.aborted) return;
        log.error({ err: error, host: req.headers.host }, 'request could not be routed');
        sendRaw(
          socket,
          page(
            500,
            'The proxy could not check whether this request is allowed. Try again later.',
            undefined,
          ),
        );
      },
    );
  });

  type Decision = { reply: Reply } | { route: Route; backend: URL };

  async function decide(req: IncomingMessage, signal: AbortSignal): Promise<Decision> {
    const uri = req.url ?? '/';
    const host = req.headers.host ?? '';
    const accept = req.headers.accept;
    if (!uri.startsWith('/'))
      return {
        reply: page(400, 'The request line must contain a path, not a complete URL.', accept),
      };
    const path = uri.replace(/\?.*$/s, '');
    const status = isOwnAddress(host, req.socket) ? statusAnswer(path) : null;
    if (status !== null) return { reply: status };

    deleteAliases(req.headers);
    const route = table.find({
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
      remoteAddress: (req.socket.remoteAddress ?? '').replace(/^::ffff:(?=\d+\.)/, ''),
      headers: req.headers,
      responseHeaders: new Map(),
      signal,
    };
    enter(exchange, isWebSocket(req));
    exchanges.set(req, exchange);
    const reply = await applyMiddlewares(route.middlewares, exchange, authAgents);
    if (reply !== null) return { reply };
    if (route.service.kind === 'noop')
      return { reply: { status: 418, headers: {}, body: "I'm a teapot" } };
    const { servers } = route.service;
    turn = (turn + 1) % Math.max(1, servers.length);
    const backend = servers[turn];
    if (backend === undefined)
      return { reply: page(503, 'The application at this address is stopped.', accept) };
    return { route, backend };
  }

  /** The entry point: removes hop-by-hop headers and sets `X-Forwarded-…` itself. */
  function enter({ headers, host, remoteAddress }: Exchange, webSocket: boolean): void {
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

  function toBackend(
    { route, backend }: { route: Route; backend: URL },
    req: IncomingMessage,
    res: ServerResponse,
    isRetry = false,
  ): void {
    const repeatable =
      REPEATABLE.has(req.method ?? '') &&
      req.headers['content-length'] === undefined &&
      req.headers['transfer-encoding'] === undefined;
    // A request that cannot be repeated uses a new connection, because a kept-alive one may be
    // closing just now.
    const agent = repeatable && !isRetry ? backends.get(backend.origin) : undefined;
    proxy.web(req, res, { target: backend, ...defined({ agent }) }, (error) => {
      const request = outgoing.get(req);
      if (
        !isRetry &&
        !res.headersSent &&
        request !== undefined &&
        isStaleConnection(error, request)
      ) {
        toBackend({ route, backend }, req, res, true);
        return;
      }
      log.warn(
        { err: error, router: route.name, backend: backend.origin },
        'backend did not answer',
      );
      if (res.headersSent) res.destroy();
      else
        send(
          res,
          req,
          page(502, 'The application at this address did not answer.', req.headers.accept),
        );
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
      log.warn(
        { err: error, router: route.name, backend: backend.origin },
        'backend refused the WebSocket',
      );
      if (socket.bytesWritten === bytesBefore)
        sendRaw(socket, page(502, 'The application at this address did not answer.', undefined));
    });
  }

  function statusAnswer(path: string): Reply | null {
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
  /** True if the host is the proxy's own address. Only operators use it; projects have names. */
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
      for (const origin of next.origins)
        if (!backends.has(origin)) backends.set(origin, new http.Agent({ keepAlive: true }));
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
      if (address === null || typeof address === 'string')
        throw new Error('the server has no address');
      return address;
    },
    async close(drainMs = 5_000) {
      closing = true;
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      // WebSockets never end by themselves, so close them; their clients reconnect.
      for (const socket of upgraded) socket.destroy();
      const late = setTimeout(() => server.closeAllConnections(), drainMs);
      await closed;
      clearTimeout(late);
      destroyAgents(authAgents);
      for (const agent of backends.values()) agent.destroy();
    },
  };
}

/** Closes idle connections now and the others after their requests. */
function retire(agent: http.Agent): void {
  agent.maxFreeSockets = 0;
  for (const sockets of Object.values(agent.freeSockets))
    for (const socket of sockets ?? []) socket.destroy();
}

/**
 * Deletes headers that an application server may confuse with other headers (X_Forwarded_User,
 * X.Forwarded.User), like Traefik with `aliasHeadersStrategy: delete`.
 */
function deleteAliases(headers: http.IncomingHttpHeaders): void {
  for (const name of Object.keys(headers)) if (/[^a-z0-9-]/.test(name)) delete headers[name];
}

const isWebSocket = (req: IncomingMessage): boolean =>
  req.headers.upgrade?.toLowerCase() === 'websocket' && req.method === 'GET';
const single = (values: string[]): string | string[] =>
  values.length === 1 && values[0] !== undefined ? values[0] : values;

function send(res: ServerResponse, req: IncomingMessage, reply: Reply): void {
  if (res.destroyed) return;
  const body = Buffer.from(reply.body);
  res.writeHead(reply.status, { ...reply.headers, 'content-length': body.length });
  res.end(body);
  // Read and discard the rest of the request, so that the connection can be reused.
  req.resume();
}

function sendRaw(socket: Duplex, reply: Reply): void {
  const body = Buffer.from(reply.body);
  const lines = [
    `HTTP/1.1 ${reply.status} ${http.STATUS_CODES[reply.status] ?? ''}`,
    `content-length: ${body.length}`,
    'connection: close',
  ];
  for (const [name, values] of Object.entries(reply.headers))
    for (const value of [values].flat()) lines.push(`${name}: ${value}`);
  socket.end(Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), body]));
}
