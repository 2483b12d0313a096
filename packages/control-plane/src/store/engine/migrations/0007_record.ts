/** Adds columns to the record of a deployment. */
import { type Kysely, sql } from 'kysely';
import type { Migration } from 'kysely/migration';
import type { Capabilities } from '../capabilities.ts';

export const record = ({ text }: Capabilities): Migration => ({
  async up(db: Kysely<unknown>) {
    await db.schema.alterTable('deployments').addColumn('stopped_first', text).execute();
    await db.schema
      .alterTable('deployment_events')
      .addColumn('count', 'integer', (c) => c.notNull().defaultTo(1))
      .execute();
    await db.schema.alterTable('deployment_events').addColumn('first_at', 'bigint').execute();
    await stoppedFirst(db);
    await mountPaths(db);
  },
});

/**
 * Before this migration, the beginning of the text `waiting` said whether a deployment was stopped
 * first.
 */
async function stoppedFirst(db: Kysely<unknown>): Promise<void> {
  const told = 'stopped first: it stands still until the newer version serves or has failed';
  // A deployment that waits to be started again was also stopped.
  await sql`update deployments set stopped_first =
    case when waiting = ${told} or waiting like 'stopped first, and not started again yet%'
      then 'stopped' else 'asked' end
    where status = 'running' and waiting like 'stopped first%'`.execute(db);
}

type Use = { dataset_id: string; mount_path?: string };

/**
 * Before this migration, a mount without a path followed the name of its dataset. Now the project
 * stores the path: the path in its running deployment, or else the path that its next deployment
 * would have used.
 */
async function mountPaths(db: Kysely<unknown>): Promise<void> {
  const { rows } = await sql<{ id: string; datasets: string; pins: string | null }>`
    select projects.id as id, projects.datasets as datasets, deployments.datasets as pins
    from projects
    left join deployments on deployments.project_id = projects.id and deployments.status = 'running'
    where projects.datasets <> '[]'`.execute(db);
  const names = new Map(
    (await sql<{ id: string; name: string }>`select id, name from datasets`.execute(db)).rows.map(
      ({ id, name }) => [id, name],
    ),
  );
  for (const { id, datasets, pins } of rows) {
    const ran = JSON.parse(pins ?? '[]') as { dataset_id: string; name: string }[];
    const uses = (JSON.parse(datasets) as Use[]).map((use) => {
      const name =
        ran.find((pin) => pin.dataset_id === use.dataset_id)?.name ?? names.get(use.dataset_id);
      return use.mount_path !== undefined || name === undefined
        ? use
        : { ...use, mount_path: `/data/${name}` };
    });
    await sql`update projects set datasets = ${JSON.stringify(uses)} where id = ${id}`.execute(db);
  }
}
