/**
 * Builds the reverse proxy's dynamic configuration (docs/contract.md
 * "Reverse proxy configuration endpoint"). Pure and deterministic: equal routes give equal bytes,
 * because Traefik compares hashes. Never empty: it always contains the marker (docs/interfaces.md
 * "Marker").
 */
import { createHash } from 'node:crypto';
import { isIP } from 'node:net';
import { defined } from '@berth/kit/defined';
import { DEVICE_TOKEN_PATTERN } from '@berth/wire/gateway';
import { CLIENT_HEADERS, IDENTITY_HEADERS } from '@berth/wire/vocabulary';
import { canonicalAddress } from '../domain/nodes/address.ts';
import type { BuiltConfig, RouteTarget } from '../domain/routes/configuration.ts';
import { isUnderBase } from '../domain/routes/domains.ts';
import { stableJson } from '../domain/platform/stable-json.ts';
import type { PublishedRoute } from '../domain/routes/route-stores.ts';
import {
  type Balanced,
  balance,
  OTHER_INSTANCE,
  OTHER_INSTANCE_RETRY,
  type Retry,
  type ServersTransport,
  type Service,
} from './load-balancer.ts';

export type RoutingSettings = {
  baseDomain: string;
  /**
   * AUTH_SERVICE_URL; null: projects that require a login are omitted, never published without a
   * login.
   */
  authServiceUrl: string | null;
  acmeResolver: string;
  /**
   * Hosts of Berth's own addresses. A custom domain with such a name is omitted: a setting might
   * have changed after the domain was added.
   */
  ownHosts?: readonly string[];
  /** KEEP_CLIENT_HEADERS, in lower case. */
  keptHeaders?: readonly string[];
};

const removedHeaders = ({ keptHeaders = [] }: RoutingSettings): string[] =>
  CLIENT_HEADERS.filter((name) => !keptHeaders.includes(name.toLowerCase()));

type Router = {
  rule: string;
  /** Unset for a child router, which uses the entry points of its parent. */
  entryPoints?: string[];
  /** Unset for a parent router. */
  service?: string;
  middlewares?: string[];
  tls?: { certResolver?: string; domains?: { main: string }[] };
  parentRefs?: string[];
  priority?: number;
};
type Middleware =
  | { retry: Retry }
  | { errors: { status: string[]; service: string; query: string } }
  | { headers: { customRequestHeaders: Record<string, string> } }
  | {
      forwardAuth: {
        address: string;
        authResponseHeaders: string[];
        authResponseHeadersRegex: string;
        trustForwardHeader: true;
        maxResponseBodySize: number;
      };
    };
export type DynamicConfig = {
  http: {
    routers: Record<string, Router>;
    services: Record<string, Service>;
    middlewares: Record<string, Middleware>;
    serversTransports: Record<string, ServersTransport>;
  };
};

export const MARKER_HOST = 'berth.invalid';
/**
 * Header names with three of the fifteen special characters: a proxy that deletes one spelling can
 * keep another (aliases.ts).
 */
export const ALIAS_HEADERS = ['X.Berth.Alias', 'X_Berth_Alias', 'X!Berth!Alias'] as const;
export const aliasPath = (hash: string): string => `/${hash}/alias`;
const STRIP = 'berth-strip-identity';
const STRIP_TOKEN = 'berth-strip-token';
/**
 * Middleware and service for stopped projects. A stopped project's service has no servers, so the
 * proxy answers 503 even if all Berth processes are down. While the gateway runs, the middleware
 * replaces this answer by the gateway's page. Project names have no underscore, so no project has
 * this name.
 */
const STOPPED = 'berth_stopped';
/** The middleware that shows the page of a project that is scaled to 0. */
const AT_ZERO = 'berth_at_zero';
/**
 * Router that takes every request to a public project whose `Authorization` contains a device
 * token, in any scheme and anywhere in the value, and removes this header. One parent serves all
 * projects, because a second complete router for each project would double Traefik's work at a
 * change. Project names have no underscore, so no project's router has this name.
 */
const TOKENS = 'berth_tokens';
/**
 * The token router for custom domains. It is separate, so that TOKENS does not change when a
 * project gets a domain.
 */
const DOMAIN_TOKENS = 'berth_domain_tokens';
/**
 * Priority of the routers for custom domains. Traefik sorts by the length of the rule, and the rule
 * of a project with many domains is longer than the rule of DOMAIN_TOKENS.
 */
