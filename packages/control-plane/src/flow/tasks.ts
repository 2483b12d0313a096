/** Creates the tasks of the flow. A task contains everything that its agent needs. Pure. */
import { defined } from '@berth/kit/defined';
import type { DatasetMount } from '@berth/wire/dataset';
import { BERTH_TOML } from '@berth/wire/berth-toml';
import { type Process, WEB } from '@berth/wire/project';
import { CAN_CONFIG_FILE, type DeployPayload } from '@berth/wire/task';
import type { ReplaceMode } from '@berth/wire/vocabulary';
import type { MovePayload, VolumeMounts } from '@berth/wire/volume';
import { buildSettings } from '../domain/nodes/build-needs.ts';
import { imageOf } from '../domain/deployments/clean-up.ts';
import type { InstanceRecord } from '../domain/deployments/instance.ts';
import { finalName } from '../domain/projects/container-name.ts';
import { processIn, webSettings } from '../domain/projects/processes.ts';
import type { Limits, NodeFact } from '../domain/deployments/facts.ts';
import { projectUrl } from '../domain/nodes/host.ts';
import { copyMs } from './data.ts';
import type { DeploymentRecord, NodeRecord, TaskRecord } from '../domain/platform/records.ts';
import { removeByHand } from '../domain/nodes/remove-by-hand.ts';
import { buildSecrets, deploySecrets } from './secrets.ts';
import { type Draft, isBerthAgent } from './plan-draft.ts';

export const generationName = (d: Pick<DeploymentRecord, 'settings' | 'generation'>): string =>
  `${finalName(d.settings)}-g${d.generation}`;

export function createBuildTask(draft: Draft, d: DeploymentRecord, builder: NodeFact): void {
  const { project, uptime, limits, platform } = draft.facts;
  draft.createTask({
    kind: 'build',
    deployment_id: d.id,
    node_id: builder.id,
    queue_deadline_at: uptime.at + limits.claimMs,
    wall_deadline_at: uptime.at + limits.buildMs,
    payload: {
      project_id: project.id,
      project: project.name,
      git_url: d.settings.git_url,
      branch: d.settings.branch,
      commit: d.requested_commit,
      ...defined({
        allowed_git_hosts:
          platform.allowedGitHosts === undefined ? undefined : [...platform.allowedGitHosts],
      }),
      dockerfile_path: d.settings.dockerfile_path,
      ...buildSettings(d.settings),
      ...defined({
        config_file: builder.capabilities?.includes(CAN_CONFIG_FILE) ? BERTH_TOML : undefined,
      }),
      image_repository: `${platform.registryAddr}/${project.name}`,
      ...buildSecrets(draft.facts.secrets),
    },
  });
}

/** Returns the time limit in seconds for the new container to answer its probe. */
export const startSeconds = (
  { settings }: Pick<DeploymentRecord, 'settings'>,
  { probeSeconds }: Pick<Limits, 'probeSeconds'>,
): number => settings.start_seconds ?? probeSeconds;

type DeployInput = {
  mounts: DatasetMount[];
  missingBytes: number;
  /** CDI devices of the container. */
  devices: string[];
  /** Differs from the setting if the node has no room for two versions. */
  replace: ReplaceMode;
  volumes?: VolumeMounts;
  /** The instance to start, if it is not the first one. */
  instance?: Pick<InstanceRecord, 'id' | 'process' | 'number'>;
  /** Default: `web`. */
  process?: Process;
};

