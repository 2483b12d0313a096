/** The embedded engine: better-sqlite3 under Kysely, set up so that what was acknowledged is on the disk. */
import { closeSync, existsSync, mkdirSync, openSync, realpathSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import Sqlite from 'better-sqlite3';
import {
  CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  type SqliteDatabase,
  SqliteAdapter,
  SqliteDialect,
  type SqliteDialectConfig,
  SqliteDriver,
  SqliteQueryCompiler,
  type SqliteStatement,
  type TransactionSettings,
} from 'kysely';
import { type Checkpoints, createCheckpoints, NO_CHECKPOINTS } from './checkpoints.ts';
import { StoreError } from './errors.ts';
import { holdLock } from './lock.ts';
import { makeShrinkable } from './shrinkable.ts';
import { createTurns } from './turns.ts';

/** Before it, a WAL could be reset under a reader, which corrupts the file (https://sqlite.org/wal.html#walresetbug). */
const OLDEST_SQLITE = '3.51.3';
/**
 * SQLite waits inside the call, where nothing else runs: each write that waits for a foreign lock would stop the platform
 * for so long, again and again. So hardly at all here; the long wait is Database.write's. (Reads wait for nobody in WAL mode.)
 */
const BUSY_TIMEOUT_MS = 1;
/** At open nothing else runs yet: a backup's moment of exclusive access is sat out. */
const OPEN_TIMEOUT_MS = 5000;
const CACHED_STATEMENTS = 500;
/** Statements with a row of parameters for each log line differ with every batch: not worth a place in the cache. */
const CACHED_SQL_LENGTH = 4096;

export function assertSqliteVersion(version: string): void {
  const [have, need] = [version, OLDEST_SQLITE].map((v) => v.split('.').map(Number)) as [number[], number[]];
  for (const [i, least] of need.entries()) {
    const part = have[i] ?? 0;
    if (part > least) return;
    if (part < least || Number.isNaN(part)) {
      throw new StoreError(
        'engine_too_old',
        `SQLite ${version} can corrupt a database in WAL mode; at least ${OLDEST_SQLITE} is needed (npm run setup installs it)`,
      );
    }
  }
}

export type OpenSqlite = { dialect: Dialect; path: string; release: () => void };

type OpenOptions = {
  onTrouble?: (problem: string) => void;
  /** Told what was done about a file that cannot shrink, or why nothing was done. */
  onCompact?: (fields: object, message: string) => void;
  versionOf?: (database: Sqlite.Database) => string;
};

/** `target` is a path or `:memory:`. Throws StoreError held, engine_too_old, cannot_open. `onTrouble`: of a checkpoint. */
export function openSqlite(
  target: string,
  now: number,
  { onTrouble = () => {}, onCompact = () => {}, versionOf = sqliteVersion }: OpenOptions = {},
): OpenSqlite {
  if (target === ':memory:') {
    const memory = new Sqlite(target);
    assertSqliteVersion(versionOf(memory));
    memory.pragma('foreign_keys = ON');
    return { dialect: dialectOf(memory, NO_CHECKPOINTS), path: target, release: () => {} };
  }
  const path = locate(target);
  let release = (): void => {};
  let database: Sqlite.Database | undefined;
  try {
    release = holdLock(path, now);
    // It holds password hashes and the environment of every project. The WAL files take over its mode.
    if (!existsSync(path)) closeSync(openSync(path, 'a', 0o600));
    database = new Sqlite(path, { timeout: OPEN_TIMEOUT_MS });
    assertSqliteVersion(versionOf(database));
    makeShrinkable(database, path, onCompact);
    const mode = database.pragma('journal_mode = WAL', { simple: true });
    if (mode !== 'wal')
      throw new StoreError(
        'cannot_open',
        `the file system of ${path} does not support WAL (SQLite answered ${String(mode)}): use a local disk`,
      );
    database.pragma(`busy_timeout = ${BUSY_TIMEOUT_MS}`);
    setUp(database);
    return { dialect: dialectOf(database, createCheckpoints(database, path, onTrouble)), path, release };
  } catch (error) {
    database?.close();
    release();
    if (error instanceof StoreError) throw error;
    throw cannotOpen(path, error);
  }
}

/**
 * A further connection to a file that this process has opened and holds, for a thread of its own: there SQLite may bring the
 * write-ahead log into the database behind one of its commits, as it does if left to itself.
 */
export function openBeside(path: string): Dialect {
  const database = new Sqlite(path, { fileMustExist: true, timeout: BUSY_TIMEOUT_MS });
  setUp(database);
  return dialectOf(database, NO_CHECKPOINTS);
}

/** What holds for one connection, and is not kept in the file. */
function setUp(database: Sqlite.Database): void {
  // FULL: a commit is on the disk before it is acknowledged, also through a power cut.
  database.pragma('synchronous = FULL');
  database.pragma('foreign_keys = ON');
  database.pragma('trusted_schema = OFF');
  // A WAL that grew during a long backup shrinks again.
  database.pragma('journal_size_limit = 67108864');
}

/** One name for one file, whichever way it was given: the lock goes by it. */
function locate(target: string): string {
  const path = resolve(target);
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    return existsSync(path) ? realpathSync(path) : join(realpathSync(dirname(path)), basename(path));
  } catch (error) {
    throw cannotOpen(path, error);
  }
}

