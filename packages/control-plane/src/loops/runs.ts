/**
 * Hands runs to nodes, and ends those that no node can execute. Several control planes can run this
 * loop: a run gets one task (RunStore.offer).
 */
import type { Logger } from '@berth/kit/log';
import { FAILURES } from '@berth/wire/errors';
import { mountsOf } from '../domain/data/mounts.ts';
import type { DatasetStore } from '../domain/data/dataset-stores.ts';
import type { VolumeStore } from '../domain/data/volume-store.ts';
import type { DeploymentStore } from '../domain/deployments/deployment-store.ts';
import type { Limits } from '../domain/deployments/facts.ts';
import type { TaskStore } from '../domain/deployments/task-store.ts';
import { plainWaitText } from '../domain/deployments/wait-reason.ts';
import type { CacheIndex } from '../domain/nodes/cache-index.ts';
import type { FailoverWatch } from '../domain/nodes/failover-watch.ts';
import type { NodeStore } from '../domain/nodes/node-store.ts';
import { choose, type Choice, type Question } from '../domain/nodes/placement.ts';
import { plainRefusalsText, refusalText } from '../domain/nodes/refusal.ts';
import { devicesToTake, type DeviceTake, type NoDevice } from '../domain/nodes/room.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type {
  DeploymentRecord,
  Failure,
  NodeRecord,
  ProjectRecord,
} from '../domain/platform/records.ts';
import type { Uptime, UptimeClock } from '../domain/platform/uptime.ts';
import type { ProjectStore } from '../domain/projects/project-store.ts';
import {
  holderOfRun,
  pinnedDatasets,
  questionOfRun,
  type RunFacts,
  runPayload,
} from '../domain/runs/run-task.ts';
import type { RunEnd, RunRecord, RunStore } from '../domain/runs/run-store.ts';
import type { SecretStore } from '../domain/secrets/secrets.ts';
import { copyMs } from '../flow/data.ts';
import type { Driver } from '../flow/driver.ts';
import { each } from './each.ts';
import { secretNeeds } from '../flow/secrets.ts';

/** Interval in ms between removals of old runs. */
const SWEEP_MS = 10_000;
/** Extra time in ms for the agent to pull the image and to report. */
const SLACK_MS = 15 * 60_000;
const DELETED = 'the project is being deleted';

export type Deps = {
  runs: Pick<
    RunStore,
    | 'cancel'
    | 'end'
    | 'endDevices'
    | 'freeDevices'
    | 'get'
    | 'loseTask'
    | 'offer'
    | 'open'
    | 'setReason'
    | 'sweep'
  >;
  projects: Pick<ProjectStore, 'getMany' | 'runningDeployments'>;
  deployments: Pick<DeploymentStore, 'get'>;
  datasets: Pick<DatasetStore, 'facts' | 'versionsOf'>;
  secrets: Pick<SecretStore, 'list'>;
  volumes: Pick<VolumeStore, 'ofProject'>;
  nodes: Pick<NodeStore, 'all' | 'room'>;
  tasks: Pick<TaskStore, 'get'>;
  driver: Pick<Driver, 'newId'>;
  changes: Pick<Changes, 'notify'>;
  cacheIndex: CacheIndex;
  failover: Pick<FailoverWatch, 'overdue'>;
  limits: Limits;
  registryAddr: () => string;
  uptime: Pick<UptimeClock, 'now'>;
  log: Logger;
  now: () => number;
};

export const runs = (deps: Deps) => {
  let sweptAt: number | null = null;
  return async (signal: AbortSignal): Promise<string | undefined> => {
    const open = await deps.runs.open();
    const uptime = await deps.uptime.now();
    await freeDevices(deps, uptime);
    const ids = [...new Set(open.map((run) => run.project_id))];
    const projects = new Map(
      (ids.length === 0 ? [] : await deps.projects.getMany(ids)).map((p) => [p.id, p]),
    );
    const problem = await each(open, signal, {
      step: (run) => advanceRun(deps, run, { project: projects.get(run.project_id), open, uptime }),
      failed: (err, { id }) =>
        deps.log.error({ err, run: id }, 'could not advance a run; will retry'),
    });
    // By the uptime clock. The sweep reads all ended runs.
    if (signal.aborted || (sweptAt !== null && uptime.at - sweptAt < SWEEP_MS)) return problem;
    sweptAt = uptime.at;
    await deps.runs.sweep();
    return problem;
  };
};

/** Frees the devices of runs whose tasks have ended, when their nodes do not have them any more. */
async function freeDevices({ runs, nodes }: Deps, { at }: Uptime): Promise<void> {
  if ((await runs.endDevices(at)) === 0) return;
  const { leases } = await nodes.room();
  await runs.freeDevices(leases.filter(({ holders }) => holders.length === 0));
}

