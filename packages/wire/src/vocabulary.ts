/**
 * The glossary of Berth. Code, API, database, docs and user interface use these words unchanged.
 *
 * project         a git URL, branch, Dockerfile path, `domain_prefix`, container port, Require
 *                 Auth, env, datasets
 * deployment      one request to bring one version of a project live; its `generation` rises with
 *                 each deployment of the project
 * release         the immutable result of a deployment: commit, image digest, env, dataset versions
 * process         one way to start the image of a project; `web` serves HTTP
 * instance        one container of one process of one deployment, on one node
 * count           how many instances of a process should run
 * first instance  the instance that the deployment row itself stores; `promote` makes another one
 *                 the first. All others are further instances, each with its own row
 * beat            a short request with which the agent of a deploy node says that it works
 * lost            a node whose agent was silent for FAILOVER_AFTER, or an instance on such a node
 * failover        a replacement of an instance on another node, because its node is lost
 * brake           stops all failovers while most deploy nodes are silent
 * job             a command with a schedule; each of its times gives one run, or a record that says
 *                 why not
 * run             one execution of a command in a container of its own, from the image of a release;
 *                 a person, a job or a release command requests it
 * task            one piece of work for one node, with `attempt` and a lease
 * claim           the request of an agent for a task that is offered to it; the answer has attempt,
 *                 lease and secrets
 * attempt         number of claims of a task so far; a report names the attempt that it belongs to
 * lease           (task, attempt, token, expiry): the right to report on a task. A later attempt
 *                 voids it
 * device lease    (node, device, deployment): the containers of this deployment can use the device
 * room            memory and devices of a node that the limits and device leases of containers hold
 * node            a machine with the role `builder` or `deploy`
 * agent           the program that runs on a node
 * facts           all data that a decision can read: project, deployments, tasks, nodes, clocks. A
 *                 build also sends facts, about its commit and image
 * draft           a plan while a decision adds to it
 * plan            the changes that a decision requests: next states, tasks to create or end, route
 *                 change, story lines
 * story           the lines of a deployment that say what happened to it, for people
 * refusal         why a node cannot take work now, as data
 * reason to wait  why a deployment cannot continue now, as data; `waiting` is its text
 * route           host name -> node address and port, published to the reverse proxy
 * dataset         a folder of the shared storage
 * version         a numbered state of a dataset
 * manifest        the files of a dataset version: path -> (size, checksum)
 * want            what a node should have or do, from which an agent or a loop computes the next
 *                 steps: wanted datasets, wanted containers
 * volume          a folder on the disk of a deploy node that outlives the deployments of its
 *                 project
 * copy            (of volumes) the folders of one project on one node; a move makes a new copy, and
 *                 only one copy is current
 * staging         the folder in which an agent collects a copy before the copy is complete and
 *                 checked
 * batch           several small pieces of work of one kind that are sent, stored or run together:
 *                 log lines, rows, registrations
 * channel         a stream of bytes or lines through the control plane: a volume from node to node,
 *                 a runtime log from agent to viewer
 * vault           the part of the control plane that seals and opens secrets; only it has the keys
 * presence        whether a person used the API in the last 2 seconds; background work slows down
 *                 meanwhile
 * hold            a request that stays open until its answer changes or `wait` seconds have passed
 *                 (long poll)
 * marker          a router whose path is the hash of the configuration; when it answers, the proxy
 *                 serves that configuration
 * drift           a difference between a running container and its deployment or project settings;
 *                 health `drifted`
 * adoption        a deploy task continues with the container that an earlier attempt of it started,
 *                 instead of starting another one
 * quarantine      containers with Berth's labels whose deployment the control plane does not know;
 *                 only people remove them
 * hook            an address that a forge calls after a push; a delivery is one call, and its
 *                 verdict says what Berth did
 * look            a task that reads the tip of a branch from the git server to decide about a
 *                 delivery, or the contents of a repository for a new project
 * drain           a node or container gets no new work and finishes its current work: a node moves
 *                 its projects, a container answers its open requests
 * retire          remove the container of a deployment that another one replaced, after it has
 *                 drained
 * stopped         a project whose container a person stopped; its route, node, image and data stay
 *                 reserved until it starts again
 * stop-first      replacement without two running versions (`replace: recreate`): the old container
 *                 stops before the new one starts
 * clean-up        removal of the images that no release needs from the registry, and the registry's
 *                 own garbage collection
 * eviction        removal of a cached dataset version from a node to make room; a pinned version is
 *                 in use and stays
 * retention       removal of old history from the database
 * uptime clock    a clock in the database that runs only while a control plane serves; every
 *                 deadline uses it
 * contract        what agents, proxies and projects rely on (docs/contract.md); a contract-only
 *                 agent implements nothing else
 */
import { type Static, type TSchema, type TUnsafe, Type } from 'typebox';

/**
 * Returns a string schema that accepts exactly `values`. It is one JSON Schema `enum`, so a
 * validation error names all values.
 */
