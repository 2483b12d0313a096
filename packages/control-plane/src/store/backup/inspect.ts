/** Reads the data for a manifest from a database of any version of Berth. */
import { type Kysely, sql } from 'kysely';
import { SECRETS_CHECK, sealedBy } from '../../domain/secrets/sealed.ts';
import type { Tables } from '../engine/tables.ts';
import { presentIn } from '../engine/migrate.ts';

export type Inspected = {
  /** Migrations that a version must know to use the database. */
  migrations: string[];
  /** Number of rows of each table. */
  rows: Record<string, number>;
  keyIds: string[];
  /** Volumes whose data is on nodes and not in the database. */
  volumes: VolumesElsewhere[];
};

export async function inspect(db: Kysely<unknown>): Promise<Inspected> {
  const tables = (await db.introspection.getTables())
    .filter((table) => !table.isView)
    .map((table) => table.name);
  const rows: Record<string, number> = {};
  for (const table of tables.sort()) {
    const { rows: counted } = await sql<{
      n: number;
    }>`select count(*) as n from ${sql.table(table)}`.execute(db);
    rows[table] = counted[0]?.n ?? 0;
  }
  return {
    migrations: (await presentIn(db)).needed,
    rows,
    keyIds: tables.includes('meta') ? await keyIdsIn(db, tables) : [],
    volumes: tables.includes('volume_copies') ? await volumesIn(db) : [],
  };
}

export type VolumesElsewhere = {
  project: string;
  node: string;
  names: string[];
  bytes: number | null;
};
async function volumesIn(db: Kysely<unknown>): Promise<VolumesElsewhere[]> {
  const rows = await sql<{
    project: string;
    hostname: string;
    names: string;
    bytes: number | string | null;
  }>`
    select project, hostname, names, bytes from volume_copies
    where state in ('current', 'kept') and names <> '[]'
    order by project, id limit 1000`.execute(db);
  return rows.rows.map(({ project, hostname, names, bytes }) => ({
    project,
    node: hostname,
    names: JSON.parse(names) as string[],
    bytes: bytes === null ? null : Number(bytes),
  }));
}

async function keyIdsIn(db: Kysely<unknown>, tables: readonly string[]): Promise<string[]> {
  const typed = db as Kysely<Tables>;
  const check = await typed
    .selectFrom('meta')
    .select('value')
    .where('key', '=', SECRETS_CHECK)
    .executeTakeFirst();
  const wrapping = tables.includes('project_keys')
    ? await typed.selectFrom('project_keys').select('wrapped_by').distinct().execute()
    : [];
  const ofPlatform = tables.includes('platform_keys')
    ? await typed.selectFrom('platform_keys').select('wrapped_by').execute()
    : [];
  const ids = [
    sealedBy(check?.value ?? ''),
    ...[...wrapping, ...ofPlatform].map((row) => row.wrapped_by),
  ];
  return [...new Set(ids.filter((id) => id !== null))].sort();
}
