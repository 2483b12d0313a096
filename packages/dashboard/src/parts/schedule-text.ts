/** Schedules of jobs in words, and their times in the time zone of the job. */

const NAMED: ReadonlyMap<string, string> = new Map([
  ['@hourly', 'every hour'],
  ['@daily', 'every day at 00:00'],
  ['@weekly', 'Sundays at 00:00'],
  ['@monthly', 'on the 1st of each month at 00:00'],
]);
const DAYS = [
  'Sundays',
  'Mondays',
  'Tuesdays',
  'Wednesdays',
  'Thursdays',
  'Fridays',
  'Saturdays',
  'Sundays',
];
const SHORT = ['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT'];

/** Describes the days of a schedule; null if it takes the pattern to say which. */
function daysText(day: string, month: string, weekday: string): string | null {
  if (month !== '*') return null;
  if (day === '*' && weekday === '*') return 'every day';
  if (day !== '*') return weekday === '*' && /^\d+$/.test(day) ? `day ${day} of each month` : null;
  if (weekday === '1-5' || weekday.toUpperCase() === 'MON-FRI') return 'Mondays to Fridays';
  const short = SHORT.indexOf(weekday.toUpperCase());
  return DAYS[short === -1 ? Number(weekday) : short] ?? null;
}

/** Describes a common schedule in words. Returns null for another one: the page shows its pattern. */
export function scheduleText(schedule: string): string | null {
  const named = NAMED.get(schedule.trim());
  if (named !== undefined) return named;
  const [minute = '', hour = '', day = '', month = '', weekday = ''] = schedule.trim().split(/\s+/);
  const days = daysText(day, month, weekday);
  if (days === null) return null;
  const every = /^\*\/(\d+)$/.exec(minute)?.[1];
  if (hour === '*' && days === 'every day') {
    if (minute === '*') return 'every minute';
    if (every !== undefined && 60 % Number(every) === 0) return `every ${every} minutes`;
    return /^\d+$/.test(minute) ? `every hour at minute ${minute}` : null;
  }
  if (!/^\d+$/.test(minute) || !/^\d+$/.test(hour)) return null;
  return `${days} at ${hour.padStart(2, '0')}:${minute.padStart(2, '0')}`;
}

/** Shows a time with the offset of its zone: `2026-11-30 06:00 +01:00`. */
export function zonedText(at: string): string {
  const [, day, time, offset] =
    /^(\d+-\d+-\d+)T(\d+:\d+)(?::[\d.]+)?(Z|[+-]\d+:\d+)$/.exec(at) ?? [];
  if (day === undefined) return at;
  return `${day} ${time} ${offset === 'Z' ? 'UTC' : offset}`;
}
