/** Dataset versions that nodes keep for projects (domain/data/data-copies.ts). */
import type { CopiedProject, DatasetPin } from '../../domain/data/data-copies.ts';
import type { DataCopyStore } from '../../domain/data/data-copy-store.ts';
import { isWanted } from '../../domain/deployments/instance.ts';
import type { Database } from '../engine/database.ts';
import type { Tx } from '../engine/tables.ts';
import { instancesOf } from '../instances.ts';

export const createDataCopyStore = (db: Database): DataCopyStore => ({
  projects: async () => projectsOf(db, await copied(db).where('p.data_copies', '>', 1).execute()),
  ofProject: async (id) => {
    const row = await copied(db).where('p.id', '=', id).executeTakeFirst();
    return row === undefined ? null : ((await projectsOf(db, [row]))[0] ?? null);
  },
  pins: () =>
    db.kysely
      .selectFrom('dataset_pins')
      .selectAll()
      .orderBy('project_id')
      .orderBy('node_id')
      .orderBy('dataset_id')
      .orderBy('version')
      .execute(),
  onNode: (nodeId) =>
    db.kysely
      .selectFrom('dataset_pins as c')
      .innerJoin('projects as p', 'p.id', 'c.project_id')
      .innerJoin('datasets as d', 'd.id', 'c.dataset_id')
      .select(['c.project_id', 'c.node_id', 'c.dataset_id', 'c.version'])
      .select(['p.name as project', 'd.name as name'])
      .where('c.node_id', '=', nodeId)
      .orderBy('d.name')
      .orderBy('c.version')
      .orderBy('p.name')
      .execute(),
  change: async ({ add, remove }) => {
    if (add.length === 0 && remove.length === 0) return;
    await db.write(async (tx) => {
      for (const pin of remove) await removePin(tx, pin);
      for (const pin of add) await addPin(db, tx, pin);
    });
  },
});

const copied = (db: Database) =>
  db.kysely
    .selectFrom('projects as p')
    .innerJoin('deployments as d', 'd.project_id', 'p.id')
    .select(['p.id as project_id', 'p.name as project', 'p.data_copies', 'p.volumes'])
    .select(['d.id as deployment_id', 'd.node_id', 'd.image_arch', 'd.datasets'])
    .where('d.status', '=', 'running')
    .where('p.deleting_at', 'is', null)
    .where('p.stopped_at', 'is', null)
    .orderBy('p.id');

type CopiedRow = Awaited<ReturnType<ReturnType<typeof copied>['execute']>>[number];

async function projectsOf(db: Database, rows: readonly CopiedRow[]): Promise<CopiedProject[]> {
  const instances = await instancesOf(
    db.kysely,
    rows.map(({ deployment_id }) => deployment_id),
  );
  return rows.map(({ volumes, datasets, ...row }) => ({
    ...row,
    others: instances
      .filter((one) => one.deployment_id === row.deployment_id && isWanted(one))
      .flatMap(({ node_id }) => node_id ?? []),
    has_volumes: volumes !== '[]',
    datasets: datasets === null ? null : (JSON.parse(datasets) as CopiedProject['datasets']),
  }));
}

async function removePin(tx: Tx, pin: DatasetPin): Promise<void> {
  await tx
    .deleteFrom('dataset_pins')
    .where('project_id', '=', pin.project_id)
    .where('node_id', '=', pin.node_id)
    .where('dataset_id', '=', pin.dataset_id)
    .where('version', '=', pin.version)
    .execute();
}

async function addPin({ capabilities }: Database, tx: Tx, pin: DatasetPin): Promise<void> {
  // The row locks keep the project and the node from being deleted until the pin is stored.
  const project = await tx
    .selectFrom('projects')
    .select('id')
    .where('id', '=', pin.project_id)
    .$if(capabilities.rowLocks, (q) => q.forShare())
    .executeTakeFirst();
  const node = await tx
    .selectFrom('nodes')
    .select('id')
    .where('id', '=', pin.node_id)
    .$if(capabilities.rowLocks, (q) => q.forShare())
    .executeTakeFirst();
  if (project === undefined || node === undefined) return;
  await tx
    .insertInto('dataset_pins')
    .values(pin)
    .onConflict((oc) => oc.doNothing())
    .execute();
}

/** Removes the pins of a node or a project that is being removed. */
export const forgetPinsOf = (
  tx: Tx,
  where: { node: string } | { project: string },
): Promise<unknown> => {
  const pins = tx.deleteFrom('dataset_pins');
  return (
    'node' in where
      ? pins.where('node_id', '=', where.node)
      : pins.where('project_id', '=', where.project)
  ).execute();
};
