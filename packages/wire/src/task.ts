/**
 * What the control plane and an agent say to each other about work (contract "Agent API", INTERFACES.md "Agent API beyond the contract").
 * The payloads are complete: an agent needs nothing but its task and `GET /api/agent/config`.
 */
import { type Static, Type } from 'typebox';
import { DatasetMount, DatasetSource } from './dataset.ts';
import { CommitId, Id, ImageDigest, literals, orNull, REPLACE_MODES, TASK_KINDS, TASK_STATES, Time } from './vocabulary.ts';

/** Clone `branch` of `git_url` (or just `commit`), build `dockerfile_path`, push as `image_repository:{sha}`. */
export const BuildPayload = Type.Object({
  project_id: Id,
  project: Type.String({ description: 'the project’s name' }),
  git_url: Type.String(),
  branch: Type.String(),
  commit: orNull(CommitId),
  /** Hosts that submodules may come from, as ALLOWED_GIT_HOSTS; empty: any. Without it only the host of `git_url`. */
  allowed_git_hosts: Type.Optional(Type.Array(Type.String())),
  dockerfile_path: Type.String(),
  image_repository: Type.String({ description: '{registry}/{project}; the tag is the clone’s full commit id' }),
});
export type BuildPayload = Static<typeof BuildPayload>;

/**
 * Run `image` (by digest where one is known) beside what serves now, under `container_name`; probe it; report its host port.
 * An agent that knows the contract alone uses `domain_prefix`, `container_port`, `env` and `image`, replacing `svc-{domain_prefix}`.
 */
export const DeployPayload = Type.Object({
  project_id: Id,
  project: Type.String(),
  generation: Type.Integer(),
  domain_prefix: Type.String(),
  url: Type.Optional(Type.String({ description: 'how visitors reach the project; the probe asks with its host' })),
  container_port: Type.Integer(),
  image: Type.String({ description: '{registry}/{project}@sha256:… or, when no digest was reported, the tag' }),
  image_tag: Type.String(),
  image_digest: orNull(ImageDigest),
  container_name: Type.String({ description: 'svc-{domain_prefix}-g{generation}' }),
  replace: literals(REPLACE_MODES),
  /** The deployment that serves until then; with `recreate` its container is what is put back when this one fails. */
  replaces: Type.Optional(orNull(Id)),
  env: Type.Record(Type.String(), Type.String()),
  datasets: Type.Array(DatasetMount),
  health_path: orNull(Type.String()),
  probe_seconds: Type.Integer({ description: 'how long the new container has to answer' }),
  memory_bytes: orNull(Type.Integer()),
  cpus: orNull(Type.Number()),
  stop_grace_seconds: Type.Integer(),
});
export type DeployPayload = Static<typeof DeployPayload>;

/**
 * Drain, then remove the containers of `remove`; then give the one of `keep` its final name. By label, never by name. `stop`: a
 * project that is replaced stop-first goes to another node, so what it has here is stopped and kept; `start`: it is started again.
 */
export const RetirePayload = Type.Object({
  project_id: Id,
  project: Type.String(),
  domain_prefix: Type.String(),
  remove: Type.Array(Type.Object({ deployment_id: Id, reason: Type.String() })),
  stop: Type.Optional(Type.Array(Type.Object({ deployment_id: Id, reason: Type.String() }))),
  start: Type.Optional(orNull(Id)),
  keep: orNull(Type.Object({ deployment_id: Id, name: Type.String({ description: 'svc-{domain_prefix}' }) })),
  project_deleted: Type.Optional(Type.Boolean({ description: 'the project was deleted: its images go too' })),
  drain_seconds: Type.Integer(),
  stop_grace_seconds: Type.Integer(),
});
export type RetirePayload = Static<typeof RetirePayload>;

/** Copy a dataset into the node's cache (prewarm). */
export const SyncPayload = Type.Object({ dataset: DatasetSource });
export type SyncPayload = Static<typeof SyncPayload>;

export type Payload = { build: BuildPayload; deploy: DeployPayload; retire: RetirePayload; sync: SyncPayload };

const base = {
  id: Id,
  status: literals(TASK_STATES),
  node_id: Id,
  deployment_id: orNull(Id),
  attempt: Type.Integer({ minimum: 0, description: '0 until an agent claimed it' }),
  cancel_requested: Type.Boolean({ description: 'stop, then complete with status failed and code cancelled' }),
  created_at: Time,
};

/** One task as its node sees it. Which `payload` it has follows from `kind`. */
export const Task = Type.Union([
  Type.Object({ ...base, kind: Type.Literal('build'), payload: BuildPayload }),
  Type.Object({ ...base, kind: Type.Literal('deploy'), payload: DeployPayload }),
  Type.Object({ ...base, kind: Type.Literal('retire'), payload: RetirePayload }),
  Type.Object({ ...base, kind: Type.Literal('sync'), payload: SyncPayload }),
]);
export type Task = Static<typeof Task>;
export type TaskOf<K extends (typeof TASK_KINDS)[number]> = Extract<Task, { kind: K }>;

