/**
 * Adds notifications with their deliveries, the problems that Berth found, and the keys for values
 * that belong to no project.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const notifications = ({ autoNumber, text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('platform_keys')
      .addColumn('name', text, (c) => c.primaryKey())
      .addColumn('wrapped', text, (c) => c.notNull())
      .addColumn('wrapped_by', text, (c) => c.notNull())
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .execute();
    await db.schema
      .createTable('problems')
      .addColumn('kind', text, (c) => c.notNull())
      .addColumn('subject', text, (c) => c.notNull())
      .addColumn('seen', text, (c) => c.notNull())
      .addColumn('opened_at', 'bigint', (c) => c.notNull())
      .addColumn('observed_at', 'bigint', (c) => c.notNull())
      .addColumn('gone_since', 'bigint')
      .addColumn('ended_at', 'bigint')
      .addColumn('flaps', 'integer', (c) => c.notNull())
      .addPrimaryKeyConstraint('problems_pk', ['kind', 'subject'])
      .execute();
    await db.schema
      .createIndex('problems_open')
      .on('problems')
      .columns(['kind'])
      .where(sql.ref('ended_at'), 'is', null)
      .execute();
    await db.schema.createIndex('problems_ended').on('problems').columns(['ended_at']).execute();
    await db.schema
      .createTable('problem_changes')
      .addColumn('seq', autoNumber.type, autoNumber.with)
      .addColumn('kind', text, (c) => c.notNull())
      .addColumn('subject', text, (c) => c.notNull())
      .addColumn('is_over', 'integer', (c) => c.notNull())
      .addColumn('seen', text, (c) => c.notNull())
      .addColumn('opened_at', 'bigint', (c) => c.notNull())
      .addColumn('at', 'bigint', (c) => c.notNull())
      .execute();
    await db.schema
      .createTable('notifications')
      .addColumn('id', text, (c) => c.primaryKey())
      .addColumn('name', text, (c) => c.notNull())
      .addColumn('kind', text, (c) => c.notNull())
      .addColumn('target', text, (c) => c.notNull())
      .addColumn('shown', text, (c) => c.notNull())
      .addColumn('secret', text)
      .addColumn('events', text, (c) => c.notNull())
      .addColumn('projects', text, (c) => c.notNull())
      .addColumn('after', 'bigint', (c) => c.notNull())
      .addColumn('last_sent_at', 'bigint')
      .addColumn('failing_since', 'bigint')
      .addColumn('problem', text)
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addColumn('updated_at', 'bigint', (c) => c.notNull())
      .addUniqueConstraint('notifications_name_unique', ['name'])
      .execute();
    await db.schema
      .createTable('notices')
      .addColumn('seq', autoNumber.type, autoNumber.with)
      .addColumn('id', text, (c) => c.notNull())
      .addColumn('notification_id', text, (c) =>
        c.notNull().references('notifications.id').onDelete('cascade'),
      )
      .addColumn('message', text, (c) => c.notNull())
      .addColumn('tries', 'integer', (c) => c.notNull())
      .addColumn('next_at', 'bigint', (c) => c.notNull())
      .addColumn('give_up_at', 'bigint', (c) => c.notNull())
      .addColumn('claimed_until', 'bigint')
      .addColumn('received', text, (c) => c.notNull())
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addColumn('done_at', 'bigint')
      .addColumn('is_sent', 'integer', (c) => c.notNull())
      .addColumn('error', text)
      .addUniqueConstraint('notices_id_unique', ['id'])
      .execute();
    await db.schema
      .createIndex('notices_notification')
      .on('notices')
      .columns(['notification_id', 'seq'])
      .execute();
    await db.schema.createIndex('notices_done').on('notices').columns(['done_at']).execute();
    await db.schema
      .createIndex('notices_waiting')
      .on('notices')
      .columns(['notification_id'])
      .where(sql.ref('done_at'), 'is', null)
      .execute();
  },
});
