/** The visitors of npm run soak: steady requests, and streams. */
import { startProber } from '@berth/testbed/prober';
import { isWhole, STREAM_SECONDS, versionOn } from './application.ts';
import { printLine, violated } from './report.ts';
import type { Soak } from './world.ts';

/** Requests in a second to all projects together. */
const PER_SECOND = 100;
/** Streams that are open at a time. */
const STREAMS = 10;

/** Visits all projects until it is stopped; then no answer may be missing, old, cut or foreign. */
export function startLoad({ world: { berth }, targets }: Soak): { stop(): Promise<void> } {
  const wrong: string[] = [];
  const probe = (name: string, perSecond: number, path: '/' | '/stream') =>
    startProber({
      entry: berth.entry,
      host: `${name}.${berth.baseDomain}`,
      path,
      perSecond: perSecond / targets.length,
      versionOf(body) {
        const version = versionOn(body, name);
        if (version === undefined) wrong.push(`${name} showed another project: ${body}`);
        else if (path === '/stream' && !isWhole(body)) wrong.push(`a stream of ${name} was cut`);
        return version ?? Number.NaN;
      },
    });
  const names = targets.map(({ project }) => project.name);
  const requests = names.map((name) => probe(name, PER_SECOND, '/'));
  const streams = names.map((name) => probe(name, STREAMS / STREAM_SECONDS, '/stream'));
  const end = async (what: string, probers: typeof requests): Promise<void> => {
    const reports = await Promise.all(probers.map((prober) => prober.stop()));
    const [sent = 0, failed = 0, stale = 0] = (['sent', 'failed', 'stale'] as const).map((of) =>
      reports.reduce((sum, report) => sum + report[of], 0),
    );
    for (const text of reports.flatMap(({ failures }) => failures)) violated(`${what}: ${text}`);
    if (stale > 0) violated(`${what}: ${stale} came from an older version than one seen before`);
    if (sent === 0) violated(`there were no ${what}`);
    const most = (of: 'p50' | 'p99'): string =>
      Math.max(...reports.map((report) => report[of])).toFixed(1);
    printLine(
      `${what}: ${sent}, ${failed} failed, ${stale} stale; of the slowest project ` +
        `p50 ${most('p50')} ms, p99 ${most('p99')} ms`,
    );
  };
  return {
    async stop() {
      await Promise.all([end('requests', requests), end('streams', streams)]);
      for (const text of new Set(wrong)) violated(text);
      printLine(`${wrong.length} answers cut or of another project`);
    },
  };
}
