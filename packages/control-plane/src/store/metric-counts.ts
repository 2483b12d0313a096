/**
 * Counts for each scrape of /metrics. Each query reads open tasks, running deployments or nodes
 * through an index, and never the history.
 */
import {
  DEPLOYMENT_STATES,
  type DeploymentState,
  type HealthState,
  isSettled,
  type NodeRole,
  type TaskKind,
  type TaskState,
} from '@berth/wire/vocabulary';
import { sql } from 'kysely';
import type { MetricsStore, NodeFigures } from '../domain/platform/metrics-store.ts';
import type { Database } from './engine/database.ts';
import type { NodeMemory } from './memory/node-memory.ts';

const UNSETTLED = DEPLOYMENT_STATES.filter((state) => !isSettled(state));

export function createMetricsStore(db: Database, memory: NodeMemory): MetricsStore {
  return {
    size: () => db.capabilities.size(db.kysely),
    onQuery: (listener) => db.onQuery(listener),
    openTasks: () => countOpenTasks(db),
    running: () => countRunning(db),
    oldestUnsettled: () => oldestUnsettled(db),
    nodes: (onlineSince, maxStorageRows) => countNodes(db, memory, onlineSince, maxStorageRows),
  };
}

function countOpenTasks(
  db: Database,
): Promise<{ kind: TaskKind; status: TaskState; count: number; oldest_at: number }[]> {
  return db.kysely
    .selectFrom('tasks')
    .select((eb) => [
      'kind',
      'status',
      eb.fn.countAll<number>().as('count'),
      eb.fn.min('created_at').as('oldest_at'),
    ])
    .where('finished_at', 'is', null)
    .groupBy(['kind', 'status'])
    .execute();
}

function countRunning(db: Database): Promise<{ health: HealthState | null; count: number }[]> {
  return db.kysely
    .selectFrom('deployments')
    .select((eb) => ['health_status as health', eb.fn.countAll<number>().as('count')])
    .where('status', '=', 'running')
    .groupBy('health_status')
    .execute();
}

function oldestUnsettled(db: Database): Promise<{ status: DeploymentState; created_at: number }[]> {
  return db.kysely
    .selectFrom('deployments')
    .select((eb) => ['status', eb.fn.min<number>('created_at').as('created_at')])
    .where('status', 'in', UNSETTLED)
    .groupBy('status')
    .execute();
}

async function countNodes(
  db: Database,
  memory: NodeMemory,
  onlineSince: number,
  maxStorageRows: number,
): Promise<NodeFigures> {
  if (!db.capabilities.sharedByControlPlanes) {
    // Needs no query: all nodes are in memory.
    const all = await memory.all(db.kysely);
    const counts = Map.groupBy(
      all,
      (node) => `${node.role} ${node.last_seen_at >= onlineSince ? 'online' : 'offline'}`,
    );
    const storage = all.flatMap(({ role, hostname, free_storage, max_storage }) =>
      free_storage === null ? [] : [{ role, hostname, free: free_storage, max: max_storage }],
    );
    return {
      counts: [...counts].map(([key, nodes]) => {
        const [role, status] = key.split(' ') as [NodeRole, 'online' | 'offline'];
        return { role, status, count: nodes.length };
      }),
      storage: storage.toSorted((a, b) => a.free - b.free).slice(0, maxStorageRows),
    };
  }
  const counts = await db.kysely
    .selectFrom('nodes')
    .select((eb) => [
      'role',
      sql<
        'online' | 'offline'
      >`case when last_seen_at >= ${onlineSince} then 'online' else 'offline' end`.as('status'),
      eb.fn.countAll<number>().as('count'),
    ])
    .groupBy(['role', 'status'])
    .execute();
  const storage = await db.kysely
    .selectFrom('nodes')
    .select(['role', 'hostname', 'free_storage', 'max_storage'])
    .where('free_storage', 'is not', null)
    .orderBy('free_storage')
    .limit(maxStorageRows)
    .execute();
  return {
    counts,
    storage: storage.map((n) => ({
      role: n.role,
      hostname: n.hostname,
      free: n.free_storage ?? 0,
      max: n.max_storage,
    })),
  };
}
