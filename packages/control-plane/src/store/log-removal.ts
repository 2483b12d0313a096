/**
 * Removes the log of one deployment in small transactions. The first one sets `log_removed_at`, so
 * that readers know that the remaining lines are not the whole log.
 */
import type { Database } from './engine/database.ts';
import type { Tx } from './engine/tables.ts';

export const LINES_PER_STEP = 200;

export async function* removeLog(
  db: Database,
  deploymentId: string,
  now: number,
): AsyncGenerator<void, void, void> {
  for (;;) {
    const done = await db.writeUnsynced(async (tx) => {
      await tx
        .updateTable('deployments')
        .set({ log_removed_at: now })
        .where('id', '=', deploymentId)
        .where('log_removed_at', 'is', null)
        .execute();
      return removeLogStep(tx, deploymentId);
    });
    yield;
    if (done) return;
  }
}

/**
 * Resolves with true after the last lines were removed. Deletes the head together with the last
 * lines, so a log without a head has no lines.
 */
export async function removeLogStep(tx: Tx, deploymentId: string): Promise<boolean> {
  const firstLineAfterStep = await tx
    .selectFrom('log_lines')
    .select('seq')
    .where('deployment_id', '=', deploymentId)
    .orderBy('seq')
    .offset(LINES_PER_STEP)
    .limit(1)
    .executeTakeFirst();
  await tx
    .deleteFrom('log_lines')
    .where('deployment_id', '=', deploymentId)
    .$if(firstLineAfterStep !== undefined, (q) => q.where('seq', '<', firstLineAfterStep?.seq ?? 0))
    .execute();
  if (firstLineAfterStep !== undefined) return false;
  await tx.deleteFrom('log_heads').where('deployment_id', '=', deploymentId).execute();
  await tx.deleteFrom('log_marks').where('deployment_id', '=', deploymentId).execute();
  await tx.deleteFrom('container_exits').where('deployment_id', '=', deploymentId).execute();
  return true;
}
