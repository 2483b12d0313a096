/**
 * Messages between control plane and agents about tasks.
 * A payload is complete: to run a task, an agent needs only the task and `GET /api/agent/config`.
 */
import { type Static, Type } from 'typebox';
import { DatasetMount, DatasetSource, TaskProgress } from './dataset.ts';
import { CleanPayload } from './clean-up.ts';
import { LookPayload } from './look.ts';
import { RepositoryLookPayload } from './repository-look.ts';
import { RunPayload } from './run-payload.ts';
import { GitAccess, MAX_SEEN_KEYS, SeenHostKey } from './git.ts';
import { SECRET_DELIVERIES } from './secret.ts';
import { MovePayload, VolumeMounts } from './volume.ts';
import {
  CommitId,
  Id,
  ImageDigest,
  literals,
  orNull,
  REPLACE_MODES,
  TASK_KINDS,
  TASK_STATES,
  Time,
} from './vocabulary.ts';

/**
 * Payload of a `build` task: clone `branch` of `git_url` (or only `commit`), build
 * `dockerfile_path`, push the image as `image_repository:{commit}`.
 */
export const BuildPayload = Type.Object({
  project_id: Id,
  project: Type.String({ description: 'the project’s name' }),
  git_url: Type.String(),
  branch: Type.String(),
  commit: orNull(CommitId),
  /**
   * Allowed hosts of submodules, in the syntax of ALLOWED_GIT_HOSTS. If empty, any host; if absent,
   * only the host of `git_url`.
   */
  allowed_git_hosts: Type.Optional(Type.Array(Type.String())),
  dockerfile_path: Type.String(),
  /**
   * The build settings are sent only if they differ from the defaults, and only to agents with the
   * capability `build_settings`.
   */
  build_context: Type.Optional(
    Type.String({ description: 'folder of the repository; default: its root' }),
  ),
  build_target: Type.Optional(Type.String()),
  build_args: Type.Optional(Type.Record(Type.String(), Type.String())),
  submodules: Type.Optional(Type.Boolean({ description: 'false: submodules are not fetched' })),
  git_lfs: Type.Optional(
    Type.Boolean({
      description:
        'true: Git LFS files are fetched; sent only to agents with the capability `git_lfs`',
    }),
  ),
  config_file: Type.Optional(
    Type.String({
      description:
        'name of the file with settings in the build context’s root; sent only to agents with ' +
        'the capability `config_file`',
    }),
  ),
  image_repository: Type.String({
    description: '{registry}/{project}; the tag is the full commit id',
  }),
  secrets: Type.Optional(
    Type.Array(Type.Object({ name: Type.String() }), {
      description: 'build secrets; the claim (`/start`) answers their values',
    }),
  ),
});
export type BuildPayload = Static<typeof BuildPayload>;

/** Capability of a builder that reads berth.toml. */
export const CAN_CONFIG_FILE = 'config_file';
/** Maximum size of berth.toml in bytes. */
export const MAX_CONFIG_FILE = 65_536;
/** The file with settings that a builder found in the build context’s root. */
export const ConfigFile = Type.Object({
  file: Type.String({ minLength: 1, maxLength: 600, description: 'its path in the repository' }),
  text: Type.String({ maxLength: MAX_CONFIG_FILE }),
});
export type ConfigFile = Static<typeof ConfigFile>;
/** Answer to the file of a builder: why it is refused, or the settings of the build. */
export const ConfigFileAnswer = Type.Object({
  problem: orNull(Type.String({ description: 'lines, keys and rules; null: the file is right' })),
  dockerfile_path: Type.String(),
  build_target: orNull(Type.String()),
  build_args: Type.Record(Type.String(), Type.String()),
});
export type ConfigFileAnswer = Static<typeof ConfigFileAnswer>;

/** Capability of an agent that can run several instances of a deployment. */
export const CAN_INSTANCES = 'instances';

/** Capability of an agent that can run a command instead of that of the image, without a port. */
export const CAN_PROCESSES = 'processes';

/**
 * Payload of a `deploy` task: run `image` (by digest if known) as `container_name`, beside the
 * container that serves now; probe it; report its host port. A contract-only agent reads
 * `domain_prefix`, `container_port`, `env` and `image`, and replaces `svc-{domain_prefix}`.
 */
