/**
 * Parses the part of Traefik's dynamic configuration that this proxy supports, from JSON or YAML.
 *
 * A document that is not a configuration is refused as a whole, and the caller keeps the last valid
 * one. An error within one router, service or middleware disables only that part and is reported.
 */
import { messageOf } from '@berth/kit/message-of';

export type RouterSpec = {
  rule: string;
  /** Null for a parent router, whose children have the services. */
  service: string | null;
  middlewares: string[];
  entryPoints: string[] | null;
  priority: number;
  /** Names of parent routers. A request must also match the rule of one of these parents. */
  parentRefs: string[];
};
export type ServiceSpec =
  | { servers: URL[] }
  /** A failover. This proxy checks no servers, so it always uses the service of this name. */
  | { first: string };
export type MiddlewareSpec =
  | { kind: 'headers'; request: Record<string, string>; response: Record<string, string> }
  | { kind: 'errors' }
  | { kind: 'retry' }
  | { kind: 'redirectScheme'; scheme: string; port: string; permanent: boolean }
  | {
      kind: 'forwardAuth';
      address: URL;
      trustForwardHeader: boolean;
      responseHeaders: string[];
      responseHeadersRegex: RegExp | null;
      requestHeaders: string[];
      maxResponseBodySize: number;
    };
/**
 * Parts by name. An invalid part is stored with its problem, so that errors of parts that refer to
 * it can name the reason.
 */
export type Parts<T> = Map<string, T | { problem: string }>;
export type Configuration = {
  routers: Parts<RouterSpec>;
  services: Parts<ServiceSpec>;
  middlewares: Parts<MiddlewareSpec>;
};

/** Thrown if the document is not a configuration. */
export class ConfigurationError extends Error {
  override name = 'ConfigurationError';
}

type Json = Record<string, unknown>;
const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

export function parseConfiguration(document: unknown): Configuration {
  if (!isObject(document)) throw new ConfigurationError('the configuration is not an object');
  // Traefik reads `{}` as "no routes". Berth's configuration always contains its marker, so here
  // `{}` is an error.
  if (!isObject(document['http']))
    throw new ConfigurationError('the configuration has no object under "http"');
  const http = document['http'];
  const section = <T>(name: string, read: (part: Json) => T): Parts<T> => {
    const parts = http[name];
    if (parts === undefined || parts === null) return new Map();
    if (!isObject(parts)) throw new ConfigurationError(`http.${name} is not an object`);
    return new Map(Object.entries(parts).map(([key, part]) => [key, guarded(part, read)]));
  };
  return {
    routers: section('routers', readRouter),
    services: section('services', readService),
    middlewares: section('middlewares', readMiddleware),
  };
}

function guarded<T>(part: unknown, read: (part: Json) => T): T | { problem: string } {
  try {
    if (!isObject(part)) throw new Error('is not an object');
    return read(part);
  } catch (error) {
    return { problem: messageOf(error) };
  }
}

function readRouter(part: Json): RouterSpec {
  const entryPoints = part['entryPoints'] === undefined ? null : textsOf(part, 'entryPoints');
  const priority = part['priority'] ?? 0;
  if (typeof priority !== 'number' || !Number.isInteger(priority))
    throw new Error('priority is not a whole number');
  const service = part['service'] === undefined ? null : textOf(part, 'service');
  const parentRefs = textsOf(part, 'parentRefs');
  return {
    rule: textOf(part, 'rule'),
    service,
    middlewares: textsOf(part, 'middlewares'),
    entryPoints,
    priority,
    parentRefs,
  };
}

function readService(part: Json): ServiceSpec {
  refuseOthers(part, ['loadBalancer', 'failover']);
  const { loadBalancer: balancer, failover } = part;
  if (isObject(failover)) return { first: textOf(failover, 'service') };
  if (!isObject(balancer))
    throw new Error(
      'has neither a loadBalancer nor a failover, the kinds that this proxy supports',
    );
  const servers: unknown = balancer['servers'] ?? [];
  if (!Array.isArray(servers)) throw new Error('loadBalancer.servers is not a list');
  return {
    servers: servers.map((server: unknown) =>
      httpUrl(isObject(server) ? server['url'] : undefined, 'the url of a server'),
    ),
  };
}

