/**
 * Composition root: creates every part of the control plane and connects them. Tests call it too
 * and override some parts.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { availableParallelism, hostname } from 'node:os';
import { isIP } from 'node:net';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { defined } from '@berth/kit/defined';
import { backoff } from '@berth/kit/backoff';
import { createClosers } from '@berth/kit/closers';
import { list } from '@berth/kit/config';
import { derived, live } from '@berth/kit/live';
import { startLoop } from '@berth/kit/loop';
import type { Logger } from '@berth/kit/log';
import type { Replace } from '@berth/kit/reload';
import { openTracing } from '@berth/kit/tracing';
import { nodeWarning } from '@berth/wire/version';
import manifest from '../package.json' with { type: 'json' };
import type { Server } from './api/define.ts';
import type { ApiSettings } from './api/deps.ts';
import type { ReaderLimits } from './api/log-readers.ts';
import { ensureFirstAdmin } from './api/auth/first-admin.ts';
import { createSecretWatch, jwtSecretIn } from './api/auth/jwt-secret.ts';
import { createPasswords, PASSWORD_COST, type PasswordCost } from './api/auth/passwords.ts';
import { createSecretUse } from './api/auth/secret-use.ts';
import { buildServer } from './api/server.ts';
import { type Config, dataFolder, readBackupConfig, type SETTINGS } from './config.ts';
import { runScheduled } from './backup/process.ts';
import type { BackupSettings } from './domain/platform/backups.ts';
import { createCacheIndex } from './domain/nodes/cache-index.ts';
import { type Changes, createChanges } from './domain/platform/changes.ts';
import type { CertificateWatch, ConfigSource } from './domain/routes/configuration.ts';
import { normalDomains } from './domain/routes/domains.ts';
import { DEFAULT_LIMITS, type Limits } from './domain/deployments/facts.ts';
import type { PolicySource } from './domain/identity/policy.ts';
import { REPORT_MS } from './domain/secrets/rotation.ts';
import { createPresence, type Presence } from './domain/identity/presence.ts';
import type { AllStores } from './store/open.ts';
import { createTelemetry } from './domain/platform/telemetry.ts';
import type { Scanner } from './domain/data/scan.ts';
import { createUptimeClock, type UptimeClock } from './domain/platform/uptime.ts';
import { diskOf } from './api/disk.ts';
import { createDriver, type Driver } from './flow/driver.ts';
import type { DatasetSettings, LoopDeps } from './loops/deps.ts';
import type { SendNotice } from './domain/notifications/notifications.ts';
import { diskObservations } from './domain/notifications/problem-texts.ts';
import { type Loops, startLoops } from './loops/index.ts';
import { createCheckFolder } from './monitor/check-folder.ts';
import { createScanner } from './monitor/scanner.ts';
import { createConfigSource } from './routing/config-source.ts';
import { createPolicySource } from './routing/policy-source.ts';
import { createAliasWatch } from './routing/aliases.ts';
import { createCertificateWatch } from './routing/certificates.ts';
import { markerAnswers } from './routing/confirm.ts';
import { createDnsCheck } from './routing/dns.ts';
import { createReach } from './routing/reach.ts';
import { createSendMail } from './notify/mail.ts';
import { createPost, isPrivateAddress } from './notify/post.ts';
import { createSender } from './notify/send.ts';
import { createSendToForge } from './forges/send-status.ts';
import { openVault } from './secrets/open.ts';
import { type BeforeMigration, openStores } from './store/open.ts';

export type Overrides = {
  log: Logger;
  stores?: AllStores;
  now?: () => number;
  /** Replaces the clock that the database keeps. */
  uptime?: UptimeClock;
  passwordCost?: PasswordCost;
  /** False: no loop runs, so only the calls of a test change anything. */
  loops?: boolean;
  processMetrics?: boolean;
  limits?: Partial<Limits>;
  readerLimits?: Partial<ReaderLimits>;
  scanner?: Scanner;
  /** Replaces the process of a scheduled backup. */
  backUp?: BackupSettings['run'];
};

export type App = {
  server: Server;
  stores: AllStores;
  changes: Changes;
  driver: Driver;
  source: ConfigSource;
  policy: PolicySource;
  presence: Presence;
  uptime: UptimeClock;
  limits: Limits;
  sendNotice: SendNotice;
  /** Secrets that change while the control plane runs. `replaced`: call it after each reload. */
  secrets: { replace: Replace<typeof SETTINGS>; replaced(): Promise<void> };
  /** Listens and starts the loops; returns the address. */
  listen(): Promise<string>;
  /** Ends held requests, waits for running requests, stops the loops, closes the database. */
  close(): Promise<void>;
};

