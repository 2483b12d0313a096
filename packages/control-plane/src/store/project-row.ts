/** Reads and locks the row of a project. */
import { DomainError } from '../domain/platform/errors.ts';
import type { Database } from './engine/database.ts';
import type { Row, Tx } from './engine/tables.ts';

/** Returns the row. Throws not_found if it is undefined. */
export function existing(id: string, row: Row<'projects'> | undefined): Row<'projects'> {
  if (row === undefined) throw new DomainError('not_found', `no project has the id ${id}`);
  return row;
}

/** Returns the row, locked until the transaction ends. Throws not_found. */
export async function lockedProject(
  { capabilities }: Database,
  tx: Tx,
  id: string,
): Promise<Row<'projects'>> {
  const row = await tx
    .selectFrom('projects')
    .selectAll()
    .where('id', '=', id)
    .$if(capabilities.rowLocks, (q) => q.forUpdate())
    .executeTakeFirst();
  return existing(id, row);
}
