/**
 * Migrates a database to the tables of this version, or leaves it unchanged: all steps run in one
 * transaction.
 *
 * A step expands the schema (only adds to it, so older versions can still use the database) or
 * contracts it (removes parts that no version in use needs). `berth_migrations` has the steps that
 * a version must know: a version that lacks one of them refuses the database.
 * `berth_migrations_log` has every step after LAST_UNLOGGED_STEP, with the version that ran it. So
 * an older version can start on a database that newer versions have only expanded.
 */
import { BERTH_VERSION } from '@berth/wire/version';
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import { failPoint } from '@berth/kit/fail-point';
import { StoreError } from './errors.ts';

/** `contracts`: older versions cannot use the database after this step. */
export type Step = Migration & { contracts?: true };
export type Steps = Record<string, Step>;

/**
 * Runs before the first step on a database that has tables. Returns the path of its snapshot, or
 * null. If it throws, no step runs.
 */
export type BeforeMigration = (missing: readonly string[]) => Promise<string | null>;

/** Table of the steps that a version must know to use the database. */
const REQUIRED_STEPS_TABLE = 'berth_migrations';
/** Table of every step after LAST_UNLOGGED_STEP, with the version that ran it. */
const STEP_LOG_TABLE = 'berth_migrations_log';
/**
 * Last step before STEP_LOG_TABLE existed. Versions from that time stop at any step that they do
 * not know, so every step up to this one is recorded in REQUIRED_STEPS_TABLE.
 */
const LAST_UNLOGGED_STEP = '0019_backups';

type Tables = {
  [REQUIRED_STEPS_TABLE]: { name: string; timestamp: string };
  [STEP_LOG_TABLE]: { name: string; timestamp: string; berth: string; snapshot: string | null };
};

type Options = {
  before?: BeforeMigration | undefined;
  /** Called with the steps of a newer version that this version does not need to know. */
  onNewer?: (steps: LoggedStep[]) => void;
};

/** Returns whether versions that do not know this step must refuse the database. */
export const isRequired = (name: string, step: Step | undefined): boolean =>
  name <= LAST_UNLOGGED_STEP || step?.contracts === true;

/**
 * Returns the names of the steps that it ran. If several control planes start at once, one runs the
 * steps and the others wait.
 */
export async function migrate(
  db: Kysely<unknown>,
  steps: Steps,
  { before: beforeFirstStep, onNewer }: Options = {},
): Promise<string[]> {
  const stepsBefore = await presentIn(db);
  if (missingIn(stepsBefore, steps).length === 0) {
    const newer = stepsBefore.log.filter(({ name }) => !Object.hasOwn(steps, name));
    if (newer.length > 0) onNewer?.(newer);
    return [];
  }
  return db.connection().execute(async (one) => {
    const { adapter } = one.getExecutor();
    // PostgreSQL: a session lock, which older versions take too. SQLite: the process has already
    // locked the file.
    const lock = { lockTable: '', lockRowId: '' };
    await adapter.acquireMigrationLock(one, lock);
    try {
      const present = await presentIn(one);
      const missing = missingIn(present, steps);
      if (missing.length === 0) return [];
      const snapshot =
        present.applied.length === 0 ? null : ((await beforeFirstStep?.(missing)) ?? null);
      await runSteps(one, steps, missing, snapshot);
      return missing;
    } finally {
      // Ignores the error: if the connection is lost, the server releases the lock.
      await adapter.releaseMigrationLock(one, lock).catch(() => {});
    }
  });
}

async function runSteps(
  db: Kysely<unknown>,
  steps: Steps,
  missing: readonly string[],
  snapshot: string | null,
): Promise<void> {
  let doing = 'before the first one';
  try {
    await db.transaction().execute(async (transaction) => {
      const tx = transaction as unknown as Kysely<Tables>;
      await ensureStepTables(tx);
      for (const name of missing) {
        doing = name;
        await steps[name]?.up(transaction as Kysely<unknown>);
        const timestamp = new Date().toISOString();
        if (isRequired(name, steps[name]))
          await tx.insertInto(REQUIRED_STEPS_TABLE).values({ name, timestamp }).execute();
        if (name > LAST_UNLOGGED_STEP)
          await tx
            .insertInto(STEP_LOG_TABLE)
            .values({ name, timestamp, berth: BERTH_VERSION, snapshot })
            .execute();
        await failPoint('migrate.step');
      }
    });
  } catch (error) {
    const reason = error instanceof Error ? error.message : JSON.stringify(error);
    throw new StoreError(
      'migration_failed',
      `the migration of the database failed (${doing}): ${reason}; the database is unchanged`,
      {
        cause: error,
      },
    );
  }
  await failPoint('migrate.after');
}

