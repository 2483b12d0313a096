/**
 * Removes nodes that have been silent for a long time and have no work: machines that returned
 * under another name, or never returned.
 */
import { LABELS } from '@berth/wire/vocabulary';
import { DEFAULT_LIMITS } from '../domain/deployments/facts.ts';
import { presentNode } from '../domain/nodes/renamed-machine.ts';
import type { NodeRecord } from '../domain/platform/records.ts';
import { sql } from 'kysely';
import type { Database } from './engine/database.ts';
import type { Tx } from './engine/tables.ts';
import type { NodeMemory } from './memory/node-memory.ts';
import { LIVE_STATES } from './states.ts';
import { isSync } from './task-row.ts';
import { hasVolumes } from './volumes.ts';

/**
 * Minimum time to keep a silent node with its own secret: an admin might have to issue a join token
 * before its agent can return.
 */
const SECRET_KEPT_MS = 90 * 86_400_000;

/**
 * Returns the names of the removed nodes. `before`: removes nodes that were last seen before this
 * time.
 */
export async function* forgetNodes(
  db: Database,
  memory: NodeMemory,
  { before, now }: { before: number; now: number },
): AsyncGenerator<void, string[], void> {
  const withSecretBefore = Math.min(before, now - SECRET_KEPT_MS);
  const nodes = await memory.all(db.kysely);
  const isElsewhere = (node: NodeRecord): boolean =>
    presentNode(node, nodes, DEFAULT_LIMITS.offlineMs).id !== node.id;
  const silent = nodes.filter(
    (node) =>
      node.last_seen_at < before &&
      (node.last_polled_at ?? 0) < before &&
      node.drain === null &&
      node.deleting_at === null &&
      (!node.containers.some((container) => container.labels[LABELS.project] !== undefined) ||
        isElsewhere(node)),
  );
  const removed: string[] = [];
  for (const node of silent) {
    const { id, hostname, role } = node;
    yield;
    const { observed_at } = presentNode(node, nodes, DEFAULT_LIMITS.offlineMs);
    if (!(await db.write((tx) => forget(db, tx, id, { before, withSecretBefore, observed_at }))))
      continue;
    memory.forget(id);
    removed.push(`${role}:${hostname}`);
  }
  return removed;
}

async function forget(
  { capabilities }: Database,
  tx: Tx,
  id: string,
  {
    before,
    withSecretBefore,
    observed_at,
  }: { before: number; withSecretBefore: number; observed_at: number | null },
): Promise<boolean> {
  const node = await tx
    .selectFrom('nodes')
    .select(['last_seen_at', 'agent_version', 'secret_used'])
    .where('id', '=', id)
    .$if(capabilities.rowLocks, (q) => q.forUpdate())
    .executeTakeFirst();
  if (
    node === undefined ||
    node.last_seen_at >= (node.secret_used === 1 ? withSecretBefore : before)
  )
    return false;
  const route = await tx
    .selectFrom('routes')
    .select('project_id')
    .where('node_id', '=', id)
    .limit(1)
    .executeTakeFirst();
  const live = await tx
    .selectFrom('deployments')
    .select('id')
    .where('node_id', '=', id)
    .where('status', 'in', [...LIVE_STATES])
    .limit(1)
    .executeTakeFirst();
  const open = await tx
    .selectFrom('tasks')
    .select('id')
    .where('node_id', '=', id)
    .where('finished_at', 'is', null)
    .limit(1)
    .executeTakeFirst();
  if (route !== undefined || live !== undefined || open !== undefined || (await hasVolumes(tx, id)))
    return false;
  // Keeps the node if its machine has not reported its containers since the last work there ended:
  // only a person can decide that these containers no longer exist, by deleting the node. A Berth
  // agent claims a task before it starts the task.
  const isBerthAgent = node.agent_version !== null;
  const seen = isBerthAgent ? (observed_at ?? -1) : -1;
  const unsure = await sql<{ id: string }>`select id from projects where exists (
    select 1 from tasks where tasks.project_id = projects.id and node_id = ${id}
      and coalesce(lease_expires_at, finished_at) >= ${seen}
      and kind in ('deploy', 'retire') and finished_at is not null
      and (${isBerthAgent ? 0 : 1} = 1 or attempt > 0 or report is not null)) limit 1`.execute(tx);
  if (unsure.rows.length > 0) return false;
  await tx.deleteFrom('tasks').where(isSync).where('node_id', '=', id).execute();
  await tx.deleteFrom('nodes').where('id', '=', id).execute();
  return true;
}
