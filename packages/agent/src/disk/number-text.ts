/** Formats numbers for a deployment's log. Sizes: `decimalSizeText` of wire. */
export const countText = (count: number): string => count.toLocaleString('en-US');
export const filesText = (count: number): string =>
  count === 1 ? '1 file' : `${countText(count)} files`;
export function timeText(ms: number): string {
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  return ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : `${(ms / 3_600_000).toFixed(1)} h`;
}
