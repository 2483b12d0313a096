/**
 * Deletes projects and nodes: ends or moves each of their deployments. loops/removals.ts removes
 * the rows.
 */
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import type { RecordGuard } from '../domain/platform/record-change.ts';
import type { NodeRecord, ProjectRecord } from '../domain/platform/records.ts';
import type { FlowStores } from './flow-stores.ts';
import type { Decider, DriverDeps } from './decide-and-commit.ts';
import { changeDrain, newDrain, withFreshTries } from './drain.ts';
import { deploymentsOn, readDrainState } from './drain-state.ts';
import { reviewMove } from './volume-handoff.ts';
import { endLooks } from './push.ts';
import { isAtRest } from './stop.ts';

/** `volumes`: also delete the volumes of the project; otherwise they stay on their node. */
export type DeleteProject = { volumes?: boolean; guard?: RecordGuard<ProjectRecord> };

export async function deleteProject(
  { stores, changes, now }: DriverDeps,
  decider: Decider,
  projectId: string,
  { volumes = false, guard }: DeleteProject = {},
): Promise<ProjectRecord> {
  const project = await stores.projects.markDeleting(projectId, now(), {
    volumes,
    ...defined({ guard }),
  });
  await failPoint('project.marked');
  const { live } = await stores.flow.facts(projectId);
  for (const d of live) await decider.advance(d.id, { type: 'project_deleted' });
  await decider.decide(projectId, async (facts) => endLooks(facts));
  changes.notify('work');
  return project;
}

export async function deleteNode(
  deps: DriverDeps,
  decider: Decider,
  nodeId: string,
  force: boolean,
): Promise<NodeRecord> {
  const { stores, changes, now } = deps;
  const node = await stores.nodes.markDeleting(nodeId, now());
  await failPoint('node.marked');
  if (!force) {
    await vacate(deps, decider, nodeId);
    // A repeated request retries the failed moves, like a repeated drain.
    await changeDrain(stores.nodes, nodeId, ({ drain }) =>
      drain === null || drain.finished_at !== null ? drain : withFreshTries(drain, now()),
    );
  } else {
    const serving = (await deploymentsOn(stores, nodeId)).map((d) => d.id);
    const open = (await stores.deployments.inProgress()).map((d) => d.id);
    const instances = await stores.instances.onNode(nodeId);
    const withInstance = instances.map(({ deployment_id }) => deployment_id);
    for (const id of new Set([...serving, ...open, ...withInstance]))
      await decider.advance(id, { type: 'node_deleted', node_id: nodeId, reachable: false });
    await stores.nodes.removeIfGone(nodeId, true);
  }
  // The node might be the source or the target of a move of volumes.
  await reviewMoves(stores, decider);
  changes.notify('work', `node:${nodeId}`);
  return force ? node : stores.nodes.get(nodeId);
}

/**
 * Reassigns the tasks of the node. Running deployments are drained and serve until they have moved.
 */
export async function vacate(
  { stores, now }: DriverDeps,
  decider: Decider,
  nodeId: string,
): Promise<void> {
  const open = await stores.deployments.getMany(
    (await stores.deployments.inProgress()).map((d) => d.id),
  );
  // Starting instances move to another node now. The drain moves the serving ones.
  const instanced = new Set(
    (await stores.instances.onNode(nodeId))
      .filter(({ state }) => state === 'starting' || state === 'lost')
      .map(({ deployment_id }) => deployment_id),
  );
  for (const d of open) {
    const isThere = (d.status === 'building' ? d.builder_id : d.node_id) === nodeId;
    if (instanced.delete(d.id) || isThere)
      await decider.advance(d.id, { type: 'node_deleted', node_id: nodeId, reachable: true });
  }
  for (const id of instanced)
    await decider.advance(id, { type: 'node_deleted', node_id: nodeId, reachable: true });
  const node = await stores.nodes.get(nodeId);
  if (node.drain?.finished_at === null) return;
  const { remaining } = await readDrainState(stores, node, { tries: {} });
  const remainingIds = new Set(remaining.map((l) => l.running.id));
  // A stopped project keeps its page, and a start deploys its release on another node. If the
  // project has volumes on this node, they move first.
  for (const d of await stores.deployments.servingOn(nodeId))
    if (isAtRest(d) && !remainingIds.has(d.id))
      await decider.advance(d.id, { type: 'node_deleted', node_id: nodeId, reachable: true });
  if (remainingIds.size > 0) await stores.nodes.setDrain(nodeId, newDrain(now()), node.drain);
}

/**
 * Ends the moves of volumes that are no longer valid. loops/drains.ts repeats this, because the
 * control plane can die between the change of a node and this call.
 */
export async function reviewMoves(
  { volumes }: Pick<FlowStores, 'volumes'>,
  decider: Decider,
): Promise<void> {
  const failed: unknown[] = [];
  for (const projectId of await volumes.received())
    await decider
      .decide(projectId, async (facts) =>
        // Volumes might have been removed from the project's settings meanwhile.
        reviewMove(
          facts.volumes.length > 0
            ? facts
            : { ...facts, volumes: await volumes.ofProject(projectId) },
        ),
      )
      .catch((error: unknown) => failed.push(error));
  if (failed.length > 0)
    throw failed.length === 1
      ? failed[0]
      : new AggregateError(failed, `${failed.length} moves could not be reviewed`);
}

/** Ends the replacements of the instances on a node whose drain was taken back. */
export async function keepInstances(
  stores: Pick<FlowStores, 'deployments' | 'instances'>,
  decider: Decider,
  nodeId: string,
): Promise<void> {
  const there = (await deploymentsOn(stores, nodeId)).filter(({ status }) => status === 'running');
  const others = await stores.instances.ofDeployments(there.map(({ id }) => id));
  for (const id of new Set(others.map(({ deployment_id }) => deployment_id)))
    await decider.advance(id, { type: 'scaled' });
}
