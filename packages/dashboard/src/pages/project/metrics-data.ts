/** Converts container points to chart lines: counters to rates, missing points to gaps. */
import type { PlacedInstance } from '@berth/wire/instance';
import type { MetricPoint, ProjectMetrics } from '@berth/wire/metrics';

/** One value for each time in `at`; null if the value is not known. */
export type Line = (number | null)[];
/**
 * The lines of all charts. `at` has every step (seconds since 1970) from the first point to the
 * last, and each line has one value per step.
 */
export type ChartLines = {
  at: number[];
  memory: Line;
  limit: Line;
  cpu: Line;
  throttled: Line;
  received: Line;
  sent: Line;
};

type Counter = 'cpu_seconds' | 'throttled_seconds' | 'net_rx' | 'net_tx';
/**
 * A pause longer than this number of steps is a gap. Points arrive every minute or every 15
 * minutes, but not exactly.
 */
const GAP_STEPS = 2.5;

/**
 * Returns the usage of the whole project. While a deployment replaces another, two containers have
 * points, and their values are added.
 */
export function linesOf({
  points,
  step_seconds: step,
}: Pick<ProjectMetrics, 'points' | 'step_seconds'>): ChartLines {
  const lines: ChartLines = {
    at: [],
    memory: [],
    limit: [],
    cpu: [],
    throttled: [],
    received: [],
    sent: [],
  };
  const slotOf = ({ at }: MetricPoint): number => Math.floor(Date.parse(at) / 1_000 / step);
  const slots = points.map(slotOf);
  const [first, last] = [Math.min(...slots), Math.max(...slots)];
  if (points.length === 0) return lines;
  for (let slot = first; slot <= last; slot++) {
    lines.at.push(slot * step);
    for (const line of [
      lines.memory,
      lines.limit,
      lines.cpu,
      lines.throttled,
      lines.received,
      lines.sent,
    ])
      line.push(null);
  }
  for (const own of Map.groupBy(points, ({ deployment_id }) => deployment_id).values()) {
    const sorted = own.toSorted((a, b) => Date.parse(a.at) - Date.parse(b.at));
    /** If two points of a container fall into one step, the later point counts. */
    const bySlot = new Map(
      sorted.map((point, index) => [slotOf(point), { point, before: sorted[index - 1] }]),
    );
    for (const [slot, { point, before }] of bySlot) {
      const index = slot - first;
      const add = (line: Line, value: number | null): void => {
        if (value !== null) line[index] = (line[index] ?? 0) + value;
      };
      add(lines.memory, point.memory_bytes);
      add(lines.limit, point.memory_limit);
      add(lines.cpu, rateOf('cpu_seconds', point, before, step));
      add(lines.throttled, rateOf('throttled_seconds', point, before, step));
      add(lines.received, rateOf('net_rx', point, before, step));
      add(lines.sent, rateOf('net_tx', point, before, step));
    }
  }
  return lines;
}

/**
 * Returns the numbers of the instances to choose from: those that the project should have, those
 * that it has, and the chosen one, which stays when the project is scaled down.
 */
export function instanceNumbers(
  wanted: number,
  instances: readonly Pick<PlacedInstance, 'number'>[],
  chosen: number | null,
): number[] {
  const numbers = new Set(Array.from({ length: wanted }, (_, index) => index + 1));
  for (const { number } of instances) numbers.add(number);
  if (chosen !== null) numbers.add(chosen);
  return [...numbers].toSorted((a, b) => a - b);
}

/** Returns the change of a counter per second. Each container start resets the counter to 0. */
function rateOf(
  name: Counter,
  point: MetricPoint,
  before: MetricPoint | undefined,
  step: number,
): number | null {
  const value = point[name];
  if (value === null) return null;
  const between = before === undefined ? null : seconds(before.at, point.at);
  const old = before?.[name] ?? null;
  const restarted =
    before === undefined || before.started_at !== point.started_at || (old !== null && value < old);
  if (!restarted)
    return old === null || between === null || between <= 0 || between > GAP_STEPS * step
      ? null
      : (value - old) / between;
  // The node's clock gives the start time of the container and can be wrong, so use the start time
  // only if it is between the two points.
  const alive = point.started_at === null ? null : seconds(point.started_at, point.at);
  const longest = Math.min(between ?? Infinity, GAP_STEPS * step);
  return alive === null || alive <= 0 || alive > longest ? null : value / alive;
}

const seconds = (from: string, to: string): number => (Date.parse(to) - Date.parse(from)) / 1_000;

/** Returns the last and the highest known value, and the time of the highest; null if none. */
export function summaryOf(
  at: readonly number[],
  line: Line,
): { now: number | null; most: number; mostAt: number } | null {
  let most: { value: number; at: number } | null = null;
  for (const [index, value] of line.entries())
    if (value !== null && (most === null || value > most.value))
      most = { value, at: at[index] ?? 0 };
  return most === null ? null : { now: line.at(-1) ?? null, most: most.value, mostAt: most.at };
}

/** Reduces the rows for a table: each row has the highest value of its time range. */
export function rowsOf(
  at: readonly number[],
  lines: readonly Line[],
  most: number,
): { at: number; values: (number | null)[] }[] {
  const size = Math.ceil(at.length / most);
  const highest = (part: Line): number | null => {
    const values = part.filter((value) => value !== null);
    return values.length === 0 ? null : Math.max(...values);
  };
  return Array.from({ length: Math.ceil(at.length / Math.max(1, size)) }, (_, row) => ({
    at: at[row * size] ?? 0,
    values: lines.map((line) => highest(line.slice(row * size, (row + 1) * size))),
  }));
}
