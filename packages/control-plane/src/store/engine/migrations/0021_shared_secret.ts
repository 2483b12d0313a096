/**
 * Adds the fingerprint of the AGENT_SECRET value that a node sent last. Null if the node has its
 * own secret, or has sent none since this migration.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const sharedSecret = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('nodes').addColumn('shared_secret', text).execute();
  },
});
