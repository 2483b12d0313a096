/** Prometheus metrics, in a registry of their own: several servers may live in one process (tests). */
import { DATASET_STATES } from '@berth/wire/dataset';
import type { Route } from '@berth/wire/route';
import { type RouteName, ROUTES } from '@berth/wire/routes';
import { DEPLOYMENT_STATES, HEALTH_STATES, NODE_ROLES, TASK_KINDS } from '@berth/wire/vocabulary';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { QUERY_KINDS } from '../domain/stores.ts';
import type { ApiDeps } from './deps.ts';
import type { Holds } from './holds.ts';
import { NODE_NEWS, type NodeNewsDesk } from './node-news.ts';

export type Metrics = {
  observe(request: { route: string; method: string; status: number; seconds: number; held: boolean }): void;
  render(): Promise<{ type: string; text: string }>;
};

type MetricDeps = Pick<ApiDeps, 'loops' | 'stores' | 'source' | 'settings' | 'telemetry' | 'limits' | 'now'>;
type Reading = { labels: Record<string, string>; value: number };
type GaugeRow = { name: string; help: string; labels: string[]; read: () => Reading[] | Promise<Reading[]> };

/** Gauges of the library whose names say that they are counters; each is also there by type, under a right name. */
const MISNAMED = ['nodejs_active_handles_total', 'nodejs_active_requests_total', 'nodejs_active_resources_total'];
const SIGN_INS: readonly string[] = ['login', 'exchange', 'refresh'] satisfies RouteName[];
/** Bounds of series that have one label value for each node or dataset. */
const MOST_NODES = 200;
const MOST_DATASETS = 200;
/** Anybody may send any of the 35 methods that Node.js parses. */
const METHODS = new Set<string>([...Object.values<Route>(ROUTES).map(({ method }) => method), 'HEAD', 'OPTIONS']);

const TASK_SECONDS = [0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600];

