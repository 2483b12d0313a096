/** Gives every deployment that is not settled its tick: dispatch, deadlines, route deadline. Woken by every commit. */
import type { Driver } from '../flow/drive.ts';
import type { LoopDeps } from './deps.ts';

export const scheduler =
  ({ stores, driver, log }: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    const waiting = await stores.deployments.unsettled();
    // Built ones first: what is closer to live goes before what has just been asked for.
    const order = { deploying: 0, built: 1, pending: 2 } as Record<string, number>;
    for (const d of waiting.toSorted((a, b) => (order[a.status] ?? 3) - (order[b.status] ?? 3))) {
      if (signal.aborted) return;
      if (d.status === 'building') continue;
      await tick(driver, d.id, log);
    }
  };

/** One deployment that cannot be decided about must not hold up the others. */
async function tick(driver: Driver, id: string, log: LoopDeps['log']): Promise<void> {
  try {
    await driver.advance(id, { type: 'tick' });
  } catch (error) {
    log.error({ err: error, deployment_id: id }, 'a deployment could not be advanced');
  }
}
