/**
 * Counts deployments by state. Live deployments are few and are counted at each call. Deployments
 * in terminal states are the whole history of the platform: they are counted page by page, with a
 * yield after each page. If they fit into one page, they are counted at each call; otherwise only
 * if the last count is 10 minutes old.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type DeploymentState, TERMINAL_STATES } from '@berth/wire/vocabulary';
import type { Db } from './engine/tables.ts';
import { LIVE_STATES } from './states.ts';

const A_PAGE = 2_000;
const RECOUNT_MS = 10 * 60_000;

export function createStatusCounts(db: Db): () => Promise<Map<DeploymentState, number>> {
  let ended: Map<DeploymentState, number> | null = null;
  let counting: Promise<Map<DeploymentState, number>> | null = null;
  let countedAt = 0;
  let total = 0;

  async function count(): Promise<Map<DeploymentState, number>> {
    const counts = new Map<DeploymentState, number>();
    for (const status of TERMINAL_STATES) {
      const counted = await countOf(db, status);
      if (counted > 0) counts.set(status, counted);
    }
    ended = counts;
    countedAt = performance.now();
    total = [...counts.values()].reduce((sum, n) => sum + n, 0);
    return counts;
  }

  return async () => {
    const isQuick = ended === null || total < A_PAGE;
    if (isQuick || performance.now() - countedAt > RECOUNT_MS)
      counting ??= count().finally(() => (counting = null));
    // Returns the last result while a long count is running.
    if (!isQuick) counting?.catch(() => undefined);
    const endedCounts = (isQuick ? await counting : ended) ?? new Map<DeploymentState, number>();
    const live = await db
      .selectFrom('deployments')
      .select((eb) => ['status', eb.fn.countAll<number>().as('count')])
      .where('status', 'in', [...LIVE_STATES])
      .groupBy('status')
      .execute();
    return new Map([...endedCounts, ...live.map((row) => [row.status, row.count] as const)]);
  };
}

async function countOf(db: Db, status: DeploymentState): Promise<number> {
  let counted = 0;
  for (let after: [number, string] = [-1, '']; ; ) {
    const last = await db
      .selectFrom('deployments')
      .select(['created_at', 'id'])
      .where('status', '=', status)
      .where((eb) => eb(eb.refTuple('created_at', 'id'), '>', eb.tuple(after[0], after[1])))
      .orderBy('created_at')
      .orderBy('id')
      .offset(A_PAGE - 1)
      .limit(1)
      .executeTakeFirst();
    if (last === undefined) {
      const rest = await db
        .selectFrom('deployments')
        .select('id')
        .where('status', '=', status)
        .where((eb) => eb(eb.refTuple('created_at', 'id'), '>', eb.tuple(after[0], after[1])))
        .execute();
      return counted + rest.length;
    }
    counted += A_PAGE;
    after = [last.created_at, last.id];
    await nextTurn();
  }
}