const BEFORE_DOMAINS = 100_000;
/**
 * Router that sends the CORS preflights of projects that require a login to the gateway, which
 * answers them. Browsers send preflights without a session, and a request without a session must
 * not reach the application. forwardAuth cannot answer: each answer that a browser accepts lets the
 * request pass.
 */
const PREFLIGHTS = 'berth_preflights';
/**
 * The preflight router for custom domains. It is separate, so that PREFLIGHTS does not change when
 * a project gets a domain.
 */
const DOMAIN_PREFLIGHTS = 'berth_domain_preflights';
const IS_PREFLIGHT =
  'Method(`OPTIONS`) && HeaderRegexp(`Origin`, `.`) && ' +
  'HeaderRegexp(`Access-Control-Request-Method`, `.`)';
const CARRIES_TOKEN = `HeaderRegexp(\`Authorization\`, \`${DEVICE_TOKEN_PATTERN}\`)`;

/**
 * Returns a regular expression for every spelling of an identity header. RFC 9110 allows fifteen
 * characters besides letters and digits in a header name, and some application server reads each of
 * them as a dash. The client's own headers are removed too, because the gateway's answer contains
 * none of them.
 */
const authHeadersRegex = (clientHeaders: readonly string[]): string =>
  '(?i)^(x[^a-z0-9]forwarded[^a-z0-9]user([^a-z0-9](name|avatar|provider|assertion))?|cookie|authorization' +
  `${clientHeaders.map((name) => `|${name.toLowerCase()}`).join('')})$`;
/**
 * Returns header removals (an empty value removes a header). A list cannot contain every mix of
 * fifteen characters, so it contains the mixes of `-`, `_` and `.`. `aliasHeadersStrategy: delete`
 * (deploy/traefik/traefik.yml) removes all others.
 */
const strippedHeaders = (clientHeaders: readonly string[]): Record<string, string> =>
  Object.fromEntries(
    [...IDENTITY_HEADERS.flatMap((name) => spellings(name)), ...clientHeaders].map((name) => [
      name,
      '',
    ]),
  );

/** Returns every mix of `-`, `_` and `.` in a name. The proxy ignores case. */
function spellings(name: string): string[] {
  const parts = name.split('-');
  return parts
    .slice(1)
    .reduce<string[]>(
      (list, part) =>
        list.flatMap((head) => ['-', '_', '.'].map((separator) => head + separator + part)),
      [parts[0] ?? ''],
    );
}

export function dynamicConfig(
  routes: readonly PublishedRoute[],
  settings: RoutingSettings,
): BuiltConfig {
  const config: DynamicConfig = {
    http: { routers: {}, services: {}, middlewares: {}, serversTransports: {} },
  };
  const problems: string[] = [];
  /** Prefixes of the projects that need no login. */
  const open: string[] = [];
  /** Prefixes of the projects that need a login. */
  const closed: string[] = [];
  const closedDomains: string[] = [];
  const deployments = new Map<string, RouteTarget>();
  const hosts = new Map<string, string>();
  const domains = new Map<string, string>();
  /** Custom domains of the projects that need no login. */
  const openDomains: string[] = [];
  const collisions = collisionsOf(routes);
  // Sort by name, so that of two projects with one host, the same one is always omitted.
  for (const route of [...routes].sort((a, b) => (a.project_name < b.project_name ? -1 : 1))) {
    const holder = collisions.get(route)?.holder;
    const problem =
      holder === undefined
        ? problemOf(route, settings, hosts)
        : `its address ${addressOf(route)} now belongs to ${holder}`;
    if (problem !== null) {
      problems.push(`${route.project_name}: ${problem}`);
      continue;
    }
    hosts.set(route.domain_prefix, route.project_name);
    const { project_id, host_ip, host_port, auth_required } = route;
    const host = `${route.domain_prefix}.${settings.baseDomain}`;
    deployments.set(route.deployment_id, {
      project_id,
      host,
      host_ip,
      host_port,
      auth_required,
      ...defined({ is_page: route.stopped }),
    });
    (route.auth_required ? closed : open).push(route.domain_prefix);
    const balanced = balancedOf(withoutTaken(route, collisions), host);
    addProject(config, route, balanced, settings);
    const own = publishedDomains(route, settings, domains, problems);
    addDomains(config, route, balanced, own, settings);
    (route.auth_required ? closedDomains : openDomains).push(...own);
  }
  const pages = routes.filter((route) => route.stopped === true);
  if (pages.some((route) => route.at_zero !== true)) addPage(config, STOPPED, '', settings);
  if (pages.some((route) => route.at_zero === true)) addPage(config, AT_ZERO, '?zero', settings);
  if (deployments.size > 0)
    config.http.middlewares[STRIP] = {
      headers: { customRequestHeaders: strippedHeaders(removedHeaders(settings)) },
    };
  // Accept a final dot, as Host(`…`) does.
  addTokens(config, TOKENS, open, `\\.${escaped(settings.baseDomain)}`);
  addPreflights(config, PREFLIGHTS, closed, `\\.${escaped(settings.baseDomain)}`, settings);
  addPreflights(config, DOMAIN_PREFLIGHTS, closedDomains.map(escaped).sort(), '', settings);
  addTokens(config, DOMAIN_TOKENS, openDomains.map(escaped).sort(), '', BEFORE_DOMAINS);
  const hash = createHash('sha256')
    .update(stableJson(withoutEmpty(config)))
    .digest('hex')
    .slice(0, 16);
  addMarker(config, hash);
  const leftOut = [...collisions].map(([{ host_ip, host_port }, { route, holder }]) => ({
    deployment_id: route.deployment_id,
    host_ip,
    host_port,
    holder,
  }));
  return {
    bytes: stableJson(withoutEmpty(config)),
    hash,
    deployments,
    domains,
    problems,
    collisions: leftOut,
  };
}

