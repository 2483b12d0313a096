/**
 * Interface to the logs of deployments. Each method runs its own transaction,
 * and documents its rule and the codes of DomainError that it throws. Implemented in store/.
 */
import type { LogLineIn } from '@berth/wire/task';
import type { LogLineRecord } from '../platform/records.ts';

export type LogStore = {
  /**
   * Numbers and stores the lines, and returns the number of stored lines. If a log exceeds its
   * limit (lines, bytes), omits its middle and notes this in one line. `first`: number of the first
   * line within its attempt, so that a repeated batch is stored only once. `keepsTime`: remembers
   * the time of the newest line of the command (`loggedUntil`). Throws not_found.
   */
  append(
    deploymentId: string,
    source: { task_id: string; attempt: number; first: number | null; keepsTime?: boolean },
    lines: readonly LogLineIn[],
    now: number,
  ): Promise<number>;
  /**
   * Returns the engine's time of the last stored line of the release command, with nanoseconds, or
   * null.
   */
  loggedUntil(deploymentId: string): Promise<string | null>;
  /** Returns lines with seq > after, in order. */
  read(deploymentId: string, after: number, limit: number): Promise<LogLineRecord[]>;
};
