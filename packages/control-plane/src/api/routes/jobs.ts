/** Routes of jobs: commands with a schedule (docs/jobs.md). */
import { randomUUID } from 'node:crypto';
import { defined } from '@berth/kit/defined';
import { type Job, JOB_DEFAULTS, NEXT_RUNS } from '@berth/wire/job';
import type { Run } from '@berth/wire/run';
import type { Limits } from '../../domain/deployments/facts.ts';
import type { NodeStore } from '../../domain/nodes/node-store.ts';
import type { Changes } from '../../domain/platform/changes.ts';
import { DomainError } from '../../domain/platform/errors.ts';
import type { UptimeClock } from '../../domain/platform/uptime.ts';
import type { ProjectStore } from '../../domain/projects/project-store.ts';
import { runOfJob } from '../../domain/runs/due-runs.ts';
import { refuseOfFile } from '../../domain/runs/file-jobs.ts';
import type { JobRecord, JobSettings, JobStore } from '../../domain/runs/job-store.ts';
import { nextTimes, type Schedule, scheduleOf, zonedTime } from '@berth/wire/schedule';
import type { Call, Define } from '../define.ts';
import { time } from '../views.ts';
import { checkDevices, runViews } from './runs.ts';

export type Deps = {
  jobs: JobStore;
  projects: Pick<ProjectStore, 'get' | 'runningDeployments'>;
  nodes: Pick<NodeStore, 'all' | 'getMany'>;
  limits: Limits;
  uptime: Pick<UptimeClock, 'now'>;
  changes: Pick<Changes, 'notify'>;
  now: () => number;
};

export function jobRoutes(route: Define, deps: Deps): void {
  route('listJobs', async ({ params }) => ({
    items: await views(deps, params.id),
    next_cursor: null,
  }));
  route('createJob', (call) => createJob(deps, call));
  route('getJob', async ({ params }) => view(deps, await deps.jobs.get(params.id, params.name)));
  route('patchJob', (call) => patchJob(deps, call));
  route('deleteJob', async ({ params }) => {
    refuseOfFile(await deps.jobs.get(params.id, params.name));
    await deps.jobs.delete(params.id, params.name);
  });
  route('runJob', (call) => runJob(deps, call));
}

async function createJob(deps: Deps, { params, body, user }: Call<'createJob'>): Promise<Job> {
  const project = await deps.projects.get(params.id);
  if (project.deleting_at !== null) throw new DomainError('being_deleted');
  const { name, ...given } = body;
  const settings: JobSettings = { ...JOB_DEFAULTS, ...given };
  const now = deps.now();
  const job: JobRecord = {
    ...settings,
    project_id: project.id,
    name,
    next_at: nextAt(settings, now),
    config_file: null,
    config_commit: null,
    created_by: user.email,
    created_at: now,
    updated_at: now,
  };
  await deps.jobs.create(job);
  return view(deps, job);
}

async function patchJob(deps: Deps, { params, body }: Call<'patchJob'>): Promise<Job> {
  const { next_at: before, ...job } = await deps.jobs.get(params.id, params.name);
  refuseOfFile(job);
  const settings: JobSettings = { ...settingsOf(job), ...defined(body) };
  const now = deps.now();
  // A change of another field moves no time: the next one might be due right now.
  const movesTimes = ['schedule', 'timezone', 'enabled'].some((field) =>
    Object.hasOwn(body, field),
  );
  const next_at = movesTimes ? nextAt(settings, now) : before;
  await deps.jobs.change(params.id, params.name, { ...settings, next_at, updated_at: now });
  return view(deps, await deps.jobs.get(params.id, params.name));
}

const settingsOf = (job: Omit<JobRecord, 'next_at'>): JobSettings => {
  const {
    project_id: _id,
    name: _name,
    config_file: _file,
    config_commit: _commit,
    created_by: _by,
    created_at: _at,
    updated_at: _up,
    ...rest
  } = job;
  return rest;
};

/** Returns the next time; null if disabled. Throws validation. */
function nextAt(settings: JobSettings, now: number): number | null {
  const schedule = checkedSchedule(settings);
  return settings.enabled ? schedule.next(now) : null;
}

function checkedSchedule({ schedule, timezone }: JobSettings): Schedule {
  const parsed = scheduleOf(schedule, timezone);
  if ('schedule' in parsed) return parsed.schedule;
  const { problem } = parsed;
  throw new DomainError('validation', `${problem.field}: ${problem.message}`, [problem]);
}

async function runJob(deps: Deps, { params, user }: Call<'runJob'>): Promise<Run> {
  const project = await deps.projects.get(params.id);
  if (project.deleting_at !== null) throw new DomainError('being_deleted');
  const job = await deps.jobs.get(project.id, params.name);
  const running = await deps.projects.runningDeployments([project.id]);
  if (!running.has(project.id))
    throw new DomainError(
      'wrong_state',
      `no version of project ${project.name} runs, so the job has no image; deploy it, or start it ` +
        `if it is stopped: berth start ${project.name}`,
    );
  await checkDevices(deps, job.devices);
  const deadline = (await deps.uptime.now()).at + deps.limits.queueMs;
  const run = runOfJob(job, { id: randomUUID(), scheduledFor: null, by: user.email, deadline });
  const begun = await deps.jobs.begin(run, job.overlap, deps.now());
  for (const { id, node_id } of begun.cancelled)
    deps.changes.notify(`logs:${id}`, ...(node_id === null ? [] : [`node:${node_id}` as const]));
  deps.changes.notify('work');
  const [shown] = await runViews(deps, [begun.run]);
  return shown as Run;
}

async function views(deps: Deps, projectId: string): Promise<Job[]> {
  const jobs = await deps.jobs.list(projectId);
  const last = await deps.jobs.lastRuns(projectId);
  const shown = await runViews(deps, [...last.values()]);
  return jobs.map((job) => jobView(deps, job, shown.find((run) => run.job === job.name) ?? null));
}

async function view(deps: Deps, job: JobRecord): Promise<Job> {
  const last = (await deps.jobs.lastRuns(job.project_id)).get(job.name);
  const [shown] = last === undefined ? [] : await runViews(deps, [last]);
  return jobView(deps, job, shown ?? null);
}

function jobView({ now }: Deps, job: JobRecord, last: Run | null): Job {
  const parsed = scheduleOf(job.schedule, job.timezone);
  const times =
    job.next_at === null || 'problem' in parsed ? [] : nextTimes(parsed.schedule, now(), NEXT_RUNS);
  return {
    name: job.name,
    ...settingsOf(job),
    devices: job.devices ?? {},
    next_runs: times.map((at) => zonedTime(at, job.timezone)),
    last_run: last,
    config: job.config_file === null ? null : { file: job.config_file, commit: job.config_commit },
    created_by: job.created_by,
    created_at: time(job.created_at),
    updated_at: time(job.updated_at),
  };
}
