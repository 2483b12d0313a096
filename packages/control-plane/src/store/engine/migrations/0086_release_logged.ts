/** Adds the time up to which the lines of a release command are stored. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const releaseLogged = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('log_marks').addColumn('logged_until', text).execute();
  },
});
