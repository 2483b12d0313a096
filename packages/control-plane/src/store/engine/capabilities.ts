/**
 * The differences between the engines, by name. The rest of store/ checks capabilities, never the
 * engine. Values are portable where possible: ids and JSON are text, times are integers (ms),
 * booleans are 0 and 1.
 */
import { type ColumnDefinitionBuilder, type RawBuilder, sql } from 'kysely';
import type { Db, Tx } from './tables.ts';
import { StoreError } from './errors.ts';

/** Why a transaction that changed no data can be retried. */
export type Transient =
  /** Another process holds the lock of the database. */
  | 'locked'
  /** The engine ended this transaction as a deadlock victim, or its wait for a lock timed out. */
  | 'contended'
  /** The connection failed before a commit. */
  | 'unreachable';

/** The part of Connection (connection.ts) that `shrinkFile` needs. */
type Reclaimable = { kysely: Db; writeUnsynced: (run: (tx: Tx) => Promise<void>) => Promise<void> };

export type Capabilities = {
  engine: 'sqlite' | 'postgres';
  /**
   * Whether several control planes can use one database. If false, the file is locked when it is
   * opened.
   */
  sharedByControlPlanes: boolean;
  /** Type and modifiers of an auto-increment primary key. */
  autoNumber: {
    type: 'integer' | 'bigserial';
    with: (column: ColumnDefinitionBuilder) => ColumnDefinitionBuilder;
  };
  /**
   * Type of text that is compared and sorted by its bytes in every locale, so that pages and the
   * proxy's configuration always have the same order.
   */
  text: 'text' | RawBuilder<unknown>;
  /** Type of a column with bytes. */
  bytes: 'blob' | 'bytea';
  /** Whether NOT NULL can be dropped in place. If false, a migration copies the table. */
  dropsNotNull: boolean;
  /**
   * Whether several transactions can write at the same time. If true, a decision reads its rows
   * `for update`, so that they stay unchanged until the transaction ends. If false, there is one
   * writer at a time.
   */
  rowLocks: boolean;
  /** Locks a name until the transaction ends. Used for rules about rows that do not exist yet. */
  lockName: (tx: Tx, name: string) => Promise<void>;
  /**
   * Returns a short text that changes whenever one of these columns changes; '' if no other process
   * can change them.
   */
  digest: (columns: readonly string[]) => RawBuilder<string>;
  /**
   * Runs a statement without waiting for the disk, so a crash of the machine can undo it. In the
   * embedded engine, the wait for the disk blocks the whole process.
   */
  unsynced: <T>(db: Db, run: (db: Db) => Promise<T>) => Promise<T>;
  /**
   * Returns the elements of a JSON array as a table with the column `value`, so that thousands of
   * rows need one parameter and one SQL text.
   */
  jsonElements: (json: string) => RawBuilder<unknown>;
  /**
   * Returns the JSON text of a column without the key at `path`, whose names consist of letters,
   * digits and `_`.
   */
  withoutKey: (column: string, path: readonly string[]) => RawBuilder<string>;
  /**
   * Returns a few free pages to the file system; resolves with false if too few are free. Null if
   * the engine does this itself.
   */
  shrinkFile: ((db: Reclaimable) => Promise<boolean>) | null;
  /**
   * Moves a row that became smaller to the end of its table. In its old place it would occupy a
   * nearly empty page, because the engine never merges pages. Null if the engine reuses space
   * within pages.
   */
  packDeployment: ((tx: Tx, id: string) => Promise<unknown>) | null;
  /** Returns the size of the database on disk and the free part of it, in bytes. */
  size: (db: Db) => Promise<{ bytes: number; free: number }>;
  /** Returns whether the error is a violation of the unique constraint on this column. */
  violatesUnique: (error: unknown, table: string, column: string) => boolean;
  /**
   * Returns why the transaction changed no data and can be retried; null if it must not be retried.
   */
  transient: (error: unknown) => Transient | null;
};

const codeOf = (error: unknown): string =>
  error instanceof Error && 'code' in error ? String(error.code) : '';

const pragma = async (db: Db, name: string): Promise<number> => {
  const { rows } = await sql<Record<string, number>>`pragma ${sql.raw(name)}`.execute(db);
  return Object.values(rows[0] ?? {})[0] ?? 0;
};
/** Free pages that stay in the file for later writes. */
const SPARE_PAGES = 2_000;
/** Number of pages that one step cuts off the end of the file; each takes less than 1 ms. */
const PAGES_PER_STEP = 24;
const INCREMENTAL = 2;

