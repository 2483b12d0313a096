/**
 * Opens and migrates the database. Single statements use `kysely`; everything else uses a
 * transaction (connection.ts), which is retried if the engine reports that it changed no data.
 * Public methods of the stores begin the transaction; small functions take `tx`.
 */
import { defined } from '@berth/kit/defined';
import { type Dialect, Kysely } from 'kysely';
import type { LogRelay } from '../../domain/deployments/runtime-logs.ts';
import type { Notifier } from '../../domain/platform/changes.ts';
import type { QueryKind } from '../../domain/platform/metrics-store.ts';
import { createRecorder, type Recorder } from '../datasets/recording.ts';
import { type Capabilities, POSTGRES, SQLITE } from './capabilities.ts';
import {
  type Connection,
  createConnection,
  createRetries,
  type WithRetries,
} from './connection.ts';
import { StoreError, type StoreLog } from './errors.ts';
import { type BeforeMigration, type LoggedStep, migrate, requireMigrated } from './migrate.ts';
import { allMigrations } from './migrations/all.ts';
import { openPostgres } from './postgres.ts';
import { createNotifier } from './postgres-notify.ts';
import { createLogRelay } from './postgres-relay.ts';
import { openSqlite, openSqliteBeside } from './sqlite.ts';
import type { Db, Tables } from './tables.ts';

type OnQuery = (operation: QueryKind, seconds: number) => void;

export type Database = Connection & {
  /**
   * Notifies other control planes on the same database of changes; null if the engine allows only
   * one.
   */
  notifier: Notifier | null;
  /** Carries runtime logs to other control planes; null if the engine allows only one. */
  logRelay: LogRelay | null;
  /** Records dataset versions in a separate thread; null if this connection records them. */
  recorder: Recorder | null;
  /** Calls `listener` after every statement of this connection. */
  onQuery(listener: OnQuery): void;
  close(): Promise<void>;
};

type Engine = {
  /** Name of the database for messages; contains no password. */
  name: string;
  capabilities: Capabilities;
  dialect: Dialect;
  /** Dialect without time limits for statements, because a migration can take minutes. */
  migrating?: Dialect;
  /** Throws StoreError if Berth cannot rely on this engine. Can log a warning. */
  check?: (db: Kysely<unknown>, log: StoreLog) => Promise<void>;
  notifier?: () => Notifier & { close(): Promise<void> };
  logRelay?: () => LogRelay & { close(): Promise<void> };
  recorder?: Recorder;
  release: () => void;
};

export type OpenOptions = {
  /** Initial content of `:memory:`. */
  image?: Buffer | undefined;
  before?: BeforeMigration | undefined;
};

/** Opens, checks and migrates the database. Throws StoreError, and errors of `before`. */
export async function openDatabase(
  url: string,
  log: StoreLog,
  now: () => number,
  { image, before }: OpenOptions = {},
): Promise<Database> {
  const engine = engineOf(url, log, now, image);
  const { capabilities, name } = engine;
  const listeners: OnQuery[] = [];
  const withRetries = createRetries(name, capabilities, undefined, (ms) => {
    for (const listener of listeners) listener('wait', ms / 1000);
  });
  const kysely = new Kysely<Tables>({
    dialect: engine.dialect,
    log({ query, queryDurationMillis }) {
      for (const listener of listeners)
        listener(kindOf(query.query.kind, query.sql), queryDurationMillis / 1000);
    },
  });
  try {
    await withRetries(async () => engine.check?.(kysely as Kysely<unknown>, log));
    const done = await migrated(engine, kysely, withRetries, log, before);
    if (done.length > 0) log.info({ database: name, migrations: done }, 'database migrated');
  } catch (error) {
    await kysely.destroy();
    engine.release();
    throw error;
  }
  const notifier = engine.notifier?.() ?? null;
  const logRelay = engine.logRelay?.() ?? null;
  const recorder = engine.recorder ?? null;
  return {
    ...createConnection(kysely, capabilities, withRetries),
    notifier,
    logRelay,
    recorder,
    onQuery: (listener) => void listeners.push(listener),
    async close() {
      await notifier?.close();
      await logRelay?.close();
      await recorder?.close();
      await kysely.destroy();
      engine.release();
    },
  };
}

