/** Work for nodes, and the leases on it. A task ends only through a plan (commit-plan.ts); here it is offered, claimed and kept. */
import type { TaskKind } from '@berth/wire/vocabulary';
import { DomainError } from '../domain/errors.ts';
import type { TaskRecord } from '../domain/records.ts';
import type { TaskStore } from '../domain/stores.ts';
import type { Database, Db, Tx } from './database.ts';
import { taskOf } from './rows/task.ts';
import type { Row } from './tables.ts';

/** Held polls ask again whenever something moves; being seen is worth one write a second, not one each. */
const POLL_GRAIN_MS = 1000;
const CONTRACT_KINDS: readonly TaskKind[] = ['build', 'deploy'];
const WORK: Record<TaskKind, string> = { build: 'the build', deploy: 'the deployment', retire: 'the removal of older containers' };

export function createTaskStore(db: Database): TaskStore {
  return {
    async get(id) {
      return taskOf(await taskRow(db.kysely, id));
    },

    async openFor(nodeId, now) {
      const node = await db.kysely
        .selectFrom('nodes')
        .select(['agent_version', 'last_polled_at'])
        .where('id', '=', nodeId)
        .executeTakeFirst();
      if (node === undefined) throw new DomainError('not_found', 'There is no such node: register again');
      if (node.last_polled_at === null || Math.abs(now - node.last_polled_at) >= POLL_GRAIN_MS) {
        await db.writeOne((kysely) => kysely.updateTable('nodes').set({ last_polled_at: now }).where('id', '=', nodeId).execute());
      }
      let query = db.kysely.selectFrom('tasks').selectAll().where('node_id', '=', nodeId).where('finished_at', 'is', null);
      if (node.agent_version === null) query = query.where('kind', 'in', [...CONTRACT_KINDS]);
      return (await query.orderBy('seq').execute()).map(taskOf);
    },

    claim(id, lease, now, maxAttempts) {
      return db.write(async (tx) => {
        const claimed = await tx
          .updateTable('tasks')
          .set((eb) => ({
            attempt: eb('attempt', '+', 1),
            status: 'running',
            lease_token: lease.token,
            lease_expires_at: lease.expires_at,
            started_at: eb.fn.coalesce('started_at', eb.val(now)),
          }))
          .where('id', '=', id)
          .where('finished_at', 'is', null)
          .where('attempt', '<', maxAttempts)
          .returningAll()
          .executeTakeFirst();
        if (claimed === undefined) throw await whyNotClaimed(tx, id, maxAttempts);
        await tellClaim(tx, claimed, now);
        return { attempt: claimed.attempt, lease_token: lease.token, lease_expires_at: lease.expires_at };
      });
    },

    async renew(id, token, expiresAt, _now) {
      const renewed = await db.writeOne((kysely) =>
        kysely
          .updateTable('tasks')
          .set({ lease_expires_at: expiresAt })
          .where('id', '=', id)
          .where('lease_token', '=', token)
          .where('finished_at', 'is', null)
          .returning('cancel_requested_at')
          .executeTakeFirst(),
      );
      if (renewed !== undefined) return { cancel_requested: renewed.cancel_requested_at !== null };
      const task = await taskRow(db.kysely, id);
      throw new DomainError(task.finished_at !== null ? 'task_over' : 'stale_lease');
    },

    async overdue(now, pollSince, maxAttempts) {
      const rows = await db.kysely
        .selectFrom('tasks')
        .leftJoin('nodes', 'nodes.id', 'tasks.node_id')
        .selectAll('tasks')
        .select(['nodes.agent_version', 'nodes.last_polled_at'])
        .where('tasks.finished_at', 'is', null)
        .where((eb) =>
          eb.or([
            eb('wall_deadline_at', '<', now),
            eb('lease_expires_at', '<', now),
            eb.and([eb('attempt', '=', 0), eb('queue_deadline_at', '<', now)]),
          ]),
        )
        .execute();
      // Sorted here: asked for in this order, SQLite walks every task there ever was.
      rows.sort((a, b) => a.seq - b.seq);
      return rows.flatMap(({ agent_version, last_polled_at, ...row }) => {
        const task = taskOf(row);
        const why = whyOverdue(task, now, maxAttempts, agent_version !== null || last_polled_at === null || last_polled_at < pollSince);
        return why === null ? [] : [{ task, why }];
      });
    },
  };
}

type Why = 'queue' | 'lease' | 'wall' | 'attempts';

/** `mute`: nothing but a claim could tell that the node is at work on it, or it does not even poll. */
function whyOverdue(task: TaskRecord, now: number, maxAttempts: number, mute: boolean): Why | null {
  if (now > task.wall_deadline_at) return 'wall';
  if (task.status === 'running' && task.lease_expires_at !== null && task.lease_expires_at < now)
    return task.attempt >= maxAttempts ? 'attempts' : 'lease';
  if (task.status === 'pending' && task.attempt === 0 && now > task.queue_deadline_at && mute) return 'queue';
  return null;
}

async function taskRow(db: Db, id: string): Promise<Row<'tasks'>> {
  const row = await db.selectFrom('tasks').selectAll().where('id', '=', id).executeTakeFirst();
  if (row === undefined) throw new DomainError('not_found', 'There is no such task');
  return row;
}

async function whyNotClaimed(tx: Tx, id: string, maxAttempts: number): Promise<DomainError> {
  const task = await taskRow(tx, id);
  return new DomainError('task_over', task.finished_at === null ? `It was begun ${maxAttempts} times without an end` : undefined);
}

async function tellClaim(tx: Tx, task: Row<'tasks'>, now: number): Promise<void> {
  if (task.deployment_id === null) return;
  const node = await tx.selectFrom('nodes').select(['hostname', 'role']).where('id', '=', task.node_id).executeTakeFirst();
  const who = node === undefined ? 'a node that is gone' : `${node.role === 'builder' ? 'builder' : 'node'} ${node.hostname}`;
  await tx
    .insertInto('deployment_events')
    .values({
      deployment_id: task.deployment_id,
      at: now,
      kind: 'task_claimed',
      message: `${who} took ${WORK[task.kind]} (attempt ${task.attempt})`,
    })
    .execute();
}
