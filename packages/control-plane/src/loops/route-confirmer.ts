/**
 * Finds out when the proxy has taken over a published route. With PROXY_PROBE_URLS: the marker answers everywhere. Without:
 * the present configuration was fetched, and the settle time has passed since.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { failPoint } from '@berth/kit/fail-point';
import type { LoopDeps } from './deps.ts';

const BETWEEN_PROBES_MS = 15;
const ONE_RUN_MS = 2_000;

export const routeConfirmer =
  ({ stores, driver, source, probe, settleMs, monotonic }: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    const until = performance.now() + ONE_RUN_MS;
    // Within one run it asks again and again while something waits; then the loop's own period takes over.
    while (!signal.aborted && performance.now() < until) {
      const waiting = await stores.deployments.awaitingRoute();
      if (waiting.length === 0) return;
      const config = source.current();
      // With the address that this very configuration has: the route may be moved while the proxy is asked.
      const there = waiting.flatMap(({ id }) => {
        const address = config.deployments.get(id);
        return address === undefined ? [] : [{ id, ...address }];
      });
      const live =
        there.length > 0 && (probe === null ? settled(source.servedAt(), settleMs, monotonic()) : await probe(config.hash, signal));
      if (live) await failPoint('route.confirmed');
      if (live) for (const { id, ...address } of there) await driver.advance(id, { type: 'route_confirmed', ...address });
      // Also then: one whose container moved meanwhile still waits.
      await sleep(BETWEEN_PROBES_MS, undefined, { signal }).catch((error: unknown) => signal.aborted || Promise.reject(error));
    }
  };

const settled = (servedAt: number | null, settleMs: number, now: number): boolean => servedAt !== null && now - servedAt >= settleMs;
