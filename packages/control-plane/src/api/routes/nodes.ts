/** Routes of nodes: list, cordon, drain, prewarm, delete. */
import type { Node, ObservedContainer } from '@berth/wire/node';
import { planEviction } from '@berth/wire/eviction';
import { LABELS } from '@berth/wire/vocabulary';
import { type ProjectAccess, seesAll } from '../../domain/identity/access.ts';
import { previewDisk } from '../../domain/nodes/disk-preview.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import { freeStorage } from '../../domain/nodes/placement.ts';
import type { DrainRecord, NodeRecord } from '../../domain/platform/records.ts';
import type { UnmanagedContainer } from '../../domain/nodes/unmanaged-containers.ts';
import { changeDrain, newDrain, withFreshTries } from '../../flow/drain.ts';
import { readDrainState, type DrainStores } from '../../flow/drain-state.ts';
import type { Define, Call } from '../define.ts';
import type { NodeChangeLog } from '../node-changes.ts';
import { pageOf } from '../page.ts';
import { byOf } from './deployments.ts';
import { failoverFields } from './node-failover.ts';
import { maySee, volumesView } from './volumes.ts';
import {
  addressTakenView,
  copyView,
  diskView,
  drainView,
  nodeView,
  pinView,
  unmanagedView,
} from '../views.ts';
import type { InstanceStore } from '../../domain/deployments/instance-store.ts';
import type { FailoverWatch } from '../../domain/nodes/failover-watch.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';
import type { DeploymentStore } from '../../domain/deployments/deployment-store.ts';
import type { TaskStore } from '../../domain/deployments/task-store.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import type { UnmanagedStore } from '../../domain/nodes/unmanaged-store.ts';
import type { DataCopyStore } from '../../domain/data/data-copy-store.ts';
import type { VolumeStore } from '../../domain/data/volume-store.ts';
import type { Limits } from '../../domain/deployments/facts.ts';
import type { Driver } from '../../flow/driver.ts';
import type { Changes } from '../../domain/platform/changes.ts';

export type Deps = DrainStores & {
  nodes: Pick<
    NodeStore,
    'all' | 'get' | 'list' | 'resetSecret' | 'setDrain' | 'setLabels' | 'setSchedulable'
  >;
  deployments: Pick<DeploymentStore, 'getMany'>;
  tasks: Pick<TaskStore, 'syncsOf'>;
  projects: Pick<ProjectStore, 'getMany' | 'visible'>;
  unmanaged: Pick<UnmanagedStore, 'confirm' | 'left'>;
  volumes: Pick<VolumeStore, 'onNode'>;
  dataCopies: Pick<DataCopyStore, 'onNode'>;
  instances: Pick<InstanceStore, 'ofDeployments' | 'unmoved'>;
  failover: FailoverWatch;
  nodeChanges: Pick<NodeChangeLog, 'record'>;
  limits: Limits;
  driver: Pick<Driver, 'deleteNode' | 'keepInstances' | 'prewarm' | 'reviewMoves'>;
  changes: Pick<Changes, 'notify'>;
  now: () => number;
};

export function nodeRoutes(route: Define, deps: Deps): void {
  route('listNodes', (call) => listNodes(deps, call));
  route('getNode', async ({ params, access }) =>
    view(deps, await deps.nodes.get(params.id), access),
  );
  route('patchNode', (call) => patchNode(deps, call));
  route('cordonNode', async ({ params, access }) =>
    view(deps, await deps.nodes.setSchedulable(params.id, false), access),
  );
  route('uncordonNode', (call) => uncordonNode(deps, call));
  route('drainNode', (call) => drainNode(deps, call));
  route('confirmRemoved', (call) => confirmRemoved(deps, call));
  route('prewarmNode', (call) => prewarmNode(deps, call));
  route('cacheRoom', (call) => cacheRoom(deps, call));
  route('nodeDisk', (call) => nodeDisk(deps, call));
  route('resetNodeSecret', (call) => resetNodeSecret(deps, call));
  route('deleteNode', (call) => deleteNode(deps, call));
}

/**
 * Converts nodes, with their quarantined containers, requested copies and the progress of a drain.
 */
