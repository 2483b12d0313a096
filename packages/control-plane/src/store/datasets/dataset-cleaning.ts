/**
 * Removes history and tree objects in small batches. There can be millions, and one transaction for
 * all would block the platform. It removes only invisible rows. A batch that was skipped or lost in
 * a crash is removed by a later run.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Tx } from '../engine/tables.ts';
import type { Connection } from '../engine/connection.ts';

const BATCH = 200;

/**
 * Checks in each transaction whether the removal is still valid. If it returns false, the removal
 * stops.
 */
export type Guard = (tx: Tx) => Promise<boolean>;

/**
 * Returns all versions that have rows of history, including versions that are not visible yet, or
 * not visible any more.
 */
export async function historyVersions(db: Connection, datasetId: string): Promise<number[]> {
  const versions: number[] = [];
  for (;;) {
    // Finds each version with one index lookup; a `distinct` would read every row.
    const next = await db.kysely
      .selectFrom('dataset_history')
      .select('version')
      .where('dataset_id', '=', datasetId)
      .where('version', '>', versions.at(-1) ?? 0)
      .orderBy('version')
      .limit(1)
      .executeTakeFirst();
    if (next === undefined) return versions;
    versions.push(next.version);
  }
}

/** `rest`: called after each batch to yield. */
export async function deleteHistory(
  db: Connection,
  datasetId: string,
  version: number,
  guard: Guard,
  rest: (workedMs: number) => Promise<void> = () => nextTurn(),
): Promise<void> {
  for (;;) {
    const startedAt = performance.now();
    const beyond = await db.kysely
      .selectFrom('dataset_history')
      .select('path')
      .where('dataset_id', '=', datasetId)
      .where('version', '=', version)
      .orderBy('path')
      .offset(BATCH)
      .limit(1)
      .executeTakeFirst();
    const done = await db.writeUnsynced(async (tx) => {
      if (!(await guard(tx))) return false;
      await tx
        .deleteFrom('dataset_history')
        .where('dataset_id', '=', datasetId)
        .where('version', '=', version)
        .$if(beyond !== undefined, (q) => q.where('path', '<', beyond?.path ?? ''))
        .execute();
      return true;
    });
    if (!done || beyond === undefined) return;
    await rest(performance.now() - startedAt);
  }
}

/** Deletes the tree objects for which `isGarbage` returns true. */
export async function deleteTrees(
  db: Connection,
  datasetId: string,
  isGarbage: (digest: string) => boolean,
  guard: Guard,
): Promise<void> {
  for (let after = ''; ; ) {
    const page = await db.kysely
      .selectFrom('dataset_trees')
      .select('digest')
      .where('dataset_id', '=', datasetId)
      .where('digest', '>', after)
      .orderBy('digest')
      .limit(BATCH)
      .execute();
    after = page.at(-1)?.digest ?? '';
    const garbage = page.map((row) => row.digest).filter(isGarbage);
    const done = await db.writeUnsynced(async (tx) => {
      if (!(await guard(tx))) return false;
      if (garbage.length > 0)
        await tx
          .deleteFrom('dataset_trees')
          .where('dataset_id', '=', datasetId)
          .where('digest', 'in', garbage)
          .execute();
      return true;
    });
    if (!done || page.length < BATCH) return;
    await nextTurn();
  }
}