function readMiddleware(part: Json): MiddlewareSpec {
  const [kind, ...more] = Object.keys(part);
  const options = kind === undefined ? undefined : part[kind];
  if (kind === undefined || more.length > 0 || !isObject(options))
    throw new Error('is not exactly one middleware with its options');
  switch (kind) {
    case 'headers':
      refuseOthers(options, ['customRequestHeaders', 'customResponseHeaders']);
      return {
        kind,
        request: textMap(options, 'customRequestHeaders'),
        response: textMap(options, 'customResponseHeaders'),
      };
    case 'redirectScheme':
      refuseOthers(options, ['scheme', 'port', 'permanent']);
      return {
        kind,
        scheme: textOf(options, 'scheme'),
        port: options['port'] === undefined ? '' : textOf(options, 'port'),
        permanent: flag(options, 'permanent'),
      };
    case 'forwardAuth': {
      refuseOthers(options, [
        'address',
        'trustForwardHeader',
        'authResponseHeaders',
        'authResponseHeadersRegex',
        'authRequestHeaders',
        'maxResponseBodySize',
      ]);
      const size = options['maxResponseBodySize'] ?? -1;
      if (typeof size !== 'number' || !Number.isInteger(size))
        throw new Error('maxResponseBodySize is not a whole number');
      const regex = options['authResponseHeadersRegex'] ?? '';
      if (typeof regex !== 'string') throw new Error('authResponseHeadersRegex is not a string');
      return {
        kind,
        address: httpUrl(options['address'], 'address'),
        trustForwardHeader: flag(options, 'trustForwardHeader'),
        responseHeaders: textsOf(options, 'authResponseHeaders'),
        responseHeadersRegex: regex === '' ? null : goRegExp(regex),
        requestHeaders: textsOf(options, 'authRequestHeaders'),
        maxResponseBodySize: size < 0 ? Number.POSITIVE_INFINITY : size,
      };
    }
    case 'errors':
      // The middleware protects nothing: it only replaces the text of an error. This proxy has its
      // own page for a service without servers.
      return { kind };
    case 'retry':
      // This proxy tries another server of every service (forwarding.ts).
      return { kind };
    default:
      throw new Error(`has the type ${kind}, which this proxy does not support`);
  }
}

/** Refuses unsupported options, because an ignored option might have protected the route. */
function refuseOthers(part: Json, supported: readonly string[]): void {
  const others = Object.keys(part).filter((key) => !supported.includes(key));
  if (others.length > 0)
    throw new Error(`has options that this proxy does not support: ${others.join(', ')}`);
}

function textOf(part: Json, key: string): string {
  const value = part[key];
  if (typeof value !== 'string' || value === '') throw new Error(`${key} is not a string`);
  return value;
}

function textsOf(part: Json, key: string): string[] {
  const value = part[key] ?? [];
  if (!Array.isArray(value) || !value.every((item): item is string => typeof item === 'string'))
    throw new Error(`${key} is not a list of strings`);
  return value;
}

function textMap(part: Json, key: string): Record<string, string> {
  const value = part[key] ?? {};
  if (!isObject(value)) throw new Error(`${key} is not an object`);
  return Object.fromEntries(
    Object.entries(value).map(([name, text]) => {
      if (typeof text !== 'string') throw new Error(`${key}.${name} is not a string`);
      return [name, text];
    }),
  );
}

function flag(part: Json, key: string): boolean {
  const value = part[key] ?? false;
  if (typeof value !== 'boolean') throw new Error(`${key} is neither true nor false`);
  return value;
}

function httpUrl(value: unknown, what: string): URL {
  const url = typeof value === 'string' ? URL.parse(value) : null;
  if (url === null || !/^https?:$/.test(url.protocol))
    throw new Error(`${what} is not an http or https URL`);
  return url;
}

/**
 * Converts a regular expression of Go, which begins with its flags (`(?i)…`). In Berth's
 * expressions, the rest has the same meaning in JavaScript.
 */
export function goRegExp(source: string): RegExp {
  const [, flags = '', rest = ''] = /^(?:\(\?([ims]+)\))?([^]*)$/.exec(source) ?? [];
  return new RegExp(rest, flags);
}