type Round = {
  project: ProjectRecord | undefined;
  /** All open runs, oldest first. */
  open: readonly RunRecord[];
  uptime: Uptime;
};

/**
 * Runs of one job never overlap: the list is in the order of the uptime clock, and a run that has a
 * task comes first. Runs that ended in this round are still in the list.
 */
function waitsForEarlier(run: RunRecord, open: readonly RunRecord[]): boolean {
  const place = open.findIndex(({ id }) => id === run.id);
  return open.some(
    ({ id, job, project_id, task_id }, at) =>
      job === run.job &&
      project_id === run.project_id &&
      id !== run.id &&
      (at < place || task_id !== null),
  );
}

async function wait(deps: Deps, run: RunRecord, reason: string): Promise<void> {
  if (run.reason === reason) return;
  await deps.runs.setReason(run.id, reason);
  notifyRun(deps, run);
}

async function advanceRun(
  deps: Deps,
  run: RunRecord,
  { project, open, uptime }: Round,
): Promise<void> {
  if (project === undefined) return;
  if (project.deleting_at !== null && run.cancel_requested_at === null) {
    const { node_id } = await deps.runs.cancel(run.id, DELETED, deps.now());
    if (node_id !== null) deps.changes.notify(`node:${node_id}`);
    return notifyRun(deps, run);
  }
  if (run.task_id !== null) return watchTask(deps, run, run.task_id, uptime);
  if (run.job !== null && waitsForEarlier(run, open))
    return wait(deps, run, 'waits for the end of the earlier run of its job');
  const node = await findNode(deps, run, project);
  if ('ends' in node) return endRun(deps, run, node.ends);
  if ('waits' in node) {
    if (uptime.at > run.queue_deadline_at)
      return endRun(deps, run, failed({ code: 'no_deploy_node', message: node.waits }));
    return wait(deps, run, node.waits);
  }
  await offer(deps, run, node, uptime);
}

/** Ends the run of a task that nobody works on any more. */
async function watchTask(
  deps: Deps,
  run: RunRecord,
  taskId: string,
  uptime: Uptime,
): Promise<void> {
  const task = await deps.tasks.get(taskId).catch(() => null);
  if (task === null || task.finished_at !== null)
    return endRun(deps, run, {
      status: run.cancel_requested_at === null ? 'lost' : 'cancelled',
      reason: null,
      error:
        run.cancel_requested_at === null
          ? { code: 'run_lost', message: `${FAILURES.run_lost}: its node was deleted.` }
          : null,
    });
  // The lease was lost, and the agent has not returned in time (lease-reaper.ts offered it again).
  const isOver = task.status === 'pending' && task.attempt > 0;
  if (!isOver || task.queue_deadline_at > uptime.at) return;
  if (await deps.runs.loseTask(task, 'queue', deps.now(), 0)) {
    deps.log.warn({ run: run.id, node_id: task.node_id }, 'run lost: its agent does not answer');
    notifyRun(deps, run);
    deps.changes.notify(`node:${task.node_id}`);
  }
}

type Placed = {
  choice: Choice;
  facts: RunFacts;
  mounts: Parameters<typeof runPayload>[2]['mounts'];
  takes: DeviceTake[];
};
type Result = Placed | { waits: string } | { ends: RunEnd };

async function findNode(deps: Deps, run: RunRecord, project: ProjectRecord): Promise<Result> {
  const running = (await deps.projects.runningDeployments([project.id])).get(project.id);
  if (running === undefined)
    return { waits: 'no version of the project serves; deploy it or start it' };
  const facts = await factsOf(deps, project, await deps.deployments.get(running));
  const mounted = mountsOf(facts.deployment.settings.datasets, facts.datasets);
  if ('waits' in mounted) return { waits: plainWaitText(mounted.waits) };
  if ('code' in mounted) return { ends: failed(mounted) };
  const needs = secretNeeds(facts.secrets, 'deploy');
  const question = questionOfRun(run, facts, needs);
  const nodes = await deps.nodes.all();
  const choice = choose(question, nodes, {
    now: deps.now(),
    limits: deps.limits,
    cacheIndex: deps.cacheIndex,
    overdue: deps.failover.overdue(),
  });
  if (choice.placement.winner === null)
    return {
      waits:
        `no node can take the run: ${plainRefusalsText(choice.refusals)}` +
        (await heldText(deps, run, facts)),
    };
  const takes = takesOf(run, question, nodes, { choice, facts });
  if ('kind' in takes) return { waits: `its node ${refusalText(takes)}` };
  return { choice, facts, mounts: mounted.mounts, takes };
}

