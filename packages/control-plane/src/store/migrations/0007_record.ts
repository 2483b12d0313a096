/** What a deployment's record says beyond its state. */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const record = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('deployments').addColumn('stopped_first', text).execute();
    await stoppedFirst(db);
  },
});

/** Until this migration the beginning of the text `waiting` said that a deployment was stopped first. */
async function stoppedFirst(db: Kysely<unknown>): Promise<void> {
  const told = 'stopped first: it stands still until the newer version serves or has failed';
  // A deployment that waits to be started again has stopped, too.
  await sql`update deployments set stopped_first =
    case when waiting = ${told} or waiting like 'stopped first, and not started again yet%' then 'stopped' else 'asked' end
    where status = 'running' and waiting like 'stopped first%'`.execute(db);
}
