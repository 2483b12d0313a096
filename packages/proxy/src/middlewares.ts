/**
 * What happens to a request between its router and its service, each as Traefik 3 does it. A middleware changes the
 * request's headers and lets it go on (`null`), or answers it itself. An error never lets a request through.
 */
import type { IncomingHttpHeaders } from 'node:http';
import type { MiddlewareSpec } from './configuration.ts';
import { type Agents, BodyTooLarge, get } from './request.ts';

export type Exchange = {
  method: string;
  /** Path and query as the client sent them. */
  uri: string;
  /** As in the Host header. */
  host: string;
  remoteAddress: string;
  /** What the service will get; names in lower case. */
  headers: IncomingHttpHeaders;
  /** Set on whatever the service answers; null removes. */
  responseHeaders: Map<string, string | null>;
  /** Aborted when the client is gone. */
  signal: AbortSignal;
};
export type Reply = { status: number; headers: Record<string, string | string[]>; body: Buffer | string };

type ForwardAuth = Extract<MiddlewareSpec, { kind: 'forwardAuth' }>;
type RedirectScheme = Extract<MiddlewareSpec, { kind: 'redirectScheme' }>;

export async function applyMiddlewares(specs: readonly MiddlewareSpec[], exchange: Exchange, agents: Agents): Promise<Reply | null> {
  for (const spec of specs) {
    const reply = await apply(spec, exchange, agents);
    if (reply !== null) return reply;
  }
  return null;
}

function apply(spec: MiddlewareSpec, exchange: Exchange, agents: Agents): Promise<Reply | null> | Reply | null {
  switch (spec.kind) {
    case 'headers':
      for (const [name, value] of Object.entries(spec.request))
        setHeader(exchange.headers, name.toLowerCase(), value === '' ? [] : [value]);
      for (const [name, value] of Object.entries(spec.response))
        exchange.responseHeaders.set(name.toLowerCase(), value === '' ? null : value);
      return null;
    case 'redirectScheme':
      return redirectScheme(spec, exchange);
    case 'forwardAuth':
      return forwardAuth(spec, exchange, agents);
  }
}

/** This proxy stands for `websecure`, so every request counts as having come by https. */
function redirectScheme(spec: RedirectScheme, exchange: Exchange): Reply | null {
  if (spec.scheme === 'https') return null;
  const hostname = exchange.host.replace(/:\d+$/, '');
  const port = spec.port === '' || (spec.scheme === 'http' && spec.port === '80') ? '' : `:${spec.port}`;
  const asked = exchange.method === 'GET' ? { permanent: 301, temporary: 302 } : { permanent: 308, temporary: 307 };
  const status = spec.permanent ? asked.permanent : asked.temporary;
  return { status, headers: { location: `${spec.scheme}://${hostname}${port}${exchange.uri}` }, body: '' };
}

/** Between two neighbours only (RFC 9110, 7.6.1); never passed on, in either direction. */
export const HOP_BY_HOP = ['connection', 'proxy-connection', 'keep-alive', 'te', 'trailer', 'transfer-encoding', 'upgrade'] as const;

const AUTH_TIMEOUT_MS = 30_000;

async function forwardAuth(spec: ForwardAuth, exchange: Exchange, agents: Agents): Promise<Reply | null> {
  const asked = {
    agents,
    headers: authRequestHeaders(spec, exchange),
    signal: exchange.signal,
    timeoutMs: AUTH_TIMEOUT_MS,
    maxBody: spec.maxResponseBodySize,
  };
  let answer: Awaited<ReturnType<typeof get>>;
  try {
    answer = await get(spec.address, asked);
  } catch (error) {
    // Traefik says 401 to a body above the limit and 500 to everything else that went wrong on the way.
    if (error instanceof BodyTooLarge) return { status: 401, headers: {}, body: '' };
    throw new Error(`the authentication service at ${spec.address.origin} did not answer`, { cause: error });
  }

  if (answer.status < 200 || answer.status >= 300) {
    const headers = Object.fromEntries(
      Object.entries(answer.headers).flatMap(([name, values]) => (values === undefined || isHopByHop(name) ? [] : [[name, values]])),
    );
    // Traefik resolves a relative Location against the authentication service's address, not the request's.
    const location = answer.headers['location']?.[0];
    if (location !== undefined) headers['location'] = [URL.parse(location, spec.address.href)?.href ?? location];
    delete headers['content-length'];
    return { status: answer.status, headers, body: answer.body };
  }

  for (const name of spec.responseHeaders) setHeader(exchange.headers, name.toLowerCase(), answer.headers[name.toLowerCase()] ?? []);
  const { responseHeadersRegex: regex } = spec;
  if (regex !== null) {
    for (const name of Object.keys(exchange.headers)) if (regex.test(canonical(name))) delete exchange.headers[name];
    for (const [name, values] of Object.entries(answer.headers))
      if (regex.test(canonical(name))) setHeader(exchange.headers, name, values ?? []);
  }
  return null;
}

/** The client's own headers and what it asked for. The entry point has replaced what the client said in `X-Forwarded-…`. */
function authRequestHeaders(spec: ForwardAuth, exchange: Exchange): IncomingHttpHeaders {
  const wanted = spec.requestHeaders.map((name) => name.toLowerCase());
  const headers: IncomingHttpHeaders = {};
  for (const [name, value] of Object.entries(exchange.headers)) {
    if (isHopByHop(name) || name === 'host' || name === 'content-length' || name === 'expect') continue;
    if (wanted.length === 0 || wanted.includes(name)) headers[name] = value;
  }
  headers['x-forwarded-method'] = exchange.method;
  headers['x-forwarded-uri'] = exchange.uri;
  headers['x-forwarded-host'] = exchange.host;
  headers['x-forwarded-for'] = exchange.remoteAddress;
  headers['x-forwarded-proto'] = spec.trustForwardHeader ? exchange.headers['x-forwarded-proto'] : 'http';
  return headers;
}

export const isHopByHop = (name: string): boolean => (HOP_BY_HOP as readonly string[]).includes(name);

function setHeader(headers: IncomingHttpHeaders, name: string, values: readonly string[]): void {
  const [only, ...more] = values;
  if (only === undefined) delete headers[name];
  else headers[name] = more.length === 0 ? only : [...values];
}

/** A header's name as Go writes it, which is what the configuration's expressions are matched against. */
const canonical = (name: string): string =>
  name.replace(/(^|-)([a-z])/g, (_, before: string, letter: string) => before + letter.toUpperCase());