async function views(
  deps: Deps,
  nodes: readonly NodeRecord[],
  access: ProjectAccess,
): Promise<Node[]> {
  const deploymentIds = new Set(
    nodes.flatMap((n) => n.containers.flatMap((c) => c.labels[LABELS.deployment] ?? [])),
  );
  const all = await deps.nodes.all('deploy');
  const silence = await failoverFields(
    deps,
    nodes.map((n) => n.id),
  );
  const knownIds = new Set((await deps.deployments.getMany([...deploymentIds])).map((d) => d.id));
  const copies = await deps.tasks.syncsOf(
    nodes.map((n) => n.id),
    deps.now(),
  );
  const projectIds = new Set(
    nodes.flatMap((n) => n.containers.flatMap((c) => c.labels[LABELS.project] ?? [])),
  );
  const seen = await deps.projects.visible([...projectIds], access);
  const unmanaged = (await deps.unmanaged.left({ nodes: nodes.map((n) => n.id) })).filter((c) =>
    maySee(c, access),
  );
  const leftSeen = await deps.projects.visible(
    [...new Set(unmanaged.map((c) => c.project_id))],
    access,
  );
  // A deleted project has no members, so only admins see its containers.
  const shown = unmanaged.filter((c) => access.isAdmin || leftSeen.has(c.project_id));
  /**
   * Returns whether the caller can see a container. Without the label it has no project, so a token
   * that is limited to projects does not see it.
   */
  const isSeen = ({ labels }: ObservedContainer): boolean => {
    const project = labels[LABELS.project];
    return project === undefined ? access.only === null : seen.has(project);
  };
  return Promise.all(
    nodes
      .map((node) => ({ ...node, containers: node.containers.filter(isSeen) }))
      .map(async (node) => ({
        ...nodeView(node, deps.now(), deps.limits),
        failover: silence.get(node.id) ?? null,
        address_taken: addressTakenView(node, all, deps.now(), deps.limits),
        quarantined: node.containers
          .filter(({ labels }) => labels[LABELS.run] === undefined)
          .filter((c) => !knownIds.has(c.labels[LABELS.deployment] ?? ''))
          .map((c) => c.name),
        copying: (copies.get(node.id) ?? []).map(copyView),
        unmanaged: shown
          .filter((c) => c.node_id === node.id)
          .map((c) => unmanagedView(c, node.hostname)),
        drain: node.drain === null ? null : await drainOf(deps, node, node.drain, access, shown),
      })),
  );
}

async function drainOf(
  deps: Deps,
  node: NodeRecord,
  drain: DrainRecord,
  access: ProjectAccess,
  left: readonly UnmanagedContainer[],
): Promise<NonNullable<Node['drain']>> {
  const unmanaged = { hostname: node.hostname, left: left.filter((c) => c.node_id === node.id) };
  // A finished drain has nothing left to move, and its node takes no work.
  if (drain.finished_at !== null) return drainView(drain, [], new Map(), { unmanaged, runs: [] });
  const { remaining, runs } = await readDrainState(deps, node, drain);
  const seen = await deps.projects.visible(
    [...remaining.map((l) => l.running.project_id), ...runs.map((run) => run.project_id)],
    access,
  );
  const projects = await deps.projects.getMany([...seen]);
  const shown = remaining.filter((l) => seen.has(l.running.project_id));
  return drainView(drain, shown, new Map(projects.map((p) => [p.id, p])), {
    unmanaged,
    runs: runs.filter((run) => seen.has(run.project_id)),
  });
}

async function view(deps: Deps, node: NodeRecord, access: ProjectAccess): Promise<Node> {
  const [one] = await views(deps, [node], access);
  if (one === undefined) throw new Error('unreachable: one node has one view');
  const commands = await deps.runs.onNode(node.id);
  const seen = await deps.projects.visible(
    commands.map((command) => command.project_id),
    access,
  );
  return { ...one, commands: commands.filter((command) => seen.has(command.project_id)) };
}

async function listNodes(deps: Deps, { query, access }: Call<'listNodes'>) {
  const { items, next } = await deps.nodes.list(pageOf(query), query);
  return { items: await views(deps, items, access), next_cursor: next };
}

async function patchNode(deps: Deps, { params, body, access }: Call<'patchNode'>) {
  const node = await deps.nodes.setLabels(params.id, body.labels);
  // Wake deployments that might be waiting for a node with these labels.
  deps.changes.notify('work');
  return view(deps, node, access);
}

