/**
 * The driver: the operations of the flow that the API, the agents and the loops call. Each call
 * makes a decision (decide-and-commit.ts).
 */
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import type { CreatedBy, Trigger } from '@berth/wire/deployment';
import type { ObservedContainer } from '@berth/wire/node';
import type { ConfigFile, ConfigFileAnswer, TaskFacts, TaskReport } from '@berth/wire/task';
import { isOpenTask, LABELS, type TaskState } from '@berth/wire/vocabulary';
import { DomainError, invalid } from '../domain/platform/errors.ts';
import { applyConfigFile } from '../domain/projects/config-file.ts';
import type { Facts } from '../domain/deployments/facts.ts';
import type { Plan } from '../domain/deployments/plan.ts';
import type {
  DeploymentRecord,
  NodeRecord,
  ProjectRecord,
  RouteRecord,
  TaskRecord,
} from '../domain/platform/records.ts';
import { checkRepositoryReport, isRepositoryLook } from '../domain/git/repository-looks.ts';
import { runIdOf } from '../domain/runs/run-store.ts';
import type { FlowStores } from './flow-stores.ts';
import { isBehind } from './data.ts';
import {
  createDecider,
  type Decider,
  type DriverDeps,
  isStillLost,
  type Write,
} from './decide-and-commit.ts';
import {
  type InstanceRecord,
  isContainerOf,
  isOwnContainer,
  withInstanceLabel,
} from '../domain/deployments/instance.ts';
import { advance, request, stop } from './deployment.ts';
import { isExpectedThere, isInstanceAsExpected } from './observed-instance.ts';
import type { FlowEvent, LossReason } from './events.ts';
import { nextOlder } from './rollback-target.ts';
import {
  type DeleteProject,
  deleteNode,
  deleteProject,
  keepInstances,
  reviewMoves,
  vacate,
} from './lifecycle.ts';
import { areAsExpected, isAsExpected, routesToOthers } from './observe.ts';
import { prewarm } from './prewarm.ts';
import { onDatasetChange, type Redeploy, redeploy } from './redeploy.ts';
import { checkPushes, lookLost, lookReported } from './push.ts';
import { restsAsExpected } from './stop.ts';
import { checkLease, checkReport, repeatedAnswer } from './report.ts';

export type { DriverDeps } from './decide-and-commit.ts';

export type NewDeployment = {
  projectId: string;
  commit: string | null;
  note: string | null;
  /**
   * The deployment whose release is deployed again, or the rule that finds it. Null for a
   * deployment from source.
   */
  rollbackOf: string | { find: 'older' | 'last' } | null;
  /** `earlier`: the key in the form that an older version of Berth stored. */
  idempotency: { key: string; earlier?: string; bodyHash: string } | null;
  /** The requester. */
  by?: CreatedBy;
  /**
   * The default is `rollback` for a release, else `api`. `restart` and `start` also need
   * `rollbackOf`.
   */
  trigger?: Trigger;
  /** A scale up from 0 requests it: it does not start a project that a person stopped. */
  fromZero?: boolean;
};

