/**
 * Copies a dataset to a node before a project needs it there. The task belongs to the node and to
 * no project.
 */
import { DomainError, invalid } from '../domain/platform/errors.ts';
import type { SyncPayload } from '@berth/wire/task';
import type { Facts, Limits } from '../domain/deployments/facts.ts';
import type { NewSync } from '../domain/deployments/task-store.ts';
import { isOnline } from '../domain/nodes/placement.ts';
import type { NodeRecord } from '../domain/platform/records.ts';
import type { Uptime } from '../domain/platform/uptime.ts';
import type { FlowStores } from './flow-stores.ts';
import { copyMs } from './data.ts';

type Stored = Pick<FlowStores, 'nodes' | 'datasets' | 'tasks'>;
type Prewarm = { id: string; nodeId: string; datasetId: string };
type At = Pick<Facts, 'now' | 'uptime'>;

export async function prewarm(
  stores: Stored,
  { id, nodeId, datasetId }: Prewarm,
  at: At,
  limits: Limits,
): Promise<void> {
  const { now, uptime } = at;
  const node = await stores.nodes.get(nodeId);
  const refuse = (why: string): DomainError =>
    new DomainError('wrong_state', `${node.hostname} ${why}`);
  if (node.deleting_at !== null)
    throw new DomainError('being_deleted', `${node.hostname} is being deleted`);
  if (node.role !== 'deploy') throw refuse('is a builder; only deploy nodes have datasets');
  if (node.agent_version === null)
    throw refuse('has an agent that does not support copies ahead of time');
  if (!isOnline(node, now, limits))
    throw refuse(`is offline since ${new Date(node.last_seen_at).toISOString()}`);
  const dataset = (await stores.datasets.facts()).find((d) => d.id === datasetId);
  if (dataset === undefined)
    throw invalid('dataset_id', 'exists', 'there is no dataset with this id');
  const { name, nfs_path, version, manifest_digest, bytes, files, status, problem } = dataset;
  if (version === null)
    throw invalid(
      'dataset_id',
      'has_version',
      `${name} has no version yet; wait for its first scan`,
    );
  if (status !== 'ok')
    throw invalid(
      'dataset_id',
      'readable',
      `${name} is ${status}${problem === null ? '' : `: ${problem}`}`,
    );
  const source = { dataset_id: datasetId, name, nfs_path, version, manifest_digest, bytes, files };
  await stores.tasks.createSync(copyTask({ dataset: source }, node, { id, uptime, limits }), now);
}

/** Returns the task that copies a version to the node, with its deadlines. */
export const copyTask = (
  payload: SyncPayload,
  node: Pick<NodeRecord, 'id' | 'copy_rate'>,
  { id, uptime, limits }: { id: string; uptime: Uptime; limits: Limits },
): NewSync => ({
  id,
  node_id: node.id,
  payload,
  queue_deadline_at: uptime.at + limits.claimMs,
  wall_deadline_at: uptime.at + limits.deployMs + copyMs(payload.dataset.bytes, node.copy_rate),
});
