/**
 * Decides what happens at the times of a job: each time that has passed gives one run, or one
 * record that says why not. Pure.
 */
import type { DeviceCounts } from '@berth/wire/machine';
import type { DueRun, JobRecord, JobRun } from './job-store.ts';
import type { NewRun, RunRecord } from './run-store.ts';
import type { Schedule } from '@berth/wire/schedule';

/** A time that was missed still runs if it is at most this old, in ms. */
export const LATE_MS = 5 * 60_000;
/** Maximum number of missed times that get a record: Berth keeps 100 runs of a job. */
export const MAX_RECORDED = 100;

export type DueFacts = {
  now: number;
  /** The runs of the job that have not ended, oldest first. */
  open: readonly Pick<RunRecord, 'id'>[];
  /** Why no scheduled run of the project can start, or null. */
  blocked: string | null;
};
export type DuePlan = {
  next: number | null;
  runs: DueRun[];
  /** Ids of the earlier runs to cancel. */
  cancel: string[];
  /** Ids of the runs that had not ended. With another one, the plan is not valid. */
  open: readonly string[];
};

/** Returns the plan of a job whose next time has passed. `newRun` makes the run of a time. */
export function planDue(
  job: JobRecord,
  schedule: Schedule,
  { now, open, blocked }: DueFacts,
  newRun: (scheduledFor: number) => NewRun,
): DuePlan {
  const times = schedule.between(job.next_at ?? now, now, MAX_RECORDED);
  const newest = times.at(-1);
  const missed = times.slice(0, -1).map((time) => ({ ...newRun(time), not: LATE }));
  const ids = open.map(({ id }) => id);
  const plan: DuePlan = { next: schedule.next(now), runs: missed, cancel: [], open: ids };
  if (newest === undefined) return plan;
  const run = newRun(newest);
  const not = now - newest > LATE_MS ? LATE : whyNot(job, open, blocked);
  if (not === null && job.overlap === 'cancel') plan.cancel = ids;
  plan.runs.push({ ...run, not });
  return plan;
}

const LATE = {
  status: 'missed',
  reason: 'Berth did not run at this time, or its clock was set forward',
} as const;

function whyNot(
  { overlap }: Pick<JobRecord, 'overlap'>,
  open: DueFacts['open'],
  blocked: string | null,
): DueRun['not'] {
  if (blocked !== null) return { status: 'missed', reason: blocked };
  const reason = overlapReason(overlap, open);
  return reason === null ? null : { status: 'skipped', reason };
}

/** Returns why a run of the job cannot start now, by its field `overlap`; null: it can. */
export function overlapReason(
  overlap: JobRecord['overlap'],
  open: DueFacts['open'],
): string | null {
  if (overlap === 'skip' && open.length > 0)
    return `the earlier run ${open[0]?.id ?? ''} has not ended (overlap: skip)`;
  if (overlap === 'queue' && open.length > 1)
    return 'one run of the job works and another one waits already (overlap: queue)';
  return null;
}

/** Returns null if the counts name no device: then a run asks for none. */
export const countsOrNull = (devices: DeviceCounts | null | undefined): DeviceCounts | null =>
  Object.keys(devices ?? {}).length === 0 ? null : (devices ?? null);

/** Returns the run of a job. `scheduledFor`: null for a run that a person starts. */
export const runOfJob = (
  job: JobRecord,
  {
    id,
    scheduledFor,
    by,
    deadline,
  }: {
    id: string;
    scheduledFor: number | null;
    by: string | null;
    deadline: number;
  },
): JobRun => ({
  id,
  project_id: job.project_id,
  job: job.name,
  trigger: scheduledFor === null ? 'person' : 'schedule',
  command: job.command,
  env: {},
  scheduled_for: scheduledFor,
  timeout_seconds: job.timeout_seconds,
  memory_bytes: job.memory_bytes,
  cpus: job.cpus,
  devices: countsOrNull(job.devices),
  stdin: false,
  retries: job.retries,
  created_by: by,
  queue_deadline_at: deadline,
});
