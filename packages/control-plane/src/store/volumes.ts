/** The copies of volumes (domain/volumes.ts). */
import type { VolumeCopy } from '../domain/volume-copy.ts';
import type { VolumeStore } from '../domain/stores.ts';
import type { Database } from './engine/database.ts';
import type { Row, Tx } from './engine/tables.ts';

export const volumeCopyOf = (row: Row<'volume_copies'>): VolumeCopy => ({ ...row, names: JSON.parse(row.names) as string[] });

export const createVolumeStore = (db: Database): VolumeStore => ({
  ofProject: (projectId) => db.snapshot((tx) => volumesOf(tx, projectId)),
});

export async function volumesOf(tx: Tx, projectId: string): Promise<VolumeCopy[]> {
  const rows = await tx
    .selectFrom('volume_copies')
    .selectAll()
    .where('project_id', '=', projectId)
    .orderBy('created_at')
    .orderBy('id')
    .execute();
  return rows.map(volumeCopyOf);
}

/** Returns whether a project may still need the folders of this node. */
export async function hasVolumes(tx: Tx, nodeId: string): Promise<boolean> {
  const query = tx
    .selectFrom('volume_copies')
    .select('id')
    .where('node_id', '=', nodeId)
    .where('state', '=', 'current')
    .where('names', '!=', '[]');
  return (await query.limit(1).execute()).length > 0;
}

export async function putVolumes(tx: Tx, { id, ...copy }: VolumeCopy): Promise<void> {
  const columns = { ...copy, names: JSON.stringify(copy.names) };
  await tx
    .insertInto('volume_copies')
    .values({ id, ...columns })
    .onConflict((oc) => oc.column('id').doUpdateSet(columns))
    .execute();
}

/** The project is removed: its volumes stay on their nodes until an admin deletes them, unless the deletion included them. */
export async function endVolumes(tx: Tx, projectId: string, deletes: boolean, at: number): Promise<void> {
  await tx
    .updateTable('volume_copies')
    .set((eb) => ({
      state: deletes
        ? 'left'
        : eb
            .case()
            .when('state', '=', 'current')
            .then('kept' as const)
            .else('left' as const)
            .end(),
      changed_at: at,
    }))
    .where('project_id', '=', projectId)
    .execute();
}
