/** The form of a job: a new one, or one that changes. */
import { type Job, OVERLAPS } from '@berth/wire/job';
import type { Project } from '@berth/wire/project';
import { useState } from 'react';
import { errorOfLast, useApiMutation } from '../../api/mutations.ts';
import { useProjectReasons } from '../../parts/permissions.ts';
import { fieldErrors, FormProblem } from '../../parts/problem.tsx';
import { Button } from '../../ui/controls.tsx';
import { NumberField, Select } from '../../ui/fields.tsx';
import { Column, Columns, Panel, Row } from '../../ui/layout.tsx';
import { TextField } from '../../ui/text-field.tsx';
import { Text } from '../../ui/text.tsx';
import { CommandLimitFields } from './command-limits.tsx';
import { draftOf, draftReason, type JobDraft, NEW_JOB, requestOf } from './job-draft.ts';

const OVERLAP_WORDS = {
  skip: 'skip this time',
  queue: 'wait for its end',
  cancel: 'end the earlier run',
} as const;
const FIELDS = [
  'name',
  'schedule',
  'timezone',
  'command',
  'overlap',
  'timeout_seconds',
  'retries',
  'memory_bytes',
  'cpus',
] as const;

type JobFormProps = { project: Project; job: Job | null; onDone: () => void };
export function JobForm({ project, job, onDone }: JobFormProps) {
  const [draft, setDraft] = useState<JobDraft>(job === null ? NEW_JOB : draftOf(job));
  const set = (change: Partial<JobDraft>): void => setDraft({ ...draft, ...change });
  const create = useApiMutation('createJob', () => setDraft(NEW_JOB));
  const change = useApiMutation('patchJob', onDone);
  const error = errorOfLast(create, change);
  const errors = fieldErrors(error);
  const reason = useProjectReasons(project)('edit_project') ?? draftReason(draft);
  const save = (): void => {
    const { name, ...body } = requestOf(draft);
    if (job === null) void create.run({ params: { id: project.id }, body: { name, ...body } });
    else void change.run({ params: { id: project.id, name: job.name }, body });
  };
  return (
    <Panel title={job === null ? 'Add a job' : `Edit ${job.name}`} id="job-form">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (reason === null) save();
        }}
      >
        <Column gap="sm">
          <Columns most={3} align="end">
            {job === null && (
              <TextField
                label="Name"
                value={draft.name}
                onChange={(name) => set({ name })}
                placeholder="report"
                error={errors['name']}
              />
            )}
            <TextField
              label="Schedule"
              help="minute, hour, day, month, day of the week; or @daily"
              value={draft.schedule}
              onChange={(schedule) => set({ schedule })}
              placeholder="0 6 * * MON"
              mono
              error={errors['schedule']}
            />
            <TextField
              label="Time zone"
              value={draft.timezone}
              onChange={(timezone) => set({ timezone })}
              placeholder="Europe/Berlin"
              error={errors['timezone']}
            />
          </Columns>
          <TextField
            label="Command"
            help="a program and its arguments, without a shell; quotes keep words together"
            value={draft.command}
            onChange={(command) => set({ command })}
            placeholder="node report.js"
            mono
            error={errors['command']}
          />
          <JobLimits draft={draft} set={set} errors={errors} />
          <FormProblem error={error} what="Saving the job" fields={FIELDS} />
          <Row>
            <Button type="submit" look="main" reason={reason} busy={create.busy || change.busy}>
              {job === null ? 'Add the job' : 'Save'}
            </Button>
            {job !== null && <Button onClick={onDone}>Keep as it is</Button>}
            <Text tone="quiet">It takes effect at once.</Text>
          </Row>
        </Column>
      </form>
    </Panel>
  );
}

type JobLimitsProps = {
  draft: JobDraft;
  set: (change: Partial<JobDraft>) => void;
  errors: Readonly<Record<string, string>>;
};
const JobLimits = ({ draft, set, errors }: JobLimitsProps) => (
  <Columns most={3} align="end">
    <Select
      label="If an earlier run has not ended"
      value={draft.overlap}
      onChange={(overlap) => set({ overlap })}
      options={OVERLAPS.map((value) => ({ value, label: OVERLAP_WORDS[value] }))}
      error={errors['overlap']}
    />
    <NumberField
      label="Time limit (seconds)"
      value={draft.seconds}
      onChange={(seconds) => set({ seconds })}
      min={1}
      max={604_800}
      error={errors['timeout_seconds']}
    />
    <NumberField
      label="Starts again after a lost run"
      help="only for commands that can run twice"
      value={draft.retries}
      onChange={(retries) => set({ retries })}
      min={0}
      max={10}
      error={errors['retries']}
    />
    <CommandLimitFields limits={draft} onChange={set} errors={errors} />
  </Columns>
);
