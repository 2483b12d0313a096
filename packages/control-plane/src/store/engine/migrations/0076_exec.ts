/** Adds exec sessions: who may open them, their tickets, and their details in the audit log. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const exec = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema
      .alterTable('projects')
      .addColumn('allow_exec', 'integer', (c) => c.notNull().defaultTo(0))
      .execute();
    await db.schema
      .alterTable('projects')
      .addColumn('exec_role', text, (c) => c.notNull().defaultTo('admin'))
      .execute();
    await db.schema.alterTable('audit_log').addColumn('detail', text).execute();
    await db.schema
      .createTable('exec_sessions')
      .addColumn('id', text, (c) => c.primaryKey())
      .addColumn('ticket_hash', text, (c) => c.notNull())
      .addColumn('kind', text, (c) => c.notNull())
      .addColumn('project_id', text, (c) => c.notNull())
      .addColumn('node_id', text, (c) => c.notNull())
      .addColumn('agent_order', text, (c) => c.notNull())
      .addColumn('credential', text, (c) => c.notNull())
      .addColumn('place', text, (c) => c.notNull())
      .addColumn('expires_at', 'bigint', (c) => c.notNull())
      .addColumn('used_at', 'bigint')
      .execute();
  },
});
