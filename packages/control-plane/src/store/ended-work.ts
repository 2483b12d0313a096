/** Where tasks of a project on deploy nodes ended, and of which of them nobody said how (flow/single-writer.ts). */
import { sql } from 'kysely';
import type { EndedWork } from '../domain/facts.ts';
import type { Db } from './engine/tables.ts';

/** Word for word the conditions of the indexes tasks_ended_work and tasks_unreported: SQLite uses a partial index only then. */
const ENDED = sql.raw(`kind in ('deploy', 'retire') and finished_at is not null`);
/**
 * A task that was taken away before any agent claimed it was never begun; one that was begun and of which no report came, or a
 * removal that failed, leaves it open what runs there.
 */
const UNREPORTED = sql.raw(
  `kind in ('deploy', 'retire') and finished_at is not null and ((report is null and attempt > 0) or (kind = 'retire' and status = 'failed'))`,
);

/** Ends that an earlier version wrote are before all others, in the order of the machine's clock. */
const BEFORE_ALL = 4_000_000_000_000;
export const ENDED_AT = sql<number>`coalesce(tasks.lease_expires_at, tasks.finished_at - ${sql.raw(String(BEFORE_ALL))})`;
export const endedAt = (task: { lease_expires_at: number | null; finished_at: number | null }): number =>
  task.lease_expires_at ?? (task.finished_at ?? 0) - BEFORE_ALL;

/** Number of tasks, the last ended ones by the machine's clock, that are compared by the uptime clock. */
const LATEST = 32;

/**
 * When the last of them ended by the uptime clock. The indexes go by the machine's clock: after that was set back, what ended before has
 * the later times, so the latest ones up to the present time are asked too.
 */
const lastEnd = (projectId: string, now: number, which: ReturnType<typeof sql.raw>) => {
  const latest = (condition: ReturnType<typeof sql.raw>) => sql`select * from (
    select ${ENDED_AT} as ended from tasks
    where project_id = ${projectId} and node_id = node.id and ${which} and ${condition} order by finished_at desc limit ${sql.raw(String(LATEST))}) as a`;
  return sql`(select max(ended) from (${latest(sql.raw('true'))} union all ${latest(sql.raw(`finished_at <= ${Math.trunc(now)}`))}) as b)`;
};

/** Steps from node to node in the index: a project has thousands of ended tasks, on a handful of nodes. `now`: the machine's clock. */
export async function endedWork(db: Db, projectId: string, now: number): Promise<EndedWork[]> {
  const { rows } = await sql<EndedWork>`
    with recursive node(id) as (
      select (select min(node_id) from tasks where project_id = ${projectId} and ${ENDED})
      union all
      select (select min(t.node_id) from tasks t where t.project_id = ${projectId} and t.node_id > node.id and ${ENDED})
      from node where node.id is not null)
    select id as node_id, ${lastEnd(projectId, now, ENDED)} as ended_at, ${lastEnd(projectId, now, UNREPORTED)} as unreported_at
    from node where id is not null`.execute(db);
  return rows;
}
