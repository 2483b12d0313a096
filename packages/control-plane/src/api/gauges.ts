/** Gauges of the control plane: values that are read at each request of Prometheus. */
import { diskOf } from './disk.ts';
import { DATASET_STATES } from '@berth/wire/dataset';
import {
  DEPLOYMENT_STATES,
  HEALTH_STATES,
  isSettled,
  NODE_ROLES,
  TASK_KINDS,
} from '@berth/wire/vocabulary';
import { Gauge } from 'prom-client';
import { isFailing, lastGood } from '../domain/platform/backups.ts';
import type { Connections } from '@berth/kit/connections';
import type { Logger } from '@berth/kit/log';
import type { ApiDeps } from './deps.ts';
import type { Holds } from './long-poll.ts';

export type GaugeDeps = Pick<
  ApiDeps,
  | 'loops'
  | 'stores'
  | 'source'
  | 'settings'
  | 'limits'
  | 'now'
  | 'vault'
  | 'backupIntervalMs'
  | 'scanIntervalMs'
  | 'dataFolder'
  | 'log'
  | 'certificates'
> & { connections: Connections };
type Reading = { labels: Record<string, string>; value: number };
type GaugeRow = {
  name: string;
  help: string;
  labels: string[];
  read: () => Reading[] | Promise<Reading[]>;
};

/** Limits for metrics with one series per node or dataset. */
const MAX_NODES = 200;
const MAX_DATASETS = 200;
const MAX_PROJECTS = 200;
/**
 * Agents send a point a minute. Older ones are of containers that ended, or of nodes that are away.
 */
const USAGE_MS = 3 * 60_000;
const USAGE = [
  ['berth_project_cpu_seconds', 'CPU time since the start of the containers', 'cpu_seconds'],
  [
    'berth_project_throttled_seconds',
    'Time that processes waited because of the CPU limit',
    'throttled_seconds',
  ],
  [
    'berth_project_memory_bytes',
    'Memory without the file cache that the kernel can drop at once',
    'memory_bytes',
  ],
  ['berth_project_memory_limit_bytes', 'Memory limit; absent without a limit', 'memory_limit'],
  ['berth_project_restarts', 'Restarts by the engine', 'restarts'],
  ['berth_project_oom_kills', 'Processes that the kernel killed at the memory limit', 'oom_kills'],
  ['berth_project_network_received_bytes', 'Bytes received over the network', 'net_rx'],
  ['berth_project_network_sent_bytes', 'Bytes sent over the network', 'net_tx'],
] as const;
/**
 * Time limit of a reading. A database that hangs must not hang the page, whose other metrics say
 * what is wrong.
 */
const READ_MS = 2_000;
const ONE_OR_ZERO = [() => 1, () => 0] as const;

