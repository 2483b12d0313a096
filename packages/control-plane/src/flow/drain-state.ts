/** Reads the facts for one decision of a drain (flow/drain.ts). */
import type { DeploymentRecord, DrainRecord } from '../domain/records.ts';
import type { Stores } from '../domain/stores.ts';
import type { Remaining, Rest } from './drain.ts';
import { STOPPED_AND } from './leave.ts';
import { isAtRest, STOPPED } from './stop.ts';

/** Only a deployment with these volumes can move them. */
const UNUSED =
  'its volumes are on this node, and no version that uses them runs; deploy one while the node is drained, or delete the node with force';

type Read = Pick<Stores, 'deployments' | 'volumes' | 'projects' | 'flow'>;

/**
 * Returns the deployments that still run on the node or whose volumes are there, and whether one is still being deployed to it
 * (`arriving`). The container of a stopped project without volumes stays on its node.
 */
export async function readDrainState(
  stores: Read,
  nodeId: string,
  { tries }: Pick<DrainRecord, 'tries'>,
): Promise<{ remaining: Remaining[]; arriving: boolean }> {
  const running = (await stores.deployments.servingOn(nodeId)).filter((d) => d.status === 'running' && !isAtRest(d));
  const openIds = (await stores.deployments.inProgress()).map((d) => d.id);
  const triedIds = running.flatMap((d) => tries[d.project_id]?.deployment_id ?? []);
  const byId = new Map((await stores.deployments.getMany([...openIds, ...triedIds])).map((d) => [d.id, d]));
  const inProgress = openIds.flatMap((id) => byId.get(id) ?? []);
  const progressOf = (projectId: string): DeploymentRecord | null => inProgress.find((o) => o.project_id === projectId) ?? null;
  const remaining = running.map((d) => ({
    running: d,
    inProgress: progressOf(d.project_id),
    tried: byId.get(tries[d.project_id]?.deployment_id ?? '') ?? null,
    rest: null,
  }));
  const resting = await withVolumesAlone(stores, nodeId, new Set(running.map((d) => d.project_id)));
  return {
    remaining: [...remaining, ...resting.map((r) => ({ ...r, inProgress: progressOf(r.running.project_id), tried: null }))],
    arriving: inProgress.some((d) => d.node_id === nodeId),
  };
}

/** Returns the projects whose volumes are on the node although no deployment of them serves there. */
async function withVolumesAlone(
  stores: Read,
  nodeId: string,
  served: ReadonlySet<string>,
): Promise<{ running: DeploymentRecord; rest: Rest }[]> {
  const copies = (await stores.volumes.onNode(nodeId)).filter((c) => c.state === 'current' && c.names.length > 0);
  const projects = [...new Set(copies.map((c) => c.project_id))].filter((id) => !served.has(id));
  const running = await stores.projects.runningDeployments(projects);
  const found: { running: DeploymentRecord; rest: Rest }[] = [];
  for (const projectId of projects) {
    const [newest] = (await stores.deployments.list({ project_id: projectId }, { limit: 1, cursor: null })).items;
    const id = running.get(projectId) ?? newest?.id;
    if (id === undefined) continue;
    const [d] = await stores.deployments.getMany([id]);
    if (d === undefined) continue;
    found.push({ running: d, rest: await restOf(stores, d) });
  }
  return found;
}

async function restOf(stores: Read, d: DeploymentRecord): Promise<Rest> {
  const isAlone = isAtRest(d) && d.settings.volumes.length > 0;
  if (!isAlone) return { isAlone, isMoving: false, problem: UNUSED };
  const { tasks } = await stores.flow.facts(d.project_id);
  const isMoving = tasks.some((task) => task.kind === 'move');
  const waiting = d.waiting === STOPPED ? null : (d.waiting?.replace(STOPPED_AND, '') ?? null);
  return { isAlone, isMoving, problem: isMoving ? null : waiting };
}