type Address = Pick<PublishedRoute, 'host_ip' | 'host_port'>;
/** Addresses that a later route has too, each with its route and the holder of the address. */
type Collisions = Map<Address, { route: PublishedRoute; holder: string }>;

/**
 * Returns the addresses that a later route has too, each with the holder of the address. One
 * address belongs to one container: the engine can give the ports of a stopped container to another
 * one, and a new machine can have the address of an old one. So only the container last observed at
 * an address is published, and no host shows another project.
 */
function collisionsOf(routes: readonly PublishedRoute[]): Collisions {
  const latest = new Map<string, PublishedRoute>();
  const isLater = (a: PublishedRoute, b: PublishedRoute): boolean =>
    a.published_at === b.published_at
      ? a.project_name < b.project_name
      : a.published_at > b.published_at;
  // The container of a project that has just been stopped might still run at its address.
  const all = routes.flatMap((route) =>
    [route, ...(route.servers ?? [])].map((address) => ({
      route,
      address,
      key: `${canonicalAddress(address.host_ip)}:${address.host_port}`,
    })),
  );
  for (const { route, key } of all) {
    const other = latest.get(key);
    if (other === undefined || isLater(route, other)) latest.set(key, route);
  }
  const collisions: Collisions = new Map();
  for (const { route, address, key } of all) {
    const holder = route.stopped === true ? undefined : latest.get(key);
    if (holder !== undefined && holder !== route)
      collisions.set(address, { route, holder: `project ${holder.project_name}` });
  }
  return collisions;
}

/** Returns the route without the servers whose address a later route has. */
function withoutTaken(route: PublishedRoute, collisions: Collisions): PublishedRoute {
  const { servers = [], ...first } = route;
  const ownServers = servers.filter((server) => !collisions.has(server));
  return { ...first, ...defined({ servers: ownServers.length === 0 ? undefined : ownServers }) };
}

/**
 * Returns the middlewares for a stopped project. The login comes first, so that only people who can
 * see the project learn that it is stopped.
 */
function stoppedPage(route: PublishedRoute, { authServiceUrl }: RoutingSettings): string[] {
  if (route.stopped !== true || authServiceUrl === null) return [];
  return [route.at_zero === true ? AT_ZERO : STOPPED];
}

const distinct = (urls: readonly string[]): string[] => [...new Set(urls)];

/** Returns the services of a project: one server for each instance that serves. */
const balancedOf = (route: PublishedRoute, host: string): Balanced =>
  balance({
    name: route.project_name,
    host,
    urls:
      route.stopped === true
        ? []
        : // When an engine exchanges its ports, two instances have one address until each is reported.
          distinct([route, ...(route.servers ?? [])].map((one) => `http://${addressOf(one)}`)),
    healthPath: route.health_path ?? null,
    sticky: route.sticky === true,
  });

