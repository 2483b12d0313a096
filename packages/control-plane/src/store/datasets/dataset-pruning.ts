/**
 * Removes old versions of a dataset. Mark and sweep keeps the tree objects of the remaining
 * versions.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { CachedDataset } from '@berth/wire/node';
import { decodeTree } from '@berth/wire/tree';
import type { ScanClaim } from '../../domain/data/dataset-stores.ts';
import type { PinnedDataset } from '../../domain/platform/records.ts';
import type { Database } from '../engine/database.ts';
import type { Db, Tx } from '../engine/tables.ts';
import { deleteHistory, deleteTrees, type Guard } from './dataset-cleaning.ts';
import { readTrees } from './dataset-trees.ts';
import { LIVE_STATES } from '../states.ts';

const OBJECTS_AT_ONCE = 100;
/** Maximum time of work in ms between two yields to the event loop. */
const TURN_MS = 4;

export async function pruneVersions(
  db: Database,
  { dataset: { id } }: ScanClaim,
  keep: number,
  isClaimed: Guard,
): Promise<number> {
  const rows = await db.kysely
    .selectFrom('dataset_versions')
    .select('version')
    .where('dataset_id', '=', id)
    .orderBy('version', 'desc')
    .execute();
  const old = rows.slice(keep).map((row) => row.version);
  if (old.length === 0) return 0;
  const removed = await db.write(async (tx) => {
    if (!(await isClaimed(tx))) return [];
    const pinned = await pinnedVersions(tx, id);
    const versions = old.filter((version) => !pinned.has(version));
    // The versions become invisible first. If this process ends before it has removed their rows,
    // the next pruning removes them.
    for (const version of versions)
      await tx
        .deleteFrom('dataset_versions')
        .where('dataset_id', '=', id)
        .where('version', '=', version)
        .execute();
    return versions;
  });
  if (removed.length === 0) return 0;
  for (const version of removed) await deleteHistory(db, id, version, isClaimed);
  const marked = await reachable(db.kysely, id);
  await deleteTrees(db, id, (digest) => !marked.has(digest), isClaimed);
  return removed.length;
}

async function pinnedVersions(tx: Tx, id: string): Promise<Set<number>> {
  const like = `%"${id}"%`;
  const deployments = await tx
    .selectFrom('deployments')
    .select('datasets')
    .where('status', 'in', [...LIVE_STATES])
    .where('datasets', 'like', like)
    .execute();
  const nodes = await tx
    .selectFrom('nodes')
    .select('cached')
    .where('cached', 'like', like)
    .execute();
  const used = [
    ...deployments.flatMap((d) => JSON.parse(d.datasets ?? '[]') as PinnedDataset[]),
    ...nodes.flatMap((n) =>
      (JSON.parse(n.cached) as CachedDataset[]).filter((cached) => cached.pinned === true),
    ),
  ];
  return new Set(
    used.flatMap(({ dataset_id, version }) =>
      dataset_id === id && version !== null ? [version] : [],
    ),
  );
}

/** Returns the digests of all tree objects of the existing versions. */
async function reachable(db: Db, id: string): Promise<Set<string>> {
  const versions = await db
    .selectFrom('dataset_versions')
    .select('manifest_digest')
    .where('dataset_id', '=', id)
    .execute();
  const marked = new Set(versions.map((row) => row.manifest_digest));
  const open = [...marked];
  let turn = performance.now();
  while (open.length > 0) {
    const objects = await readTrees(db, id, open.splice(-OBJECTS_AT_ONCE));
    for (const text of objects.values()) {
      for (const entry of decodeTree(text)) {
        if ((entry.kind !== 'folder' && entry.kind !== 'chunk') || marked.has(entry.digest))
          continue;
        marked.add(entry.digest);
        open.push(entry.digest);
      }
      if (performance.now() - turn < TURN_MS) continue;
      await nextTurn();
      turn = performance.now();
    }
  }
  return marked;
}
