/**
 * Makes one consistent copy of a database while a control plane can use it. Throws StoreError or
 * the error of the engine.
 */
import { randomBytes } from 'node:crypto';
import { resolve } from 'node:path';
import { type Kysely, sql } from 'kysely';
import { POSTGRES, SQLITE } from '../engine/capabilities.ts';
import { presentIn, refuseNewer } from '../engine/migrate.ts';
import { allMigrations } from '../engine/migrations/all.ts';
import { type Inspected, inspect } from './inspect.ts';
import { type Plain, openPlain } from './plain.ts';

/** `installation`: id that all backups of one installation share. */
export type Copied = Inspected & { installation: string };

/** Runs pg_dump on a snapshot that the server exported. */
export type Dump = (snapshot: string) => Promise<void>;

/** Key in `meta` for the id of the installation. */
const INSTALLATION = 'installation';

/**
 * Writes the copy to `path`. The folder must be private, because the copy gets the default file
 * mode.
 */
export async function copyDatabase(databaseUrl: string, path: string, dump: Dump): Promise<Copied> {
  const source = openPlain(databaseUrl);
  try {
    refuseNewer(
      await presentIn(source.db),
      allMigrations(source.engine === 'sqlite' ? SQLITE : POSTGRES),
    );
    const installation = await installationOf(source);
    const inspected =
      source.engine === 'sqlite'
        ? await copyFile(source.db, path)
        : await copyServer(source.db, dump);
    return { ...inspected, installation };
  } finally {
    await source.db.destroy();
  }
}

async function installationOf({ db }: Plain): Promise<string> {
  const read = async (): Promise<string | undefined> =>
    (await sql<{ value: string }>`select value from meta where key = ${INSTALLATION}`.execute(db))
      .rows[0]?.value;
  const storedId = await read();
  if (storedId !== undefined) return storedId;
  await sql`
    insert into meta (key, value) values (${INSTALLATION}, ${randomBytes(4).toString('hex')})
    on conflict (key) do nothing`.execute(db);
  return (await read()) ?? '00000000';
}

/**
 * Copies in one statement: a page-by-page backup would restart at each write of the control plane.
 */
async function copyFile(db: Kysely<unknown>, path: string): Promise<Inspected> {
  await sql`vacuum into ${path}`.execute(db);
  const copy = openPlain(`sqlite:${resolve(path)}`);
  try {
    return await inspect(copy.db);
  } finally {
    await copy.db.destroy();
  }
}

const copyServer = (db: Kysely<unknown>, dump: Dump): Promise<Inspected> =>
  db
    .transaction()
    .setIsolationLevel('repeatable read')
    .setAccessMode('read only')
    .execute(async (tx) => {
      const { rows } = await sql<{ id: string }>`select pg_export_snapshot() as id`.execute(tx);
      const inspected = await inspect(tx);
      // The server keeps the snapshot until this transaction ends.
      await dump(rows[0]?.id ?? '');
      return inspected;
    });

/** Returns the migrations that this version knows, oldest first. */
export const migrationNames = (engine: 'sqlite' | 'postgres'): string[] =>
  Object.keys(allMigrations(engine === 'sqlite' ? SQLITE : POSTGRES)).sort();
