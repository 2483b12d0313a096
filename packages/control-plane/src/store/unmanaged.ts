/**
 * Stores the containers that contract-only agents might have started
 * (domain/nodes/unmanaged-containers.ts).
 */
import { LABELS } from '@berth/wire/vocabulary';
import {
  leftOver,
  type UnmanagedChange,
  type UnmanagedContainer,
} from '../domain/nodes/unmanaged-containers.ts';
import type { LeftWhere, UnmanagedStore } from '../domain/nodes/unmanaged-store.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { NodeRecord } from '../domain/platform/records.ts';
import type { Database } from './engine/database.ts';
import type { Row, Tx } from './engine/tables.ts';
import { writeEvents } from './events.ts';

const recordOf = ({ labelled, ...row }: Row<'unmanaged_containers'>): UnmanagedContainer => ({
  ...row,
  labelled: labelled === 1,
});

export const createUnmanagedStore = (db: Database): UnmanagedStore => ({
  left: (where) => db.snapshot((tx) => leftOf(tx, where)),

  confirm: (node, container, by, now) =>
    db.write(async (tx) => {
      const gone = await tx
        .updateTable('unmanaged_containers')
        .set({ confirmed_at: now })
        .where('node_id', '=', node.id)
        .where('container', '=', container)
        .where('confirmed_at', 'is', null)
        .returning('project_id')
        .execute();
      if (gone.length === 0)
        throw new DomainError(
          'not_found',
          `${node.hostname} has no container ${container} that a person must remove`,
        );
      // Makes deployments that waited for this removal decide again.
      await tx
        .updateTable('projects')
        .set((eb) => ({ flow_version: eb('flow_version', '+', 1) }))
        .where(
          'id',
          'in',
          gone.map((row) => row.project_id),
        )
        .execute();
      const message = `${by} confirmed that ${container} on ${node.hostname} is removed`;
      await writeEvents(db, tx, [
        { at: now, kind: 'node.container_removed', node_id: node.id, message },
      ]);
    }),
});

export async function unmanagedOf(tx: Tx, projectId: string): Promise<UnmanagedContainer[]> {
  const rows = await tx
    .selectFrom('unmanaged_containers')
    .selectAll()
    .where('project_id', '=', projectId)
    .orderBy('node_id')
    .orderBy('container')
    .execute();
  return rows.map(recordOf);
}

/** Returns the containers on these nodes, or of this project, that only a person can remove. */
export async function leftOf(tx: Tx, where: LeftWhere): Promise<UnmanagedContainer[]> {
  if ('nodes' in where && where.nodes.length === 0) return [];
  const query = tx.selectFrom('unmanaged_containers').selectAll().where('confirmed_at', 'is', null);
  const rows = await ('nodes' in where
    ? query.where('node_id', 'in', [...where.nodes])
    : query.where('project_id', '=', where.project)
  )
    .orderBy('container')
    .orderBy('project_id')
    .execute();
  if (rows.length === 0) return [];
  if ('nodes' in where && where.used === true) return rows.map(recordOf);
  const live = await tx
    .selectFrom('deployments')
    .select(['id', 'project_id', 'node_id', 'status', 'stopped_first', 'domain_prefix'])
    .where('status', 'in', ['deploying', 'running'])
    .where('node_id', 'in', [...new Set(rows.map((row) => row.node_id))])
    .execute();
  return leftOver(
    rows.map(recordOf),
    live.map(({ domain_prefix, ...d }) => ({ ...d, settings: { domain_prefix } })),
  );
}

export async function changeUnmanaged(tx: Tx, change: UnmanagedChange, now: number): Promise<void> {
  if ('put' in change) return put(tx, change.put);
  const { node_id, container, project_id } = change.replaced;
  await tx
    .updateTable('unmanaged_containers')
    .set({ confirmed_at: now })
    .where('node_id', '=', node_id)
    .where('container', '=', container)
    .where('project_id', '!=', project_id)
    .where('confirmed_at', 'is', null)
    .execute();
}

async function put(
  tx: Tx,
  { node_id, container, project_id, labelled, ...rest }: UnmanagedContainer,
): Promise<void> {
  const columns = { ...rest, labelled: Number(labelled) };
  await tx
    .insertInto('unmanaged_containers')
    .values({ node_id, container, project_id, ...columns })
    .onConflict((oc) => oc.columns(['node_id', 'container', 'project_id']).doUpdateSet(columns))
    .execute();
}

/**
 * Records the containers of a Berth agent that was replaced by a contract-only agent, which does
 * not report them.
 */
export async function noteContainers(
  tx: Tx,
  nodeId: string,
  containers: NodeRecord['containers'],
  now: number,
): Promise<void> {
  for (const { name, labels } of containers) {
    const [project_id, deployment_id] = [labels[LABELS.project], labels[LABELS.deployment]];
    if (project_id === undefined || deployment_id === undefined) continue;
    const project = labels[LABELS.project_name] ?? project_id;
    const placed = {
      node_id: nodeId,
      container: name,
      project_id,
      project,
      deployment_id,
      placed_at: now,
    };
    await put(tx, { ...placed, labelled: true, confirmed_at: null });
  }
}

/** Removes containers with labels from the list, because a Berth agent now reports them itself. */
export const forgetLabelled = (tx: Tx, nodeId: string): Promise<unknown> =>
  tx
    .deleteFrom('unmanaged_containers')
    .where('node_id', '=', nodeId)
    .where('labelled', '=', 1)
    .execute();

/**
 * Removes the rows of a node or a project that is being removed. Containers that a removed project
 * leaves behind stay in the list of their node.
 */
export const forgetUnmanagedOf = (
  tx: Tx,
  where: { node: string } | { project: string },
): Promise<unknown> => {
  const rows = tx.deleteFrom('unmanaged_containers');
  return 'node' in where
    ? rows.where('node_id', '=', where.node).execute()
    : rows.where('project_id', '=', where.project).where('confirmed_at', 'is not', null).execute();
};
