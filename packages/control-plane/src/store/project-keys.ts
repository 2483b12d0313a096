/** The wrapped keys of projects (secrets/vault.ts). They are deleted with their project. */
import { DomainError } from '../domain/errors.ts';
import type { ProjectKeyStore } from '../domain/vault.ts';
import type { Database } from './engine/database.ts';

export function createProjectKeyStore(db: Database): ProjectKeyStore {
  const columns = ['project_id', 'wrapped', 'wrapped_by'] as const;
  return {
    get: async (projectId) =>
      (await db.kysely.selectFrom('project_keys').select(columns).where('project_id', '=', projectId).executeTakeFirst()) ?? null,

    setOnce: (record, now) =>
      db.write(async (tx) => {
        const project = await tx.selectFrom('projects').select('id').where('id', '=', record.project_id).executeTakeFirst();
        if (project === undefined) throw new DomainError('not_found', `no project has the id ${record.project_id}`);
        await tx
          .insertInto('project_keys')
          .values({ ...record, created_at: now })
          .onConflict((oc) => oc.column('project_id').doNothing())
          .execute();
        return tx.selectFrom('project_keys').select(columns).where('project_id', '=', record.project_id).executeTakeFirstOrThrow();
      }),

    async rewrap({ project_id, wrapped, wrapped_by }, from) {
      await db.writeOne((kysely) =>
        kysely
          .updateTable('project_keys')
          .set({ wrapped, wrapped_by })
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
        .orderBy('project_id')
        .limit(limit)
        .execute(),

    async counts() {
      const rows = await db.kysely
        .selectFrom('project_keys')
        .select((eb) => ['wrapped_by', eb.fn.countAll<number>().as('count')])
        .groupBy('wrapped_by')
        .execute();
      return new Map(rows.map((row) => [row.wrapped_by, row.count]));
    },
  };
}
