/**
 * Converts records to their JSON form in the API: RFC 3339 times, public URLs, and no secrets for
 * people who must not see them.
 */
import { defined } from '@berth/kit/defined';
import { projectUrl } from '../domain/nodes/host.ts';
import type { AuditEntry } from '@berth/wire/audit';
import type { Certificate } from '@berth/wire/certificate';
import type { TaskProgress } from '@berth/wire/dataset';
import type { Deployment, DeploymentEvent, DeploymentItem, LogLine } from '@berth/wire/deployment';
import type { DeviceToken } from '@berth/wire/gateway';
import type { Delivery, Hook } from '@berth/wire/hook';
import type {
  DeploymentInstance,
  InstanceItem,
  InstancePlacement,
  PlacedInstance,
} from '@berth/wire/instance';
import type { Admission, JoinToken } from '@berth/wire/joining';
import type {
  Drain,
  Node,
  NodeCopy,
  NodeDisk,
  NodeDiskView,
  ContainerToRemove,
} from '@berth/wire/node';
import { type ConfigOrigin, hasWeb, type Project } from '@berth/wire/project';
import type { Task } from '@berth/wire/task';
import type { ApiToken } from '@berth/wire/token';
import type { User } from '@berth/wire/user';
import { isOpenTask, type Role } from '@berth/wire/vocabulary';
import type { Static } from 'typebox';
import { maySeeEnv } from '../domain/identity/access.ts';
import type { HostCertificate } from '../domain/routes/configuration.ts';
import type { StatusRecord } from '../domain/git/commit-statuses.ts';
import { allInstances, type InstanceRecord, WEB } from '../domain/deployments/instance.ts';
import { restOf } from '../domain/deployments/rest.ts';
import type { DatasetPin } from '../domain/data/data-copies.ts';
import type { DatasetFact, Limits } from '../domain/deployments/facts.ts';
import type { DeliveryRecord, HookRecord } from '../domain/git/hooks.ts';
import type {
  ApiTokenRecord,
  AuditRecord,
  DeviceTokenRecord,
} from '../domain/identity/identity-records.ts';
import { withConfig } from '../domain/projects/config-file.ts';
import { countIn } from '../domain/projects/processes.ts';
import type { ConfiguredRelease } from '../domain/projects/project-store.ts';
import { labelsOfNode } from '../domain/nodes/machine.ts';
import { isOnline } from '../domain/nodes/placement.ts';
import { removeByHand } from '../domain/nodes/remove-by-hand.ts';
import type { UnmanagedContainer } from '../domain/nodes/unmanaged-containers.ts';
import type { RunOnNode } from '../domain/runs/run-store.ts';
import type { Remaining } from '../flow/drain.ts';
import { failure, failureOf } from '../flow/failure.ts';
import type {
  AdmissionRecord,
  DeploymentRecord,
  DeploymentSummary,
  DrainRecord,
  EventRecord,
  JoinTokenRecord,
  LogLineRecord,
  NodeRecord,
  ProjectRecord,
  ReleaseConfig,
  TaskRecord,
  UserRecord,
} from '../domain/platform/records.ts';

export const time = (ms: number): string => new Date(ms).toISOString();
export const timeOrNull = (ms: number | null): string | null => (ms === null ? null : time(ms));

export const certificateView = (certificate: HostCertificate | null): Certificate | null =>
  certificate === null
    ? null
    : {
        ...certificate,
        not_after: timeOrNull(certificate.not_after),
        checked_at: time(certificate.checked_at),
      };

export type ViewSettings = { publicUrl: string; baseDomain: string };

export type ProjectContext = {
  certificate: HostCertificate | null;
  /** The release whose settings come from berth.toml in part. */
  configured?: ConfiguredRelease | null;
  /** True if the running version has `web`, also if the settings no longer have it. */
  isServedByWeb?: boolean;
};

export function projectView(
  stored: ProjectRecord,
  runningId: string | null,
  role: Role,
  settings: ViewSettings,
  { certificate, configured = null, isServedByWeb = false }: ProjectContext,
): Project {
  const p = withConfig(stored, configured);
  const {
    flow_version: _v,
    secrets_version: _s,
    last_generation: _g,
    scaled: _counts,
    deleting_at,
    stopped_at,
    ...rest
  } = p;
  const { created_at, updated_at, env, build_args, ...shown } = rest;
  const hidden = !maySeeEnv(role);
  const env_names = Object.keys(env).sort();
  return {
    ...shown,
    processes: p.processes.map((one) => ({
      ...one,
      count: countIn(p, one, { config: configured?.config ?? null }),
    })),
    ...defined({ env: hidden ? undefined : env, build_args: hidden ? undefined : build_args }),
    env_names,
    build_arg_names: Object.keys(build_args).sort(),
    env_hidden: hidden,
    url:
      hasWeb(p) || isServedByWeb
        ? projectUrl(settings.publicUrl, settings.baseDomain, p.domain_prefix)
        : null,
    stopped: stopped_at !== null,
    running_deployment_id: runningId,
    config: originView(configured?.config ?? null),
    certificate: certificateView(certificate),
    deleting: deleting_at !== null,
    created_at: time(created_at),
    updated_at: time(updated_at),
  };
}