export function createDeployTask(
  draft: Draft,
  d: DeploymentRecord,
  node: NodeFact,
  {
    mounts,
    missingBytes,
    devices,
    replace,
    volumes,
    instance,
    process = processIn(d.settings, WEB),
  }: DeployInput,
): void {
  const { project, uptime, limits, live, platform } = draft.facts;
  const tag = d.image_tag ?? '';
  const serves = live.find((o) => o.status === 'running');
  const { memory_bytes, cpus } = webSettings(d.settings);
  const hasHttp = (process?.name ?? WEB) === WEB;
  const payload: DeployPayload = {
    project_id: project.id,
    project: project.name,
    generation: d.generation,
    domain_prefix: d.settings.domain_prefix,
    ...defined({
      url:
        platform.public === undefined
          ? undefined
          : projectUrl(platform.public.url, platform.public.baseDomain, d.settings.domain_prefix),
    }),
    container_port: d.settings.container_port,
    image: imageOf(d, platform.registryAddr),
    image_tag: tag,
    image_digest: d.image_digest,
    container_name:
      instance === undefined
        ? generationName(d)
        : `${finalName(d.settings)}-${instance.process}-${instance.number}-g${d.generation}`,
    ...defined({
      instance:
        instance === undefined
          ? undefined
          : { id: instance.id, process: instance.process, number: instance.number },
    }),
    replace,
    // The agent must not restart the container of a stopped project if this deployment fails.
    replaces: project.stopped_at === null ? (serves?.id ?? null) : null,
    env: d.settings.env,
    ...deploySecrets(draft.facts.secrets),
    datasets: mounts,
    ...defined({ volumes }),
    health_path: d.settings.health_path,
    probe_seconds: startSeconds(d, limits),
    ...defined({
      command: process?.command ?? undefined,
      settle_seconds: hasHttp ? undefined : d.settings.settle_seconds,
    }),
    memory_bytes,
    cpus,
    ...defined({ devices: devices.length === 0 ? undefined : devices }),
    // With `recreate` the agent also stops the serving container, which can have a longer grace
    // period.
    stop_grace_seconds: Math.max(
      d.settings.stop_grace_seconds,
      serves?.settings.stop_grace_seconds ?? 0,
    ),
  };
  if (!isBerthAgent(node)) {
    const placed = {
      node_id: node.id,
      container: finalName(d.settings),
      project_id: project.id,
      project: project.name,
    };
    draft.unmanaged({
      put: {
        ...placed,
        deployment_id: d.id,
        placed_at: draft.facts.now,
        labelled: false,
        confirmed_at: null,
      },
    });
  }
  draft.createTask({
    kind: 'deploy',
    deployment_id: d.id,
    node_id: node.id,
    queue_deadline_at: uptime.at + limits.claimMs,
    wall_deadline_at:
      uptime.at +
      limits.deployMs +
      copyMs(missingBytes, node.copy_rate) +
      stopMs([d, ...(serves === undefined ? [] : [serves])]) +
      (hasHttp ? (d.settings.start_seconds ?? 0) : d.settings.settle_seconds) * 1000,
    payload,
  });
}

/**
 * Longest duration of a move in ms. A move ends earlier if the lease of one of the two agents
 * expires or the transfer stalls.
 */
const MOVE_MS = 24 * 3_600_000;

export function createMoveTask(
  draft: Draft,
  d: DeploymentRecord,
  node: NodeFact,
  payload: MovePayload,
): void {
  const { uptime, limits } = draft.facts;
  draft.createTask({
    kind: 'move',
    deployment_id: d.id,
    node_id: node.id,
    queue_deadline_at: uptime.at + limits.claimMs,
    wall_deadline_at: uptime.at + MOVE_MS,
    payload,
  });
}

/**
 * Returns the longest time in ms that these deployments need to stop: drain time plus grace period.
 */
const stopMs = (all: readonly DeploymentRecord[]): number =>
  Math.max(...all.map(({ settings }) => settings.drain_seconds + settings.stop_grace_seconds)) *
  1000;

