/** Runs in lists: their states, their commands, and why one did not run. */
import type { Run, RunState } from '@berth/wire/run';
import { type Cell, Table } from '../ui/data.tsx';
import { type Mark, Status } from '../ui/status.tsx';
import { Code, PageLink, Text } from '../ui/text.tsx';
import { commandText } from './command-words.ts';
import { NodeLink } from './links.tsx';
import { Ago } from './time.tsx';

const MARKS: Record<RunState, Mark> = {
  pending: 'busy',
  running: 'busy',
  succeeded: 'ok',
  failed: 'bad',
  cancelled: 'off',
  skipped: 'off',
  lost: 'bad',
  missed: 'warn',
};
/** How often a page asks for the state of runs, which no event reports. */
export const RUNS_EVERY_MS = 3_000;

export const RunStatus = ({ run, strong = false }: { run: Run; strong?: boolean }) => (
  <Status mark={MARKS[run.status]} strong={strong}>
    {run.status}
    {run.exit_code !== null && run.exit_code !== 0 ? ` (${run.exit_code})` : ''}
  </Status>
);

/** Says why a run waits, failed, or did not run; null: there is nothing to say. */
export const whyText = ({ error, reason }: Run): string | null => error?.message ?? reason;

/** Names the requester of a run. */
export function byText({ trigger, created_by, job }: Run): string {
  if (trigger === 'schedule') return 'the schedule';
  if (trigger === 'release') return 'a deployment';
  const person = created_by ?? 'a person';
  return job === null ? person : `${person}, by hand`;
}

const RunLink = ({ run }: { run: Run }) => (
  <PageLink to="/runs/$id" params={{ id: run.id }} size="sm">
    <RunStatus run={run} />
  </PageLink>
);

/** The state of a run, and why it is in this state. */
export const RunCell = ({ run }: { run: Run }) => {
  const why = run.status === 'succeeded' ? null : whyText(run);
  return (
    <>
      <RunLink run={run} />
      {why !== null && <Text size="xs">{why}</Text>}
    </>
  );
};

const COLUMNS: Cell<Run>[] = [
  { head: 'Run', rowHead: true, cell: (run) => <RunCell run={run} /> },
  { head: 'Command', cell: (run) => <Code>{commandText(run.command)}</Code> },
  { head: 'Job', cell: ({ job }) => job },
  { head: 'By', wide: true, cell: byText },
  {
    head: 'Node',
    wide: true,
    cell: ({ node_id, node_name }) =>
      node_id === null ? null : <NodeLink name={node_id}>{node_name ?? node_id}</NodeLink>,
  },
  {
    head: 'Time',
    cell: ({ started_at, scheduled_for, created_at }) => (
      <Ago at={started_at ?? scheduled_for ?? created_at} />
    ),
  },
];

export const Runs = ({ items, label }: { items: readonly Run[]; label: string }) => (
  <Table label={label} rows={items} id={({ id }) => id} cells={COLUMNS} />
);
