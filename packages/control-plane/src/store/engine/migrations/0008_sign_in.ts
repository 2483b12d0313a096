/**
 * Adds scopes of device tokens, tombstones of deleted accounts, and the epoch from which on a
 * project's sessions are valid.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const signIn = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    // Null in rows of a version without scopes. Such a token only opens projects.
    await db.schema.alterTable('device_codes').addColumn('scope', text).execute();
    await db.schema.alterTable('device_tokens').addColumn('scope', text).execute();
    await db.schema
      .alterTable('projects')
      .addColumn('auth_epoch', 'integer', (c) => c.notNull().defaultTo(0))
      .execute();
    await db.schema
      .createTable('deleted_users')
      .addColumn('email', text, (c) => c.primaryKey())
      .addColumn('deleted_at', 'bigint', (c) => c.notNull())
      .addColumn('expires_at', 'bigint', (c) => c.notNull())
      .execute();
    await db.schema
      .createIndex('deleted_users_expires')
      .on('deleted_users')
      .column('expires_at')
      .execute();
  },
});
