/** Commit statuses: which status a deployment has at its forge, and the outbox that sends it. */
import { FAILURES } from '@berth/wire/errors';
import type { DeploymentState } from '@berth/wire/vocabulary';
import type { DeploymentRecord } from '../platform/records.ts';

export type CommitState = 'pending' | 'success' | 'failure';

export type StatusRecord = {
  seq: number;
  project_id: string;
  /** The deployment of the commit, or the deployment that replaced the push of the commit. */
  deployment_id: string;
  state: CommitState;
  commit: string;
  description: string;
  /** How often it was sent without success. */
  tries: number;
  /**
   * By the uptime clock: the earliest next try, the last try, and the end of the claim of a control
   * plane that sends it.
   */
  next_at: number;
  give_up_at: number;
  claimed_until: number | null;
  created_at: number;
  /** When the forge accepted it, or when Berth gave up. */
  done_at: number | null;
  /** The last problem. With `done_at`: why Berth gave up. */
  error: string | null;
};

/** A status as `claim` returned it. */
export type StatusClaim = Pick<StatusRecord, 'seq' | 'claimed_until' | 'tries'>;

export type StatusStore = {
  /**
   * Claims statuses that are due, the oldest first. Of several statuses of one commit only the
   * newest is sent, and only when no other one of that commit is being sent, so that they arrive in
   * order.
   */
  claim(at: { uptime: number; until: number }, most: number): Promise<StatusRecord[]>;
  /**
   * These end a claim. They return false and change nothing if the claim had expired and another
   * one replaced it.
   */
  sent(claim: StatusClaim, now: number): Promise<boolean>;
  retry(claim: StatusClaim, nextAt: number, error: string): Promise<boolean>;
  /** Adds a line to the story of the deployment. */
  giveUp(claim: StatusClaim, error: string, now: number): Promise<boolean>;
  /**
   * Makes the newest status of the commit due again, because the overtaken status might have
   * reached the forge after it. Does nothing if the overtaken status is itself the newest.
   */
  repeatNewest(
    overtaken: Pick<StatusRecord, 'seq' | 'project_id' | 'commit'>,
    uptime: number,
  ): Promise<void>;
  /** Removes a status that cannot be sent, because its project has no token or no known forge. */
  drop(seq: number): Promise<void>;
  /** Returns the newest status of the deployment's own commit. */
  ofDeployment(deploymentId: string): Promise<StatusRecord | null>;
  countWaiting(): Promise<{ count: number; oldest_at: number | null }>;
  /** Removes old statuses that are done. Returns the number of rows. */
  sweep(now: number): Promise<number>;
};

/** Statuses are tried for this long. */
export const STATUS_LIFETIME_MS = 3_600_000;
/** Statuses that are done are kept this long. */
export const STATUS_KEPT_MS = 30 * 86_400_000;
/** Statuses of one project that wait. The oldest of more are dropped. */
export const MAX_WAITING_STATUSES = 500;

const BACKOFF_MS = { first: 2_000, most: 10 * 60_000 };
/** Returns the pause before the next try, which a forge can ask to prolong. */
export const statusPause = (tries: number, retryAfterMs = 0): number =>
  Math.min(BACKOFF_MS.most, Math.max(BACKOFF_MS.first * 3 ** Math.min(tries, 8), retryAfterMs));

/** Shortest limit of the forges for a description. */
const MAX_DESCRIPTION = 140;
const clip = (text: string): string =>
  text.length <= MAX_DESCRIPTION ? text : `${text.slice(0, MAX_DESCRIPTION - 1)}…`;

type Changed = Pick<DeploymentRecord, 'generation'> & {
  status: DeploymentState;
  code: keyof typeof FAILURES | null;
  why: string | null;
};

/**
 * Returns the status of a deployment that got this state, or null if the state has none. The
 * description contains no details of a failure: everybody who sees the repository reads it.
 */
export function statusOf({
  generation,
  status,
  code,
  why,
}: Changed): Pick<StatusRecord, 'state' | 'description'> | null {
  const name = `deployment ${generation}`;
  switch (status) {
    case 'pending':
    case 'built':
      return { state: 'pending', description: `${name} is in progress` };
    case 'running':
      return { state: 'success', description: `${name} is live` };
    case 'failed':
      return {
        state: 'failure',
        description: clip(
          `${name} failed: ${code === null ? 'see the deployment' : FAILURES[code]}`,
        ),
      };
    case 'cancelled':
      return {
        state: 'failure',
        description: clip(`${name} was cancelled${why === null ? '' : `: ${why}`}`),
      };
    case 'superseded':
      return {
        state: 'failure',
        description: clip(`${name} was superseded${why === null ? '' : `: ${why}`}`),
      };
    default:
      return null;
  }
}

/**
 * Describes the failure status of a pushed commit that is not deployed, because a newer push
 * replaced it.
 */
export const replacedText = (generation: number): string =>
  `superseded: a newer push is deployed as deployment ${generation}`;