/** How long the lease is, beside when it ends: the agent's clock may be another. */
const LeaseSeconds = Type.Optional(Type.Number({ minimum: 0 }));
export const TaskClaim = Type.Object({
  attempt: Type.Integer(),
  lease_token: Type.String(),
  lease_expires_at: Time,
  lease_seconds: LeaseSeconds,
});
export type TaskClaim = Static<typeof TaskClaim>;

export const TaskRenewal = Type.Object({ lease_expires_at: Time, lease_seconds: LeaseSeconds, cancel_requested: Type.Boolean() });

/** `step` names what the line belongs to (`clone`, `[2/4] RUN npm ci`, `probe`); null for none. */
export const LogLineIn = Type.Object({
  at: Type.Optional(Time),
  stream: literals(['stdout', 'stderr', 'system']),
  text: Type.String({ maxLength: 16_384 }),
  step: Type.Optional(orNull(Type.String({ maxLength: 300 }))),
});
export type LogLineIn = Static<typeof LogLineIn>;
/** `first` numbers the first line within this attempt, so that a batch sent twice is stored once. */
export const TaskLogs = Type.Object({
  first: Type.Optional(Type.Integer({ minimum: 0 })),
  lines: Type.Array(LogLineIn, { maxItems: 1000 }),
});
export type TaskLogs = Static<typeof TaskLogs>;

/** Why a task failed: `code` from FAILURES (errors.ts); an unknown one is kept as `task_failed` with its message. */
export const TaskError = Type.Object({ code: Type.String({ maxLength: 60 }), message: Type.String({ maxLength: 4000 }) });
export type TaskError = Static<typeof TaskError>;

/** In characters; an agent cuts before it reports. */
export const MAX_COMMIT_MESSAGE = 2_000;
export const MAX_COMMIT_AUTHOR = 200;

/**
 * Body of `POST /api/agent/tasks/{id}/complete`. Contract: build `{status, result, image_tag?}`, deploy `{status, host_port}`.
 * `result` is an object or text for people. Fields beyond the contract: `image_digest`, `commit`, `commit_message`,
 * `commit_author` and `arch` (build), `container_id` and `datasets` (deploy).
 */
export const TaskReport = Type.Object({
  status: literals(['completed', 'failed']),
  result: Type.Optional(
    Type.Union([
      Type.Null(),
      Type.String({ maxLength: 65_536 }),
      Type.Object({ error: Type.Optional(TaskError) }, { additionalProperties: true }),
    ]),
  ),
  image_tag: Type.Optional(orNull(Type.String({ maxLength: 600 }))),
  image_digest: Type.Optional(orNull(ImageDigest)),
  commit: Type.Optional(orNull(CommitId)),
  commit_message: Type.Optional(
    orNull(Type.String({ maxLength: MAX_COMMIT_MESSAGE, description: 'without control characters but line feeds' })),
  ),
  commit_author: Type.Optional(orNull(Type.String({ maxLength: MAX_COMMIT_AUTHOR, description: 'the author’s name' }))),
  arch: Type.Optional(orNull(Type.String({ maxLength: 40, description: 'the image’s architecture, as Go names it (amd64, arm64)' }))),
  host_port: Type.Optional(orNull(Type.Integer({ minimum: 1, maximum: 65_535 }))),
  container_id: Type.Optional(orNull(Type.String({ maxLength: 128 }))),
  datasets: Type.Optional(
    Type.Array(Type.Object({ dataset_id: Id, version: orNull(Type.Integer({ minimum: 1 })) }), {
      maxItems: 100,
      description: 'what was really mounted: a source that moved on while it was copied gives a later version',
    }),
  ),
});
export type TaskReport = Static<typeof TaskReport>;

/** Changes whenever a list of open tasks does that an agent must act on. Both sides write it: `open_tasks` of the answer to a register. */
export const openTasksText = (tasks: readonly Pick<Task, 'id' | 'attempt' | 'cancel_requested'>[]): string =>
  tasks
    .map((t) => `${t.id} ${t.attempt}${t.cancel_requested ? ' cancel' : ''}`)
    .sort()
    .join('\n');

export const TaskReportAnswer = Type.Object({ status: literals(TASK_STATES) });

export const AgentConfig = Type.Object({
  registry_addr: Type.String(),
  registry_user: Type.String(),
  registry_password: Type.String(),
  base_domain: Type.String(),
});
export type AgentConfig = Static<typeof AgentConfig>;
