/** Gauges of nodes and their tasks. */
import { NODE_ROLES, TASK_KINDS } from '@berth/wire/vocabulary';
import type { Limits } from '../../domain/deployments/facts.ts';
import type { FailoverWatch } from '../../domain/nodes/failover-watch.ts';
import type { MetricsStore } from '../../domain/platform/metrics-store.ts';
import type { GaugeRow } from './gauge-row.ts';

/** Maximum number of series in a metric with one series for each node. */
const MAX_NODES = 200;

export type Deps = {
  metrics: Pick<MetricsStore, 'nodes' | 'openTasks'>;
  failover: FailoverWatch;
  limits: Pick<Limits, 'offlineMs'>;
  now: () => number;
};

export const nodeGauges = ({ metrics, failover, limits, now }: Deps): GaugeRow[] => [
  {
    name: 'berth_nodes',
    help: 'Nodes by role and status',
    labels: ['role', 'status'],
    async read() {
      const { counts } = await metrics.nodes(now() - limits.offlineMs, 0);
      return NODE_ROLES.flatMap((role) =>
        (['online', 'offline'] as const).map((status) => ({
          labels: { role, status },
          value: counts.find((c) => c.role === role && c.status === status)?.count ?? 0,
        })),
      );
    },
  },
  {
    name: 'berth_nodes_silent',
    help: 'Deploy nodes whose agents have been silent for their limit',
    labels: [],
    async read() {
      const overdue = (await failover.silent()).filter(({ isOverdue }) => isOverdue);
      return [{ labels: {}, value: overdue.length }];
    },
  },
  {
    name: 'berth_failover_brake',
    help: 'Silent nodes whose instances do not move, because most nodes are silent; 0: none',
    labels: [],
    async read() {
      const held = (await failover.silent()).filter(({ brake }) => brake !== null);
      return [{ labels: {}, value: held.length }];
    },
  },
  {
    name: 'berth_node_free_bytes',
    help: `Free bytes of a node; only for the ${MAX_NODES} nodes with the least free storage`,
    labels: ['role', 'node'],
    async read() {
      const { storage } = await metrics.nodes(now() - limits.offlineMs, MAX_NODES);
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
      const open = await metrics.openTasks();
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
      const open = await metrics.openTasks();
      return TASK_KINDS.map((kind) => {
        const oldest =
          open.find((t) => t.kind === kind && t.status === 'pending')?.oldest_at ?? now();
        return { labels: { kind }, value: Math.max(0, now() - oldest) / 1000 };
      });
    },
  },
];
