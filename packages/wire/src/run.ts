/** Runs: executions of commands in containers of their own, and their output. */
import { type Static, Type } from 'typebox';
import { ExecTicket } from './exec.ts';
import { Cpus, Env, MemoryBytes } from './project.ts';
import { LogPage } from './deployment.ts';
import { DeviceCounts } from './machine.ts';
import { ById, ByName, type Route, Wait } from './route.ts';
import { Command } from './run-payload.ts';
import { Id, listOf, literals, orNull, PageQuery, Time } from './vocabulary.ts';

/**
 * pending: waits for a node or for its agent. running: the agent works on it. succeeded: exit code
 * 0. failed: another exit code, the time limit, or it could not start. lost: its agent was lost
 * after the command can have started. skipped, missed: a scheduled time without an execution.
 */
export const RUN_STATES = [
  'pending',
  'running',
  'succeeded',
  'failed',
  'cancelled',
  'skipped',
  'lost',
  'missed',
] as const;
export type RunState = (typeof RUN_STATES)[number];
export const isOpenRun = (s: RunState): boolean => s === 'pending' || s === 'running';

/** The requesters of runs: the schedule of a job, a person, a deployment with a release command. */
export const RUN_TRIGGERS = ['schedule', 'person', 'release'] as const;
export type RunTrigger = (typeof RUN_TRIGGERS)[number];

/** Limits of `timeout_seconds`: 1 s to 7 days. */
export const MAX_RUN_SECONDS = 7 * 86_400;
export const DEFAULT_RUN_SECONDS = 3_600;
/** Maximum number of runs of one project that wait or run at the same time. */
export const MAX_OPEN_RUNS = 20;

export const TimeoutSeconds = Type.Integer({
  minimum: 1,
  maximum: MAX_RUN_SECONDS,
  description: 'time limit in seconds, from the start of the command',
});
export const Run = Type.Object({
  id: Id,
  project_id: Id,
  job: orNull(Type.String({ description: 'name of the job; null: no job' })),
  trigger: literals(RUN_TRIGGERS),
  command: Command,
  env_names: Type.Array(Type.String(), {
    description: 'names of the variables that the request added',
  }),
  status: literals(RUN_STATES),
  reason: orNull(Type.String({ description: 'why it waits, or why it did not run' })),
  scheduled_for: orNull(Time),
  created_at: Time,
  started_at: orNull(Time),
  ended_at: orNull(Time),
  exit_code: orNull(Type.Integer()),
  deployment_id: orNull({ ...Id, description: 'the deployment whose release it uses' }),
  node_id: orNull(Id),
  node_name: orNull(Type.String()),
  attempt: Type.Integer({
    description: 'how often the command was handed to a node; 0: not yet',
  }),
  timeout_seconds: Type.Integer(),
  memory_bytes: orNull(Type.Integer()),
  cpus: orNull(Type.Number()),
  devices: DeviceCounts,
  cancel_requested: Type.Boolean(),
  error: orNull(Type.Object({ code: Type.String(), message: Type.String() })),
  created_by: orNull(Type.String({ description: 'e-mail address' })),
});
export type Run = Static<typeof Run>;

export const RunCreate = Type.Object(
  {
    command: Command,
    env: Type.Optional(Env),
    timeout_seconds: Type.Optional(TimeoutSeconds),
    memory_bytes: Type.Optional(orNull(MemoryBytes)),
    cpus: Type.Optional(orNull(Cpus)),
    devices: Type.Optional(DeviceCounts),
    stdin: Type.Optional(
      Type.Boolean({
        description:
          'true: standard input follows in a session; the command starts when it is there',
      }),
    ),
  },
  { additionalProperties: false },
);
export type RunCreate = Static<typeof RunCreate>;

export const RUN_ROUTES = {
  createRun: {
    method: 'POST',
    path: '/api/projects/:id/runs',
    who: 'developer',
    scope: 'project',
    summary:
      'Run a command once, in a container of its own, from the version that serves; the time ' +
      'limit is 3,600 s by default',
    params: ByName,
    body: RunCreate,
    status: 201,
    location: '/api/runs/:id',
    answer: Run,
  },
  projectRuns: {
    method: 'GET',
    path: '/api/projects/:id/runs',
    who: 'viewer',
    scope: 'project',
    summary: 'List the runs of a project, newest first',
    params: ByName,
    query: Type.Object({
      ...PageQuery,
      status: Type.Optional(literals(RUN_STATES)),
      job: Type.Optional(
        Type.String({ minLength: 1, maxLength: 63, description: 'name of a job' }),
      ),
    }),
    status: 200,
    answer: listOf(Run),
  },
  getRun: {
    method: 'GET',
    path: '/api/runs/:id',
    who: 'viewer',
    scope: 'run',
    summary: 'Get a run; with `wait`, held while the ETag equals If-None-Match',
    params: ById,
    query: Type.Object(Wait),
    status: 200,
    answer: Run,
    etag: true,
  },
  cancelRun: {
    method: 'POST',
    path: '/api/runs/:id/cancel',
    who: 'developer',
    scope: 'run',
    summary: 'Cancel a run; it becomes `cancelled` when its agent has stopped the command',
    params: ById,
    status: 200,
    answer: Run,
  },
  runInput: {
    method: 'POST',
    path: '/api/runs/:id/input',
    who: 'developer',
    scope: 'run',
    summary: 'Get a ticket to send the standard input of your own run, while it is `running`',
    params: ById,
    status: 201,
    location: '/api/runs/:id',
    answer: ExecTicket,
  },
  runLogs: {
    method: 'GET',
    path: '/api/runs/:id/logs',
    who: 'viewer',
    scope: 'run',
    summary:
      'Get the output of a run after a sequence number; `Accept: text/event-stream` streams new ' +
      'lines',
    params: ById,
    query: Type.Object({
      after: Type.Optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 5000 })),
    }),
    status: 200,
    answer: LogPage,
    streams: true,
  },
} as const satisfies Record<string, Route>;
