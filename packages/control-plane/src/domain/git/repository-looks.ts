/**
 * Rules for `look` tasks that inspect a repository (list branches and Dockerfiles), with or without
 * a project: chooses the builder and checks its report. "Look" means such a task. Pure.
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
 * Time limits of a look: to claim it, and in total. Short, because a person waits for the answer.
 */
export const CLAIM_MS = 15_000;
export const LOOK_MS = 60_000;
/** Maximum number of open looks of all users together. */
export const MAX_OPEN = 12;
/** A request for the same repository, branch and project within this time returns the same look. */
export const FRESH_MS = 30_000;
/**
 * Ended looks are kept for this long, so that a client can read the result again and an agent can
 * repeat its report.
 */
export const KEPT_MS = 15 * 60_000;
/** Maximum number of ended looks to keep. */
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
  /** Returns an open or recent look at the same repository, branch and project, or null. */
  same(
    of: Omit<RepositoryLookPayload, 'repository'>,
    now: number,
  ): Promise<RepositoryLookRecord | null>;
  /**
   * Creates the task of a look, unless a look at the same repository, branch and project is open.
   * Removes old looks. Throws too_many_requests.
   */
  create(look: NewRepositoryLook, now: number): Promise<RepositoryLookRecord>;
  /** Throws not_found, also if the task is not a look. */
  get(id: string): Promise<RepositoryLookRecord>;
  /** Returns the ids of all looks that have not ended. */
  open(): Promise<string[]>;
  /**
   * Ends a look with its report. A repeated report gets the same answer. Throws not_found,
   * stale_lease, task_over.
   */
  endTask(
    id: string,
    leaseToken: string | null,
    report: TaskReport,
    now: number,
  ): Promise<{ status: TaskState }>;
  /**
   * Ends a look that its builder did not claim, renew or end in time. Does not offer it again;
   * people can repeat the request.
   */
  loseTask(task: TaskRecord, why: Loss, now: number): Promise<boolean>;
  /**
   * Ends all open looks when the control plane stops, because an older version would not know them.
   */
  endOpen(now: number): Promise<void>;
  /** Removes ended looks. Returns their number. */
  sweep(now: number): Promise<number>;
};
export type Loss = 'queue' | 'lease' | 'wall' | 'attempts';

export const isRepositoryLook = (task: TaskRecord): task is RepositoryLookRecord =>
  task.kind === 'look' && task.project_id === null;

/**
 * Errors for the person who waits for a look that its builder did not claim, renew or end in time.
 */
export const LOST: Record<Loss, { code: string; message: string }> = {
  queue: { code: 'task_not_claimed', message: 'the builder did not begin to look in time' },
  lease: { code: 'node_lost', message: 'the builder stopped reporting' },
  wall: { code: 'task_timeout', message: `the builder did not finish within ${LOOK_MS / 1000} s` },
  attempts: {
    code: 'too_many_attempts',
    message: 'the builder began too many times without an end',
  },
};

/** Error of a look that ended because the control plane stopped. */
export const STOPPED = {
  code: 'cancelled',
  message: 'the control plane stopped before the builder answered; ask again',
};

/**
 * Returns a builder, or the reason why no builder can look. `turn`: a counter of requests, so that
 * each request goes to the next builder.
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

/** Throws validation if the report of a completed look lacks a valid result. */
export function checkRepositoryReport(report: TaskReport): void {
  if (report.status === 'completed' && !isRepositoryFound(report.result))
    throw invalid(
      'result',
      'look',
      'a completed look into a repository says which branches and Dockerfiles it found',
    );
}
