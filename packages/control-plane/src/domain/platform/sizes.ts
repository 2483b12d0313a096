/** Formats bytes for people. */
const UNITS = ['bytes', 'kB', 'MB', 'GB', 'TB', 'PB'] as const;

/** Returns the size as text in powers of 1,000, like disk vendors and the placement score. */
export function bytesText(bytes: number): string {
  let unit = 0;
  let value = bytes;
  while (Math.abs(value) >= 999.95 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}