export function literals<const T extends readonly string[]>(
  values: T,
  options: object = {},
): TUnsafe<T[number]> {
  return Type.Unsafe<T[number]>({ type: 'string', enum: [...values], ...options });
}

export const ROLES = ['viewer', 'developer', 'admin'] as const;
export type Role = (typeof ROLES)[number];

export const NODE_ROLES = ['builder', 'deploy'] as const;
export type NodeRole = (typeof NODE_ROLES)[number];

/**
 * The states of a deployment, in the usual order; see docs/states.md and
 * control-plane/src/flow/deployment.ts.
 */
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

/** A deployment in one of these states never changes its state again. */
export const TERMINAL_STATES = [
  'retired',
  'failed',
  'cancelled',
  'superseded',
] as const satisfies readonly DeploymentState[];
/** A deployment in one of these states is settled: no work on it remains. */
export const SETTLED_STATES = [
  'running',
  ...TERMINAL_STATES,
] as const satisfies readonly DeploymentState[];

export const isTerminal = (s: DeploymentState): boolean =>
  (TERMINAL_STATES as readonly string[]).includes(s);
export const isSettled = (s: DeploymentState): boolean =>
  (SETTLED_STATES as readonly string[]).includes(s);

/**
 * The contract defines `build` and `deploy`. Berth sends the other kinds only to agents that sent
 * `agent_version`; `look`, `clean`, `move` and `run` also need a capability.
 */
export const TASK_KINDS = [
  'build',
  'deploy',
  'retire',
  'sync',
  'look',
  'clean',
  'move',
  'run',
] as const;
export type TaskKind = (typeof TASK_KINDS)[number];

/** pending: offered to its node; running: claimed under a lease; all other states are final. */
export const TASK_STATES = [
  'pending',
  'running',
  'completed',
  'failed',
  'cancelled',
  'lost',
] as const;
export type TaskState = (typeof TASK_STATES)[number];
export const isOpenTask = (s: TaskState): boolean => s === 'pending' || s === 'running';

/**
 * waiting: no node can take it; starting: a deploy task is open; serving: it answers; unhealthy: it
 * does not answer; lost: its node is silent, and a replacement exists or waits; draining: it gets no
 * requests and is being removed.
 */
export const INSTANCE_STATES = [
  'waiting',
  'starting',
  'serving',
  'up',
  'unhealthy',
  'lost',
  'draining',
  'ended',
] as const;
export type InstanceState = (typeof INSTANCE_STATES)[number];

export const HEALTH_STATES = ['healthy', 'unhealthy', 'unknown', 'drifted', 'degraded'] as const;
export type HealthState = (typeof HEALTH_STATES)[number];
/**
 * Causes of a health that clients or Berth decide by; other causes are only in its text.
 * image_health_check: the HEALTHCHECK of the image fails (`unhealthy`). health_path: the
 * container runs and does not answer at `health_path` (`unhealthy`). container_differs: the
 * container differs from the deployment (`drifted`). settings_changed: settings of the project
 * changed after the deployment, and a deployment applies them (`drifted`).
 */
export const HEALTH_CAUSES = [
  'image_health_check',
  'health_path',
  'container_differs',
  'settings_changed',
] as const;
export type HealthCause = (typeof HEALTH_CAUSES)[number];

/** Returns the instance that the labels name; null: the container has no labels of an instance. */
export function instanceOfLabels(
  labels: Readonly<Record<string, string>>,
): { id: string; process: string; number: number } | null {
  const id = labels[LABELS.instance];
  if (id === undefined) return null;
  const number = Number(labels[LABELS.number]);
  return {
    id,
    process: labels[LABELS.process] ?? 'web',
    number: Number.isInteger(number) && number > 0 ? number : 1,
  };
}

export const REPLACE_MODES = ['rolling', 'recreate'] as const;
export type ReplaceMode = (typeof REPLACE_MODES)[number];

/**
 * Labels that the agent sets on every container of Berth. Reconciliation identifies containers only
 * by these labels.
 */
export const LABELS = {
  project: 'berth.project',
  project_name: 'berth.project_name',
  deployment: 'berth.deployment',
  generation: 'berth.generation',
  /** The process of a further instance, its number, and the id of the instance. */
  process: 'berth.process',
  number: 'berth.number',
  instance: 'berth.instance',
  task: 'berth.task',
  attempt: 'berth.attempt',
  node: 'berth.node',
  /**
   * How the agent probes the container while it runs, as JSON (agent/src/engine/running-probe.ts).
   * Set only if the project sets `health_path`.
   */
  probe: 'berth.probe',
  /**
   * The run of a container that executes a command, and its node. Such a container has no labels
   * `berth.node` and `berth.deployment`, so no list of deployments contains it. With devices, a
   * registration lists it with the labels `berth.run`, `berth.run_node` and `berth.devices`.
   */
  run: 'berth.run',
  run_node: 'berth.run_node',
  /** Seconds between SIGTERM and SIGKILL for the container of a run. */
  run_grace: 'berth.run_grace',
  /** The devices of the container, such as `nvidia.com/gpu=0`, comma-separated. */
  devices: 'berth.devices',
  /** Memory limit in bytes that the agent applied because the project sets no limit. */
  default_memory: 'berth.default_memory',
  /** `secrets_digest` of the claim. The agent does not adopt a container with other secrets. */
  secrets: 'berth.secrets',
  /** The copy of the volumes that the container mounts. */
  volumes: 'berth.volumes',
  /**
   * Names of the env secrets of the container, comma-separated, so that the agent removes their
   * values from its log.
   */
  secret_names: 'berth.secret_names',
  /** Label of networks, not containers: the agent that created the network. */
  network: 'berth.network',
} as const;

