import { type Static, Type } from 'typebox';
import { Certificate } from './certificate.ts';
import { MAX_DATA_COPIES } from './data-copies.ts';
import { MOUNT_MODES } from './dataset.ts';
import { Domain, MAX_DOMAINS } from './domain.ts';
import { ByName } from './route.ts';
import { Command } from './run-payload.ts';
import { Requires } from './machine.ts';
import { ContainerToRemove } from './node.ts';
import { CommitId, DnsLabel, Id, literals, orNull, REPLACE_MODES, Time } from './vocabulary.ts';

/**
 * https, http, ssh or `user@host:path`, without a password. control-plane/src/domain/git/git-url.ts
 * has the full rules.
 */
export const GitUrl = Type.String({ minLength: 1, maxLength: 2000 });
/**
 * A branch name that git accepts (git-check-ref-format). control-plane/src/domain/git/git-ref.ts
 * has the full rules.
 */
export const Branch = Type.String({ minLength: 1, maxLength: 255 });
/** A relative path inside the repository, without `..`. */
export const RepoPath = Type.String({ minLength: 1, maxLength: 500 });

/** Maximum number of variables of one project. */
export const MAX_ENV = 200;
/** Maximum size of all names and values together, in bytes. */
export const MAX_ENV_BYTES = 1_048_576;
/** Names follow POSIX; values are text up to 32 KiB. */
const EnvKey = Type.String({ pattern: '^[A-Za-z_][A-Za-z0-9_]*$', maxLength: 200 });
const EnvValue = Type.String({ maxLength: 32_768 });
export const Env = Type.Record(EnvKey, EnvValue, {
  maxProperties: MAX_ENV,
  additionalProperties: false,
});
export type Env = Static<typeof Env>;
/**
 * A merge patch (RFC 7396): sets the given keys, removes keys whose value is `null`, and keeps all
 * others.
 */
export const EnvPatch = Type.Record(EnvKey, orNull(EnvValue), {
  maxProperties: 2 * MAX_ENV,
  additionalProperties: false,
});
export type EnvPatch = Static<typeof EnvPatch>;
/** domain/projects/env.ts checks the name, so that an invalid name gets 422 and not 404. */
export const ByEnvName = Type.Object({ ...ByName.properties, name: Type.String({ minLength: 1 }) });
export const EnvSet = Type.Object({ value: EnvValue }, { additionalProperties: false });

/** Folder in the repository, relative to the root; `.` is the root. */
export const RepoFolder = Type.String({ minLength: 1, maxLength: 500 });
/** Name or number of a stage of the Dockerfile. */
export const BuildTarget = Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9_.-]*$', maxLength: 128 });
/**
 * Maximum number of build arguments of one project, and maximum size of all names and values
 * together in bytes.
 */
export const MAX_BUILD_ARGS = 100;
export const MAX_BUILD_ARG_BYTES = 131_072;
const BuildArg = Type.String({ maxLength: 32_768 });
export const BuildArgs = Type.Record(EnvKey, BuildArg, {
  maxProperties: MAX_BUILD_ARGS,
  additionalProperties: false,
});
export type BuildArgs = Static<typeof BuildArgs>;
/** A merge patch of build arguments, like EnvPatch. */
export const BuildArgsPatch = Type.Record(EnvKey, orNull(BuildArg), {
  maxProperties: 2 * MAX_BUILD_ARGS,
  additionalProperties: false,
});
export type BuildArgsPatch = Static<typeof BuildArgsPatch>;

export const DatasetUse = Type.Object(
  {
    dataset_id: Id,
    mode: literals(MOUNT_MODES),
    mount_path: Type.Optional(Type.String({ pattern: '^/', maxLength: 500 })),
  },
  { additionalProperties: false },
);

/**
 * A folder on the disk of the project's node that outlives deployments. `name` is the folder's
 * name.
 */
export const VolumeUse = Type.Object(
  { name: DnsLabel, mount_path: Type.String({ pattern: '^/', maxLength: 500 }) },
  { additionalProperties: false },
);
export type VolumeUse = Static<typeof VolumeUse>;
export const MAX_VOLUMES = 20;

