/**
 * Prometheus metrics. The hot path counts in plain variables, which are read when the metrics are
 * requested.
 */
import { type Connections, refusedConnections } from '@berth/kit/connections';
import type { LoginSeen } from '@berth/wire/gateway';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import manifest from '../package.json' with { type: 'json' };
import { REFUSALS, type RefusalCode } from './login/refusal.ts';
import type { PolicyFollower } from './policy.ts';
import type { Verify } from './verify.ts';

export type Metrics = {
  registry: Registry;
  render(): Promise<{ type: string; text: string }>;
  /** Counts a finished login. */
  login(seen: Pick<LoginSeen, 'outcome' | 'provider' | 'reason'>): void;
  /** Adds the connections of the server. Call it once. */
  watch(connections: Connections): void;
  /** Counts a page that refuses a sign-in. */
  refused(code: RefusalCode): void;
  /** Records an answer to any request except /verify. */
  answered(route: string, status: number, seconds: number): void;
};

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
  verify: Verify,
  policy: PolicyFollower,
  processMetrics: boolean,
): Metrics {
  const registry = new Registry();
  // The default precision of 10 ms would wake an idle process 100 times per second.
  if (processMetrics)
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 100 });
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  new Gauge({
    name: 'berth_gateway_build_info',
    help: 'Always 1; its labels say what runs',
    labelNames: ['version', 'node'],
    // Report the gateway once, not once per worker.
    aggregator: 'first',
    registers: [registry],
  }).set({ version: manifest.version, node: process.versions.node }, 1);
  registry.registerMetric(
    new Counter({
      name: 'berth_verify_total',
      help: 'Answers of /verify by outcome; `kept` counts answers from the cache',
      labelNames: ['outcome'],
      registers: [],
      collect() {
        this.reset();
        for (const [outcome, value] of Object.entries(verify.counts()))
          this.inc({ outcome }, value);
      },
    }),
  );
  const gauge = (name: string, help: string, aggregator: 'max' | 'sum', read: () => number): void =>
    registry.registerMetric(
      new Gauge({
        name,
        help,
        aggregator,
        registers: [],
        collect() {
          this.set(read());
        },
      }),
    );
  gauge(
    'berth_policy_age_seconds',
    'Seconds since the control plane last confirmed the policy; -1 if there was never a policy',
    'max',
    () => {
      const ms = policy.ageMs();
      return ms === null ? -1 : ms / 1000;
    },
  );
  gauge(
    'berth_revocations_untold',
    'Revoked sessions that the control plane does not know yet',
    'sum',
    () => policy.unsentRevocations(),
  );
  gauge(
    'berth_clock_seconds',
    'Clock of this machine, in seconds since 1970, at the scrape',
    'max',
    () => Date.now() / 1000,
  );
  const refusals = new Counter({
    name: 'berth_refusals_total',
    help:
      'Pages that refused a sign-in or could not go on with it, by code; login pages, the device ' +
      'flow and sign-outs',
    labelNames: ['code'],
    registers: [registry],
  });
  for (const code of Object.keys(REFUSALS)) refusals.inc({ code }, 0);
  const verifies = new Histogram({
    name: 'berth_verify_duration_seconds',
    help: 'Duration of /verify; without one-time codes, which need the control plane',
    buckets: [0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1],
    registers: [registry],
  });
  verify.onAnswer((seconds) => verifies.observe(seconds));
  const logins = new Counter({
    name: 'berth_logins_total',
    help: 'Finished logins by outcome, provider and reason of a refusal',
    labelNames: ['outcome', 'provider', 'reason'],
    registers: [registry],
  });
  const requests = new Histogram({
    name: 'berth_gateway_http_request_duration_seconds',
    help: 'Duration of requests to login, device flow and logout; /verify has its own histogram',
    labelNames: ['route', 'status'],
    buckets: [0.002, 0.01, 0.05, 0.25, 1, 2.5, 5, 10],
    registers: [registry],
  });
  return {
    login: ({ outcome, provider, reason }) =>
      logins.inc({ outcome, provider, reason: reason ?? '' }),
    watch(connections) {
      gauge('berth_http_connections', 'Open connections', 'sum', connections.open);
      gauge(
        'berth_http_connections_limit',
        'MAX_CONNECTIONS, or less if the limit of open files is lower',
        'sum',
        () => connections.limit,
      );
      registry.registerMetric(new Counter(refusedConnections(connections)));
    },
    refused: (code) => refusals.inc({ code }),
    answered: (route, status, seconds) =>
      requests.observe({ route, status: String(status) }, seconds),
    registry,
    render: async () => ({ type: registry.contentType, text: await registry.metrics() }),
  };
}
