/**
 * Builds the reverse proxy's dynamic configuration (docs/contract.md "Reverse proxy configuration endpoint"). Pure and deterministic:
 * equal routes give equal bytes, because Traefik compares hashes. Never empty: it always contains the marker (docs/interfaces.md
 * "Marker").
 */
import { createHash } from 'node:crypto';
import { isIP } from 'node:net';
import { DEVICE_TOKEN_PATTERN } from '@berth/wire/gateway';
import { IDENTITY_HEADERS } from '@berth/wire/vocabulary';
import type { BuiltConfig, RouteTarget } from '../domain/configuration.ts';
import { stableJson } from '../domain/stable-json.ts';
import type { PublishedRoute } from '../domain/stores.ts';

export type RoutingSettings = {
  baseDomain: string;
  /** AUTH_SERVICE_URL. Null: projects that require a login are omitted, never published without a login. */
  authServiceUrl: string | null;
  acmeResolver: string;
};

type Router = {
  rule: string;
  /** Unset for a child, which uses its parent's. */
  entryPoints?: string[];
  /** Unset for a parent. */
  service?: string;
  middlewares?: string[];
  tls?: { certResolver?: string };
  parentRefs?: string[];
  priority?: number;
};
type Service = { loadBalancer: { servers: { url: string }[] } };
type Middleware =
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
  http: { routers: Record<string, Router>; services: Record<string, Service>; middlewares: Record<string, Middleware> };
};

export const MARKER_HOST = 'berth.invalid';
/** Three of the fifteen characters; a proxy that deletes one spelling may keep another (aliases.ts). */
export const ALIAS_HEADERS = ['X.Berth.Alias', 'X_Berth_Alias', 'X!Berth!Alias'] as const;
export const aliasPath = (hash: string): string => `/${hash}/alias`;
const STRIP = 'berth-strip-identity';
const STRIP_TOKEN = 'berth-strip-token';
/**
 * Takes every request to a public project whose `Authorization` holds a device token, in any scheme and anywhere in the value, and
 * removes that header. One parent for all projects: a second complete router for each project doubles Traefik's work at a change.
 * Project names have no underscore, so no project's router has this name.
 */
const TOKENS = 'berth_tokens';
const CARRIES_TOKEN = `HeaderRegexp(\`Authorization\`, \`${DEVICE_TOKEN_PATTERN}\`)`;

/**
 * Matches every spelling of an identity header. RFC 9110 allows fifteen characters beside letters and digits in a header name,
 * and each of them is a dash to some application server.
 */
const AUTH_HEADERS_REGEX = '(?i)^(x[^a-z0-9]forwarded[^a-z0-9]user([^a-z0-9](name|avatar|provider|assertion))?|cookie|authorization)$';
/**
 * An empty value removes one spelling. A list cannot hold every mix of fifteen characters, so it holds those of `-`, `_` and `.`.
 * `aliasHeadersStrategy: delete` (deploy/traefik/traefik.yml) removes all others.
 */
const STRIPPED = Object.fromEntries(IDENTITY_HEADERS.flatMap((name) => spellings(name)).map((name) => [name, '']));

/** Every mix of `-`, `_` and `.`. The proxy ignores case. */
function spellings(name: string): string[] {
  const parts = name.split('-');
  return parts
    .slice(1)
    .reduce<string[]>(
      (list, part) => list.flatMap((head) => ['-', '_', '.'].map((separator) => head + separator + part)),
      [parts[0] ?? ''],
    );
}

export function dynamicConfig(routes: readonly PublishedRoute[], settings: RoutingSettings): BuiltConfig {
  const config: DynamicConfig = { http: { routers: {}, services: {}, middlewares: {} } };
  const problems: string[] = [];
  /** Prefixes of the projects that need no login. */
  const open: string[] = [];
  const deployments = new Map<string, RouteTarget>();
  const hosts = new Map<string, string>();
  // Sorted by name: of two projects with one host always the same one is omitted.
  for (const route of [...routes].sort((a, b) => (a.project_name < b.project_name ? -1 : 1))) {
    const problem = problemOf(route, settings, hosts);
    if (problem !== null) {
      problems.push(`${route.project_name}: ${problem}`);
      continue;
    }
    hosts.set(route.domain_prefix, route.project_name);
    const { project_id, host_ip, host_port, auth_required } = route;
    const host = `${route.domain_prefix}.${settings.baseDomain}`;
    deployments.set(route.deployment_id, { project_id, host, host_ip, host_port, auth_required });
    if (!route.auth_required) open.push(route.domain_prefix);
    addProject(config, route, settings);
  }
  if (deployments.size > 0) config.http.middlewares[STRIP] = { headers: { customRequestHeaders: STRIPPED } };
  addTokens(config, open, settings);
  const hash = createHash('sha256')
    .update(stableJson(withoutEmpty(config)))
    .digest('hex')
    .slice(0, 16);
  addMarker(config, hash);
  return { bytes: stableJson(withoutEmpty(config)), hash, deployments, problems };
}

