/**
 * Builds the parts of the control plane in dependency order. Routes and loops list the parts that
 * they use in their `Deps`.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import { availableParallelism, hostname } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { backoff } from '@berth/kit/backoff';
import type { Closers } from '@berth/kit/closers';
import { list } from '@berth/kit/config';
import { defined } from '@berth/kit/defined';
import { live } from '@berth/kit/live';
import type { Logger } from '@berth/kit/log';
import { openTracing } from '@berth/kit/tracing';
import manifest from '../package.json' with { type: 'json' };
import { createSecretWatch, jwtSecretIn } from './api/auth/jwt-secret.ts';
import { createSecretUse } from './api/auth/secret-use.ts';
import { diskOf } from './api/disk.ts';
import type { ExecLimits } from './api/exec/sessions.ts';
import type { ReaderLimits } from './api/runtime-logs/readers.ts';
import type { PasswordCost } from './api/auth/passwords.ts';
import { apiSettingsOf, limitsOf, type SecretsInUse } from './app-settings.ts';
import { runScheduled } from './backup/process.ts';
import { type Config, dataFolder } from './config.ts';
import type { Scanner } from './domain/data/scan.ts';
import type { Limits } from './domain/deployments/facts.ts';
import type { GitTokenStore } from './domain/git/git-stores.ts';
import type { ApiSessionStore, PolicyStore } from './domain/identity/identity-stores.ts';
import { createPresence, type Presence } from './domain/identity/presence.ts';
import { createCacheIndex } from './domain/nodes/cache-index.ts';
import { createFailoverWatch } from './domain/nodes/failover-watch.ts';
import { diskObservations } from './domain/notifications/problem-texts.ts';
import type { BackupSettings } from './domain/platform/backups.ts';
import { type Changes, createChanges, type Notifier } from './domain/platform/changes.ts';
import type { MetaStore } from './domain/platform/meta-store.ts';
import { createTelemetry } from './domain/platform/telemetry.ts';
import { createUptimeClock, type UptimeClock, type UptimeStore } from './domain/platform/uptime.ts';
import type {
  AliasWatch,
  CertificateWatch,
  ProxyProbe,
  Reach,
} from './domain/routes/configuration.ts';
import type { RouteStore } from './domain/routes/route-stores.ts';
import type { ProjectKeyStore, Vault } from './domain/secrets/vault.ts';
import { endAbsentInstances } from './flow/absent-instances.ts';
import { createDriver } from './flow/driver.ts';
import type { FlowStores } from './flow/flow-stores.ts';
import { createSendToForge } from './forges/send-status.ts';
import type { ScanSettings, StatusSettings } from './loops/settings.ts';
import { createCheckFolder } from './monitor/check-folder.ts';
import { createScanner } from './monitor/scanner.ts';
import { createSendMail } from './notify/mail.ts';
import { createPost } from './notify/post.ts';
import { createSender } from './notify/send.ts';
import { createAliasWatch } from './routing/aliases.ts';
import { createCertificateWatch } from './routing/certificates.ts';
import { createConfigSource } from './routing/config-source.ts';
import { markerAnswers } from './routing/confirm.ts';
import { createDnsCheck } from './routing/dns.ts';
import { createPolicySource } from './routing/policy-source.ts';
import { createReach } from './routing/reach.ts';
import { openVault } from './secrets/open.ts';

/** Replaces parts, for tests. */
export type PlatformOverrides = {
  log: Logger;
  now?: () => number;
  /** Replaces the clock that is stored in the database. */
  uptime?: UptimeClock;
  passwordCost?: PasswordCost;
  processMetrics?: boolean;
  limits?: Partial<Limits>;
  readerLimits?: Partial<ReaderLimits>;
  execLimits?: Partial<ExecLimits>;
  scanner?: Scanner;
  /** Replaces the process of a scheduled backup. */
  backUp?: BackupSettings['run'];
};

