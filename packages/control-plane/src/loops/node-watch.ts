/**
 * Announces nodes that went online or offline. Sets the health of deployments to `unknown` when
 * their node has not reported within the offline limit. Their routes stay.
 */
import { isOnline } from '../domain/nodes/placement.ts';
import type { Span } from '../domain/deployments/deployment-store.ts';
import type { LoopDeps } from './deps.ts';

export const nodeWatch =
  ({ stores, driver, changes, limits, now, uptime }: LoopDeps) =>
  async (signal: AbortSignal): Promise<void> => {
    // Nodes could not report while no control plane served, so the limit starts again for each
    // node.
    const { at, since } = await uptime.now();
    const servedLongEnough = at - since >= limits.offlineMs;
    const states = new Map(
      (await stores.nodes.all()).map(
        (node) => [node.id, isOnline(node, now(), limits) ? 'online' : 'offline'] as const,
      ),
    );
    if (!servedLongEnough)
      for (const [id, state] of states) if (state === 'offline') states.delete(id);
    if ((await stores.nodes.announce(states)) > 0) changes.notify('events');
    if (!servedLongEnough) return;
    // Reports of nodes have times of the uptime clock. The time at which a deployment went live is
    // of the wall clock.
    const within = (time: number): Span => ({
      before: time - limits.offlineMs,
      after: time + limits.offlineMs,
    });
    for (const id of await stores.deployments.onSilentNodes(within(now()), within(at))) {
      if (signal.aborted) return;
      await driver.advance(id, { type: 'node_silent' });
    }
  };