/**
 * How Berth reacts to a new version of a running deployment's datasets. `tell` adds an event to the
 * deployment; `redeploy` also deploys the same release again.
 */
export const ON_DATASET_CHANGE = ['ignore', 'tell', 'redeploy'] as const;

/**
 * A glob or a folder inside the repository, like git’s `glob` pathspecs: `*` matches no slash, `**`
 * matches any number of folders.
 */
export const WatchPath = Type.String({ minLength: 1, maxLength: 300 });

/** Maximum number of origins in `cors_origins`. */
export const MAX_ORIGINS = 20;
const Origin = Type.String({ minLength: 1, maxLength: 300 });

/** Maximum number of members of one project. */
export const MAX_MEMBERS = 200;
/** A role in one project. It cannot exceed the role of the user. */
export const MEMBER_ROLES = ['viewer', 'developer'] as const;
export const Member = Type.Object(
  { user_id: Id, role: literals(MEMBER_ROLES) },
  { additionalProperties: false },
);
export type Member = Static<typeof Member>;

/**
 * HTTP path of the health check; a status below 400 is healthy. Without a path, every HTTP answer
 * is healthy.
 */
export const HealthPath = Type.String({ pattern: '^/[!-~]*$', maxLength: 500 });
export const MemoryBytes = Type.Integer({
  minimum: 6_291_456,
  maximum: 1_099_511_627_776_000,
  description: 'at least 6 MiB, the minimum of the container engine',
});
export const Cpus = Type.Number({ minimum: 0.01, maximum: 1024 });
/** Maximum number of instances of one process. */
export const MAX_COUNT = 50;
export const Count = Type.Integer({ minimum: 0, maximum: MAX_COUNT });
/** Name of the process that serves HTTP. */
export const WEB = 'web';
/** Fields of a process beside its name. */
export const PROCESS_FIELDS = {
  count: Type.Optional(Count),
  command: Type.Optional(
    orNull(
      Type.Unsafe<string[]>({
        ...Command,
        description: 'replaces ENTRYPOINT and CMD of the image; null: those of the image',
      }),
    ),
  ),
  memory_bytes: Type.Optional(
    orNull({ ...MemoryBytes, description: 'null: the limit of the project' }),
  ),
  cpus: Type.Optional(orNull({ ...Cpus, description: 'null: the limit of the project' })),
  replace: Type.Optional(
    orNull({
      ...literals(REPLACE_MODES),
      description:
        '`rolling`: new instances start before the old ones stop; `recreate`: after that. Null: ' +
        '`replace` of the project for `web`, `recreate` for others',
    }),
  ),
  health_path: Type.Optional(
    orNull({ ...HealthPath, description: 'of `web` only; null: that of the project' }),
  ),
};
export const ProcessName = Type.String({
  pattern: '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$',
  minLength: 1,
  maxLength: 20,
});
/** One way to start the image of a project. `count` takes effect at once. */
export const Process = Type.Object(
  { name: ProcessName, ...PROCESS_FIELDS },
  { additionalProperties: false },
);
export type Process = Static<typeof Process>;
/** Seconds after which a container without HTTP counts as started. */
export const SettleSeconds = Type.Integer({ minimum: 0, maximum: 600 });
/** Returns whether the list has the process that serves HTTP. */
export const hasWeb = ({ processes }: { processes: readonly Pick<Process, 'name'>[] }): boolean =>
  processes.some(({ name }) => name === WEB);

/**
 * Returns whether no container of `web` runs because its count is 0. `scaled`: the counts that people
 * set, also of a `web` that only a file of the repository has.
 */
export const isScaledToZero = ({
  processes,
  scaled = {},
}: {
  processes: readonly Process[];
  scaled?: Readonly<Record<string, number>>;
}): boolean => (scaled[WEB] ?? processes.find(({ name }) => name === WEB)?.count) === 0;
/** Returns whether a stopped project rests because its count is 0, and no person stopped it. */
export const restsAtZero = (project: {
  processes: readonly Process[];
  stopped_by_person: boolean;
}): boolean => isScaledToZero(project) && !project.stopped_by_person;
/** Returns why no container of a stopped project runs, as a word. */
export const restWord = (project: Parameters<typeof restsAtZero>[0]): string =>
  restsAtZero(project) ? 'scaled to 0' : 'stopped';
