/**
 * Sends events about silent nodes to the running deployments that have an instance there:
 * `node_lost` for a lost node (domain/nodes/failover.ts), and `node_replaced` for a node whose
 * address another machine has now (domain/nodes/taken-address.ts). The flow decides what follows.
 */
import type { Logger } from '@berth/kit/log';
import { each } from './each.ts';
import type { InstanceStore } from '../domain/deployments/instance-store.ts';
import type { FailoverWatch } from '../domain/nodes/failover-watch.ts';
import type { SilentNode } from '../domain/nodes/failover.ts';
import type { Driver } from '../flow/driver.ts';
import type { FlowEvent } from '../flow/events.ts';

export type Deps = {
  failover: Pick<FailoverWatch, 'silent' | 'taken'>;
  instances: Pick<InstanceStore, 'unmoved' | 'routedTo'>;
  driver: Pick<Driver, 'advance'>;
  log: Logger;
  /** Monotonic clock in ms. */
  monotonic: () => number;
};

type Sent = { deployment_id: string; event: Extract<FlowEvent, { node_id: string }> };

/**
 * Pause in ms before the loop sends the same event again. An instance that waits for its node stays
 * in the list, and a change of `on_node_lost` can let it move.
 */
const AGAIN_MS = 10_000;

/**
 * The same for a node whose address another machine has. The flow decides only after that machine
 * has listed its containers, and until then requests reach it.
 */
const REPLACED_AGAIN_MS = 2_000;

/** Age in ms up to which a round uses the silent nodes that it read at its begin. */
const FRESH_MS = 500;

export const failover = ({ failover: watch, instances, driver, log, monotonic }: Deps) => {
  /** When the event was sent, by event, deployment and node. */
  const sentAt = new Map<string, number>();
  /** Hostnames of the nodes that the brake holds, separated by blanks. */
  let held = '';

  /** Requests must not reach another machine, so these events are the first ones. */
  async function eventsOf(silent: readonly SilentNode[]): Promise<Map<string, Sent>> {
    const taken = [...watch.taken().keys()];
    const routed = taken.length === 0 ? [] : await instances.routedTo(taken);
    const lost = silent.filter(({ isLost }) => isLost).map(({ id }) => id);
    const unmoved =
      lost.length === 0 ? [] : (await instances.unmoved(lost)).filter(({ is_lost }) => !is_lost);
    const silentIds = silent.map(({ id }) => id);
    const all: Sent[] = [
      ...routed.map(({ deployment_id, node_id }) => ({
        deployment_id,
        event: { type: 'node_replaced' as const, node_id },
      })),
      ...unmoved.map(({ deployment_id, node_id }) => ({
        deployment_id,
        event: { type: 'node_lost' as const, node_id, silent: silentIds },
      })),
    ];
    return new Map(
      all.map((one) => [`${one.event.type} ${one.deployment_id} ${one.event.node_id}`, one]),
    );
  }

  const isStillLost = async (nodeId: string): Promise<boolean> =>
    (await watch.silent()).some(({ id, isLost }) => id === nodeId && isLost);

  return async (signal: AbortSignal): Promise<string | undefined> => {
    const readAt = monotonic();
    const silent = await watch.silent();
    held = noteBrake(silent, held, log);
    const events = await eventsOf(silent);
    for (const key of sentAt.keys()) if (!events.has(key)) sentAt.delete(key);
    const due = [...events].filter(([key, { event }]) => {
      const againMs = event.type === 'node_replaced' ? REPLACED_AGAIN_MS : AGAIN_MS;
      return monotonic() - (sentAt.get(key) ?? Number.NEGATIVE_INFINITY) >= againMs;
    });
    return each(due, signal, {
      async step([key, { deployment_id, event }]) {
        // While the database was slow, the node can have returned, or most others became silent.
        const isOld = monotonic() - readAt > FRESH_MS;
        if (isOld && event.type === 'node_lost' && !(await isStillLost(event.node_id))) return;
        sentAt.set(key, monotonic());
        await driver.advance(deployment_id, event);
      },
      failed(err, [key, { deployment_id, event }]) {
        sentAt.delete(key);
        log.error({ err, deployment_id, node_id: event.node_id }, 'failover failed; will retry');
      },
    });
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
