/** The tab "Jobs": commands with a schedule, their next times and their last runs. */
import type { Job } from '@berth/wire/job';
import type { Project } from '@berth/wire/project';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { errorOfLast, useApiMutation } from '../../api/mutations.ts';
import { useApiQuery } from '../../api/queries.ts';
import { changeColumn } from '../../parts/change-column.tsx';
import { Command, Empty } from '../../parts/command.tsx';
import { commandText } from '../../parts/command-words.ts';
import { originText } from '../../parts/config-origin.ts';
import { useProjectReasons } from '../../parts/permissions.ts';
import { dialogError, Problem } from '../../parts/problem.tsx';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { RunCell, RUNS_EVERY_MS } from '../../parts/runs.tsx';
import { scheduleText, zonedText } from '../../parts/schedule-text.ts';
import { Ago } from '../../parts/time.tsx';
import type { MenuItem } from '../../ui/controls.tsx';
import { type Cell, Table } from '../../ui/data.tsx';
import { Column, Panel } from '../../ui/layout.tsx';
import { Confirm } from '../../ui/overlay.tsx';
import { Status } from '../../ui/status.tsx';
import { Code, PageLink, Text } from '../../ui/text.tsx';
import { JobForm } from './job-form.tsx';

export function Jobs({ project }: { project: Project }) {
  const jobs = useApiQuery('listJobs', { params: { id: project.id } }, { everyMs: RUNS_EVERY_MS });
  const [editing, setEditing] = useState<string | null>(null);
  const edited = jobs.data?.items.find(({ name }) => name === editing);
  return (
    <Column>
      <Panel
        flush
        title="Jobs"
        id="jobs"
        actions={<Command words={['job', 'list', project.name]} />}
      >
        <QueryBoundary query={jobs} what="the jobs">
          {({ items }) => (
            <JobTable project={project} items={items} onEdit={({ name }) => setEditing(name)} />
          )}
        </QueryBoundary>
      </Panel>
      {/* The key: each job gets a form of its own, without the text of another one. */}
      <JobForm
        key={edited?.name ?? ''}
        project={project}
        job={edited ?? null}
        onDone={() => setEditing(null)}
      />
    </Column>
  );
}

const COLUMNS: Cell<Job>[] = [
  {
    head: 'Schedule',
    cell: ({ schedule, timezone }) => (
      <>
        {scheduleText(schedule) ?? <Code>{schedule}</Code>}
        <Text size="xs" tone="quiet">
          {scheduleText(schedule) === null ? timezone : `${schedule} · ${timezone}`}
        </Text>
      </>
    ),
  },
  {
    head: 'Command',
    cell: ({ command, devices }) => (
      <>
        <Code>{commandText(command)}</Code>
        {Object.entries(devices).map(([kind, count]) => (
          <Text key={kind} size="xs" tone="quiet">
            {`with ${count} × ${kind}`}
          </Text>
        ))}
      </>
    ),
  },
  {
    head: 'Last run',
    cell: ({ last_run }) =>
      last_run === null ? (
        <Text tone="quiet">none yet</Text>
      ) : (
        <>
          <Ago at={last_run.started_at ?? last_run.scheduled_for ?? last_run.created_at} />
          {': '}
          <RunCell run={last_run} />
        </>
      ),
  },
  {
    head: 'Next times',
    cell: ({ enabled, next_runs }) =>
      enabled ? (
        next_runs.map((at) => (
          <div key={at}>
            <time dateTime={at} style={{ whiteSpace: 'nowrap' }}>
              {zonedText(at)}
            </time>
          </div>
        ))
      ) : (
        <Status mark="off">disabled</Status>
      ),
  },
];

type JobTableProps = {
  project: Project;
  items: readonly Job[];
  onEdit: (job: Job) => void;
};
function JobTable({ project, items, onEdit }: JobTableProps) {
  const navigate = useNavigate();
  const reason = useProjectReasons(project)('edit_project');
  const [removing, setRemoving] = useState<string | null>(null);
  const runNow = useApiMutation(
    'runJob',
    ({ id }) => void navigate({ to: '/runs/$id', params: { id } }),
  );
  const toggle = useApiMutation('patchJob');
  const remove = useApiMutation('deleteJob', () => setRemoving(null));
  const of = (name: string) => ({ params: { id: project.id, name } });
  const itemsOf = (job: Job): MenuItem[] => {
    const ofFile = job.config === null ? null : `it comes ${originText(job)}: change it there`;
    const fixed = reason ?? ofFile;
    return [
      { label: 'Run now', reason, onClick: () => void runNow.run(of(job.name)) },
      { label: 'Edit', reason: fixed, onClick: () => onEdit(job) },
      {
        label: job.enabled ? 'Disable' : 'Enable',
        reason: fixed,
        onClick: () => void toggle.run({ ...of(job.name), body: { enabled: !job.enabled } }),
      },
      { label: 'Delete', danger: true, reason: fixed, onClick: () => setRemoving(job.name) },
    ];
  };
  const name: Cell<Job> = {
    head: 'Job',
    rowHead: true,
    cell: (job) => (
      <>
        <PageLink
          to="/projects/$name/$tab"
          params={{ name: project.name, tab: 'runs' }}
          search={{ job: job.name } as never}
          size="sm"
        >
          {job.name}
        </PageLink>
        {job.config !== null && (
          <Text size="xs" tone="quiet">
            {originText(job)}
          </Text>
        )}
      </>
    ),
  };
  return (
    <>
      <Problem error={errorOfLast(runNow, toggle)} what="The action" />
      {items.length === 0 ? (
        <Empty>No jobs. A job is a command that runs by a schedule.</Empty>
      ) : (
        <Table
          label={`Jobs of ${project.name}`}
          rows={items}
          id={(job) => job.name}
          cells={[name, ...COLUMNS, changeColumn((job: Job) => job.name, itemsOf)]}
        />
      )}
      <Confirm
        open={removing !== null}
        onClose={() => {
          setRemoving(null);
          remove.reset();
        }}
        title={`Delete ${removing ?? ''}?`}
        action="Delete"
        danger
        busy={remove.busy}
        error={dialogError(remove.error)}
        onConfirm={() => void remove.run(of(removing ?? ''))}
      >
        <Text>It does not run again. Its runs stay, and one that has begun goes on.</Text>
      </Confirm>
    </>
  );
}
