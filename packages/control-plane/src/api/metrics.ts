/** Prometheus metrics. Each server has its own registry, because tests run several servers in one process. */
import { VERDICTS } from '@berth/wire/hook';
import { DATASET_STATES } from '@berth/wire/dataset';
import type { Route } from '@berth/wire/route';
import { type RouteName, ROUTES } from '@berth/wire/routes';
import { DEPLOYMENT_STATES, HEALTH_STATES, NODE_ROLES, TASK_KINDS } from '@berth/wire/vocabulary';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import { lastGood } from '../domain/backups.ts';
import { QUERY_KINDS } from '../domain/stores.ts';
import type { ApiDeps } from './deps.ts';
import type { Holds } from './holds.ts';
import { NODE_CHANGES, type NodeChangeLog } from './node-changes.ts';

export type Metrics = {
  observe(request: { route: string; method: string; status: number; seconds: number; held: boolean }): void;
  render(): Promise<{ type: string; text: string }>;
};

type MetricDeps = Pick<
  ApiDeps,
  'loops' | 'stores' | 'source' | 'settings' | 'telemetry' | 'limits' | 'now' | 'vault' | 'backupIntervalMs' | 'certificates'
>;
type Reading = { labels: Record<string, string>; value: number };
type GaugeRow = { name: string; help: string; labels: string[]; read: () => Reading[] | Promise<Reading[]> };

/** Gauges of the library with names of counters. The library also exports each of them by type, with a correct name. */
const MISNAMED = ['nodejs_active_handles_total', 'nodejs_active_requests_total', 'nodejs_active_resources_total'];
const SIGN_INS: readonly string[] = ['login', 'exchange', 'refresh'] satisfies RouteName[];
/** Limits for metrics with one series per node or dataset. */
const MAX_NODES = 200;
const MAX_DATASETS = 200;
/** Methods that get their own label value. Clients may send any of the 35 methods that Node.js parses. */
const METHODS = new Set<string>([...Object.values<Route>(ROUTES).map(({ method }) => method), 'HEAD', 'OPTIONS']);

const TASK_SECONDS = [0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600];

export function createMetrics(deps: MetricDeps & { nodeChanges: NodeChangeLog }, holds: Holds): Metrics {
  const registry = new Registry();
  // The default precision of 10 ms wakes an idle process 100 times per second.
  if (deps.settings.processMetrics) {
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 100 });
    for (const name of MISNAMED) registry.removeSingleMetric(name);
  }
  const requests = new Histogram({
    name: 'berth_http_request_duration_seconds',
    help: 'Duration of requests, from request to answer; held requests are in berth_http_held_duration_seconds',
    labelNames: ['route', 'method', 'status'],
    buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
    registers: [registry],
  });
  const nodeChanges = new Counter({
    name: 'berth_node_changes_total',
    help: 'Changes of nodes: registrations of new nodes, new addresses and names, issued and reset secrets, refused machines',
    labelNames: ['kind'],
    registers: [registry],
  });
  for (const kind of NODE_CHANGES) nodeChanges.inc({ kind }, 0);
  deps.nodeChanges.on(({ kind }) => nodeChanges.inc({ kind }));
  for (const row of gauges(deps, holds)) registry.registerMetric(gaugeOf(row));
  const heldSeconds = new Histogram({
    name: 'berth_http_held_duration_seconds',
    help: 'Duration of held requests (long polls and streams), until a change, the end of their wait time or a disconnect',
    labelNames: ['route'],
    buckets: [0.01, 1, 10, 30, 60, 300],
    registers: [registry],
  });
  const failedSignIns = new Counter({
    name: 'berth_sign_in_failures_total',
    help: 'Refused sign-ins, by route and status',
    labelNames: ['route', 'status'],
    registers: [registry],
  });
  const limitedRequests = new Counter({
    name: 'berth_http_requests_limited_total',
    help: 'Requests that were refused with 429 (too many requests)',
    labelNames: ['route'],
    registers: [registry],
  });
  recordTelemetry(deps, registry);
  return {
    observe({ route, method, status, seconds, held }) {
      if (held) heldSeconds.observe({ route }, seconds);
      else requests.observe({ route, method: METHODS.has(method) ? method : 'other', status: String(status) }, seconds);
      if (status === 429) limitedRequests.inc({ route });
      if (status >= 400 && status < 500 && SIGN_INS.includes(route)) failedSignIns.inc({ route, status: String(status) });
    },
    render: async () => ({ type: registry.contentType, text: await registry.metrics() }),
  };
}

