/** A node that has not reported its containers for longer than the offline limit: what runs there is `unknown` from then on, and stays routed. */
import type { LoopDeps } from './deps.ts';

export const nodeWatch =
  ({ stores, driver, limits, now, uptime }: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    // Nodes could not be heard of while no control plane served: each has the whole time anew.
    const { at, since } = await uptime.now();
    if (at - since < limits.offlineMs) return;
    for (const id of await stores.deployments.onSilentNodes({ before: now() - limits.offlineMs, after: now() + limits.offlineMs })) {
      if (signal.aborted) return;
      await driver.advance(id, { type: 'node_silent' });
    }
  };