function addProject(
  { http }: DynamicConfig,
  route: PublishedRoute,
  { service, services, middlewares, serversTransports }: Balanced,
  settings: RoutingSettings,
): void {
  const name = route.project_name;
  const rule = `Host(\`${route.domain_prefix}.${settings.baseDomain}\`)`;
  const inner = [...stoppedPage(route, settings), ...middlewares];
  const router: Router = {
    rule,
    entryPoints: ['websecure'],
    service,
    middlewares: [route.auth_required ? `${name}-auth` : STRIP, ...inner],
    tls: { certResolver: settings.acmeResolver },
  };
  http.routers[name] = router;
  // Add a child of TOKENS. Traefik before 3.7 treats it as a separate router; this priority then
  // puts it behind all others.
  if (!route.auth_required)
    http.routers[`${name}_token`] = {
      rule,
      parentRefs: [TOKENS],
      priority: 1,
      service,
      ...defined({ middlewares: inner.length === 0 ? undefined : inner }),
    };
  http.routers[`${name}-http`] = {
    rule,
    entryPoints: ['web'],
    service: name,
    middlewares: ['redirect-to-https@file'],
  };
  Object.assign(http.services, services);
  Object.assign(http.serversTransports, serversTransports);
  if (middlewares.includes(OTHER_INSTANCE))
    http.middlewares[OTHER_INSTANCE] = { retry: OTHER_INSTANCE_RETRY };
  if (route.auth_required) {
    http.middlewares[`${name}-auth`] = {
      forwardAuth: {
        address: `${settings.authServiceUrl}/verify?project=${route.project_id}`,
        authResponseHeaders: ['X-Forwarded-User'],
        authResponseHeadersRegex: authHeadersRegex(removedHeaders(settings)),
        trustForwardHeader: true,
        maxResponseBodySize: 1_048_576,
      },
    };
  }
}

/**
 * Returns the custom domains to publish, and adds the reasons for omitted domains to `problems`.
 */
function publishedDomains(
  route: PublishedRoute,
  { baseDomain, ownHosts = [] }: RoutingSettings,
  domains: Map<string, string>,
  problems: string[],
): string[] {
  const own: string[] = [];
  for (const domain of (route.domains ?? []).toSorted()) {
    // Skip the project's own host, which the contract's routers publish.
    if (domain === `${route.domain_prefix}.${baseDomain}`) continue;
    if (ownHosts.includes(domain) || isUnderBase(domain, baseDomain))
      problems.push(`${route.project_name}: its domain ${domain} is a host of the platform`);
    else if (!/^[a-z0-9-]+(\.[a-z0-9-]+)+$/.test(domain))
      problems.push(`${route.project_name}: its domain "${domain}" is not a host name`);
    else if (domains.has(domain))
      problems.push(`${route.project_name}: its domain ${domain} belongs to another project`);
    else {
      domains.set(domain, route.project_id);
      own.push(domain);
    }
  }
  return own;
}

/**
 * Adds the routers of custom domains beside the contract's routers. One router serves all domains
 * of a project. `tls.domains` requests a certificate for each domain: otherwise Traefik would
 * request one certificate for all, and a domain that does not lead here would prevent it.
 */
function addDomains(
  { http }: DynamicConfig,
  route: PublishedRoute,
  { service, middlewares }: Balanced,
  domains: readonly string[],
  settings: RoutingSettings,
): void {
  if (domains.length === 0) return;
  const name = route.project_name;
  const rule = domains.map((domain) => `Host(\`${domain}\`)`).join(' || ');
  const inner = [...stoppedPage(route, settings), ...middlewares];
  http.routers[`${name}_domains`] = {
    rule,
    entryPoints: ['websecure'],
    service,
    middlewares: [route.auth_required ? `${name}-auth` : STRIP, ...inner],
    tls: { certResolver: settings.acmeResolver, domains: domains.map((main) => ({ main })) },
  };
  if (!route.auth_required)
    http.routers[`${name}_domains_token`] = {
      rule,
      parentRefs: [DOMAIN_TOKENS],
      priority: 1,
      service,
      ...defined({ middlewares: inner.length === 0 ? undefined : inner }),
    };
  http.routers[`${name}_domains-http`] = {
    rule,
    entryPoints: ['web'],
    service: name,
    middlewares: ['redirect-to-https@file'],
  };
}

const escaped = (host: string): string => host.replaceAll('.', '\\.');

/** A gateway of an earlier version ignores the query, and shows the page of a stopped project. */
function addPage(
  { http }: DynamicConfig,
  name: string,
  query: '' | '?zero',
  { authServiceUrl }: RoutingSettings,
): void {
  if (authServiceUrl === null) return;
  const { origin, pathname } = new URL(authServiceUrl);
  http.services[STOPPED] = { loadBalancer: { servers: [{ url: origin }] } };
  http.middlewares[name] = {
    errors: {
      status: ['503'],
      service: STOPPED,
      query: `${pathname.replace(/\/$/, '')}/stopped${query}`,
    },
  };
}

/**
 * Adds a token router. Its rule contains the marker's host, because Traefik warns about a rule
 * without any Host(`…`). `hosts` and `ending` are parts of a regular expression.
 */
