/**
 * `npm run bench -- data`: scans, copies, placement, and the API during a scan, one after the
 * other.
 */
import { benchDataApi } from './data-api.ts';
import { benchDataCopy } from './data-copy.ts';
import { benchPlacement } from './data-placement.ts';
import { benchDataScan } from './data-scan.ts';

export async function benchData(): Promise<string[]> {
  const lines: string[] = [];
  for (const bench of [benchDataScan, benchDataCopy, benchPlacement, benchDataApi])
    lines.push(...(await bench()));
  return lines;
}
