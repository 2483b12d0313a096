/** Adds the times at which retention removed parts of a deployment, and indexes for its queries. */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';

export const retention = (): Migration => ({
  async up(db: Kysely<unknown>) {
    for (const column of ['log_removed_at', 'story_removed_at', 'thinned_at'])
      await db.schema.alterTable('deployments').addColumn(column, 'bigint').execute();
    await db.schema
      .createIndex('deployments_whole')
      .on('deployments')
      .columns(['state_since', 'id'])
      .where(sql.ref('thinned_at'), 'is', null)
      .execute();
    await db.schema
      .createIndex('deployments_with_log')
      .on('deployments')
      .columns(['project_id', 'generation'])
      .where(sql.ref('log_removed_at'), 'is', null)
      .execute();
    // With this index, the last end of work on each node is one lookup, however many tasks there
    // are (store/ended-work.ts).
    await sql`create index tasks_ended_work on tasks (project_id, node_id, finished_at)
      where kind in ('deploy', 'retire') and finished_at is not null`.execute(db);
    await sql`create index tasks_unreported on tasks (project_id, node_id, finished_at)
      where kind in ('deploy', 'retire') and finished_at is not null
      and ((report is null and attempt > 0) or (kind = 'retire' and status = 'failed'))`.execute(
      db,
    );
    await db.schema
      .createIndex('idempotency_keys_expires')
      .on('idempotency_keys')
      .column('expires_at')
      .execute();
  },
});
