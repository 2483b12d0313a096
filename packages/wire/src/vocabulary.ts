/**
 * The words of Berth, used unchanged in code, API, database, docs and user interface.
 *
 * project     a git URL, branch, Dockerfile path, `domain_prefix`, container port, Require Auth, env, datasets
 * deployment  one request to bring one version of a project live; has a `generation` that rises per project
 * release     what a deployment produced: commit, image digest, env, dataset versions. Immutable
 * task        one piece of work for one node, with `attempt` and a lease
 * lease       (task, attempt, token, expiry): the right to report on a task. A later attempt voids it
 * node/agent  a machine / the program on it. Role `builder` or `deploy`
 * plan        what a decision wants changed: next state, tasks to create or cancel, route change, events
 * route       host name -> node address and port, published to the reverse proxy
 * dataset     files under the shared storage; version: a numbered state of them; manifest: its path -> (size, checksum) list
 * marker      the router whose path is the configuration's hash; when it answers, that configuration is live
 */
import { type Static, type TSchema, type TUnsafe, Type } from 'typebox';

/** A string schema that accepts exactly `values`; one JSON Schema `enum`, so the error names all of them. */
export function literals<const T extends readonly string[]>(values: T, options: object = {}): TUnsafe<T[number]> {
  return Type.Unsafe<T[number]>({ type: 'string', enum: [...values], ...options });
}

export const ROLES = ['viewer', 'developer', 'admin'] as const;
export type Role = (typeof ROLES)[number];

export const NODE_ROLES = ['builder', 'deploy'] as const;
export type NodeRole = (typeof NODE_ROLES)[number];

/** In the order of the ladder; see docs/states.md and control-plane/src/flow/deployment.ts. */
export const DEPLOYMENT_STATES = [
  'pending',
  'building',
  'built',
  'deploying',
  'running',
  'retired',
  'failed',
  'cancelled',
  'superseded',
] as const;
export type DeploymentState = (typeof DEPLOYMENT_STATES)[number];

/** A deployment in one of these never changes its state again. */
export const TERMINAL_STATES = ['retired', 'failed', 'cancelled', 'superseded'] as const satisfies readonly DeploymentState[];
/** A deployment in one of these is settled: nobody is waiting for it any more. */
export const SETTLED_STATES = ['running', ...TERMINAL_STATES] as const satisfies readonly DeploymentState[];

export const isTerminal = (s: DeploymentState): boolean => (TERMINAL_STATES as readonly string[]).includes(s);
export const isSettled = (s: DeploymentState): boolean => (SETTLED_STATES as readonly string[]).includes(s);

/** `build` and `deploy` are the contract's; the others go only to agents that sent `agent_version`. */
export const TASK_KINDS = ['build', 'deploy', 'retire', 'sync'] as const;
export type TaskKind = (typeof TASK_KINDS)[number];

/** pending: offered to its node; running: claimed under a lease; the rest are ends. */
export const TASK_STATES = ['pending', 'running', 'completed', 'failed', 'cancelled', 'lost'] as const;
export type TaskState = (typeof TASK_STATES)[number];
export const isOpenTask = (s: TaskState): boolean => s === 'pending' || s === 'running';

export const HEALTH_STATES = ['healthy', 'unhealthy', 'unknown', 'drifted'] as const;
export type HealthState = (typeof HEALTH_STATES)[number];

export const REPLACE_MODES = ['rolling', 'recreate'] as const;
export type ReplaceMode = (typeof REPLACE_MODES)[number];

/** Labels that the agent puts on every container of ours; reconciliation goes by them alone. */
export const LABELS = {
  project: 'berth.project',
  project_name: 'berth.project_name',
  deployment: 'berth.deployment',
  generation: 'berth.generation',
  task: 'berth.task',
  attempt: 'berth.attempt',
  node: 'berth.node',
  /** The limit in bytes that the agent gave a container whose project sets none. */
  default_memory: 'berth.default_memory',
  /** On networks: the agent that made it. */
  network: 'berth.network',
} as const;

/** Identity headers of the contract and their spellings that an application might read as the same. */
export const IDENTITY_HEADERS = [
  'X-Forwarded-User',
  'X-Forwarded-User-Name',
  'X-Forwarded-User-Avatar',
  'X-Forwarded-User-Provider',
  'X-Forwarded-User-Assertion',
] as const;

export const Id = Type.String({ minLength: 1, maxLength: 64, pattern: '^[A-Za-z0-9_-]+$' });
/** RFC 3339, UTC. */
export const Time = Type.String({ format: 'date-time' });
export type Time = Static<typeof Time>;

/** A DNS label (RFC 1123): what `name` and `domain_prefix` must be. */
export const DnsLabel = Type.String({ minLength: 1, maxLength: 63, pattern: '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$' });
/** A full git commit id, SHA-1 or SHA-256. */
export const CommitId = Type.String({ pattern: '^([0-9a-f]{40}|[0-9a-f]{64})$' });
export const ImageDigest = Type.String({ pattern: '^sha256:[0-9a-f]{64}$' });

/** What every list answers: `items` and the cursor of the next page, or null at the end. */
export const listOf = <T extends TSchema>(item: T) =>
  Type.Object({ items: Type.Array(item), next_cursor: Type.Union([Type.String(), Type.Null()]) });

export const PageQuery = {
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 200, default: 50 })),
  cursor: Type.Optional(Type.String({ maxLength: 512 })),
};

export const orNull = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
