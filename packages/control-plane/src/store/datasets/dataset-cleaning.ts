/**
 * Removes history and tree objects, of which there may be millions, bit by bit: one transaction for all would stop the platform.
 * What nobody can see goes here, so nothing is lost with a step that was not taken, or not brought to the disk; it is found again.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Tx } from '../engine/tables.ts';
import type { Doors } from '../engine/doors.ts';

const BATCH = 200;

/** Asked in each transaction: whether what was found out before it still holds. Nothing more is removed when it does not. */
export type Guard = (tx: Tx) => Promise<boolean>;

/** The versions of which there are rows, also those that do not show (yet, or any more). */
export async function historyVersions(db: Doors, datasetId: string): Promise<number[]> {
  const versions: number[] = [];
  for (;;) {
    // One step in the index each: a `distinct` would read every row.
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

/** `rest` gives others their turn, after so much work (ms). */
export async function deleteHistory(
  db: Doors,
  datasetId: string,
  version: number,
  guard: Guard,
  rest: (workedMs: number) => Promise<void> = () => nextTurn(),
): Promise<void> {
  for (;;) {
    const began = performance.now();
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
    await rest(performance.now() - began);
  }
}

/** Those for which `isGarbage` says so. */
export async function deleteTrees(db: Doors, datasetId: string, isGarbage: (digest: string) => boolean, guard: Guard): Promise<void> {
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
        await tx.deleteFrom('dataset_trees').where('dataset_id', '=', datasetId).where('digest', 'in', garbage).execute();
      return true;
    });
    if (!done || page.length < BATCH) return;
    await nextTurn();
  }
}