export type Driver = {
  /**
   * Requests a deployment. `created` is false if the Idempotency-Key belongs to an existing
   * deployment. Throws not_found, being_deleted, no_release, wrong_state, idempotency_mismatch,
   * busy.
   */
  request(input: NewDeployment): Promise<{ deployment: DeploymentRecord; created: boolean }>;
  /**
   * Deploys the release of a project that was scaled up from 0. Does nothing if a person stopped the
   * project, if a deployment in progress starts it anyway, and if it never ran. Throws not_found,
   * being_deleted, busy.
   */
  startFromZero(projectId: string, by?: CreatedBy): Promise<void>;
  /**
   * Applies an event to a deployment. Throws not_found, wrong_state (a cancel that is too late),
   * busy.
   */
  advance(deploymentId: string, event: FlowEvent): Promise<DeploymentRecord>;
  /**
   * Applies an agent's report. A repeated report gets the same answer. Throws not_found,
   * stale_lease, task_over, validation, busy.
   */
  report(
    taskId: string,
    leaseToken: string | null,
    report: TaskReport,
  ): Promise<{ status: TaskState }>;
  /**
   * Stores facts that the agent sends during a build. Throws not_found, stale_lease, task_over,
   * busy.
   */
  learned(taskId: string, leaseToken: string, facts: TaskFacts): Promise<void>;
  /**
   * Checks the berth.toml of a build in progress and returns the settings of the build. Stores
   * nothing: the report brings the file again. Throws not_found, stale_lease, task_over.
   */
  configFile(taskId: string, leaseToken: string, file: ConfigFile): Promise<ConfigFileAnswer>;
  /**
   * Returns an unused id, for a record that must contain the id of a deployment before its request.
   */
  newId(): string;
  /**
   * Deploys a running release again, with the given id and without a build. Returns null if the
   * release no longer runs or another deployment of its project is in progress. Throws not_found,
   * being_deleted, domain_prefix_taken, busy.
   */
  redeploy(deploymentId: string, input: Redeploy): Promise<DeploymentRecord | null>;
  /**
   * Handles each running deployment that uses an older version of the dataset as its project's
   * `on_dataset_change` requires. Repeated calls have one effect. Tries all deployments, then
   * throws the errors.
   */
  datasetChanged(datasetId: string): Promise<void>;
  /**
   * Starts a check of the branch if deliveries of the project wait for one, or decides without a
   * check.
   */
  checkPushes(projectId: string): Promise<void>;
  /** Handles a `look` task that its node did not claim, renew or end in time. */
  lookLost(task: TaskRecord, why: LossReason): Promise<void>;
  /**
   * Copies the newest version of a dataset to a node now. Throws not_found, being_deleted,
   * wrong_state, validation.
   */
  prewarm(nodeId: string, datasetId: string): Promise<void>;
  /**
   * Updates ports, health and leftover containers from the container list of a registration.
   * Returns the names of Berth's containers whose deployment is unknown; they stay, because a
   * restored database might lack their deployments. `at`: uptime of the registration, default
   * `last_seen_at`.
   */
  observed(node: NodeRecord, at?: number): Promise<readonly string[]>;
  /**
   * Ends all deployments of the project. loops/removals.ts deletes its row when the containers are
   * gone.
   */
  deleteProject(projectId: string, options?: DeleteProject): Promise<ProjectRecord>;
  /**
   * Stops the project and cancels its deployments in progress. Repeated calls change nothing. `by`:
   * the name of the person. Throws not_found, being_deleted, busy.
   */
  stop(projectId: string, by: string): Promise<ProjectRecord>;
  /**
   * Begins to move the volumes of a stopped project from a node that is drained or being deleted,
   * without starting the project. Returns whether a move began. Throws not_found, busy.
   */
  moveVolumes(deploymentId: string): Promise<boolean>;
  /**
   * Ends each move of volumes that is no longer valid, for example because its source node is no
   * longer drained. Repeated calls change nothing. Tries all projects, then throws the errors.
   */
  reviewMoves(): Promise<void>;
  /** Ends the replacements of the instances on a node whose drain was taken back. */
  keepInstances(nodeId: string): Promise<void>;
  /** Deletes the node. Without `force` its projects move to other nodes first, as in a drain. */
  deleteNode(nodeId: string, force: boolean): Promise<NodeRecord>;
  /**
   * Moves deployments that were assigned to the node after its deletion began. Repeated calls
   * change nothing.
   */
  vacate(nodeId: string): Promise<void>;
};

const KEY_LIFETIME_MS = 24 * 3_600_000;

