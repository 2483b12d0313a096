/**
 * Adds the devices of runs and jobs. An earlier version does not know them, so the database refuses
 * what it must not do: hand such a run to a node without its devices, or take a device that a run
 * has (it reads the lease of a run as free). It tries again until this version has done it.
 *
 * `device_leases.deployment_id` of a run has the id of the run. `task_ended_at`: when Berth noticed
 * the end of the task, by the uptime clock; null: the run has the device.
 */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const runDevices = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('jobs').addColumn('devices', text).execute();
    await db.schema.alterTable('runs').addColumn('devices', text).execute();
    // The task for which the devices are leased.
    await db.schema
      .alterTable('runs')
      .addColumn('devices_task', text, (c) =>
        c.check(sql`devices is null or task_id is null or coalesce(devices_task, '') = task_id`),
      )
      .execute();
    await db.schema
      .alterTable('device_leases')
      .addColumn('run_id', text, (c) => c.check(sql`run_id is null or run_id = deployment_id`))
      .execute();
    await db.schema.alterTable('device_leases').addColumn('task_id', text).execute();
    await db.schema.alterTable('device_leases').addColumn('task_ended_at', 'bigint').execute();
  },
});
