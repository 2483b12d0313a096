/** Commit statuses of deployments, and the outbox that sends them to the forge. */
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
  /** Number of failed attempts to send it. */
  tries: number;
  /**
   * Times of the uptime clock: earliest next attempt, deadline for attempts, and end of the claim
   * of the control plane that sends the status.
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
   * Claims due statuses, oldest first. For each commit only the newest status is sent, one at a
   * time, so that the statuses of a commit arrive in order.
   */
  claim(at: { uptime: number; until: number }, most: number): Promise<StatusRecord[]>;
  /**
   * Ends a claim, as do `retry` and `giveUp`. Each returns false and changes nothing if the claim
   * expired and another claim replaced it.
   */
  sent(claim: StatusClaim, now: number): Promise<boolean>;
  retry(claim: StatusClaim, nextAt: number, error: string): Promise<boolean>;
  /** Gives up and adds a line to the story of the deployment. */
  giveUp(claim: StatusClaim, error: string, now: number): Promise<boolean>;
  /**
   * Makes the newest status of the commit due again, because the overtaken (older) status might
   * have reached the forge after the newest. Does nothing if the overtaken status is itself the
   * newest.
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

/** Berth retries a status for this long. */
export const STATUS_LIFETIME_MS = 3_600_000;
/** Retention of statuses that are done. */
export const STATUS_KEPT_MS = 30 * 86_400_000;
/** Maximum number of waiting statuses of one project. Beyond it, the oldest are dropped. */
export const MAX_WAITING_STATUSES = 500;

const BACKOFF_MS = { first: 2_000, most: 10 * 60_000 };
/** Returns the backoff in ms before the next attempt. A forge can request a longer one. */
export const statusPause = (tries: number, retryAfterMs = 0): number =>
  Math.min(BACKOFF_MS.most, Math.max(BACKOFF_MS.first * 3 ** Math.min(tries, 8), retryAfterMs));

/** Maximum length of a description: the smallest limit of all forges. */
const MAX_DESCRIPTION = 140;
const clip = (text: string): string =>
  text.length <= MAX_DESCRIPTION ? text : `${text.slice(0, MAX_DESCRIPTION - 1)}…`;

type Changed = Pick<DeploymentRecord, 'generation'> & {
  status: DeploymentState;
  code: keyof typeof FAILURES | null;
  why: string | null;
};

/**
 * Returns the commit status for this deployment state, or null if there is none. The description
 * omits details of a failure, because everybody with access to the repository can read it.
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
 * Returns the description for a pushed commit that is not deployed because a newer push replaced
 * it.
 */
export const replacedText = (generation: number): string =>
  `superseded: a newer push is deployed as deployment ${generation}`;
