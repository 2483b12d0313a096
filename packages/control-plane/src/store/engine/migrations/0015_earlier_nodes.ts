/** Adds the earlier nodes of a machine (domain/nodes/renamed-machine.ts). Null if none is known. */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const earlierNodes = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('nodes').addColumn('earlier_nodes', text).execute();
  },
});
