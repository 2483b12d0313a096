/** The embedded engine: better-sqlite3 under Kysely. A committed transaction is on disk. */
import { closeSync, existsSync, mkdirSync, openSync, realpathSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { messageOf } from '@berth/kit/message-of';
import Sqlite from 'better-sqlite3';
import {
  CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  SqliteAdapter,
  type SqliteDatabase,
  SqliteDialect,
  type SqliteDialectConfig,
  SqliteDriver,
  SqliteQueryCompiler,
  type SqliteStatement,
  type TransactionSettings,
} from 'kysely';
import { type Checkpoints, createCheckpoints, NO_CHECKPOINTS } from './checkpoints.ts';
import { StoreError } from './errors.ts';
import { takeFileLock } from './lock.ts';
import { createMutex } from './mutex.ts';
import { makeShrinkable } from './shrinkable.ts';

/**
 * In older versions of SQLite a WAL could be reset under a reader, which corrupts the file
 * (https://sqlite.org/wal.html#walresetbug).
 */
const OLDEST_SQLITE = '3.51.3';
/**
 * SQLite waits for a lock inside the call and blocks the whole process. So it waits for only 1 ms,
 * and connection.ts retries without blocking. (In WAL mode, reads never wait.)
 */
const BUSY_TIMEOUT_MS = 1;
/**
 * While the file is opened, SQLite can wait longer for a backup's short exclusive access, because
 * this process does no other work yet.
 */
const OPEN_TIMEOUT_MS = 5000;
const CACHED_STATEMENTS = 500;
/**
 * Longer statements are not cached: an insert with parameters for each log line differs in every
 * batch.
 */
const CACHED_SQL_LENGTH = 4096;

export function assertSqliteVersion(version: string): void {
  const [have, need] = [version, OLDEST_SQLITE].map((v) => v.split('.').map(Number)) as [
    number[],
    number[],
  ];
  for (const [i, least] of need.entries()) {
    const part = have[i] ?? 0;
    if (part > least) return;
    if (part < least || Number.isNaN(part)) {
      throw new StoreError(
        'engine_too_old',
        `SQLite ${version} can corrupt a database in WAL mode; at least ${OLDEST_SQLITE} is ` +
          'needed (npm run setup installs it)',
      );
    }
  }
}

export type OpenSqlite = { dialect: Dialect; path: string; release: () => void };

type OpenOptions = {
  onCheckpointFailure?: (problem: string) => void;
  /** Logger for shrinkable.ts. */
  onCompact?: (fields: object, message: string) => void;
  versionOf?: (database: Sqlite.Database) => string;
  /** Initial content of `:memory:`. */
  image?: Buffer;
};

/**
 * Opens a file. `target`: a path or `:memory:`. Throws StoreError held, engine_too_old,
 * cannot_open.
 */
export function openSqlite(
  target: string,
  now: number,
  {
    onCheckpointFailure = () => {},
    onCompact = () => {},
    versionOf = sqliteVersion,
    image,
  }: OpenOptions = {},
): OpenSqlite {
  if (target === ':memory:') {
    const memory = new Sqlite(image ?? target);
    assertSqliteVersion(versionOf(memory));
    memory.pragma('foreign_keys = ON');
    return { dialect: dialectOf(memory, NO_CHECKPOINTS), path: target, release: () => {} };
  }
  const path = locate(target);
  let release = (): void => {};
  let database: Sqlite.Database | undefined;
  try {
    release = takeFileLock(path, now);
    // Created with mode 0600: the file contains password hashes and the environment of every
    // project. The WAL files inherit its mode.
    if (!existsSync(path)) closeSync(openSync(path, 'a', 0o600));
    database = new Sqlite(path, { timeout: OPEN_TIMEOUT_MS });
    assertSqliteVersion(versionOf(database));
    makeShrinkable(database, path, onCompact);
    const mode = database.pragma('journal_mode = WAL', { simple: true });
    if (mode !== 'wal')
      throw new StoreError(
        'cannot_open',
        `the file system of ${path} does not support WAL (SQLite answered ${String(mode)}): ` +
          'use a local disk',
      );
    database.pragma(`busy_timeout = ${BUSY_TIMEOUT_MS}`);
    setUp(database);
    return {
      dialect: dialectOf(database, createCheckpoints(database, path, onCheckpointFailure)),
      path,
      release,
    };
  } catch (error) {
    database?.close();
    release();
    if (error instanceof StoreError) throw error;
    throw cannotOpen(path, error);
  }
}

/**
 * Opens another connection, for a separate thread, to a file that this process has opened and
 * locked. SQLite can checkpoint inside a commit of that thread.
 */
export function openSecondConnection(path: string): Dialect {
  const database = new Sqlite(path, { fileMustExist: true, timeout: BUSY_TIMEOUT_MS });
  setUp(database);
  return dialectOf(database, NO_CHECKPOINTS);
}

/**
 * Opens an existing file for one short transaction, without the lock of a control plane: SQLite's
 * own locks keep the file consistent. Throws StoreError cannot_open, engine_too_old.
 */
export function openSqliteBeside(target: string): { dialect: Dialect; path: string } {
  const path = resolve(target);
  let database: Sqlite.Database | undefined;
  try {
    database = new Sqlite(path, { fileMustExist: true, timeout: OPEN_TIMEOUT_MS });
    assertSqliteVersion(sqliteVersion(database));
    setUp(database);
    return { dialect: dialectOf(database, NO_CHECKPOINTS), path };
  } catch (error) {
    database?.close();
    throw error instanceof StoreError ? error : cannotOpen(path, error);
  }
}

/** Applies the settings of a connection that the file does not store. */
function setUp(database: Sqlite.Database): void {
  // FULL: a commit returns after its data is on disk, so it survives a power cut.
  database.pragma('synchronous = FULL');
  database.pragma('foreign_keys = ON');
  database.pragma('trusted_schema = OFF');
  // After a long backup, the WAL file shrinks to this size again.
  database.pragma('journal_size_limit = 67108864');
}

/** Returns the real path, because the lock needs one name for one file. */
function locate(target: string): string {
  const path = resolve(target);
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    return existsSync(path)
      ? realpathSync(path)
      : join(realpathSync(dirname(path)), basename(path));
  } catch (error) {
    throw cannotOpen(path, error);
  }
}

