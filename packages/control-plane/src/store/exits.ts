/**
 * How containers ended: exit code and last lines. Keeps the newest EXITS_KEPT of each instance of a
 * deployment, and MOST_OF_DEPLOYMENT of all.
 */
import { EXITS_KEPT } from '@berth/wire/runtime';
import type { ExitLineRecord, ExitRecord, ExitStore } from '../domain/deployments/runtime-logs.ts';
import { WEB } from '../domain/deployments/instance.ts';
import type { Database } from './engine/database.ts';
import type { Tx } from './engine/tables.ts';

/** Maximum number of ends of one deployment. */
const MOST_OF_DEPLOYMENT = 20;

export const createExitStore = (db: Database): ExitStore => ({
  add: (exit, now) => addExits(db, exit, now),
  ranOn: (nodeId, deploymentIds) => deploymentsRanOn(db, nodeId, deploymentIds),
  list: (deploymentId) => listExits(db, deploymentId),
});

async function addExits(
  db: Database,
  { run, lines, truncated, out_of_memory, ...exit }: ExitRecord & { run: string },
  now: number,
): Promise<boolean> {
  const text = JSON.stringify(lines);
  const row = {
    ...exit,
    run,
    lines: text,
    bytes: Buffer.byteLength(text),
    truncated: truncated ? 1 : 0,
    out_of_memory: out_of_memory ? 1 : 0,
    stored_at: now,
  };
  const { deployment_id } = exit;
  return db.write(async (tx) => {
    const deployment = await tx
      .selectFrom('deployments')
      .select('log_removed_at')
      .where('id', '=', deployment_id)
      .executeTakeFirst();
    if (deployment === undefined || deployment.log_removed_at !== null) return false;
    await tx
      .insertInto('container_exits')
      .values(row)
      .onConflict((oc) =>
        oc.columns(['deployment_id', 'run']).doUpdateSet({ ...row, stored_at: now }),
      )
      .execute();
    // Creates the row by which the limit of all logs (log-limit.ts) finds the deployment.
    await tx
      .insertInto('log_heads')
      .values({ deployment_id, last_seq: 0, bytes: 0, left_out: 0 })
      .onConflict((oc) => oc.column('deployment_id').doNothing())
      .execute();
    await removeSurplus(tx, deployment_id);
    return true;
  });
}

async function removeSurplus(tx: Tx, deploymentId: string): Promise<void> {
  const rows = await tx
    .selectFrom('container_exits')
    .select(['run', 'process', 'instance'])
    .where('deployment_id', '=', deploymentId)
    .orderBy('stored_at', 'desc')
    .orderBy('run')
    .limit(MOST_OF_DEPLOYMENT + 100)
    .execute();
  const counts = new Map<string, number>();
  const surplus = rows.filter(({ process, instance }, i) => {
    const key = `${process ?? WEB} ${instance ?? 1}`;
    const count = (counts.get(key) ?? 0) + 1;
    counts.set(key, count);
    return count > EXITS_KEPT || i >= MOST_OF_DEPLOYMENT;
  });
  if (surplus.length === 0) return;
  await tx
    .deleteFrom('container_exits')
    .where('deployment_id', '=', deploymentId)
    .where(
      'run',
      'in',
      surplus.map(({ run }) => run),
    )
    .execute();
}

async function deploymentsRanOn(
  db: Database,
  nodeId: string,
  deploymentIds: readonly string[],
): Promise<Set<string>> {
  if (deploymentIds.length === 0) return new Set();
  const ids = [...deploymentIds];
  const [here, worked] = await Promise.all([
    db.kysely
      .selectFrom('deployments')
      .select('id')
      .where('id', 'in', ids)
      .where('node_id', '=', nodeId)
      .execute(),
    db.kysely
      .selectFrom('tasks')
      .select('deployment_id')
      .distinct()
      .where('deployment_id', 'in', ids)
      .where('node_id', '=', nodeId)
      .execute(),
  ]);
  return new Set([...here.map((d) => d.id), ...worked.flatMap((t) => t.deployment_id ?? [])]);
}

async function listExits(db: Database, deploymentId: string): Promise<ExitRecord[]> {
  const rows = await db.kysely
    .selectFrom('container_exits')
    .selectAll()
    .where('deployment_id', '=', deploymentId)
    .orderBy('stored_at', 'desc')
    .orderBy('run')
    .execute();
  return rows.map(
    ({
      lines,
      truncated,
      out_of_memory,
      run: _run,
      bytes: _bytes,
      stored_at: _stored,
      process,
      instance,
      ...exit
    }) => ({
      ...exit,
      process: process ?? WEB,
      instance: instance ?? 1,
      lines: JSON.parse(lines) as ExitLineRecord[],
      truncated: truncated === 1,
      out_of_memory: out_of_memory === 1,
    }),
  );
}
