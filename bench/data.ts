/** `npm run bench -- data`: scans, copies and placement, one after the other. */
import { benchDataCopy } from './data-copy.ts';
import { benchPlacement } from './data-placement.ts';
import { benchDataScan } from './data-scan.ts';

export async function benchData(): Promise<string[]> {
  const lines: string[] = [];
  for (const bench of [benchDataScan, benchDataCopy, benchPlacement]) lines.push(...(await bench()));
  return lines;
}
