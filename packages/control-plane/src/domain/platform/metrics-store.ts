/**
 * Interface to the counts for /metrics. Each method runs its own transaction,
 * and documents its rule and the codes of DomainError that it throws. Implemented in store/.
 */
import type {
  DeploymentState,
  HealthState,
  NodeRole,
  TaskKind,
  TaskState,
} from '@berth/wire/vocabulary';

/** Counts for /metrics. */
export type MetricsStore = {
  /** Returns the size of the database on disk and its unused part, in bytes. */
  size(): Promise<{ bytes: number; free: number }>;
  /** Calls the listener after each statement. */
  onQuery(listener: (operation: QueryKind, seconds: number) => void): void;
  /** Counts open tasks by kind and state, with the creation time of the oldest. */
  openTasks(): Promise<{ kind: TaskKind; status: TaskState; count: number; oldest_at: number }[]>;
  /** Counts running deployments by health; null: no report yet. */
  running(): Promise<{ health: HealthState | null; count: number }[]>;
  /** Returns the creation time of the oldest deployment in each state that is not settled. */
  oldestUnsettled(): Promise<{ status: DeploymentState; created_at: number }[]>;
  /**
   * Counts the nodes of each role: online if they reported since `onlineSince`, otherwise offline.
   * Lists the free storage of the fullest nodes.
   */
  nodes(onlineSince: number, maxStorageRows: number): Promise<NodeFigures>;
};

/**
 * `wait`: time spent waiting for a lock of another program or thread, or for a server that does not
 * answer.
 */
export const QUERY_KINDS = ['read', 'write', 'commit', 'other', 'wait'] as const;

export type QueryKind = (typeof QUERY_KINDS)[number];

export type NodeFigures = {
  counts: { role: NodeRole; status: 'online' | 'offline'; count: number }[];
  storage: { role: NodeRole; hostname: string; free: number; max: number }[];
};
