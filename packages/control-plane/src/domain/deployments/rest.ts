/** Whether and why the container of a running version is stopped. Pure. */
import type { StopCause } from '@berth/wire/deployment';
import type { DeploymentRecord } from '../platform/records.ts';
import { waitReasonOf } from './wait-reason.ts';

type Version = Pick<
  DeploymentRecord,
  'status' | 'stopped_first' | 'health' | 'waiting' | 'waiting_reason'
>;

/** Returns null if Berth has not stopped the container. Only a stop sets the health to null. */
export function restOf(d: Version): StopCause | null {
  if (d.status !== 'running' || d.stopped_first === null) return null;
  if (d.health !== null) return 'newer_version';
  const reason = waitReasonOf(d);
  const isAtZero =
    reason?.kind === 'scaled_to_zero' ||
    ((reason?.kind === 'project_stopped_but_runs' || reason?.kind === 'project_stopped_and') &&
      reason.at_zero === true);
  return isAtZero ? 'scaled_to_zero' : 'stopped';
}

/**
 * Returns whether the container of a stopped project has ended: it stays, and holds no memory and no
 * device. `health`: null if the project is stopped.
 */
export const hasEnded = (
  { status, stopped_first }: Pick<DeploymentRecord, 'status' | 'stopped_first'>,
  health: unknown,
): boolean => status === 'running' && stopped_first === 'stopped' && health === null;
