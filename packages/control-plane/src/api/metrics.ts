/** Prometheus metrics, in a registry of their own: several servers may live in one process (tests). */
import { DATASET_STATES } from '@berth/wire/dataset';
import { DEPLOYMENT_STATES } from '@berth/wire/vocabulary';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { ApiDeps } from './deps.ts';
import type { Holds } from './holds.ts';
import { NODE_NEWS, type NodeNewsDesk } from './node-news.ts';

export type Metrics = {
  observe(route: string, method: string, status: number, seconds: number): void;
  render(): Promise<{ type: string; text: string }>;
};

type Reading = { labels: Record<string, string>; value: number };
type GaugeRow = { name: string; help: string; labels: string[]; read: () => Reading[] | Promise<Reading[]> };

export function createMetrics(
  deps: Pick<ApiDeps, 'loops' | 'stores' | 'source' | 'settings'> & { news: NodeNewsDesk },
  holds: Holds,
): Metrics {
  const registry = new Registry();
  // The library's 10 ms would wake an idle process a hundred times a second.
  if (deps.settings.processMetrics) collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 100 });
  const requests = new Histogram({
    name: 'berth_http_request_duration_seconds',
    help: 'Time from a request to its answer, held ones with the time they were held',
    labelNames: ['route', 'method', 'status'],
    buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
    registers: [registry],
  });
  const changes = new Counter({
    name: 'berth_node_changes_total',
    help: 'What nodes did that an operator should hear of: another address or name, secrets given out and reset, machines refused',
    labelNames: ['kind'],
    registers: [registry],
  });
  for (const kind of NODE_NEWS) changes.inc({ kind }, 0);
  deps.news.on(({ kind }) => changes.inc({ kind }));
  for (const row of gauges(deps, holds)) registry.registerMetric(gaugeOf(row));
  return {
    observe: (route, method, status, seconds) => requests.observe({ route, method, status: String(status) }, seconds),
    render: async () => ({ type: registry.contentType, text: await registry.metrics() }),
  };
}

/** Read when Prometheus asks, never kept. */
const gauges = ({ loops, stores, source }: Pick<ApiDeps, 'loops' | 'stores' | 'source'>, holds: Holds): GaugeRow[] => [
  {
    name: 'berth_http_requests_held',
    help: 'Long polls and log streams that are open',
    labels: ['kind'],
    read: () => Object.entries(holds.counts()).map(([kind, value]) => ({ labels: { kind }, value })),
  },
  {
    name: 'berth_loop_last_success_timestamp_seconds',
    help: 'When a loop last ran without an error; 0: never yet',
    labels: ['loop'],
    read: () => loops().map((l) => ({ labels: { loop: l.name }, value: (l.lastOkAt ?? 0) / 1000 })),
  },
  {
    name: 'berth_loop_failing',
    help: '1 while the last run of a loop ended with an error',
    labels: ['loop'],
    read: () => loops().map((l) => ({ labels: { loop: l.name }, value: l.lastError === null ? 0 : 1 })),
  },
  {
    name: 'berth_deployments',
    help: 'Deployments by status, those of projects that were deleted left out',
    labels: ['status'],
    async read() {
      const counts = await stores.deployments.countByStatus();
      return DEPLOYMENT_STATES.map((status) => ({ labels: { status }, value: counts.get(status) ?? 0 }));
    },
  },
  {
    name: 'berth_datasets',
    help: 'Datasets by status, as their last scan left them',
    labels: ['status'],
    async read() {
      const all = await stores.datasets.overview();
      return DATASET_STATES.map((status) => ({ labels: { status }, value: all.filter((d) => d.status === status).length }));
    },
  },
  {
    name: 'berth_dataset_last_scan_timestamp_seconds',
    help: 'When a dataset was last scanned, whatever came of it; 0: never yet',
    labels: ['dataset'],
    async read() {
      const all = await stores.datasets.overview();
      return all.map((d) => ({ labels: { dataset: d.name }, value: (d.last_scanned_at ?? 0) / 1000 }));
    },
  },
  {
    name: 'berth_projects_left_out_of_routing',
    help: 'Projects whose route cannot be published',
    labels: [],
    read: () => [{ labels: {}, value: source.problems().length }],
  },
];

const gaugeOf = ({ name, help, labels, read }: GaugeRow): Gauge =>
  new Gauge({
    name,
    help,
    labelNames: labels,
    registers: [],
    async collect() {
      this.reset();
      for (const { labels, value } of await read()) this.set(labels, value);
    },
  });