/** Stores that parts of the platform use; app.ts gives routes and loops their stores. */
export type PlatformStores = FlowStores & {
  apiSessions: Pick<ApiSessionStore, 'hashIds'>;
  gitTokens: Pick<GitTokenStore, 'get'>;
  meta: MetaStore;
  policy: PolicyStore;
  projectKeys: ProjectKeyStore;
  routes: RouteStore;
  uptime: UptimeStore;
  notifier: Notifier | null;
};

/** Inputs of every step of the composition. */
type Start = {
  config: Config;
  overrides: PlatformOverrides;
  stores: PlatformStores;
  /** Closes each part when the control plane stops. */
  closers: Closers;
  log: Logger;
  now: () => number;
  /** Monotonic clock in ms. */
  monotonic: () => number;
  limits: Limits;
};

/**
 * Backoff in ms after a write conflict between two decisions about one project. The jitter keeps
 * them from colliding again.
 */
const CONFLICT_BACKOFF = { min: 2, max: 200 };
const DAY_MS = 86_400_000;

export type Platform = Awaited<ReturnType<typeof createPlatform>>;

export async function createPlatform(
  config: Config,
  overrides: PlatformOverrides,
  stores: PlatformStores,
  closers: Closers,
) {
  const { log, now = Date.now } = overrides;
  const start: Start = {
    config,
    overrides,
    stores,
    closers,
    log,
    now,
    monotonic: overrides.now ?? (() => performance.now()),
    limits: { ...limitsOf(config), ...overrides.limits },
  };
  await stores.apiSessions.hashIds();
  const secrets = await openSecrets(start);
  const { settings, vault } = secrets;
  const changes = createChanges(stores.notifier);
  const clocks = await openClocks(start);
  const telemetry = createTelemetry();
  const tracing = await openTraces(start);
  const cacheIndex = createCacheIndex();
  const failover = createFailoverWatch({
    nodes: stores.nodes,
    uptime: clocks.uptime,
    limits: start.limits,
    now,
  });
  const driver = createDriver({
    stores,
    changes,
    limits: start.limits,
    platform: {
      registryAddr: settings.registry().addr,
      authServiceUrl: settings.authServiceUrl,
      public: { url: config.PUBLIC_URL, baseDomain: config.BASE_DOMAIN },
      reservedPrefixes: settings.reservedPrefixes,
      allowedGitHosts: settings.allowedGitHosts,
    },
    now,
    uptime: clocks.uptime,
    pause: (attempt) => sleep(backoff(attempt, CONFLICT_BACKOFF)),
    newId: randomUUID,
    cacheIndex,
    overdue: failover.overdue,
    takenAddresses: failover.taken,
    telemetry,
  });
  await endAbsentInstances(stores, driver);
  const presence = createPresence();
  return {
    ...secrets,
    ...clocks,
    ...(await openRouting(start, changes, settings.ownHosts)),
    ...proxyChecks(start, settings.gatewaySecrets),
    ...ownMachine(start),
    ...scansOf(start, presence),
    ...backupsOf(start),
    changes,
    telemetry,
    tracing,
    cacheIndex,
    driver,
    failover,
    presence,
    limits: start.limits,
    log,
    clean: settings.clean,
    registryAddr: () => settings.registry().addr,
    keep: {
      deployments: config.KEEP_DEPLOYMENTS,
      ms: config.KEEP_DEPLOYMENT_DAYS * DAY_MS,
      logBytes: config.KEEP_LOG_BYTES,
    },
    sendNotice: createSender({
      vault,
      post: createPost({ allowedHosts: settings.notify.allowedHosts }),
      mail:
        config.SMTP_URL === undefined
          ? null
          : createSendMail({ url: config.SMTP_URL, from: config.SMTP_FROM ?? '' }),
      publicUrl: config.PUBLIC_URL,
      now,
    }),
    statuses: statusesOf(start, vault, settings.allowedGitHosts),
    ...defined({ readerLimits: overrides.readerLimits, execLimits: overrides.execLimits }),
  };
}

