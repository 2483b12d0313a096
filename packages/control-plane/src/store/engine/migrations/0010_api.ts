/**
 * Adds stored answers for an Idempotency-Key, the feed of events, and an index of the audit log.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const api = ({ autoNumber, bytes, text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .createTable('kept_answers')
      .addColumn('user_id', text, (c) => c.notNull().references('users.id').onDelete('cascade'))
      .addColumn('request', text, (c) => c.notNull())
      .addColumn('body_hash', text, (c) => c.notNull())
      .addColumn('claim', text)
      .addColumn('claimed_until', 'bigint')
      .addColumn('answer', bytes)
      .addColumn('bytes', 'bigint', (c) => c.notNull())
      .addColumn('created_at', 'bigint', (c) => c.notNull())
      .addColumn('expires_at', 'bigint', (c) => c.notNull())
      .addPrimaryKeyConstraint('kept_answers_primary', ['user_id', 'request'])
      .execute();
    await db.schema
      .createIndex('kept_answers_expires')
      .on('kept_answers')
      .column('expires_at')
      .execute();
    await db.schema
      .createIndex('kept_answers_age')
      .on('kept_answers')
      .columns(['user_id', 'created_at', 'request', 'bytes'])
      .execute();

    await db.schema
      .createTable('events')
      .addColumn('seq', autoNumber.type, autoNumber.with)
      .addColumn('at', 'bigint', (c) => c.notNull())
      .addColumn('kind', text, (c) => c.notNull())
      .addColumn('project_id', text)
      .addColumn('deployment_id', text)
      .addColumn('node_id', text)
      .addColumn('dataset_id', text)
      .addColumn('user_id', text)
      .addColumn('message', text, (c) => c.notNull())
      .execute();
    // The state of the node that the feed announced last, so that only one control plane announces
    // each change.
    await db.schema.alterTable('nodes').addColumn('announced', text).execute();

    await db.schema
      .createIndex('audit_log_target')
      .on('audit_log')
      .columns(['target', 'at', 'id'])
      .execute();
  },
});