/** The jobs of the release are no part of the answer: `keys` names them. */
const originView = (config: ReleaseConfig | null): ConfigOrigin | null =>
  config === null ? null : { file: config.file, commit: config.commit, keys: config.keys };

export const hookView = (hook: HookRecord, publicUrl: string): Hook => ({
  forge: hook.forge,
  url: `${publicUrl.replace(/\/$/, '')}/api/hooks/${hook.project_id}`,
  refused: hook.refused,
  created_at: time(hook.created_at),
  updated_at: time(hook.updated_at),
});

export const deliveryView = (d: DeliveryRecord): Delivery => ({
  id: d.id,
  at: time(d.at),
  event: d.event,
  branch: d.branch,
  commit: d.commit,
  verdict: d.verdict,
  reason: d.reason,
  deployment_id: d.deployment_id,
});

/** Related records that a view of a deployment shows. */
export type DeploymentContext = {
  node: NodeRecord | null;
  /** Project settings that the running deployment does not have yet; null if there are none. */
  undeployed: { detail: string; since: number } | null;
  data: DeploymentData;
};

/** Converts a deployment for a list, without its story and placement. */
export function deploymentItem(
  d: DeploymentSummary,
  { node, undeployed, data }: DeploymentContext,
  settings: ViewSettings,
): DeploymentItem {
  return {
    id: d.id,
    project_id: d.project_id,
    generation: d.generation,
    status: d.status,
    note: d.note,
    error: d.error,
    waiting: d.waiting,
    rests: restOf(d),
    cancel_requested: d.cancel_requested_at !== null,
    rollback_of: d.rollback_of,
    rolled_back_from: d.rolled_back?.from ?? null,
    created_by: d.created_by,
    trigger: d.trigger,
    branch: d.branch,
    commit: d.commit ?? d.requested_commit,
    commit_message: d.commit_message,
    commit_author: d.commit_author,
    phases: (d.phases ?? []).map((p) => ({
      name: p.name,
      started_at: time(p.started_at),
      ended_at: timeOrNull(p.ended_at),
    })),
    image_tag: d.image_tag,
    image_digest: d.image_digest,
    image_removed_at: timeOrNull(d.image_removed_at ?? null),
    node_id: d.node_id,
    node_name: node?.hostname ?? null,
    host_ip: node?.host_ip ?? null,
    host_port: d.host_port,
    health: healthView(d, undeployed),
    created_at: time(d.created_at),
    finished_at: timeOrNull(d.finished_at),
    url: projectUrl(settings.publicUrl, settings.baseDomain, d.domain_prefix),
    datasets: deploymentDatasets(d, data.datasets),
    progress: data.progress.get(d.id) ?? null,
    log_removed_at: timeOrNull(d.log_removed_at),
    story_removed_at: timeOrNull(d.story_removed_at),
  };
}

/**
 * Replaces a story that retention removed by one line, because an empty story would mean that
 * nothing happened. Hides remaining lines, because they are not the whole story.
 */
function storyView(d: DeploymentRecord, events: readonly EventRecord[]): Deployment['events'] {
  if (d.story_removed_at === null) return events.map(eventView);
  const message =
    'the story was removed: KEEP_DEPLOYMENTS and KEEP_DEPLOYMENT_DAYS set how long stories are ' +
    'kept';
  return [{ at: time(d.story_removed_at), kind: 'story_removed', message }];
}

/** Returns why the log is unavailable, or null if retention has not removed it. */
export const logUnavailable = (d: DeploymentRecord): string | null =>
  d.log_removed_at === null
    ? null
    : `the log was removed at ${time(d.log_removed_at)}: KEEP_LOG_BYTES, KEEP_DEPLOYMENTS and ` +
      'KEEP_DEPLOYMENT_DAYS set how long logs are kept';

/** The further instances, and the nodes of all instances by id. */
export type InstanceContext = {
  others: readonly InstanceRecord[];
  nodes: ReadonlyMap<string, Pick<NodeRecord, 'hostname' | 'host_ip'>>;
};

