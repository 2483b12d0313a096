/** Opens the database and creates the stores. app.ts imports no other file of store/. */
import type { BackupStore } from '../domain/platform/backups.ts';
import { DOMAIN_QUARANTINE_MS } from '../domain/routes/domains.ts';
import type { RotationSource } from '../domain/secrets/rotation.ts';
import { createBackupStore } from './backups.ts';
import type { Claiming } from './claiming.ts';
import { createCleanUpStore } from './clean-ups.ts';
import { createStatusStore } from './commit-statuses.ts';
import { createDataCopyStore } from './datasets/data-copies.ts';
import { createDatasetStore } from './datasets/datasets.ts';
import { createDeploymentStore } from './deployments.ts';
import { createDomainStore } from './domains.ts';
import { type Database, openBeside, openDatabase } from './engine/database.ts';
import type { StoreLog } from './engine/errors.ts';
import type { BeforeMigration } from './engine/migrate.ts';
import { allMigrations } from './engine/migrations/all.ts';
import { createEventStore } from './events.ts';
import { createExecSessionStore } from './exec-sessions.ts';
import { createExitStore } from './exits.ts';
import { createFlowStore } from './flow.ts';
import { createDeployKeyStore } from './git/deploy-keys.ts';
import { createGitHostStore } from './git/git-hosts.ts';
import { createGitTokenStore } from './git/git-tokens.ts';
import { createHookStore } from './hooks.ts';
import { createIdempotencyAnswerStore } from './idempotency-answers.ts';
import { createApiSessionStore } from './identity/api-sessions.ts';
import { createApiTokenStore } from './identity/api-tokens.ts';
import { createAuditStore } from './identity/audit.ts';
import { createDeviceCodeStore } from './identity/device-codes.ts';
import { createDeviceTokenStore } from './identity/device-tokens.ts';
import { createJoinTokenStore } from './identity/join-tokens.ts';
import { createAdmissionStore } from './identity/node-admissions.ts';
import { createPolicyStore } from './identity/policy.ts';
import { createRecovery, type Recovered, type Recovery } from './identity/recovery.ts';
import { createRevokedSessionStore } from './identity/revoked-sessions.ts';
import { createUsedCodeStore } from './identity/used-codes.ts';
import { createUserStore } from './identity/users.ts';
import { type NewId, randomId } from './ids.ts';
import { createLogWantStore } from './log-wants.ts';
import { createLogStore } from './logs.ts';
import { createNodeMemory } from './memory/node-memory.ts';
import { createNodeQueryCache } from './memory/node-query-cache.ts';
import { createMetaStore } from './meta.ts';
import { createMetricsStore } from './metric-counts.ts';
import { createNodeStore, withoutSecret } from './nodes.ts';
import { createNotificationStore } from './notifications.ts';
import { createProblemStore } from './problems.ts';
import { createProjectKeyStore } from './project-keys.ts';
import { createProjectStore } from './projects.ts';
import { createRepositoryLookStore } from './repository-looks.ts';
import { createRetentionStore } from './retention.ts';
import { createRouteStore } from './routes.ts';
import { createJobStore } from './jobs.ts';
import { createRunStore } from './runs.ts';
import { createSecretStore } from './secrets.ts';
import { createTaskStore } from './tasks.ts';
import { createUnmanagedStore } from './unmanaged.ts';
import { createUptimeStore } from './uptime.ts';
import { createUsageStore } from './usage.ts';
import { createInstanceStore } from './instances.ts';
import { createVolumeStore } from './volumes.ts';

export type { BeforeMigration };

export type OpenStores = {
  /** `sqlite:path` (from the working directory), `sqlite::memory:` for tests, or `postgres://…`. */
  databaseUrl: string;
  log: StoreLog;
  now?: () => number;
  /** For tests: initial content of `sqlite::memory:`, which saves the 30 ms of the migrations. */
  image?: Buffer;
  /** Runs before the migration of a database that has tables. */
  before?: BeforeMigration;
  /** DOMAIN_QUARANTINE in ms. */
  domainQuarantineMs?: number;
};

/** The stores of one database. Only app.ts and tests use all of them. */
export type AllStores = ReturnType<typeof storesOn>;

/**
 * Opens the database and migrates it. Throws StoreError, whose message is for the person who starts
 * the control plane.
 */
export async function openStores({
  databaseUrl,
  log,
  now = Date.now,
  image,
  before,
  domainQuarantineMs,
}: OpenStores): Promise<AllStores> {
  return storesOn(
    await openDatabase(databaseUrl, log, now, { image, before }),
    now,
    randomId,
    domainQuarantineMs,
  );
}

/**
 * Opens the database to recover an admin account, while a control plane can be running. Throws
 * StoreError, whose message is for the operator.
 */
