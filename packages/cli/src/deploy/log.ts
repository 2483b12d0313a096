/** Reads the stored log of a deployment. */
import type { LogLine } from '@berth/wire/deployment';
import type { Cli } from '../cli.ts';

const PAGE = 5_000;

/** Returns the last `count` lines. If retention removed the log, returns the reason instead. */
export async function tailOf(
  cli: Cli,
  id: string,
  count: number,
  wanted: (line: LogLine) => boolean = () => true,
): Promise<{ lines: LogLine[]; next: number; unavailable: string | null }> {
  let lines: LogLine[] = [];
  let after = 0;
  for (;;) {
    const page = await cli
      .client()
      .call('deploymentLogs', { params: { id }, query: { after, limit: PAGE }, timeoutMs: 60_000 });
    lines = [...lines, ...page.lines.filter(wanted)];
    lines = count === 0 ? [] : lines.slice(-count);
    after = page.next;
    if (page.lines.length < PAGE)
      return { lines, next: after, unavailable: page.unavailable ?? null };
  }
}