function addProject({ http }: DynamicConfig, route: PublishedRoute, settings: RoutingSettings): void {
  const name = route.project_name;
  const rule = `Host(\`${route.domain_prefix}.${settings.baseDomain}\`)`;
  const router: Router = {
    rule,
    entryPoints: ['websecure'],
    service: name,
    middlewares: [route.auth_required ? `${name}-auth` : STRIP],
    tls: { certResolver: settings.acmeResolver },
  };
  http.routers[name] = router;
  // A child of TOKENS. Traefik before 3.7 treats it as a separate router; this priority then puts it behind all others.
  if (!route.auth_required) http.routers[`${name}_token`] = { rule, parentRefs: [TOKENS], priority: 1, service: name };
  http.routers[`${name}-http`] = { rule, entryPoints: ['web'], service: name, middlewares: ['redirect-to-https@file'] };
  http.services[name] = { loadBalancer: { servers: [{ url: `http://${urlHost(route.host_ip)}:${route.host_port}` }] } };
  if (route.auth_required) {
    http.middlewares[`${name}-auth`] = {
      forwardAuth: {
        address: `${settings.authServiceUrl}/verify?project=${route.project_id}`,
        authResponseHeaders: ['X-Forwarded-User'],
        authResponseHeadersRegex: AUTH_HEADERS_REGEX,
        trustForwardHeader: true,
        maxResponseBodySize: 1_048_576,
      },
    };
  }
}

function addTokens({ http }: DynamicConfig, open: readonly string[], { baseDomain }: RoutingSettings): void {
  if (open.length === 0) return;
  http.middlewares[STRIP_TOKEN] = { headers: { customRequestHeaders: { Authorization: '' } } };
  // Host(`…`) accepts the dot at the end of a host name, so the expression accepts it too. Traefik warns of a rule without any Host(`…`).
  const hosts = `^(${open.join('|')})\\.${baseDomain.replaceAll('.', '\\.')}\\.?$`;
  http.routers[TOKENS] = {
    rule: `${CARRIES_TOKEN} && (Host(\`${MARKER_HOST}\`) || HostRegexp(\`${hosts}\`))`,
    entryPoints: ['websecure'],
    middlewares: [STRIP, STRIP_TOKEN],
    tls: {},
  };
}

/** Adds a router for each entry point: with many projects they do not switch at the same moment (docs/testbed.md). */
function addMarker({ http }: DynamicConfig, hash: string): void {
  const marker = { rule: `Host(\`${MARKER_HOST}\`) && Path(\`/${hash}\`)`, service: 'noop@internal' };
  http.routers['berth-marker-web'] = { ...marker, entryPoints: ['web'] };
  http.routers['berth-marker-websecure'] = { ...marker, entryPoints: ['websecure'], tls: {} };
  const anyAlias = ALIAS_HEADERS.map((name) => `HeaderRegexp(\`${name}\`, \`^1$\`)`).join(' || ');
  const alias = { rule: `Host(\`${MARKER_HOST}\`) && Path(\`${aliasPath(hash)}\`) && (${anyAlias})`, service: 'noop@internal' };
  http.routers['berth-marker-alias-web'] = { ...alias, entryPoints: ['web'] };
  http.routers['berth-marker-alias-websecure'] = { ...alias, entryPoints: ['websecure'], tls: {} };
}

/** Returns why a project is omitted. An invalid project must not break the configuration of the others. */
function problemOf(route: PublishedRoute, settings: RoutingSettings, hosts: ReadonlyMap<string, string>): string | null {
  if (!/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(route.project_name)) return 'its name is not a DNS label';
  if (!/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(route.domain_prefix))
    return `its domain prefix "${route.domain_prefix}" is not a DNS label`;
  const other = hosts.get(route.domain_prefix);
  if (other !== undefined) return `${route.domain_prefix}.${settings.baseDomain} belongs to ${other}`;
  if (isIP(route.host_ip) === 0 && !/^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/.test(route.host_ip))
    return `the address "${route.host_ip}" of its node is invalid`;
  if (!Number.isInteger(route.host_port) || route.host_port < 1 || route.host_port > 65_535)
    return `its port ${route.host_port} is invalid`;
  if (route.auth_required && settings.authServiceUrl === null)
    return 'it requires a login, but AUTH_SERVICE_URL is not set, so it is not published';
  return null;
}

const urlHost = (address: string): string => (isIP(address) === 6 ? `[${address}]` : address);

/** Traefik rejects an empty section ("cannot be a standalone element"). */
const withoutEmpty = (config: DynamicConfig): object => ({
  http: Object.fromEntries(Object.entries(config.http).filter(([, section]) => Object.keys(section).length > 0)),
});