/** Identity headers that the contract defines. */
export const IDENTITY_HEADERS = [
  'X-Forwarded-User',
  'X-Forwarded-User-Name',
  'X-Forwarded-User-Avatar',
  'X-Forwarded-User-Provider',
  'X-Forwarded-User-Assertion',
] as const;

/**
 * Headers with which other proxies tell an application the client, the public address, the
 * requested path or the user. Traefik would pass these on as the client sent them; it sets or
 * removes X-Forwarded-For and the related headers itself.
 */
export const CLIENT_HEADERS = [
  'Forwarded',
  'Proxy',
  'X-Forwarded-Prefix',
  'X-Forwarded-Path',
  'X-Forwarded-Scheme',
  'X-Forwarded-Protocol',
  'X-Forwarded-Ssl',
  'X-Forwarded-Client-Ip',
  'X-Url-Scheme',
  'Front-End-Https',
  'X-Original-Url',
  'X-Original-Uri',
  'X-Original-Host',
  'X-Original-Forwarded-For',
  'X-Original-Remote-Addr',
  'X-Rewrite-Url',
  'X-Host',
  'X-Client-Ip',
  'Client-Ip',
  'X-Cluster-Client-Ip',
  'X-Envoy-External-Address',
  'True-Client-Ip',
  'Cf-Connecting-Ip',
  'Cf-Connecting-Ipv6',
  'Fastly-Client-Ip',
  'Fly-Client-Ip',
  'X-Appengine-User-Ip',
  'X-Azure-Clientip',
  'X-Remote-Ip',
  'X-Remote-Addr',
  'Remote-User',
  'X-Remote-User',
  'X-Webauth-User',
  'X-Auth-Request-User',
  'X-Auth-Request-Email',
  'X-Auth-Request-Groups',
  'X-Forwarded-Email',
  'X-Forwarded-Groups',
  'X-Forwarded-Preferred-Username',
  'X-Auth-Request-Preferred-Username',
  'X-Auth-Request-Access-Token',
  'X-Forwarded-Access-Token',
  'Remote-Email',
  'Remote-Name',
  'Remote-Groups',
  'X-Webauth-Email',
  'X-Webauth-Name',
  'X-Webauth-Groups',
  'X-Authenticated-User',
  'X-Authentik-Username',
  'X-Authentik-Email',
  'X-Authentik-Name',
  'X-Authentik-Groups',
  'X-Authentik-Uid',
  'X-Goog-Authenticated-User-Email',
  'X-Goog-Authenticated-User-Id',
  'Cf-Access-Authenticated-User-Email',
  'X-Amzn-Oidc-Identity',
  'X-Ms-Client-Principal',
  'X-Ms-Client-Principal-Id',
  'X-Ms-Client-Principal-Name',
  'Tailscale-User-Login',
  'Tailscale-User-Name',
  'Client-Cert',
] as const;

export const Id = Type.String({ minLength: 1, maxLength: 64, pattern: '^[A-Za-z0-9_-]+$' });
/** RFC 3339, UTC. */
export const Time = Type.String({ format: 'date-time' });
export type Time = Static<typeof Time>;

/** A DNS label (RFC 1123), for `name` and `domain_prefix`. */
export const DnsLabel = Type.String({
  minLength: 1,
  maxLength: 63,
  pattern: '^[a-z0-9]([a-z0-9-]*[a-z0-9])?$',
});
/** A full git commit id, SHA-1 or SHA-256. */
export const CommitId = Type.String({ pattern: '^([0-9a-f]{40}|[0-9a-f]{64})$' });
export const ImageDigest = Type.String({ pattern: '^sha256:[0-9a-f]{64}$' });

/**
 * Answer of every list: `items` and the cursor of the next page, which is null on the last page.
 */
export const listOf = <T extends TSchema>(item: T) =>
  Type.Object({ items: Type.Array(item), next_cursor: Type.Union([Type.String(), Type.Null()]) });

export const PageQuery = {
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 200, default: 50 })),
  cursor: Type.Optional(Type.String({ maxLength: 512 })),
};

export const orNull = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
