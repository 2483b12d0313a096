/**
 * How many deployments there are in each state. Those that are not at an end are few and counted each time. Those at an end are as many as
 * the platform ever had: they are counted page by page, with a turn for others between, and again when that is ten minutes ago.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type DeploymentState, TERMINAL_STATES } from '@berth/wire/vocabulary';
import type { Db } from './database.ts';
import { LIVE_STATES } from './states.ts';

const A_PAGE = 2_000;
const RECOUNT_MS = 10 * 60_000;

export function createStatusCounts(db: Db): () => Promise<Map<DeploymentState, number>> {
  let ended: Map<DeploymentState, number> | null = null;
  let counting: Promise<Map<DeploymentState, number>> | null = null;
  let countedAt = 0;

  async function count(): Promise<Map<DeploymentState, number>> {
    const counts = new Map<DeploymentState, number>();
    for (const status of TERMINAL_STATES) counts.set(status, await countOf(db, status));
    ended = counts;
    countedAt = performance.now();
    return counts;
  }

  return async () => {
    if (ended === null || performance.now() - countedAt > RECOUNT_MS) counting ??= count().finally(() => (counting = null));
    // The last count, while a new one is made.
    const known = ended ?? (await counting) ?? new Map<DeploymentState, number>();
    if (ended !== null) counting?.catch(() => undefined);
    const live = await db
      .selectFrom('deployments')
      .select((eb) => ['status', eb.fn.countAll<number>().as('count')])
      .where('status', 'in', [...LIVE_STATES])
      .groupBy('status')
      .execute();
    return new Map([...known, ...live.map((row) => [row.status, row.count] as const)]);
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
