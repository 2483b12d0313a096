/**
 * Adds hooks with their deliveries, the outbox of commit statuses, and the settings of push to
 * deploy.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const hooks = ({ autoNumber, text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .alterTable('projects')
      .addColumn('deploy_on_push', 'integer', (c) => c.notNull().defaultTo(1))
      .execute();
    await db.schema
      .alterTable('projects')
      .addColumn('watch_paths', text, (c) => c.notNull().defaultTo('[]'))
      .execute();
    await db.schema
      .createTable('hooks')
      .addColumn('project_id', text, (c) =>
        c.primaryKey().references('projects.id').onDelete('cascade'),
      )
      .addColumn('forge', text, (c) => c.notNull())
      .addColumn('secret', text, (c) => c.notNull())
      .addColumn('refused', 'bigint', (c) => c.notNull())
      .addColumn('look_upto', 'bigint', (c) => c.notNull())
      .addColumn('look_tries', 'integer', (c) => c.notNull())
      .addColumn('look_not_before', 'bigint', (c) => c.notNull())
      .addColumn('look_failed_on', text)
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addColumn('updated_at', 'bigint', (c) => c.notNull())
      .execute();
    await db.schema
      .createTable('deliveries')
      .addColumn('seq', autoNumber.type, autoNumber.with)
      .addColumn('id', text, (c) => c.notNull())
      .addColumn('project_id', text, (c) =>
        c.notNull().references('hooks.project_id').onDelete('cascade'),
      )
      .addColumn('forge_id', text)
      .addColumn('at', 'bigint', (c) => c.notNull())
      .addColumn('event', text, (c) => c.notNull())
      .addColumn('branch', text)
      .addColumn('commit', text)
      .addColumn('verdict', text)
      .addColumn('reason', text)
      .addColumn('deployment_id', text)
      .addUniqueConstraint('deliveries_id_unique', ['id'])
      // Several null values are allowed: both engines treat them as distinct.
      .addUniqueConstraint('deliveries_forge_id_unique', ['project_id', 'forge_id'])
      .execute();
    await db.schema
      .createIndex('deliveries_project')
      .on('deliveries')
      .columns(['project_id', 'seq'])
      .execute();
    await db.schema.createIndex('deliveries_at').on('deliveries').columns(['at']).execute();
    // A partial index, because few deliveries wait at any time.
    await db.schema
      .createIndex('deliveries_waiting')
      .on('deliveries')
      .columns(['project_id', 'seq'])
      .where(sql.ref('verdict'), 'is', null)
      .execute();

    await db.schema
      .createTable('commit_statuses')
      .addColumn('seq', autoNumber.type, autoNumber.with)
      .addColumn('project_id', text, (c) =>
        c.notNull().references('projects.id').onDelete('cascade'),
      )
      .addColumn('deployment_id', text, (c) =>
        c.notNull().references('deployments.id').onDelete('cascade'),
      )
      .addColumn('state', text, (c) => c.notNull())
      .addColumn('commit', text, (c) => c.notNull())
      .addColumn('description', text, (c) => c.notNull())
      .addColumn('tries', 'integer', (c) => c.notNull())
      .addColumn('next_at', 'bigint', (c) => c.notNull())
      .addColumn('give_up_at', 'bigint', (c) => c.notNull())
      .addColumn('claimed_until', 'bigint')
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addColumn('done_at', 'bigint')
      .addColumn('error', text)
      .addUniqueConstraint('commit_statuses_state_unique', ['deployment_id', 'state'])
      .execute();
    await db.schema
      .createIndex('commit_statuses_waiting')
      .on('commit_statuses')
      .columns(['seq'])
      .where(sql.ref('done_at'), 'is', null)
      .execute();
    await db.schema
      .createIndex('commit_statuses_project')
      .on('commit_statuses')
      .columns(['project_id', 'seq'])
      .execute();
    await db.schema
      .createIndex('commit_statuses_done')
      .on('commit_statuses')
      .columns(['done_at'])
      .execute();
  },
});
