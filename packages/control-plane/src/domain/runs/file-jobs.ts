/** The jobs that berth.toml of a release sets (docs/berth-toml.md). Pure. */
import type { FileJob } from '@berth/wire/berth-toml';
import { JOB_DEFAULTS } from '@berth/wire/job';
import { scheduleOf } from '@berth/wire/schedule';
import { DomainError } from '../platform/errors.ts';
import type { DeploymentRecord } from '../platform/records.ts';
import { originText } from '../projects/config-file.ts';
import type { JobRecord, JobSettings } from './job-store.ts';

/** A job of a file. `next_at`: its next time, if it is new or its times changed. */
export type NewFileJob = JobSettings & Pick<JobRecord, 'name' | 'next_at'>;

export type NewFileJobs = {
  /** Null: the release has no file. */
  file: string | null;
  commit: string | null;
  jobs: readonly NewFileJob[];
};

/** Returns the jobs that hold when the version is live. */
export const fileJobsOf = (
  { config }: Pick<DeploymentRecord, 'config'>,
  now: number,
): NewFileJobs => ({
  file: config?.file ?? null,
  commit: config?.commit ?? null,
  jobs: (config?.jobs ?? []).map((job) => withNext({ ...JOB_DEFAULTS, ...job }, now)),
});

/** The build was refused if the schedule is wrong; a newer library might refuse it later. */
function withNext(job: Required<FileJob>, now: number): NewFileJob {
  const parsed = scheduleOf(job.schedule, job.timezone);
  return {
    ...job,
    next_at: job.enabled && 'schedule' in parsed ? parsed.schedule.next(now) : null,
  };
}

/** Throws set_by_file if a file of the repository sets the job. */
export function refuseOfFile({
  name,
  config_file: file,
  config_commit: commit,
}: Pick<JobRecord, 'name' | 'config_file' | 'config_commit'>): void {
  if (file === null) return;
  const message = `comes from ${originText({ file, commit })}; change it in that file and deploy`;
  throw new DomainError('set_by_file', `job ${name} ${message}`, [
    { field: 'name', rule: 'set_by_file', message },
  ]);
}

const TIMES = ['schedule', 'timezone', 'enabled'] as const;

/** Returns whether a change of the job gives it other times. */
export const movesTimes = (before: JobSettings, job: JobSettings): boolean =>
  TIMES.some((field) => before[field] !== job[field]);