export function createDriver(deps: DriverDeps): Driver {
  const { stores, changes, limits, now, uptime, newId } = deps;
  const decider = createDecider(deps);
  return {
    request: (input) => requestDeployment(deps, decider, input),
    startFromZero: (projectId, by) => startFromZero(deps, decider, projectId, by),
    async advance(id, event) {
      await decider.advance(id, event);
      return stores.deployments.get(id);
    },
    report: (taskId, token, given) => report(deps, decider, { taskId, token, given }),
    learned: (taskId, token, facts) => learned(deps, decider, { taskId, token, facts }),
    configFile: (taskId, token, file) => configFile(deps, { taskId, token, file }),
    observed: (node, at = node.last_seen_at) => observed(deps, decider, node, at),
    newId,
    redeploy: (deploymentId, input) => redeployRunning(deps, decider, deploymentId, input),
    datasetChanged: (datasetId) => datasetChanged(deps, decider, datasetId),
    async checkPushes(projectId) {
      await decider.decide(projectId, async (facts) =>
        checkPushes(await stores.hooks.pushes(projectId), facts),
      );
    },
    async lookLost(task, why) {
      const projectId = projectOfLook(task);
      await decider.decide(projectId, async (facts) => {
        const present = facts.tasks.find((t) => t.id === task.id);
        if (present === undefined || !isStillLost({ task, why }, facts)) return null;
        return lookLost(present, why, await stores.hooks.pushes(projectId), facts);
      });
    },
    async prewarm(nodeId, datasetId) {
      await prewarm(
        stores,
        { id: newId(), nodeId, datasetId },
        { now: now(), uptime: await uptime.now() },
        limits,
      );
      changes.notify(`node:${nodeId}`);
    },
    deleteProject: (projectId, options) => deleteProject(deps, decider, projectId, options),
    async stop(projectId, by) {
      await decider.decide(projectId, async (facts) => stop(by, facts));
      return stores.projects.get(projectId);
    },
    moveVolumes: (deploymentId) => moveVolumes(deps, decider, deploymentId),
    reviewMoves: () => reviewMoves(stores, decider),
    keepInstances: (nodeId) => keepInstances(stores, decider, nodeId),
    deleteNode: (nodeId, force) => deleteNode(deps, decider, nodeId, force),
    vacate: (nodeId) => vacate(deps, decider, nodeId),
  };
}

async function requestDeployment(
  { stores, newId }: DriverDeps,
  decider: Decider,
  input: NewDeployment,
): Promise<{ deployment: DeploymentRecord; created: boolean }> {
  const { projectId, idempotency } = input;
  const id = newId();
  let existing: string | null = null;
  const decision = async (facts: Facts, release: DeploymentRecord | null): Promise<Plan | null> => {
    if (idempotency !== null) {
      const earlier =
        (await stores.flow.findKey(projectId, idempotency.key, facts.now)) ??
        (idempotency.earlier === undefined
          ? null
          : await stores.flow.findKey(projectId, idempotency.earlier, facts.now));
      if (earlier !== null && earlier.body_hash !== idempotency.bodyHash)
        throw new DomainError('idempotency_mismatch');
      existing = earlier?.deployment_id ?? null;
      if (existing !== null) return null;
    }
    const last = lastOf(input, facts) ?? release;
    if (input.rollbackOf !== null && last === null) throw noneThatRan(input, facts);
    const { commit, note, by = null, trigger, fromZero } = input;
    return request(
      { id, commit, note, release: last, by, ...defined({ trigger, fromZero }) },
      facts,
    );
  };
  const write: Write = (plan) =>
    idempotency === null
      ? stores.flow.commit(plan)
      : stores.flow.commitWithKey(plan, {
          key: idempotency.key,
          body_hash: idempotency.bodyHash,
          expires_at: plan.now + KEY_LIFETIME_MS,
        });
  await decider.decide(projectId, decision, { write, release: () => releaseOf(stores, input) });
  return { deployment: await stores.deployments.get(existing ?? id), created: existing === null };
}

async function startFromZero(
  deps: DriverDeps,
  decider: Decider,
  projectId: string,
  by: CreatedBy | undefined,
): Promise<void> {
  await requestDeployment(deps, decider, {
    projectId,
    commit: null,
    note: null,
    rollbackOf: { find: 'last' },
    idempotency: null,
    trigger: 'start',
    fromZero: true,
    ...defined({ by }),
  }).catch((error: unknown) => {
    const isNotNeeded =
      error instanceof DomainError && (error.code === 'wrong_state' || error.code === 'no_release');
    if (!isNotNeeded) throw error;
  });
}

/**
 * Returns the running deployment for `find: 'last'`, because a newer version might have gone live
 * after the release was read.
 */
function lastOf({ rollbackOf: release }: NewDeployment, { live }: Facts): DeploymentRecord | null {
  if (release === null || typeof release === 'string' || release.find !== 'last') return null;
  return live.find((d) => d.status === 'running') ?? null;
}

/**
 * Returns the release that the request asks for, or null if no deployment has it. Throws validation
 * if the request names an unknown deployment.
 */
async function releaseOf(
  stores: FlowStores,
  { projectId, rollbackOf: release }: NewDeployment,
): Promise<DeploymentRecord | null> {
  if (release === null) return null;
  if (typeof release !== 'string') {
    const ran = await stores.deployments.ran(projectId);
    const target = release.find === 'last' ? ran[0] : nextOlder(ran);
    return target === undefined || target === null ? null : stores.deployments.get(target.id);
  }
  const target = await stores.deployments.get(release).catch((error: unknown) => {
    if (error instanceof DomainError && error.code === 'not_found') return null;
    throw error;
  });
  // The caller must not learn about other projects, so a deployment of another project gets the
  // same answer as an unknown id.
  if (target?.project_id !== projectId)
    throw invalid('deployment_id', 'exists', 'this project has no such deployment');
  return target;
}

