import { type Static, Type } from 'typebox';
import { MOUNT_MODES } from './dataset.ts';
import { ByName } from './route.ts';
import { DnsLabel, Id, literals, orNull, REPLACE_MODES, Time } from './vocabulary.ts';

/** https, http, ssh or `user@host:path`; no password in it and nothing git could read as an option. Full rule: control-plane/src/domain/git-url.ts. */
export const GitUrl = Type.String({ minLength: 1, maxLength: 2000 });
/** What git accepts as a branch name (git-check-ref-format); checked in full by domain/git-ref.ts. */
export const Branch = Type.String({ minLength: 1, maxLength: 255 });
/** A relative path inside the repository; `..` and absolute paths are refused. */
export const RepoPath = Type.String({ minLength: 1, maxLength: 500 });

/** Variables of one project. */
export const MAX_ENV = 200;
/** Of names and values together. */
export const MAX_ENV_BYTES = 1_048_576;
/** Names as POSIX has them; values are text up to 32 KiB. */
const EnvKey = Type.String({ pattern: '^[A-Za-z_][A-Za-z0-9_]*$', maxLength: 200 });
const EnvValue = Type.String({ maxLength: 32_768 });
export const Env = Type.Record(EnvKey, EnvValue, { maxProperties: MAX_ENV, additionalProperties: false });
export type Env = Static<typeof Env>;
/** RFC 7396: a key that is named is set, `null` removes it, every other key stays. */
export const EnvPatch = Type.Record(EnvKey, orNull(EnvValue), { maxProperties: 2 * MAX_ENV, additionalProperties: false });
export type EnvPatch = Static<typeof EnvPatch>;
/** The name is checked by domain/env.ts, so that a wrong one is 422 and not 404. */
export const ByEnvName = Type.Object({ ...ByName.properties, name: Type.String({ minLength: 1 }) });
export const EnvSet = Type.Object({ value: EnvValue }, { additionalProperties: false });

export const DatasetUse = Type.Object(
  {
    dataset_id: Id,
    mode: literals(MOUNT_MODES),
    mount_path: Type.Optional(Type.String({ pattern: '^/', maxLength: 500 })),
  },
  { additionalProperties: false },
);

/** What a new version of a dataset does to what runs on an older one: a line in its story, or a deployment of the same release too. */
export const ON_DATASET_CHANGE = ['ignore', 'tell', 'redeploy'] as const;

/** HTTP path the probe asks for; below 400 is then healthy. Without one, any HTTP answer is. */
export const HealthPath = Type.String({ pattern: '^/[!-~]*$', maxLength: 500 });
export const MemoryBytes = Type.Integer({
  minimum: 6_291_456,
  maximum: 1_099_511_627_776_000,
  description: 'At least 6 MiB, the engine’s own minimum',
});
export const Cpus = Type.Number({ minimum: 0.01, maximum: 1024 });
export const Port = Type.Integer({ minimum: 1, maximum: 65_535 });
export const DrainSeconds = Type.Integer({ minimum: 0, maximum: 3600 });
export const StopGraceSeconds = Type.Integer({ minimum: 0, maximum: 3600 });

/**
 * The fields a person sets, without defaults: a `Type.Partial` of a schema with defaults would refill them in a PATCH
 * and so lose data (STACK.md). Defaults stand once, in PROJECT_DEFAULTS.
 */
const settable = {
  git_url: GitUrl,
  branch: Branch,
  dockerfile_path: RepoPath,
  domain_prefix: DnsLabel,
  container_port: Port,
  auth_required: Type.Boolean(),
  env: Env,
  datasets: Type.Array(DatasetUse, { maxItems: 50 }),
  health_path: orNull(HealthPath),
  memory_bytes: orNull(MemoryBytes),
  cpus: orNull(Cpus),
  drain_seconds: DrainSeconds,
  stop_grace_seconds: StopGraceSeconds,
  replace: literals(REPLACE_MODES),
  on_dataset_change: literals(ON_DATASET_CHANGE),
};

export const PROJECT_DEFAULTS = {
  branch: 'main',
  dockerfile_path: 'Dockerfile',
  container_port: 8080,
  auth_required: false,
  env: {},
  datasets: [],
  health_path: null,
  memory_bytes: null,
  cpus: null,
  drain_seconds: 5,
  stop_grace_seconds: 10,
  on_dataset_change: 'tell',
} as const;

const { git_url, domain_prefix, ...optional } = settable;

export const ProjectCreate = Type.Object(
  { name: DnsLabel, git_url, domain_prefix, ...Type.Partial(Type.Object(optional)).properties },
  { additionalProperties: false },
);
export type ProjectCreate = Static<typeof ProjectCreate>;

/** `name` is fixed; a new `domain_prefix` takes effect with the next deployment. */
export const ProjectPatch = Type.Object(Type.Partial(Type.Object({ ...settable, env: EnvPatch })).properties, {
  additionalProperties: false,
  minProperties: 1,
});
export type ProjectPatch = Static<typeof ProjectPatch>;

export const Project = Type.Object({
  id: Id,
  name: DnsLabel,
  ...settable,
  env: Type.Optional(Type.Record(Type.String(), Type.String(), { description: 'absent for a viewer, who gets `env_names` alone' })),
  env_names: Type.Array(Type.String()),
  env_hidden: Type.Boolean({ description: 'the caller may not see `env`' }),
  url: Type.String(),
  running_deployment_id: orNull(Id),
  deleting: Type.Boolean(),
  created_at: Time,
  updated_at: Time,
});
export type Project = Static<typeof Project>;
