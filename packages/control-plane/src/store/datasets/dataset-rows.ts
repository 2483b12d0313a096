/** Queries on the row of a dataset, for use in the transactions of several files. */
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import type { ProjectSettings } from '../../domain/platform/records.ts';
import type { Database } from '../engine/database.ts';
import type { Db, Tx } from '../engine/tables.ts';
import { NOBODY, visibleOf } from '../project-access.ts';
import { LIVE_STATES } from '../states.ts';
import type { Row } from '../engine/tables.ts';

/** Returns the row of a dataset. Throws not_found. */
export async function datasetRow(db: Db, id: string, lock: boolean): Promise<Row<'datasets'>> {
  const row = await db
    .selectFrom('datasets')
    .selectAll()
    .where('id', '=', id)
    .$if(lock, (q) => q.forUpdate())
    .executeTakeFirst();
  if (row === undefined) throw new DomainError('not_found', 'the dataset does not exist');
  return row;
}

/**
 * Locks these datasets until the transaction ends, so that no other request can begin to use or
 * delete one. The fixed order prevents deadlocks.
 */
export async function lockDatasets(
  { capabilities }: Database,
  tx: Tx,
  ids: readonly string[],
): Promise<void> {
  for (const id of [...new Set(ids)].sort()) await capabilities.lockName(tx, `dataset:${id}`);
}

/** Refuses datasets that do not exist or are being deleted. Throws validation. */
export async function refuseUnknownDatasets(
  db: Database,
  tx: Tx,
  uses: ProjectSettings['datasets'],
): Promise<void> {
  if (uses.length === 0) return;
  const ids = uses.map((use) => use.dataset_id);
  await lockDatasets(db, tx, ids);
  const rows = await tx
    .selectFrom('datasets')
    .select(['id', 'deleting_at'])
    .where('id', 'in', ids)
    .execute();
  for (const [i, id] of ids.entries()) {
    const row = rows.find((r) => r.id === id);
    if (row === undefined)
      throw invalid(`datasets[${i}].dataset_id`, 'exists', 'there is no dataset with this id');
    if (row.deleting_at !== null)
      throw invalid(`datasets[${i}].dataset_id`, 'exists', 'this dataset is being deleted');
  }
}

/**
 * Returns the users of a dataset as text for people: projects that have it in their settings, and
 * live deployments with it whose project has removed it since. Counts projects that the caller
 * cannot see without naming them.
 */
export async function usersOf(tx: Tx, id: string, access = NOBODY): Promise<string[]> {
  const like = `%"${id}"%`;
  const projects = await tx
    .selectFrom('projects')
    .select(['id', 'name'])
    .where('datasets', 'like', like)
    .where('deleting_at', 'is', null)
    .orderBy('name')
    .execute();
  const deployments = await tx
    .selectFrom('deployments')
    .innerJoin('projects', 'projects.id', 'deployments.project_id')
    .select(['projects.id', 'projects.name', 'deployments.generation', 'deployments.status'])
    .where('deployments.status', 'in', [...LIVE_STATES])
    .where((eb) =>
      eb.or([eb('deployments.settings', 'like', like), eb('deployments.datasets', 'like', like)]),
    )
    .orderBy('projects.name')
    .orderBy('deployments.generation')
    .execute();
  const all = [...projects, ...deployments].map(({ id: projectId }) => projectId);
  const seen = await visibleOf(tx, [...new Set(all)], access);
  const hidden = new Set(all.filter((projectId) => !seen.has(projectId))).size;
  return [
    ...projects.filter((row) => seen.has(row.id)).map(({ name }) => `project ${name}`),
    ...deployments
      .filter((row) => seen.has(row.id))
      .map(({ name, generation, status }) => `deployment ${generation} of ${name} (${status})`),
    ...(hidden === 0 ? [] : [`${hidden} project${hidden === 1 ? '' : 's'} that you may not see`]),
  ];
}