/**
 * Backoff in ms after a write conflict between two decisions about one project. The jitter keeps
 * them from colliding again.
 */
const CONFLICT_BACKOFF = { min: 2, max: 200 };
/** Interval at which the control planes of one database compare their JWT secrets. */
const SECRET_CHECK_MS = 30_000;
/** Time limit for running requests during shutdown; then their connections are closed. */
const DRAIN_MS = 10_000;
const DAY_MS = 86_400_000;

export async function createApp(config: Config, overrides: Overrides): Promise<App> {
  const { log, now = Date.now } = overrides;
  const closers = createClosers(log);
  const limits = { ...limitsOf(config), ...overrides.limits };
  const stores =
    overrides.stores ??
    (await openStores({
      databaseUrl: config.DATABASE_URL,
      log,
      now,
      domainQuarantineMs: config.DOMAIN_QUARANTINE,
      ...snapshotBefore(config, log),
    }));
  closers.add('database', () => stores.close());
  try {
    await stores.apiSessions.hashIds();
    const inUse = await secretsOf(config, stores, log);
    const settings = settingsOf(config, overrides, inUse);
    const secrets = createSecretWatch({ meta: stores.meta, secrets: settings.jwtSecrets, now });
    // Only one control plane at a time can open a SQLite file. It has no other to compare with, so
    // a changed secret is no problem.
    const isShared = !config.DATABASE_URL.startsWith('sqlite:');
    if (isShared) {
      await secrets.look();
      closers.add('secrets', () => secrets.close());
    }
    // With PostgreSQL, another control plane may still serve them.
    if (!isShared) closers.add('looks', () => stores.repositoryLooks.endOpen(now()));
    const folder = config.DATABASE_URL === 'sqlite::memory:' ? null : resolve(dataFolder(config));
    const vault = await openVault({
      given: config.SECRETS_KEY ?? null,
      folder,
      isShared,
      keys: stores.projectKeys,
      meta: stores.meta,
      now,
      log,
    });
    const secretUse = createSecretUse({
      meta: stores.meta,
      secrets: inUse.read,
      vault,
      listen: `${config.LISTEN.host}:${config.LISTEN.port}`,
      now,
    });
    closers.add('secret use', () => secretUse.close());
    const changes = createChanges(stores.notifier);
    const monotonic = overrides.now ?? (() => performance.now());
    const uptime =
      overrides.uptime ??
      (await createUptimeClock({
        store: stores.uptime,
        monotonic,
        wall: now,
        leaseMs: limits.leaseMs,
      }));
    const authServiceUrl = config.AUTH_SERVICE_URL ?? null;
    const telemetry = createTelemetry();
    const tracing = await openTracing(
      config,
      { name: 'berth-control-plane', version: manifest.version },
      log,
    );
    if (tracing !== null) closers.add('traces', () => tracing.close());
    const cacheIndex = createCacheIndex();
    const driver = createDriver({
      stores,
      changes,
      limits,
      platform: {
        registryAddr: settings.registry().addr,
        authServiceUrl,
        public: { url: config.PUBLIC_URL, baseDomain: config.BASE_DOMAIN },
        reservedPrefixes: settings.reservedPrefixes,
        allowedGitHosts: settings.allowedGitHosts,
      },
      now,
      uptime,
      pause: (attempt) => sleep(backoff(attempt, CONFLICT_BACKOFF)),
      newId: randomUUID,
      cacheIndex,
      telemetry,
    });
    const routing = {
      baseDomain: config.BASE_DOMAIN,
      authServiceUrl,
      acmeResolver: config.ACME_RESOLVER,
      ownHosts: settings.ownHosts,
      keptHeaders: config.KEEP_CLIENT_HEADERS ?? [],
    };
    const source = createConfigSource({
      routes: stores.routes,
      changes,
      settings: routing,
      now: monotonic,
      log,
    });
    closers.add('routes', () => source.close());
    await source.refresh();

    const policy = createPolicySource({
      store: stores.policy,
      changes,
      settings: { baseDomain: config.BASE_DOMAIN, domainQuarantineMs: config.DOMAIN_QUARANTINE },
      now,
      log,
    });
    closers.add('policy', () => policy.close());

    const passwords = createPasswords(settings.passwordCost);
    await ensureFirstAdmin(stores.users, passwords, firstAdminOf(config), now(), log);
    await stores.users.makeAdmins(settings.adminEmails);

    const presence = createPresence();
    const datasets = datasetsOf(config, overrides, presence);
    closers.add('scanner', () => datasets?.scanner.close());

    const backups: BackupSettings | null =
      config.BACKUP_TO === undefined
        ? null
        : {
            intervalMs: config.BACKUP_INTERVAL,
            run: overrides.backUp ?? ((signal) => runScheduled(config.backupEnv, signal)),
          };
    const probeUrls = config.PROXY_PROBE_URLS ?? [];
    const aliases = probeUrls.length === 0 ? {} : { aliases: createAliasWatch(probeUrls, log) };
    const certificates = certificatesOf(config, probeUrls, now, monotonic, log);
    const sendNotice = createSender({
      vault,
      post: createPost({ allowedHosts: settings.notify.allowedHosts }),
      mail:
        config.SMTP_URL === undefined
          ? null
          : createSendMail({ url: config.SMTP_URL, from: config.SMTP_FROM ?? '' }),
      publicUrl: config.PUBLIC_URL,
      now,
    });
    const ownDisk =
      folder === null
        ? {}
        : { ownDisk: async () => diskObservations(hostname(), await diskOf(folder), now()) };
    const loopDeps: LoopDeps = {
      stores,
      driver,
      changes,
      source,
      policy,
      limits,
      entryPoints: probeUrls.length,
      probe:
        probeUrls.length === 0 ? null : (hash, signal) => markerAnswers(probeUrls, hash, signal),
      reach:
        probeUrls.length === 0
          ? null
          : createReach({ probeUrls, gatewaySecrets: settings.gatewaySecrets, now }),
      ...aliases,
      ...certificates,
      ...defined({
        ownHost: config.PUBLIC_URL.startsWith('https:')
          ? new URL(config.PUBLIC_URL).hostname
          : undefined,
      }),
      settleMs: config.SETTLE_TIME,
      datasets,
      presence,
      statuses: {
        send: createSendToForge({ allowedHosts: settings.allowedGitHosts }),
        async tokenOf(projectId) {
          const token = await stores.gitTokens.get(projectId);
          if (token === null) return null;
          const { username, api_url: apiUrl, sealed } = token;
          return {
            username,
            apiUrl,
            token: (await vault.open(projectId, 'git-token', sealed)).toString(),
          };
        },
        publicUrl: config.PUBLIC_URL,
      },
      sendNotice,
      ...ownDisk,
      telemetry,
      keep: {
        deployments: config.KEEP_DEPLOYMENTS,
        ms: config.KEEP_DEPLOYMENT_DAYS * DAY_MS,
        logBytes: config.KEEP_LOG_BYTES,
      },
      clean: settings.clean,
      backups,
      now,
      uptime,
      monotonic,
      log,
    };
    let loops: Loops | null = null;
    const server = await buildServer({
      stores,
      driver,
      changes,
      source,
      policy,
      limits,
      ...defined({ readerLimits: overrides.readerLimits }),
      cacheIndex,
      settings,
      telemetry,
      tracing,
      ...aliases,
      ...certificates,
      checkDns: createDnsCheck({
        baseDomain: config.BASE_DOMAIN,
        publicIps: config.PUBLIC_IPS,
        servers: config.DNS_SERVERS,
        now,
      }),
      checkFolder: createCheckFolder(config.DATASET_NFS_BASE_PATH ?? null),
      presence,
      now,
      uptime,
      log,
      loops: () => loops?.status() ?? [],
      secretProblem: secrets.problem,
      backupIntervalMs: backups?.intervalMs ?? null,
      scanIntervalMs: config.DATASET_SCAN_INTERVAL,
      dataFolder: folder,
      vault,
      secretUse,
      sendNotice,
    });
    closers.add('loops', () => loops?.stop());
    closers.add('server', () => closeServer(server));
    for (const note of settings.notes) log.warn(note);

    return {
      server,
      stores,
      changes,
      driver,
      source,
      policy,
      presence,
      uptime,
      limits,
      sendNotice,
      secrets: {
        replace: {
          AGENT_SECRET: (agent) => inUse.change({ agent }),
          GATEWAY_SECRET: (gateway) => inUse.change({ gateway }),
          JWT_SECRET: (jwt) => inUse.change({ jwt }),
          REGISTRY_PASSWORD: (registryPassword) => inUse.change({ registryPassword }),
          SECRETS_KEY: (keys) => vault.use(keys),
        },
        async replaced() {
          await vault.rewrap();
          if (isShared) await secrets.look();
          await secretUse.report();
        },
      },
      async listen() {
        const address = await server.listen({ host: config.LISTEN.host, port: config.LISTEN.port });
        if (overrides.loops !== false) loops = startLoops(loopDeps);
        if (isShared && overrides.loops !== false) {
          const loop = startLoop(
            { name: 'secret-watch', periodMs: SECRET_CHECK_MS, run: secrets.look },
            log,
          );
          closers.add('secret-watch', () => loop.stop());
        }
        if (overrides.loops !== false) {
          const loop = startLoop(
            { name: 'secret-use', periodMs: REPORT_MS, run: secretUse.report },
            log,
          );
          closers.add('secret-use', () => loop.stop());
        }
        return address;
      },
      close: () => closers.close(),
    };
  } catch (error) {
    await closers.close();
    throw error;
  }
}

