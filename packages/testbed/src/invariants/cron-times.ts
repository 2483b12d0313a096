/**
 * The times of a schedule, computed minute by minute and without the library that Berth uses. Knows
 * patterns whose last three fields are `*`.
 */
const MINUTE_MS = 60_000;
/** Clocks go back by these steps. */
const STEPS_MS = [30 * MINUTE_MS, 60 * MINUTE_MS];

/** Returns the times from `from` to `to`. */
export function timesOf(
  { schedule, timezone }: { schedule: string; timezone: string },
  from: number,
  to: number,
): number[] {
  const [minutes = '*', hours = '*'] = schedule.split(' ');
  const fits = (local: number): boolean => {
    const date = new Date(local);
    return matches(minutes, date.getUTCMinutes()) && matches(hours, date.getUTCHours());
  };
  const localOf = clockOf(timezone);
  const times: number[] = [];
  for (let at = Math.ceil(from / MINUTE_MS) * MINUTE_MS; at <= to; at += MINUTE_MS) {
    const local = localOf(at);
    // The second of two equal local times is none.
    if (STEPS_MS.some((step) => localOf(at - step) === local)) continue;
    // A local time that the clock left out comes with the first moment after the gap.
    const before = localOf(at - MINUTE_MS);
    const first = local - before > MINUTE_MS ? before + MINUTE_MS : local;
    let isTime = false;
    for (let one = first; one <= local; one += MINUTE_MS) isTime ||= fits(one);
    if (isTime) times.push(at);
  }
  return times;
}

/** Returns the local time of a moment, as if it were UTC. */
function clockOf(timezone: string): (at: number) => number {
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone: timezone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
  });
  const seen = new Map<number, number>();
  return (at) => {
    const cached = seen.get(at);
    if (cached !== undefined) return cached;
    const parts = new Map(format.formatToParts(at).map(({ type, value }) => [type, Number(value)]));
    const of = (type: Intl.DateTimeFormatPartTypes): number => parts.get(type) ?? 0;
    const local = Date.UTC(of('year'), of('month') - 1, of('day'), of('hour'), of('minute'));
    seen.set(at, local);
    return local;
  };
}

function matches(field: string, value: number): boolean {
  return field.split(',').some((part) => {
    const [range = '*', step] = part.split('/');
    const [low, high] = range === '*' ? [0, 59] : range.split('-').map(Number);
    const last = high ?? low ?? 0;
    return value >= (low ?? 0) && value <= last && (value - (low ?? 0)) % Number(step ?? 1) === 0;
  });
}
