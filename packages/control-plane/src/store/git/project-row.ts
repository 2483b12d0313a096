import { DomainError } from '../../domain/errors.ts';
import type { Database } from '../engine/database.ts';
import type { Row, Tx } from '../engine/tables.ts';
import type { NewEvent } from '../events.ts';

/** Returns the project, locked until the transaction ends, and makes plans from before stale. Throws not_found, being_deleted. */
export async function changingProject({ capabilities }: Database, tx: Tx, id: string): Promise<Row<'projects'>> {
  const row = await tx
    .selectFrom('projects')
    .selectAll()
    .where('id', '=', id)
    .$if(capabilities.rowLocks, (q) => q.forUpdate())
    .executeTakeFirst();
  if (row === undefined) throw new DomainError('not_found', `no project has the id ${id}`);
  if (row.deleting_at !== null) throw new DomainError('being_deleted');
  await tx
    .updateTable('projects')
    .set((eb) => ({ flow_version: eb('flow_version', '+', 1) }))
    .where('id', '=', id)
    .execute();
  return row;
}

export const accessEvent = (project: { id: string; name: string }, what: string, message: string, at: number): NewEvent => ({
  at,
  kind: `project.${what}`,
  project_id: project.id,
  message: `project ${project.name}: ${message}`,
});
