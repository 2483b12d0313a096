/** The page of a run: a command in a container of its own, and its output. */
import { isOpenRun, type Run } from '@berth/wire/run';
import { useParams } from '@tanstack/react-router';
import { useState } from 'react';
import { useApiMutation } from '../api/mutations.ts';
import { useApiQuery } from '../api/queries.ts';
import { Command } from '../parts/command.tsx';
import { commandText } from '../parts/command-words.ts';
import { DeploymentLink, NodeLink } from '../parts/links.tsx';
import { useLogStream } from '../parts/log-data.ts';
import { LogView } from '../parts/log-view.tsx';
import { PageLayout } from '../parts/page-layout.tsx';
import { conditionOf, useReasons } from '../parts/permissions.ts';
import { Problem } from '../parts/problem.tsx';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { byText, RUNS_EVERY_MS, RunStatus, whyText } from '../parts/runs.tsx';
import { Ago, Exact } from '../parts/time.tsx';
import { durationText } from '../parts/time-text.ts';
import { Button } from '../ui/controls.tsx';
import { Facts } from '../ui/data.tsx';
import { Note } from '../ui/feedback.tsx';
import { Panel } from '../ui/layout.tsx';
import { Code, PageLink } from '../ui/text.tsx';

export const RunPage = () => {
  const { id } = useParams({ strict: false }) as { id: string };
  const [isOpen, setIsOpen] = useState(true);
  const run = useApiQuery(
    'getRun',
    { params: { id }, query: {} },
    { everyMs: isOpen ? RUNS_EVERY_MS : false },
  );
  const open = run.data === undefined || isOpenRun(run.data.status);
  if (open !== isOpen) setIsOpen(open);
  return (
    <QueryBoundary query={run} what="the run" page>
      {(answer) => <LoadedRun key={answer.id} run={answer} />}
    </QueryBoundary>
  );
};

function LoadedRun({ run }: { run: Run }) {
  const { data: project } = useApiQuery('getProject', { params: { id: run.project_id } });
  const reasonAgainst = useReasons(project);
  const cancel = useApiMutation('cancelRun');
  const roleReason =
    project === undefined
      ? 'the project is not read yet'
      : reasonAgainst('edit_project', conditionOf(project));
  const isOpen = isOpenRun(run.status);
  const why = whyText(run);
  return (
    <PageLayout
      title={`${project?.name ?? 'Run'}: ${run.job ?? run.command[0] ?? 'run'}`}
      lead={
        <span>
          <RunStatus run={run} strong />
          {`, requested by ${byText(run)} `}
          <Ago at={run.created_at} />
        </span>
      }
      actions={
        <>
          {project !== undefined && (
            <PageLink
              to="/projects/$name/$tab"
              params={{ name: project.name, tab: 'runs' }}
              size="sm"
            >
              Runs of {project.name}
            </PageLink>
          )}
          <Command words={['runs', 'show', run.id]} />
          {/* Keep a pressed button, so that it keeps the focus. */}
          {(isOpen || cancel.startedAt !== 0) && (
            <Button
              look="danger"
              reason={roleReason ?? cancelReason(run)}
              busy={cancel.busy}
              onClick={() => void cancel.run({ params: { id: run.id } })}
            >
              Cancel
            </Button>
          )}
        </>
      }
    >
      <Problem error={cancel.error} what="The action" />
      {why !== null && (
        <Note tone={run.status === 'failed' || run.status === 'lost' ? 'bad' : 'info'}>{why}</Note>
      )}
      <RunFacts run={run} />
      <Output run={run} />
    </PageLayout>
  );
}

function cancelReason({ status, cancel_requested }: Run): string | null {
  if (!isOpenRun(status)) return `it has ended (${status})`;
  return cancel_requested ? 'its end is requested already' : null;
}

const RunFacts = ({ run }: { run: Run }) => (
  <Panel title="Run" id="run">
    <Facts
      items={[
        ['Command', <Code key="c">{commandText(run.command)}</Code>],
        run.env_names.length === 0 ? null : ['Variables of the request', run.env_names.join(', ')],
        run.node_id === null
          ? null
          : [
              'Node',
              <NodeLink key="n" name={run.node_id}>
                {run.node_name ?? run.node_id}
              </NodeLink>,
            ],
        run.deployment_id === null
          ? null
          : [
              'Version',
              <DeploymentLink key="d" id={run.deployment_id}>
                that of the deployment
              </DeploymentLink>,
            ],
        run.scheduled_for === null
          ? null
          : ['Scheduled for', <Exact key="f" at={run.scheduled_for} />],
        run.started_at === null ? null : ['Started', <Exact key="s" at={run.started_at} />],
        run.ended_at === null ? null : ['Ended', <Exact key="e" at={run.ended_at} />],
        run.started_at === null || run.ended_at === null
          ? null
          : ['Duration', durationText(Date.parse(run.ended_at) - Date.parse(run.started_at))],
        run.exit_code === null ? null : ['Exit code', String(run.exit_code)],
        run.attempt < 2 ? null : ['Attempt', String(run.attempt)],
        ['Time limit', durationText(run.timeout_seconds * 1_000)],
        ...Object.entries(run.devices).map(([kind, count]): [string, string] => [
          `Devices ${kind}`,
          String(count),
        ]),
      ]}
    />
  </Panel>
);

function Output({ run }: { run: Run }) {
  const { lines, notes } = useLogStream(`/api/runs/${run.id}/logs`);
  return (
    <Panel flush title="Output" id="output" actions={<Command words={['runs', 'logs', run.id]} />}>
      <LogView
        lines={lines}
        notes={notes}
        linkable
        label="Output of the run"
        follow={isOpenRun(run.status) || run.status === 'failed'}
        file={`${run.job ?? 'run'}-${run.id.slice(0, 8)}.log`}
      />
    </Panel>
  );
}
