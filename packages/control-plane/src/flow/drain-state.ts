/** Reads the facts for one decision of a drain (flow/drain.ts). */
import type { DeploymentRecord, DrainRecord, NodeRecord } from '../domain/platform/records.ts';
import { isStopFirst } from '../domain/data/volumes.ts';
import {
  type InstanceRecord,
  isWanted,
  isWeb,
  replacementOf,
} from '../domain/deployments/instance.ts';
import type { RunOnNode, RunStore } from '../domain/runs/run-store.ts';
import { plainWaitText, waitReasonOf } from '../domain/deployments/wait-reason.ts';
import type { FlowStores } from './flow-stores.ts';
import type { MovingInstances, Remaining, Rest } from './drain.ts';
import { movableOn } from './instances.ts';
import { isAtRest } from './stop.ts';

/**
 * Shown if the volumes are in the settings but no version uses them: only a deployment can move
 * them.
 */
const UNUSED =
  'its volumes are on this node, and no version that uses them runs; deploy one while the node ' +
  'is drained, or delete the node with force';
/**
 * Shown if the settings no longer contain the volumes: a deployment would leave them on the node.
 */
const DROPPED =
  'volumes that it used before are on this node; add them to its settings again and deploy, ' +
  'delete the project, or delete the node with force, which leaves their folders on its disk';

export type DrainStores = Pick<
  FlowStores,
  'deployments' | 'instances' | 'volumes' | 'projects' | 'tasks'
> & { runs: Pick<RunStore, 'onNode'> };
type Leaving = Pick<NodeRecord, 'id' | 'deleting_at'>;

/**
 * Returns the deployments that still run on the node or have volumes there. `arriving`: a
 * deployment to the node is in progress, or an instance drains there. A stopped project without
 * volumes is not included: its container stays on the node. `runs`: the commands that still work
 * there.
 */
export async function readDrainState(
  stores: DrainStores,
  node: Leaving,
  { tries }: Pick<DrainRecord, 'tries'>,
): Promise<{
  remaining: Remaining[];
  arriving: boolean;
  dropped: string[];
  runs: RunOnNode[];
}> {
  const there = (await deploymentsOn(stores, node.id, isWanted)).filter(
    (d) => d.status === 'running',
  );
  const instances = await stores.instances.ofDeployments(there.map((d) => d.id));
  // A project at count 0 of `web` keeps its other processes.
  const running = there.filter(
    (d) => !isAtRest(d) || instances.some((one) => one.deployment_id === d.id && isWanted(one)),
  );
  const openIds = (await stores.deployments.inProgress()).map((d) => d.id);
  const triedIds = running.flatMap((d) => tries[d.project_id]?.deployment_id ?? []);
  const byId = new Map(
    (await stores.deployments.getMany([...openIds, ...triedIds])).map((d) => [d.id, d]),
  );
  const inProgress = openIds.flatMap((id) => byId.get(id) ?? []);
  const progressOf = (projectId: string): DeploymentRecord | null =>
    inProgress.find((o) => o.project_id === projectId) ?? null;
  const remaining = running.map((d) => ({
    running: d,
    inProgress: progressOf(d.project_id),
    tried: byId.get(tries[d.project_id]?.deployment_id ?? '') ?? null,
    rest: null,
    instances: movingOf(
      d,
      instances.filter((one) => one.deployment_id === d.id),
      node.id,
    ),
  }));
  const served = new Set(running.map((d) => d.project_id));
  const { resting, dropped } = await withVolumesAlone(stores, node, served, inProgress);
  return {
    remaining: [
      ...remaining,
      ...resting.map((r) => ({
        ...r,
        inProgress: progressOf(r.running.project_id),
        tried: null,
        instances: null,
      })),
    ],
    arriving:
      inProgress.some((d) => d.node_id === node.id) ||
      (await stores.instances.onNode(node.id)).some(
        (one) =>
          one.state === 'draining' ||
          (one.state === 'starting' && inProgress.some((d) => d.id === one.deployment_id)),
      ),
    dropped,
    runs: await stores.runs.onNode(node.id),
  };
}

/** Returns the deployments that serve on the node, and those that have a further instance there. */
export async function deploymentsOn(
  stores: Pick<FlowStores, 'deployments' | 'instances'>,
  nodeId: string,
  counts: (instance: InstanceRecord) => boolean = () => true,
): Promise<DeploymentRecord[]> {
  const serving = await stores.deployments.servingOn(nodeId);
  const servingIds = new Set(serving.map((d) => d.id));
  const others = (await stores.instances.onNode(nodeId))
    .filter(counts)
    .flatMap(({ deployment_id: id }) => (servingIds.has(id) ? [] : [id]));
  if (others.length === 0) return serving;
  return [...serving, ...(await stores.deployments.getMany([...new Set(others)]))];
}

