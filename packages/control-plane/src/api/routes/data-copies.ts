/** Route of the nodes that keep the datasets of a project. */
import type { DataCopies } from '@berth/wire/data-copies';
import {
  copiesQuestion,
  copyVersions,
  planCopies,
  RETRY_MS,
} from '../../domain/data/data-copies.ts';
import type { DataCopyStore } from '../../domain/data/data-copy-store.ts';
import type { DatasetStore } from '../../domain/data/dataset-stores.ts';
import type { VolumeStore } from '../../domain/data/volume-store.ts';
import type { Limits } from '../../domain/deployments/facts.ts';
import type { TaskStore } from '../../domain/deployments/task-store.ts';
import type { CacheIndex } from '../../domain/nodes/cache-index.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { Call, Define } from '../define.ts';

export type Deps = {
  projects: Pick<ProjectStore, 'get'>;
  dataCopies: Pick<DataCopyStore, 'ofProject' | 'pins'>;
  datasets: Pick<DatasetStore, 'facts'>;
  volumes: Pick<VolumeStore, 'ofProject'>;
  nodes: Pick<NodeStore, 'all'>;
  tasks: Pick<TaskStore, 'copyWork'>;
  cacheIndex: CacheIndex;
  limits: Limits;
  now: () => number;
};

export function dataCopyRoutes(route: Define, deps: Deps): void {
  route('projectDataCopies', (call) => projectDataCopies(deps, call));
}

async function projectDataCopies(
  deps: Deps,
  { params }: Call<'projectDataCopies'>,
): Promise<DataCopies> {
  const { id, data_copies: wanted } = await deps.projects.get(params.id);
  const project = await deps.dataCopies.ofProject(id);
  if (project === null)
    return { wanted, have: 0, versions: [], nodes: [], why: 'no deployment is running' };
  const datasets = await deps.datasets.facts();
  const versions = copyVersions(project.datasets, datasets);
  const { syncs } = await deps.tasks.copyWork(deps.now() - RETRY_MS);
  const question = copiesQuestion(project, {
    datasets,
    stored: await deps.dataCopies.pins(),
    volumes: project.has_volumes ? await deps.volumes.ofProject(id) : [],
    syncs,
  });
  const { view } = planCopies(question, await deps.nodes.all(), {
    now: deps.now(),
    limits: deps.limits,
    cacheIndex: deps.cacheIndex,
  });
  return {
    wanted,
    ...view,
    versions: versions.map(({ dataset_id, name, version, source }) => ({
      dataset_id,
      name,
      version,
      bytes: source?.bytes ?? null,
    })),
  };
}
