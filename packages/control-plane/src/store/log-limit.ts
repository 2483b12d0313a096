/**
 * Keeps the total size of all logs below KEEP_LOG_BYTES: those of deployments, and the output of
 * runs. Removes first the log of the oldest finished deployment or run of the project with the
 * largest logs of this kind, and last the logs of each project's newest deployments and runs. Live
 * deployments and open runs keep their logs.
 */
import { isTerminal } from '@berth/wire/vocabulary';
import type { ExpressionBuilder } from 'kysely';
import type { Database } from './engine/database.ts';
import type { Tables } from './engine/tables.ts';
import { removeLog } from './log-removal.ts';
import { outputByProject, removeOldestOutput } from './run-output-limit.ts';
import { linesSize } from './line-bytes.ts';
import type { FirstProtected } from './first-protected.ts';

const HEADS_PER_STEP = 500;
/** Page size; larger than the number of a project's live deployments. */
const PAGE_SIZE = 5;
/** Prefix of the keys of projects whose runs are meant. Ids of projects do not contain it. */
const RUNS = 'runs:';
const MOST = Number.MAX_SAFE_INTEGER;

type Head = { bytes: number; last_seq: number; left_out: number; exit_bytes: number };
const weightOf = (head: Head): number => linesSize(head) + head.exit_bytes;

/** Size of the last lines of a deployment's containers, as a column of a query on log_heads. */
const exitBytes = (eb: ExpressionBuilder<Tables, 'log_heads'>) =>
  eb.fn
    .coalesce(
      eb
        .selectFrom('container_exits')
        .select((e) => e.fn.sum<number>('container_exits.bytes').as('sum'))
        .whereRef('container_exits.deployment_id', '=', 'log_heads.deployment_id'),
      eb.lit(0),
    )
    .as('exit_bytes');

/** Returns the number of logs that it removed. */
export async function* limitLogs(
  db: Database,
  {
    limit,
    firstProtected,
    now,
  }: { limit: number; firstProtected: FirstProtected; now: () => number },
): AsyncGenerator<void, number, void> {
  const sizes = yield* sizesByProject(db, now);
  for (const [projectId, size] of yield* outputByProject(db)) sizes.set(RUNS + projectId, size);
  let total = 0;
  for (const size of sizes.values()) total += size;
  let removed = 0;
  for (const alsoNewest of [false, true]) {
    const giving = new Map(sizes);
    const from = new Map<string, number>();
    while (total > limit) {
      const key = largest(giving);
      if (key === null) break;
      const freed = key.startsWith(RUNS)
        ? yield* removeOldestOutput(db, key.slice(RUNS.length), alsoNewest, now())
        : yield* removeOldestLog(
            db,
            { projectId: key, before: alsoNewest ? MOST : await firstProtected(key), from },
            now(),
          );
      if (freed === null) {
        giving.delete(key);
        continue;
      }
      removed++;
      total -= freed;
      const sizeAfter = (giving.get(key) ?? 0) - freed;
      giving.set(key, sizeAfter);
      sizes.set(key, sizeAfter);
    }
  }
  return removed;
}

/**
 * Removes the log of the oldest deployment of the project that may give its log. Returns its size, or
 * null if there is none. `from`: the generation of each project up to which nothing is left.
 */
async function* removeOldestLog(
  db: Database,
  { projectId, before, from }: { projectId: string; before: number; from: Map<string, number> },
  now: number,
): AsyncGenerator<void, number | null, void> {
  const oldest = await oldestLog(db, projectId, from.get(projectId) ?? 0, before);
  if (oldest === undefined) return null;
  yield* removeLog(db, oldest.id, now);
  from.set(projectId, oldest.generation);
  return weightOf(oldest);
}

/**
 * Returns the size of the logs of each project. Also finishes removals that an earlier pass began.
 */
async function* sizesByProject(
  db: Database,
  now: () => number,
): AsyncGenerator<void, Map<string, number>, void> {
  const sizes = new Map<string, number>();
  for (let after = ''; ; ) {
    const page = await db.kysely
      .selectFrom('log_heads')
      .innerJoin('deployments', 'deployments.id', 'log_heads.deployment_id')
      .select((eb) => [
        'log_heads.deployment_id',
        'log_heads.bytes',
        'last_seq',
        'left_out',
        'project_id',
        'log_removed_at',
        exitBytes(eb),
      ])
      .where('log_heads.deployment_id', '>', after)
      .orderBy('log_heads.deployment_id')
      .limit(HEADS_PER_STEP)
      .execute();
    for (const head of page) {
      if (head.log_removed_at !== null) yield* removeLog(db, head.deployment_id, now());
      else sizes.set(head.project_id, (sizes.get(head.project_id) ?? 0) + weightOf(head));
    }
    after = page.at(-1)?.deployment_id ?? after;
    yield;
    if (page.length < HEADS_PER_STEP) return sizes;
  }
}

function largest(sizes: ReadonlyMap<string, number>): string | null {
  let largestId: string | null = null;
  for (const [id, size] of sizes)
    if (largestId === null || size > (sizes.get(largestId) ?? 0)) largestId = id;
  return largestId;
}

/**
 * Skips live deployments in code: with a condition in the statement, SQLite would use the index of
 * states and sort.
 */
async function oldestLog(db: Database, projectId: string, after: number, before: number) {
  for (let from = after; ; ) {
    const page = await db.kysely
      .selectFrom('deployments')
      .innerJoin('log_heads', 'log_heads.deployment_id', 'deployments.id')
      .select((eb) => [
        'deployments.id',
        'generation',
        'status',
        'log_heads.bytes',
        'last_seq',
        'left_out',
        exitBytes(eb),
      ])
      .where('project_id', '=', projectId)
      .where('log_removed_at', 'is', null)
      .where('generation', '>', from)
      .where('generation', '<', before)
      .orderBy('generation')
      .limit(PAGE_SIZE)
      .execute();
    const endedRow = page.find((row) => isTerminal(row.status));
    if (endedRow !== undefined || page.length < PAGE_SIZE) return endedRow;
    from = page.at(-1)?.generation ?? before;
  }
}
