/**
 * Adds the instance whose container gets a device back. `instance_id` of a lease is there since
 * migration 66, and always null until this version.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const leaseInstances = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('device_leases').addColumn('returns_to_instance', text).execute();
  },
});
