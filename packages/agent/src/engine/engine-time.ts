/** Formats times for queries of the engine. Pure. */

/** Converts an RFC 3339 time to seconds since 1970, with nine decimal places. */
export function engineTime(at: string): string {
  const [, digits = ''] = /\.(\d{1,9})/.exec(at) ?? [];
  const seconds = Math.floor(Date.parse(at.replace(/\.\d+/, '')) / 1000);
  if (Number.isNaN(seconds)) throw new Error(`${at} is not a time in RFC 3339`);
  return `${seconds}.${digits.padEnd(9, '0')}`;
}
