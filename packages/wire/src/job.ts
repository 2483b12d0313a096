/** Jobs: commands with a schedule, executed in a container of the version that serves. */
import { type Static, Type } from 'typebox';
import { DeviceCounts } from './machine.ts';
import { Cpus, MemoryBytes } from './project.ts';
import { ByName, type Route } from './route.ts';
import { Run, TimeoutSeconds } from './run.ts';
import { Command } from './run-payload.ts';
import { CommitId, listOf, literals, orNull, Time } from './vocabulary.ts';

/**
 * The choices for a time at which an earlier run of the job has not ended: `skip` records the time as
 * skipped, `queue` waits for the end (one at most), `cancel` ends the earlier run.
 */
export const OVERLAPS = ['skip', 'queue', 'cancel'] as const;
export type Overlap = (typeof OVERLAPS)[number];

/** Maximum number of jobs of one project. */
export const MAX_JOBS = 50;
/** Number of next times that the API shows. */
export const NEXT_RUNS = 3;

export const JobName = Type.String({
  minLength: 1,
  maxLength: 40,
  pattern: '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$',
  description: 'letters, digits and hyphens, unique in the project',
});
const Schedule = Type.String({
  minLength: 1,
  maxLength: 200,
  description: 'five cron fields, or @hourly, @daily, @weekly, @monthly',
});
const Timezone = Type.String({
  minLength: 1,
  maxLength: 64,
  description: 'IANA name, such as Europe/Berlin',
});
const Retries = Type.Integer({
  minimum: 0,
  maximum: 10,
  description: 'how often a lost run starts again, although its command might have started',
});

const settable = {
  schedule: Schedule,
  timezone: Timezone,
  command: Command,
  enabled: Type.Boolean({ description: 'false: no scheduled runs' }),
  overlap: literals(OVERLAPS),
  timeout_seconds: TimeoutSeconds,
  memory_bytes: orNull(MemoryBytes),
  cpus: orNull(Cpus),
  devices: DeviceCounts,
  retries: Retries,
};

export const JOB_DEFAULTS = {
  timezone: 'UTC',
  enabled: true,
  overlap: 'skip',
  timeout_seconds: 3_600,
  memory_bytes: null,
  cpus: null,
  devices: {},
  retries: 0,
} as const;

export const Job = Type.Object({
  name: Type.String(),
  ...settable,
  next_runs: Type.Array(Time, {
    description: 'the next three times, with the offset of the time zone; none if disabled',
  }),
  last_run: orNull(Run),
  config: orNull(
    Type.Object(
      { file: Type.String(), commit: orNull(CommitId) },
      { description: 'the file of the repository that sets the job; null: none' },
    ),
  ),
  created_by: orNull(Type.String({ description: 'e-mail address' })),
  created_at: Time,
  updated_at: Time,
});
export type Job = Static<typeof Job>;

const { schedule, command, ...withDefaults } = settable;
/** The fields of a job in berth.toml; its name is that of its table. */
export const JOB_FIELDS = {
  schedule,
  command,
  ...Type.Partial(Type.Object(withDefaults)).properties,
};
export const JobCreate = Type.Object(
  { name: JobName, ...JOB_FIELDS },
  { additionalProperties: false },
);
export type JobCreate = Static<typeof JobCreate>;
export const JobPatch = Type.Object(Type.Partial(Type.Object(settable)).properties, {
  additionalProperties: false,
});
export type JobPatch = Static<typeof JobPatch>;

const ByJob = Type.Object({ ...ByName.properties, name: Type.String({ minLength: 1 }) });

export const JOB_ROUTES = {
  listJobs: {
    method: 'GET',
    path: '/api/projects/:id/jobs',
    who: 'viewer',
    scope: 'project',
    summary: 'List the jobs of a project by name, with their next times and their last runs',
    params: ByName,
    status: 200,
    answer: listOf(Job),
  },
  createJob: {
    method: 'POST',
    path: '/api/projects/:id/jobs',
    who: 'developer',
    scope: 'project',
    summary: 'Create a job: a command that runs by a schedule',
    params: ByName,
    body: JobCreate,
    status: 201,
    location: '/api/projects/:id/jobs/:name',
    answer: Job,
  },
  getJob: {
    method: 'GET',
    path: '/api/projects/:id/jobs/:name',
    who: 'viewer',
    scope: 'project',
    summary: 'Get a job',
    params: ByJob,
    status: 200,
    answer: Job,
  },
  patchJob: {
    method: 'PATCH',
    path: '/api/projects/:id/jobs/:name',
    who: 'developer',
    scope: 'project',
    summary: 'Change a job, at once; a run that has begun keeps its settings',
    params: ByJob,
    body: JobPatch,
    status: 200,
    answer: Job,
  },
  deleteJob: {
    method: 'DELETE',
    path: '/api/projects/:id/jobs/:name',
    who: 'developer',
    scope: 'project',
    summary: 'Delete a job; its runs stay, and one that has begun goes on',
    params: ByJob,
    status: 204,
  },
  runJob: {
    method: 'POST',
    path: '/api/projects/:id/jobs/:name/run',
    who: 'developer',
    scope: 'project',
    summary: 'Start a run of a job now',
    params: ByJob,
    status: 201,
    location: '/api/runs/:id',
    answer: Run,
  },
} as const satisfies Record<string, Route>;