/** Metrics of events that the flow, the loops and the database report. */
function recordTelemetry({ telemetry, stores }: MetricDeps, registry: Registry): void {
  const outcomes = new Counter({
    name: 'berth_deployments_settled_total',
    help: 'Deployments that went live (`running`) or ended, by outcome and failure code',
    labelNames: ['outcome', 'code'],
    registers: [registry],
  });
  const tasks = new Histogram({
    name: 'berth_task_duration_seconds',
    help: 'Duration of tasks from the first claim to the end: build, deploy (with copying of datasets), sync (prewarm), retire (removal), look (check of a branch after a push)',
    labelNames: ['kind', 'end'],
    buckets: TASK_SECONDS,
    registers: [registry],
  });
  const phases = new Histogram({
    name: 'berth_deployment_phase_duration_seconds',
    help: 'Duration of each phase of a finished deployment (last attempt only). The phase in which it failed has the outcome of the deployment; every other phase has `completed`',
    labelNames: ['phase', 'outcome'],
    buckets: TASK_SECONDS,
    registers: [registry],
  });
  const lost = new Counter({
    name: 'berth_tasks_lost_total',
    help: 'Tasks that a node lost: the lease expired (`lease`), the node did not claim it in time (`queue`), it exceeded its time limit (`wall`) or its number of attempts (`attempts`)',
    labelNames: ['kind', 'why'],
    registers: [registry],
  });
  const queries = new Histogram({
    name: 'berth_database_query_duration_seconds',
    help: 'Duration of database statements; `commit` includes the wait for the disk',
    labelNames: ['operation'],
    buckets: [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1, 10],
    registers: [registry],
  });
  const deliveries = new Counter({
    name: 'berth_hook_deliveries_total',
    help: 'Deliveries of forges by verdict; `accepted`: Berth checks the branch, and counts the verdict later',
    labelNames: ['verdict'],
    registers: [registry],
  });
  for (const verdict of [...VERDICTS, 'accepted']) deliveries.inc({ verdict }, 0);
  const statuses = new Counter({
    name: 'berth_commit_statuses_total',
    help: 'Requests that set a commit status at a forge: `sent`, `retried` (failed, will be repeated), `given up`',
    labelNames: ['outcome'],
    registers: [registry],
  });
  for (const outcome of ['sent', 'retried', 'given up']) statuses.inc({ outcome }, 0);
  for (const kind of TASK_KINDS) lost.inc({ kind, why: 'lease' }, 0);
  for (const outcome of ['running', 'failed', 'cancelled', 'superseded']) outcomes.inc({ outcome, code: '' }, 0);
  telemetry.on((measured) => {
    if (measured.what === 'deployment') outcomes.inc({ outcome: measured.outcome, code: measured.code ?? '' });
    else if (measured.what === 'phase') phases.observe({ phase: measured.phase, outcome: measured.outcome }, measured.seconds);
    else if (measured.what === 'task lost') lost.inc({ kind: measured.kind, why: measured.why });
    else if (measured.what === 'commit status') statuses.inc({ outcome: measured.outcome });
    else if (measured.what === 'delivery') deliveries.inc({ verdict: measured.verdict });
    else if (measured.seconds !== null) tasks.observe({ kind: measured.kind, end: measured.end }, measured.seconds);
  });
  // Look up the labels once: a lookup costs more than the rest of an observation.
  const byOperation = new Map(QUERY_KINDS.map((operation) => [operation, queries.labels({ operation })]));
  stores.metrics.onQuery((operation, seconds) => byOperation.get(operation)?.observe(seconds));
}

