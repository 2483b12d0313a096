/** The metrics of a project: charts, and the same values as a table. */
import type { Project } from '@berth/wire/project';
import type { ProjectMetrics } from '@berth/wire/metrics';
import { sizeText } from '@berth/wire/size-text';
import { defined } from '@berth/kit/defined';
import { useMemo, useState } from 'react';
import { useApiQuery } from '../../api/queries.ts';
import { Chart, type ChartLine } from '../../ui/chart.tsx';
import { Facts, Table } from '../../ui/data.tsx';
import { Select } from '../../ui/fields.tsx';
import { Note } from '../../ui/feedback.tsx';
import { Column, Columns, Panel } from '../../ui/layout.tsx';
import { countOf } from '../../parts/instance-text.ts';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { Command, Empty } from '../../parts/command.tsx';
import { instanceNumbers, type Line, linesOf, rowsOf, summaryOf } from './metrics-data.ts';
import { Exact } from '../../parts/time.tsx';
import { exactTime, relativeTime } from '../../parts/time-text.ts';

const HOURS = {
  '1': '1 hour',
  '6': '6 hours',
  '24': '1 day',
  '168': '7 days',
  '720': '30 days',
} as const;
type Hours = keyof typeof HOURS;
const ALL = 'all';
/** Poll interval in ms: agents send one point per minute. */
const AGAIN_MS = 60_000;
const TABLE_ROWS = 60;
/** Scale steps for bytes, so that marks are 1, 2, 4 … of a unit. */
const BYTE_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

const coresText = (value: number): string => value.toFixed(value < 10 ? 2 : 1);
const speedText = (value: number): string => `${sizeText(value)}/s`;
const timeOf = (at: number): string => exactTime(new Date(at * 1_000).toISOString());

