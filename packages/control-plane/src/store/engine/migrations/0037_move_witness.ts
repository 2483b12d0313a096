/**
 * Adds the containers that a move of volumes saw on both nodes when it began. A proof without these
 * containers is not accepted.
 */
import type { Kysely } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const moveWitness = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('volume_copies').addColumn('seen', text).execute();
  },
});
