/**
 * Allows only one `readwrite` mount among nested datasets, across all projects. A writer of the
 * outer dataset could replace the folder of the inner one by a symlink. The container engine
 * follows a symlink, even out of the share, when it starts a container with the inner dataset.
 */
import type { DatasetMount } from '@berth/wire/dataset';
import type { ProjectAccess } from '../../domain/identity/access.ts';
import { invalid } from '../../domain/platform/errors.ts';
import { liesInside } from '@berth/wire/path-rules';
import type { ProjectSettings } from '../../domain/platform/records.ts';
import type { Database } from '../engine/database.ts';
import type { Tx } from '../engine/tables.ts';
import { NOBODY, visibleOf } from '../project-access.ts';
import { LIVE_STATES } from '../states.ts';
import type { Row } from '../engine/tables.ts';

/**
 * A dataset with a readwrite mount. `by`: the project or deployment, as text for people. `moves`:
 * the next container mounts the dataset's current folder.
 */
type Writer = {
  projectId: string;
  by: string;
  datasetId: string;
  name: string;
  path: string;
  moves: boolean;
};
type Folder = Pick<Row<'datasets'>, 'id' | 'name' | 'nfs_path'>;
type Uses = ProjectSettings['datasets'];

const READWRITE = '%"readwrite"%';
const isWritten = ({ mode }: { mode: string }): boolean => mode === 'readwrite';
const isNested = (a: string, b: string): boolean => liesInside(a, b) || liesInside(b, a);

/** Serializes these decisions, because each depends on the mounts of all projects. */
const lockWriters = ({ capabilities }: Database, tx: Tx): Promise<void> =>
  capabilities.lockName(tx, 'readwrite mounts');

/**
 * Throws validation if a mount is nested in a readwrite mount of another project. `project.id`:
 * null for a new project.
 */
export async function refuseNestedWriters(
  db: Database,
  tx: Tx,
  project: { id: string | null; name: string },
  uses: Uses,
  access = NOBODY,
): Promise<void> {
  if (!uses.some(isWritten)) return;
  await lockWriters(db, tx);
  const folders = await foldersOf(tx);
  // The project's own current mounts do not count: its old container stops first, and then the
  // agent checks the folders.
  const otherWriters = (await writersOf(tx, folders)).filter((w) => w.projectId !== project.id);
  for (const [i, use] of uses.entries()) {
    const folder = folders.get(use.dataset_id);
    if (!isWritten(use) || folder === undefined) continue;
    const other = otherWriters.find((w) => isNested(w.path, folder.nfs_path));
    if (other !== undefined)
      throw invalid(
        `datasets[${i}].dataset_id`,
        'nested_writer',
        sentence(folder.name, folder.nfs_path, await shown(tx, other, access)),
      );
    otherWriters.push({
      ...writer(project.id ?? '', `project ${project.name}`, folder),
      moves: true,
    });
  }
}

/** Checks the move of a dataset to `path`. Throws validation. */
export async function refuseNestedPath(
  db: Database,
  tx: Tx,
  dataset: Folder,
  path: string,
  access = NOBODY,
): Promise<void> {
  await lockWriters(db, tx);
  const writers = await writersOf(tx, await foldersOf(tx));
  if (!writers.some((w) => w.datasetId === dataset.id)) return;
  // A running container keeps its mount of the old folder after a move.
  const other = writers.find(
    (w) => !(w.datasetId === dataset.id && w.moves) && isNested(w.path, path),
  );
  if (other !== undefined)
    throw invalid(
      'nfs_path',
      'nested_writer',
      sentence(dataset.name, path, await shown(tx, other, access)),
    );
}

/** Returns the writer, without the name of its project if the caller cannot see the project. */
async function shown(tx: Tx, other: Writer, access: ProjectAccess): Promise<Writer> {
  const seen = other.projectId === '' || (await visibleOf(tx, [other.projectId], access)).size > 0;
  return seen ? other : { ...other, by: 'another project' };
}

function sentence(name: string, path: string, other: Writer): string {
  const where = liesInside(path, other.path) ? 'inside' : 'around';
  return (
    `${name} (${path}) lies ${where} ${other.name} (${other.path}), which ${other.by} mounts ` +
    'readwrite. If one dataset lies inside another, ' +
    'only one of the two may be mounted readwrite, because a writer of the outer one can ' +
    'replace the inner one by a symlink'
  );
}

const writer = (
  projectId: string,
  by: string,
  { id, name, nfs_path }: Folder,
): Omit<Writer, 'moves'> => ({
  projectId,
  by,
  datasetId: id,
  name,
  path: nfs_path,
});

async function foldersOf(tx: Tx): Promise<Map<string, Folder>> {
  const rows = await tx.selectFrom('datasets').select(['id', 'name', 'nfs_path']).execute();
  return new Map(rows.map((row) => [row.id, row]));
}

/**
 * Returns the readwrite mounts of all projects (including projects being deleted), and of all live
 * deployments with the folders that they mounted.
 */
async function writersOf(tx: Tx, folders: ReadonlyMap<string, Folder>): Promise<Writer[]> {
  const written = (projectId: string, by: string, uses: Uses): Writer[] =>
    uses.filter(isWritten).flatMap(({ dataset_id }) => {
      const folder = folders.get(dataset_id);
      return folder === undefined ? [] : [{ ...writer(projectId, by, folder), moves: true }];
    });
  const projects = await tx
    .selectFrom('projects')
    .select(['id', 'name', 'datasets'])
    .where('datasets', 'like', READWRITE)
    .orderBy('name')
    .execute();
  const live = await tx
    .selectFrom('deployments')
    .innerJoin('projects', 'projects.id', 'deployments.project_id')
    .select([
      'deployments.id',
      'deployments.project_id',
      'projects.name',
      'deployments.generation',
      'deployments.settings',
    ])
    .where('deployments.status', 'in', [...LIVE_STATES])
    .where('deployments.settings', 'like', READWRITE)
    .orderBy('projects.name')
    .orderBy('deployments.generation')
    .execute();
  const writers = projects.flatMap((row) =>
    written(row.id, `project ${row.name}`, JSON.parse(row.datasets) as Uses),
  );
  for (const row of live) {
    const by = `deployment ${row.generation} of ${row.name}`;
    writers.push(
      ...written(row.project_id, by, (JSON.parse(row.settings) as ProjectSettings).datasets),
    );
    const tasks = await tx
      .selectFrom('tasks')
      .select('payload')
      .where('deployment_id', '=', row.id)
      .where('kind', '=', 'deploy')
      .execute();
    for (const { payload } of tasks) {
      const mounts = (JSON.parse(payload) as { datasets: DatasetMount[] }).datasets.filter(
        isWritten,
      );
      writers.push(
        ...mounts.map((m) => ({
          ...writer(row.project_id, by, { ...m, id: m.dataset_id }),
          moves: false,
        })),
      );
    }
  }
  return writers;
}
