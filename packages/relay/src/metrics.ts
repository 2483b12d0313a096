/** GET /metrics of the relay, for Prometheus. */
import { collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import manifest from '../package.json' with { type: 'json' };
import type { ConfigStore } from './config-store.ts';
import type { Upstream } from './upstream.ts';

export type Metrics = {
  /** Counts a request of a proxy. Call the returned function when the request has ended. */
  asked(): () => void;
  render(): Promise<{ type: string; text: string }>;
};
type Options = { now?: () => number; processMetrics?: boolean };

/**
 * Gauges of prom-client whose names look like counters (`_total`). prom-client also exports them by
 * type, under a correct name.
 */
const MISNAMED = [
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
];

export function createMetrics(
  store: Pick<ConfigStore, 'current'>,
  upstream: Pick<Upstream, 'problem'>,
  { now = Date.now, processMetrics = false }: Options = {},
): Metrics {
  const registry = new Registry();
  // The default precision of 10 ms would wake an idle process 100 times per second.
  if (processMetrics)
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 100 });
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  const gauge = (name: string, help: string, read: () => number): void =>
    registry.registerMetric(
      new Gauge({
        name,
        help,
        registers: [],
        collect() {
          this.set(read());
        },
      }),
    );
  let open = 0;
  let askedAt = performance.now();

  new Gauge({
    name: 'berth_relay_build_info',
    help: 'Always 1; the labels are the versions of Berth and Node.js',
    labelNames: ['version', 'node'],
    registers: [registry],
  }).set({ version: manifest.version, node: process.versions.node }, 1);
  gauge(
    'berth_clock_seconds',
    'Clock of this machine, in seconds since 1970, at the scrape',
    () => now() / 1000,
  );
  gauge(
    'berth_relay_config_age_seconds',
    'Seconds since the control plane last confirmed the configuration; -1 if there is none',
    () => {
      const current = store.current();
      return current === null ? -1 : Math.max(0, now() - current.at) / 1000;
    },
  );
  gauge(
    'berth_relay_control_plane_ok',
    '1 if the last request to the control plane succeeded, else 0',
    () => (upstream.problem() === null ? 1 : 0),
  );
  gauge(
    'berth_relay_proxy_fetch_age_seconds',
    'Seconds since a reverse proxy last asked for the configuration, or since the start; 0 ' +
      'while a request is held',
    () => (open > 0 ? 0 : (performance.now() - askedAt) / 1000),
  );
  return {
    asked() {
      open++;
      return () => {
        open--;
        askedAt = performance.now();
      };
    },
    render: async () => ({ type: registry.contentType, text: await registry.metrics() }),
  };
}
