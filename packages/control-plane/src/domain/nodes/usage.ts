/**
 * Points of what containers use: one a minute for a day, and one a quarter of an hour for 30 days.
 */
import type { METRIC_VALUES } from '@berth/wire/metrics';

export type UsageValues = Record<(typeof METRIC_VALUES)[number], number | null>;
/** `at` and `started_at` are in ms. */
export type UsagePoint = UsageValues & {
  deployment_id: string;
  at: number;
  started_at: number | null;
};

/** `ms`: length of a slot. Each deployment has at most one point in a slot. */
export type UsageStep = { ms: number; keptMs: number };
export const MINUTES: UsageStep = { ms: 60_000, keptMs: 86_400_000 };
export const QUARTERS: UsageStep = { ms: 900_000, keptMs: 30 * 86_400_000 };
export const USAGE_STEPS = [MINUTES, QUARTERS] as const;

/** Returns the step whose points reach back to `from`. */
export const stepFor = (from: number, now: number): UsageStep =>
  now - from <= MINUTES.keptMs ? MINUTES : QUARTERS;

export type UsageStore = {
  /**
   * Stores points of deployments that are assigned to the node, and ignores the others. Of several
   * points in one slot the newest stays; a quarter of an hour keeps its highest `memory_bytes`. A
   * point that is sent twice has no further effect. Returns the number of points that it accepted.
   */
  record(nodeId: string, points: readonly UsagePoint[]): Promise<number>;
  /** Returns the newest `most` points of the range, oldest first. */
  read(
    range: { project_id: string; step: UsageStep; from: number; to: number },
    most: number,
  ): Promise<UsagePoint[]>;
  /**
   * Returns the sums of the newest points since `from`, by project: those with the highest memory
   * first, at most `most`. It reads a bounded number of points, so that a scrape stays cheap.
   */
  present(from: number, most: number): Promise<{ project: string; values: UsageValues }[]>;
  /** Removes some points that are too old. Returns the number of rows. */
  sweep(now: number): Promise<number>;
};