/** Returns the instances of a deployment by number. A deployment without a node has none. */
export const instancesView = (
  d: DeploymentRecord,
  { others, nodes }: InstanceContext,
): PlacedInstance[] =>
  allInstances(d, others).map((instance) => ({
    ...instanceView(instance, nodes),
    placement: instance.placement,
  }));

/** Returns the instances of a deployment for a list of several projects. */
export const instanceItems = (
  d: DeploymentRecord,
  { others, nodes }: InstanceContext,
  project: string,
): InstanceItem[] =>
  allInstances(d, others).map((instance) => ({
    ...instanceView(instance, nodes),
    project_id: d.project_id,
    project,
    deployment_id: d.id,
    generation: d.generation,
    commit: d.commit ?? d.requested_commit,
  }));

const instanceView = (
  { id, process, number, state, node_id, host_port, container_id, since, detail }: InstanceRecord,
  nodes: InstanceContext['nodes'],
): DeploymentInstance => ({
  id,
  process,
  number,
  // An instance without HTTP serves no requests.
  state: state === 'serving' && process !== WEB ? 'up' : state,
  node_id,
  node_name: nodes.get(node_id ?? '')?.hostname ?? null,
  host_ip: nodes.get(node_id ?? '')?.host_ip ?? null,
  host_port,
  container_id,
  since: time(since),
  detail,
});

/** Returns, for each instance, which nodes could take it, and why the others were refused. */
export const placementsView = (
  d: DeploymentRecord,
  { others, nodes }: InstanceContext,
  { spread }: Pick<ProjectRecord, 'spread'>,
): InstancePlacement[] => {
  const instances = allInstances(d, others);
  return instances.map((instance) => {
    const rows = instance.placement?.items ?? [];
    const { process, number, state, node_id } = instance;
    return {
      process,
      number,
      state,
      node_id,
      node_name: nodes.get(node_id ?? '')?.hostname ?? null,
      terms: rows.filter(({ eligible }) => eligible),
      refusals: rows
        .filter(({ eligible }) => !eligible)
        .map((row) => ({ node_id: row.node_id, node_name: row.hostname, reason: row.reason })),
      ...defined({ left_out: instance.placement?.left_out }),
      note: placementNote(instance, instances, spread),
    };
  });
};

function placementNote(
  instance: InstanceRecord,
  instances: readonly InstanceRecord[],
  spread: ProjectRecord['spread'],
): string | null {
  if (instance.state === 'waiting') return instance.detail;
  const before = instances.find(
    (one) =>
      one.node_id === instance.node_id &&
      one.process === instance.process &&
      one.number < instance.number,
  );
  if (before === undefined) return null;
  const shared = `shares the node with instance ${before.number}`;
  return spread === 'pack'
    ? `${shared}: with spread “pack”, the score alone decides`
    : `${shared}: each node that could take it had an instance`;
}

export const deploymentView = (
  d: DeploymentRecord,
  events: readonly EventRecord[],
  context: DeploymentContext,
  settings: ViewSettings,
  status: StatusRecord | null,
  instances: InstanceContext,
): Deployment => ({
  ...deploymentItem({ ...d, domain_prefix: d.settings.domain_prefix }, context, settings),
  events: storyView(d, events),
  config: originView(d.config),
  placement: d.placement,
  instances: instancesView(d, instances),
  commit_status:
    status === null
      ? null
      : {
          state: status.state,
          sent_at: status.error === null ? timeOrNull(status.done_at) : null,
          error: status.error,
          given_up: status.done_at !== null && status.error !== null,
        },
});

function eventView({ at, kind, message, count, since }: EventRecord): DeploymentEvent {
  if (count === undefined || since === undefined) return { at: time(at), kind, message };
  return {
    at: time(at),
    kind,
    message: `${message} (${count} times since ${time(since)})`,
    count,
    since: time(since),
  };
}

/** Current datasets by id, and progress of copies by deployment. */
export type DeploymentData = {
  datasets: ReadonlyMap<string, Pick<DatasetFact, 'name' | 'version'>>;
  progress: ReadonlyMap<string, TaskProgress>;
};

/** Returns the datasets of a deployment. A deleted dataset has its last known name. */
const deploymentDatasets = (
  d: Pick<DeploymentRecord, 'datasets'>,
  datasets: DeploymentData['datasets'],
): Deployment['datasets'] =>
  (d.datasets ?? []).map(({ dataset_id, name, mode, version }) => {
    const current = datasets.get(dataset_id);
    const current_version = current?.version ?? null;
    const moved_on = version !== null && current_version !== null && current_version > version;
    return { dataset_id, name: current?.name ?? name, mode, version, current_version, moved_on };
  });

