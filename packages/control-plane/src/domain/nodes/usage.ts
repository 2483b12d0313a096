/**
 * Resource usage of containers: one point per minute, kept for 1 day, and one point per 15 minutes,
 * kept for 30 days.
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

/** Returns the finest step whose points reach back to `from`. */
export const stepFor = (from: number, now: number): UsageStep =>
  now - from <= MINUTES.keptMs ? MINUTES : QUARTERS;

export type UsageStore = {
  /**
   * Stores points of deployments that are assigned to the node; ignores other points. A slot keeps
   * its newest point; a 15-minute slot also keeps its highest `memory_bytes`. Sending a point twice
   * changes nothing. Returns the number of accepted points.
   */
  record(nodeId: string, points: readonly UsagePoint[]): Promise<number>;
  /** Returns the newest `most` points of the range, oldest first. */
  read(
    range: { project_id: string; step: UsageStep; from: number; to: number },
    most: number,
  ): Promise<UsagePoint[]>;
  /**
   * Returns the sum of the newest points since `from` for each project: at most `most` projects,
   * highest memory first. Reads a bounded number of points, so that a scrape stays cheap.
   */
  present(from: number, most: number): Promise<{ project: string; values: UsageValues }[]>;
  /** Removes a bounded number of expired points. Returns the number of rows. */
  sweep(now: number): Promise<number>;
};
