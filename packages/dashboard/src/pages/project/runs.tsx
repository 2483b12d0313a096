/** The tab "Runs": commands that ran in containers of their own, and a form that runs one. */
import { defined } from '@berth/kit/defined';
import type { Project } from '@berth/wire/project';
import { RUN_STATES, type RunState } from '@berth/wire/run';
import { useNavigate, useSearch } from '@tanstack/react-router';
import { useState } from 'react';
import { useApiMutation } from '../../api/mutations.ts';
import { useApiQuery } from '../../api/queries.ts';
import { Command, Empty } from '../../parts/command.tsx';
import { wordsOfCommand } from '../../parts/command-words.ts';
import { MIB } from '../../parts/field-words.ts';
import { useProjectReasons } from '../../parts/permissions.ts';
import { fieldErrors, FormProblem } from '../../parts/problem.tsx';
import { pairsOf } from '../../parts/project-fields.ts';
import { QueryBoundary } from '../../parts/query-boundary.tsx';
import { Runs, RUNS_EVERY_MS } from '../../parts/runs.tsx';
import { Button } from '../../ui/controls.tsx';
import { NumberField, Select, TextArea } from '../../ui/fields.tsx';
import { Column, Columns, Panel, Row } from '../../ui/layout.tsx';
import { TextField } from '../../ui/text-field.tsx';
import { CommandLimitFields, type CommandLimits, NO_LIMITS } from './command-limits.tsx';
import { commandReason, DEFAULT_SECONDS } from './job-draft.ts';

export const ProjectRuns = ({ project }: { project: Project }) => (
  <Column>
    <RunList project={project} />
    <RunOnce project={project} />
  </Column>
);

function RunList({ project }: { project: Project }) {
  const search = useSearch({ strict: false }) as Record<string, string>;
  const navigate = useNavigate();
  const job = search['job'] ?? '';
  const status = RUN_STATES.find((one) => one === search['status']) ?? '';
  const choose = (next: Record<string, string>): void =>
    void navigate({
      to: '/projects/$name/$tab',
      params: { name: project.name, tab: 'runs' },
      search: { job, status, ...next } as never,
      replace: true,
    });
  const jobs = useApiQuery('listJobs', { params: { id: project.id } });
  const runs = useApiQuery(
    'projectRuns',
    {
      params: { id: project.id },
      query: {
        limit: 100,
        ...defined({
          job: job === '' ? undefined : job,
          status: status === '' ? undefined : status,
        }),
      },
    },
    { everyMs: RUNS_EVERY_MS },
  );
  const names = [
    ...new Set([...(jobs.data?.items.map(({ name }) => name) ?? []), ...(job === '' ? [] : [job])]),
  ];
  const isFiltered = job !== '' || status !== '';
  return (
    <Panel
      flush
      title="Runs"
      id="runs"
      actions={<Command words={['runs', 'list', project.name]} />}
    >
      <div style={{ padding: '0 16px 12px' }}>
        <Columns most={4}>
          <Select
            label="Job"
            value={job}
            onChange={(next) => choose({ job: next })}
            options={[
              { value: '', label: 'all' },
              ...names.map((value) => ({ value, label: value })),
            ]}
          />
          <Select<RunState | ''>
            label="Status"
            value={status}
            onChange={(next) => choose({ status: next })}
            options={[
              { value: '', label: 'all' },
              ...RUN_STATES.map((value) => ({ value, label: value })),
            ]}
          />
        </Columns>
      </div>
      <QueryBoundary query={runs} what="the runs">
        {({ items }) =>
          items.length === 0 ? (
            <Empty>
              {isFiltered
                ? 'No such runs.'
                : 'No runs. A run is a command in a container of its own, from the version that serves.'}
            </Empty>
          ) : (
            <Runs items={items} label={`Runs of ${project.name}`} />
          )
        }
      </QueryBoundary>
    </Panel>
  );
}

const FIELDS = ['command', 'timeout_seconds', 'env', 'memory_bytes', 'cpus'] as const;

function RunOnce({ project }: { project: Project }) {
  const navigate = useNavigate();
  const [command, setCommand] = useState('');
  const [seconds, setSeconds] = useState<number | null>(DEFAULT_SECONDS);
  const [limits, setLimits] = useState(NO_LIMITS);
  const [variables, setVariables] = useState('');
  const create = useApiMutation(
    'createRun',
    ({ id }) => void navigate({ to: '/runs/$id', params: { id } }),
  );
  const words = wordsOfCommand(command);
  const env = pairsOf(variables);
  const errors = fieldErrors(create.error);
  const reason = useProjectReasons(project)('edit_project') ?? commandReason(command);
  return (
    <Panel title="Run a command once" id="run-once">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (reason !== null || words === null) return;
          void create.run({
            params: { id: project.id },
            body: {
              command: words,
              timeout_seconds: seconds ?? DEFAULT_SECONDS,
              env,
              ...limits,
            },
          });
        }}
      >
        <Column gap="sm">
          <Columns most={2} align="end">
            <TextField
              label="Command"
              help="a program and its arguments, without a shell; quotes keep words together"
              value={command}
              onChange={setCommand}
              placeholder="node migrate.js --to 42"
              mono
              error={errors['command']}
            />
            <NumberField
              label="Time limit (seconds)"
              value={seconds}
              onChange={setSeconds}
              min={1}
              max={604_800}
              error={errors['timeout_seconds']}
            />
          </Columns>
          <Columns most={3} align="end">
            <CommandLimitFields limits={limits} onChange={setLimits} errors={errors} />
            <TextArea
              label="Variables"
              help="NAME=value, one in each line; no secrets: they are stored in clear"
              value={variables}
              onChange={setVariables}
              error={errors['env']}
            />
          </Columns>
          <FormProblem error={create.error} what="Starting the command" fields={FIELDS} />
          <Row>
            <Button type="submit" look="main" reason={reason} busy={create.busy}>
              Run
            </Button>
            <Command words={runWords(project.name, words, { ...limits, env, seconds })} />
          </Row>
        </Column>
      </form>
    </Panel>
  );
}

type RunOptions = CommandLimits & {
  env: Readonly<Record<string, string>>;
  seconds: number | null;
};
/** The words of the command that does the same. */
const runWords = (
  project: string,
  command: readonly string[] | null,
  { env, seconds, memory_bytes, cpus }: RunOptions,
): readonly string[] => [
  'run',
  '--project',
  project,
  ...Object.entries(env).flatMap(([name, value]) => ['--env', `${name}=${value}`]),
  ...(seconds === null || seconds === DEFAULT_SECONDS ? [] : ['--timeout', `${seconds}s`]),
  ...(memory_bytes === null ? [] : ['--memory', `${memory_bytes / MIB}M`]),
  ...(cpus === null ? [] : ['--cpus', String(cpus)]),
  '--',
  ...(command === null || command.length === 0 ? ['node', 'migrate.js'] : command),
];
