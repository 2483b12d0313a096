import { DomainError } from '../../domain/platform/errors.ts';
import type { Database } from '../engine/database.ts';
import type { Row, Tx } from '../engine/tables.ts';
import type { NewEvent } from '../events.ts';
import { lockedProject } from '../project-row.ts';

/**
 * Returns the project, locked until the transaction ends, and makes existing plans stale. Throws
 * not_found, being_deleted.
 */
export async function changingProject(db: Database, tx: Tx, id: string): Promise<Row<'projects'>> {
  const row = await lockedProject(db, tx, id);
  if (row.deleting_at !== null) throw new DomainError('being_deleted');
  await tx
    .updateTable('projects')
    .set((eb) => ({ flow_version: eb('flow_version', '+', 1) }))
    .where('id', '=', id)
    .execute();
  return row;
}

export const accessEvent = (
  project: { id: string; name: string },
  what: string,
  message: string,
  at: number,
): NewEvent => ({
  at,
  kind: `project.${what}`,
  project_id: project.id,
  message: `project ${project.name}: ${message}`,
});