/** Gauges, read at each request of Prometheus. */
export const gauges = (
  {
    loops,
    stores,
    source,
    settings,
    limits,
    now,
    vault,
    backupIntervalMs,
    scanIntervalMs,
    dataFolder,
    connections,
    certificates,
  }: GaugeDeps,
  holds: Holds,
): GaugeRow[] => {
  const present = shared(() => stores.usage.present(now() - USAGE_MS, MAX_PROJECTS));
  return [
    {
      name: 'berth_build_info',
      help: 'Always 1; the labels are the versions of Berth and Node.js',
      labels: ['version', 'node'],
      read: () => [
        { labels: { version: settings.version, node: process.versions.node }, value: 1 },
      ],
    },
    {
      name: 'berth_clock_seconds',
      help: 'Clock of this machine, in seconds since 1970, at the scrape',
      labels: [],
      read: () => [{ labels: {}, value: Date.now() / 1000 }],
    },
    {
      name: 'berth_database_ok',
      help:
        '1 if the database answered a query of this scrape within 2 s, else 0; then other ' +
        'metrics are missing',
      labels: [],
      read: async () => [
        { labels: {}, value: await within(READ_MS, stores.ping()).then(...ONE_OR_ZERO) },
      ],
    },
    {
      name: 'berth_routes_ok',
      help:
        '1 while the configuration of the reverse proxy is known, else 0: then a proxy gets 503 ' +
        'and keeps its last configuration',
      labels: [],
      read: async () => [
        { labels: {}, value: await (async () => source.current())().then(...ONE_OR_ZERO) },
      ],
    },
    {
      name: 'berth_proxy_fetch_age_seconds',
      help:
        'Seconds since a reverse proxy or relay last fetched the configuration, or since the ' +
        'start; 0 while a request is held',
      labels: [],
      read: () => [
        { labels: {}, value: holds.counts().config > 0 ? 0 : source.fetchAgeMs() / 1000 },
      ],
    },
    {
      name: 'berth_disk_free_bytes',
      help: 'Free bytes of the disk with the data folder of the control plane (database or STATE_DIR)',
      labels: [],
      read: async () =>
        dataFolder === null ? [] : [{ labels: {}, value: (await diskOf(dataFolder)).free }],
    },
    {
      name: 'berth_disk_size_bytes',
      help: 'Size in bytes of the disk with the data folder of the control plane',
      labels: [],
      read: async () =>
        dataFolder === null ? [] : [{ labels: {}, value: (await diskOf(dataFolder)).size }],
    },
    {
      name: 'berth_deployment_oldest_seconds',
      help: 'Age of the oldest deployment in each state that is not settled; 0 if there is none',
      labels: ['status'],
      async read() {
        const oldest = await stores.metrics.oldestUnsettled();
        return DEPLOYMENT_STATES.filter((status) => !isSettled(status)).map((status) => {
          const createdAt = oldest.find((row) => row.status === status)?.created_at ?? now();
          return { labels: { status }, value: Math.max(0, now() - createdAt) / 1000 };
        });
      },
    },
    {
      name: 'berth_backup_failing',
      help: '1 if the last backup that ended has failed, scheduled or by a person, else 0',
      labels: [],
      read: async () => [{ labels: {}, value: isFailing(await stores.backups.list()) ? 1 : 0 }],
    },
    {
      name: 'berth_dataset_scan_interval_seconds',
      help: 'DATASET_SCAN_INTERVAL',
      labels: [],
      read: () => [{ labels: {}, value: scanIntervalMs / 1000 }],
    },
    {
      name: 'berth_backup_last_success_timestamp_seconds',
      help: 'Start of the last backup that succeeded, scheduled or by a person; 0 if there is none',
      labels: [],
      read: async () => [
        { labels: {}, value: (lastGood(await stores.backups.list())?.started_at ?? 0) / 1000 },
      ],
    },
    {
      name: 'berth_backup_interval_seconds',
      help: 'BACKUP_INTERVAL; 0 if no backups are scheduled',
      labels: [],
      read: () => [{ labels: {}, value: (backupIntervalMs ?? 0) / 1000 }],
    },
    {
      name: 'berth_certificate_problems',
      help:
        'Published hosts without a good certificate at the proxy: missing, invalid, or not ' +
        'renewed in time; 0 if none is checked',
      labels: [],
      read: () => [{ labels: {}, value: certificates?.problems().length ?? 0 }],
    },
    {
      name: 'berth_certificate_first_expiry_timestamp_seconds',
      help:
        'Earliest end of a certificate that the proxy serves for a published host; 0 if none is ' +
        'known',
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
        return storage.map(({ role, hostname, free }) => ({
          labels: { role, node: hostname },
          value: free,
        }));
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
          const oldest =
            open.find((t) => t.kind === kind && t.status === 'pending')?.oldest_at ?? now();
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
      help:
        'Unused part of berth_database_bytes, to be reused or returned to the file system; 0 ' +
        'with PostgreSQL, which does not report it',
      labels: [],
      read: async () => [{ labels: {}, value: (await stores.metrics.size()).free }],
    },
    {
      name: 'berth_project_keys',
      help:
        'Keys that encrypt the secrets of projects, by the key that wraps them: `current` or ' +
        '`earlier` (of SECRETS_KEY), `missing` (SECRETS_KEY does not open them)',
      labels: ['wrapped_by'],
      async read() {
        const { all, earlier, locked } = await vault.keys();
        const counts = { current: all - earlier - locked, earlier, missing: locked };
        return Object.entries(counts).map(([wrapped_by, value]) => ({
          labels: { wrapped_by },
          value,
        }));
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
        return [
          { labels: {}, value: oldest_at === null ? 0 : Math.max(0, now() - oldest_at) / 1000 },
        ];
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
        return [
          { labels: {}, value: oldest_at === null ? 0 : Math.max(0, now() - oldest_at) / 1000 },
        ];
      },
    },
    {
      name: 'berth_notifications_failing',
      help: 'Notifications whose last delivery failed',
      labels: [],
      read: async () => [{ labels: {}, value: (await stores.notifications.counts()).failing }],
    },
    {
      name: 'berth_notifications_waiting',
      help: 'Deliveries of notifications that are not finished',
      labels: [],
      read: async () => [{ labels: {}, value: (await stores.notifications.counts()).waiting }],
    },
    {
      name: 'berth_http_requests_held',
      help: 'Open held requests: long polls and streams',
      labels: ['kind'],
      read: () =>
        Object.entries(holds.counts()).map(([kind, value]) => ({ labels: { kind }, value })),
    },
    {
      name: 'berth_http_connections',
      help: 'Open connections',
      labels: [],
      read: () => [{ labels: {}, value: connections.open() }],
    },
    {
      name: 'berth_http_connections_limit',
      help: 'MAX_CONNECTIONS, or less if the limit of open files is lower',
      labels: [],
      read: () => [{ labels: {}, value: connections.limit }],
    },
    {
      name: 'berth_loop_last_success_timestamp_seconds',
      help: 'Time of the last run of a loop without an error; 0 if there was none',
      labels: ['loop'],
      read: () =>
        loops().map((l) => ({ labels: { loop: l.name }, value: (l.lastOkAt ?? 0) / 1000 })),
    },
    {
      name: 'berth_loop_failing',
      help: '1 if the last run of a loop failed, else 0',
      labels: ['loop'],
      read: () =>
        loops().map((l) => ({ labels: { loop: l.name }, value: l.lastError === null ? 0 : 1 })),
    },
    {
      name: 'berth_deployments',
      help: 'Deployments by status, without those of deleted projects',
      labels: ['status'],
      async read() {
        const counts = await stores.deployments.countByStatus();
        return DEPLOYMENT_STATES.map((status) => ({
          labels: { status },
          value: counts.get(status) ?? 0,
        }));
      },
    },
    {
      name: 'berth_datasets',
      help: 'Datasets by status after their last scan',
      labels: ['status'],
      async read() {
        const all = await stores.datasets.overview();
        return DATASET_STATES.map((status) => ({
          labels: { status },
          value: all.filter((d) => d.status === status).length,
        }));
      },
    },
    {
      name: 'berth_dataset_last_scan_timestamp_seconds',
      help:
        `Time of the last scan of a dataset, with any outcome; only the ${MAX_DATASETS} with the ` +
        'oldest scan; 0 if there was none',
      labels: ['dataset'],
      async read() {
        const all = await stores.datasets.overview();
        const oldest = all
          .map(({ name, last_scanned_at: at }) => ({ name, at: at ?? 0 }))
          .sort((a, b) => a.at - b.at);
        return oldest
          .slice(0, MAX_DATASETS)
          .map(({ name, at }) => ({ labels: { dataset: name }, value: at / 1000 }));
      },
    },
    ...USAGE.map(
      ([name, help, value]): GaugeRow => ({
        name,
        help:
          `${help}, by project: the sum of its containers by their last points; only the ` +
          `${MAX_PROJECTS} with the most memory`,
        labels: ['project'],
        async read() {
          const all = await present();
          return all.flatMap(({ project, values: { [value]: one } }) =>
            one === null ? [] : [{ labels: { project }, value: one }],
          );
        },
      }),
    ),
    {
      name: 'berth_projects_left_out_of_routing',
      help: 'Projects whose route cannot be published',
      labels: [],
      read: () => [{ labels: {}, value: source.problems().length }],
    },
  ];
};

/** The gauges of one scrape share one query: all ask at the same moment. */
function shared<T>(read: () => Promise<T>): () => Promise<T> {
  let open: Promise<T> | null = null;
  return () => (open ??= read().finally(() => (open = null)));
}

/**
 * A metric that cannot be read now is missing on the page, and the others are there.
 * `berth_database_ok` says why.
 */
export const gaugeOf = (
  { name, help, labels, read }: GaugeRow,
  log: Pick<Logger, 'debug'>,
): Gauge =>
  new Gauge({
    name,
    help,
    labelNames: labels,
    registers: [],
    async collect() {
      this.reset();
      // Without labels, reset() sets 0, which would be a value.
      if (labels.length === 0) this.remove();
      try {
        for (const { labels: one, value } of await within(READ_MS + 500, (async () => read())()))
          this.set(one, value);
      } catch (error) {
        log.debug({ err: error, metric: name }, 'metric not read');
      }
    },
  });

async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