function addTokens(
  { http }: DynamicConfig,
  name: string,
  hosts: readonly string[],
  ending: string,
  priority?: number,
): void {
  if (hosts.length === 0) return;
  http.middlewares[STRIP_TOKEN] = { headers: { customRequestHeaders: { Authorization: '' } } };
  http.routers[name] = {
    rule:
      `${CARRIES_TOKEN} && (Host(\`${MARKER_HOST}\`) || ` +
      `HostRegexp(\`^(${hosts.join('|')})${ending}\\.?$\`))`,
    entryPoints: ['websecure'],
    middlewares: [STRIP, STRIP_TOKEN],
    tls: {},
    ...defined({ priority }),
  };
}

/**
 * Adds a preflight router. It comes before DOMAIN_TOKENS, because a preflight has no token. `hosts`
 * and `ending` are parts of a regular expression.
 */
function addPreflights(
  { http }: DynamicConfig,
  name: string,
  hosts: readonly string[],
  ending: string,
  { authServiceUrl }: RoutingSettings,
): void {
  if (authServiceUrl === null || hosts.length === 0) return;
  http.services[PREFLIGHTS] = {
    loadBalancer: { servers: [{ url: new URL(authServiceUrl).origin }] },
  };
  http.routers[name] = {
    rule:
      `${IS_PREFLIGHT} && (Host(\`${MARKER_HOST}\`) || ` +
      `HostRegexp(\`^(${hosts.join('|')})${ending}\\.?$\`))`,
    entryPoints: ['websecure'],
    service: PREFLIGHTS,
    middlewares: [STRIP],
    priority: BEFORE_DOMAINS,
    tls: {},
  };
}

/**
 * Adds a marker router for each entry point: with many projects, the entry points do not switch at
 * the same moment (docs/testbed.md).
 */
function addMarker({ http }: DynamicConfig, hash: string): void {
  const marker = {
    rule: `Host(\`${MARKER_HOST}\`) && Path(\`/${hash}\`)`,
    service: 'noop@internal',
  };
  http.routers['berth-marker-web'] = { ...marker, entryPoints: ['web'] };
  http.routers['berth-marker-websecure'] = { ...marker, entryPoints: ['websecure'], tls: {} };
  const anyAlias = ALIAS_HEADERS.map((name) => `HeaderRegexp(\`${name}\`, \`^1$\`)`).join(' || ');
  const alias = {
    rule: `Host(\`${MARKER_HOST}\`) && Path(\`${aliasPath(hash)}\`) && (${anyAlias})`,
    service: 'noop@internal',
  };
  http.routers['berth-marker-alias-web'] = { ...alias, entryPoints: ['web'] };
  http.routers['berth-marker-alias-websecure'] = { ...alias, entryPoints: ['websecure'], tls: {} };
}

/**
 * Returns why a project is omitted: an invalid project must not break the configuration of the
 * others.
 */
function problemOf(
  route: PublishedRoute,
  settings: RoutingSettings,
  hosts: ReadonlyMap<string, string>,
): string | null {
  if (!/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(route.project_name))
    return 'its name is not a DNS label';
  if (!/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(route.domain_prefix))
    return `its domain prefix "${route.domain_prefix}" is not a DNS label`;
  const other = hosts.get(route.domain_prefix);
  if (other !== undefined)
    return `${route.domain_prefix}.${settings.baseDomain} belongs to ${other}`;
  // The proxy does not use the address of a page.
  const addresses = route.stopped === true ? [] : [route, ...(route.servers ?? [])];
  for (const { host_ip, host_port } of addresses) {
    if (isIP(host_ip) === 0 && !/^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/.test(host_ip))
      return `the address "${host_ip}" of its node is invalid`;
    if (!Number.isInteger(host_port) || host_port < 1 || host_port > 65_535)
      return `its port ${host_port} is invalid`;
  }
  if (route.auth_required && settings.authServiceUrl === null)
    return 'it requires a login, but AUTH_SERVICE_URL is not set, so it is not published';
  return null;
}

const addressOf = ({ host_ip, host_port }: Address): string => `${urlHost(host_ip)}:${host_port}`;
const urlHost = (address: string): string => (isIP(address) === 6 ? `[${address}]` : address);

/** Removes empty sections, which Traefik rejects ("cannot be a standalone element"). */
const withoutEmpty = (config: DynamicConfig): object => ({
  http: Object.fromEntries(
    Object.entries(config.http).filter(([, section]) => Object.keys(section).length > 0),
  ),
});
