/**
 * Adds which value of AGENT_SECRET a node sent last, as a fingerprint. Null: the node has its own
 * secret, or sent none since then.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const sharedSecret = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('nodes').addColumn('shared_secret', text).execute();
  },
});
