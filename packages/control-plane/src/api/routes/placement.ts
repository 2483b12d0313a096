/** Returns which node the scheduler would choose for a project, and why. Changes nothing. */
import { withConfig } from '../../domain/projects/config-file.ts';
import { wantedOf } from '../../domain/data/mounts.ts';
import { place } from '../../domain/nodes/placement.ts';
import { deviceNeeds, limitNeeds } from '../../domain/nodes/build-needs.ts';
import { waitText } from '../../domain/deployments/wait-reason.ts';
import {
  type Freed,
  machineNeeds,
  needsRoom,
  NO_ROOM_TAKEN,
  withoutEnding,
} from '../../domain/nodes/room.ts';
import { endingOf, roomEnds } from '../../domain/nodes/room-ends.ts';
import { choiceWithoutOld, freedBy, stopFirstText } from '../../domain/nodes/stop-first.ts';
import { volumeHome, volumeNeeds } from '../../domain/data/volumes.ts';
import { secretNeeds } from '../../flow/secrets.ts';
import type { Define, Call } from '../define.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { DeploymentStore } from '../../domain/deployments/deployment-store.ts';
import type { InstanceStore } from '../../domain/deployments/instance-store.ts';
import type { ProjectRecord } from '../../domain/platform/records.ts';
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
  instances: Pick<InstanceStore, 'ofDeployments'>;
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
  const room = needsRoom(project) ? await deps.nodes.room() : NO_ROOM_TAKEN;
  const others = old === null ? [] : await deps.instances.ofDeployments([old.id]);
  const freed =
    old === null ? [] : freedBy(old, others).filter(({ node_id }) => node_id === runsOn);
  const machine = (free: readonly Freed[], held = room) =>
    machineNeeds(project, held, { own: null, freed: free });
  const question = {
    wanted,
    losses: [],
    runsOn,
    arch,
    stays,
    needs,
    home,
    machine: machine(stays ? freed : []),
  };
  const nodes = await deps.nodes.all();
  const context = {
    now: deps.now(),
    limits: deps.limits,
    cacheIndex: deps.cacheIndex,
    overdue: deps.failover.overdue(),
  };
  const placement = place(question, nodes, context);
  const ending = endingOf(project.id, room, old === null ? [] : [{ ...old, instances: others }]);
  if (placement.winner === null && ending.length > 0) {
    const held = machine(stays ? freed : [], withoutEnding(room, ending));
    const later = place({ ...question, machine: held }, nodes, context);
    const reason = roomEnds(ending, (id) => nodes.find((node) => node.id === id)?.hostname);
    if (later.winner !== null) return { ...later, note: waitText(reason) };
  }
  const node = nodes.find(({ id }) => id === runsOn);
  if (placement.winner !== null || node === undefined || !canStopFirst(project)) return placement;
  const free = { ...question, machine: machine(freed) };
  const withoutOld = choiceWithoutOld(question, { node, machine: free.machine }, nodes, context);
  return withoutOld === null
    ? placement
    : { ...place(free, nodes, context), note: stopFirstText(withoutOld.why) };
}

/** A stopped project runs no old version, and `replace: rolling` set by a person refuses instead. */
const canStopFirst = ({ replace, replace_set, stopped_at }: ProjectRecord): boolean =>
  replace === 'rolling' && !replace_set && stopped_at === null;