/** Body of a scale: the count of each named process. Takes effect at once. */
export const Scale = Type.Record(Type.String({ maxLength: 63 }), Count, {
  minProperties: 1,
  maxProperties: 20,
});
export type Scale = Static<typeof Scale>;
/** `nodes`: nodes without an instance of the process come first; `pack`: the score alone decides. */
export const SPREAD = ['nodes', 'pack'] as const;
/** `move`: a lost node's instance starts on another node; `wait`: it waits for its node. */
export const ON_NODE_LOST = ['move', 'wait'] as const;
/** The lowest role in the project that may use exec and tunnels. */
export const EXEC_ROLES = ['admin', 'developer'] as const;
export const Port = Type.Integer({ minimum: 1, maximum: 65_535 });
export const DrainSeconds = Type.Integer({ minimum: 0, maximum: 3600 });
/** Time limit in seconds for a new container to answer its probe. */
export const StartSeconds = Type.Integer({ minimum: 1, maximum: 3600 });
/** Time limit in seconds of a release command: 1 s to a day. */
export const ReleaseTimeout = Type.Integer({ minimum: 1, maximum: 86_400 });
export const StopGraceSeconds = Type.Integer({ minimum: 0, maximum: 3600 });

/**
 * The fields that people can set. The schemas have no defaults, because the validation of a PATCH
 * would fill them in and overwrite stored values. The defaults are in PROJECT_DEFAULTS.
 */
const settable = {
  git_url: GitUrl,
  branch: Branch,
  dockerfile_path: RepoPath,
  build_context: RepoFolder,
  build_target: orNull(BuildTarget),
  build_args: BuildArgs,
  submodules: Type.Boolean({ description: 'whether submodules are fetched' }),
  git_lfs: Type.Boolean({
    description: 'whether Git LFS files are fetched; without it the build gets their pointers',
  }),
  domain_prefix: DnsLabel,
  container_port: Port,
  auth_required: Type.Boolean(),
  env: Env,
  datasets: Type.Array(DatasetUse, { maxItems: 50 }),
  volumes: Type.Array(VolumeUse, { maxItems: MAX_VOLUMES }),
  health_path: orNull(HealthPath),
  start_seconds: orNull(StartSeconds),
  release_command: orNull(
    Type.Unsafe<string[]>({
      ...Command,
      description: 'runs once for each new version, before it starts; without a shell',
    }),
  ),
  release_timeout_seconds: ReleaseTimeout,
  memory_bytes: orNull(MemoryBytes),
  cpus: orNull(Cpus),
  requires: Requires,
  drain_seconds: DrainSeconds,
  stop_grace_seconds: StopGraceSeconds,
  replace: literals(REPLACE_MODES),
  processes: Type.Array(Process, {
    minItems: 1,
    maxItems: 20,
    description:
      'the ways to start the image, and how many instances of each run; `count` takes effect at ' +
      'once',
  }),
  settle_seconds: {
    ...SettleSeconds,
    description: 'a process without HTTP has started when it runs for so many seconds',
  },
  spread: literals(SPREAD),
  sticky: Type.Boolean({
    description: 'true: a cookie keeps a visitor on one instance, from two servers on',
  }),
  on_node_lost: literals(ON_NODE_LOST),
  on_dataset_change: literals(ON_DATASET_CHANGE),
  allow_exec: Type.Boolean({
    description:
      'true: `berth exec` and `berth tunnel` are allowed, where the node allows them too. Only ' +
      'admins change it',
  }),
  exec_role: literals(EXEC_ROLES),
  data_copies: Type.Integer({
    minimum: 1,
    maximum: MAX_DATA_COPIES,
    description: 'nodes that keep the dataset versions of the running deployment',
  }),
  deploy_on_push: Type.Boolean(),
  watch_paths: Type.Array(WatchPath, { maxItems: 50 }),
  members: Type.Array(Member, {
    maxItems: MAX_MEMBERS,
    description:
      'users who may see the project, besides admins; empty: every user. Only admins change it',
  }),
  cors_origins: Type.Array(Origin, {
    maxItems: MAX_ORIGINS,
    description:
      'origins whose pages may call the project although it requires a login; exact, without ' +
      'wildcards',
  }),
  domains: Type.Array(Domain, {
    maxItems: MAX_DOMAINS,
    description: 'custom domains, in addition to the host of `domain_prefix`',
  }),
};