export const DeployPayload = Type.Object({
  project_id: Id,
  project: Type.String(),
  generation: Type.Integer(),
  domain_prefix: Type.String(),
  url: Type.Optional(
    Type.String({ description: 'public address of the project; the health check sends its host' }),
  ),
  container_port: Type.Integer(),
  image: Type.String({
    description: '{registry}/{project}@sha256:…, or with the tag if no digest was reported',
  }),
  image_tag: Type.String(),
  image_digest: orNull(ImageDigest),
  container_name: Type.String({ description: 'svc-{domain_prefix}-g{generation}' }),
  instance: Type.Optional(
    Type.Object(
      { id: Id, process: Type.String(), number: Type.Integer() },
      {
        description:
          'the instance to start, beside the first one; sent only to agents with the capability ' +
          '`instances`',
      },
    ),
  ),
  command: Type.Optional(
    Type.Array(Type.String(), {
      description:
        'replaces ENTRYPOINT and CMD of the image; sent only to agents with the capability ' +
        '`processes`',
    }),
  ),
  settle_seconds: Type.Optional(
    Type.Integer({
      minimum: 0,
      description:
        'of a process without HTTP: its container gets no port, and has started when it runs for ' +
        'so many seconds; sent only to agents with the capability `processes`',
    }),
  ),
  replace: literals(REPLACE_MODES),
  /**
   * The deployment that serves now. With `recreate`, the agent restores its container if this
   * deployment fails.
   */
  replaces: Type.Optional(orNull(Id)),
  env: Type.Record(Type.String(), Type.String(), {
    description: 'for an agent without the capability `secrets`, it also has the env secrets',
  }),
  secrets: Type.Optional(
    Type.Array(Type.Object({ name: Type.String(), as: literals(SECRET_DELIVERIES) }), {
      description:
        'secrets of the container; the claim (`/start`) answers their values to an agent with ' +
        'the capability `secrets`',
    }),
  ),
  datasets: Type.Array(DatasetMount),
  volumes: Type.Optional(VolumeMounts),
  health_path: orNull(Type.String()),
  probe_seconds: Type.Integer({
    description: 'time limit in seconds for the first answer of the new container',
  }),
  memory_bytes: orNull(Type.Integer()),
  cpus: orNull(Type.Number()),
  devices: Type.Optional(
    Type.Array(Type.String(), {
      description:
        'CDI devices of the container, such as `nvidia.com/gpu=0`; sent only to agents with the ' +
        'capability `devices`',
    }),
  ),
  stop_grace_seconds: Type.Integer(),
});
export type DeployPayload = Static<typeof DeployPayload>;

/**
 * Payload of a `retire` task: drain and remove the containers of `remove`, then give the container
 * of `keep` its final name. The agent finds containers by label, never by name. `stop` lists
 * containers to stop and keep, because their project (`replace: recreate`) moves to another node.
 * `start` names the deployment whose stopped container must start again.
 */
export const RetirePayload = Type.Object({
  project_id: Id,
  project: Type.String(),
  domain_prefix: Type.String(),
  remove: Type.Array(
    Type.Object({
      deployment_id: Id,
      instance_id: Type.Optional(
        orNull({
          ...Id,
          description:
            'only the container of this instance; null: only the container without the label of ' +
            'an instance; absent: all containers of the deployment',
        }),
      ),
      containers: Type.Optional(
        Type.Integer({ description: 'how many containers it removes, if it removes several' }),
      ),
      reason: Type.String(),
    }),
  ),
  stop: Type.Optional(
    Type.Array(
      Type.Object({
        deployment_id: Id,
        instance_id: Type.Optional(
          orNull({ ...Id, description: 'limits the stop, as in `remove`' }),
        ),
        reason: Type.String(),
      }),
    ),
  ),
  start: Type.Optional(orNull(Id)),
  keep: orNull(
    Type.Object({ deployment_id: Id, name: Type.String({ description: 'svc-{domain_prefix}' }) }),
  ),
  keep_instances: Type.Optional(
    Type.Array(Type.Object({ deployment_id: Id, instance_id: Id, name: Type.String() }), {
      description:
        'instances whose containers get these names; set while the project has several instances',
    }),
  ),
  project_deleted: Type.Optional(
    Type.Boolean({
      description: 'true if the project was deleted; then its images are removed too',
    }),
  ),
  drain_seconds: Type.Integer(),
  stop_grace_seconds: Type.Integer(),
});
export type RetirePayload = Static<typeof RetirePayload>;