/** Says what runs before a migration. A database in memory has none. */
function snapshotBefore(config: Config, log: Logger): { before?: BeforeMigration } {
  if (config.DATABASE_URL === 'sqlite::memory:') return {};
  return {
    async before() {
      // Its libraries would slow down every other start.
      const { takeSnapshot } = await import('./backup/snapshot.ts');
      return takeSnapshot(readBackupConfig(config.backupEnv), config.UPGRADE_SNAPSHOT, log);
    },
  };
}

/** Empty without an https address, and where the operator turned the check off. */
function certificatesOf(
  config: Config,
  probeUrls: readonly string[],
  now: () => number,
  monotonic: () => number,
  log: Logger,
): { certificates?: CertificateWatch } {
  if (
    !probeUrls.some((url) => url.startsWith('https:')) ||
    config.CERTIFICATE_CHECK_INTERVAL === null
  )
    return {};
  return {
    certificates: createCertificateWatch({
      probeUrls,
      intervalMs: config.CERTIFICATE_CHECK_INTERVAL,
      now,
      monotonic,
      log,
    }),
  };
}

async function closeServer(server: Server): Promise<void> {
  const late = setTimeout(() => server.server.closeAllConnections(), DRAIN_MS);
  try {
    await server.close();
  } finally {
    clearTimeout(late);
  }
}

