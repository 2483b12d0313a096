/** Settings of the parts of the control plane, from the configuration. */
import { isIP } from 'node:net';
import { derived, type Live } from '@berth/kit/live';
import type { OperatorNote } from '@berth/wire/system';
import { nodeWarning } from '@berth/wire/version';
import manifest from '../package.json' with { type: 'json' };
import { PASSWORD_COST, type PasswordCost } from './api/auth/passwords.ts';
import type { ApiSettings } from './api/settings.ts';
import type { Config } from './config.ts';
import { DEFAULT_LIMITS, type Limits } from './domain/deployments/facts.ts';
import { normalDomains } from './domain/routes/domains.ts';
import { isPrivateAddress } from './notify/post.ts';

/** The only copy of these secrets; every part reads it at each use. The vault has SECRETS_KEY. */
export type SecretsInUse = {
  agent: readonly string[];
  gateway: readonly string[];
  jwt: readonly string[];
  registryPassword: string;
};

export const limitsOf = (config: Config): Limits => ({
  ...DEFAULT_LIMITS,
  claimMs: config.CLAIM_TIMEOUT,
  leaseMs: config.LEASE_TTL,
  queueMs: config.QUEUE_TIMEOUT,
  buildMs: config.BUILD_TIMEOUT,
  deployMs: config.DEPLOY_TIMEOUT,
  retireMs: config.RETIRE_TIMEOUT,
  routeMs: config.ROUTE_TIMEOUT,
  offlineMs: config.OFFLINE_AFTER,
  failoverMs: config.FAILOVER_AFTER,
  probeSeconds: Math.ceil(config.PROBE_TIMEOUT / 1000),
  weights: {
    cached: config.PLACEMENT_WEIGHT_CACHED,
    missing: config.PLACEMENT_WEIGHT_MISSING,
    free: config.PLACEMENT_WEIGHT_FREE,
  },
  memoryOvercommit: config.MEMORY_OVERCOMMIT,
});

export function apiSettingsOf(
  config: Config,
  overrides: { passwordCost?: PasswordCost; processMetrics?: boolean },
  secrets: Live<SecretsInUse>,
): ApiSettings {
  const registry = derived(secrets, ({ registryPassword }) => ({
    addr: config.REGISTRY_ADDR ?? '',
    user: config.REGISTRY_USER,
    password: registryPassword,
  }));
  return {
    commit: config.BERTH_COMMIT ?? null,
    inForce: config.inForce,
    baseDomain: config.BASE_DOMAIN,
    publicUrl: config.PUBLIC_URL,
    agentSecrets: () => secrets().agent,
    requireSecrets: config.REQUIRE_NODE_SECRETS === 'true',
    controlPlaneUrl: config.CONTROL_PLANE_URL,
    clean: { keepReleases: config.KEEP_RELEASES, intervalMs: config.CLEAN_INTERVAL },
    gatewaySecrets: () => secrets().gateway,
    adminEmails: config.ADMIN_EMAILS ?? [],
    defaultRole: config.DEFAULT_ROLE ?? null,
    authServiceUrl: config.AUTH_SERVICE_URL ?? null,
    trustedProxies: config.TRUSTED_PROXIES,
    maxConnections: config.MAX_CONNECTIONS,
    jwtSecrets: () => secrets().jwt,
    registry,
    packageDir: config.PACKAGE_DIR ?? null,
    dashboardDir: config.DASHBOARD_DIR ?? null,
    hasShare: config.DATASET_NFS_BASE_PATH !== undefined,
    allowedGitHosts: config.ALLOWED_GIT_HOSTS ?? [],
    notify: {
      allowedHosts: config.ALLOWED_NOTIFY_HOSTS ?? [],
      hasSmtp: config.SMTP_URL !== undefined,
      isLocal: (host) => isIP(host) !== 0 && isPrivateAddress(host),
    },
    reservedPrefixes: reservedPrefixes(config),
    ownHosts: reservedHosts(config),
    notes: notesOf(config),
    passwordCost: overrides.passwordCost ?? PASSWORD_COST,
    version: manifest.version,
    processMetrics: overrides.processMetrics ?? false,
  };
}

