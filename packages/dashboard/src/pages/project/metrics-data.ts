/**
 * Turns the points of containers into the lines of charts. Counters become rates; missing points
 * become gaps.
 */
import type { MetricPoint, ProjectMetrics } from '@berth/wire/metrics';

/** One value for each time of `at`; null: not known. */
export type Line = (number | null)[];
/**
 * All lines have one value for each time of `at` (seconds since 1970), which has every step from
 * the first point to the last.
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
/** Points come every minute or quarter of an hour, not to the second. A longer pause is a gap. */
const GAP_STEPS = 2.5;

/**
 * The use of the whole project. While a deployment switches, two containers have points, which are
 * added up.
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
    /** Two points of one container can fall into one step: the later one counts. */
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

/** Change of a counter per second. Counters begin at 0 with each start of the container. */
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
  // The clock of the node says when the container started. It can be wrong, so only a time between
  // the two points counts.
  const alive = point.started_at === null ? null : seconds(point.started_at, point.at);
  const longest = Math.min(between ?? Infinity, GAP_STEPS * step);
  return alive === null || alive <= 0 || alive > longest ? null : value / alive;
}

const seconds = (from: string, to: string): number => (Date.parse(to) - Date.parse(from)) / 1_000;

/** The last and the highest known value, and when it was highest. Null: no value is known. */
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

/** Fewer rows for a table: each has the highest value of its part of the time. */
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
