/**
 * Schedules of jobs: five cron fields, or one of four names, in a time zone. Pure.
 *
 * Daylight saving: a time that is skipped runs at the first moment after the gap; a local time that
 * comes twice runs the first time. If both day fields are restricted, either one matches (POSIX,
 * crontab).
 */
import { Cron } from 'croner';
import type { BrokenRule } from './field-rules.ts';

/** A map: a property of an object would also be found by `constructor`. */
const NAMES: ReadonlyMap<string, string> = new Map([
  ['@hourly', '0 * * * *'],
  ['@daily', '0 0 * * *'],
  ['@weekly', '0 0 * * 0'],
  ['@monthly', '0 0 1 * *'],
]);
const MONTHS = 'JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC';
const DAYS = 'SUN|MON|TUE|WED|THU|FRI|SAT';
/** One field: numbers, `*`, ranges, steps and lists; the last two also take names. */
const part = (value: string): string => `(?:\\*|${value}(?:-${value})?)(?:/\\d{1,2})?`;
const fieldOf = (value: string): RegExp => new RegExp(`^${part(value)}(?:,${part(value)})*$`, 'i');
const NUMBER = fieldOf('\\d{1,2}');
const FIELDS = [
  NUMBER,
  NUMBER,
  NUMBER,
  fieldOf(`(?:\\d{1,2}|${MONTHS})`),
  fieldOf(`(?:\\d{1,2}|${DAYS})`),
];
const FIELD_NAMES = ['minute', 'hour', 'day of the month', 'month', 'day of the week'] as const;
const EXAMPLE = 'such as "0 6 * * MON" (Mondays at 06:00), "*/15 * * * *" or "@daily"';
/** Maximum number of local times to look at, in hours that a zone repeats. */
const MOST_REPEATS = 2_000;

export type Schedule = {
  /** Returns the first time after `ms`; null: none comes. */
  next(ms: number): number | null;
  /** Returns the newest `most` times from `from` to `to`, both included, oldest first. */
  between(from: number, to: number, most: number): number[];
};

/** Returns the schedule, or the problem of a field. */
export function scheduleOf(
  text: string,
  timezone: string,
): { schedule: Schedule } | { problem: BrokenRule } {
  if (!isZone(timezone))
    return {
      problem: {
        field: 'timezone',
        rule: 'timezone',
        message: 'must be an IANA time zone such as Europe/Berlin or UTC',
      },
    };
  const pattern = NAMES.get(text.trim().toLowerCase()) ?? text.trim();
  const problem = patternProblem(pattern);
  if (problem !== null) return { problem: scheduleProblem('cron', problem) };
  try {
    const cron = new Cron(pattern, { timezone: 'UTC', paused: true });
    const schedule: Schedule = {
      next: (ms) => nextOf(cron, timezone, ms),
      between: (from, to, most) => timesBetween(cron, timezone, { from, to, most }),
    };
    // Looks from a fixed time, so that the answer does not depend on the day of the request.
    if (cron.nextRun(new Date(0)) === null)
      return { problem: scheduleProblem('never', 'is a time that never comes') };
    return { schedule };
  } catch (error) {
    return { problem: scheduleProblem('cron', plainReason(error)) };
  }
}

const scheduleProblem = (rule: string, what: string): BrokenRule => ({
  field: 'schedule',
  rule,
  message: `${what}; it must have five fields (minute, hour, day, month, day of the week), ${EXAMPLE}`,
});

function patternProblem(pattern: string): string | null {
  if (pattern.startsWith('@'))
    return `${pattern} is not known: the names are ${[...NAMES.keys()].join(', ')}`;
  const fields = pattern.split(/\s+/);
  if (fields.length !== FIELDS.length)
    return `has ${fields.length} field${fields.length === 1 ? '' : 's'}`;
  const wrong = fields.findIndex((field, i) => FIELDS[i]?.test(field) !== true);
  return wrong === -1 ? null : `the ${FIELD_NAMES[wrong]} is not a cron field: ${fields[wrong]}`;
}

/** The library begins its messages with the name of a class. */
const plainReason = (error: unknown): string =>
  (error instanceof Error ? error.message : String(error)).replace(/^Cron\w+: /, '');

function isZone(timezone: string): boolean {
  try {
    // The language of the format does not matter: only the time zone is checked.
    void new Intl.DateTimeFormat('en', { timeZone: timezone });
    return !/^[+-]/.test(timezone);
  } catch {
    return false;
  }
}

/**
 * Returns the first time after `after`. The library computes with local times as if they were UTC,
 * so that a local time never depends on the time zone of the machine.
 */