/** Host label of the proxy's dashboard (deploy/traefik/dynamic/dashboard.yml). */
const PROXY_DASHBOARD = 'traefik';

/**
 * Returns the hosts that no project can take, in normal form: the hosts of Berth's own addresses
 * and the host names in RESERVED_PREFIXES. Otherwise the proxy would get two routers for one host.
 */
function reservedHosts(config: Config): string[] {
  const addresses = [
    config.PUBLIC_URL,
    config.CONTROL_PLANE_URL,
    config.AUTH_SERVICE_URL,
    ...(config.REGISTRY_ADDR === undefined ? [] : [`http://${config.REGISTRY_ADDR}`]),
  ];
  const own = addresses.flatMap((address) =>
    address !== undefined && URL.canParse(address) ? [new URL(address).hostname] : [],
  );
  return normalDomains([
    ...own,
    ...(config.RESERVED_PREFIXES ?? []).filter((name) => name.includes('.')),
  ]);
}

/**
 * Returns the labels under BASE_DOMAIN that no project can have as its prefix, including labels
 * that the operator lists as whole hosts.
 */
function reservedPrefixes(config: Config): string[] {
  const end = `.${config.BASE_DOMAIN}`;
  const labels = reservedHosts(config).flatMap((host) =>
    host.endsWith(end) ? [host.slice(0, -end.length)] : [],
  );
  return [
    PROXY_DASHBOARD,
    ...(config.RESERVED_PREFIXES ?? []).map((name) => name.toLowerCase()),
    ...labels,
  ];
}

/**
 * The gateway refuses a SESSION_SECRET that is shorter. The control plane only warns about short
 * secrets, because docs/contract.md sets no minimum for AGENT_SECRET.
 */
const MIN_SECRET_LENGTH = 32;

function notesOf(config: Config): OperatorNote[] {
  const notes: OperatorNote[] = [];
  const add = (kind: OperatorNote['kind'], text: string): void => void notes.push({ kind, text });
  const node = nodeWarning(process.versions.node);
  if (node !== null) add('node_version', node);
  if (config.AGENT_SECRET === undefined)
    add(
      'setting_missing',
      'AGENT_SECRET is not set: every agent is accepted; for development only',
    );
  if (config.GATEWAY_SECRET === undefined)
    add(
      'setting_missing',
      'GATEWAY_SECRET is not set: requests of gateways are refused, so nobody can sign in to a ' +
        'project',
    );
  for (const name of ['AGENT_SECRET', 'GATEWAY_SECRET', 'JWT_SECRET'] as const)
    if (config[name]?.some((secret) => secret.length < MIN_SECRET_LENGTH) === true)
      add(
        'other',
        `${name} has a secret of fewer than ${MIN_SECRET_LENGTH} characters: create one with ` +
          'openssl rand -hex 32',
      );
  if (config.REGISTRY_ADDR === undefined)
    add('setting_missing', 'REGISTRY_ADDR is not set: nothing can be built or deployed');
  if (config.PROXY_PROBE_URLS === undefined)
    add(
      'setting_missing',
      'PROXY_PROBE_URLS is not set: a route counts as live SETTLE_TIME after the proxy fetched ' +
        'it, without a check',
    );
  else if (
    config.PUBLIC_URL.startsWith('https:') &&
    !config.PROXY_PROBE_URLS.some((url) => url.startsWith('https:'))
  )
    add(
      'other',
      'PROXY_PROBE_URLS has no https address: an entry point that only redirects cannot ' +
        'confirm that the proxy reaches a node; add an https address',
    );
  if (config.AUTH_SERVICE_URL === undefined)
    add(
      'setting_missing',
      'AUTH_SERVICE_URL is not set: projects that require a login cannot be deployed',
    );
  return notes;
}
