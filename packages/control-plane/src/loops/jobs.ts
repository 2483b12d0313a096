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
import type { RunStore } from '../domain/runs/run-store.ts';
import { type Schedule, scheduleOf } from '@berth/wire/schedule';
import type { Driver } from '../flow/driver.ts';

export type Deps = {
  jobs: Pick<JobStore, 'due' | 'enabled' | 'openRuns'>;
  runs: Pick<RunStore, 'cancel'>;
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
  /** Jobs whose stored schedule is not valid, each with its last change: one log line for each. */
  const invalid = new Map<string, number>();
  return async (signal: AbortSignal): Promise<void> => {
    const now = deps.now();
    // After a start, and after the machine's clock was set back, the next times can be too late.
    const wasSetBack = now < lastRoundAt;
    lastRoundAt = now;
    const due = (await deps.jobs.enabled()).filter(
      ({ next_at }) => wasSetBack || (next_at !== null && next_at <= now),
    );
    for (const job of due) {
      if (signal.aborted) return;
      const parsed = scheduleOf(job.schedule, job.timezone);
      // It was valid when it was stored; the data of time zones changes with the version of Node.
      if ('problem' in parsed) {
        tellInvalid(deps, invalid, job, parsed.problem.message);
        continue;
      }
      try {
        await startDue(deps, job, parsed.schedule, now);
      } catch (err) {
        // Continue with the other jobs. The next round tries again.
        deps.log.error({ err, job: job.name, project: job.project_id }, 'job failed; will retry');
      }
    }
  };
};

/** Logs a wrong schedule once, and again after a change of the job. */
function tellInvalid(
  { log }: Deps,
  invalid: Map<string, number>,
  job: JobRecord,
  problem: string,
): void {
  const key = `${job.project_id}/${job.name}`;
  if (invalid.get(key) === job.updated_at) return;
  invalid.set(key, job.updated_at);
  log.error(
    { job: job.name, project: job.project_id, schedule: job.schedule, problem },
    'job does not run: its schedule is not valid any more; change the schedule or the time zone',
  );
}

async function startDue(
  deps: Deps,
  job: JobRecord,
  schedule: Schedule,
  now: number,
): Promise<void> {
  const times = { from: job.next_at, next: schedule.next(now) };
  if (job.next_at === null || job.next_at > now) {
    if (times.next !== job.next_at) await deps.jobs.due(job, times, [], now);
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
  if (!(await deps.jobs.due(job, { ...times, next: plan.next }, plan.runs, now))) return;
  for (const id of plan.cancel)
    await deps.runs
      .cancel(id, 'the next run of the job began (overlap: cancel)', now)
      // It has ended meanwhile.
      .catch(() => undefined);
  deps.changes.notify('work');
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
