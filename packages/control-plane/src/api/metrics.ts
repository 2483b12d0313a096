/**
 * Prometheus metrics. Each server has its own registry, because tests run several servers in one
 * process.
 */
import { type Connections, refusedConnections } from '@berth/kit/connections';
import type { Logger } from '@berth/kit/log';
import { FAILURES } from '@berth/wire/errors';
import { VERDICTS } from '@berth/wire/hook';
import type { Route } from '@berth/wire/route';
import { type RouteName, ROUTES } from '@berth/wire/routes';
import { TASK_KINDS } from '@berth/wire/vocabulary';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Overdue } from '../domain/deployments/task-store.ts';
import { type MetricsStore, QUERY_KINDS } from '../domain/platform/metrics-store.ts';
import type { Telemetry } from '../domain/platform/telemetry.ts';
import { gaugeOf } from './gauges/gauge-row.ts';
import { type GaugeDeps, gauges } from './gauges/index.ts';
import type { Readers } from './runtime-logs/readers.ts';
import { NODE_CHANGES, type NodeChangeLog } from './node-changes.ts';
import type { ApiSettings } from './settings.ts';

export type Metrics = {
  observe(request: {
    route: string;
    method: string;
    status: number;
    seconds: number;
    held: boolean;
  }): void;
  render(): Promise<{ type: string; text: string }>;
};

export type MetricDeps = GaugeDeps & {
  metrics: Pick<MetricsStore, 'onQuery'>;
  telemetry: Pick<Telemetry, 'on'>;
  connections: Connections;
  nodeChanges: Pick<NodeChangeLog, 'on'>;
  readers: Pick<Readers, 'counts'>;
  settings: Pick<ApiSettings, 'processMetrics'>;
  log: Logger;
};

/**
 * Gauges of the library with names of counters. The library also exports these values by type, with
 * correct names.
 */
const MISNAMED = [
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
];
const SIGN_INS: readonly string[] = ['login', 'exchange', 'refresh'] satisfies RouteName[];
/**
 * Methods that get a label value of their own. All others share one value, because clients can send
 * any of the 35 methods that Node.js parses.
 */
const METHODS = new Set<string>([
  ...Object.values<Route>(ROUTES).map(({ method }) => method),
  'HEAD',
  'OPTIONS',
]);

const LOSSES: readonly Overdue[] = ['queue', 'lease', 'wall', 'attempts'];
const TASK_SECONDS = [0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600];

export function createMetrics(deps: MetricDeps): Metrics {
  const registry = new Registry();
  // The default precision of 10 ms wakes an idle process 100 times per second.
  if (deps.settings.processMetrics) {
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 100 });
    for (const name of MISNAMED) registry.removeSingleMetric(name);
  }
  const requests = new Histogram({
    name: 'berth_http_request_duration_seconds',
    help:
      'Duration of requests, from request to answer; held requests are in ' +
      'berth_http_held_duration_seconds',
    labelNames: ['route', 'method', 'status'],
    buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300],
    registers: [registry],
  });
  const nodeChanges = new Counter({
    name: 'berth_node_changes_total',
    help:
      'Changes of nodes: registrations of new nodes, new addresses and names, issued and reset ' +
      'secrets, refused machines',
    labelNames: ['kind'],
    registers: [registry],
  });
  for (const kind of NODE_CHANGES) nodeChanges.inc({ kind }, 0);
  deps.nodeChanges.on(({ kind }) => nodeChanges.inc({ kind }));
  for (const row of gauges(deps)) registry.registerMetric(gaugeOf(row, deps.log));
  registry.registerMetric(runtimeLogReaders(deps.readers));
  registry.registerMetric(runtimeLogLines(deps.readers));
  const heldSeconds = new Histogram({
    name: 'berth_http_held_duration_seconds',
    help:
      'Duration of held requests (long polls and streams), until a change, the end of their wait ' +
      'time or a disconnect',
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
  registry.registerMetric(new Counter(refusedConnections(deps.connections)));
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
      else
        requests.observe(
          { route, method: METHODS.has(method) ? method : 'other', status: String(status) },
          seconds,
        );
      if (status === 429) limitedRequests.inc({ route });
      if (status >= 400 && status < 500 && SIGN_INS.includes(route))
        failedSignIns.inc({ route, status: String(status) });
    },
    render: async () => ({ type: registry.contentType, text: await registry.metrics() }),
  };
}

const runtimeLogReaders = (readers: Pick<Readers, 'counts'>): Gauge =>
  new Gauge({
    name: 'berth_runtime_log_readers',
    help:
      'Logs of containers that agents read for viewers at this control plane now, by mode: ' +
      '`follow` or `read` (once)',
    labelNames: ['mode'],
    registers: [],
    collect() {
      const { follows, reads } = readers.counts();
      this.set({ mode: 'follow' }, follows);
      this.set({ mode: 'read' }, reads);
    },
  });