export const PROJECT_DEFAULTS = {
  branch: 'main',
  dockerfile_path: 'Dockerfile',
  build_context: '.',
  build_target: null,
  build_args: {},
  submodules: true,
  git_lfs: false,
  container_port: 8080,
  auth_required: false,
  env: {},
  datasets: [],
  volumes: [],
  health_path: null,
  start_seconds: null,
  release_command: null,
  release_timeout_seconds: 600,
  memory_bytes: null,
  cpus: null,
  processes: [{ name: WEB, count: 1 }],
  settle_seconds: 5,
  spread: 'nodes',
  sticky: false,
  on_node_lost: 'move',
  requires: {},
  drain_seconds: 5,
  stop_grace_seconds: 10,
  on_dataset_change: 'tell',
  allow_exec: false,
  exec_role: 'admin',
  data_copies: 1,
  deploy_on_push: true,
  watch_paths: [],
  members: [],
  cors_origins: [],
  domains: [],
} as const;

const { git_url, domain_prefix, ...optional } = settable;

export const ProjectCreate = Type.Object(
  { name: DnsLabel, git_url, domain_prefix, ...Type.Partial(Type.Object(optional)).properties },
  { additionalProperties: false },
);
export type ProjectCreate = Static<typeof ProjectCreate>;

/**
 * The name of a project cannot change. A new `domain_prefix` takes effect with the next deployment.
 */
export const ProjectPatch = Type.Object(
  Type.Partial(Type.Object({ ...settable, env: EnvPatch, build_args: BuildArgsPatch })).properties,
  {
    additionalProperties: false,
    minProperties: 1,
  },
);
export type ProjectPatch = Static<typeof ProjectPatch>;

/** Which settings a file of the repository sets. */
export const ConfigOrigin = Type.Object({
  file: Type.String({ description: 'its path in the repository' }),
  commit: orNull(CommitId),
  keys: Type.Array(Type.String(), {
    description: 'fields of the project; one entry for each variable, such as `env.LOG_LEVEL`',
  }),
});
export type ConfigOrigin = Static<typeof ConfigOrigin>;

export const Project = Type.Object({
  id: Id,
  name: DnsLabel,
  ...settable,
  env: Type.Optional(
    Type.Record(Type.String(), Type.String(), {
      description: 'absent for viewers, who get only `env_names`',
    }),
  ),
  env_names: Type.Array(Type.String()),
  env_hidden: Type.Boolean({
    description: 'true if the caller may not see `env` and `build_args`',
  }),
  build_args: Type.Optional(
    Type.Record(Type.String(), Type.String(), {
      description: 'absent for viewers, who get only `build_arg_names`',
    }),
  ),
  build_arg_names: Type.Array(Type.String()),
  /** null: the project has no process `web`. */
  url: orNull(Type.String()),
  stopped: Type.Boolean({
    description:
      'true after a stop, until a deployment is live, and while `web` has count 0: the host ' +
      'answers 503 with a page',
  }),
  stopped_by_person: Type.Boolean({
    description:
      'true after a stop, until a deployment that a person requested is live: a scale stores the ' +
      'count and starts nothing',
  }),
  running_deployment_id: orNull(Id),
  config: Type.Optional(
    Type.Unsafe<ConfigOrigin | null>({
      ...orNull(ConfigOrigin),
      description:
        'the settings that come from berth.toml of the version that serves; the other fields ' +
        'show these values. Null: none',
    }),
  ),
  certificate: Type.Union([Certificate, Type.Null()], {
    description:
      'the certificate that the proxy serves for the host of this project; null: not checked ' +
      'yet, or not published over https',
  }),
  deleting: Type.Boolean(),
  unmanaged: Type.Optional(
    Type.Array(ContainerToRemove, {
      description:
        'only in the answer to a deletion: its containers that only a person can remove, ' +
        'because their agent is contract-only',
    }),
  ),
  created_at: Time,
  updated_at: Time,
});
export type Project = Static<typeof Project>;
