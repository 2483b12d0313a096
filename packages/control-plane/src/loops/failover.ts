/**
 * Sends `node_lost` to each running deployment with an instance on a lost node
 * (domain/nodes/failover.ts). The flow decides which instances start elsewhere.
 */
import type { Logger } from '@berth/kit/log';
import type { InstanceStore } from '../domain/deployments/instance-store.ts';
import type { FailoverWatch } from '../domain/nodes/failover-watch.ts';
import type { SilentNode } from '../domain/nodes/failover.ts';
import type { Driver } from '../flow/driver.ts';

export type Deps = {
  failover: Pick<FailoverWatch, 'silent'>;
  instances: Pick<InstanceStore, 'unmoved'>;
  driver: Pick<Driver, 'advance'>;
  log: Logger;
  /** Monotonic clock in ms. */
  monotonic: () => number;
};

/**
 * Pause in ms before the loop sends the same event again. An instance that waits for its node stays
 * in the list, and a change of `on_node_lost` can let it move.
 */
const AGAIN_MS = 10_000;

export const failover = ({ failover: watch, instances, driver, log, monotonic }: Deps) => {
  /** When the event was sent, by deployment and node. */
  const sentAt = new Map<string, number>();
  /** Hostnames of the nodes that the brake holds, separated by blanks. */
  let held = '';

  return async (signal: AbortSignal): Promise<void> => {
    const silent = await watch.silent();
    held = noteBrake(silent, held, log);
    const lost = silent.filter(({ isLost }) => isLost).map(({ id }) => id);
    const unmoved =
      lost.length === 0 ? [] : (await instances.unmoved(lost)).filter(({ is_lost }) => !is_lost);
    const events = new Map(unmoved.map((one) => [`${one.deployment_id} ${one.node_id}`, one]));
    for (const key of sentAt.keys()) if (!events.has(key)) sentAt.delete(key);
    const silentIds = silent.map(({ id }) => id);
    for (const [key, { deployment_id, node_id }] of events) {
      if (signal.aborted) return;
      if (monotonic() - (sentAt.get(key) ?? Number.NEGATIVE_INFINITY) < AGAIN_MS) continue;
      sentAt.set(key, monotonic());
      await driver
        .advance(deployment_id, { type: 'node_lost', node_id, silent: silentIds })
        .catch((error: unknown) => {
          sentAt.delete(key);
          log.error({ err: error, deployment_id, node_id }, 'failover failed; will retry');
        });
    }
  };
};

function noteBrake(silent: readonly SilentNode[], before: string, log: Logger): string {
  const nodes = silent.filter(({ brake }) => brake !== null).map(({ hostname }) => hostname);
  const held = nodes.join(' ');
  if (held !== before && held !== '')
    log.warn({ nodes }, 'most nodes are silent, so nothing moves (berth failover NODE --now)');
  if (held === '' && before !== '') log.info('most nodes are heard again; failover is active');
  return held;
}