async function shrinkByPages(db: Reclaimable): Promise<boolean> {
  const [mode, free] = [
    await pragma(db.kysely, 'auto_vacuum'),
    await pragma(db.kysely, 'freelist_count'),
  ];
  if (mode !== INCREMENTAL || free <= SPARE_PAGES) return false;
  await db.writeUnsynced(async (tx) => {
    // Frees one page in each statement: SQLite returns a row for each page, and the driver stops at
    // the first row.
    for (let i = 0; i < Math.min(PAGES_PER_STEP, free - SPARE_PAGES); i++)
      await sql`pragma incremental_vacuum(1)`.execute(tx);
  });
  return true;
}

export const SQLITE: Capabilities = {
  engine: 'sqlite',
  sharedByControlPlanes: false,
  // AUTOINCREMENT never reuses a number, even after the last row was deleted.
  autoNumber: { type: 'integer', with: (column) => column.primaryKey().autoIncrement() },
  text: 'text',
  bytes: 'blob',
  dropsNotNull: false,
  rowLocks: false,
  // Needs no lock, because only one transaction writes at a time.
  lockName: () => Promise.resolve(),
  digest: () => sql<string>`''`,
  jsonElements: (json) => sql`json_each(${json})`,
  withoutKey: (column, path) =>
    sql`json_remove(${sql.ref(column)}, ${`$${path.map((name) => `."${name}"`).join('')}`})`,
  shrinkFile: shrinkByPages,
  packDeployment: (tx, id) =>
    sql`
      update deployments set rowid = (select max(rowid) + 1 from deployments)
      where id = ${id}`.execute(tx),
  async size(db) {
    const [page, pages, free] = [
      await pragma(db, 'page_size'),
      await pragma(db, 'page_count'),
      await pragma(db, 'freelist_count'),
    ];
    return { bytes: page * pages, free: page * free };
  },
  // The next synced commit also writes this one to the disk.
  unsynced: (db, run) =>
    db.connection().execute(async (one) => {
      await sql`pragma synchronous = normal`.execute(one);
      try {
        return await run(one);
      } finally {
        await sql`pragma synchronous = full`.execute(one);
      }
    }),
  violatesUnique: (error, table, column) =>
    codeOf(error).startsWith('SQLITE_CONSTRAINT') &&
    error instanceof Error &&
    error.message === `UNIQUE constraint failed: ${table}.${column}`,
  // Only BEGIN IMMEDIATE can fail because of another process's lock; a transaction that has begun
  // holds the lock itself.
  transient: (error) => (codeOf(error).startsWith('SQLITE_BUSY') ? 'locked' : null),
};

/** SQLSTATE codes: serialization_failure, deadlock_detected, lock_not_available (lock_timeout). */
const CONTENDED = ['40001', '40P01', '55P03'];

export const POSTGRES: Capabilities = {
  engine: 'postgres',
  sharedByControlPlanes: true,
  autoNumber: { type: 'bigserial', with: (column) => column.primaryKey() },
  text: sql`text collate "C"`,
  bytes: 'bytea',
  dropsNotNull: true,
  rowLocks: true,
  async lockName(tx, name) {
    await sql`select pg_advisory_xact_lock(hashtextextended(${name}, 0))`.execute(tx);
  },
  withoutKey: (column, path) =>
    sql`cast(
        cast(${sql.ref(column)} as jsonb) #- cast(${`{${path.join(',')}}`} as text[])
      as text)`,
  jsonElements: (json) => sql`jsonb_array_elements(cast(${json} as jsonb)) as elements(value)`,
  // Not needed: autovacuum frees the space of deleted rows for new rows, so tables do not grow.
  shrinkFile: null,
  packDeployment: null,
  async size(db) {
    const { rows } = await sql<{
      bytes: number;
    }>`select pg_database_size(current_database()) as bytes`.execute(db);
    return { bytes: rows[0]?.bytes ?? 0, free: 0 };
  },
  unsynced: (db, run) => run(db),
  digest: (columns) =>
    sql<string>`md5(row(${sql.join(columns.map((column) => sql.ref(column)))})::text)`,
  // The migrations name every unique constraint in this form.
  violatesUnique: (error, table, column) =>
    codeOf(error) === '23505' &&
    error instanceof Error &&
    'constraint' in error &&
    error.constraint === `${table}_${column}_unique`,
  transient: (error) => {
    if (error instanceof StoreError) return error.code === 'unreachable' ? 'unreachable' : null;
    return CONTENDED.includes(codeOf(error)) ? 'contended' : null;
  },
};
