/** Prometheus metrics, in a registry of their own: several servers may live in one process (tests). */
import { collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { DEPLOYMENT_STATES } from '@berth/wire/vocabulary';
import type { ApiDeps } from './deps.ts';
import type { Holds } from './holds.ts';

export type Metrics = {
  observe(route: string, method: string, status: number, seconds: number): void;
  render(): Promise<{ type: string; text: string }>;
};

export function createMetrics(deps: Pick<ApiDeps, 'loops' | 'stores' | 'source' | 'settings'>, holds: Holds): Metrics {
  const registry = new Registry();
  const registers = [registry];
  if (deps.settings.processMetrics) collectDefaultMetrics({ register: registry });
  const requests = new Histogram({
    name: 'berth_http_request_duration_seconds',
    help: 'Time from a request to its answer, held ones with the time they were held',
    labelNames: ['route', 'method', 'status'],
    buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
    registers,
  });
  new Gauge({
    name: 'berth_http_requests_held',
    help: 'Long polls and log streams that are open',
    labelNames: ['kind'],
    registers,
    collect() {
      for (const [kind, count] of Object.entries(holds.counts())) this.set({ kind }, count);
    },
  });
  new Gauge({
    name: 'berth_loop_last_success_timestamp_seconds',
    help: 'When a loop last ran without an error; 0: never yet',
    labelNames: ['loop'],
    registers,
    collect() {
      for (const loop of deps.loops()) this.set({ loop: loop.name }, (loop.lastOkAt ?? 0) / 1000);
    },
  });
  new Gauge({
    name: 'berth_loop_failing',
    help: '1 while the last run of a loop ended with an error',
    labelNames: ['loop'],
    registers,
    collect() {
      for (const loop of deps.loops()) this.set({ loop: loop.name }, loop.lastError === null ? 0 : 1);
    },
  });
  new Gauge({
    name: 'berth_deployments_under_way',
    help: 'Deployments that are not settled yet, by status',
    labelNames: ['status'],
    registers,
    async collect() {
      const open = await deps.stores.deployments.unsettled();
      for (const status of DEPLOYMENT_STATES.slice(0, 4)) this.set({ status }, open.filter((d) => d.status === status).length);
    },
  });
  new Gauge({
    name: 'berth_projects_left_out_of_routing',
    help: 'Projects whose route cannot be published',
    registers,
    collect() {
      this.set(deps.source.problems().length);
    },
  });
  return {
    observe: (route, method, status, seconds) => requests.observe({ route, method, status: String(status) }, seconds),
    render: async () => ({ type: registry.contentType, text: await registry.metrics() }),
  };
}
