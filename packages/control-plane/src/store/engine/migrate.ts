/** Migrates a database to the tables of this version, or leaves it unchanged: all migrations run in one transaction. */
import type { Kysely } from 'kysely';
import { type Migration, Migrator } from 'kysely/migration';
import { StoreError } from './errors.ts';

const MIGRATION_TABLE = 'berth_migrations';
const MIGRATION_LOCK_TABLE = 'berth_migrations_lock';

/** Returns the names of the migrations that it applied. */
export async function migrate(db: Kysely<unknown>, migrations: Record<string, Migration>): Promise<string[]> {
  const present = await applied(db);
  refuseNewer(present, migrations);
  if (present.length === Object.keys(migrations).length) return [];
  const migrator = new Migrator({
    db,
    provider: { getMigrations: () => Promise.resolve(migrations) },
    migrationTableName: MIGRATION_TABLE,
    migrationLockTableName: MIGRATION_LOCK_TABLE,
  });
  const { error, results } = await migrator.migrateToLatest();
  if (error !== undefined) {
    const failed = results?.find((result) => result.status === 'Error')?.migrationName ?? 'before the first one';
    const reason = error instanceof Error ? error.message : JSON.stringify(error);
    throw new StoreError('migration_failed', `the migration of the database failed (${failed}): ${reason}; the database is unchanged`, {
      cause: error,
    });
  }
  return (results ?? []).map((result) => result.migrationName);
}

/** Throws StoreError if this version does not know one of the migrations. */
export function refuseNewer(present: readonly string[], migrations: Record<string, Migration>): void {
  const unknown = present.filter((name) => !Object.hasOwn(migrations, name));
  if (unknown.length > 0) {
    throw new StoreError(
      'newer_database',
      `a newer version of Berth migrated the database (to ${unknown.join(', ')}; this version knows migrations up to ` +
        `${Object.keys(migrations).sort().at(-1) ?? 'none'}): start that version, or restore the backup from before the upgrade`,
    );
  }
}

/** Throws StoreError if the database does not have exactly the tables of this version. */
export async function requireMigrated(db: Kysely<unknown>, name: string, migrations: Record<string, Migration>): Promise<void> {
  const present = await applied(db);
  refuseNewer(present, migrations);
  const missing = Object.keys(migrations).filter((migration) => !present.includes(migration));
  if (missing.length > 0)
    throw new StoreError(
      'older_database',
      `the database ${name} lacks ${missing.length} migrations of this version: start its control plane once`,
    );
}

/** Returns the names of the migrations that a database has. */
export async function applied(db: Kysely<unknown>): Promise<string[]> {
  const tables = await db.introspection.getTables({ withInternalKyselyTables: true });
  if (!tables.some((table) => table.name === MIGRATION_TABLE)) return [];
  const rows = await (db as Kysely<{ [MIGRATION_TABLE]: { name: string } }>).selectFrom(MIGRATION_TABLE).select('name').execute();
  return rows.map((row) => row.name).sort();
}
