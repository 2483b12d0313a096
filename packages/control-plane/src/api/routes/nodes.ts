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
import { readDrainState } from '../../flow/drain-state.ts';
import type { Define } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import type { NodeChangeLog } from '../node-changes.ts';
import { pageOf } from '../page.ts';
import { byOf } from './deployments.ts';
import { maySee, volumesView } from './volumes.ts';
import {
  addressTakenView,
  copyView,
  diskView,
  drainView,
  nodeView,
  unmanagedView,
} from '../views.ts';

export function nodeRoutes(route: Define, deps: ApiDeps & { nodeChanges: NodeChangeLog }): void {
  const { stores, driver, changes, limits, now, nodeChanges } = deps;

  /**
   * Converts nodes, with their quarantined containers, requested copies and the progress of a
   * drain.
   */
  async function views(nodes: readonly NodeRecord[], access: ProjectAccess): Promise<Node[]> {
    const deploymentIds = new Set(
      nodes.flatMap((n) => n.containers.flatMap((c) => c.labels[LABELS.deployment] ?? [])),
    );
    const all = await stores.nodes.all('deploy');
    const knownIds = new Set(
      (await stores.deployments.getMany([...deploymentIds])).map((d) => d.id),
    );
    const copies = await stores.tasks.syncsOf(
      nodes.map((n) => n.id),
      now(),
    );
    const projectIds = new Set(
      nodes.flatMap((n) => n.containers.flatMap((c) => c.labels[LABELS.project] ?? [])),
    );
    const seen = await stores.projects.visible([...projectIds], access);
    const left = (await stores.unmanaged.left({ nodes: nodes.map((n) => n.id) })).filter((c) =>
      maySee(c, access),
    );
    const leftSeen = await stores.projects.visible(
      [...new Set(left.map((c) => c.project_id))],
      access,
    );
    // A deleted project has no members: admins see what it left.
    const shown = left.filter((c) => access.isAdmin || leftSeen.has(c.project_id));
    /**
     * A container without the label has no project, so a token that is limited to projects does not
     * see it.
     */
    const isSeen = ({ labels }: ObservedContainer): boolean => {
      const project = labels[LABELS.project];
      return project === undefined ? access.only === null : seen.has(project);
    };
    return Promise.all(
      nodes
        .map((node) => ({ ...node, containers: node.containers.filter(isSeen) }))
        .map(async (node) => ({
          ...nodeView(node, now(), limits),
          address_taken: addressTakenView(node, all, now(), limits),
          quarantined: node.containers
            .filter((c) => !knownIds.has(c.labels[LABELS.deployment] ?? ''))
            .map((c) => c.name),
          copying: (copies.get(node.id) ?? []).map(copyView),
          unmanaged: shown
            .filter((c) => c.node_id === node.id)
            .map((c) => unmanagedView(c, node.hostname)),
          drain: node.drain === null ? null : await drainOf(node, node.drain, access, shown),
        })),
    );
  }
  async function drainOf(
    node: NodeRecord,
    drain: DrainRecord,
    access: ProjectAccess,
    left: readonly UnmanagedContainer[],
  ): Promise<NonNullable<Node['drain']>> {
    const unmanaged = { hostname: node.hostname, left: left.filter((c) => c.node_id === node.id) };
    // A drain that has ended left nothing that Berth can move, and its node takes no work.
    if (drain.finished_at !== null) return drainView(drain, [], new Map(), unmanaged);
    const { remaining } = await readDrainState(stores, node, drain);
    const seen = await stores.projects.visible(
      remaining.map((l) => l.running.project_id),
      access,
    );
    const projects = await stores.projects.getMany([...seen]);
    const shown = remaining.filter((l) => seen.has(l.running.project_id));
    return drainView(drain, shown, new Map(projects.map((p) => [p.id, p])), unmanaged);
  }
  const view = async (node: NodeRecord, access: ProjectAccess): Promise<Node> => {
    const [one] = await views([node], access);
    if (one === undefined) throw new Error('unreachable: one node has one view');
    return one;
  };

  route('listNodes', async ({ query, access }) => {
    const { items, next } = await stores.nodes.list(pageOf(query), query);
    return { items: await views(items, access), next_cursor: next };
  });

  route('getNode', async ({ params, access }) => view(await stores.nodes.get(params.id), access));

  route('cordonNode', async ({ params, access }) =>
    view(await stores.nodes.setSchedulable(params.id, false), access),
  );

  route('uncordonNode', async ({ params, access }) => {
    const node = await stores.nodes.setSchedulable(params.id, true);
    await driver.reviewMoves();
    // Deployments may be waiting for this node.
    changes.notify('work');
    return view(node, access);
  });

  route('drainNode', async ({ params, access }) => {
    // A request during a running drain retries the projects on which the drain gave up.
    const node = await changeDrain(stores.nodes, params.id, ({ hostname, deleting_at, drain }) => {
      if (deleting_at !== null)
        throw new DomainError('being_deleted', `${hostname} is being deleted`);
      return drain === null || drain.finished_at !== null
        ? newDrain(now())
        : withFreshTries(drain, now());
    });
    changes.notify('work');
    return view(node, access);
  });

  route('confirmRemoved', async ({ params, user, access }) => {
    const node = await stores.nodes.get(params.id);
    await stores.unmanaged.confirm(
      node,
      params.container,
      byOf(user).name ?? 'an unknown user',
      now(),
    );
    // Deployments and drains may be waiting for this.
    changes.notify('work');
    return view(node, access);
  });

  route('prewarmNode', async ({ params, body, access }) => {
    await driver.prewarm(params.id, body.dataset_id);
    return view(await stores.nodes.get(params.id), access);
  });

  route('cacheRoom', async ({ params, query }) => {
    const node = await stores.nodes.get(params.id);
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
  });

  route('nodeDisk', async ({ params, query, access }) => {
    const node = await stores.nodes.get(params.id);
    const wanted_bytes = query.bytes ?? 0;
    const all = await stores.volumes.onNode(node.id);
    const seen = await stores.projects.visible(
      [...new Set(all.map((copy) => copy.project_id))],
      access,
    );
    // A deleted project has no members: admins see what it left.
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
  });

  route('resetNodeSecret', async ({ params, request, access }) => {
    const node = await stores.nodes.resetSecret(params.id, now());
    const message = `the secret of node ${node.hostname} was reset`;
    nodeChanges.record(
      { kind: 'secret_reset', node, message },
      { address: request.ip, requestId: request.id },
    );
    // Ends held requests that used the old secret.
    changes.notify(`node:${node.id}`);
    return view(node, access);
  });

  route('deleteNode', async ({ params, query, access }) => {
    const force = query.force ?? false;
    // Their rows go with the node.
    const left = force ? await stores.unmanaged.left({ nodes: [params.id], used: true }) : [];
    const node = await view(await driver.deleteNode(params.id, force), access);
    return force
      ? {
          ...node,
          unmanaged: left
            .filter((c) => maySee(c, access))
            .map((c) => unmanagedView(c, node.hostname)),
        }
      : node;
  });
}