/**
 * Returns the health of a running deployment (docs/interfaces.md "Deployment"). A retired
 * deployment has none, although its record keeps the last one. A healthy container with old project
 * settings is `drifted`; `unhealthy` and `unknown` are worse and stay.
 */
function healthView(
  d: Pick<DeploymentRecord, 'status' | 'health'>,
  undeployed: DeploymentContext['undeployed'],
): Deployment['health'] {
  if (d.status !== 'running' || d.health === null) return null;
  const { health } = d;
  const since = time(health.since);
  if (undeployed === null && health.status === 'drifted')
    return { ...health, since, cause: 'container_differs' };
  if (undeployed === null || health.status === 'unhealthy' || health.status === 'unknown')
    return { ...health, since };
  const cause = 'settings_changed';
  if (health.status === 'healthy')
    return { status: 'drifted', since: time(undeployed.since), detail: undeployed.detail, cause };
  return { ...health, since, detail: `${health.detail}; ${undeployed.detail}`, cause };
}

export function nodeView(n: NodeRecord, now: number, limits: Limits): Node {
  return {
    id: n.id,
    hostname: n.hostname,
    role: n.role,
    host_ip: n.host_ip,
    max_storage: n.max_storage,
    free_storage: n.free_storage,
    last_seen_at: time(n.last_seen_at),
    status: isOnline(n, now, limits) ? 'online' : 'offline',
    schedulable: n.schedulable,
    deleting: n.deleting_at !== null,
    agent_version: n.agent_version,
    max_builds: n.max_builds,
    arch: n.arch,
    cpus: n.cpus,
    memory_bytes: n.memory_bytes,
    labels: labelsOfNode(n),
    admin_labels: n.admin_labels,
    devices: Object.fromEntries(
      Object.entries(n.devices).map(([kind, names]) => [kind, [...names]]),
    ),
    engine: n.engine,
    capabilities: n.capabilities,
    disk: diskView(n.disk),
    has_secret: n.has_secret,
    doubled: doubledView(n, now, limits),
    cached: n.cached,
    copy_rate: n.copy_rate,
    containers: n.containers,
  };
}

/** Removes the names of images, which contain names of projects that the caller cannot see. */
export function diskView(disk: NodeDisk | null): NodeDisk | null {
  if (disk === null) return null;
  const { evictable: _, ...shown } = disk;
  return shown;
}

/** Returns the second machine; null after it has not registered for the offline time. */
function doubledView({ doubled }: NodeRecord, now: number, { offlineMs }: Limits): Node['doubled'] {
  if (doubled === null || Math.abs(now - doubled.last_seen_at) >= offlineMs) return null;
  const { host_ip, why, since, last_seen_at } = doubled;
  return { host_ip, why, since: time(since), last_seen_at: time(last_seen_at) };
}

/**
 * Returns the online node that has the address of this offline node; null if there is none. Another
 * machine can have the address of a dead node, and several agents of one machine share an address.
 */
export function addressTakenView(
  node: NodeRecord,
  deployNodes: readonly NodeRecord[],
  now: number,
  limits: Limits,
): NonNullable<Node['address_taken']> | null {
  if (node.role !== 'deploy' || isOnline(node, now, limits)) return null;
  const holder = deployNodes.find(
    (one) => one.id !== node.id && one.host_ip === node.host_ip && isOnline(one, now, limits),
  );
  return holder === undefined ? null : { node_id: holder.id, hostname: holder.hostname };
}

export const joinTokenView = (t: JoinTokenRecord): JoinToken => ({
  ...t,
  created_at: time(t.created_at),
  expires_at: time(t.expires_at),
  used_at: timeOrNull(t.used_at),
});

export const admissionView = ({ created_at, ...a }: AdmissionRecord): Admission => ({
  ...a,
  created_at: time(created_at),
});

const COPY_STATES = {
  pending: 'waiting',
  running: 'copying',
  completed: 'done',
  failed: 'failed',
  cancelled: 'failed',
  lost: 'failed',
} as const;

/** Converts a `sync` task (prewarm) of a node. */
export function copyView(t: TaskRecord<'sync'>): NodeCopy {
  const { dataset_id, name, version } = t.payload.dataset;
  const hasFailed = !isOpenTask(t.status) && t.status !== 'completed';
  const reported = t.report === null ? failure('node_lost') : failureOf(t.report);
  const ended = hasFailed ? reported : null;
  return {
    task_id: t.id,
    dataset_id,
    name,
    version: version ?? 0,
    status: COPY_STATES[t.status],
    error: ended,
    progress: t.progress?.datasets[0] ?? null,
    requested_at: time(t.created_at),
  };
}

