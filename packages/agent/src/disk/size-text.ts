/** Formats numbers for a deployment's log. */
const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'] as const;

export function sizeText(bytes: number): string {
  let value = bytes;
  let unit = 0;
  // Values from 999.5 on would be rounded to 1000, so use the next unit.
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 99.95 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}
export const countText = (count: number): string => count.toLocaleString('en-US');
export const filesText = (count: number): string =>
  count === 1 ? '1 file' : `${countText(count)} files`;
export function timeText(ms: number): string {
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  return ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : `${(ms / 3_600_000).toFixed(1)} h`;
}