const runtimeLogLines = (readers: Pick<Readers, 'counts'>): Counter =>
  new Counter({
    name: 'berth_runtime_log_lines_total',
    help: 'Lines of containers for viewers at this control plane: `received`, or `lost` on the way',
    labelNames: ['outcome'],
    registers: [],
    collect() {
      const { lines, lost } = readers.counts();
      this.reset();
      this.inc({ outcome: 'received' }, lines);
      this.inc({ outcome: 'lost' }, lost);
    },
  });

/** Metrics of events that the flow, the loops and the database report. */
function recordTelemetry({ telemetry, metrics }: MetricDeps, registry: Registry): void {
  const outcomes = new Counter({
    name: 'berth_deployments_settled_total',
    help: 'Deployments that went live (`running`) or ended, by outcome and failure code',
    labelNames: ['outcome', 'code'],
    registers: [registry],
  });
  const tasks = new Histogram({
    name: 'berth_task_duration_seconds',
    help:
      'Duration of tasks from the first claim to the end: build, deploy (with copying of ' +
      'datasets), sync (prewarm), retire (removal), look (check of a branch after a push)',
    labelNames: ['kind', 'end'],
    buckets: TASK_SECONDS,
    registers: [registry],
  });
  const phases = new Histogram({
    name: 'berth_deployment_phase_duration_seconds',
    help:
      'Duration of each phase of a finished deployment (last attempt only). The phase in which ' +
      'it failed has the outcome of the deployment; every other phase has `completed`',
    labelNames: ['phase', 'outcome'],
    buckets: TASK_SECONDS,
    registers: [registry],
  });
  const lost = new Counter({
    name: 'berth_tasks_lost_total',
    help:
      'Tasks that a node lost: the lease expired (`lease`), the node did not claim it in time ' +
      '(`queue`), it exceeded its time limit (`wall`) or its number of attempts (`attempts`)',
    labelNames: ['kind', 'why'],
    registers: [registry],
  });
  const queries = new Histogram({
    name: 'berth_database_query_duration_seconds',
    help:
      'Duration of database statements; `commit` includes the wait for the disk; `wait`: waits ' +
      'for a lock or for the server, before a write could begin',
    labelNames: ['operation'],
    buckets: [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1, 10],
    registers: [registry],
  });
  const deliveries = new Counter({
    name: 'berth_hook_deliveries_total',
    help:
      'Deliveries of forges by verdict; `accepted`: Berth checks the branch, and counts the ' +
      'verdict later',
    labelNames: ['verdict'],
    registers: [registry],
  });
  for (const verdict of [...VERDICTS, 'accepted']) deliveries.inc({ verdict }, 0);
  const statuses = new Counter({
    name: 'berth_commit_statuses_total',
    help:
      'Requests that set a commit status at a forge: `sent`, `retried` (failed, will be ' +
      'repeated), `given up`',
    labelNames: ['outcome'],
    registers: [registry],
  });
  for (const outcome of ['sent', 'retried', 'given up']) statuses.inc({ outcome }, 0);
  const notifications = new Counter({
    name: 'berth_notifications_total',
    help:
      'Deliveries of notifications, without tests: `sent`, `retried` (failed, will be repeated), ' +
      '`given up`',
    labelNames: ['outcome'],
    registers: [registry],
  });
  for (const outcome of ['sent', 'retried', 'given up']) notifications.inc({ outcome }, 0);
  for (const kind of TASK_KINDS) for (const why of LOSSES) lost.inc({ kind, why }, 0);
  for (const outcome of ['running', 'cancelled', 'superseded'])
    outcomes.inc({ outcome, code: '' }, 0);
  // Start each code at 0: Prometheus does not count the first value of a series as an increase.
  for (const code of Object.keys(FAILURES)) outcomes.inc({ outcome: 'failed', code }, 0);
  telemetry.on((measured) => {
    if (measured.what === 'deployment')
      outcomes.inc({ outcome: measured.outcome, code: measured.code ?? '' });
    else if (measured.what === 'phase')
      phases.observe({ phase: measured.phase, outcome: measured.outcome }, measured.seconds);
    else if (measured.what === 'task lost') lost.inc({ kind: measured.kind, why: measured.why });
    else if (measured.what === 'commit status') statuses.inc({ outcome: measured.outcome });
    else if (measured.what === 'notification') notifications.inc({ outcome: measured.outcome });
    else if (measured.what === 'delivery') deliveries.inc({ verdict: measured.verdict });
    else if (measured.what === 'task' && measured.seconds !== null)
      tasks.observe({ kind: measured.kind, end: measured.end }, measured.seconds);
  });
  // Look up the labels once: a lookup costs more than the rest of an observation.
  const byOperation = new Map(
    QUERY_KINDS.map((operation) => [operation, queries.labels({ operation })]),
  );
  metrics.onQuery((operation, seconds) => byOperation.get(operation)?.observe(seconds));
}
