/**
 * Interface to the tasks in the database. Each method runs its own transaction,
 * and documents its rule and the codes of DomainError that it throws. Implemented in store/.
 */
import type { TaskProgress } from '@berth/wire/dataset';
import type { SyncPayload, TaskReport } from '@berth/wire/task';
import type { TaskState } from '@berth/wire/vocabulary';
import type { TaskRecord } from '../platform/records.ts';
import type { Uptime } from '../platform/uptime.ts';

/** `id`: id of the new task. Not used if a task for the same work is already open. */
export type NewSync = {
  id: string;
  node_id: string;
  payload: SyncPayload;
  queue_deadline_at: number;
  wall_deadline_at: number;
};

/** The deadline that a lost task exceeded. */
export type Overdue = 'queue' | 'lease' | 'wall' | 'attempts';

/** `lease_expires_at`: time of the uptime clock. */
export type Claim = { attempt: number; lease_token: string; lease_expires_at: number };

export type TaskStore = {
  /** Throws not_found. */
  get(id: string): Promise<TaskRecord>;
  /**
   * Returns the open tasks of the node, oldest first, and marks the node as polled. Contract-only
   * agents get only build and deploy tasks. Throws not_found (node).
   */
  openFor(nodeId: string, now: number): Promise<TaskRecord[]>;
  /**
   * Returns a text for each node id; the text changes whenever an open task of the node changes.
   * One query serves all long polls.
   */
  openByNode(): Promise<Map<string, string>>;
  /**
   * Returns the last text of `openByNode` for the node without a query, or null before the first
   * query.
   */
  lastOpen(nodeId: string): string | null;
  /** Returns the ids of the given projects whose volumes are being moved. */
  moving(projectIds: readonly string[]): Promise<Set<string>>;
  /**
   * Increments `attempt`, sets a new lease and adds a line to the story. Throws not_found,
   * task_over (also after too many attempts).
   */
  claim(
    id: string,
    lease: { token: string; expires_at: number },
    now: number,
    maxAttempts: number,
  ): Promise<Claim>;
  /** Renews the lease of a task. Throws not_found, stale_lease, task_over. */
  renew(
    id: string,
    token: string,
    expiresAt: number,
    now: number,
  ): Promise<{ cancel_requested: boolean }>;
  /**
   * Returns open tasks past a deadline of the uptime clock. `queue`: the task was never claimed,
   * and its node has been silent since `silentSince` or does not poll for tasks.
   */
  overdue(
    at: { uptime: Uptime; now: number; silentSince: number },
    limits: { leaseMs: number; maxAttempts: number },
  ): Promise<{ task: TaskRecord; why: Overdue }[]>;
  /**
   * Stores the progress of a claimed task and returns the task. Throws not_found, stale_lease,
   * task_over.
   */
  progress(id: string, token: string, progress: TaskProgress, now: number): Promise<TaskRecord>;
  /** Returns the last progress of the open deploy tasks by deployment. */
  progressOf(deploymentIds: readonly string[]): Promise<Map<string, TaskProgress>>;
  /**
   * Creates a `sync` task for a node. Such tasks belong to no project, so no plan creates or ends
   * them. At most one is open for each node, dataset and version; a second request returns the open
   * task (`created` false). Throws not_found (node), being_deleted (node).
   */
  createSync(input: NewSync, now: number): Promise<{ task: TaskRecord<'sync'>; created: boolean }>;
  /**
   * Ends a `sync` task with its report. A repeated report gets the same answer. Throws not_found,
   * stale_lease, task_over.
   */
  endSync(
    id: string,
    leaseToken: string | null,
    report: TaskReport,
    now: number,
  ): Promise<{ status: TaskState }>;
  /**
   * Handles an overdue `sync` task. After a lost lease (`lease`), offers it to its node again;
   * otherwise ends it as lost. Returns false and does nothing if the task was claimed, renewed or
   * ended since.
   */
  loseSync(task: TaskRecord, why: Overdue, now: number): Promise<boolean>;
  /**
   * Returns the `sync` tasks of each node that are open or ended within the last hour, newest
   * first, at most 20 for each node.
   */
  syncsOf(nodeIds: readonly string[], now: number): Promise<Map<string, TaskRecord<'sync'>[]>>;
};
