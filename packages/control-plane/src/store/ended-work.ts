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

/** Steps from node to node in the index: a project has thousands of ended tasks, on a handful of nodes. */
export async function endedWork(db: Db, projectId: string): Promise<EndedWork[]> {
  const { rows } = await sql<EndedWork>`
    with recursive node(id) as (
      select (select min(node_id) from tasks where project_id = ${projectId} and ${ENDED})
      union all
      select (select min(t.node_id) from tasks t where t.project_id = ${projectId} and t.node_id > node.id and ${ENDED})
      from node where node.id is not null)
    select
      id as node_id,
      (select max(finished_at) from tasks where project_id = ${projectId} and node_id = node.id and ${ENDED}) as ended_at,
      (select max(finished_at) from tasks where project_id = ${projectId} and node_id = node.id and ${UNREPORTED}) as unreported_at
    from node where id is not null`.execute(db);
  return rows;
}
