/**
 * Adds the digest of a copy of volumes. Both nodes of a move report a digest, and the switch
 * requires that they are equal.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const volumeMoves = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('volume_copies').addColumn('digest', text).execute();
  },
});
