/** What decisions ask about datasets; those that are being deleted count as gone. */
import type { DatasetFact } from '../../domain/facts.ts';
import type { Db } from '../engine/tables.ts';

const COLUMNS = ['id', 'name', 'nfs_path', 'status', 'problem', 'version', 'manifest_digest', 'bytes', 'files'] as const;

/** `ids`: null for all. By name. */
export async function datasetFacts(db: Db, ids: readonly string[] | null): Promise<DatasetFact[]> {
  if (ids?.length === 0) return [];
  return db
    .selectFrom('datasets')
    .select(COLUMNS)
    .where('deleting_at', 'is', null)
    .$if(ids !== null, (q) => q.where('id', 'in', [...new Set(ids)]))
    .orderBy('name')
    .execute();
}
