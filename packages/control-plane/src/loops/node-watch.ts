/**
 * Announces nodes that went online or offline. Sets the health of deployments to `unknown` when
 * their node has not reported within the offline limit. Their routes stay.
 */
import { isOnline } from '../domain/nodes/placement.ts';
import type { Span, DeploymentStore } from '../domain/deployments/deployment-store.ts';
import type { Limits } from '../domain/deployments/facts.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type { UptimeClock } from '../domain/platform/uptime.ts';
import type { Driver } from '../flow/driver.ts';

export type Deps = {
  nodes: Pick<NodeStore, 'all' | 'announce'>;
  deployments: Pick<DeploymentStore, 'onSilentNodes'>;
  driver: Pick<Driver, 'advance'>;
  changes: Pick<Changes, 'notify'>;
  limits: Limits;
  /** Uptime clock, used for every deadline. */
  uptime: Pick<UptimeClock, 'now'>;
  now: () => number;
};

export const nodeWatch =
  ({ nodes, deployments, driver, changes, limits, now, uptime }: Deps) =>
  async (signal: AbortSignal): Promise<void> => {
    // Restart the limit for each node after a downtime: nodes could not report while no control
    // plane ran.
    const { at, since } = await uptime.now();
    const servedLongEnough = at - since >= limits.offlineMs;
    const states = new Map(
      (await nodes.all()).map(
        (node) => [node.id, isOnline(node, now(), limits) ? 'online' : 'offline'] as const,
      ),
    );
    if (!servedLongEnough)
      for (const [id, state] of states) if (state === 'offline') states.delete(id);
    if ((await nodes.announce(states)) > 0) changes.notify('events');
    if (!servedLongEnough) return;
    // Nodes' reports have times of the uptime clock, but the time at which a deployment went live
    // is of the wall clock.
    const within = (time: number): Span => ({
      before: time - limits.offlineMs,
      after: time + limits.offlineMs,
    });
    for (const id of await deployments.onSilentNodes(within(now()), within(at))) {
      if (signal.aborted) return;
      await driver.advance(id, { type: 'node_silent' });
    }
  };