/**
 * Returns the state of the instances that leave the node; null if the deployment has only its first
 * instance.
 */
function movingOf(
  d: DeploymentRecord,
  others: readonly InstanceRecord[],
  nodeId: string,
): MovingInstances | null {
  // A resting deployment moves as a whole.
  if (!others.some(isWanted) || (isAtRest(d) && d.node_id === nodeId)) return null;
  // The data of a deployment that writes moves with all its processes.
  if (isStopFirst(d.settings)) return null;
  // Its only `web` must stop before another one starts, and a new deployment does that.
  const isOnly = d.node_id === nodeId && !others.some((one) => isWanted(one) && isWeb(one));
  if (isOnly && d.settings.replace === 'recreate') return null;
  const replacements = movableOn(d, others, nodeId).map((one) => replacementOf(one, others));
  const isStarting = others.some((one) => one.node_id === nodeId && one.state === 'starting');
  const waiting = replacements.find((one) => one?.state === 'waiting');
  return {
    unasked: replacements.filter((one) => one === undefined).length,
    isMoving: isStarting || replacements.some((one) => one?.state === 'starting'),
    problem:
      waiting === undefined
        ? null
        : `no other node can take ${waiting.process} ${waiting.number}: ${waiting.detail ?? 'no node'}`,
  };
}

/**
 * Reads the projects that have volumes on the node but no deployment that serves there. `dropped`
 * lists the names of the projects that no longer use a volume. Their data does not block a drain:
 * it stays on the disk, and a later deployment with volumes moves it. The data blocks the deletion
 * of the node, because it would be unreachable afterwards.
 */
async function withVolumesAlone(
  stores: DrainStores,
  { id, deleting_at }: Leaving,
  served: ReadonlySet<string>,
  inProgress: readonly DeploymentRecord[],
): Promise<{ resting: { running: DeploymentRecord; rest: Rest }[]; dropped: string[] }> {
  const copies = (await stores.volumes.onNode(id)).filter(
    (c) => c.state === 'current' && c.names.length > 0,
  );
  const ids = [...new Set(copies.map((c) => c.project_id))].filter(
    (projectId) => !served.has(projectId),
  );
  if (ids.length === 0) return { resting: [], dropped: [] };
  const runningIds = await stores.projects.runningDeployments(ids);
  const newestIds = new Map(runningIds);
  for (const projectId of ids) {
    if (newestIds.has(projectId)) continue;
    const [newest] = (
      await stores.deployments.list({ project_id: projectId }, { limit: 1, cursor: null })
    ).items;
    if (newest !== undefined) newestIds.set(projectId, newest.id);
  }
  const byId = new Map(
    (await stores.deployments.getMany([...newestIds.values()])).map((d) => [d.id, d]),
  );
  const projects = new Map((await stores.projects.getMany(ids)).map((p) => [p.id, p]));
  const moving = await stores.tasks.moving(ids);
  const resting: { running: DeploymentRecord; rest: Rest }[] = [];
  const dropped: string[] = [];
  for (const projectId of ids) {
    const d = byId.get(newestIds.get(projectId) ?? '');
    const project = projects.get(projectId);
    if (d === undefined || project === undefined) continue;
    const versions = [
      ...(runningIds.has(projectId) ? [d] : []),
      ...inProgress.filter((o) => o.project_id === projectId),
    ];
    const isUsed = [project, ...versions.map((o) => o.settings)].some(
      ({ volumes }) => volumes.length > 0,
    );
    if (isUsed || deleting_at !== null)
      resting.push({ running: d, rest: restOf(d, moving.has(projectId), isUsed) });
    else dropped.push(project.name);
  }
  return { resting, dropped };
}

function restOf(d: DeploymentRecord, isMoving: boolean, isUsed: boolean): Rest {
  const isAlone = isAtRest(d) && d.settings.volumes.length > 0;
  if (!isAlone) return { isAlone, isMoving: false, problem: isUsed ? UNUSED : DROPPED };
  return { isAlone, isMoving, problem: isMoving ? null : problemOf(d) };
}

/**
 * Returns why the volumes of a project without a deployment in progress have not left yet, or null.
 */
function problemOf(d: DeploymentRecord): string | null {
  const reason = waitReasonOf(d);
  if (reason?.kind === 'project_stopped' || reason?.kind === 'scaled_to_zero') return null;
  return reason?.kind === 'project_stopped_and' ? plainWaitText(reason.because) : d.waiting;
}