export async function openRecovery({ databaseUrl, log }: OpenStores): Promise<{
  recover(given: Recovery, now: number): Promise<Recovered>;
  close(): Promise<void>;
}> {
  const db = await openBeside(databaseUrl, log);
  return { recover: createRecovery(db, randomId), close: db.close };
}

/**
 * Opens the record of backups, while a control plane can be running. Throws StoreError;
 * `older_database` if this version has not migrated the database yet.
 */
export async function openBackups({
  databaseUrl,
  log,
}: OpenStores): Promise<BackupStore & { close(): Promise<void> }> {
  const db = await openBeside(databaseUrl, log);
  return { ...createBackupStore(db), close: db.close };
}

/**
 * Opens the data that `berth rotation` reads, while a control plane can be running. Throws
 * StoreError.
 */
export async function openRotation({
  databaseUrl,
  log,
}: OpenStores): Promise<RotationSource & { close(): Promise<void> }> {
  const db = await openBeside(databaseUrl, log);
  return {
    meta: createMetaStore(db),
    nodes: { withoutSecret: () => withoutSecret(db) },
    projectKeys: createProjectKeyStore(db),
    close: db.close,
  };
}

/**
 * Opens a database for an export (`existing`: a control plane can be running) or an import (`new`:
 * creates the tables, and takes the lock of a SQLite file). Throws StoreError.
 */
export async function openTransfer(
  databaseUrl: string,
  which: 'existing' | 'new',
): Promise<Database & { schema: string }> {
  const log: StoreLog = { info: () => {}, warn: () => {} };
  const db =
    which === 'existing'
      ? await openBeside(databaseUrl, log)
      : await openDatabase(databaseUrl, log, Date.now);
  return { ...db, schema: schemaOf(db) };
}

const schemaOf = (db: Pick<Database, 'capabilities'>): string =>
  Object.keys(allMigrations(db.capabilities)).sort().at(-1) ?? '';

/**
 * Creates stores with their own memory, as in a separate process. `newId`: tests can set it,
 * because ids decide the order of otherwise equal rows.
 */
export function storesOn(
  db: Database,
  now: () => number,
  newId: NewId = randomId,
  domainQuarantineMs: number = DOMAIN_QUARANTINE_MS,
) {
  const queryCache = createNodeQueryCache(db);
  const memory = createNodeMemory(db, queryCache);
  const claiming: Claiming = { db, newId, quarantineMs: domainQuarantineMs };
  return {
    projects: createProjectStore(claiming, now),
    domains: createDomainStore(claiming),
    projectKeys: createProjectKeyStore(db),
    secrets: createSecretStore(db),
    volumes: createVolumeStore(db),
    instances: createInstanceStore(db),
    unmanaged: createUnmanagedStore(db),
    deployments: createDeploymentStore(db, memory, queryCache),
    flow: createFlowStore(claiming, memory, queryCache, now),
    tasks: createTaskStore(db, memory),
    logs: createLogStore(db),
    logWants: createLogWantStore(db),
    execSessions: createExecSessionStore(db),
    exits: createExitStore(db),
    nodes: createNodeStore(db, memory, now, newId),
    joinTokens: createJoinTokenStore(db),
    admissions: createAdmissionStore(db, newId),
    datasets: createDatasetStore(db, newId, now),
    dataCopies: createDataCopyStore(db),
    deployKeys: createDeployKeyStore(db),
    gitTokens: createGitTokenStore(db),
    gitHosts: createGitHostStore(db),
    routes: createRouteStore(db),
    users: createUserStore(db, newId, now),
    apiSessions: createApiSessionStore(db),
    apiTokens: createApiTokenStore(db),
    revokedSessions: createRevokedSessionStore(db),
    usedCodes: createUsedCodeStore(db),
    deviceCodes: createDeviceCodeStore(db),
    deviceTokens: createDeviceTokenStore(db),
    audit: createAuditStore(db),
    idempotencyAnswers: createIdempotencyAnswerStore(db),
    events: createEventStore(db),
    hooks: createHookStore(db),
    commitStatuses: createStatusStore(db),
    problems: createProblemStore(db),
    notifications: createNotificationStore(db, newId),
    backups: createBackupStore(db),
    cleanUps: createCleanUpStore(db),
    repositoryLooks: createRepositoryLookStore(db),
    runs: createRunStore(db),
    jobs: createJobStore(db),
    schema: schemaOf(db),
    policy: createPolicyStore(db),
    meta: createMetaStore(db),
    uptime: createUptimeStore(db),
    usage: createUsageStore(db),
    retention: createRetentionStore(db, memory),
    metrics: createMetricsStore(db, memory),
    notifier: db.notifier,
    logRelay: db.logRelay,
    async ping() {
      await db.kysely.selectFrom('meta').select('key').limit(1).execute();
    },
    async close() {
      try {
        await memory.flush();
      } finally {
        await db.close();
      }
    },
  };
}
