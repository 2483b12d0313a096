/**
 * The door to the engine: single statements by `kysely`, everything else by a transaction that is run again when the engine
 * says that nothing happened. Public methods of the stores own the transaction; small functions take `tx`.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Dialect, Kysely, type Transaction } from 'kysely';
import { type Capabilities, SQLITE } from './capabilities.ts';
import { StoreError } from './errors.ts';
import { allMigrations } from './migrations/all.ts';
import { migrate } from './migrate.ts';
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
  close(): Promise<void>;
};

export type StoreLog = { info(fields: object, message: string): void; warn(fields: object, message: string): void };

/** How long a write waits for somebody else's lock (a backup, a shell) before it fails. Reads go on meanwhile. */
const LOCK_PATIENCE_MS = 15_000;

/** Opens, checks and migrates. Throws StoreError. */
export async function openDatabase(url: string, log: StoreLog, now: () => number): Promise<Database> {
  const { dialect, capabilities, release, name } = engineOf(url, now);
  const kysely = new Kysely<Tables>({ dialect });
  const patiently = async <T>(run: () => Promise<T>): Promise<T> => {
    for (let began = Date.now(), pause = 5; ; pause = Math.min(pause * 2, 200)) {
      try {
        return await run();
      } catch (error) {
        if (!capabilities.isTransient(error)) throw error;
        const waited = Date.now() - began;
        if (waited > LOCK_PATIENCE_MS)
          throw new StoreError('locked', `the database ${name} has been locked by another program for ${Math.round(waited / 1000)} s`, {
            cause: error,
          });
        await sleep(pause / 2 + (Math.random() * pause) / 2);
      }
    }
  };
  const close = async (): Promise<void> => {
    await kysely.destroy();
    release();
  };
  try {
    const done = await patiently(() => migrate(kysely as Kysely<unknown>, allMigrations(capabilities)));
    if (done.length > 0) log.info({ database: name, migrations: done }, 'database brought to this version');
  } catch (error) {
    await close();
    throw error;
  }
  return {
    capabilities,
    kysely,
    write: (run) => patiently(() => kysely.transaction().execute(run)),
    writeOne: (run) => patiently(() => run(kysely)),
    snapshot: (run) => patiently(() => kysely.transaction().setIsolationLevel('repeatable read').setAccessMode('read only').execute(run)),
    close,
  };
}

function engineOf(url: string, now: () => number): { dialect: Dialect; capabilities: Capabilities; release: () => void; name: string } {
  const colon = url.indexOf(':');
  const [scheme, rest] = [url.slice(0, Math.max(colon, 0)), url.slice(colon + 1)];
  if (scheme === 'sqlite' && rest !== '') {
    const { dialect, path, release } = openSqlite(rest, now());
    return { dialect, capabilities: SQLITE, release, name: path };
  }
  if (scheme === 'postgres' || scheme === 'postgresql') {
    throw new StoreError('unsupported_url', 'DATABASE_URL: PostgreSQL comes with the next release; use sqlite:path until then');
  }
  // Not the whole URL: it could hold a password.
  throw new StoreError('unsupported_url', `DATABASE_URL: "${scheme}:…" is not known; use sqlite:path`);
}
