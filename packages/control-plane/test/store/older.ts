/** Databases of other versions of Berth, made from one of this version. */
import { sql } from 'kysely';
import { openPlain } from '../../src/store/backup/plain.ts';

async function change(databaseUrl: string, statements: ReturnType<typeof sql>[]): Promise<void> {
  const { db } = openPlain(databaseUrl);
  try {
    for (const statement of statements) await statement.execute(db);
  } finally {
    await db.destroy();
  }
}

/** Takes a step back that only added a table: the next start migrates the database. */
export const makeOlder = (databaseUrl: string): Promise<void> =>
  change(databaseUrl, [
    sql`drop table backups`,
    sql`delete from berth_migrations where name = '0019_backups'`,
  ]);

/** Records a step of a version that does not exist yet. */
export const withLaterStep = (
  databaseUrl: string,
  name: string,
  { berth, snapshot, contracts }: { berth: string; snapshot: string | null; contracts: boolean },
): Promise<void> =>
  change(databaseUrl, [
    sql`insert into berth_migrations_log (name, timestamp, berth, snapshot) values (${name}, '', ${berth}, ${snapshot})`,
    ...(contracts
      ? [sql`insert into berth_migrations (name, timestamp) values (${name}, '')`]
      : []),
  ]);
