/**
 * Adds the instance to usage points, ends of containers and wanted logs. A point of an instance with
 * labels has the id of the instance as `deployment_id`, so that the key stays as it is: an earlier
 * version adds it to the project's sum.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const instanceFields = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('usage_points').addColumn('of_deployment', text).execute();
    for (const table of ['usage_points', 'container_exits']) {
      await db.schema.alterTable(table).addColumn('process', text).execute();
      await db.schema.alterTable(table).addColumn('instance', 'integer').execute();
    }
    await db.schema.alterTable('log_wants').addColumn('instance', text).execute();
  },
});
