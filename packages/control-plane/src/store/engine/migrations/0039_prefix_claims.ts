/** Adds the current and past owner of each domain prefix. */
import { FIRST_CLAIM } from '@berth/wire/gateway';
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const prefixClaims = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('prefix_claims')
      .addColumn('prefix', text, (c) => c.primaryKey())
      .addColumn('id', text, (c) => c.notNull())
      .addColumn('project_id', text, (c) => c.notNull())
      .addColumn('claimed_at', 'bigint', (c) => c.notNull())
      .addColumn('released_at', 'bigint')
      .execute();
    await db.schema
      .createIndex('prefix_claims_project')
      .on('prefix_claims')
      .columns(['project_id'])
      .execute();
    await db.schema
      .createIndex('prefix_claims_released')
      .on('prefix_claims')
      .columns(['released_at'])
      .execute();
    const now = Date.now();
    // Sessions of a project that never changed its prefix stay valid. Visitors of a project that
    // did might have cookies at a prefix that is no longer its own.
    await sql`insert into prefix_claims (prefix, id, project_id, claimed_at, released_at)
      select p.domain_prefix,
        case when exists (
            select 1 from deployments d
            where d.project_id = p.id and d.domain_prefix <> p.domain_prefix)
          then 'moved-' || p.id else ${FIRST_CLAIM} end,
        p.id, p.created_at, null
      from projects p`.execute(db);
    await sql`insert into prefix_claims (prefix, id, project_id, claimed_at, released_at)
      select d.domain_prefix, 'left-' || min(d.project_id), min(d.project_id), min(d.created_at),
        ${now}
      from deployments d
      where d.status in ('running', 'retired')
        and not exists (select 1 from projects p where p.domain_prefix = d.domain_prefix)
      group by d.domain_prefix`.execute(db);
  },
});