const limitsOf = (config: Config): Limits => ({
  ...DEFAULT_LIMITS,
  claimMs: config.CLAIM_TIMEOUT,
  leaseMs: config.LEASE_TTL,
  queueMs: config.QUEUE_TIMEOUT,
  buildMs: config.BUILD_TIMEOUT,
  deployMs: config.DEPLOY_TIMEOUT,
  retireMs: config.RETIRE_TIMEOUT,
  routeMs: config.ROUTE_TIMEOUT,
  offlineMs: config.OFFLINE_AFTER,
  probeSeconds: Math.ceil(config.PROBE_TIMEOUT / 1000),
  weights: {
    cached: config.PLACEMENT_WEIGHT_CACHED,
    missing: config.PLACEMENT_WEIGHT_MISSING,
    free: config.PLACEMENT_WEIGHT_FREE,
  },
});

function datasetsOf(
  config: Config,
  { scanner }: Overrides,
  presence: Presence,
): DatasetSettings | null {
  if (config.DATASET_NFS_BASE_PATH === undefined) return null;
  return {
    scanner:
      scanner ??
      createScanner({
        stateDir: resolve(config.DATASET_STATE_DIR ?? join(dataFolder(config), 'datasets')),
        searchPath: config.searchPath,
        workers: config.DATASET_SCAN_WORKERS ?? Math.max(1, availableParallelism() - 1),
        peopleWait: presence.arePeopleHere,
        stallMs: config.DATASET_SCAN_STALL,
        deadlineMs: config.DATASET_SCAN_TIMEOUT,
      }),
    basePath: config.DATASET_NFS_BASE_PATH,
    scanIntervalMs: config.DATASET_SCAN_INTERVAL,
    scansAtOnce: config.DATASET_SCANS_AT_ONCE,
    historyKeep: config.DATASET_HISTORY_KEEP,
  };
}

/**
 * Returns the JWT secrets of the file that the first start creates. A database in memory gets a
 * secret in memory.
 */
const generatedSecrets = async (
  config: Config,
  stores: AllStores,
  log: Logger,
): Promise<string[]> =>
  config.DATABASE_URL === 'sqlite::memory:'
    ? [randomBytes(48).toString('base64url')]
    : list(await jwtSecretIn(resolve(dataFolder(config)), stores.meta, log));

/** The only copy of these secrets: every part reads it at each use. The vault has SECRETS_KEY. */
type SecretsInUse = {
  agent: readonly string[];
  gateway: readonly string[];
  jwt: readonly string[];
  registryPassword: string;
};
type InUse = { read: () => SecretsInUse; change(some: Partial<SecretsInUse>): void };