export type RetireRequest = {
  /** Owner of the task: its story gets the lines of the task. */
  of: DeploymentRecord;
  /** The new deployment: its story gets the same lines. */
  replacedBy?: DeploymentRecord;
  remove: {
    deployment: DeploymentRecord;
    reason: string;
    /**
     * Limits the removal by the instance label. A text: only the container with this label; null:
     * only the container without a label; absent: all containers of the deployment.
     */
    instance?: string | null;
    /** How many containers it removes, if several. */
    containers?: number;
  }[];
  keep: DeploymentRecord | null;
  /** Further instances whose containers get these names. */
  names?: { deployment_id: string; instance_id: string; name: string }[];
  /** Whether the removed containers might still have requests in flight. */
  drain: boolean;
  /** Containers to stop and keep (flow/single-writer.ts). */
  stop?: { deployment_id: string; instance_id?: string | null; reason: string }[];
  /** The deployment whose stopped container restarts. */
  start?: string;
};

/**
 * Creates a retire task, unless the node was deleted. A contract-only agent cannot remove
 * containers; it only replaces the container that has the name of the new one. A story line then
 * names the remaining containers.
 */
export function createRetireTask(
  draft: Draft,
  node: NodeRecord | undefined,
  request: RetireRequest,
): void {
  if (node === undefined) return;
  if (!isBerthAgent(node)) return addLeft(draft, node, request);
  const { project, uptime, limits } = draft.facts;
  const stopped = request.stop === undefined ? [] : [request.of];
  const ending = [...request.remove.map((r) => r.deployment), ...stopped];
  const grace = Math.max(0, ...ending.map((d) => d.settings.stop_grace_seconds));
  const drain = request.drain ? Math.max(0, ...ending.map((d) => d.settings.drain_seconds)) : 0;
  draft.createTask({
    kind: 'retire',
    deployment_id: request.of.id,
    node_id: node.id,
    queue_deadline_at: uptime.at + limits.retireMs,
    wall_deadline_at: uptime.at + limits.retireMs + (grace + drain) * 1000,
    payload: {
      project_id: project.id,
      project: project.name,
      domain_prefix: request.of.settings.domain_prefix,
      remove: request.remove.map((r) => ({
        deployment_id: r.deployment.id,
        ...defined({ instance_id: r.instance, containers: r.containers }),
        reason: r.reason,
      })),
      keep:
        request.keep === null
          ? null
          : { deployment_id: request.keep.id, name: finalName(request.keep.settings) },
      ...defined({ keep_instances: keptInstances(draft, request) }),
      ...defined({ project_deleted: project.deleting_at === null ? undefined : true }),
      drain_seconds: drain,
      stop_grace_seconds: grace,
      ...defined({ stop: request.stop, start: request.start }),
    },
  });
}

/**
 * Returns the names for instances. While the project has instances the list is set, also if it is
 * empty: it tells the agent that this control plane knows them (agent/src/tasks/retire.ts).
 */
function keptInstances(
  { facts: { instances = [] } }: Draft,
  { names = [] }: RetireRequest,
): RetireRequest['names'] {
  return names.length === 0 && instances.length === 0 ? undefined : names;
}

function addLeft(
  draft: Draft,
  { id, hostname }: NodeRecord,
  { of, remove, replacedBy }: RetireRequest,
): void {
  const removed = remove.map((r) => r.deployment);
  const others = draft.facts.live.filter(
    (o) => o.node_id === id && !removed.some((d) => d.id === o.id),
  );
  const serving = others.map((o) => finalName(o.settings));
  for (const container of new Set(removed.map((d) => finalName(d.settings)))) {
    if (serving.includes(container)) continue;
    const why = `${container} may run on at ${hostname}: the agent there cannot remove it`;
    for (const d of replacedBy === undefined ? [of] : [of, replacedBy])
      draft.addLine(d, 'left', `${why}; ${removeByHand(container, hostname)}`);
  }
}

/** Returns whether the task removes the deployment's container. */
export const removes = (task: TaskRecord, d: Pick<DeploymentRecord, 'id'>): boolean =>
  task.kind === 'retire' &&
  'remove' in task.payload &&
  task.payload.remove.some((r) => r.deployment_id === d.id && r.instance_id === undefined);
