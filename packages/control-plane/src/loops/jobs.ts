/**
 * Starts the runs of jobs. Several control planes can run this loop: each time of a job is claimed
 * by one of them (JobStore.due), and a time has at most one run.
 */
import type { Logger } from '@berth/kit/log';
import type { Limits } from '../domain/deployments/facts.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type { ProjectRecord } from '../domain/platform/records.ts';
import type { UptimeClock } from '../domain/platform/uptime.ts';
import type { ProjectStore } from '../domain/projects/project-store.ts';
import { planDue, runOfJob } from '../domain/runs/due-runs.ts';
import type { JobRecord, JobStore } from '../domain/runs/job-store.ts';
import { type Schedule, scheduleOf } from '@berth/wire/schedule';
import type { Driver } from '../flow/driver.ts';
import { each } from './each.ts';

export type Deps = {
  jobs: Pick<JobStore, 'due' | 'enabled' | 'openRuns'>;
  projects: Pick<ProjectStore, 'getMany' | 'runningDeployments'>;
  driver: Pick<Driver, 'newId'>;
  changes: Pick<Changes, 'notify'>;
  limits: Limits;
  uptime: Pick<UptimeClock, 'now'>;
  log: Logger;
  now: () => number;
};

export const jobs = (deps: Deps) => {
  let lastRoundAt = Number.POSITIVE_INFINITY;
  const invalid: Invalid = new Map();
  return async (signal: AbortSignal): Promise<string | undefined> => {
    const now = deps.now();
    // After a start, and after the machine's clock was set back, the next times can be too late.
    const wasSetBack = now < lastRoundAt;
    lastRoundAt = now;
    const due = (await deps.jobs.enabled()).filter(
      ({ next_at }) => wasSetBack || (next_at !== null && next_at <= now),
    );
    return each(due, signal, {
      async step(job) {
        const parsed = scheduleOf(job.schedule, job.timezone);
        // It was valid when it was stored; the data of time zones changes with the version of Node.
        if ('problem' in parsed) await tellInvalid(deps, invalid, job, parsed.problem.message);
        else await startDue(deps, job, parsed.schedule, now);
      },
      failed: (err, { name, project_id }) =>
        deps.log.error({ err, job: name, project: project_id }, 'job failed; will retry'),
    });
  };
};

/** Jobs whose stored schedule is not valid, each as of its last change. */
type Invalid = Map<string, { updatedAt: number; isRecorded: boolean }>;

/**
 * Logs a wrong schedule once, and again after a change of the job. Its next time gets a record that
 * says why it does not run, and stays: nobody can say which times follow.
 */
async function tellInvalid(
  deps: Deps,
  invalid: Invalid,
  job: JobRecord,
  problem: string,
): Promise<void> {
  const { name, project_id, schedule, timezone, updated_at, next_at } = job;
  const key = `${project_id}/${name}`;
  if (invalid.get(key)?.updatedAt !== updated_at) {
    invalid.set(key, { updatedAt: updated_at, isRecorded: false });
    deps.log.error(
      { job: name, project: project_id, schedule, timezone, problem },
      'job does not run: its schedule is not valid any more; change the schedule or the time zone',
    );
  }
  if (next_at === null || next_at > deps.now() || invalid.get(key)?.isRecorded !== false) return;
  const deadline = (await deps.uptime.now()).at + deps.limits.queueMs;
  const run = runOfJob(job, { id: deps.driver.newId(), scheduledFor: next_at, by: null, deadline });
  const not = { status: 'missed', reason: invalidText(job, problem) } as const;
  await deps.jobs.due(
    job,
    { from: next_at, next: next_at },
    { runs: [{ ...run, not }], cancel: [] },
    deps.now(),
  );
  invalid.set(key, { updatedAt: updated_at, isRecorded: true });
  deps.changes.notify('work');
}

const invalidText = ({ schedule, timezone }: JobRecord, problem: string): string =>
  `the job does not run from this time on, because its schedule ${schedule} in the time zone ` +
  `${timezone} is not valid any more: ${problem}; change the schedule or the time zone`;

async function startDue(
  deps: Deps,
  job: JobRecord,
  schedule: Schedule,
  now: number,
): Promise<void> {
  const times = { from: job.next_at, next: schedule.next(now) };
  if (job.next_at === null || job.next_at > now) {
    if (times.next !== job.next_at) await deps.jobs.due(job, times, { runs: [], cancel: [] }, now);
    return;
  }
  const deadline = (await deps.uptime.now()).at + deps.limits.queueMs;
  const facts = {
    now,
    open: await deps.jobs.openRuns(job.project_id, job.name),
    blocked: await whyBlocked(deps, job.project_id),
  };
  const plan = planDue(job, schedule, facts, (scheduledFor) =>
    runOfJob(job, { id: deps.driver.newId(), scheduledFor, by: null, deadline }),
  );
  if (!(await deps.jobs.due(job, { ...times, next: plan.next }, plan, now))) return;
  deps.changes.notify('work');
  for (const { id, node_id } of facts.open.filter((run) => plan.cancel.includes(run.id)))
    deps.changes.notify(`logs:${id}`, ...(node_id === null ? [] : [`node:${node_id}` as const]));
}

/** Returns why scheduled runs of the project cannot start, or null. */
async function whyBlocked(deps: Deps, projectId: string): Promise<string | null> {
  const [project] = await deps.projects.getMany([projectId]);
  if (project === undefined || project.deleting_at !== null) return 'the project is being deleted';
  if (isStopped(project)) return 'the project is stopped';
  const running = await deps.projects.runningDeployments([projectId]);
  return running.has(projectId) ? null : 'no version of the project serves';
}

const isStopped = ({ stopped_at }: ProjectRecord): boolean => stopped_at !== null;
