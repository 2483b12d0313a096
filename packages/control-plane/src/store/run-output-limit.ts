/**
 * Removes the output of old runs for KEEP_LOG_BYTES (log-limit.ts). One line stays, and says so.
 */
import type { Database } from './engine/database.ts';
import type { Tx } from './engine/tables.ts';
import { linesSize } from './line-bytes.ts';
import { LINES_PER_STEP } from './log-removal.ts';

const HEADS_PER_STEP = 500;
/** Number of newest runs of each project whose output is removed last. */
const NEWEST = 5;

/** Returns the size of the output of the runs of each project. */
export async function* outputByProject(
  db: Database,
): AsyncGenerator<void, Map<string, number>, void> {
  const sizes = new Map<string, number>();
  for (let after = ''; ; ) {
    const page = await db.kysely
      .selectFrom('run_log_heads')
      .innerJoin('runs', 'runs.id', 'run_log_heads.run_id')
      .select(['run_id', 'bytes', 'last_seq', 'left_out', 'project_id'])
      .where('run_id', '>', after)
      .orderBy('run_id')
      .limit(HEADS_PER_STEP)
      .execute();
    for (const head of page)
      sizes.set(head.project_id, (sizes.get(head.project_id) ?? 0) + linesSize(head));
    after = page.at(-1)?.run_id ?? after;
    yield;
    if (page.length < HEADS_PER_STEP) return sizes;
  }
}

/**
 * Removes the output of the oldest ended run of the project that still has one. Returns its size, or
 * null if there is none.
 */
export async function* removeOldestOutput(
  db: Database,
  projectId: string,
  alsoNewest: boolean,
  now: number,
): AsyncGenerator<void, number | null, void> {
  const kept = alsoNewest ? 0 : NEWEST;
  const ended = await db.kysely
    .selectFrom('runs')
    .innerJoin('run_log_heads', 'run_log_heads.run_id', 'runs.id')
    .select(['runs.id', 'bytes', 'last_seq', 'left_out'])
    .where('project_id', '=', projectId)
    .where('ended_at', 'is not', null)
    // One line says that the others were removed.
    .where((eb) => eb(eb('last_seq', '-', eb.ref('left_out')), '>', 1))
    .orderBy('queue_deadline_at')
    .orderBy('runs.id')
    .limit(kept + 1)
    .execute();
  const oldest = ended.length > kept ? ended[0] : undefined;
  yield;
  if (oldest === undefined) return null;
  for (;;) {
    const done = await db.writeUnsynced((tx) => removeStep(tx, oldest, now));
    yield;
    if (done) return linesSize(oldest);
  }
}

/** Removes the newest lines first, so that an interrupted removal goes on with the rest. */
async function removeStep(
  tx: Tx,
  { id, last_seq }: { id: string; last_seq: number },
  now: number,
): Promise<boolean> {
  const last = await tx
    .selectFrom('run_log_lines')
    .select('seq')
    .where('run_id', '=', id)
    .orderBy('seq', 'desc')
    .offset(LINES_PER_STEP)
    .limit(1)
    .executeTakeFirst();
  await tx
    .deleteFrom('run_log_lines')
    .where('run_id', '=', id)
    .where('seq', '>', last?.seq ?? 0)
    .execute();
  if (last !== undefined) return false;
  const text =
    'the output of this run was removed, because all logs together exceeded KEEP_LOG_BYTES';
  const notice = { at: now, stream: 'system', step: null, text };
  const head = await tx
    .updateTable('run_log_heads')
    .set({ bytes: Buffer.byteLength(text), left_out: last_seq - 1 })
    .where('run_id', '=', id)
    .returning('run_id')
    .executeTakeFirst();
  // The run was removed meanwhile.
  if (head === undefined) return true;
  await tx
    .insertInto('run_log_lines')
    .values({ run_id: id, seq: 1, ...notice })
    .execute();
  return true;
}