/** Converts a version that the node keeps for a project. */
export const pinView = (
  {
    dataset_id,
    name,
    version,
    project,
  }: Omit<DatasetPin, 'project_id' | 'node_id'> & { project: string; name: string },
  { cached }: Pick<NodeRecord, 'cached'>,
): NonNullable<NodeDiskView['copies']>[number] => ({
  dataset_id,
  name,
  version,
  project,
  bytes: cached.find((c) => c.dataset_id === dataset_id && c.version === version)?.bytes ?? null,
  why: `copy for project ${project}`,
});

export const unmanagedView = (c: UnmanagedContainer, hostname: string): ContainerToRemove => ({
  node_id: c.node_id,
  node: hostname,
  container: c.container,
  project_id: c.project_id,
  project: c.project,
  since: time(c.placed_at),
});

/**
 * `remaining`: deployments that still run on the node. `projects`: records by id, for the names.
 */
export const drainView = (
  drain: DrainRecord,
  remaining: readonly Remaining[],
  projects: ReadonlyMap<string, ProjectRecord>,
  {
    unmanaged,
    runs,
  }: {
    unmanaged: { hostname: string; left: readonly UnmanagedContainer[] };
    runs: readonly RunOnNode[];
  },
): Drain => ({
  started_at: time(drain.started_at),
  finished_at: timeOrNull(drain.finished_at),
  moved: drain.moved,
  left: [
    ...remaining.map(({ running, inProgress, rest }) => ({
      project_id: running.project_id,
      project: projects.get(running.project_id)?.name ?? running.project_id,
      deployment_id: running.id,
      moving_to: inProgress?.id ?? null,
      problem: rest === null ? (drain.tries[running.project_id]?.problem ?? null) : rest.problem,
    })),
    ...runs.map((run) => ({
      project_id: run.project_id,
      project: run.project,
      deployment_id: run.deployment_id,
      moving_to: null,
      problem: runsOnText(run),
      ...defined({ run: run.run_id ?? undefined }),
    })),
    ...unmanaged.left.map(({ container, project_id, project, deployment_id }) => ({
      project_id,
      project,
      deployment_id,
      moving_to: null,
      problem: `${container} may run on; ${removeByHand(container, unmanaged.hostname)}`,
      unmanaged_container: container,
    })),
  ],
});

function runsOnText({ run_id, timeout_seconds, deployment_id }: RunOnNode): string {
  const limit = `at most ${timeout_seconds} s after its start`;
  return run_id === null
    ? `its release command goes on, ${limit}; cancel deployment ${deployment_id} to end it now`
    : `run ${run_id} goes on, ${limit}; to end it now: berth runs cancel ${run_id}`;
}

/**
 * Converts a task for its agent, without the lease token, which only the answer to the claim
 * contains.
 */
export function taskView(t: TaskRecord): Task {
  const { id, kind, status, node_id, deployment_id, attempt, payload } = t;
  const shown = {
    id,
    kind,
    status,
    node_id,
    deployment_id,
    attempt,
    payload,
    cancel_requested: t.cancel_requested_at !== null,
    created_at: time(t.created_at),
  };
  // NewTask guarantees that kind and payload match, but the type of a record does not express this.
  return shown as Task;
}

export const logLineView = (l: LogLineRecord): Static<typeof LogLine> => ({
  seq: l.seq,
  at: time(l.at),
  stream: l.stream,
  step: l.step,
  text: l.text,
});

export const userView = (u: UserRecord): User => ({
  id: u.id,
  email: u.email,
  role: u.role,
  disabled: u.disabled,
  last_login_at: timeOrNull(u.last_login_at),
});

export const deviceTokenView = ({ identity, ...t }: DeviceTokenRecord): DeviceToken => ({
  ...t,
  email: identity.email,
  provider: identity.provider,
  created_at: time(t.created_at),
  expires_at: time(t.expires_at),
  last_used_at: timeOrNull(t.last_used_at),
});

export const apiTokenView = (t: ApiTokenRecord): ApiToken => ({
  ...t,
  projects: t.projects === null ? null : [...t.projects],
  created_at: time(t.created_at),
  expires_at: time(t.expires_at),
  last_used_at: timeOrNull(t.last_used_at),
});

export const auditView = ({
  id,
  at,
  email,
  detail = null,
  ...entry
}: AuditRecord & { id: number }): AuditEntry => ({
  ...entry,
  id: String(id),
  at: time(at),
  user: email,
  detail,
});
