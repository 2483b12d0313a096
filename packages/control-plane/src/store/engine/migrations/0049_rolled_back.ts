/**
 * Adds what a rollback left behind: the number of the deployment, and the project settings that it
 * set aside.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const rolledBack = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('deployments').addColumn('rolled_back', text).execute();
  },
});