async function uncordonNode(deps: Deps, { params, access }: Call<'uncordonNode'>) {
  const node = await deps.nodes.setSchedulable(params.id, true);
  await deps.driver.keepInstances(node.id);
  await deps.driver.reviewMoves();
  // Wake deployments that might be waiting for this node.
  deps.changes.notify('work');
  return view(deps, node, access);
}

async function drainNode(deps: Deps, { params, access }: Call<'drainNode'>) {
  // A request during a running drain retries the projects that the drain gave up.
  const node = await changeDrain(deps.nodes, params.id, ({ hostname, deleting_at, drain }) => {
    if (deleting_at !== null)
      throw new DomainError('being_deleted', `${hostname} is being deleted`);
    return drain === null || drain.finished_at !== null
      ? newDrain(deps.now())
      : withFreshTries(drain, deps.now());
  });
  deps.changes.notify('work');
  return view(deps, node, access);
}

async function confirmRemoved(deps: Deps, { params, user, access }: Call<'confirmRemoved'>) {
  const node = await deps.nodes.get(params.id);
  await deps.unmanaged.confirm(
    node,
    params.container,
    byOf(user).name ?? 'an unknown user',
    deps.now(),
  );
  // Wake deployments and drains that might be waiting for this.
  deps.changes.notify('work');
  return view(deps, node, access);
}

async function prewarmNode(deps: Deps, { params, body, access }: Call<'prewarmNode'>) {
  await deps.driver.prewarm(params.id, body.dataset_id);
  return view(deps, await deps.nodes.get(params.id), access);
}

async function cacheRoom(deps: Deps, { params, query }: Call<'cacheRoom'>) {
  const node = await deps.nodes.get(params.id);
  const [free_bytes, wanted_bytes] = [freeStorage(node), query.bytes ?? 0];
  const room = planEviction({
    cached: node.cached,
    free: free_bytes,
    wanted: wanted_bytes,
    max: node.max_storage,
  });
  return {
    free_bytes,
    wanted_bytes,
    evict: room.evict,
    freed_bytes: room.freed,
    pinned_bytes: room.pinned,
    enough: room.enough,
  };
}

async function nodeDisk(deps: Deps, { params, query, access }: Call<'nodeDisk'>) {
  const node = await deps.nodes.get(params.id);
  const wanted_bytes = query.bytes ?? 0;
  const all = await deps.volumes.onNode(node.id);
  const pins = await deps.dataCopies.onNode(node.id);
  const seen = await deps.projects.visible(
    [...new Set([...all, ...pins].map((copy) => copy.project_id))],
    access,
  );
  // A deleted project has no members, so only admins see its copies.
  const copies = all
    .filter((copy) => seen.has(copy.project_id) || (access.isAdmin && maySee(copy, access)))
    .map(volumesView);
  return {
    disk: diskView(node.disk),
    budget_bytes: node.max_storage,
    wanted_bytes,
    ...previewDisk(node, {
      free: freeStorage(node),
      wanted: wanted_bytes,
      namesImages: seesAll(access),
    }),
    copies: pins.filter((pin) => seen.has(pin.project_id)).map((pin) => pinView(pin, node)),
    volumes: copies.flatMap(({ project, folders, kept_of_deleted, missing_since = null }) =>
      folders.map(({ name, bytes }) => ({
        project,
        name,
        bytes,
        kept_of_deleted,
        missing_since,
      })),
    ),
  };
}

async function resetNodeSecret(deps: Deps, { params, request, access }: Call<'resetNodeSecret'>) {
  const node = await deps.nodes.resetSecret(params.id, deps.now());
  const message = `the secret of node ${node.hostname} was reset`;
  deps.nodeChanges.record(
    { kind: 'secret_reset', node, message },
    { address: request.ip, requestId: request.id },
  );
  // Ends held requests that used the old secret.
  deps.changes.notify(`node:${node.id}`);
  return view(deps, node, access);
}

async function deleteNode(deps: Deps, { params, query, access }: Call<'deleteNode'>) {
  const force = query.force ?? false;
  // Read the unmanaged containers first: their rows are deleted with the node.
  const unmanaged = force ? await deps.unmanaged.left({ nodes: [params.id], used: true }) : [];
  const node = await view(deps, await deps.driver.deleteNode(params.id, force), access);
  return force
    ? {
        ...node,
        unmanaged: unmanaged
          .filter((c) => maySee(c, access))
          .map((c) => unmanagedView(c, node.hostname)),
      }
    : node;
}