function noneThatRan(
  { rollbackOf: release, trigger }: NewDeployment,
  { project }: Facts,
): DomainError {
  const isOlder = release !== null && typeof release !== 'string' && release.find === 'older';
  if (isOlder)
    return new DomainError(
      'no_release',
      `project ${project.name} has no release older than the present one`,
    );
  return new DomainError(
    'no_release',
    `no version of project ${project.name} ever ran, so a ${trigger} has nothing to run; deploy it`,
  );
}

function projectOfLook(task: TaskRecord): string {
  if (task.kind !== 'look' || task.project_id === null)
    throw new Error(`task ${task.id} is no look`);
  return task.project_id;
}

type ReportInput = { taskId: string; token: string | null; given: TaskReport };
async function report(
  deps: DriverDeps,
  decider: Decider,
  input: ReportInput,
): Promise<{ status: TaskState }> {
  const { taskId, token, given } = input;
  const { stores } = deps;
  const task = await stores.tasks.get(taskId);
  if (task.kind === 'sync') return reportSync(deps, task, input);
  if (task.kind === 'clean') return reportClean(deps, task, input);
  if (task.kind === 'run') return reportRun(deps, task, input);
  if (isRepositoryLook(task)) return reportRepositoryLook(deps, task, input);
  checkReport(task, given);
  await failPoint('report.before', () => task.kind);
  if (!isOpenTask(task.status)) return { status: repeatedAnswer(task, token, given) };
  checkLease(task, token);
  const { deployment_id, project_id } = task;
  if (project_id === null || (deployment_id === null && task.kind !== 'look'))
    throw new Error(`task ${taskId} belongs to no deployment`);
  let hasEnded = false;
  await decider.decide(project_id, async (facts) => {
    const present = facts.tasks.find((t) => t.id === taskId);
    hasEnded = present === undefined;
    if (present === undefined) return null;
    checkLease(present, token);
    if (deployment_id === null)
      return lookReported(present, given, await stores.hooks.pushes(project_id), facts);
    return advance(
      await decider.find(facts, deployment_id),
      { type: 'task_reported', task: present, report: given },
      facts,
    );
  });
  // The task ended between the two reads: the same report arrived on a second connection, or a
  // deadline passed.
  if (hasEnded) return { status: repeatedAnswer(await stores.tasks.get(taskId), token, given) };
  await failPoint('report.after', () => task.kind);
  return { status: given.status };
}

async function learned(
  { stores }: DriverDeps,
  decider: Decider,
  { taskId, token, facts: given }: { taskId: string; token: string; facts: TaskFacts },
): Promise<void> {
  const task = await stores.tasks.get(taskId);
  checkLease(task, token);
  if (!isOpenTask(task.status))
    throw new DomainError('task_over', `the task is already ${task.status}`);
  const { deployment_id, project_id } = task;
  if (project_id === null || deployment_id === null) return;
  await decider.decide(project_id, async (facts) => {
    const present = facts.tasks.find((t) => t.id === taskId);
    if (present === undefined) return null;
    checkLease(present, token);
    return advance(
      await decider.find(facts, deployment_id),
      { type: 'task_learned', task: present, facts: given },
      facts,
    );
  });
}

async function configFile(
  { stores }: DriverDeps,
  { taskId, token, file }: { taskId: string; token: string; file: ConfigFile },
): Promise<ConfigFileAnswer> {
  const task = await stores.tasks.get(taskId);
  checkLease(task, token);
  const { deployment_id, project_id } = task;
  if (!isOpenTask(task.status) || project_id === null || deployment_id === null)
    throw new DomainError('task_over', `the task is already ${task.status}`);
  const { live, secrets } = await stores.flow.facts(project_id);
  const { settings } =
    live.find(({ id }) => id === deployment_id) ?? (await stores.deployments.get(deployment_id));
  const applied = applyConfigFile(
    file,
    settings,
    secrets.map(({ name }) => name),
  );
  const isWrong = 'problem' in applied;
  const { dockerfile_path, build_target, build_args } = isWrong ? settings : applied.settings;
  const problem = isWrong ? applied.problem : null;
  return { problem, dockerfile_path, build_target, build_args };
}