export function Metrics({ project }: { project: Project }) {
  const [hours, setHours] = useState<Hours>('1');
  const [from, setFrom] = useState(() => startOf('1'));
  const [chosen, setChosen] = useState<number | null>(null);
  const numbers = useInstanceNumbers(project, chosen);
  const metrics = useApiQuery(
    'projectMetrics',
    { params: { id: project.id }, query: { from, ...defined({ instance: chosen ?? undefined }) } },
    { everyMs: AGAIN_MS },
  );
  const hasSeveral = numbers.length > 1;
  return (
    <Panel
      title="Metrics"
      id="metrics"
      actions={
        <>
          {chosen === null ? (
            <Command words={['metrics', project.name, '--since', `${hours}h`]} />
          ) : (
            <Command
              words={['metrics', project.name, '--since', `${hours}h`, '--instance', `${chosen}`]}
            />
          )}
          {hasSeveral && (
            <Select
              label="Instance"
              value={chosen === null ? ALL : String(chosen)}
              onChange={(value) => setChosen(value === ALL ? null : Number(value))}
              options={[
                { value: ALL, label: 'all, added up' },
                ...numbers.map((number) => ({ value: String(number), label: `#${number}` })),
              ]}
            />
          )}
          <Select
            label="Range"
            value={hours}
            onChange={(value) => {
              setHours(value);
              setFrom(startOf(value));
            }}
            options={Object.entries(HOURS).map(([value, label]) => ({
              value: value as Hours,
              label,
            }))}
          />
        </>
      }
    >
      <QueryBoundary query={metrics} what="the metrics">
        {(answer) => (
          <Column>
            {answer.unavailable !== undefined && <Note tone="warn">{answer.unavailable}</Note>}
            {answer.truncated && <Note>Only the newest points of this range are shown.</Note>}
            {answer.points.length === 0 ? (
              <Empty>
                {`No points ${chosen === null ? '' : `of instance #${chosen} `}in this range. A running container gives one a minute.`}
              </Empty>
            ) : (
              <Charts answer={answer} />
            )}
          </Column>
        )}
      </QueryBoundary>
    </Panel>
  );
}

/** Returns the numbers that a person can choose, also while the running deployment is unknown. */
function useInstanceNumbers(project: Project, chosen: number | null): number[] {
  const id = project.running_deployment_id;
  const { data } = useApiQuery(
    'getDeployment',
    { params: { id: id ?? '' } },
    { enabled: id !== null && !project.stopped },
  );
  return instanceNumbers(countOf(project), data?.instances ?? [], chosen);
}

const startOf = (hours: Hours): string =>
  new Date(Date.now() - Number(hours) * 3_600_000).toISOString();

function Charts({ answer }: { answer: ProjectMetrics }) {
  const lines = useMemo(() => linesOf(answer), [answer]);
  const { at } = lines;
  const charts = useMemo(() => chartsOf(lines), [lines]);
  const last = answer.points.at(-1);
  const range = { from: Date.parse(answer.from) / 1_000, to: Date.parse(answer.to) / 1_000 };
  return (
    <>
      {last !== undefined && (
        <Facts
          items={[
            ['Last point', <Exact key="t" at={last.at} />],
            last.memory_bytes === null
              ? null
              : [
                  'Memory',
                  `${sizeText(last.memory_bytes)} ` +
                    (last.memory_limit === null
                      ? 'without a limit'
                      : `of ${sizeText(last.memory_limit)}`),
                ],
            last.restarts === null ? null : ['Restarts by the engine', String(last.restarts)],
            last.oom_kills === null
              ? null
              : ['Processes killed for memory', String(last.oom_kills)],
          ]}
        />
      )}
      <Columns most={2} align="end">
        {charts.map(({ main, ...chart }) => (
          <Chart
            key={chart.label}
            {...chart}
            {...range}
            at={at}
            summary={summaryText(at, main, chart.format)}
          />
        ))}
      </Columns>
      <details>
        <summary>The values as a table</summary>
        <Table
          label="Metrics: the highest value of each time"
          rows={rowsOf(
            at,
            charts.map(({ main }) => main),
            TABLE_ROWS,
          ).toReversed()}
          id={(row) => String(row.at)}
          cells={[
            { head: 'From', rowHead: true, cell: (row) => timeOf(row.at) },
            ...charts.map(({ label, format }, index) => ({
              head: label,
              number: true,
              cell: ({ values }: { values: (number | null)[] }) => {
                const value = values[index] ?? null;
                return value === null ? 'no value' : format(value);
              },
            })),
          ]}
        />
      </details>
    </>
  );
}

type ChartOf = {
  label: string;
  main: Line;
  lines: readonly ChartLine[];
  format: (value: number) => string;
  steps?: number[];
};
/** Returns the charts. Leaves out a chart that has no values. */
function chartsOf({
  memory,
  limit,
  cpu,
  throttled,
  received,
  sent,
}: ReturnType<typeof linesOf>): ChartOf[] {
  const main = (label: string, values: Line): ChartLine => ({ label, values, look: 'main' });
  const some = (values: Line): boolean => values.some((value) => value !== null && value > 0);
  const charts: ChartOf[] = [
    {
      label: 'Memory',
      main: memory,
      lines: [
        main('used', memory),
        ...(some(limit) ? [{ label: 'limit', values: limit, look: 'limit' as const }] : []),
      ],
      format: sizeText,
      steps: BYTE_STEPS,
    },
    {
      label: 'CPU cores',
      main: cpu,
      lines: [
        main('used', cpu),
        ...(some(throttled)
          ? [{ label: 'throttled by the limit', values: throttled, look: 'warn' as const }]
          : []),
      ],
      format: coresText,
    },
    {
      label: 'Received',
      main: received,
      lines: [main('received', received)],
      format: speedText,
      steps: BYTE_STEPS,
    },
    {
      label: 'Sent',
      main: sent,
      lines: [main('sent', sent)],
      format: speedText,
      steps: BYTE_STEPS,
    },
  ];
  return charts.filter(({ main }) => main.some((value) => value !== null));
}

function summaryText(at: readonly number[], line: Line, format: (value: number) => string): string {
  const summary = summaryOf(at, line);
  if (summary === null) return 'no value';
  const when = relativeTime(new Date(summary.mostAt * 1_000).toISOString(), Date.now());
  return (
    `${summary.now === null ? 'no value now' : `now ${format(summary.now)}`}, peak ` +
    `${format(summary.most)} (${when})`
  );
}
