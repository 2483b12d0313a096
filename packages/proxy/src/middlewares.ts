/**
 * Applies middlewares to a request, in the same way as Traefik 3. A middleware changes the headers
 * and lets the request continue (`null`), or answers it. An error never lets a request through.
 */
import type { IncomingHttpHeaders } from 'node:http';
import type { MiddlewareSpec } from './configuration.ts';
import { type Agents, BodyTooLarge, get } from './request.ts';

export type Exchange = {
  method: string;
  /** Path and query as the client sent them. */
  uri: string;
  /** Content of the Host header. */
  host: string;
  remoteAddress: string;
  /** Headers for the service, with names in lower case. */
  headers: IncomingHttpHeaders;
  /** Headers that are set on the answer of the service; null removes a header. */
  responseHeaders: Map<string, string | null>;
  /** Aborts when the client disconnects. */
  signal: AbortSignal;
};
export type Reply = {
  status: number;
  headers: Record<string, string | string[]>;
  body: Buffer | string;
};

type ForwardAuth = Extract<MiddlewareSpec, { kind: 'forwardAuth' }>;
type RedirectScheme = Extract<MiddlewareSpec, { kind: 'redirectScheme' }>;

export async function applyMiddlewares(
  specs: readonly MiddlewareSpec[],
  exchange: Exchange,
  agents: Agents,
): Promise<Reply | null> {
  for (const spec of specs) {
    const reply = await apply(spec, exchange, agents);
    if (reply !== null) return reply;
  }
  return null;
}

function apply(
  spec: MiddlewareSpec,
  exchange: Exchange,
  agents: Agents,
): Promise<Reply | null> | Reply | null {
  switch (spec.kind) {
    case 'headers':
      for (const [name, value] of Object.entries(spec.request))
        setHeader(exchange.headers, name.toLowerCase(), value === '' ? [] : [value]);
      for (const [name, value] of Object.entries(spec.response))
        exchange.responseHeaders.set(name.toLowerCase(), value === '' ? null : value);
      return null;
    case 'redirectScheme':
      return redirectScheme(spec, exchange);
    case 'errors':
    case 'retry':
      return null;
    case 'forwardAuth':
      return forwardAuth(spec, exchange, agents);
  }
}

/** This proxy acts as the entry point `websecure`, so every request counts as https. */
function redirectScheme(spec: RedirectScheme, exchange: Exchange): Reply | null {
  if (spec.scheme === 'https') return null;
  const hostname = exchange.host.replace(/:\d+$/, '');
  const port =
    spec.port === '' || (spec.scheme === 'http' && spec.port === '80') ? '' : `:${spec.port}`;
  const statuses =
    exchange.method === 'GET'
      ? { permanent: 301, temporary: 302 }
      : { permanent: 308, temporary: 307 };
  const status = spec.permanent ? statuses.permanent : statuses.temporary;
  return {
    status,
    headers: { location: `${spec.scheme}://${hostname}${port}${exchange.uri}` },
    body: '',
  };
}

/** Hop-by-hop headers (RFC 9110 section 7.6.1), which are never forwarded in either direction. */
export const HOP_BY_HOP = [
  'connection',
  'proxy-connection',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
] as const;

const AUTH_TIMEOUT_MS = 30_000;

async function forwardAuth(
  spec: ForwardAuth,
  exchange: Exchange,
  agents: Agents,
): Promise<Reply | null> {
  const options = {
    agents,
    headers: authRequestHeaders(spec, exchange),
    signal: exchange.signal,
    timeoutMs: AUTH_TIMEOUT_MS,
    maxBody: spec.maxResponseBodySize,
  };
  let answer: Awaited<ReturnType<typeof get>>;
  try {
    answer = await get(spec.address, options);
  } catch (error) {
    // Traefik answers 401 to a body above the limit and 500 to every other error.
    if (error instanceof BodyTooLarge) return { status: 401, headers: {}, body: '' };
    throw new Error(`the authentication service at ${spec.address.origin} did not answer`, {
      cause: error,
    });
  }

  if (answer.status < 200 || answer.status >= 300) {
    const headers = Object.fromEntries(
      Object.entries(answer.headers).flatMap(([name, values]) =>
        values === undefined || isHopByHop(name) ? [] : [[name, values]],
      ),
    );
    // Traefik resolves a relative Location against the authentication service's address, not the
    // request's.
    const location = answer.headers['location']?.[0];
    if (location !== undefined)
      headers['location'] = [URL.parse(location, spec.address.href)?.href ?? location];
    delete headers['content-length'];
    return { status: answer.status, headers, body: answer.body };
  }

  for (const name of spec.responseHeaders)
    setHeader(exchange.headers, name.toLowerCase(), answer.headers[name.toLowerCase()] ?? []);
  const { responseHeadersRegex: regex } = spec;
  if (regex !== null) {
    for (const name of Object.keys(exchange.headers))
      if (regex.test(canonical(name))) delete exchange.headers[name];
    for (const [name, values] of Object.entries(answer.headers))
      if (regex.test(canonical(name))) setHeader(exchange.headers, name, values ?? []);
  }
  return null;
}

/**
 * Returns the client's headers and the request line. The entry point has already replaced the
 * client's `X-Forwarded-…` headers.
 */
function authRequestHeaders(spec: ForwardAuth, exchange: Exchange): IncomingHttpHeaders {
  const selected = spec.requestHeaders.map((name) => name.toLowerCase());
  const headers: IncomingHttpHeaders = {};
  for (const [name, value] of Object.entries(exchange.headers)) {
    if (isHopByHop(name) || name === 'host' || name === 'content-length' || name === 'expect')
      continue;
    if (selected.length === 0 || selected.includes(name)) headers[name] = value;
  }
  headers['x-forwarded-method'] = exchange.method;
  headers['x-forwarded-uri'] = exchange.uri;
  headers['x-forwarded-host'] = exchange.host;
  headers['x-forwarded-for'] = exchange.remoteAddress;
  headers['x-forwarded-proto'] = spec.trustForwardHeader
    ? exchange.headers['x-forwarded-proto']
    : 'http';
  return headers;
}

export const isHopByHop = (name: string): boolean =>
  (HOP_BY_HOP as readonly string[]).includes(name);

function setHeader(headers: IncomingHttpHeaders, name: string, values: readonly string[]): void {
  const [only, ...more] = values;
  if (only === undefined) delete headers[name];
  else headers[name] = more.length === 0 ? only : [...values];
}

/**
 * Returns a header's name in Go's canonical form, against which the expressions of the
 * configuration are matched.
 */
const canonical = (name: string): string =>
  name.replace(
    /(^|-)([a-z])/g,
    (_, before: string, letter: string) => before + letter.toUpperCase(),
  );
