/**
 * Resource usage of containers: one point per minute, kept for 1 day, and one point per 15 minutes,
 * kept for 30 days.
 */
import { METRIC_VALUES } from '@berth/wire/metrics';

export type UsageValues = Record<(typeof METRIC_VALUES)[number], number | null>;
/** `at` and `started_at` are in ms. */
export type UsagePoint = UsageValues & {
  deployment_id: string;
  /** Label of its container; null: its container has no label of an instance. */
  instance_id: string | null;
  process: string;
  /** Number of its instance. */
  number: number;
  at: number;
  started_at: number | null;
};

/** A point that an agent sent. The store adds the process and the number of the instance. */
export type ReportedPoint = Omit<UsagePoint, 'process' | 'number'>;

/** `ms`: length of a slot. Each instance has at most one point in a slot. */
export type UsageStep = { ms: number; keptMs: number };
export const MINUTES: UsageStep = { ms: 60_000, keptMs: 86_400_000 };
export const QUARTERS: UsageStep = { ms: 900_000, keptMs: 30 * 86_400_000 };
export const USAGE_STEPS = [MINUTES, QUARTERS] as const;

/** Returns the finest step whose points reach back to `from`. */
export const stepFor = (from: number, now: number): UsageStep =>
  now - from <= MINUTES.keptMs ? MINUTES : QUARTERS;

export type UsageRange = {
  project_id: string;
  step: UsageStep;
  from: number;
  to: number;
  /** Only this process, or the instances with this number. */
  process?: string;
  number?: number;
};

/** Returns the sum of two values; null only if both are unknown. */
export const plus = (a: number | null, b: number | null): number | null => {
  if (a === null) return b;
  return b === null ? a : a + b;
};

/** One point of a deployment: the sum of its instances. */
export type SummedPoint = UsageValues & {
  deployment_id: string;
  at: number;
  /**
   * Time of the last start of a container. A start resets the counters, so do not compare them with
   * earlier sums.
   */
  started_at: number | null;
  /** Null if the sum covers several processes. `number` is null if it covers several instances. */
  process: string | null;
  number: number | null;
};

/**
 * Returns the sum of the instances for each deployment and slot, oldest first. Nodes send their
 * points at different moments of a minute. So a slot is left out for its first minute, unless every
 * instance of the previous slot has a point in it.
 */
export function sumsOf(points: readonly UsagePoint[], step: UsageStep, now: number): SummedPoint[] {
  const groups = Map.groupBy(points, ({ deployment_id, at }) => slotKey(deployment_id, at, step));
  return [...groups.values()]
    .filter((group) => !isIncomplete(group, groups, step, now))
    .map((group) => group.map(summed).reduce(added))
    .sort((a, b) => a.at - b.at);
}

const slotKey = (deployment: string, at: number, { ms }: UsageStep, back = 0): string =>
  `${Math.floor(at / ms) - back} ${deployment}`;
const instanceKey = ({ process, number }: UsagePoint): string => `${process} ${number}`;

function isIncomplete(
  group: readonly UsagePoint[],
  groups: ReadonlyMap<string, readonly UsagePoint[]>,
  step: UsageStep,
  now: number,
): boolean {
  const [one] = group;
  if (one === undefined) return false;
  const slotBegin = Math.floor(one.at / step.ms) * step.ms;
  if (now - slotBegin >= MINUTES.ms) return false;
  const present = new Set(group.map(instanceKey));
  const before = groups.get(slotKey(one.deployment_id, one.at, step, 1)) ?? [];
  return before.some((point) => !present.has(instanceKey(point)));
}

const summed = ({ instance_id: _, ...point }: UsagePoint): SummedPoint => point;

function added(a: SummedPoint, b: SummedPoint): SummedPoint {
  const values = METRIC_VALUES.map((value) => [value, plus(a[value], b[value])] as const);
  return {
    deployment_id: a.deployment_id,
    at: Math.max(a.at, b.at),
    started_at: latest(a.started_at, b.started_at),
    process: a.process === b.process ? a.process : null,
    number: a.process === b.process && a.number === b.number ? a.number : null,
    ...(Object.fromEntries(values) as UsageValues),
  };
}

const latest = (a: number | null, b: number | null): number | null =>
  a === null || b === null ? (a ?? b) : Math.max(a, b);

export type UsageStore = {
  /**
   * Stores points of instances that are assigned to the node; ignores other points. A slot keeps
   * its newest point; a 15-minute slot also keeps its highest `memory_bytes`. Sending a point twice
   * changes nothing. Returns the number of accepted points.
   */
  record(nodeId: string, points: readonly ReportedPoint[]): Promise<number>;
  /** Returns the newest `most` points of the range, oldest first. */
  read(range: UsageRange, most: number): Promise<UsagePoint[]>;
  /**
   * Returns the sum of the newest points since `from` for each project: at most `most` projects,
   * highest memory first. Reads a bounded number of points, so that a scrape stays cheap.
   */
  present(from: number, most: number): Promise<{ project: string; values: UsageValues }[]>;
  /** Removes a bounded number of expired points. Returns the number of rows. */
  sweep(now: number): Promise<number>;
};
