/**
 * The door to the engine: single statements by `kysely`, everything else by a transaction that is run again when the engine
 * says that nothing happened. Public methods of the stores own the transaction; small functions take `tx`.
 */
import { type Dialect, Kysely } from 'kysely';
import type { Relay } from '../../domain/changes.ts';
import type { QueryKind } from '../../domain/stores.ts';
import { type Capabilities, POSTGRES, SQLITE } from './capabilities.ts';
import { createDoors, createPatience, type Doors, type Patiently } from './doors.ts';
import { StoreError, type StoreLog } from './errors.ts';
import { allMigrations } from './migrations/all.ts';
import { migrate } from './migrate.ts';
import { createRelay } from './postgres-relay.ts';
import { openPostgres } from './postgres.ts';
import { createRecorder, type Recorder } from '../datasets/recording.ts';
import { openSqlite } from './sqlite.ts';
import type { Db, Tables } from './tables.ts';

type OnQuery = (operation: QueryKind, seconds: number) => void;

export type Database = Doors & {
  /** Tells other control planes on the same database what changed; null where there can be none. */
  relay: Relay | null;
  /** Records versions of datasets; null where they are recorded through the doors, among everything else. */
  recorder: Recorder | null;
  /** Told of every statement through these doors, when it is over. */
  onQuery(listener: OnQuery): void;
  close(): Promise<void>;
};

type Engine = {
  /** For messages; holds no password. */
  name: string;
  capabilities: Capabilities;
  dialect: Dialect;
  /** Without the limits that hold for a single statement of ours: a migration may take minutes. */
  migrating?: Dialect;
  /** Throws StoreError when the engine is none that Berth can rely on; may warn. */
  check?: (db: Kysely<unknown>, log: StoreLog) => Promise<void>;
  relay?: () => Relay & { close(): Promise<void> };
  recorder?: Recorder;
  release: () => void;
};

/** Opens, checks and migrates. Throws StoreError. */
export async function openDatabase(url: string, log: StoreLog, now: () => number): Promise<Database> {
  const engine = engineOf(url, log, now);
  const { capabilities, name } = engine;
  const patiently = createPatience(name, capabilities);
  const listeners: OnQuery[] = [];
  const kysely = new Kysely<Tables>({
    dialect: engine.dialect,
    log({ query, queryDurationMillis }) {
      for (const listener of listeners) listener(kindOf(query.query.kind, query.sql), queryDurationMillis / 1000);
    },
  });
  try {
    await patiently(async () => engine.check?.(kysely as Kysely<unknown>, log));
    const done = await migrated(engine, kysely, patiently);
    if (done.length > 0) log.info({ database: name, migrations: done }, 'database brought to this version');
  } catch (error) {
    await kysely.destroy();
    engine.release();
    throw error;
  }
  const relay = engine.relay?.() ?? null;
  const recorder = engine.recorder ?? null;
  return {
    ...createDoors(kysely, capabilities, patiently),
    relay,
    recorder,
    onQuery: (listener) => void listeners.push(listener),
    async close() {
      await relay?.close();
      await recorder?.close();
      await kysely.destroy();
      engine.release();
    },
  };
}

function kindOf(kind: string, text: string): QueryKind {
  if (kind === 'SelectQueryNode') return 'read';
  if (kind === 'RawNode') return text === 'commit' ? 'commit' : 'other';
  return 'write';
}

async function migrated(engine: Engine, kysely: Db, patiently: Patiently): Promise<string[]> {
  const db = (engine.migrating === undefined ? kysely : new Kysely<Tables>({ dialect: engine.migrating })) as Kysely<unknown>;
  try {
    return await patiently(() => migrate(db, allMigrations(engine.capabilities)));
  } finally {
    if (engine.migrating !== undefined) await db.destroy();
  }
}

function engineOf(url: string, log: StoreLog, now: () => number): Engine {
  const colon = url.indexOf(':');
  const [scheme, rest] = [url.slice(0, Math.max(colon, 0)), url.slice(colon + 1)];
  if (scheme === 'sqlite' && rest !== '') {
    const onTrouble = (problem: string): void => log.warn({ problem }, 'the write-ahead log could not be worked in: it is tried again');
    const onCompact = (fields: object, message: string): void => log.info(fields, message);
    const { dialect, path, release } = openSqlite(rest, now(), { onTrouble, onCompact });
    return { dialect, capabilities: SQLITE, release, name: path, ...(rest === ':memory:' ? {} : { recorder: createRecorder(path) }) };
  }
  if (scheme === 'postgres' || scheme === 'postgresql') {
    return { ...openPostgres(url), capabilities: POSTGRES, relay: () => createRelay(url, log), release: () => {} };
  }
  // Not the whole URL: it could hold a password.
  throw new StoreError('unsupported_url', `DATABASE_URL: "${scheme}:…" is not known; use sqlite:path or postgres://…`);
}
