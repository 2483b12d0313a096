/**
 * Ends the leases of devices that runs have. A report that says how the command ended frees its
 * devices in the same transaction. All other ends (a lost agent, a deleted project or node, an end
 * that an earlier version wrote) are noticed here by the task of the lease; then the device is free
 * when its node has listed its containers without the run (store/room.ts).
 */
import type { DeviceLease } from '../domain/nodes/room.ts';
import { DEFAULT_LIMITS } from '../domain/deployments/facts.ts';
import type { Database } from './engine/database.ts';
import type { Tx } from './engine/tables.ts';

/** Frees the devices of a task whose command has ended, or cannot have started. */
export async function freeDevicesOfTask(tx: Tx, taskId: string): Promise<void> {
  await tx.deleteFrom('device_leases').where('task_id', '=', taskId).execute();
}

/** Notes the ends of tasks. Returns the number of devices that ended tasks hold. */
export async function endDevices(db: Database, at: number): Promise<number> {
  const rows = await db.kysely
    .selectFrom('device_leases')
    .leftJoin('tasks', 'tasks.id', 'device_leases.task_id')
    .select(['device_leases.task_id', 'task_ended_at', 'tasks.id', 'finished_at', 'report'])
    .where('run_id', 'is not', null)
    .where((eb) => eb.or([eb('tasks.id', 'is', null), eb('finished_at', 'is not', null)]))
    .execute();
  for (const { task_id, task_ended_at, report } of rows) {
    if (task_ended_at !== null) continue;
    // An agent that has reported starts nothing more: its next list is enough.
    const ended = report === null ? at : at - DEFAULT_LIMITS.leaseMs;
    await db.writeOne((kysely) =>
      kysely
        .updateTable('device_leases')
        .set({ task_ended_at: ended })
        .where('task_id', '=', task_id)
        .where('task_ended_at', 'is', null)
        .execute(),
    );
  }
  return rows.length;
}

/** Frees devices of ended tasks; not one that has been leased again. */
export async function freeDevices(db: Database, leases: readonly DeviceLease[]): Promise<void> {
  for (const { node_id, kind, name, run } of leases) {
    if (run === undefined) continue;
    await db.writeOne((kysely) =>
      kysely
        .deleteFrom('device_leases')
        .where('node_id', '=', node_id)
        .where('kind', '=', kind)
        .where('name', '=', name)
        .where('task_id', '=', run.task_id)
        .where('task_ended_at', 'is not', null)
        .execute(),
    );
  }
}