async function secretsOf(config: Config, stores: AllStores, log: Logger): Promise<InUse> {
  const { read, replace } = live<SecretsInUse>({
    agent: config.AGENT_SECRET ?? [],
    gateway: config.GATEWAY_SECRET ?? [],
    jwt: config.JWT_SECRET ?? (await generatedSecrets(config, stores, log)),
    registryPassword: config.REGISTRY_PASSWORD,
  });
  return { read, change: (some) => replace({ ...read(), ...some }) };
}

function settingsOf(config: Config, overrides: Overrides, inUse: InUse): ApiSettings {
  const registry = derived(inUse.read, ({ registryPassword }) => ({
    addr: config.REGISTRY_ADDR ?? '',
    user: config.REGISTRY_USER,
    password: registryPassword,
  }));
  return {
    commit: config.BERTH_COMMIT ?? null,
    inForce: config.inForce,
    baseDomain: config.BASE_DOMAIN,
    publicUrl: config.PUBLIC_URL,
    agentSecrets: () => inUse.read().agent,
    requireSecrets: config.REQUIRE_NODE_SECRETS === 'true',
    controlPlaneUrl: config.CONTROL_PLANE_URL,
    clean: { keepReleases: config.KEEP_RELEASES, intervalMs: config.CLEAN_INTERVAL },
    gatewaySecrets: () => inUse.read().gateway,
    adminEmails: config.ADMIN_EMAILS ?? [],
    defaultRole: config.DEFAULT_ROLE ?? null,
    authServiceUrl: config.AUTH_SERVICE_URL ?? null,
    trustedProxies: config.TRUSTED_PROXIES,
    maxConnections: config.MAX_CONNECTIONS,
    jwtSecrets: () => inUse.read().jwt,
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

/** Label of the proxy's dashboard (deploy/traefik/dynamic/dashboard.yml). */
const PROXY_DASHBOARD = 'traefik';

/**
 * Hosts that no project may take, in their normal form: those of Berth's own addresses, and the
 * host names in RESERVED_PREFIXES. The proxy would get two routers for one host.
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
 * Labels under BASE_DOMAIN that no project may have as its prefix, also those that the operator
 * lists as whole hosts.
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
 * The gateway refuses a shorter SESSION_SECRET. Here it is a warning, because docs/contract.md sets
 * no minimum for AGENT_SECRET.
 */
const MIN_SECRET_LENGTH = 32;

function notesOf(config: Config): string[] {
  const notes: string[] = [];
  const node = nodeWarning(process.versions.node);
  if (node !== null) notes.push(node);
  if (config.AGENT_SECRET === undefined)
    notes.push('AGENT_SECRET is not set: every agent is accepted; for development only');
  if (config.GATEWAY_SECRET === undefined)
    notes.push(
      'GATEWAY_SECRET is not set: requests of gateways are refused, so nobody can sign in to a ' +
        'project',
    );
  for (const name of ['AGENT_SECRET', 'GATEWAY_SECRET', 'JWT_SECRET'] as const)
    if (config[name]?.some((secret) => secret.length < MIN_SECRET_LENGTH) === true)
      notes.push(
        `${name} has a secret of fewer than ${MIN_SECRET_LENGTH} characters: create one with ` +
          'openssl rand -hex 32',
      );
  if (config.REGISTRY_ADDR === undefined)
    notes.push('REGISTRY_ADDR is not set: nothing can be built or deployed');
  if (config.PROXY_PROBE_URLS === undefined)
    notes.push(
      'PROXY_PROBE_URLS is not set: a route counts as live SETTLE_TIME after the proxy fetched ' +
        'it, without a check',
    );
  else if (
    config.PUBLIC_URL.startsWith('https:') &&
    !config.PROXY_PROBE_URLS.some((url) => url.startsWith('https:'))
  )
    notes.push(
      'PROXY_PROBE_URLS has no https address: an entry point that only redirects cannot ' +
        'confirm that the proxy reaches a node; add an https address',
    );
  if (config.AUTH_SERVICE_URL === undefined)
    notes.push('AUTH_SERVICE_URL is not set: projects that require a login cannot be deployed');
  return notes;
}

function firstAdminOf(config: Config): {
  email: string;
  password: string | null;
  passwordFile: string;
} {
  return {
    email: config.ADMIN_EMAILS?.[0] ?? `admin@${config.BASE_DOMAIN}`,
    password: config.ADMIN_PASSWORD ?? null,
    passwordFile: resolve(join(dataFolder(config), 'admin-password')),
  };
}
