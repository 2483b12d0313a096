/**
 * The facts about datasets that decisions use. A dataset that is being deleted counts as deleted.
 */
import type { DatasetFact } from '../../domain/deployments/facts.ts';
import type { Db } from '../engine/tables.ts';

const COLUMNS = [
  'id',
  'name',
  'nfs_path',
  'status',
  'problem',
  'version',
  'manifest_digest',
  'bytes',
  'files',
] as const;

/** Returns the facts, sorted by name. `ids`: null for all datasets. */
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