/** Gauges, read at each request of Prometheus. */
const gauges = (
  { loops, stores, source, settings, limits, now, vault, backupIntervalMs, certificates }: MetricDeps,
  holds: Holds,
): GaugeRow[] => [
  {
    name: 'berth_build_info',
    help: 'Always 1; the labels are the versions of Berth and Node.js',
    labels: ['version', 'node'],
    read: () => [{ labels: { version: settings.version, node: process.versions.node }, value: 1 }],
  },
  {
    name: 'berth_backup_last_success_timestamp_seconds',
    help: 'Start of the last backup that succeeded, scheduled or by a person; 0 if there is none',
    labels: [],
    read: async () => [{ labels: {}, value: (lastGood(await stores.backups.list())?.started_at ?? 0) / 1000 }],
  },
  {
    name: 'berth_backup_interval_seconds',
    help: 'BACKUP_INTERVAL; 0 if no backups are scheduled',
    labels: [],
    read: () => [{ labels: {}, value: (backupIntervalMs ?? 0) / 1000 }],
  },
  {
    name: 'berth_certificate_problems',
    help: 'Published hosts without a good certificate at the proxy: missing, invalid, or not renewed in time; 0 if none is checked',
    labels: [],
    read: () => [{ labels: {}, value: certificates?.problems().length ?? 0 }],
  },
  {
    name: 'berth_certificate_first_expiry_timestamp_seconds',
    help: 'Earliest end of a certificate that the proxy serves for a published host; 0 if none is known',
    labels: [],
    read: () => [{ labels: {}, value: (certificates?.firstExpiry() ?? 0) / 1000 }],
  },
  {
    name: 'berth_nodes',
    help: 'Nodes by role and status',
    labels: ['role', 'status'],
    async read() {
      const { counts } = await stores.metrics.nodes(now() - limits.offlineMs, 0);
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
    help: `Free storage of a node in bytes; only the ${MAX_NODES} nodes with the least`,
    labels: ['role', 'node'],
    async read() {
      const { storage } = await stores.metrics.nodes(now() - limits.offlineMs, MAX_NODES);
      return storage.map(({ role, hostname, free }) => ({ labels: { role, node: hostname }, value: free }));
    },
  },
  {
    name: 'berth_tasks_open',
    help: 'Open tasks: `pending` (not claimed yet) or `running`',
    labels: ['kind', 'status'],
    async read() {
      const open = await stores.metrics.openTasks();
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
    help: 'Age of the oldest pending task; 0 if there is none',
    labels: ['kind'],
    async read() {
      const open = await stores.metrics.openTasks();
      return TASK_KINDS.map((kind) => {
        const oldest = open.find((t) => t.kind === kind && t.status === 'pending')?.oldest_at ?? now();
        return { labels: { kind }, value: Math.max(0, now() - oldest) / 1000 };
      });
    },
  },
  {
    name: 'berth_deployments_running',
    help: 'Running deployments by the health that their nodes reported; `none`: no report yet',
    labels: ['health'],
    async read() {
      const running = await stores.metrics.running();
      return [...HEALTH_STATES, 'none'].map((health) => ({
        labels: { health },
        value: running.find((r) => (r.health ?? 'none') === health)?.count ?? 0,
      }));
    },
  },
  {
    name: 'berth_database_bytes',
    help: 'Size of the database on disk in bytes',
    labels: [],
    read: async () => [{ labels: {}, value: (await stores.metrics.size()).bytes }],
  },
  {
    name: 'berth_database_free_bytes',
    help: 'Unused part of berth_database_bytes, to be reused or returned to the file system; 0 with PostgreSQL, which does not report it',
    labels: [],
    read: async () => [{ labels: {}, value: (await stores.metrics.size()).free }],
  },
  {
    name: 'berth_project_keys',
    help: 'Keys that encrypt the secrets of projects, by the key that wraps them: `current` or `earlier` (of SECRETS_KEY), `missing` (SECRETS_KEY does not open them)',
    labels: ['wrapped_by'],
    async read() {
      const { all, earlier, locked } = await vault.keys();
      const counts = { current: all - earlier - locked, earlier, missing: locked };
      return Object.entries(counts).map(([wrapped_by, value]) => ({ labels: { wrapped_by }, value }));
    },
  },
  {
    name: 'berth_hook_deliveries_waiting',
    help: 'Deliveries that wait for a check of their branch',
    labels: [],
    read: async () => [{ labels: {}, value: (await stores.hooks.countWaiting()).count }],
  },
  {
    name: 'berth_hook_delivery_oldest_seconds',
    help: 'Age of the oldest delivery that waits for a check of its branch; 0 if none waits',
    labels: [],
    async read() {
      const { oldest_at } = await stores.hooks.countWaiting();
      return [{ labels: {}, value: oldest_at === null ? 0 : Math.max(0, now() - oldest_at) / 1000 }];
    },
  },
  {
    name: 'berth_commit_statuses_waiting',
    help: 'Commit statuses that are not sent yet',
    labels: [],
    read: async () => [{ labels: {}, value: (await stores.commitStatuses.countWaiting()).count }],
  },
  {
    name: 'berth_commit_status_oldest_seconds',
    help: 'Age of the oldest commit status that is not sent yet; 0 if none waits',
    labels: [],
    async read() {
      const { oldest_at } = await stores.commitStatuses.countWaiting();
      return [{ labels: {}, value: oldest_at === null ? 0 : Math.max(0, now() - oldest_at) / 1000 }];
    },
  },
  {
    name: 'berth_http_requests_held',
    help: 'Open held requests: long polls and streams',
    labels: ['kind'],
    read: () => Object.entries(holds.counts()).map(([kind, value]) => ({ labels: { kind }, value })),
  },
  {
    name: 'berth_loop_last_success_timestamp_seconds',
    help: 'Time of the last run of a loop without an error; 0 if there was none',
    labels: ['loop'],
    read: () => loops().map((l) => ({ labels: { loop: l.name }, value: (l.lastOkAt ?? 0) / 1000 })),
  },
  {
    name: 'berth_loop_failing',
    help: '1 if the last run of a loop failed, else 0',
    labels: ['loop'],
    read: () => loops().map((l) => ({ labels: { loop: l.name }, value: l.lastError === null ? 0 : 1 })),
  },
  {
    name: 'berth_deployments',
    help: 'Deployments by status, without those of deleted projects',
    labels: ['status'],
    async read() {
      const counts = await stores.deployments.countByStatus();
      return DEPLOYMENT_STATES.map((status) => ({ labels: { status }, value: counts.get(status) ?? 0 }));
    },
  },
  {
    name: 'berth_datasets',
    help: 'Datasets by status after their last scan',
    labels: ['status'],
    async read() {
      const all = await stores.datasets.overview();
      return DATASET_STATES.map((status) => ({ labels: { status }, value: all.filter((d) => d.status === status).length }));
    },
  },
  {
    name: 'berth_dataset_last_scan_timestamp_seconds',
    help: `Time of the last scan of a dataset, with any outcome; only the ${MAX_DATASETS} with the oldest scan; 0 if there was none`,
    labels: ['dataset'],
    async read() {
      const all = await stores.datasets.overview();
      const oldest = all.map(({ name, last_scanned_at: at }) => ({ name, at: at ?? 0 })).sort((a, b) => a.at - b.at);
      return oldest.slice(0, MAX_DATASETS).map(({ name, at }) => ({ labels: { dataset: name }, value: at / 1000 }));
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