/** Creates `berth_migrations` with the columns that older versions gave it. */
async function ensureStepTables(tx: Kysely<Tables>): Promise<void> {
  await tx.schema
    .createTable(REQUIRED_STEPS_TABLE)
    .ifNotExists()
    .addColumn('name', 'varchar(255)', (c) => c.notNull().primaryKey())
    .addColumn('timestamp', 'varchar(255)', (c) => c.notNull())
    .execute();
  await tx.schema
    .createTable(STEP_LOG_TABLE)
    .ifNotExists()
    .addColumn('name', 'varchar(255)', (c) => c.notNull().primaryKey())
    .addColumn('timestamp', 'varchar(255)', (c) => c.notNull())
    .addColumn('berth', 'text', (c) => c.notNull())
    .addColumn('snapshot', 'text')
    .execute();
}

/**
 * Returns the steps that the database lacks. Throws StoreError if the database needs a newer
 * version.
 */
export function missingIn(present: Present, steps: Steps): string[] {
  refuseNewer(present, steps);
  return Object.keys(steps)
    .filter((name) => !present.applied.includes(name))
    .sort();
}

/** Throws StoreError if the database needs a newer version. */
export function refuseNewer({ needed, log }: Present, steps: Steps): void {
  const unknown = needed.filter((name) => !Object.hasOwn(steps, name));
  if (unknown.length === 0) return;
  const newestStep = Object.keys(steps).sort().at(-1) ?? 'none';
  const by = log.filter(({ name }) => unknown.includes(name));
  const version = by.at(-1)?.berth;
  const which = version === undefined ? 'a newer version of Berth' : `Berth ${version}`;
  const snapshot = by.find((step) => step.snapshot !== null)?.snapshot ?? null;
  const back =
    snapshot === null
      ? 'restore the backup from before the upgrade'
      : `go back with berth restore ${snapshot}`;
  throw new StoreError(
    'newer_database',
    `${which} migrated the database to ${unknown.join(', ')}, and this is Berth ` +
      `${BERTH_VERSION}, which knows the schema up to ${newestStep}: ` +
      `start ${version === undefined ? 'that version' : `${which} or newer`}, or ${back} ` +
      '(docs/upgrade.md)',
  );
}

/** Throws StoreError if the database does not have the tables of this version. */
export async function requireMigrated(
  db: Kysely<unknown>,
  name: string,
  steps: Steps,
): Promise<void> {
  const missing = missingIn(await presentIn(db), steps);
  if (missing.length > 0)
    throw new StoreError(
      'older_database',
      `the database ${name} lacks ${missing.length} migrations of this version: start its ` +
        'control plane once',
    );
}

export type LoggedStep = Tables[typeof STEP_LOG_TABLE];
export type Present = {
  /** All steps that were applied to the database. */
  applied: string[];
  /** The steps that a version must know to use the database. */
  needed: string[];
  /** The steps after LAST_UNLOGGED_STEP. */
  log: LoggedStep[];
};

export async function presentIn(db: Kysely<unknown>): Promise<Present> {
  const tables = (await db.introspection.getTables({ withInternalKyselyTables: true })).map(
    (table) => table.name,
  );
  const typed = db as Kysely<Tables>;
  const rows = tables.includes(REQUIRED_STEPS_TABLE)
    ? await typed.selectFrom(REQUIRED_STEPS_TABLE).select('name').execute()
    : [];
  const log = tables.includes(STEP_LOG_TABLE)
    ? await typed.selectFrom(STEP_LOG_TABLE).selectAll().orderBy('name').execute()
    : [];
  const needed = rows.map((row) => row.name).sort();
  return {
    needed,
    log,
    applied: [...new Set([...needed, ...log.map((step) => step.name)])].sort(),
  };
}
