/**
 * Adds whether a person stopped a project, or only its count is 0. Null while the project runs, and
 * for a project that an earlier version stopped (rows/project.ts then decides by the count).
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';

export const stoppedByPerson = (): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('projects').addColumn('stopped_by_person', 'integer').execute();
  },
});