export function createMetrics(deps: MetricDeps & { news: NodeNewsDesk }, holds: Holds): Metrics {
  const registry = new Registry();
  // The library's 10 ms would wake an idle process a hundred times a second.
  if (deps.settings.processMetrics) {
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 100 });
    for (const name of MISNAMED) registry.removeSingleMetric(name);
  }
  const requests = new Histogram({
    name: 'berth_http_request_duration_seconds',
    help: 'Time from a request to its answer; held ones are in berth_http_held_duration_seconds',
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
  const held = new Histogram({
    name: 'berth_http_held_duration_seconds',
    help: 'How long long polls and streams were open, until something happened, their time was over or the client left',
    labelNames: ['route'],
    buckets: [0.01, 1, 10, 30, 60, 300],
    registers: [registry],
  });
  const failed = new Counter({
    name: 'berth_sign_in_failures_total',
    help: 'Refused sign-ins, by route and status',
    labelNames: ['route', 'status'],
    registers: [registry],
  });
  const limited = new Counter({
    name: 'berth_http_requests_limited_total',
    help: 'Requests that were answered 429',
    labelNames: ['route'],
    registers: [registry],
  });
  countTelemetry(deps, registry);
  return {
    observe({ route, method, status, seconds, held: wasHeld }) {
      if (wasHeld) held.observe({ route }, seconds);
      else requests.observe({ route, method: METHODS.has(method) ? method : 'other', status: String(status) }, seconds);
      if (status === 429) limited.inc({ route });
      if (status >= 400 && status < 500 && SIGN_INS.includes(route)) failed.inc({ route, status: String(status) });
    },
    render: async () => ({ type: registry.contentType, text: await registry.metrics() }),
  };
}

/** What the flow, the loops and the database tell while they work. */
function countTelemetry({ telemetry, stores }: MetricDeps, registry: Registry): void {
  const outcomes = new Counter({
    name: 'berth_deployments_settled_total',
    help: 'Deployments that went live (`running`) or ended without, by why they failed',
    labelNames: ['outcome', 'code'],
    registers: [registry],
  });
  const tasks = new Histogram({
    name: 'berth_task_duration_seconds',
    help: 'From the first claim of a task to its end: builds, deployments with their copies, copies ahead of need (`sync`), removals (`retire`)',
    labelNames: ['kind', 'end'],
    buckets: TASK_SECONDS,
    registers: [registry],
  });
  const phases = new Histogram({
    name: 'berth_deployment_phase_duration_seconds',
    help: 'Phases of deployments that settled, of their last try; the outcome of the last phase is that of the deployment, unless it went live',
    labelNames: ['phase', 'outcome'],
    buckets: TASK_SECONDS,
    registers: [registry],
  });
  const lost = new Counter({
    name: 'berth_tasks_lost_total',
    help: 'Tasks that were taken away from a node: its lease ran out, it never claimed (`queue`), it took too long (`wall`), or again and again (`attempts`)',
    labelNames: ['kind', 'why'],
    registers: [registry],
  });
  const queries = new Histogram({
    name: 'berth_database_query_duration_seconds',
    help: 'Time of a statement; `commit` waits for the disk',
    labelNames: ['operation'],
    buckets: [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1, 10],
    registers: [registry],
  });
  for (const kind of TASK_KINDS) lost.inc({ kind, why: 'lease' }, 0);
  for (const outcome of ['running', 'failed', 'cancelled', 'superseded']) outcomes.inc({ outcome, code: '' }, 0);
  telemetry.on((measured) => {
    if (measured.what === 'deployment') outcomes.inc({ outcome: measured.outcome, code: measured.code ?? '' });
    else if (measured.what === 'phase') phases.observe({ phase: measured.phase, outcome: measured.outcome }, measured.seconds);
    else if (measured.what === 'task lost') lost.inc({ kind: measured.kind, why: measured.why });
    else if (measured.seconds !== null) tasks.observe({ kind: measured.kind, end: measured.end }, measured.seconds);
  });
  // Found once: to find the labels anew would cost more than the rest of it.
  const byOperation = new Map(QUERY_KINDS.map((operation) => [operation, queries.labels({ operation })]));
  stores.health.onQuery((operation, seconds) => byOperation.get(operation)?.observe(seconds));
}

/** Read when Prometheus asks, never kept. */
const gauges = ({ loops, stores, source, settings, limits, now }: MetricDeps, holds: Holds): GaugeRow[] => [
  {
    name: 'berth_build_info',
    help: 'Always 1; its labels say what runs',
    labels: ['version', 'node'],
    read: () => [{ labels: { version: settings.version, node: process.versions.node }, value: 1 }],
  },
  {
    name: 'berth_nodes',
    help: 'Nodes by role and status',
    labels: ['role', 'status'],
    async read() {
      const { counts } = await stores.health.nodes(now() - limits.offlineMs, 0);
      return NODE_ROLES.flatMap((role) =>
        (['online', 'offline'] as const).map((status) => ({
          labels: { role, status },
          value: counts.find((c) => c.role === role && c.status === status)?.count ?? 0,
        })),
      );
    },
  },
  {
    name: 'berth_node_free_bytes',
    help: `Free storage of a node, of the ${MOST_NODES} that have the least`,
    labels: ['role', 'node'],
    async read() {
      const { storage } = await stores.health.nodes(now() - limits.offlineMs, MOST_NODES);
      return storage.map(({ role, hostname, free }) => ({ labels: { role, node: hostname }, value: free }));
    },
  },
  {
    name: 'berth_tasks_open',
    help: 'Tasks that wait for their node (`pending`) or are at work',
    labels: ['kind', 'status'],
    async read() {
      const open = await stores.health.openTasks();
      return TASK_KINDS.flatMap((kind) =>
        (['pending', 'running'] as const).map((status) => ({
          labels: { kind, status },
          value: open.find((t) => t.kind === kind && t.status === status)?.count ?? 0,
        })),
      );
    },
  },
  {
    name: 'berth_tasks_oldest_pending_seconds',
    help: 'Age of the oldest task that waits for its node; 0: none does',
    labels: ['kind'],
    async read() {
      const open = await stores.health.openTasks();
      return TASK_KINDS.map((kind) => {
        const oldest = open.find((t) => t.kind === kind && t.status === 'pending')?.oldest_at ?? now();
        return { labels: { kind }, value: Math.max(0, now() - oldest) / 1000 };
      });
    },
  },
  {
    name: 'berth_deployments_running',
    help: 'Running deployments by what their nodes say of them; `none`: nothing yet',
    labels: ['health'],
    async read() {
      const running = await stores.health.running();
      return [...HEALTH_STATES, 'none'].map((health) => ({
        labels: { health },
        value: running.find((r) => (r.health ?? 'none') === health)?.count ?? 0,
      }));
    },
  },
  {
    name: 'berth_database_bytes',
    help: 'What the database takes on the disk',
    labels: [],
    read: async () => [{ labels: {}, value: (await stores.health.size()).bytes }],
  },
  {
    name: 'berth_database_free_bytes',
    help: 'How much of berth_database_bytes is empty and is given back or used again; PostgreSQL does not say (0)',
    labels: [],
    read: async () => [{ labels: {}, value: (await stores.health.size()).free }],
  },
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
    help: `When a dataset was last scanned, whatever came of it, of the ${MOST_DATASETS} with the oldest scan; 0: never yet`,
    labels: ['dataset'],
    async read() {
      const all = await stores.datasets.overview();
      const oldest = all.map(({ name, last_scanned_at: at }) => ({ name, at: at ?? 0 })).sort((a, b) => a.at - b.at);
      return oldest.slice(0, MOST_DATASETS).map(({ name, at }) => ({ labels: { dataset: name }, value: at / 1000 }));
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
