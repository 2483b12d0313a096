/** Stores tree objects, deflated, once for each dataset that has them. */
import { promisify } from 'node:util';
import { inflate } from 'node:zlib';
import type { TreeObject } from '../../domain/data/dataset-stores.ts';
import type { Db } from '../engine/tables.ts';
import type { NewRow } from '../engine/tables.ts';

// The async form runs in the thread pool: a folder of 1,000 files is 100 KB of text.
const inflated = promisify<Buffer, Buffer>(inflate);

export const treeRow = async (
  dataset_id: string,
  { digest, text }: TreeObject,
  deflated: (text: string) => Promise<Buffer>,
): Promise<NewRow<'dataset_trees'>> => ({
  dataset_id,
  digest,
  body: await deflated(text),
});

/** Returns the texts by digest, without entries for missing objects. */
export async function readTrees(
  db: Db,
  datasetId: string,
  digests: readonly string[],
): Promise<Map<string, string>> {
  if (digests.length === 0) return new Map();
  const rows = await db
    .selectFrom('dataset_trees')
    .select(['digest', 'body'])
    .where('dataset_id', '=', datasetId)
    .where('digest', 'in', [...digests])
    .execute();
  return new Map(
    await Promise.all(
      rows.map(
        async ({ digest, body }) => [digest, (await inflated(body)).toString('latin1')] as const,
      ),
    ),
  );
}