/** Handles the report of a `sync` task. The task belongs to a node and to no deployment. */
async function reportSync(
  { stores, changes, now, telemetry }: DriverDeps,
  task: TaskRecord,
  { taskId, token, given }: ReportInput,
): Promise<{ status: TaskState }> {
  const answer = await stores.tasks.endSync(taskId, token, given, now());
  changes.notify(`node:${task.node_id}`);
  const seconds = task.started_at === null ? null : Math.max(0, now() - task.started_at) / 1000;
  if (isOpenTask(task.status))
    telemetry?.emit({ what: 'task', kind: 'sync', end: answer.status, seconds });
  return answer;
}

/**
 * Handles the report of a `look` task (inspects a repository) without a project: ends the task and
 * wakes the request that waits for the result.
 */
async function reportRepositoryLook(
  { stores, changes, now, telemetry }: DriverDeps,
  task: TaskRecord,
  { taskId, token, given }: ReportInput,
): Promise<{ status: TaskState }> {
  checkRepositoryReport(given);
  const answer = await stores.repositoryLooks.endTask(taskId, token, given, now());
  changes.notify('looks', `node:${task.node_id}`);
  const seconds = task.started_at === null ? null : Math.max(0, now() - task.started_at) / 1000;
  if (isOpenTask(task.status))
    telemetry?.emit({ what: 'task', kind: 'look', end: answer.status, seconds });
  return answer;
}

/**
 * Handles the report of a `clean` task. The task belongs to the registry and to no deployment. New
 * builds can start again.
 */
async function reportClean(
  { stores, changes, now, telemetry }: DriverDeps,
  task: TaskRecord,
  { taskId, token, given }: ReportInput,
): Promise<{ status: TaskState }> {
  const answer = await stores.cleanUps.endTask(taskId, token, given, now());
  changes.notify(`node:${task.node_id}`, 'work');
  const seconds = task.started_at === null ? null : Math.max(0, now() - task.started_at) / 1000;
  if (isOpenTask(task.status))
    telemetry?.emit({ what: 'task', kind: 'clean', end: answer.status, seconds });
  return answer;
}

/** Handles the report of a `run` task, which no plan creates or ends. */
async function reportRun(
  { stores, changes, now, telemetry }: DriverDeps,
  task: TaskRecord,
  { taskId, token, given }: ReportInput,
): Promise<{ status: TaskState }> {
  const answer = await stores.runs.endTask(taskId, token, given, now());
  // `work`: a run that was lost can start again.
  changes.notify(`node:${task.node_id}`, `logs:${runIdOf(task)}`, 'work');
  const seconds = task.started_at === null ? null : Math.max(0, now() - task.started_at) / 1000;
  if (isOpenTask(task.status))
    telemetry?.emit({ what: 'task', kind: 'run', end: answer.status, seconds });
  return answer;
}

async function redeployRunning(
  { stores }: DriverDeps,
  decider: Decider,
  deploymentId: string,
  input: Redeploy,
): Promise<DeploymentRecord | null> {
  const { project_id } = await stores.deployments.get(deploymentId);
  let isCreated = false;
  const write: Write = async (plan) => {
    const answer = await stores.flow.commit(plan);
    isCreated = answer === 'committed';
    return answer;
  };
  await decider.decide(
    project_id,
    async (facts) => redeploy(input, await decider.find(facts, deploymentId), facts),
    { write },
  );
  return isCreated ? stores.deployments.get(input.id) : null;
}

async function moveVolumes(
  { stores }: DriverDeps,
  decider: Decider,
  deploymentId: string,
): Promise<boolean> {
  const { project_id } = await stores.deployments.get(deploymentId);
  let begins = false;
  await decider.decide(project_id, async (facts) => {
    const plan = advance(await decider.find(facts, deploymentId), { type: 'volumes_leave' }, facts);
    begins = plan.createTasks.some((task) => task.kind === 'move');
    return plan;
  });
  return begins;
}