/** Opens the platform's secrets, and the vault with the projects' secrets. */
async function openSecrets({ config, overrides, stores, closers, log, now }: Start) {
  const { read, replace } = live<SecretsInUse>({
    agent: config.AGENT_SECRET ?? [],
    gateway: config.GATEWAY_SECRET ?? [],
    jwt: config.JWT_SECRET ?? (await generatedSecrets(config, stores, log)),
    registryPassword: config.REGISTRY_PASSWORD,
  });
  const secretsInUse = {
    change: (some: Partial<SecretsInUse>) => replace({ ...read(), ...some }),
  };
  const settings = apiSettingsOf(config, overrides, read);
  const secretWatch = createSecretWatch({
    meta: stores.meta,
    secrets: settings.jwtSecrets,
    now,
  });
  // Only one control plane can open a SQLite file. It has no other control plane to compare with,
  // so a changed secret is no problem.
  const isShared = !config.DATABASE_URL.startsWith('sqlite:');
  if (isShared) {
    await secretWatch.look();
    closers.add('secrets', () => secretWatch.close());
  }
  // With PostgreSQL, another control plane can still serve the open looks.
  if (!isShared) closers.add('looks', () => stores.repositoryLooks.endOpen(now()));
  const vault = await openVault({
    given: config.SECRETS_KEY ?? null,
    folder: folderOf(config),
    isShared,
    keys: stores.projectKeys,
    meta: stores.meta,
    now,
    log,
  });
  const secretUse = createSecretUse({
    meta: stores.meta,
    secrets: read,
    vault,
    listen: `${config.LISTEN.host}:${config.LISTEN.port}`,
    now,
  });
  closers.add('secret use', () => secretUse.close());
  const secretProblem = secretWatch.problem;
  return { secretsInUse, settings, secretWatch, secretProblem, isShared, vault, secretUse };
}

/** Returns the folder of the SQLite file or STATE_DIR; null with a database in memory. */
const folderOf = (config: Config): string | null =>
  config.DATABASE_URL === 'sqlite::memory:' ? null : resolve(dataFolder(config));

/**
 * Returns the JWT secrets from the file that the first start creates. With a database in memory,
 * the secret exists only in memory.
 */
const generatedSecrets = async (
  config: Config,
  { meta }: Pick<PlatformStores, 'meta'>,
  log: Logger,
): Promise<string[]> =>
  config.DATABASE_URL === 'sqlite::memory:'
    ? [randomBytes(48).toString('base64url')]
    : list(await jwtSecretIn(resolve(dataFolder(config)), meta, log));

async function openClocks({ overrides, stores, now, monotonic, limits }: Start) {
  const uptime =
    overrides.uptime ??
    (await createUptimeClock({
      store: stores.uptime,
      monotonic,
      wall: now,
      leaseMs: limits.leaseMs,
    }));
  return { now, monotonic, uptime };
}

async function openTraces({ config, closers, log }: Start) {
  const service = { name: 'berth-control-plane', version: manifest.version };
  const tracing = await openTracing(config, service, log);
  if (tracing !== null) closers.add('traces', () => tracing.close());
  return tracing;
}

