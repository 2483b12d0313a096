/** Returns which node the scheduler would choose for a project, and why. Changes nothing. */
import { withConfig } from '../../domain/projects/config-file.ts';
import { wantedOf } from '../../domain/data/mounts.ts';
import { place } from '../../domain/nodes/placement.ts';
import { deviceNeeds, limitNeeds } from '../../domain/nodes/build-needs.ts';
import { machineNeeds, needsRoom, NO_ROOM_TAKEN } from '../../domain/nodes/room.ts';
import { volumeHome, volumeNeeds } from '../../domain/data/volumes.ts';
import { secretNeeds } from '../../flow/secrets.ts';
import type { Define, Call } from '../define.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { DeploymentStore } from '../../domain/deployments/deployment-store.ts';
import type { DatasetStore } from '../../domain/data/dataset-stores.ts';
import type { SecretStore } from '../../domain/secrets/secrets.ts';
import type { VolumeStore } from '../../domain/data/volume-store.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';
import type { FailoverWatch } from '../../domain/nodes/failover-watch.ts';
import type { CacheIndex } from '../../domain/nodes/cache-index.ts';
import type { Limits } from '../../domain/deployments/facts.ts';

export type Deps = {
  projects: Pick<ProjectStore, 'configured' | 'get' | 'runningDeployments'>;
  deployments: Pick<DeploymentStore, 'get'>;
  datasets: Pick<DatasetStore, 'facts'>;
  secrets: Pick<SecretStore, 'list'>;
  volumes: Pick<VolumeStore, 'ofProject'>;
  nodes: Pick<NodeStore, 'all' | 'room'>;
  cacheIndex: CacheIndex;
  failover: Pick<FailoverWatch, 'overdue'>;
  limits: Limits;
  now: () => number;
};

export function placementRoutes(route: Define, deps: Deps): void {
  route('placement', (call) => placement(deps, call));
}

async function placement(deps: Deps, { query }: Call<'placement'>) {
  const stored = await deps.projects.get(query.project_id);
  const configured = await deps.projects.configured([stored.id]);
  const project = withConfig(stored, configured.get(stored.id) ?? null);
  const running = (await deps.projects.runningDeployments([project.id])).get(project.id);
  const old = running === undefined ? null : await deps.deployments.get(running);
  const { node_id: runsOn, image_arch: arch } = old ?? { node_id: null, image_arch: null };
  const stays = project.replace === 'recreate';
  const wanted = wantedOf(project.datasets, await deps.datasets.facts());
  const needs = [
    ...secretNeeds(await deps.secrets.list(project.id), 'deploy'),
    ...volumeNeeds(project),
    ...limitNeeds(project),
    ...deviceNeeds(project),
  ];
  const home =
    project.volumes.length === 0 ? null : volumeHome(await deps.volumes.ofProject(project.id));
  const question = {
    wanted,
    losses: [],
    runsOn,
    arch,
    stays,
    needs,
    home,
    machine: machineNeeds(project, needsRoom(project) ? await deps.nodes.room() : NO_ROOM_TAKEN, {
      own: null,
      freed: stays && old !== null ? [{ ...old, containers: 1 }] : [],
    }),
  };
  return place(question, await deps.nodes.all(), {
    now: deps.now(),
    limits: deps.limits,
    cacheIndex: deps.cacheIndex,
    overdue: deps.failover.overdue(),
  });
}
