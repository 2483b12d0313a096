/**
 * The target of a restore or an import: checks whether it is empty, and creates scratch databases
 * for `backup verify`.
 */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { sql } from 'kysely';
import { isSqlite, openPlain, pathIn } from './plain.ts';

/** Returns a description of the existing content, or null if the place is empty. */
export async function contentOf(databaseUrl: string): Promise<string | null> {
  if (isSqlite(databaseUrl)) {
    const path = pathIn(databaseUrl);
    const existingFile = ['', '-wal', '-shm']
      .map((end) => path + end)
      .find((file) => existsSync(file));
    return existingFile === undefined ? null : `the file ${existingFile} exists`;
  }
  const { db, name } = openPlain(databaseUrl);
  try {
    const tables = await db.introspection.getTables({ withInternalKyselyTables: true });
    return tables.length === 0 ? null : `the database ${name} has ${tables.length} tables`;
  } finally {
    await db.destroy();
  }
}

/**
 * Returns the corruption that SQLite's own check finds in a file, or null. PostgreSQL checks while
 * it restores.
 */
export async function corruptionOf(databaseUrl: string): Promise<string | null> {
  if (!isSqlite(databaseUrl)) return null;
  const { db } = openPlain(databaseUrl);
  try {
    const { rows } = await sql<{ integrity_check: string }>`pragma integrity_check(1)`.execute(db);
    const { rows: orphans } = await sql<{ table: string }>`pragma foreign_key_check`.execute(db);
    const [first] = rows;
    if (first?.integrity_check !== 'ok') return first?.integrity_check ?? 'no answer';
    return orphans.length === 0
      ? null
      : `${orphans.length} rows of ${orphans[0]?.table} have no parent row`;
  } finally {
    await db.destroy();
  }
}

/** Creates a database on the same server as `databaseUrl`. `drop` removes it. */
export async function createScratchDatabase(
  databaseUrl: string,
): Promise<{ url: string; drop: () => Promise<void> }> {
  const name = `berth_verify_${randomBytes(6).toString('hex')}`;
  const on = async (text: string): Promise<void> => {
    const { db } = openPlain(databaseUrl);
    try {
      await sql.raw(text).execute(db);
    } finally {
      await db.destroy();
    }
  };
  await on(`create database "${name}" template template0 encoding 'UTF8'`);
  const url = new URL(databaseUrl);
  url.pathname = `/${name}`;
  return { url: url.href, drop: () => on(`drop database if exists "${name}" with (force)`) };
}
