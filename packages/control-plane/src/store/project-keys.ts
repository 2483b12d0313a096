/**
 * The wrapped keys of projects (secrets/vault.ts), which are deleted with their project, and the
 * keys of values that belong to no project.
 */
import { DomainError } from '../domain/platform/errors.ts';
import { PLATFORM_KEYS, type ProjectKeyStore } from '../domain/secrets/vault.ts';
import type { Database } from './engine/database.ts';
import type { Db } from './engine/tables.ts';

const isPlatform = (id: string): boolean => (PLATFORM_KEYS as readonly string[]).includes(id);

export function createProjectKeyStore(db: Database): ProjectKeyStore {
  const columns = ['project_id', 'wrapped', 'wrapped_by'] as const;
  const platform = ['name as project_id', 'wrapped', 'wrapped_by'] as const;
  const ofPlatform = async (kysely: Db, name: string) =>
    (await kysely
      .selectFrom('platform_keys')
      .select(platform)
      .where('name', '=', name)
      .executeTakeFirst()) ?? null;
  return {
    get: async (id) =>
      isPlatform(id)
        ? ofPlatform(db.kysely, id)
        : ((await db.kysely
            .selectFrom('project_keys')
            .select(columns)
            .where('project_id', '=', id)
            .executeTakeFirst()) ?? null),

    setOnce: (record, now) =>
      db.write(async (tx) => {
        if (isPlatform(record.project_id)) {
          const { project_id: name, wrapped, wrapped_by } = record;
          await tx
            .insertInto('platform_keys')
            .values({ name, wrapped, wrapped_by, created_at: now })
            .onConflict((oc) => oc.column('name').doNothing())
            .execute();
          return (await ofPlatform(tx, name)) ?? record;
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
      }),

    async rewrap({ project_id, wrapped, wrapped_by }, from) {
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
    },

    wrappedByOthers: (keyId, after, limit) =>
      db.kysely
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
        .execute(),

    async counts() {
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
    },
  };
}