async function datasetChanged(
  { stores, newId }: DriverDeps,
  decider: Decider,
  datasetId: string,
): Promise<void> {
  const version = (await stores.datasets.facts()).find((d) => d.id === datasetId)?.version ?? null;
  const failed: unknown[] = [];
  for (const d of await stores.deployments.runningWith(datasetId)) {
    // Skip the decision if the story already mentions the version, as in most cases.
    const pin = d.datasets?.find((p) => p.dataset_id === datasetId);
    if (pin === undefined || !isBehind(pin, version)) continue;
    const id = newId();
    // A failure in one project must not hold up the others.
    await decider
      .decide(d.project_id, async (facts) => onDatasetChange(id, d, facts))
      .catch((error: unknown) => failed.push(error));
  }
  if (failed.length > 0)
    throw failed.length === 1
      ? failed[0]
      : new AggregateError(failed, `dataset change failed for ${failed.length} projects`);
}

async function observed(
  { stores }: DriverDeps,
  decider: Decider,
  node: NodeRecord,
  at: number,
): Promise<readonly string[]> {
  // A registration without `containers` does not update the list.
  if (node.observed_at !== at) return [];
  const byDeployment = Map.groupBy(
    node.containers.filter((c) => c.labels[LABELS.deployment] !== undefined),
    (c) => c.labels[LABELS.deployment] ?? '',
  );
  const concerned = await stores.deployments.concerning(node, [...byDeployment.keys()]);
  if (concerned === null) return [];
  const { known, routes } = concerned;
  const routeOf = (d: DeploymentRecord): RouteRecord | null => routes.get(d.project_id) ?? null;
  const instancesOf = (d: DeploymentRecord): InstanceRecord[] =>
    concerned.instances.filter(({ deployment_id }) => deployment_id === d.id);
  // Containers of first instances by deployment, and all other containers of known deployments.
  const reported = new Map<string, ObservedContainer>();
  const others: { d: DeploymentRecord; container: ObservedContainer }[] = [];
  for (const d of known) {
    const containers = (byDeployment.get(d.id) ?? []).map((c) =>
      withInstanceLabel(c, d, instancesOf(d)),
    );
    const own = containers.filter((c) => isOwnContainer(d, c));
    // Several containers can have the label of one deployment. Prefer the container that the
    // deployment started.
    const first = own.find((c) => c.id !== undefined && c.id === d.container_id) ?? own.at(-1);
    if (first !== undefined) reported.set(d.id, first);
    for (const container of containers) if (!own.includes(container)) others.push({ d, container });
  }
  const missing = concerned.serving.filter(
    (d) => !reported.has(d.id) && !restsAsExpected(d, null, routeOf(d)),
  );
  const strays = others.filter(
    ({ d, container }) =>
      !instancesOf(d).some((one) => isInstanceAsExpected(one, node, container, routeOf(d))),
  );
  const absent = concerned.instances.filter(
    (one) =>
      one.node_id === node.id &&
      isExpectedThere(one) &&
      !others.some(({ container }) => isContainerOf(one, container, node.id)),
  );
  const wrong = routesToOthers(node, concerned.elsewhere);
  const owned = known.filter((d) => reported.has(d.id));
  if (
    missing.length + wrong.length + strays.length + absent.length === 0 &&
    areAsExpected(node, reported, owned, routes, concerned.instances)
  )
    concerned.markReconciled();
  // Handle these routes first: their hosts show another project right now.
  for (const { route, container, address } of wrong) {
    const { host_ip, host_port } = address;
    const holder = `${container.name} on ${node.hostname}`;
    await decider.advance(route.deployment_id, {
      type: 'address_taken',
      host_ip,
      host_port,
      holder,
      isRouted: false,
    });
  }
  const listed_after = node.observed_since;
  for (const d of owned) {
    const container = reported.get(d.id) as ObservedContainer;
    if (isAsExpected(d, node, container, routeOf(d), instancesOf(d))) continue;
    await decider.advance(d.id, { type: 'observed', node_id: node.id, container, listed_after });
  }
  for (const { d, container } of strays)
    await decider.advance(d.id, { type: 'observed', node_id: node.id, container, listed_after });
  for (const { deployment_id, id } of absent)
    await decider.advance(deployment_id, {
      type: 'observed',
      node_id: node.id,
      container: null,
      instance_id: id,
      listed_after,
    });
  for (const d of missing)
    await decider.advance(d.id, { type: 'observed', node_id: node.id, container: null });
  for (const { id } of known) byDeployment.delete(id);
  return [...byDeployment.values()].flatMap((containers) => containers.at(-1)?.name ?? []);
}