/** Returns the devices that the run takes on the node that placement chose. */
function takesOf(
  run: RunRecord,
  { machine }: Question,
  nodes: readonly NodeRecord[],
  { choice, facts }: Pick<Placed, 'choice' | 'facts'>,
): DeviceTake[] | NoDevice {
  const node = nodes.find(({ id }) => id === choice.placement.winner);
  if (node === undefined || machine === null || machine === undefined || run.devices === null)
    return [];
  return devicesToTake(node, holderOfRun(run), machine, { leases: facts.room.leases, freed: [] });
}

/** Maximum number of held devices that a reason names. */
const MAX_HELD = 5;

/** Says who has the devices that the run waits for; empty if it asks for none. */
async function heldText(
  deps: Deps,
  run: RunRecord,
  { project, room }: Pick<RunFacts, 'project' | 'room'>,
): Promise<string> {
  const kinds = Object.keys(run.devices ?? {});
  const held = room.leases.filter(
    ({ kind, holders }) => kinds.includes(kind) && holders.length > 0,
  );
  const texts = await Promise.all(
    held.slice(0, MAX_HELD).map(async (lease) => {
      const id = lease.holders[0]?.deployment_id ?? '';
      return `${lease.kind}=${lease.name} is held by ${await holderText(deps, project.id, id)}`;
    }),
  );
  const more = held.length - texts.length;
  if (more > 0) texts.push(`${more} more are held`);
  return texts.length === 0 ? '' : `; ${texts.join(', ')}`;
}

/** Names a deployment or a run of the same project; a viewer may not see other projects. */
async function holderText(deps: Deps, projectId: string, id: string): Promise<string> {
  const run = await deps.runs.get(id).catch(() => null);
  if (run !== null) return run.project_id === projectId ? `run ${id}` : OTHER_PROJECT;
  const deployment = await deps.deployments.get(id).catch(() => null);
  return deployment?.project_id === projectId
    ? `deployment ${deployment.generation}`
    : OTHER_PROJECT;
}

const OTHER_PROJECT = 'another project';

async function factsOf(
  deps: Deps,
  project: ProjectRecord,
  deployment: DeploymentRecord,
): Promise<RunFacts> {
  const ids = deployment.settings.datasets.map(({ dataset_id }) => dataset_id);
  const all = ids.length === 0 ? [] : await deps.datasets.facts();
  const versions = await pinnedVersions(deps, deployment);
  return {
    project,
    deployment,
    datasets: pinnedDatasets(
      deployment,
      all.filter(({ id }) => ids.includes(id)),
      versions,
    ),
    volumes:
      deployment.settings.volumes.length === 0 ? [] : await deps.volumes.ofProject(project.id),
    secrets: await deps.secrets.list(project.id),
    room: await deps.nodes.room(),
  };
}

/** Returns the dataset versions that the deployment has, without those that were removed. */
async function pinnedVersions(deps: Deps, { datasets }: DeploymentRecord) {
  const pins = (datasets ?? []).flatMap(({ dataset_id, version }) =>
    version === null ? [] : [{ dataset_id, version }],
  );
  const versions = await Promise.all(
    pins.map(({ dataset_id, version }) =>
      deps.datasets.versionsOf(dataset_id, [version]).catch(() => []),
    ),
  );
  return versions.flat();
}

async function offer(
  deps: Deps,
  run: RunRecord,
  { choice, facts, mounts, takes }: Placed,
  uptime: Uptime,
): Promise<void> {
  const nodeId = choice.placement.winner ?? '';
  const row = choice.placement.items.find((item) => item.node_id === nodeId);
  const copying = copyMs(row?.missing_bytes ?? 0, null);
  const workMs = run.timeout_seconds * 1000 + facts.deployment.settings.stop_grace_seconds * 1000;
  const task = {
    id: deps.driver.newId(),
    node_id: nodeId,
    queue_deadline_at: uptime.at + deps.limits.claimMs,
    wall_deadline_at: uptime.at + copying + workMs + SLACK_MS,
    payload: runPayload(run, facts, { mounts, registryAddr: deps.registryAddr(), takes }),
  };
  const offered = { run_id: run.id, deployment_id: facts.deployment.id, task, takes };
  if (!(await deps.runs.offer(offered, deps.now()))) return;
  deps.log.info({ run: run.id, node_id: nodeId, project: facts.project.name }, 'run offered');
  notifyRun(deps, run);
  deps.changes.notify(`node:${nodeId}`);
}

const failed = (error: Failure): RunEnd => ({ status: 'failed', reason: null, error });

async function endRun(deps: Deps, run: RunRecord, end: RunEnd): Promise<void> {
  if (await deps.runs.end(run.id, end, deps.now())) notifyRun(deps, run);
}

const notifyRun = ({ changes }: Deps, { id }: RunRecord): void => changes.notify(`logs:${id}`);
