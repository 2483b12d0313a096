/**
 * The door to the engine: single statements by `kysely`, everything else by a transaction that is run again when the engine
 * says that nothing happened. Public methods of the stores own the transaction; small functions take `tx`.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Dialect, Kysely, type Transaction } from 'kysely';
import type { Relay } from '../domain/changes.ts';
import { type Capabilities, POSTGRES, SQLITE, type Transient } from './capabilities.ts';
import { StoreError } from './errors.ts';
import { allMigrations } from './migrations/all.ts';
import { migrate } from './migrate.ts';
import { createRelay } from './postgres-relay.ts';
import { openPostgres } from './postgres.ts';
import { openSqlite } from './sqlite.ts';
import type { Tables } from './tables.ts';

export type Db = Kysely<Tables>;
export type Tx = Transaction<Tables>;

export type Database = {
  capabilities: Capabilities;
  kysely: Db;
  /** One transaction that may write. `run` may be called again, so it does nothing but database work. */
  write<T>(run: (tx: Tx) => Promise<T>): Promise<T>;
  /** One statement that writes, without the cost of a transaction around it. */
  writeOne<T>(run: (db: Db) => Promise<T>): Promise<T>;
  /** Several reads that see one state; takes no lock. */
  snapshot<T>(run: (tx: Tx) => Promise<T>): Promise<T>;
  /** Tells other control planes on the same database what changed; null where there can be none. */
  relay: Relay | null;
  close(): Promise<void>;
};

export type StoreLog = { info(fields: object, message: string): void; warn(fields: object, message: string): void };

/** How long a write waits for somebody else's lock (a backup, a shell) or for the server before it fails. */
const PATIENCE_MS = 15_000;

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
  release: () => void;
};

/** Opens, checks and migrates. Throws StoreError. */
export async function openDatabase(url: string, log: StoreLog, now: () => number): Promise<Database> {
  const engine = engineOf(url, log, now);
  const { capabilities, name } = engine;
  const patiently = async <T>(run: () => Promise<T>): Promise<T> => {
    for (let began = Date.now(), pause = 5; ; pause = Math.min(pause * 2, 200)) {
      try {
        return await run();
      } catch (error) {
        const why = capabilities.transient(error);
        if (why === null) throw error;
        const waited = Date.now() - began;
        if (waited > PATIENCE_MS) throw outOfPatience(name, why, waited, error);
        await sleep(pause / 2 + (Math.random() * pause) / 2);
      }
    }
  };
  const kysely = new Kysely<Tables>({ dialect: engine.dialect });
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
  return {
    capabilities,
    kysely,
    write: (run) => patiently(() => kysely.transaction().execute(run)),
    writeOne: (run) => patiently(() => run(kysely)),
    snapshot: (run) => patiently(() => kysely.transaction().setIsolationLevel('repeatable read').setAccessMode('read only').execute(run)),
    relay,
    async close() {
      await relay?.close();
      await kysely.destroy();
      engine.release();
    },
  };
}

async function migrated(engine: Engine, kysely: Db, patiently: <T>(run: () => Promise<T>) => Promise<T>): Promise<string[]> {
  const db = (engine.migrating === undefined ? kysely : new Kysely<Tables>({ dialect: engine.migrating })) as Kysely<unknown>;
  try {
    return await patiently(() => migrate(db, allMigrations(engine.capabilities)));
  } finally {
    if (engine.migrating !== undefined) await db.destroy();
  }
}

function outOfPatience(name: string, why: Transient, waited: number, cause: unknown): StoreError {
  const seconds = Math.round(waited / 1000);
  if (why === 'unreachable')
    return new StoreError('unreachable', `the database ${name} has not answered for ${seconds} s: ${(cause as Error).message}`, { cause });
  const by = why === 'locked' ? 'locked by another program' : 'too contended to write to';
  return new StoreError('locked', `the database ${name} has been ${by} for ${seconds} s`, { cause });
}

function engineOf(url: string, log: StoreLog, now: () => number): Engine {
  const colon = url.indexOf(':');
  const [scheme, rest] = [url.slice(0, Math.max(colon, 0)), url.slice(colon + 1)];
  if (scheme === 'sqlite' && rest !== '') {
    const onTrouble = (problem: string): void => log.warn({ problem }, 'the write-ahead log could not be worked in: it is tried again');
    const { dialect, path, release } = openSqlite(rest, now(), { onTrouble });
    return { dialect, capabilities: SQLITE, release, name: path };
  }
  if (scheme === 'postgres' || scheme === 'postgresql') {
    return { ...openPostgres(url), capabilities: POSTGRES, relay: () => createRelay(url, log), release: () => {} };
  }
  // Not the whole URL: it could hold a password.
  throw new StoreError('unsupported_url', `DATABASE_URL: "${scheme}:…" is not known; use sqlite:path or postgres://…`);
}