const cannotOpen = (path: string, cause: unknown): StoreError =>
  new StoreError('cannot_open', `the database ${path} cannot be opened: ${cause instanceof Error ? cause.message : String(cause)}`, {
    cause,
  });

const sqliteVersion = (database: Sqlite.Database): string => String(database.prepare('select sqlite_version()').pluck().get());

function dialectOf(database: Sqlite.Database, checkpoints: Checkpoints): Dialect {
  const config = { database: withStatementCache(database) };
  const dialect = new SqliteDialect(config);
  return {
    createDriver: (): Driver => new ImmediateDriver(config, checkpoints),
    createAdapter: () => new TransactionalDdlAdapter(),
    createQueryCompiler: () => new OncePreparedCompiler(),
    createIntrospector: (db) => dialect.createIntrospector(db),
  };
}

class ImmediateDriver extends SqliteDriver {
  readonly #turns = createTurns();
  readonly #checkpoints: Checkpoints;

  constructor(config: SqliteDialectConfig, checkpoints: Checkpoints) {
    super(config);
    this.#checkpoints = checkpoints;
  }

  override async acquireConnection(): Promise<DatabaseConnection> {
    await this.#turns.take();
    return super.acquireConnection();
  }
  override async releaseConnection(): Promise<void> {
    this.#checkpoints.look();
    this.#turns.end();
  }
  override async destroy(): Promise<void> {
    await this.#checkpoints.close();
    await super.destroy();
  }
  /** A deferred transaction that reads and then writes can fail in the middle; one that begins as a writer cannot. */
  override async beginTransaction(connection: DatabaseConnection, settings?: TransactionSettings): Promise<void> {
    await connection.executeQuery(CompiledQuery.raw(settings?.accessMode === 'read only' ? 'begin' : 'begin immediate'));
  }
}

/**
 * SQLite looks at the value of a bare parameter while it plans `= ?` beside an ORDER BY or GROUP BY, and `LIMIT ?`, and prepares such
 * a statement anew each time that another is bound, which takes five to ten times as long as running it. An expression about the
 * parameter it takes as it comes (https://sqlite.org/c3ref/c_dbconfig_defensive.html, ENABLE_QPSG, which the binding cannot set).
 */
class OncePreparedCompiler extends SqliteQueryCompiler {
  protected override getCurrentParameterPlaceholder(): string {
    return '+?';
  }
}

class TransactionalDdlAdapter extends SqliteAdapter {
  /** There is one, and the driver hands it out: "false" would put Kysely's lock before it (turns.ts says why not). */
  override get supportsMultipleConnections(): boolean {
    return true;
  }
  /** It can, and a control plane killed in the middle of a migration must find the old tables again. */
  override get supportsTransactionalDdl(): boolean {
    return true;
  }
}

/**
 * Kysely prepares each query anew, which costs more than running it. The oldest statement makes room: one that is in use comes back
 * as the newest, which is rarer and cheaper than keeping them in the order of their use.
 */
function withStatementCache(database: Sqlite.Database): SqliteDatabase {
  const cache = new Map<string, SqliteStatement>();
  return {
    close: () => database.close(),
    prepare(sql) {
      const known = cache.get(sql);
      if (known !== undefined) return known;
      const statement = database.prepare(sql) as SqliteStatement;
      if (sql.length > CACHED_SQL_LENGTH) return statement;
      cache.set(sql, statement);
      const oldest = cache.size > CACHED_STATEMENTS ? cache.keys().next().value : undefined;
      if (oldest !== undefined) cache.delete(oldest);
      return statement;
    },
  };
}
