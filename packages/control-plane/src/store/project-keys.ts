/**
 * Wrapped keys: one for each project (secrets/vault.ts), deleted with the project, and keys for
 * values that belong to no project.
 */
import { DomainError } from '../domain/platform/errors.ts';
import {
  PLATFORM_KEYS,
  type ProjectKeyRecord,
  type ProjectKeyStore,
} from '../domain/secrets/vault.ts';
import type { Database } from './engine/database.ts';
import type { Db } from './engine/tables.ts';

const isPlatform = (id: string): boolean => (PLATFORM_KEYS as readonly string[]).includes(id);

export function createProjectKeyStore(db: Database): ProjectKeyStore {
  const columns = ['project_id', 'wrapped', 'wrapped_by'] as const;
  const platform = ['name as project_id', 'wrapped', 'wrapped_by'] as const;
  return {
    get: (projectId) => getKey(db, columns, platform, projectId),
    setOnce: (record, now) => setKeyOnce(db, columns, platform, record, now),
    rewrap: (record, from) => rewrapKey(db, record, from),
    wrappedByOthers: (keyId, after, limit) =>
      wrappedByOthers(db, columns, platform, keyId, after, limit),
    counts: () => countKeys(db),
  };
}

async function ofPlatform(
  platform: readonly ['name as project_id', 'wrapped', 'wrapped_by'],
  kysely: Db,
  name: string,
): Promise<{ wrapped: string; wrapped_by: string; project_id: string } | null> {
  return (
    (await kysely
      .selectFrom('platform_keys')
      .select(platform)
      .where('name', '=', name)
      .executeTakeFirst()) ?? null
  );
}

async function getKey(
  db: Database,
  columns: readonly ['project_id', 'wrapped', 'wrapped_by'],
  platform: readonly ['name as project_id', 'wrapped', 'wrapped_by'],
  id: string,
): Promise<ProjectKeyRecord | null> {
  return isPlatform(id)
    ? ofPlatform(platform, db.kysely, id)
    : ((await db.kysely
        .selectFrom('project_keys')
        .select(columns)
        .where('project_id', '=', id)
        .executeTakeFirst()) ?? null);
}

function setKeyOnce(
  db: Database,
  columns: readonly ['project_id', 'wrapped', 'wrapped_by'],
  platform: readonly ['name as project_id', 'wrapped', 'wrapped_by'],
  record: ProjectKeyRecord,
  now: number,
): Promise<ProjectKeyRecord> {
  return db.write(async (tx) => {
    if (isPlatform(record.project_id)) {
      const { project_id: name, wrapped, wrapped_by } = record;
      await tx
        .insertInto('platform_keys')
        .values({ name, wrapped, wrapped_by, created_at: now })
        .onConflict((oc) => oc.column('name').doNothing())
        .execute();
      return (await ofPlatform(platform, tx, name)) ?? record;
    }
    const project = await tx
      .selectFrom('projects')
      .select('id')
      .where('id', '=', record.project_id)
      .executeTakeFirst();
    if (project === undefined)
      throw new DomainError('not_found', `no project has the id ${record.project_id}`);
    await tx
      .insertInto('project_keys')
      .values({ ...record, created_at: now })
      .onConflict((oc) => oc.column('project_id').doNothing())
      .execute();
    return tx
      .selectFrom('project_keys')
      .select(columns)
      .where('project_id', '=', record.project_id)
      .executeTakeFirstOrThrow();
  });
}

async function rewrapKey(
  db: Database,
  { project_id, wrapped, wrapped_by }: ProjectKeyRecord,
  from: string,
): Promise<void> {
  const set = { wrapped, wrapped_by };
  await db.writeOne((kysely) =>
    isPlatform(project_id)
      ? kysely
          .updateTable('platform_keys')
          .set(set)
          .where('name', '=', project_id)
          .where('wrapped', '=', from)
          .execute()
      : kysely
          .updateTable('project_keys')
          .set(set)
          .where('project_id', '=', project_id)
          .where('wrapped', '=', from)
          .execute(),
  );
}

function wrappedByOthers(
  db: Database,
  columns: readonly ['project_id', 'wrapped', 'wrapped_by'],
  platform: readonly ['name as project_id', 'wrapped', 'wrapped_by'],
  keyId: string,
  after: string,
  limit: number,
): Promise<ProjectKeyRecord[]> {
  return db.kysely
    .selectFrom('project_keys')
    .select(columns)
    .where('wrapped_by', '!=', keyId)
    .where('project_id', '>', after)
    .unionAll(
      db.kysely
        .selectFrom('platform_keys')
        .select(platform)
        .where('wrapped_by', '!=', keyId)
        .where('name', '>', after),
    )
    .orderBy('project_id')
    .limit(limit)
    .execute();
}

async function countKeys(db: Database): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  for (const table of ['project_keys', 'platform_keys'] as const) {
    const rows = await db.kysely
      .selectFrom(table)
      .select((eb) => ['wrapped_by', eb.fn.countAll<number>().as('count')])
      .groupBy('wrapped_by')
      .execute();
    for (const { wrapped_by, count } of rows)
      counts.set(wrapped_by, (counts.get(wrapped_by) ?? 0) + count);
  }
  return counts;
}
