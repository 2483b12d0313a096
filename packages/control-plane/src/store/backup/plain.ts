/**
 * Opens an existing database of any version, without taking a lock, migrating or setting time
 * limits. Throws StoreError.
 */
import { Kysely } from 'kysely';
import { openPostgres } from '../engine/postgres.ts';
import { openSqliteBeside } from '../engine/sqlite.ts';

export type Plain = {
  engine: 'sqlite' | 'postgres' /** For messages; contains no password. */;
  name: string;
  db: Kysely<unknown>;
};

export const isSqlite = (databaseUrl: string): boolean => databaseUrl.startsWith('sqlite:');
export const pathIn = (databaseUrl: string): string => databaseUrl.slice('sqlite:'.length);

export function openPlain(databaseUrl: string): Plain {
  if (isSqlite(databaseUrl)) {
    const { dialect, path } = openSqliteBeside(pathIn(databaseUrl));
    return { engine: 'sqlite', name: path, db: new Kysely({ dialect }) };
  }
  const { migrating, name } = openPostgres(databaseUrl);
  return { engine: 'postgres', name, db: new Kysely({ dialect: migrating }) };
}
