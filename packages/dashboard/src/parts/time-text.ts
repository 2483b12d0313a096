/** Formats times, durations and counts. */

const UNITS = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
] as const;
const relative = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });

/** `at` is RFC 3339, `now` is in ms. Within 10 s is "just now", even if a clock is ahead. */
export function relativeTime(at: string, now: number): string {
  const seconds = Math.round((Date.parse(at) - now) / 1000);
  if (Math.abs(seconds) < 10) return 'just now';
  if (Math.abs(seconds) >= 45 * 86_400) return new Date(at).toLocaleDateString('en-CA');
  for (const [unit, size] of UNITS)
    if (Math.abs(seconds) >= size) return relative.format(Math.trunc(seconds / size), unit);
  return relative.format(seconds, 'second');
}

const zone = new Intl.DateTimeFormat('en-CA', { timeZoneName: 'short' });
/**
 * Cache of the browser's time zone names, by year and offset: the formatter takes longer than
 * rendering a whole table row.
 */
const zones = new Map<string, string>();
export function zoneAt(date: Date): string {
  const key = `${date.getFullYear()} ${date.getTimezoneOffset()}`;
  const name =
    zones.get(key) ??
    zone.formatToParts(date).find(({ type }) => type === 'timeZoneName')?.value ??
    '';
  zones.set(key, name);
  return name;
}
const two = (part: number): string => String(part).padStart(2, '0');
/** Formats a time as 2026-11-24 05:01:02 UTC, in the browser's time zone. */
export function exactTime(at: string): string {
  const date = new Date(at);
  const day =
    `${String(date.getFullYear()).padStart(4, '0')}-${two(date.getMonth() + 1)}-` +
    two(date.getDate());
  return (
    `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())} ` +
    zoneAt(date)
  );
}

const restText = (rest: string, unit: string): string =>
  Number(rest) === 0 ? '' : ` ${rest} ${unit}`;
/** Formats a duration: 850 ms, 4.2 s, 3 min 05 s, 24 h, 2 h 10 min, 3 d 4 h. */
export function durationText(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min${restText(two(seconds % 60), 's')}`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 48 * 60)
    return `${Math.floor(minutes / 60)} h${restText(two(minutes % 60), 'min')}`;
  const hours = Math.floor((minutes % 1440) / 60);
  return `${Math.floor(minutes / 1440)} d${restText(String(hours), 'h')}`;
}

export const countText = (count: number, one: string, many = `${one}s`): string =>
  `${count.toLocaleString('en')} ${count === 1 ? one : many}`;