/** Payload of a `sync` task: copy a dataset to the cache of the node (prewarm). */
export const SyncPayload = Type.Object({
  dataset: DatasetSource,
  background: Type.Optional(
    Type.Boolean({
      description:
        'true: a copy for `data_copies`. It takes none of the places of COPIES_AT_ONCE, so that ' +
        'no deployment waits for it',
    }),
  ),
});
export type SyncPayload = Static<typeof SyncPayload>;

export type Payload = {
  build: BuildPayload;
  deploy: DeployPayload;
  retire: RetirePayload;
  sync: SyncPayload;
  look: LookPayload | RepositoryLookPayload;
  clean: CleanPayload;
  move: MovePayload;
  run: RunPayload;
};

const base = {
  id: Id,
  status: literals(TASK_STATES),
  node_id: Id,
  deployment_id: orNull(Id),
  attempt: Type.Integer({ minimum: 0, description: '0 until an agent claims the task' }),
  cancel_requested: Type.Boolean({
    description: 'stop the task, then report status `failed` with code `cancelled`',
  }),
  created_at: Time,
};

/** One task as its node sees it. `kind` determines the type of `payload`. */
export const Task = Type.Union([
  Type.Object({ ...base, kind: Type.Literal('build'), payload: BuildPayload }),
  Type.Object({ ...base, kind: Type.Literal('deploy'), payload: DeployPayload }),
  Type.Object({ ...base, kind: Type.Literal('retire'), payload: RetirePayload }),
  Type.Object({ ...base, kind: Type.Literal('sync'), payload: SyncPayload }),
  Type.Object({
    ...base,
    kind: Type.Literal('look'),
    payload: Type.Union([LookPayload, RepositoryLookPayload]),
  }),
  Type.Object({ ...base, kind: Type.Literal('clean'), payload: CleanPayload }),
  Type.Object({ ...base, kind: Type.Literal('move'), payload: MovePayload }),
  Type.Object({ ...base, kind: Type.Literal('run'), payload: RunPayload }),
]);
export type Task = Static<typeof Task>;
export type TaskOf<K extends (typeof TASK_KINDS)[number]> = Extract<Task, { kind: K }>;

/**
 * Remaining duration of the lease in seconds. Agents need a duration because their clock can differ
 * from the control plane's.
 */
const LeaseSeconds = Type.Optional(Type.Number({ minimum: 0 }));
/** A secret with its value. Sent only in the answer to a claim. */
export const ClaimedSecret = Type.Object({
  name: Type.String(),
  value: Type.String(),
  as: literals(SECRET_DELIVERIES),
});
export type ClaimedSecret = Static<typeof ClaimedSecret>;
export const TaskClaim = Type.Object({
  attempt: Type.Integer(),
  lease_token: Type.String(),
  lease_expires_at: Time,
  lease_seconds: LeaseSeconds,
  git: Type.Optional(GitAccess),
  secrets: Type.Optional(Type.Array(ClaimedSecret)),
  secrets_digest: Type.Optional(
    Type.String({ description: 'changes when a name or a value of `secrets` changes' }),
  ),
  logged_until: Type.Optional(
    Type.String({
      description:
        'of a `run` task: the time of the last stored line of the command, as an earlier ' +
        'attempt sent it',
    }),
  ),
});
export type TaskClaim = Static<typeof TaskClaim>;

export const TaskRenewal = Type.Object({
  lease_expires_at: Time,
  lease_seconds: LeaseSeconds,
  cancel_requested: Type.Boolean(),
});

/** `step` names the step that wrote the line (`clone`, `[2/4] RUN npm ci`, `probe`), or is null. */
export const LogLineIn = Type.Object({
  at: Type.Optional(Time),
  stream: literals(['stdout', 'stderr', 'system']),
  text: Type.String({ maxLength: 16_384 }),
  step: Type.Optional(orNull(Type.String({ maxLength: 300 }))),
});
export type LogLineIn = Static<typeof LogLineIn>;
/**
 * `first` is the number of the first line within this attempt, so that the server stores a repeated
 * batch only once.
 */
export const TaskLogs = Type.Object({
  first: Type.Optional(Type.Integer({ minimum: 0 })),
  lines: Type.Array(LogLineIn, { maxItems: 1000 }),
});
export type TaskLogs = Static<typeof TaskLogs>;

/**
 * Reason of a failure. `code` is one of FAILURES (errors.ts); an unknown code is stored as
 * `task_failed` with its message.
 */
