/**
 * Finds when work of a project last ended on each deploy node, and when work last ended without a
 * report (flow/single-writer.ts).
 */
import { sql } from 'kysely';
import type { EndedWork } from '../domain/deployments/facts.ts';
import type { Db } from './engine/tables.ts';

/**
 * ENDED and UNREPORTED repeat the conditions of their indexes verbatim (tasks_ended_work,
 * tasks_unreported), as SQLite requires.
 */
const ENDED = sql.raw(`kind in ('deploy', 'retire') and finished_at is not null`);
/**
 * Tasks after which the containers on the node are unknown: claimed tasks without a report, and
 * failed removals. Excludes tasks that were withdrawn before an agent claimed them, because they
 * never started.
 */
const UNREPORTED = sql.raw(
  "kind in ('deploy', 'retire') and finished_at is not null and ((report is null and attempt > " +
    '0) ' +
    "or (kind = 'retire' and status = 'failed'))",
);

/** Tasks that can have started: a Berth agent claims a task before it starts the task. */
const CLAIMED = sql.raw(
  "kind in ('deploy', 'retire') and finished_at is not null and (attempt > 0 or report is not " +
    'null)',
);

/**
 * Offset for ends that an older version wrote: they sort before all others, in the order of the
 * machine's clock.
 */
const BEFORE_ALL = 4_000_000_000_000;
export const ENDED_AT = sql<number>`
  coalesce(tasks.lease_expires_at, tasks.finished_at - ${sql.raw(String(BEFORE_ALL))})`;
export const endedAt = (task: {
  lease_expires_at: number | null;
  finished_at: number | null;
}): number => task.lease_expires_at ?? (task.finished_at ?? 0) - BEFORE_ALL;

/**
 * Number of candidate tasks: the ones that ended last by the machine's clock are compared by the
 * uptime clock.
 */
const LATEST = 32;

/**
 * Returns the end that is the latest by the uptime clock. The indexes are sorted by the machine's
 * clock. If that clock was set back, older ends have later times in the index. So the query also
 * compares the latest ends up to the present time.
 */
const lastEnd = (projectId: string, now: number, which: ReturnType<typeof sql.raw>) => {
  const latest = (condition: ReturnType<typeof sql.raw>) => sql`select * from (
    select ${ENDED_AT} as ended from tasks
    where project_id = ${projectId} and node_id = node.id and ${which} and ${condition}
    order by finished_at desc limit ${sql.raw(String(LATEST))}) as a`;
  return sql`(select max(ended) from (${latest(sql.raw('true'))}
    union all ${latest(sql.raw(`finished_at <= ${Math.trunc(now)}`))}) as b)`;
};

/**
 * Looks up each node in the index: a project has thousands of finished tasks on a few nodes. `now`:
 * by the machine's clock.
 */
export async function endedWork(db: Db, projectId: string, now: number): Promise<EndedWork[]> {
  const { rows } = await sql<EndedWork>`
    with recursive node(id) as (
      select (select min(node_id) from tasks where project_id = ${projectId} and ${ENDED})
      union all
      select (select min(t.node_id) from tasks t
          where t.project_id = ${projectId} and t.node_id > node.id and ${ENDED})
      from node where node.id is not null)
    select id as node_id,
      ${lastEnd(projectId, now, ENDED)} as ended_at,
      ${lastEnd(projectId, now, CLAIMED)} as claimed_at,
      ${lastEnd(projectId, now, UNREPORTED)} as unreported_at
    from node where id is not null`.execute(db);
  return rows;
}