function nextOf(cron: Cron, timezone: string, after: number): number | null {
  let local = after + offsetOf(after, timezone);
  for (let i = 0; i < MOST_REPEATS; i++) {
    const next = cron.nextRun(new Date(local))?.getTime() ?? null;
    if (next === null) return null;
    const time = momentOf(next, timezone);
    // In the second of two equal hours, local times belong to the first one.
    if (time > after) return time;
    local = next;
  }
  return null;
}

/** Longest difference by which a zone sets its clock back, in ms. */
const LONGEST_SHIFT_MS = 3 * 3_600_000;

function timesBetween(
  cron: Cron,
  timezone: string,
  { from, to, most }: { from: number; to: number; most: number },
): number[] {
  // The latest local time that has passed: the clock of the zone might have been set back since.
  const local = to + Math.max(offsetOf(to, timezone), offsetOf(to - LONGEST_SHIFT_MS, timezone));
  const times = cron
    // The library leaves out the second of the given time.
    .previousRuns(most + MOST_REPEATED_TIMES, new Date(local + 1_000))
    .map((time) => momentOf(time.getTime(), timezone))
    .filter((time) => time >= from && time <= to);
  return [...new Set(times)].toSorted((a, b) => a - b).slice(-most);
}

/** Maximum number of times in the hours that a zone repeats: one for each minute. */
const MOST_REPEATED_TIMES = LONGEST_SHIFT_MS / 60_000;
const DAY_MS = 86_400_000;

/**
 * Returns the moment of a local time, which is in ms as if it were UTC. Returns the first one of
 * two, and the first moment after a gap.
 */
function momentOf(local: number, timezone: string): number {
  const offsets = [offsetOf(local - DAY_MS, timezone), offsetOf(local + DAY_MS, timezone)];
  const moments = offsets.map((offset) => local - offset);
  const valid = moments.filter((moment, i) => offsetOf(moment, timezone) === offsets[i]);
  if (valid.length > 0) return Math.min(...valid);
  // The change of the clock is between the two: find it.
  let [before, after] = [Math.min(...moments), Math.max(...moments)];
  const offset = offsetOf(after, timezone);
  while (after - before > 1) {
    const middle = Math.floor((before + after) / 2);
    if (offsetOf(middle, timezone) === offset) after = middle;
    else before = middle;
  }
  return after;
}

const FORMATS = new Map<string, Intl.DateTimeFormat>();
function formatOf(timezone: string): Intl.DateTimeFormat {
  const cached = FORMATS.get(timezone);
  if (cached !== undefined) return cached;
  const format = new Intl.DateTimeFormat('en', {
    timeZone: timezone,
    timeZoneName: 'longOffset',
    hourCycle: 'h23',
    ...{ year: 'numeric', month: '2-digit', day: '2-digit' },
    ...{ hour: '2-digit', minute: '2-digit', second: '2-digit' },
  });
  FORMATS.set(timezone, format);
  return format;
}

/** Returns the offset of the zone at this time, in ms. */
function offsetOf(ms: number, timezone: string): number {
  const name = partsOf(ms, timezone)['timeZoneName'] ?? 'GMT';
  const [, sign, hours, minutes, seconds] =
    /^GMT([+-])(\d{2}):(\d{2})(?::(\d{2}))?$/.exec(name) ?? [];
  if (sign === undefined) return 0;
  const size = Number(hours) * 3_600 + Number(minutes) * 60 + Number(seconds ?? 0);
  return (sign === '-' ? -size : size) * 1_000;
}

const partsOf = (ms: number, timezone: string): Record<string, string> =>
  Object.fromEntries(
    formatOf(timezone)
      .formatToParts(ms)
      .map(({ type, value }) => [type, value]),
  );

/** Returns the time as RFC 3339 with the offset of the zone. */
export function zonedTime(ms: number, timezone: string): string {
  const p = partsOf(ms, timezone);
  const offset = offsetOf(ms, timezone) === 0 ? '' : (p['timeZoneName'] ?? 'GMT').slice(3);
  const local = `${p['year']}-${p['month']}-${p['day']}T${p['hour']}:${p['minute']}:${p['second']}`;
  // RFC 3339 has no seconds in an offset; only zones of the past have them.
  return `${local}${offset === '' ? 'Z' : offset.slice(0, 6)}`;
}

/** Returns the next `count` times after `ms`. */
export function nextTimes(schedule: Schedule, ms: number, count: number): number[] {
  const times: number[] = [];
  for (let from = ms; times.length < count; ) {
    const next = schedule.next(from);
    if (next === null) return times;
    times.push(next);
    from = next;
  }
  return times;
}