export const TaskError = Type.Object({
  code: Type.String({ maxLength: 60 }),
  message: Type.String({ maxLength: 4000 }),
});
export type TaskError = Static<typeof TaskError>;

/** Limits in characters; an agent truncates longer texts before it reports. */
export const MAX_COMMIT_MESSAGE = 2_000;
export const MAX_COMMIT_AUTHOR = 200;

const REPORTED = {
  image_tag: Type.Optional(orNull(Type.String({ maxLength: 600 }))),
  image_digest: Type.Optional(orNull(ImageDigest)),
  commit: Type.Optional(orNull(CommitId)),
  commit_message: Type.Optional(
    orNull(
      Type.String({
        maxLength: MAX_COMMIT_MESSAGE,
        description: 'has no control characters except line feeds',
      }),
    ),
  ),
  commit_author: Type.Optional(
    orNull(Type.String({ maxLength: MAX_COMMIT_AUTHOR, description: 'name of the author' })),
  ),
  arch: Type.Optional(
    orNull(
      Type.String({
        maxLength: 40,
        description: 'architecture of the image as Go names it: amd64, arm64',
      }),
    ),
  ),
  host_keys: Type.Optional(
    Type.Array(SeenHostKey, {
      maxItems: MAX_SEEN_KEYS,
      description: 'ssh host keys that git servers presented during a build',
    }),
  ),
};

/**
 * Facts that a build learned before its end. The agent sends them with the progress of the task as
 * soon as it knows them, and again with the report, even of a failure. The deployment keeps them
 * after a failed, cancelled or lost build.
 */
export const TaskFacts = Type.Object(REPORTED);
export type TaskFacts = Static<typeof TaskFacts>;

/** Body of `POST /api/agent/tasks/{id}/progress`. An older control plane ignores `learned`. */
export const ProgressReport = Type.Object({
  ...TaskProgress.properties,
  learned: Type.Optional(TaskFacts),
});

/** Limits of `notes` in a report. */
export const MAX_NOTES = 10;
export const MAX_NOTE = 1_000;
/**
 * A line that an agent adds to the story of the deployment. `kind` is the kind of the line, e.g.
 * `git_lfs`.
 */
export const TaskNote = Type.Object({
  kind: Type.String({ maxLength: 40, pattern: '^[a-z][a-z_]*$' }),
  message: Type.String({ minLength: 1, maxLength: MAX_NOTE }),
});
export type TaskNote = Static<typeof TaskNote>;

/**
 * Body of `POST /api/agent/tasks/{id}/complete`. The contract defines `{status, result,
 * image_tag?}` for a build and `{status, host_port}` for a deploy. `result` is an object, or a text
 * for people. Berth adds `image_digest`, `commit`, `commit_message`, `commit_author`, `arch`,
 * `host_keys` and `notes` (build), and `container_id` and `datasets` (deploy).
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
  ...REPORTED,
  config_file: Type.Optional(
    Type.Unsafe<ConfigFile>({ ...ConfigFile, description: 'a completed build: its berth.toml' }),
  ),
  notes: Type.Optional(
    Type.Array(TaskNote, {
      maxItems: MAX_NOTES,
      description: 'lines for the story of the deployment',
    }),
  ),
  host_port: Type.Optional(orNull(Type.Integer({ minimum: 1, maximum: 65_535 }))),
  container_id: Type.Optional(orNull(Type.String({ maxLength: 128 }))),
  datasets: Type.Optional(
    Type.Array(Type.Object({ dataset_id: Id, version: orNull(Type.Integer({ minimum: 1 })) }), {
      maxItems: 100,
      description:
        'the mounted versions; a version is newer than requested if the source changed during ' +
        'the copy',
    }),
  ),
});
export type TaskReport = Static<typeof TaskReport>;

/**
 * Returns a text that changes whenever a list of open tasks changes in a way that the agent must
 * act on. Control plane and agent both compute it; the control plane sends it as `open_tasks` in
 * the answer to a registration.
 */
export const openTasksText = (
  tasks: readonly Pick<Task, 'id' | 'attempt' | 'cancel_requested'>[],
): string =>
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
  keep_releases: Type.Optional(
    Type.Integer({
      minimum: 1,
      description: 'images of each project that a node keeps; the agent may keep fewer',
    }),
  ),
});
export type AgentConfig = Static<typeof AgentConfig>;
