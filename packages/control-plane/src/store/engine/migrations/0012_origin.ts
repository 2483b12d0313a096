/**
 * Adds the origin of a deployment (who requested it, how, from which commit) and the times of its
 * phases. Null in rows of an older version.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const origin = ({ engine, text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    for (const column of [
      'created_by',
      'trigger',
      'branch',
      'commit_message',
      'commit_author',
      'phases',
    ])
      await db.schema.alterTable('deployments').addColumn(column, text).execute();
    const branch =
      engine === 'sqlite'
        ? sql`json_extract(settings, '$.branch')`
        : sql`cast(settings as jsonb) ->> 'branch'`;
    await sql`update deployments set branch = ${branch}`.execute(db);
  },
});
