/** Nodes that were silent for long and have nothing on them: machines that came back under another name, or never. */
import { LABELS } from '@berth/wire/vocabulary';
import { sql } from 'kysely';
import type { Database } from './engine/database.ts';
import type { Tx } from './engine/tables.ts';
import type { NodeMemory } from './memory/node-memory.ts';
import { LIVE_STATES } from './states.ts';
import { isSync } from './task-row.ts';

/** A node with a secret of its own is kept at least this long: its agent may need an admin, with a join token, to come back. */
const SECRET_KEPT_MS = 90 * 86_400_000;

/** Returns the names of the nodes that it removed. `before`: not seen since. */
export async function* forgetNodes(
  db: Database,
  memory: NodeMemory,
  { before, now }: { before: number; now: number },
): AsyncGenerator<void, string[], void> {
  const withSecretBefore = Math.min(before, now - SECRET_KEPT_MS);
  const silent = (await memory.all(db.kysely)).filter(
    (node) =>
      node.last_seen_at < before &&
      (node.last_polled_at ?? 0) < before &&
      node.drain === null &&
      node.deleting_at === null &&
      !node.containers.some((container) => container.labels[LABELS.project] !== undefined),
  );
  const gone: string[] = [];
  for (const { id, hostname, role } of silent) {
    yield;
    if (!(await db.write((tx) => forget(db, tx, id, { before, withSecretBefore })))) continue;
    memory.forget(id);
    gone.push(`${role}:${hostname}`);
  }
  return gone;
}

async function forget(
  { capabilities }: Database,
  tx: Tx,
  id: string,
  { before, withSecretBefore }: { before: number; withSecretBefore: number },
): Promise<boolean> {
  const node = await tx
    .selectFrom('nodes')
    .select(['last_seen_at', 'agent_version', 'observed_at', 'secret_used'])
    .where('id', '=', id)
    .$if(capabilities.rowLocks, (q) => q.forUpdate())
    .executeTakeFirst();
  if (node === undefined || node.last_seen_at >= (node.secret_used === 1 ? withSecretBefore : before)) return false;
  const route = await tx.selectFrom('routes').select('project_id').where('node_id', '=', id).limit(1).executeTakeFirst();
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
  if (route !== undefined || live !== undefined || open !== undefined) return false;
  // Work ended there and the node never said afterwards what still runs: only a person may decide that it is gone (DELETE of the node).
  const seen = node.agent_version === null ? -1 : (node.observed_at ?? -1);
  const unsure = await sql<{ id: string }>`select id from projects where exists (
    select 1 from tasks where tasks.project_id = projects.id and node_id = ${id} and coalesce(lease_expires_at, finished_at) >= ${seen}
      and kind in ('deploy', 'retire') and finished_at is not null) limit 1`.execute(tx);
  if (unsure.rows.length > 0) return false;
  await tx.deleteFrom('tasks').where(isSync).where('node_id', '=', id).execute();
  await tx.deleteFrom('nodes').where('id', '=', id).execute();
  return true;
}
