/** The notification targets, with a button to test each one. */
import type { Notification } from '@berth/wire/notification';
import { useState } from 'react';
import { errorOfLast, useApiMutation } from '../../api/mutations.ts';
import { useApiList } from '../../api/queries.ts';
import { changeColumn } from '../../parts/change-column.tsx';
import { Command, Empty } from '../../parts/command.tsx';
import { useProjectNames } from '../../parts/names.ts';
import { Problem } from '../../parts/problem.tsx';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { Ago } from '../../parts/time.tsx';
import { type Cell, Table } from '../../ui/data.tsx';
import { Note } from '../../ui/feedback.tsx';
import { Panel } from '../../ui/layout.tsx';
import { Status } from '../../ui/status.tsx';
import { Code, Text } from '../../ui/text.tsx';

/** `error` is null if the test was delivered. */
type TestResult = { name: string; error: string | null };

const targetColumns = (projectName: (id: string) => string): Cell<Notification>[] => [
  { head: 'Name', rowHead: true, cell: (row) => row.name },
  { head: 'Kind', cell: (row) => row.kind },
  { head: 'Target', wide: true, cell: (row) => <Code>{row.target}</Code> },
  {
    head: 'Projects',
    wide: true,
    cell: (row) => (row.projects.length === 0 ? 'all' : row.projects.map(projectName).join(', ')),
  },
  { head: 'State', cell: (row) => <TargetStatus target={row} /> },
  {
    head: 'Last sent',
    wide: true,
    cell: (row) => (row.last_sent_at === null ? 'never' : <Ago at={row.last_sent_at} />),
  },
];

function TargetStatus({ target }: { target: Notification }) {
  if (target.failing_since !== null)
    return (
      <>
        <Status mark="bad">fails</Status>
        <Text size="xs">{target.problem}</Text>
      </>
    );
  return target.last_sent_at === null ? (
    <Status mark="off">not tested</Status>
  ) : (
    <Status mark="ok">works</Status>
  );
}

export function Targets() {
  const targets = useApiList('listNotifications', { query: { limit: 200 } });
  const projectName = useProjectNames(targets.items.flatMap((row) => row.projects));
  const [result, setResult] = useState<TestResult | null>(null);
  const test = useApiMutation('testNotification');
  const remove = useApiMutation('deleteNotification');
  const sendTest = async ({ id, name }: Notification): Promise<void> => {
    const answer = await test.run({ params: { id } });
    if (answer !== null) setResult({ name, error: answer.error });
  };
  const change = changeColumn<Notification>(
    ({ name }) => name,
    (row) => [
      { label: 'Send a test', onClick: () => void sendTest(row) },
      {
        label: 'Delete',
        danger: true,
        onClick: () => void remove.run({ params: { id: row.id } }),
      },
    ],
  );
  return (
    <>
      <TestResultNote result={result} onClose={() => setResult(null)} />
      <Problem error={errorOfLast(test, remove)} what="The action" />
      <Panel
        flush
        title="Targets"
        id="targets"
        actions={<Command words={['notification', 'list']} />}
      >
        <QueryBoundary query={targets.query} what="the notifications">
          {() =>
            targets.items.length === 0 ? (
              <Empty words={['notification', 'create', 'ops', '--kind', 'webhook']}>
                No notifications yet. Create the first one:
              </Empty>
            ) : (
              <Table
                label="Notifications"
                rows={targets.items}
                id={(row) => row.id}
                cells={[...targetColumns(projectName), change]}
              />
            )
          }
        </QueryBoundary>
      </Panel>
    </>
  );
}

type TestResultProps = { result: TestResult | null; onClose: () => void };
function TestResultNote({ result, onClose }: TestResultProps) {
  if (result === null) return null;
  const { name, error } = result;
  return error === null ? (
    <Note tone="ok" title={`The test to ${name} was delivered`} live onClose={onClose} />
  ) : (
    <Note tone="bad" title={`The test to ${name} failed`} live onClose={onClose}>
      {error}
    </Note>
  );
}
