/** Where tasks of a project on deploy nodes ended, and of which of them nobody said how (flow/single-writer.ts). */
import { sql } from 'kysely';
import type { EndedWork } from '../domain/facts.ts';
import type { Db } from './database.ts';

/**
 * A task that was taken away before any agent claimed it was never begun; one that was begun and of which no report came, or a
 * removal that failed, leaves it open what runs there.
 */
export async function endedWork(db: Db, projectId: string): Promise<EndedWork[]> {
  return db
    .selectFrom('tasks')
    .select([
      'node_id',
      sql<number>`max(finished_at)`.as('ended_at'),
      sql<number | null>`max(case
        when report is null and attempt > 0 then finished_at
        when kind = 'retire' and status = 'failed' then finished_at
      end)`.as('unreported_at'),
    ])
    .where('project_id', '=', projectId)
    .where('kind', 'in', ['deploy', 'retire'])
    .where('finished_at', 'is not', null)
    .groupBy('node_id')
    .execute();
}