const cannotOpen = (path: string, cause: unknown): StoreError =>
  new StoreError(
    'cannot_open',
    `the database ${path} cannot be opened: ` +
      `${messageOf(cause)}; check DATABASE_URL, and that ` +
      'this ' +
      'user may read and write the file',
    { cause },
  );

const sqliteVersion = (database: Sqlite.Database): string =>
  String(database.prepare('select sqlite_version()').pluck().get());

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
  readonly #mutex = createMutex();
  readonly #checkpoints: Checkpoints;

  constructor(config: SqliteDialectConfig, checkpoints: Checkpoints) {
    super(config);
    this.#checkpoints = checkpoints;
  }

  override async acquireConnection(): Promise<DatabaseConnection> {
    await this.#mutex.acquire();
    return super.acquireConnection();
  }
  override async releaseConnection(): Promise<void> {
    const checkpointed = this.#checkpoints.startIfDue();
    // The caller's work is committed; only callers that wait for the connection also wait for the
    // checkpoint.
    if (checkpointed === null) this.#mutex.release();
    else void checkpointed.then(() => this.#mutex.release());
  }
  override async destroy(): Promise<void> {
    await this.#checkpoints.close();
    await super.destroy();
  }
  /**
   * Begins as a writer, because a deferred transaction that reads and then writes can fail in the
   * middle.
   */
  override async beginTransaction(
    connection: DatabaseConnection,
    settings?: TransactionSettings,
  ): Promise<void> {
    await connection.executeQuery(
      CompiledQuery.raw(settings?.accessMode === 'read only' ? 'begin' : 'begin immediate'),
    );
  }
}

/**
 * Writes parameters as `+?`. When SQLite plans `LIMIT ?`, or `= ?` beside an ORDER BY or GROUP BY,
 * it uses the value of a bare parameter. It then prepares the statement again for every new value,
 * which takes five to ten times as long as running it. It does not do this for an expression.
 * (ENABLE_QPSG of https://sqlite.org/c3ref/c_dbconfig_defensive.html has the same effect, but the
 * binding cannot set it.) Pinned by test/store/query-plans.test.ts.
 */
class OncePreparedCompiler extends SqliteQueryCompiler {
  protected override getCurrentParameterPlaceholder(): string {
    return '+?';
  }
}

class TransactionalDdlAdapter extends SqliteAdapter {
  /**
   * True, although there is only one connection, because ImmediateDriver locks it: otherwise Kysely
   * would add its own lock (see mutex.ts).
   */
  override get supportsMultipleConnections(): boolean {
    return true;
  }
  /** After a crash during a migration, the next start must find the old tables. */
  override get supportsTransactionalDdl(): boolean {
    return true;
  }
}

/**
 * Caches prepared statements: Kysely prepares each query again, which takes longer than running it.
 * Evicts the oldest entry (FIFO). An evicted statement that is still in use is prepared again and
 * becomes the newest, which is rare and cheaper than an LRU order.
 */
function withStatementCache(database: Sqlite.Database): SqliteDatabase {
  const cache = new Map<string, SqliteStatement>();
  return {
    close: () => database.close(),
    prepare(sql) {
      const cached = cache.get(sql);
      if (cached !== undefined) return cached;
      const statement = database.prepare(sql) as SqliteStatement;
      if (sql.length > CACHED_SQL_LENGTH) return statement;
      cache.set(sql, statement);
      const oldest = cache.size > CACHED_STATEMENTS ? cache.keys().next().value : undefined;
      if (oldest !== undefined) cache.delete(oldest);
      return statement;
    },
  };
}
