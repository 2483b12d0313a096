/**
 * What differs between the engines, by name. The rest of store/ asks these and never which engine it is; a value is
 * portable where it can be: ids and JSON are text, times are integers (ms), booleans are 0 and 1.
 */
import { type ColumnDefinitionBuilder, type RawBuilder, sql } from 'kysely';
import type { Db, Tx } from './tables.ts';
import { StoreError } from './errors.ts';

/** Why a transaction that did nothing may be run again. */
export type Transient =
  /** Somebody else's lock. */
  | 'locked'
  /** The engine chose us to end a deadlock, or a lock was not given in time. */
  | 'contended'
  /** The connection was lost, or could not be made, before anything was committed. */
  | 'unreachable';

/** The part of Doors (doors.ts) that reclaiming space needs. */
type Reclaimable = { kysely: Db; writeUnsynced: (run: (tx: Tx) => Promise<void>) => Promise<void> };

export type Capabilities = {
  engine: 'sqlite' | 'postgres';
  /** Several control planes may use one database; without it the file is locked at open. */
  sharedByControlPlanes: boolean;
  /** A primary key that numbers its rows by itself, rising. */
  autoNumber: { type: 'integer' | 'bigserial'; with: (column: ColumnDefinitionBuilder) => ColumnDefinitionBuilder };
  /** Text that is compared and sorted by its bytes, whatever the machine's language: pages and the proxy's bytes come in one order. */
  text: 'text' | RawBuilder<unknown>;
  /** A column of bytes. */
  bytes: 'blob' | 'bytea';
  /** Whether NOT NULL can be taken off a column where it stands; else a migration makes the table anew. */
  dropsNotNull: boolean;
  /**
   * Others write at the same time, so a row that a decision rests on is read `for update`: what is true of it then stays true
   * until the transaction ends. Without it (one writer at a time) nothing can move meanwhile.
   */
  rowLocks: boolean;
  /** Until the transaction ends nobody else holds this name: for rules about rows that are not there yet. */
  holdName: (tx: Tx, name: string) => Promise<void>;
  /** A short text that differs whenever one of these columns does; '' where nobody else can change them. */
  digest: (columns: readonly string[]) => RawBuilder<string>;
  /**
   * Runs a statement whose effect may be lost with the machine: it does not wait for the disk. In the embedded engine that wait
   * stops everything else.
   */
  unsynced: <T>(db: Db, run: (db: Db) => Promise<T>) => Promise<T>;
  /** A table with the column `value`: the elements of a JSON array. One parameter for thousands of rows, and a text that stays the same. */
  elements: (json: string) => RawBuilder<unknown>;
  /** Gives a little of the space that deletions left back to the disk; false: there is too little. Null: the engine does so by itself. */
  giveBack: ((db: Reclaimable) => Promise<boolean>) | null;
  /**
   * Moves a row that became smaller to the end of its table: in its old place it would keep the page that it had nearly to itself, since
   * the engine never joins pages by itself. Null: the engine uses the space within pages.
   */
  packDeployment: ((tx: Tx, id: string) => Promise<unknown>) | null;
  /** What the database takes on the disk, and how much of that is empty. */
  size: (db: Db) => Promise<{ bytes: number; free: number }>;
  /** Whether this error says that a row with the same value in that unique column is there. */
  violatesUnique: (error: unknown, table: string, column: string) => boolean;
  /** The transaction did nothing and may be run again; null: it may not. */
  transient: (error: unknown) => Transient | null;
};

const codeOf = (error: unknown): string => (error instanceof Error && 'code' in error ? String(error.code) : '');

const pragma = async (db: Db, name: string): Promise<number> => {
  const { rows } = await sql<Record<string, number>>`pragma ${sql.raw(name)}`.execute(db);
  return Object.values(rows[0] ?? {})[0] ?? 0;
};
/** Pages that stay for what is written next: to cut them off and make them anew would be work for nothing. */
const SPARE_PAGES = 2_000;
/** Less than a millisecond each (bench/retention.ts); a step cuts one page off the end of the file. */
const PAGES_A_STEP = 24;
const INCREMENTAL = 2;

async function giveBackPages(db: Reclaimable): Promise<boolean> {
  const [mode, free] = [await pragma(db.kysely, 'auto_vacuum'), await pragma(db.kysely, 'freelist_count')];
  if (mode !== INCREMENTAL || free <= SPARE_PAGES) return false;
  await db.writeUnsynced(async (tx) => {
    // One page each: the statement is a row for each page to SQLite, of which the driver takes the first.
    for (let i = 0; i < Math.min(PAGES_A_STEP, free - SPARE_PAGES); i++) await sql`pragma incremental_vacuum(1)`.execute(tx);
  });
  return true;
}

export const SQLITE: Capabilities = {
  engine: 'sqlite',
  sharedByControlPlanes: false,
  // AUTOINCREMENT: a number is never used twice, also not after the last row was deleted.
  autoNumber: { type: 'integer', with: (column) => column.primaryKey().autoIncrement() },
  text: 'text',
  bytes: 'blob',
  dropsNotNull: false,
  rowLocks: false,
  // A transaction that writes is alone in the file.
  holdName: () => Promise.resolve(),
  digest: () => sql<string>`''`,
  elements: (json) => sql`json_each(${json})`,
  giveBack: giveBackPages,
  packDeployment: (tx, id) => sql`update deployments set rowid = (select max(rowid) + 1 from deployments) where id = ${id}`.execute(tx),
  async size(db) {
    const [page, pages, free] = [await pragma(db, 'page_size'), await pragma(db, 'page_count'), await pragma(db, 'freelist_count')];
    return { bytes: page * pages, free: page * free };
  },
  // What is committed after it waits for the disk, and brings it there too.
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
  // Only BEGIN IMMEDIATE can meet a foreign lock; a transaction that has begun has it.
  transient: (error) => (codeOf(error).startsWith('SQLITE_BUSY') ? 'locked' : null),
};

/** serialization_failure, deadlock_detected, lock_not_available (lock_timeout). */
const CONTENDED = ['40001', '40P01', '55P03'];

export const POSTGRES: Capabilities = {
  engine: 'postgres',
  sharedByControlPlanes: true,
  autoNumber: { type: 'bigserial', with: (column) => column.primaryKey() },
  text: sql`text collate "C"`,
  bytes: 'bytea',
  dropsNotNull: true,
  rowLocks: true,
  async holdName(tx, name) {
    await sql`select pg_advisory_xact_lock(hashtextextended(${name}, 0))`.execute(tx);
  },
  elements: (json) => sql`jsonb_array_elements(cast(${json} as jsonb)) as elements(value)`,
  // autovacuum makes the space of deleted rows free for new ones; tables do not shrink, and do not grow either.
  giveBack: null,
  packDeployment: null,
  async size(db) {
    const { rows } = await sql<{ bytes: number }>`select pg_database_size(current_database()) as bytes`.execute(db);
    return { bytes: rows[0]?.bytes ?? 0, free: 0 };
  },
  unsynced: (db, run) => run(db),
  digest: (columns) => sql<string>`md5(row(${sql.join(columns.map((column) => sql.ref(column)))})::text)`,
  // The migrations name every unique constraint so.
  violatesUnique: (error, table, column) =>
    codeOf(error) === '23505' && error instanceof Error && 'constraint' in error && error.constraint === `${table}_${column}_unique`,
  transient: (error) => {
    if (error instanceof StoreError) return error.code === 'unreachable' ? 'unreachable' : null;
    return CONTENDED.includes(codeOf(error)) ? 'contended' : null;
  },
};