/** Opens the proxy's configuration and the gateways' policy. */
async function openRouting(
  { config, stores, closers, now, monotonic, log }: Start,
  changes: Changes,
  ownHosts: readonly string[],
) {
  const source = createConfigSource({
    routes: stores.routes,
    changes,
    settings: {
      baseDomain: config.BASE_DOMAIN,
      authServiceUrl: config.AUTH_SERVICE_URL ?? null,
      acmeResolver: config.ACME_RESOLVER,
      ownHosts,
      keptHeaders: config.KEEP_CLIENT_HEADERS ?? [],
    },
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
  const checkDns = createDnsCheck({
    baseDomain: config.BASE_DOMAIN,
    publicIps: config.PUBLIC_IPS,
    servers: config.DNS_SERVERS,
    now,
  });
  return { source, policy, checkDns };
}

type ProxyChecks = {
  settleMs: number;
  entryPoints: number;
  probe: ProxyProbe | null;
  reach: Reach | null;
  aliases?: AliasWatch;
  certificates?: CertificateWatch;
};

/** Creates the checks that go through the proxies of PROXY_PROBE_URLS. */
function proxyChecks(start: Start, gatewaySecrets: () => readonly string[]): ProxyChecks {
  const { config, now, log } = start;
  const probeUrls = config.PROXY_PROBE_URLS ?? [];
  const settleMs = config.SETTLE_TIME;
  const entryPoints = probeUrls.length;
  if (entryPoints === 0) return { settleMs, entryPoints, probe: null, reach: null };
  return {
    settleMs,
    entryPoints,
    probe: (hash, signal) => markerAnswers(probeUrls, hash, signal),
    reach: createReach({ probeUrls, gatewaySecrets, now }),
    aliases: createAliasWatch(probeUrls, log),
    ...defined({ certificates: certificatesOf(start, probeUrls) }),
  };
}

/**
 * Creates the certificate check. Returns undefined if no probe address uses https, or if the
 * operator disabled the check.
 */
function certificatesOf(
  { config, now, monotonic, log }: Start,
  probeUrls: readonly string[],
): CertificateWatch | undefined {
  const intervalMs = config.CERTIFICATE_CHECK_INTERVAL;
  if (intervalMs === null || !probeUrls.some((url) => url.startsWith('https:'))) return undefined;
  return createCertificateWatch({ probeUrls, intervalMs, now, monotonic, log });
}

/** Describes this machine: its host name in PUBLIC_URL and the disk of its data folder. */
function ownMachine({ config, now }: Start) {
  const folder = folderOf(config);
  const { protocol, hostname: ownHost } = new URL(config.PUBLIC_URL);
  return {
    dataFolder: folder,
    ...defined({
      ownHost: protocol === 'https:' ? ownHost : undefined,
      ownDisk:
        folder === null
          ? undefined
          : async () => diskObservations(hostname(), await diskOf(folder), now()),
    }),
  };
}

function scansOf({ config, overrides, closers }: Start, presence: Presence) {
  const checkFolder = createCheckFolder(config.DATASET_NFS_BASE_PATH ?? null);
  const scans = scanSettingsOf(config, overrides.scanner, presence);
  closers.add('scanner', () => scans?.scanner.close());
  return { checkFolder, scans, scanIntervalMs: config.DATASET_SCAN_INTERVAL };
}

function scanSettingsOf(
  config: Config,
  scanner: Scanner | undefined,
  presence: Presence,
): ScanSettings | null {
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

function backupsOf({ config, overrides }: Start): {
  backupSchedule: BackupSettings | null;
  backupIntervalMs: number | null;
} {
  if (config.BACKUP_TO === undefined) return { backupSchedule: null, backupIntervalMs: null };
  const intervalMs = config.BACKUP_INTERVAL;
  const run = overrides.backUp ?? ((signal) => runScheduled(config.backupEnv, signal));
  return { backupSchedule: { intervalMs, run }, backupIntervalMs: intervalMs };
}

const statusesOf = (
  { config, stores }: Start,
  vault: Pick<Vault, 'open'>,
  allowedHosts: readonly string[],
): StatusSettings => ({
  send: createSendToForge({ allowedHosts }),
  async tokenOf(projectId) {
    const token = await stores.gitTokens.get(projectId);
    if (token === null) return null;
    const { username, api_url: apiUrl, sealed } = token;
    const opened = await vault.open(projectId, 'git-token', sealed);
    return { username, apiUrl, token: opened.toString() };
  },
  publicUrl: config.PUBLIC_URL,
});
