/** `berth metrics`: shows which resources the containers of a project use. */
import { defined } from '@berth/kit/defined';
import type { MetricPoint, ProjectMetrics } from '@berth/wire/metrics';
import { sizeText } from '@berth/wire/size-text';
import { oneLine, table } from '../output/text.ts';
import { usage } from '../problem.ts';
import type { Command } from './command.ts';
import { timeText } from './logs.ts';
import { positive } from './number.ts';

/** Maximum number of table rows, so that the table fits on a screen. */
const ROWS = 20;
const HOUR_MS = 3_600_000;

export const METRICS_COMMANDS: readonly Command[] = [
  {
    name: 'metrics',
    summary: 'Show what the containers of a project use: CPU, memory, network, restarts',
    detail:
      `A table of at most ${ROWS} rows; --json prints every point. CPU and network are ` +
      'averages of ' +
      'the time since the row before. A row is the sum of the instances.',
    args: [{ name: 'project', doc: 'name or id; default: the project of this folder' }],
    options: [
      {
        flags: '--since <time>',
        doc: 'from then on: RFC 3339, or 10m, 2h, 1d (default 1h)',
        parse: timeText,
      },
      { flags: '--until <time>', doc: 'until then', parse: timeText },
      { flags: '--process <name>', doc: 'only this process' },
      {
        flags: '--instance <number>',
        doc: 'only the instance with this number',
        parse: positive,
      },
    ],
    aboutProject: true,
    routes: ['getProject', 'projectMetrics'],
    async run(cli, [named], options) {
      const until = options['until'] as number | undefined;
      const since = (options['since'] as number | undefined) ?? (until ?? Date.now()) - HOUR_MS;
      if (until !== undefined && since > until) throw usage('--since must not be after --until');
      const project = await cli.project(named);
      const query = {
        from: new Date(since).toISOString(),
        ...defined({
          to: until === undefined ? undefined : new Date(until).toISOString(),
          process: options['process'] as string | undefined,
          instance: options['instance'] as number | undefined,
        }),
      };
      const metrics = await cli
        .client()
        .call('projectMetrics', { params: { id: project.id }, query });
      cli.print(metrics, () => metricsText(metrics));
      if (cli.json) return;
      if (metrics.unavailable !== undefined) cli.say(`note: ${oneLine(metrics.unavailable)}`);
      if (metrics.truncated)
        cli.say('note: older points of this time are left out; choose a shorter one');
    },
  },
];

export type MetricRow = {
  at: string;
  point: MetricPoint;
  cpu: number | null;
  rx: number | null;
  tx: number | null;
};

/**
 * Picks evenly spaced points of each deployment, and computes rates from the previous point of the
 * same container run. `cpu` is in cores.
 */
export function rowsOf(points: readonly MetricPoint[], most = ROWS): MetricRow[] {
  const [first, last] = [points[0], points.at(-1)];
  if (first === undefined || last === undefined) return [];
  const width = Math.max(1, (Date.parse(last.at) - Date.parse(first.at)) / most);
  const before = new Map<string, MetricPoint>();
  const shown = new Map<string, MetricRow>();
  for (const point of points) {
    const slot = Math.min(
      most - 1,
      Math.floor((Date.parse(point.at) - Date.parse(first.at)) / width),
    );
    shown.set(`${slot} ${point.deployment_id}`, {
      at: point.at,
      point,
      cpu: null,
      rx: null,
      tx: null,
    });
  }
  return [...shown.values()].map((row) => {
    const earlier = before.get(row.point.deployment_id);
    before.set(row.point.deployment_id, row.point);
    if (earlier === undefined || earlier.started_at !== row.point.started_at) return row;
    const seconds = (Date.parse(row.at) - Date.parse(earlier.at)) / 1000;
    const rate = (value: 'cpu_seconds' | 'net_rx' | 'net_tx'): number | null => {
      const [a, b] = [earlier[value], row.point[value]];
      return a === null || b === null || seconds <= 0 ? null : Math.max(0, b - a) / seconds;
    };
    return { ...row, cpu: rate('cpu_seconds'), rx: rate('net_rx'), tx: rate('net_tx') };
  });
}

function metricsText({ points }: ProjectMetrics): string {
  if (points.length === 0) return 'no points in this time';
  const rows = rowsOf(points);
  const several = new Set(rows.map(({ point }) => point.deployment_id)).size > 1;
  const count = (value: number | null): string => (value === null ? '–' : String(value));
  const size = (value: number | null): string => (value === null ? '–' : sizeText(value));
  const speed = (value: number | null): string => (value === null ? '–' : `${sizeText(value)}/s`);
  return table(rows, [
    { head: 'TIME', of: ({ at }) => at.slice(0, 19).replace('T', ' ') },
    ...(several ? [{ head: 'DEPLOYMENT', of: ({ point }: MetricRow) => point.deployment_id }] : []),
    { head: 'CPU', of: ({ cpu }) => (cpu === null ? '–' : `${(cpu * 100).toFixed(1)} %`) },
    { head: 'MEMORY', of: ({ point }) => size(point.memory_bytes) },
    {
      head: 'LIMIT',
      of: ({ point }) => (point.memory_limit === null ? 'none' : sizeText(point.memory_limit)),
    },
    { head: 'RESTARTS', of: ({ point }) => count(point.restarts) },
    { head: 'OOM KILLS', of: ({ point }) => count(point.oom_kills) },
    { head: 'RECEIVED', of: ({ rx }) => speed(rx) },
    { head: 'SENT', of: ({ tx }) => speed(tx) },
  ]);
}
