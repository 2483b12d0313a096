/**
 * Formats sizes: in powers of 1,024 for the command line and the dashboard, in powers of 1,000 for
 * the log and the story of a deployment.
 */
const BINARY_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'] as const;
const DECIMAL_UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'] as const;

/** Formats a size, for example `850 B`, `1.5 KiB`, `120 MiB`. */
export function sizeText(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < BINARY_UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${BINARY_UNITS[unit]}`;
}

/**
 * Formats a size in powers of 1,000, like disk vendors and the placement score, for example `850 B`,
 * `1.5 kB`, `120 MB`.
 */
export function decimalSizeText(bytes: number): string {
  let value = bytes;
  let unit = 0;
  // Values from 999.5 on would be rounded to 1000, so use the next unit.
  while (Math.abs(value) >= 999.5 && unit < DECIMAL_UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const isRound = unit === 0 || Math.abs(value) >= 99.95;
  return `${isRound ? Math.round(value) : value.toFixed(1)} ${DECIMAL_UNITS[unit]}`;
}