/**
 * Opens a database that this version has migrated, while a control plane can be running: takes no
 * lock, creates no file and does not migrate. Throws StoreError.
 */
export async function openBeside(url: string, log: StoreLog): Promise<Database> {
  const engine = besideOf(url);
  const { capabilities, name } = engine;
  const withRetries = createRetries(name, capabilities);
  const kysely = new Kysely<Tables>({ dialect: engine.dialect });
  try {
    await withRetries(async () => {
      await engine.check?.(kysely as Kysely<unknown>, log);
      await requireMigrated(kysely as Kysely<unknown>, name, allMigrations(capabilities));
    });
  } catch (error) {
    await kysely.destroy();
    throw error;
  }
  return {
    ...createConnection(kysely, capabilities, withRetries),
    notifier: null,
    logRelay: null,
    recorder: null,
    onQuery: () => {},
    close: () => kysely.destroy(),
  };
}

function besideOf(url: string): Pick<Engine, 'name' | 'capabilities' | 'dialect' | 'check'> {
  if (!url.startsWith('sqlite:'))
    return engineOf(url, { info: () => {}, warn: () => {} }, Date.now);
  const { path, dialect } = openSqliteBeside(url.slice('sqlite:'.length));
  return { name: path, capabilities: SQLITE, dialect };
}

function kindOf(kind: string, text: string): QueryKind {
  if (kind === 'SelectQueryNode') return 'read';
  if (kind === 'RawNode') return text === 'commit' ? 'commit' : 'other';
  return 'write';
}

async function migrated(
  { name, capabilities, migrating }: Engine,
  kysely: Db,
  withRetries: WithRetries,
  log: StoreLog,
  before: BeforeMigration | undefined,
): Promise<string[]> {
  const db = (
    migrating === undefined ? kysely : new Kysely<Tables>({ dialect: migrating })
  ) as Kysely<unknown>;
  const onNewer = (steps: LoggedStep[]): void =>
    log.info(
      { database: name, by: steps.at(-1)?.berth, steps: steps.map((step) => step.name) },
      'a newer version of Berth expanded the database; this version works with it',
    );
  try {
    return await withRetries(() => migrate(db, allMigrations(capabilities), { before, onNewer }));
  } finally {
    if (migrating !== undefined) await db.destroy();
  }
}

function engineOf(url: string, log: StoreLog, now: () => number, image?: Buffer): Engine {
  const colon = url.indexOf(':');
  const [scheme, rest] = [url.slice(0, Math.max(colon, 0)), url.slice(colon + 1)];
  if (scheme === 'sqlite' && rest !== '') {
    const onCheckpointFailure = (problem: string): void =>
      log.warn({ problem }, 'WAL checkpoint failed; will retry');
    const onCompact = (fields: object, message: string): void => log.info(fields, message);
    const { dialect, path, release } = openSqlite(rest, now(), {
      onCheckpointFailure,
      onCompact,
      ...defined({ image }),
    });
    return {
      dialect,
      capabilities: SQLITE,
      release,
      name: path,
      ...defined({ recorder: rest === ':memory:' ? undefined : createRecorder(path) }),
    };
  }
  if (scheme === 'postgres' || scheme === 'postgresql') {
    return {
      ...openPostgres(url),
      capabilities: POSTGRES,
      notifier: () => createNotifier(url, log),
      logRelay: () => createLogRelay(url, log),
      release: () => {},
    };
  }
  // The message must not contain the whole URL, which can hold a password.
  throw new StoreError(
    'unsupported_url',
    `DATABASE_URL: "${scheme}:…" is not known; use sqlite:path or postgres://…`,
  );
}
