/**
 * Adds what a rollback replaced: the number of the deployment, and the project settings that the
 * rollback did not use.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const rolledBack = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('deployments').addColumn('rolled_back', text).execute();
  },
});
