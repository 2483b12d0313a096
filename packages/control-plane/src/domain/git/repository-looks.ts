/**
 * Looks into repositories, before their projects exist or for a project: which builder looks, and
 * the rules of its report. Pure.
 */
import {
  isRepositoryFound,
  REPOSITORY_LOOK_CAPABILITY,
  type RepositoryLookPayload,
} from '@berth/wire/repository-look';
import type { TaskReport } from '@berth/wire/task';
import type { TaskState } from '@berth/wire/vocabulary';
import { invalid } from '../platform/errors.ts';
import type { Limits } from '../deployments/facts.ts';
import { refusalOf } from '../nodes/placement.ts';
import type { NodeRecord, TaskRecord } from '../platform/records.ts';

/**
 * A builder has this long to claim a look, and this long in all. Somebody waits in front of a form.
 */
export const CLAIM_MS = 15_000;
export const LOOK_MS = 60_000;
/** Open looks of all people together. */
export const MAX_OPEN = 12;
/** The same request within this time gets the same look. */
export const FRESH_MS = 30_000;
/**
 * Ended looks are kept this long, for a reader that comes back and for a report that is sent again.
 */
export const KEPT_MS = 15 * 60_000;
/** Ended looks that are kept at most. */
export const MAX_KEPT = 200;

export type NewRepositoryLook = {
  id: string;
  node_id: string;
  queue_deadline_at: number;
  wall_deadline_at: number;
  payload: RepositoryLookPayload;
};
export type RepositoryLookRecord = TaskRecord<'look'> & { payload: RepositoryLookPayload };

export type RepositoryLookStore = {
  /** Returns the look of the same repository, branch and project that is open or fresh, or null. */
  same(
    of: Omit<RepositoryLookPayload, 'repository'>,
    now: number,
  ): Promise<RepositoryLookRecord | null>;
  /**
   * Creates its task, unless one of the same repository, branch and project is open. Removes old
   * ones. Throws too_many_requests.
   */
  create(look: NewRepositoryLook, now: number): Promise<RepositoryLookRecord>;
  /** Throws not_found, also for other tasks. */
  get(id: string): Promise<RepositoryLookRecord>;
  /** Returns the ids of all looks that have not ended. */
  open(): Promise<string[]>;
  /** A repeated report gets the same answer. Throws not_found, stale_lease, task_over. */
  endTask(
    id: string,
    leaseToken: string | null,
    report: TaskReport,
    now: number,
  ): Promise<{ status: TaskState }>;
  /**
   * Ends a look that its builder did not claim, renew or end in time. It is not offered again:
   * people ask again.
   */
  loseTask(task: TaskRecord, why: Loss, now: number): Promise<boolean>;
  /** Ends all open ones: the control plane stops, and an earlier version does not know them. */
  endOpen(now: number): Promise<void>;
  /** Removes ended ones. Returns their number. */
  sweep(now: number): Promise<number>;
};
export type Loss = 'queue' | 'lease' | 'wall' | 'attempts';

export const isRepositoryLook = (task: TaskRecord): task is RepositoryLookRecord =>
  task.kind === 'look' && task.project_id === null;

/** Why a look was lost, in the words of the person who waits for it. */
export const LOST: Record<Loss, { code: string; message: string }> = {
  queue: { code: 'task_not_claimed', message: 'the builder did not begin to look in time' },
  lease: { code: 'node_lost', message: 'the builder stopped reporting' },
  wall: { code: 'task_timeout', message: `the builder did not finish within ${LOOK_MS / 1000} s` },
  attempts: {
    code: 'too_many_attempts',
    message: 'the builder began too many times without an end',
  },
};

/** Why a look was ended without its builder. */
export const STOPPED = {
  code: 'cancelled',
  message: 'the control plane stopped before the builder answered; ask again',
};

/**
 * Returns a builder, or why none can look. `turn`: a number that grows with each request, so that
 * another builder gets the next try.
 */
export function chooseBuilder(
  nodes: readonly NodeRecord[],
  now: number,
  limits: Limits,
  turn: number,
): NodeRecord | string {
  const builders = nodes.filter((node) => node.role === 'builder');
  if (builders.length === 0) return 'no builder is registered';
  const able = builders.filter(
    (node) => node.capabilities?.includes(REPOSITORY_LOOK_CAPABILITY) === true,
  );
  if (able.length === 0)
    return 'no builder can look into a repository yet: their agents are of an earlier version';
  // A look needs no container engine.
  const ready = able.filter(
    (node) => refusalOf({ ...node, engine: null }, [], now, limits) === null,
  );
  return (
    ready.toSorted((a, b) => (a.hostname < b.hostname ? -1 : 1))[
      turn % Math.max(1, ready.length)
    ] ?? 'no builder is online'
  );
}

/** Throws validation if a completed look does not say what it found. */
export function checkRepositoryReport(report: TaskReport): void {
  if (report.status === 'completed' && !isRepositoryFound(report.result))
    throw invalid(
      'result',
      'look',
      'a completed look into a repository says which branches and Dockerfiles it found',
    );
}
