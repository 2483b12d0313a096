/**
 * Removes the containers of draining instances when the proxy serves a configuration without them,
 * so that no new request reaches a container that stops. If the proxy does not answer for
 * ROUTE_TIMEOUT, the container is removed anyway.
 */
import type { Logger } from '@berth/kit/log';
import type { LoopRun } from '@berth/kit/loop';
import { each } from './each.ts';
import type { InstanceStore } from '../domain/deployments/instance-store.ts';
import type { Limits } from '../domain/deployments/facts.ts';
import type { ConfigSource, ProxyProbe } from '../domain/routes/configuration.ts';
import type { Driver } from '../flow/driver.ts';
import { isSettleTimeOver } from './route-confirmer.ts';

export type Deps = {
  instances: Pick<InstanceStore, 'draining'>;
  driver: Pick<Driver, 'advance'>;
  source: Pick<ConfigSource, 'current' | 'refresh' | 'servedAt'>;
  /** Null without PROXY_PROBE_URLS (loops/route-confirmer.ts). */
  probe: ProxyProbe | null;
  settleMs: number;
  limits: Pick<Limits, 'routeMs'>;
  /** Monotonic clock in ms. */
  monotonic: () => number;
  log: Logger;
};

export function instanceDrains({
  instances,
  driver,
  source,
  probe,
  settleMs,
  limits,
  monotonic,
  log,
}: Deps): LoopRun {
  async function isServed(signal: AbortSignal): Promise<boolean> {
    // Refresh after the rows were read, so that the configuration is not older than they are.
    await source.refresh();
    return probe === null
      ? isSettleTimeOver(source.servedAt(), settleMs, monotonic())
      : probe(source.current().hash, signal);
  }
  /** When this process saw each one first. The machine's clock can be set back by hours. */
  let seenAt = new Map<string, number>();

  return async (signal) => {
    const draining = await instances.draining();
    seenAt = new Map(draining.map(({ id }) => [id, seenAt.get(id) ?? monotonic()]));
    if (draining.length === 0) return undefined;
    const isLive = await isServed(signal);
    const unserved = draining.filter(
      ({ id }) => isLive || monotonic() - (seenAt.get(id) ?? 0) >= limits.routeMs,
    );
    return each(unserved, signal, {
      step: ({ id, deployment_id }) =>
        driver.advance(deployment_id, { type: 'instance_left', instance_id: id }),
      failed: (err, { deployment_id }) =>
        log.error({ err, deployment_id }, 'could not end an instance; will retry'),
    });
  };
}
