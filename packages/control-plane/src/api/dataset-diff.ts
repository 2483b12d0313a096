/** The difference of two versions of a dataset, from their tree objects. Equal folders are not read. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { diffTrees, type LoadTree, type TreeChange } from '@berth/wire/tree';

/** Differences that are counted and listed at most. */
const MOST_DIFFERENCES = 100_000;
/** Tree objects that one request reads at most: two versions may have a million folders that differ. */
const MOST_OBJECTS = 20_000;
/** Time of work in ms between two yields to the event loop. */
const TURN_MS = 10;

export type DiffTotals = {
  added: { files: number; bytes: number };
  modified: { files: number; bytes: number; previous_bytes: number };
  removed: { files: number; bytes: number };
  /** False: a limit ended the comparison, so there are more differences. */
  complete: boolean;
};

class TooMany extends Error {}

/**
 * Returns `limit` differences from the number `offset` on, and the totals. With `known` totals it reads only as far as the page needs.
 * Rejects with the error of `load`.
 */
export async function diffPage(
  roots: { from: string; to: string },
  load: LoadTree,
  { offset, limit, known = null }: { offset: number; limit: number; known?: DiffTotals | null },
): Promise<{ items: TreeChange[]; hasMore: boolean; totals: DiffTotals }> {
  const totals: DiffTotals = {
    added: { files: 0, bytes: 0 },
    modified: { files: 0, bytes: 0, previous_bytes: 0 },
    removed: { files: 0, bytes: 0 },
    complete: true,
  };
  const items: TreeChange[] = [];
  let objects = 0;
  let turn = performance.now();
  const breathe = async (): Promise<void> => {
    if (performance.now() - turn < TURN_MS) return;
    await nextTurn();
    turn = performance.now();
  };
  const bounded: LoadTree = async (digest) => {
    if ((objects += 1) > MOST_OBJECTS) throw new TooMany();
    await breathe();
    return load(digest);
  };
  let seen = 0;
  try {
    for await (const change of diffTrees(roots.from, roots.to, bounded)) {
      if (seen === MOST_DIFFERENCES) throw new TooMany();
      if (seen >= offset && items.length < limit) items.push(change);
      seen += 1;
      count(totals, change);
      if (known !== null && items.length === limit && seen > offset + limit) break;
      await breathe();
    }
  } catch (error) {
    if (!(error instanceof TooMany)) throw error;
    totals.complete = false;
  }
  return { items, hasMore: seen > offset + items.length, totals: known ?? totals };
}

function count(totals: DiffTotals, { change, size, previous_size }: TreeChange): void {
  totals[change].files += 1;
  if (change === 'removed') totals.removed.bytes += previous_size ?? 0;
  else totals[change].bytes += size ?? 0;
  if (change === 'modified') totals.modified.previous_bytes += previous_size ?? 0;
}
