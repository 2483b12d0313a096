/**
 * Decides each step in the life of a deployment. This file does no I/O and reads no clock.
 *
 *   request ──▶ pending ──▶ building ──▶ built ──▶ deploying ─ ─ ─ ─ ─ ─ ─ ─ ▶ running ──▶ retired
 *               waits for   a builder    image in   a node starts it beside      the proxy     a newer one
 *               a builder   clones,      the        the old one and probes it;   serves its    took over
 *                 │  ▲      builds,      registry   then its route is published  route
 *                 │  └──────pushes         │  ▲         │
 *                 │   lost    │            │  └──lost───┤
 *                 ▼           ▼            ▼            ▼
 *          failed · cancelled · superseded   (from any state before running; the step's `undo` lists what is undone)
 *
 * The old version serves until the proxy serves the new route: no running version is changed before
 * `route_confirmed`. This file turns each event into a Plan (domain/deployments/plan.ts).
 * store/commit-plan.ts writes the whole plan or nothing. When the project changed in between,
 * flow/decide-and-commit.ts decides again. transitions.ts lists every change of state.
 */
import { defined } from '@berth/kit/defined';
import type { FailureCode } from '@berth/wire/errors';
import { whyNotProject } from '@berth/wire/can';
import type { DatasetMount } from '@berth/wire/dataset';
import type { Placement } from '@berth/wire/node';
import { hasWeb, isScaledToZero } from '@berth/wire/project';
import type { DeployPayload, TaskReport } from '@berth/wire/task';
import { type DeploymentState, isTerminal, type NodeRole } from '@berth/wire/vocabulary';
import { DomainError } from '../domain/platform/errors.ts';
import type { Facts, NodeFact } from '../domain/deployments/facts.ts';
import {
  waitingFor,
  type WaitReason,
  waitsFor,
  waitText,
} from '../domain/deployments/wait-reason.ts';
import type { VolumeCopy } from '../domain/data/volume-copy.ts';
import { isStopFirst } from '../domain/data/volumes.ts';
import {
  builtEarlier,
  builtOtherwise,
  commitNeeds,
  configNeeds,
  ignoredSettings,
  type Need,
  needsOf,
} from '../domain/nodes/build-needs.ts';
import { atPresentRegistry } from '../domain/deployments/clean-up.ts';
import { type InstanceRecord, isWanted, joiningName } from '../domain/deployments/instance.ts';
import { applyConfigFile, originText } from '../domain/projects/config-file.ts';
import { finalName } from '../domain/projects/container-name.ts';
import { type BuilderChoice, chooseBuilder } from '../domain/nodes/builder-choice.ts';
import { mountsOf, pinsOf, wantedOf } from '../domain/data/mounts.ts';
import {
  type Choice,
  choose,
  lackEngines,
  type Question,
  refusalOf,
} from '../domain/nodes/placement.ts';
import {
  dataRefusal,
  plainRefusalsText,
  type Refusals,
  refusalsText,
} from '../domain/nodes/refusal.ts';
import { deviceIds, type Freed } from '../domain/nodes/room.ts';
import type { Plan } from '../domain/deployments/plan.ts';
import type { DeploymentRecord, Failure, RouteRecord } from '../domain/platform/records.ts';
import { fileJobsOf } from '../domain/runs/file-jobs.ts';
import { addNewerVersions, addVersions, mounted } from './data.ts';
import { addressTaken, nodeReplaced, whySilent } from './address-taken.ts';
import { createDraft, type Draft, isBerthAgent } from './plan-draft.ts';
import { creationEnded, endCreation, isCreation } from './creation.ts';
import type { EventOf, FlowEvent } from './events.ts';
import { failure, failureOf } from './failure.ts';
import { type DeploymentRequest, newDeployment } from './new-deployment.ts';
import { createMissing } from './missing-container.ts';
import { addStopped, observed, sweep } from './observe.ts';
import { begin, built, started } from './phases.ts';
import {
  needsRelease,
  releaseLost,
  releaseReported,
  releaseTask,
  startRelease,
  waitsForAgent,
} from './release-command.ts';
import { addStopFirst, freedFor, freeRoom, machineOf, mustRoll, takeRoom } from './room.ts';
import { refuseRelease, settingsLines } from './release.ts';
import { noNodeCan, secretNeeds, secretsLine } from './secrets.ts';
import {
  type MoveProblem,
  type VolumeMove,
  dropIncoming,
  endMove,
  incomingOf,
  isMoving,
  isStillAway,
  leavingNode,
  moveLost,
  moveReported,
  moveVolumes,
  mountVolumes,
  notConfirmed,
  runOnVolumes,
  pinOf,
  saveProven,
  volumesAway,
  volumesMounted,
  whyNotMounted,
} from './volumes.ts';
import {
  isFirstLost,
  lostAs,
  finalNamesOf,
  nextFirst,
  presentOf,
  promote,
  refreshHealth,
  withServers,
} from './instance-route.ts';
import {
  endInstance,
  endOthers,
  forgetOthers,
  instanceEnded,
  isHeldBack,
  instanceLeft,
  instanceOfTask,
  placeOthers,
  reconcile,
  nodeDrained,
  restartElsewhere,
  startOthers,
  takePlace,
} from './instances.ts';
import { nodeLost } from './lost-instance.ts';
import { promoteIfFirstFails, observedInstance } from './observed-instance.ts';
import { observedWorker, workersLost } from './observed-worker.ts';
import { deployNeeds, questionAgain } from './placement-question.ts';
import { addCopied, addNotes, keepFacts, learned } from './task-facts.ts';
import { retireEnded } from './retire-ended.ts';
import { leadsThere, routeBack, routeTo, whyUnconfirmed } from './route.ts';
import { canRestart, reasonToWait, restartStopped, stoppedByTask } from './single-writer.ts';
import { endLeave, endVoidMove, leaveEnded, volumesLeave } from './volume-handoff.ts';
import {
  isAtRest,
  isProjectStopped,
  refreshRest,
  restsAtZero,
  stoppedRoute,
  stopRunning,
} from './stop.ts';
import {
  createBuildTask,
  createDeployTask,
  createRetireTask,
  removes,
  startSeconds,
} from './tasks.ts';
import { hasRunOut, startedTimer, stopTimer } from './timer.ts';
import { placeOfFirst, placesOfOthers } from './two-versions.ts';
import {
  endWorkers,
  placeWorkers,
  reconcileWorkers,
  restartWorkers,
  startingWorkers,
  startWorkers,
  workerEnded,
  workerName,
  type WorkerPlaces,
  workersDrained,
  workerTakesPlace,
} from './workers.ts';

type LiveState = Exclude<DeploymentState, 'retired' | 'failed' | 'cancelled' | 'superseded'>;
type Undo = 'drop_copy' | 'end_tasks' | 'restore_route' | 'remove_container';
type Handlers = {
  [T in FlowEvent['type']]?: (draft: Draft, d: DeploymentRecord, event: EventOf<T>) => void;
};

/**
 * The live states. `does` describes the state, `undo` lists in order what a failure or cancellation
 * undoes, and `on` has the event handlers.
 */
const STEPS: Record<LiveState, { does: string; undo: readonly Undo[]; on: Handlers }> = {
  pending: {
    does: 'waits for a builder with room',
    undo: [],
    on: {
      tick: dispatchBuild,
      cancel: cancelNow,
      project_deleted: projectDeleted,
      project_stopped: projectStopped,
    },
  },
  building: {
    does: 'a builder clones, builds and pushes',
    undo: ['end_tasks'],
    on: {
      task_reported: buildReported,
      task_learned: learned,
      task_lost: taskLost,
      cancel: cancelTask,
      node_deleted: nodeDeleted,
      project_deleted: projectDeleted,
      project_stopped: projectStopped,
    },
  },
  built: {
    does:
      'waits for a deploy node and for other deploying versions of the project; with stop-first ' +
      'also until no other version runs',
    undo: ['drop_copy', 'end_tasks'],
    on: {
      tick: dispatchDeploy,
      task_reported: moveEnded,
      task_lost: moveEnded,
      cancel: (draft, d) => cancelBuilt(draft, d),
      node_deleted: moveNodeDeleted,
      project_deleted: builtDeleted,
      project_stopped: builtStopped,
    },
  },
  deploying: {
    does:
      'a node starts and probes the container; its route is published; the proxy applies the ' +
      'route',
    undo: ['drop_copy', 'end_tasks', 'restore_route', 'remove_container'],
    on: {
      task_reported: deployReported,
      task_lost: taskLost,
      route_confirmed: routeConfirmed,
      route_unreachable: routeUnreachable,
      tick: routeDeadline,
      cancel: cancelTask,
      node_deleted: nodeDeleted,
      project_deleted: projectDeleted,
      project_stopped: projectStopped,
      observed: observedDeploying,
    },
  },
  running: {
    does: 'serves requests',
    undo: ['restore_route', 'remove_container'],
    on: {
      observed: observedRunning,
      node_silent: nodeSilent,
      address_taken: addressTaken,
      node_replaced: nodeReplaced,
      node_deleted: nodeDeleted,
      project_deleted: projectDeleted,
      project_stopped: runningStopped,
      node_lost: runningLost,
      node_drained: runningDrained,
      instance_left: instanceLeft,
      scaled: runningScaled,
      volumes_leave: volumesLeave,
      task_reported: runningTaskEnded,
      task_lost: runningTaskEnded,
    },
  },
};

const UNDO: Record<Undo, (draft: Draft, d: DeploymentRecord) => void> = {
  /**
   * Deletes the incoming copy of the volumes if no container has used it. The source still has the
   * data.
   */
  drop_copy: (draft, d) => dropIncoming(draft, d),
  /**
   * Voids the leases of the open tasks: Berth refuses later reports on them, and the agents discard
   * their work.
   */
  end_tasks(draft, d) {
    for (const task of draft.openTasks(d))
      if (task.kind !== 'retire')
        draft.task({ id: task.id, attempt: task.attempt, end: 'cancelled' });
  },
  /**
   * Points the route to the version that still runs, or removes the route if no version runs. The
   * route of a stopped project leads to its page.
   */
  restore_route(draft, d) {
    const { route } = draft.facts;
    if (route?.deployment_id !== d.id) return;
    const old = draft.facts.live.find((o) => o.status === 'running' && o.id !== d.id);
    const isStopped = isProjectStopped(draft);
    if (isStopped) {
      const node = draft.node(old?.node_id ?? null);
      const isPlaced = old !== undefined && node !== undefined && old.host_port !== null;
      draft.plan.route = stoppedRoute(
        isPlaced ? routeTo(draft, old, node, old.host_port ?? 0).set : route,
      );
      return;
    }
    if (old !== undefined && !hasWeb(old.settings)) {
      const page = pageWithoutWeb(draft, old);
      if (page !== null) draft.plan.route = { set: page };
      return;
    }
    const replaced = old === undefined ? null : whyReplaced(draft, old, d);
    const back = old === undefined || replaced !== null ? null : routeBack(draft, old);
    draft.plan.route =
      old === undefined || back === null
        ? { remove: { project_id: d.project_id } }
        : { set: withServers(draft, old, back.set) };
    if (old === undefined || back !== null) return;
    const reason =
      replaced ??
      'no node reports its container at its port any more, so it gets no requests until a node ' +
        'does';
    draft.addLine(old, 'route_withdrawn', reason);
    if (replaced !== null)
      draft.set(old, { health: { status: 'unhealthy', since: draft.facts.now, detail: replaced } });
  },
  /**
   * Removes the container that the agent reported. If the agent has not reported it yet, the agent
   * removes it itself, and `sweep` removes any container that a later report shows.
   */
  remove_container(draft, d) {
    endCreation(draft, d);
    const drain = d.status === 'running' || d.route_published_at !== null;
    const except = d.host_port === null ? null : d.node_id;
    endOthers(draft, d, { reason: 'its deployment ended', drain, except });
    if (d.host_port === null) return;
    createRetireTask(draft, draft.node(d.node_id), {
      of: d,
      remove: [{ deployment: d, reason: 'its deployment ended' }],
      keep: null,
      // The proxy sends requests to the container once its route is published.
      drain,
    });
  },
};

/**
 * Returns why the older version can no longer serve, or null. A contract-only agent removes the old
 * container of the same name before it starts the new one. The old port is then free, and the agent
 * does not report which container gets it.
 */
function whyReplaced(draft: Draft, old: DeploymentRecord, d: DeploymentRecord): string | null {
  const node = draft.node(old.node_id);
  if (node === undefined || isBerthAgent(node) || d.node_id !== node.id || d.host_port === null)
    return null;
  const name = finalName(d.settings);
  if (finalName(old.settings) !== name) return null;
  return (
    `the agent of ${node.hostname} replaced its container ${name} with that of deployment ` +
    `${d.generation}, which failed; deploy the project again`
  );
}

/**
 * Decides what `event` changes for `d`. The plan is empty if the state of `d` ignores the event.
 * Throws wrong_state if a cancel is too late.
 */
export function advance(d: DeploymentRecord, event: FlowEvent, facts: Facts): Plan {
  const draft = createDraft(facts, event.type);
  // The report of a task, or the loss of its lease, always ends the task, even if the deployment
  // ignores the event.
  if (event.type === 'task_reported')
    draft.task({
      id: event.task.id,
      attempt: event.task.attempt,
      end: event.report.status,
      report: event.report,
    });
  if (event.type === 'task_lost') {
    const ranOut = event.why === 'lease' || event.why === 'attempts';
    const present = ranOut ? facts.tasks.find((t) => t.id === event.task.id) : undefined;
    const lease = present === undefined ? {} : { lease_expires_at: present.lease_expires_at };
    draft.task({ id: event.task.id, attempt: event.task.attempt, end: 'lost', ...lease });
  }

  if (
    (event.type === 'task_reported' || event.type === 'task_lost') &&
    event.task.kind === 'retire'
  )
    retireEnded(draft, d, event);
  else if (
    (event.type === 'task_reported' || event.type === 'task_lost') &&
    instanceOfTask(event.task) !== null
  )
    instanceTaskEnded(draft, d, event);
  else if (isTerminal(d.status)) terminal(draft, d, event);
  else {
    const handler = STEPS[d.status as LiveState].on[event.type] as
      | ((draft: Draft, d: DeploymentRecord, event: FlowEvent) => void)
      | undefined;
    if (handler !== undefined) handler(draft, d, event);
    else if (event.type === 'cancel')
      throw new DomainError(
        'wrong_state',
        `deployment ${d.generation} is ${d.status}: only a deployment that is not live yet can ` +
          'be cancelled',
      );
    else if (event.type === 'observed') sweep(draft, d, event);
  }
  // The reported container, of any deployment, might run while its volumes are being copied.
  if (event.type === 'observed' && event.container !== null) endVoidMove(draft);
  return draft.plan;
}

/**
 * Maximum number of builds in a row that newer requests supersede. The next build finishes, and the
 * newest request waits for it.
 */
export const MAX_SUPERSEDED_BUILDS = 2;
export const isBefore = (status: DeploymentState): boolean =>
  status === 'pending' || status === 'building' || status === 'built';

/**
 * Creates a deployment, which supersedes the older deployments of the project that are not
 * deploying yet. Throws being_deleted, no_release, wrong_state.
 */
export function request(input: DeploymentRequest, facts: Facts): Plan {
  const { project, now } = facts;
  if (project.deleting_at !== null)
    throw new DomainError('being_deleted', `project ${project.name} is being deleted`);
  const { release } = input;
  refuseAgain(input, facts);
  if (release !== null) refuseRelease(release, facts);

  // This plan changes the state of older deployments only.
  const draft = createDraft(facts, 'superseded');
  const created = newDeployment(
    { ...input, live: facts.live.find((d) => d.status === 'running') ?? null },
    project,
    now,
    facts.uptime.at,
  );
  for (const older of facts.live) {
    if (!isBefore(older.status)) continue;
    // A migration must not be killed because a newer version was requested.
    if (releaseTask(facts, older) !== undefined) {
      draft.addLine(
        older,
        'kept',
        `deployment ${created.generation} was requested and waits for this one: its release ` +
          'command runs',
      );
      continue;
    }
    const hasWorked = older.status !== 'pending';
    // A release needs no build and must go live at once, so it does not wait for an older build.
    if (hasWorked && release === null && older.builds_given_up >= MAX_SUPERSEDED_BUILDS) {
      const isAnnounced = facts.live.some((o) => o.generation > older.generation);
      if (!isAnnounced)
        draft.addLine(
          older,
          'kept',
          `deployment ${created.generation} was requested and waits for this one: newer ` +
            `requests already superseded ${older.builds_given_up} builds in a row`,
        );
      continue;
    }
    created.builds_given_up = Math.max(
      created.builds_given_up,
      older.builds_given_up + Number(hasWorked),
    );
    leave(draft, older, 'superseded', null, `deployment ${created.generation} was requested`);
  }
  draft.plan.createDeployment = created;
  draft.addLine({ id: input.id }, 'pending', input.why ?? requestText(input, project));
  if (release !== null) {
    for (const line of settingsLines(release, project))
      draft.addLine({ id: input.id }, 'settings', line);
    const line = secretsLine(release, facts.secrets);
    if (line !== null) draft.addLine({ id: input.id }, 'secrets', line);
    addNewerVersions(draft, { id: input.id }, release);
  }
  return draft.plan;
}

function requestText(
  { release, trigger, commit }: DeploymentRequest,
  { branch, git_url }: Facts['project'],
): string {
  if (release === null) {
    const source = commit === null ? `branch ${branch}` : `commit ${commit}`;
    return `requested from ${source} of ${git_url}`;
  }
  const verb = trigger === 'restart' || trigger === 'start' ? trigger : 'requested';
  return `${verb}: release of deployment ${release.generation}, without a build`;
}

/**
 * Refuses a restart or a start that the condition of the project does not allow. A restart or start
 * neither waits for a deployment in progress nor supersedes it: that deployment has a newer version
 * and starts a new container anyway. Throws wrong_state.
 */
function refuseAgain({ trigger, fromZero }: DeploymentRequest, { project, live }: Facts): void {
  if (trigger !== 'restart' && trigger !== 'start') return;
  if (fromZero === true && project.stopped_by_person)
    throw new DomainError(
      'wrong_state',
      `a scale of project ${project.name} does not start it: a person stopped it; start it`,
    );
  if (project.stopped_at !== null && isScaledToZero(project) && !project.stopped_by_person)
    throw new DomainError(
      'wrong_state',
      `a ${trigger} of project ${project.name} is not possible: it is scaled to 0; ` +
        'scale it to 1 or more',
    );
  const running = live.some((d) => d.status === 'running');
  const why = whyNotProject(trigger, {
    deleting: project.deleting_at !== null,
    stopped: project.stopped_at !== null,
    running,
  });
  if (why !== null)
    throw new DomainError(
      'wrong_state',
      `a ${trigger} of project ${project.name} is not possible: ${why}`,
    );
  const other = live.find((d) => d.status !== 'running');
  if (other === undefined) return;
  const does = trigger === 'start' ? 'starts the project' : 'starts a new container';
  throw new DomainError(
    'wrong_state',
    `deployment ${other.generation} of project ${project.name} is ${other.status} and ${does}; ` +
      'wait for it or cancel it',
  );
}

/**
 * Stops the project: cancels its deployments in progress, in any state, and stops the running one.
 * A project that rests because its count is 0 stays stopped from now on, whatever its count.
 * Repeated calls change nothing. Throws being_deleted.
 */
export function stop(by: string, facts: Facts): Plan {
  const { project, now } = facts;
  if (project.deleting_at !== null)
    throw new DomainError('being_deleted', `project ${project.name} is being deleted`);
  const draft = createDraft(facts, 'project_stopped');
  if (!project.stopped_by_person)
    draft.plan.stopped = {
      at: project.stopped_at ?? now,
      byPerson: true,
      message: `project ${project.name} stopped by ${by}`,
    };
  for (const d of facts.live)
    STEPS[d.status as LiveState].on.project_stopped?.(draft, d, { type: 'project_stopped' });
  return draft.plan;
}

// ── pending ──────────────────────────────────────────────────────────────────────────────────────────────────────────

function dispatchBuild(draft: Draft, d: DeploymentRecord): void {
  const { facts } = draft;
  if (loginMissing(draft, d)) return;
  if (d.rollback_of !== null)
    return draft.move(d, 'built', {}, `no build needed: image ${d.image_tag} exists`);
  if (facts.platform.registryAddr === '') return fail(draft, d, failure('registry_missing'));
  const older = facts.live.find((o) => o.generation < d.generation && isBefore(o.status));
  if (older !== undefined) {
    const { generation, status } = older;
    return waitForOwnWork(draft, d, { kind: 'older_first', generation, status });
  }
  // A push while the registry collects garbage would lose layers.
  if (facts.buildsHeld === true) return waitForOwnWork(draft, d, { kind: 'registry_clean_up' });
  const needs = [
    ...needsOf(d.settings, facts.gitCredentials ?? { deployKey: false, tokenHost: null }),
    ...secretNeeds(facts.secrets, 'builder'),
    ...commitNeeds(d),
    ...configNeeds(facts.live.find((o) => o.status === 'running')),
  ];
  const choice = chooseBuilder(d, facts.nodes, facts.lastBuilderId, facts.now, facts.limits, needs);
  if (choice.node === null) return waitForBuilder(draft, d, choice);
  createBuildTask(draft, d, choice.node);
  draft.move(
    d,
    'building',
    { builder_id: choice.node.id },
    `build assigned to ${choice.node.hostname}`,
  );
  const otherwise = isBerthAgent(choice.node) ? null : builtOtherwise(d);
  if (otherwise !== null)
    draft.addLine(
      d,
      'contract',
      `the agent of ${choice.node.hostname} implements only the contract: it ${otherwise}`,
    );
  const earlier = builtEarlier(choice.node);
  if (earlier !== null) draft.addLine(d, 'contract', earlier);
}

/**
 * Waits for a builder. The wait for a busy builder has no deadline. Without an eligible builder the
 * deployment fails after QUEUE_TIMEOUT.
 */
function waitForBuilder(
  draft: Draft,
  d: DeploymentRecord,
  { refusals, busy, cannot }: Extract<BuilderChoice, { node: null }>,
): void {
  if (cannot) return fail(draft, d, failure('agent_cannot', plainRefusalsText(refusals)));
  if (busy) return waitForOwnWork(draft, d, { kind: 'builders_busy', refusals });
  if (refusals.named.length === 0)
    return wait(draft, d, 'no_builder', { kind: 'never_registered', role: 'builder' });
  waitForNode(draft, d, 'builder', 'no_builder', refusals);
}

// ── building ─────────────────────────────────────────────────────────────────────────────────────────────────────────

function buildReported(
  draft: Draft,
  stored: DeploymentRecord,
  { report, task }: EventOf<'task_reported'>,
): void {
  const withFacts = report.status === 'failed' ? keepFacts(draft, stored, task, report) : stored;
  const d = { ...withFacts, phases: built(stored.phases, task) };
  addNotes(draft, d, report);
  if (d.cancel_requested_at !== null)
    return leave(draft, d, 'cancelled', null, 'the builder stopped the build');
  if (report.status === 'failed') return reassignOrFail(draft, d, failureOf(report), 'builder');
  const image_tag = report.image_tag ?? null;
  const commit =
    report.commit ?? /:([0-9a-f]{40}|[0-9a-f]{64})$/.exec(image_tag ?? '')?.[1] ?? null;
  const other = otherCommit(draft, d, commit);
  if (other !== null) return fail(draft, d, failure('wrong_commit', other));
  const configured = configure({ ...d, commit }, report, draft.facts.secrets);
  if ('problem' in configured) return fail(draft, d, failure('config_invalid', configured.problem));
  const { config } = configured;
  if (config !== null)
    draft.addLine(d, 'config', `${originText(config)} sets ${config.keys.join(', ')}`);
  draft.move(
    d,
    'built',
    {
      ...configured,
      image_tag,
      image_digest: report.image_digest ?? null,
      image_arch: report.arch ?? null,
      commit,
      commit_message: report.commit_message ?? null,
      commit_author: report.commit_author ?? null,
      losses: [],
      phases: d.phases,
    },
    `built and pushed as ${image_tag}`,
  );
}

/** Returns the settings of the release: those of the request, and over them those of its file. */
function configure(
  d: DeploymentRecord,
  { config_file }: TaskReport,
  secrets: Facts['secrets'],
): Pick<DeploymentRecord, 'settings' | 'config'> | { problem: string } {
  const unchanged = { settings: d.settings, config: null };
  if (config_file === undefined) return unchanged;
  const names = secrets.map(({ name }) => name);
  const applied = applyConfigFile(config_file, d.settings, names);
  if ('problem' in applied) return applied;
  const { settings, keys, jobs } = applied;
  return keys.length === 0
    ? unchanged
    : {
        settings,
        config: {
          file: config_file.file,
          commit: d.commit,
          keys,
          ...defined({ jobs: jobs.length === 0 ? undefined : jobs }),
        },
      };
}

/**
 * Returns why the built commit is not the requested one, or null. A contract-only builder builds
 * the tip of the branch, which might be newer than the pushed commit; the function then only adds a
 * line to the story.
 */
function otherCommit(draft: Draft, d: DeploymentRecord, commit: string | null): string | null {
  if (d.requested_commit === null || commit === d.requested_commit) return null;
  const builder = draft.node(d.builder_id);
  const name = builder?.hostname ?? 'the builder';
  const built =
    `${name} built ${commit === null ? 'a commit that it did not name' : `commit ${commit}`} ` +
    `instead of commit ${d.requested_commit}`;
  const isExpected = builder !== undefined && !isBerthAgent(builder) && d.trigger === 'hook';
  if (!isExpected) return built;
  draft.addLine(
    d,
    'contract',
    `${built}: its agent implements only the contract and builds the tip of branch ` +
      d.settings.branch,
  );
  return null;
}

// ── built ────────────────────────────────────────────────────────────────────────────────────────────────────────────

function dispatchDeploy(draft: Draft, d: DeploymentRecord): void {
  const { facts } = draft;
  const release = releaseTask(facts, d);
  if (d.cancel_requested_at !== null) {
    if (release === undefined) cancelNow(draft, d);
    return;
  }
  if (release !== undefined) {
    const node = draft.node(release.node_id)?.hostname ?? release.node_id;
    const { returnMs } = facts.limits;
    const reason: WaitReason = waitsForAgent(release)
      ? { kind: 'release_command_silent', node, returnMs }
      : releaseRuns(d, node);
    return waitForOwnWork(draft, d, reason);
  }
  if (loginMissing(draft, d) || waitsForTurn(draft, d)) return;
  const mounted = mountsOf(d.settings.datasets, facts.datasets);
  if ('waits' in mounted) return wait(draft, d, 'dataset_not_ready', mounted.waits);
  if ('code' in mounted) return fail(draft, d, failure(mounted.code, mounted.message));
  endVoidMove(draft);
  const volumes = volumesOf(draft, d);
  const needs = deployNeeds(draft, d, volumes.leaves !== null);
  const cannot = noNodeCan(needs, facts.nodes);
  if (cannot !== null) return fail(draft, d, failure('agent_cannot', waitText(cannot)));
  const away = volumesAway(draft, volumes.pin);
  if (away !== null) return wait(draft, d, 'volume_unreachable', away);
  const copying = isMoving(draft);
  if (copying !== null) return waitForOwnWork(draft, d, copying);
  const run = volumes.leaves === null ? null : runOnVolumes(draft, volumes.leaves);
  if (run !== null) return waitForOwnWork(draft, d, run);

  const question = questionOf(draft, d, volumes, needs);
  if (!hasWeb(d.settings)) return dispatchWithoutWeb(draft, d, question, mounted.mounts);
  const choice = choose(question, facts.nodes, facts);
  const node = draft.node(choice.placement.winner);
  if (node === undefined) return stopFirstOrWait(draft, d, mounted.mounts, question, choice);
  const others = placesOfOthers(draft, d, question, node);
  if (others.kind === 'none') return waitForDeployNode(draft, d, question, others.lacking);
  if (others.kind === 'room_ends') return waitForOwnWork(draft, d, others.reason);
  if (others.kind === 'after_old' && mustRoll(draft, d))
    return refuseRolling(draft, d, refusalsText(others.lacking.refusals));
  const freed = freedFor(draft, d);
  const placed = others.choices.filter(({ placement }) => placement.winner !== null);
  const workers = placeWorkers(draft, d, question, {
    web: [node.id, ...placed.flatMap(({ placement }) => placement.winner ?? [])],
    freed,
  });
  if (workers.lacking !== null) return waitForDeployNode(draft, d, question, workers.lacking);
  if (needsRelease(d))
    return releaseOn(draft, d, node, { placement: choice.placement, mounts: mounted.mounts });
  if (waitsForNodeToBeClear(draft, d, node) || waitsForVolumes(draft, d, volumes, node)) return;
  const stopsFirst = d.settings.replace === 'recreate';
  assign(draft, d, node, {
    placement: choice.placement,
    mounts: mounted.mounts,
    freed,
    stopsFirst,
    others: placed,
    workers: workers.places,
  });
  if (others.kind === 'after_old')
    draft.addLine(
      d,
      'stopped_first',
      `there is no room for two versions of each instance, so the others start after the ` +
        `containers of deployment ${others.old.generation} have ended: ` +
        refusalsText(others.lacking.refusals),
    );
}

/** Starts a version without the process `web`: it has only workers. */
function dispatchWithoutWeb(
  draft: Draft,
  d: DeploymentRecord,
  question: Question,
  mounts: DatasetMount[],
): void {
  const { places, lacking } = placeWorkers(draft, d, question, { web: [], freed: [] });
  if (lacking !== null) return waitForDeployNode(draft, d, question, lacking);
  const choice = choose(question, draft.facts.nodes, draft.facts);
  const node = draft.node(choice.placement.winner);
  if (node === undefined && (needsRelease(d) || pageWithoutWeb(draft, d) === null))
    return waitForDeployNode(draft, d, question, choice);
  if (node !== undefined && needsRelease(d))
    return releaseOn(draft, d, node, { placement: choice.placement, mounts });
  const datasets = pinsOf(mounts);
  const running = runningOf(draft);
  const compared = `the running deployment ${running?.generation}`;
  addVersions(draft, d, datasets, running?.datasets ?? null, compared);
  draft.move(
    d,
    'deploying',
    {
      node_id: null,
      placement: places[0]?.choices[0]?.placement ?? null,
      datasets,
      host_port: null,
      container_id: null,
      route_published_at: null,
    },
    'starts its processes; it has no process web',
  );
  addRegistryLine(draft, d);
  const present = presentOf(draft, d);
  startWorkers(draft, present, places, mounts);
  publishIfReady(draft, present);
}

const releaseRuns = ({ settings }: DeploymentRecord, node: string): WaitReason => ({
  kind: 'release_command',
  node,
  seconds: settings.release_timeout_seconds,
});

/** Runs the release command on the node, while the old version serves. */
function releaseOn(
  draft: Draft,
  d: DeploymentRecord,
  node: NodeFact,
  { placement, mounts }: Pick<Assignment, 'placement' | 'mounts'>,
): void {
  const missingBytes = placement.items.find((row) => row.node_id === node.id)?.missing_bytes ?? 0;
  startRelease(draft, d, node, { mounts, missingBytes, ...mountVolumes(draft, d, node) });
  waitForOwnWork(draft, d, releaseRuns(d, node.hostname));
}

/** Handles the end of the release command: the next tick places the version, or it fails. */
function releaseEnded(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'task_reported'> | EventOf<'task_lost'>,
): void {
  if (d.cancel_requested_at !== null)
    return leave(draft, d, 'cancelled', null, 'its release command has ended');
  const end =
    event.type === 'task_reported'
      ? releaseReported(draft, d, event.report)
      : releaseLost(draft, d, event);
  if (typeof end !== 'object') return;
  if ('fails' in end) return fail(draft, d, end.fails);
  const losses = [...d.losses, { node_id: event.task.node_id, at: draft.facts.now }];
  if (losses.length >= draft.facts.limits.maxLosses)
    return fail(draft, d, failure('task_not_claimed', end.elsewhere));
  draft.set(d, { losses, ...waitingFor(null) });
  draft.addLine(d, 'release', `${end.elsewhere} did not claim the release command`);
}

function refuseRolling(draft: Draft, d: DeploymentRecord, why: string): void {
  fail(draft, d, failure('no_room_for_two', why));
}

/** Waits for a node, unless the running version alone is in the way (flow/two-versions.ts). */
function stopFirstOrWait(
  draft: Draft,
  d: DeploymentRecord,
  mounts: DatasetMount[],
  question: Question,
  choice: Choice,
): void {
  const place = placeOfFirst(draft, d, question);
  if (place.kind === 'room_ends') return waitForOwnWork(draft, d, place.reason);
  const first = place.kind === 'without_old' ? place.place : null;
  const node = draft.node(first?.choice.placement.winner ?? null);
  if (first === null || node === undefined) return waitForDeployNode(draft, d, question, choice);
  if (mustRoll(draft, d)) return refuseRolling(draft, d, first.why);
  if (needsRelease(d))
    return releaseOn(draft, d, node, { placement: first.choice.placement, mounts });
  if (waitsForNodeToBeClear(draft, d, node)) return;
  addStopFirst(draft, d, first);
  assign(draft, d, node, {
    placement: first.choice.placement,
    mounts,
    freed: first.freed,
    stopsFirst: true,
    others: [],
    workers: [],
  });
}

/**
 * Returns whether this deployment must wait, or ends, because of another deployment of its project.
 * Only one deployment of a project deploys at a time: after two concurrent route changes the older
 * version could be live.
 */
function waitsForTurn(draft: Draft, d: DeploymentRecord): boolean {
  const { live } = draft.facts;
  const deploying = live.find(
    (o) => o.status === 'deploying' || (o.id !== d.id && releaseTask(draft.facts, o) !== undefined),
  );
  const running = runningOf(draft);
  if (deploying !== undefined)
    waitForOwnWork(draft, d, { kind: 'still_deploying', generation: deploying.generation });
  // A newer request does not supersede a deployment in `deploying`. So the newer deployment is live
  // only because this deployment lost its node and went back to an earlier state.
  else if (running !== undefined && running.generation > d.generation)
    leave(
      draft,
      d,
      'superseded',
      null,
      `deployment ${running.generation}, which is newer, went live first`,
    );
  else return false;
  return true;
}

const runningOf = ({ facts }: Draft): DeploymentRecord | undefined =>
  facts.live.find((o) => o.status === 'running');

/** The volumes of a deployment that has no node yet. */
type PlacedVolumes = {
  /** The copy that must be on the deployment's node; null if no copy exists yet. */
  pin: VolumeCopy | null;
  /** The node that the volumes must leave, or null. */
  leaves: NodeFact | null;
  /** The new copy that a move has created on another node, or null. */
  arrived: VolumeCopy | null;
};

function volumesOf(draft: Draft, d: DeploymentRecord): PlacedVolumes {
  const pin = pinOf(draft, d);
  const leaves = leavingNode(draft, pin);
  return { pin, leaves, arrived: leaves === null || pin === null ? null : incomingOf(draft, pin) };
}

/**
 * Returns the question for placement. Ends the move of the volumes if their new node cannot run the
 * deployment and another node can.
 */
function questionOf(
  draft: Draft,
  d: DeploymentRecord,
  { pin, leaves, arrived }: PlacedVolumes,
  needs: Need[],
): Question {
  const home = leaves === null ? pin : arrived;
  const question: Question = {
    wanted: wantedOf(d.settings.datasets, draft.facts.datasets),
    losses: d.losses,
    runsOn: runningOf(draft)?.node_id ?? null,
    // For a restart or start the image is already on the node. Placement chooses another node only
    // if this node cannot run it.
    stays: d.settings.replace === 'recreate' || d.trigger === 'restart' || d.trigger === 'start',
    arch: d.image_arch,
    needs,
    home: home?.node_id ?? null,
    machine: machineOf(draft, d, freedFor(draft, d)),
  };
  if (arrived === null || !isBetterElsewhere(draft, d, question)) return question;
  endMove(draft, d, `${arrived.hostname} cannot run the project now, and another node can`);
  return { ...question, home: null };
}

function waitForDeployNode(
  draft: Draft,
  d: DeploymentRecord,
  question: Question,
  { placement, refusals }: Choice,
): void {
  if (placement.items.length === 0)
    return wait(draft, d, 'no_deploy_node', { kind: 'never_registered', role: 'deploy' });
  const code = dataRefusal(refusals);
  // The project is down during the wait, so fail now: the old version then restarts on its node.
  if (canRestart(draft) && !mayFindNode(draft, d, question))
    return fail(draft, d, failure(code ?? 'no_deploy_node', refusalsText(refusals)));
  if (code === null) return waitForNode(draft, d, 'deploy', 'no_deploy_node', refusals);
  wait(draft, d, code, { kind: 'no_node', role: 'deploy', refusals, engines_down: false });
}

/** Returns whether older containers of the project must stop before the start on this node. */
function waitsForNodeToBeClear(draft: Draft, d: DeploymentRecord, node: NodeFact): boolean {
  // Wait for the open retire task: the new task would adopt a container that the retire task then
  // removes.
  if (draft.facts.tasks.some((t) => t.node_id === node.id && removes(t, d))) {
    waitForOwnWork(draft, d, { kind: 'still_removing', node: node.hostname });
    return true;
  }
  const delay = d.settings.replace === 'recreate' ? reasonToWait(draft, d, node) : null;
  if (delay === null) return false;
  if (delay.isOwnWork) waitForOwnWork(draft, d, delay.reason);
  else wait(draft, d, 'still_writing', delay.reason);
  return true;
}

/**
 * Returns whether the deployment must wait until its volumes are on this node. Begins the copy if
 * none exists.
 */
function waitsForVolumes(
  draft: Draft,
  d: DeploymentRecord,
  { pin, leaves }: PlacedVolumes,
  node: NodeFact,
): boolean {
  if (leaves === null || pin === null) return false;
  if (isStillAway(draft, pin, node)) {
    copyVolumes(draft, d, { pin, from: leaves, to: node });
    return true;
  }
  const unconfirmed = notConfirmed(draft, pin);
  if (unconfirmed !== null) wait(draft, d, 'still_writing', unconfirmed);
  return unconfirmed !== null;
}

function copyVolumes(draft: Draft, d: DeploymentRecord, move: VolumeMove): void {
  const tries = draft.plan.changeDeployments.find((c) => c.id === d.id)?.set.losses ?? d.losses;
  if (tries.length < draft.facts.limits.maxLosses)
    return waitForOwnWork(draft, d, moveVolumes(draft, d, move));
  const from = move.from.hostname;
  const disturbed = `${tries.length} attempts to copy them from ${from} were disturbed`;
  fail(draft, d, failure('volume_failed', disturbed));
}

type Assignment = {
  placement: Placement;
  mounts: DatasetMount[];
  /** The version whose room on its node is free when the new version starts. */
  freed: readonly Freed[];
  stopsFirst: boolean;
  /** Nodes of the further instances. */
  others: readonly Choice[];
  /** Nodes of the processes without HTTP that start before the switch. */
  workers: WorkerPlaces['places'];
};

/** Creates the deploy task for the node. */
function assign(
  draft: Draft,
  d: DeploymentRecord,
  node: NodeFact,
  { placement, mounts, freed, stopsFirst, others, workers }: Assignment,
): void {
  const running = runningOf(draft);
  const devices = deviceIds(takeRoom(draft, d, node, freed));
  const missingBytes = placement.items.find((row) => row.node_id === node.id)?.missing_bytes ?? 0;
  createDeployTask(draft, d, node, {
    mounts,
    missingBytes,
    devices,
    replace: stopsFirst ? 'recreate' : 'rolling',
    ...mountVolumes(draft, d, node),
  });
  if (d.settings.replace === 'recreate') addStopped(draft, d, node);
  const datasets = pinsOf(mounts);
  const compared = `the running deployment ${running?.generation}`;
  addVersions(draft, d, datasets, running?.datasets ?? null, compared);
  const replaces = running === undefined ? '' : `, to replace deployment ${running.generation}`;
  draft.move(
    d,
    'deploying',
    {
      node_id: node.id,
      placement,
      datasets,
      host_port: null,
      container_id: null,
      route_published_at: null,
    },
    `assigned to ${node.hostname} (${node.host_ip})${replaces}`,
  );
  addRegistryLine(draft, d);
  addIgnoredSettings(draft, d, node);
  // With stop-first, the other instances start after the old version has stopped on this node.
  if (stopsFirst) return;
  const present = presentOf(draft, d);
  startOthers(draft, present, others, mounts);
  startWorkers(draft, present, workers, mounts);
}

function addRegistryLine(draft: Draft, d: DeploymentRecord): void {
  const { moved } = atPresentRegistry(d.image_tag ?? '', draft.facts.platform.registryAddr);
  if (moved !== null)
    draft.addLine(
      d,
      'registry',
      `the image was pushed to ${moved.from}; REGISTRY_ADDR is ${moved.to} now, so it is ` +
        'pulled from there',
    );
}

function addIgnoredSettings(draft: Draft, d: DeploymentRecord, node: NodeFact): void {
  const ignored = isBerthAgent(node) ? [] : ignoredSettings(d.settings);
  if (ignored.length === 0) return;
  const have = ignored.length === 1 ? 'has' : 'have';
  draft.addLine(
    d,
    'contract',
    `the agent of ${node.hostname} implements only the contract: ${ignored.join(', ')} ${have} ` +
      'no effect there',
  );
}

/**
 * Returns whether a node can take the deployment soon. A silent node, or a node whose container
 * engine is down, can come back: it counts as available until the wait exceeds the offline limit.
 */
function mayFindNode(draft: Draft, d: DeploymentRecord, question: Question): boolean {
  const { facts } = draft;
  const lasting = { ...question, losses: d.losses.filter((loss) => loss.error !== undefined) };
  const isPatient = !hasRunOut(draft, d, facts.limits.offlineMs);
  const nodes = isPatient
    ? facts.nodes.map((one) => ({ ...one, last_seen_at: facts.now, engine: null }))
    : facts.nodes;
  return choose(lasting, nodes, facts).placement.winner !== null;
}

/**
 * Returns whether the node with the copied volumes cannot run the deployment for now and another
 * node could take the volumes instead.
 */
const isBetterElsewhere = (draft: Draft, d: DeploymentRecord, question: Question): boolean =>
  choose(question, draft.facts.nodes, draft.facts).placement.winner === null &&
  !mayFindNode(draft, d, question) &&
  choose({ ...question, home: null }, draft.facts.nodes, draft.facts).placement.winner !== null;

/** Handles a `move` task that its agent reported, or whose lease or time limit expired. */
function moveEnded(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'task_reported'> | EventOf<'task_lost'>,
): void {
  if (event.task.kind === 'run') return releaseEnded(draft, d, event);
  if (event.task.kind !== 'move') return;
  const problem =
    event.type === 'task_lost'
      ? moveLost(draft, event.task, event.why)
      : moveReported(draft, d, event);
  if (problem !== null) moveFailed(draft, d, event.task.node_id, problem);
  else endVoidMove(draft);
}

/**
 * Copies the volumes again, to the same node or to another one. Fails the deployment after
 * `maxLosses` tries, or if a retry cannot succeed.
 */
function moveFailed(
  draft: Draft,
  d: DeploymentRecord,
  nodeId: string,
  { error, again }: MoveProblem,
): void {
  UNDO.drop_copy(draft, d);
  UNDO.end_tasks(draft, d);
  const losses = [
    ...d.losses,
    {
      node_id: nodeId,
      at: draft.facts.now,
      ...defined({ error: again === 'elsewhere' ? error : undefined }),
    },
  ];
  // The project is down during the wait, so fail now: the old version then restarts on its node.
  const isHopeless = again === 'never' || (again === 'elsewhere' && !canReceive(draft, d, losses));
  if (isHopeless || losses.length >= draft.facts.limits.maxLosses) return fail(draft, d, error);
  draft.set(d, { losses, ...waitingFor(null) });
  draft.addLine(d, 'volumes', `${error.message}; Berth copies the volumes again`);
}

/** Returns whether another node could take the volumes now. */
function canReceive(
  draft: Draft,
  d: DeploymentRecord,
  losses: DeploymentRecord['losses'],
): boolean {
  const { facts } = draft;
  const question = {
    wanted: wantedOf(d.settings.datasets, facts.datasets),
    losses,
    runsOn: null,
    stays: false,
    arch: d.image_arch,
    needs: deployNeeds(draft, d, true),
    machine: machineOf(draft, d, freedFor(draft, d)),
  };
  return choose(question, facts.nodes, facts).placement.winner !== null;
}

/** Handles the deletion of the source or target node of a move. */
function moveNodeDeleted(
  draft: Draft,
  d: DeploymentRecord,
  { node_id, reachable }: EventOf<'node_deleted'>,
): void {
  const release = releaseTask(draft.facts, d);
  if (!reachable && release?.node_id === node_id)
    return fail(draft, d, failure('release_unknown', 'the node was deleted'));
  if (!reachable && saveProven(draft, d, node_id)) return;
  if (!reachable && pinOf(draft, d)?.node_id === node_id) dropIncoming(draft, d, true);
  const isEnd = draft.openTasks(d).some((t) => t.kind === 'move' && t.node_id === node_id);
  if (!isEnd || reachable) return;
  moveFailed(draft, d, node_id, {
    error: failure('volume_failed', 'a node was deleted during the copy'),
    again: 'yes',
  });
}

// ── deploying ────────────────────────────────────────────────────────────────────────────────────────────────────────

/**
 * Handles the report of a deploy task. If the new container answered its probe, publishes the
 * route; the old version serves until the proxy applies it.
 */
function deployReported(
  draft: Draft,
  d: DeploymentRecord,
  { report, task }: EventOf<'task_reported'>,
): void {
  const node = draft.node(d.node_id);
  addNotes(draft, d, report);
  if (report.status === 'failed') {
    addCopied(draft, d, task);
    // A failed report names the container only if the agent could not remove it.
    const tried = {
      ...d,
      container_id: report.container_id ?? null,
      phases: started(d.phases, task, draft.facts.now, false),
    };
    if (d.cancel_requested_at !== null)
      return leave(draft, tried, 'cancelled', null, 'the node stopped the deployment');
    return reassignOrFail(draft, tried, pullFailure(draft, d, failureOf(report)), 'deploy');
  }
  const host_port = report.host_port ?? null;
  if (node === undefined || host_port === null) return fail(draft, d, failure('node_deleted'));
  if (!isBerthAgent(node))
    draft.unmanaged({
      replaced: { node_id: node.id, container: finalName(d.settings), project_id: d.project_id },
    });
  const answering: DeploymentRecord = {
    ...d,
    host_port,
    container_id: report.container_id ?? null,
  };
  if (d.cancel_requested_at !== null)
    return leave(draft, answering, 'cancelled', null, 'cancelled before its route was published');
  const datasets = mounted(d, report);
  addVersions(
    draft,
    d,
    datasets ?? [],
    d.datasets,
    'the dataset changed during the copy; the task',
  );
  const stale = whyNotMounted(draft, d, (task.payload as DeployPayload).volumes?.copy ?? null);
  if (stale !== null) return fail(draft, answering, failure('volume_failed', stale));
  volumesMounted(draft, d);
  const phases = started(d.phases, task, draft.facts.now);
  draft.set(d, { host_port, container_id: answering.container_id, datasets, phases });
  stoppedByTask(draft, d, task, 'completed');
  if ((task.payload as DeployPayload).replace === 'recreate') {
    const { choices } = placeOthers(draft, answering, questionAgain(draft, answering, []), node);
    // The count or the nodes might have changed. The old version is already down, so start the
    // instances that have a node and do not wait for the others.
    const placed = choices.filter(({ placement }) => placement.winner !== null);
    const mounts = (task.payload as DeployPayload).datasets;
    startOthers(draft, answering, placed, mounts);
    const { places } = placeWorkers(draft, answering, questionAgain(draft, answering, []), {
      web: [],
      freed: [],
    });
    startWorkers(draft, answering, places.map(withNode), mounts);
  }
  publishIfReady(draft, d);
}

/** Leaves out the workers that have no node now: they start when the version is live. */
const withNode = ({ process, choices }: WorkerPlaces['places'][number]) => ({
  process,
  choices: choices.filter(({ placement }) => placement.winner !== null),
});

/** Publishes the route when all instances of the version answer. */
function publishIfReady(draft: Draft, stored: DeploymentRecord): void {
  const d = presentOf(draft, stored);
  const node = draft.node(d.node_id);
  if (d.status !== 'deploying' || d.route_published_at !== null) return;
  if (!hasWeb(d.settings)) return publishWithoutWeb(draft, d);
  if (node === undefined || d.host_port === null) return;
  const others = draft.instances(d);
  // Count only instances that have not answered yet. An instance that answered and failed since
  // does not delay the others.
  const missing = others.filter(({ state }) => state === 'starting' || state === 'waiting').length;
  const at = `${node.host_ip}:${d.host_port}`;
  if (missing > 0) {
    const all = others.length + 1;
    return draft.addLine(d, 'instance', `${all - missing} of ${all} instances answer`);
  }
  const workers = startingWorkers(draft, d);
  if (workers > 0)
    return draft.addLine(
      d,
      'instance',
      `waits until ${workers} of ${draft.workers(d).length} other instances have started`,
    );
  const { now, uptime } = draft.facts;
  draft.set(d, {
    route_published_at: now,
    timer: startedTimer(d, uptime.at),
    phases: begin(d.phases, 'route', now),
  });
  draft.plan.route = { set: withServers(draft, d, routeTo(draft, d, node, d.host_port).set) };
  draft.addLine(
    d,
    'route_published',
    others.length === 0
      ? `the container answers at ${at}; its route is published`
      : `${others.length + 1} instances answer, the first one at ${at}; their route is published`,
  );
}

/** Publishes the page of a version without `web` when its workers have started. */
function publishWithoutWeb(draft: Draft, d: DeploymentRecord): void {
  const workers = startingWorkers(draft, d);
  if (workers > 0) {
    const all = draft.workers(d).length;
    return draft.addLine(d, 'instance', `waits until ${workers} of ${all} instances have started`);
  }
  const page = pageWithoutWeb(draft, d);
  if (page === null) return;
  const { now, uptime } = draft.facts;
  draft.set(d, {
    route_published_at: now,
    timer: startedTimer(d, uptime.at),
    phases: begin(d.phases, 'route', now),
  });
  draft.plan.route = { set: page };
  draft.addLine(
    d,
    'route_published',
    'its processes have started; its host answers with a page, because it has no process web',
  );
}

/**
 * Returns the route of a version without `web`; null if there is no node. The record names a node of
 * one of its instances, else any.
 */
function pageWithoutWeb(draft: Draft, d: DeploymentRecord): RouteRecord | null {
  const { nodes, route } = draft.facts;
  const at = draft.workers(d).find(({ node_id }) => node_id !== null)?.node_id ?? null;
  const node =
    draft.node(at ?? route?.node_id ?? null) ?? nodes.find(({ role }) => role === 'deploy');
  // No container answers there: the proxy does not use the address of a page.
  return node === undefined ? null : { ...routeTo(draft, d, node, 0).set, stopped: true };
}

/** Moves the record of the page off a node that no instance of a version without `web` has. */
function movePage(draft: Draft, d: DeploymentRecord): void {
  const { route } = draft.facts;
  if (hasWeb(d.settings) || route?.deployment_id !== d.id) return;
  if (draft.workers(d).some(({ node_id }) => node_id === route.node_id)) return;
  const page = pageWithoutWeb(draft, d);
  if (page !== null) draft.plan.route = { set: { ...page, published_at: route.published_at } };
}

/** Handles the end of the deploy task of a further instance. */
function instanceTaskEnded(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'task_reported'> | EventOf<'task_lost'>,
): void {
  if (event.type === 'task_reported') addNotes(draft, d, event.report);
  if (d.status === 'deploying' && d.cancel_requested_at !== null)
    return leave(draft, d, 'cancelled', null, 'a node stopped the deployment');
  const id = instanceOfTask(event.task);
  if (draft.workers(d).some((one) => one.id === id)) return workerTaskEnded(draft, d, event);
  const end = instanceEnded(draft, d, event);
  if (end.kind === 'failed' && d.status === 'deploying') return fail(draft, d, end.error);
  if (end.kind !== 'answers') return refreshHealth(draft, d);
  if (d.status === 'deploying') return publishIfReady(draft, d);
  if (d.status === 'running') replacementAnswers(draft, d, id);
}

/** Handles the end of the deploy task of a process without HTTP. */
function workerTaskEnded(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'task_reported'> | EventOf<'task_lost'>,
): void {
  const end = workerEnded(draft, d, event);
  if (end.kind === 'failed' && d.status === 'deploying') return fail(draft, d, end.error);
  if (end.kind === 'runs' && d.status === 'deploying') return publishIfReady(draft, d);
  if (end.kind === 'runs' && d.status === 'running') {
    const { worker } = end;
    workerTakesPlace(draft, d, worker);
    movePage(draft, d);
    createRetireTask(draft, draft.node(worker.node_id), {
      of: d,
      remove: [],
      keep: null,
      names: [{ deployment_id: d.id, instance_id: worker.id, name: workerName(d, worker) }],
      drain: false,
    });
  }
  refreshHealth(draft, d);
}

/** Adds an instance of the running version, which now answers, to the route. */
function replacementAnswers(draft: Draft, d: DeploymentRecord, id: string | null): void {
  const instance = draft.instances(d).find((one) => one.id === id);
  if (instance === undefined || instance.node_id === null) return;
  const name = joiningName(d, draft.instances(d), instance);
  const names = instance.labelled ? [{ deployment_id: d.id, instance_id: instance.id, name }] : [];
  if (isFirstLost(d)) promote(draft, d, instance, lostAs(draft, d));
  else takePlace(draft, d, instance);
  createRetireTask(draft, draft.node(instance.node_id), {
    of: d,
    remove: [],
    keep: null,
    names,
    drain: false,
  });
  refreshHealth(draft, d);
}

function observedDeploying(draft: Draft, d: DeploymentRecord, event: EventOf<'observed'>): void {
  if (observedWorker(draft, d, event)) return;
  if (!observedInstance(draft, d, event)) observed(draft, d, event);
}

function runningLost(draft: Draft, d: DeploymentRecord, event: EventOf<'node_lost'>): void {
  nodeLost(draft, d, event);
  workersLost(draft, presentOf(draft, d), event);
}

function runningDrained(draft: Draft, d: DeploymentRecord, event: EventOf<'node_drained'>): void {
  nodeDrained(draft, d, event);
  workersDrained(draft, presentOf(draft, d), event);
}

function runningScaled(draft: Draft, d: DeploymentRecord): void {
  reconcileWorkers(draft, d);
  if (isProjectStopped(draft)) return refreshRest(draft, d);
  if (restsAtZero(draft, d)) return isHeldBack(draft, d) ? undefined : rest(draft, d);
  reconcile(draft, d);
  refreshHealth(draft, d);
}

/** Stops the containers of a project that is scaled to 0. */
function rest(draft: Draft, d: DeploymentRecord): void {
  const { project, now } = draft.facts;
  if (!isProjectStopped(draft))
    draft.plan.stopped = {
      at: now,
      byPerson: false,
      message: `project ${project.name} scaled to 0`,
    };
  // The volumes of a stopped project can move, so nothing may write to them.
  if (isStopFirst(d.settings)) runningStopped(draft, d);
  else stopWeb(draft, d);
}

/** Stops all processes of the project. */
function runningStopped(draft: Draft, d: DeploymentRecord): void {
  endWorkers(draft, d, 'the project is stopped');
  stopWeb(draft, d);
}

function stopWeb(draft: Draft, d: DeploymentRecord): void {
  for (const instance of draft.instances(d))
    endInstance(draft, d, instance, 'the project is stopped');
  endCreation(draft, d);
  stopRunning(draft, d);
}

/**
 * Extends the message of a failed pull if REGISTRY_ADDR changed after the push: the image might be
 * missing in the new registry.
 */
function pullFailure({ facts }: Draft, d: DeploymentRecord, error: Failure): Failure {
  const { moved } = atPresentRegistry(d.image_tag ?? '', facts.platform.registryAddr);
  if (moved === null || !PULL_FAILURE_CODES.includes(error.code)) return error;
  const why = `its image was pushed to ${moved.from}, and REGISTRY_ADDR is ${moved.to} now`;
  return {
    ...error,
    message: `${error.message}; ${why}: copy the image to that registry, or deploy from source`,
  };
}
const PULL_FAILURE_CODES: readonly FailureCode[] = [
  'image_pull_failed',
  'registry_unreachable',
  'registry_failed',
  'registry_refused',
];

function routeConfirmed(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'route_confirmed'>,
): void {
  if (!leadsThere(draft, d, event)) return;
  // The project was scaled to 0 during the switch, or the version has no `web`.
  const isPage = draft.facts.route?.stopped === true;
  goLive(
    draft,
    d,
    `live: ${servedBy(event.entry_points)} ${isPage ? 'the page of the project' : 'the new route'}` +
      (event.note === undefined
        ? ''
        : ` (Berth did not check whether the proxy reaches the node: ${event.note})`),
  );
}

/** Makes the version the running one, and ends the old one. */
function goLive(draft: Draft, d: DeploymentRecord, message: string): void {
  const node = draft.node(d.node_id);
  const old = draft.facts.live.find((o) => o.status === 'running');
  if (old !== undefined)
    draft.move(old, 'retired', {}, `deployment ${d.generation} took over`, 'replaced');
  draft.move(
    d,
    'running',
    {
      finished_at: draft.facts.now,
      health: { status: 'healthy', since: draft.facts.now, detail: null },
    },
    message,
  );

  const removeOld =
    old === undefined
      ? []
      : [{ deployment: old, reason: `replaced by deployment ${d.generation}` }];
  const isSameNode = old !== undefined && old.node_id === d.node_id;
  const isAtZero = restsAtZero(draft, d);
  endStop(draft, d);
  const drain = old === undefined || !isAtRest(old);
  const nodesOfOld = new Set(
    old === undefined ? [] : othersOf(draft, old).flatMap(({ node_id }) => node_id ?? []),
  );
  createRetireTask(draft, node, {
    of: d,
    remove: isSameNode || nodesOfOld.has(d.node_id ?? '') ? removeOld : [],
    keep: d,
    names: finalNamesOf(draft, d, d.node_id ?? ''),
    drain,
  });
  if (old !== undefined && !isSameNode)
    createRetireTask(draft, draft.node(old.node_id), {
      of: old,
      replacedBy: d,
      remove: removeOld,
      keep: null,
      names: finalNamesOf(draft, d, old.node_id ?? ''),
      drain,
    });
  // The other nodes on which either version has an instance.
  const others = new Set([
    ...nodesOfOld,
    ...othersOf(draft, d).flatMap(({ node_id }) => node_id ?? []),
  ]);
  for (const id of others)
    if (id !== d.node_id && id !== old?.node_id)
      createRetireTask(draft, draft.node(id), {
        of: d,
        remove: nodesOfOld.has(id) ? removeOld : [],
        keep: null,
        names: finalNamesOf(draft, d, id),
        drain,
      });
  if (old !== undefined) {
    endCreation(draft, old);
    forgetOthers(draft, old);
  }
  draft.plan.fileJobs = fileJobsOf(d, draft.facts.now);
  if (isAtZero) rest(draft, presentOf(draft, d));
  // The workers with `recreate` start when the old ones have stopped.
  reconcileWorkers(draft, d);
  refreshHealth(draft, d);
}

/** Returns all instances of a deployment but its first one. */
const othersOf = (draft: Draft, d: DeploymentRecord): InstanceRecord[] => [
  ...draft.instances(d),
  ...draft.workers(d),
];

/** Ends a stop when a deployment is live. With count 0 the project rests because of its count. */
function endStop(draft: Draft, d: DeploymentRecord): void {
  const { generation } = d;
  const { name, stopped_at, stopped_by_person } = draft.facts.project;
  if (!isProjectStopped(draft)) return;
  if (!restsAtZero(draft, d))
    draft.plan.stopped = {
      at: null,
      byPerson: false,
      message: `project ${name} started: deployment ${generation} is live`,
    };
  else if (stopped_by_person)
    draft.plan.stopped = {
      at: stopped_at,
      byPerson: false,
      message: `project ${name} is not stopped any more, and scaled to 0: deployment ${generation} rests`,
    };
}

/**
 * Returns the subject of the "live" line. Without entry points to check, Berth knows only that the
 * proxy fetched the configuration.
 */
function servedBy(entryPoints: number | undefined): string {
  if (entryPoints === undefined) return 'the reverse proxy serves';
  return entryPoints === 1
    ? 'the entry point of the reverse proxy serves'
    : `${entryPoints} of ${entryPoints} entry points of the reverse proxy serve`;
}

/**
 * Restores the old route at once: requests have failed since the new route was published, and the
 * old version still runs.
 */
function routeUnreachable(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'route_unreachable'>,
): void {
  if (!leadsThere(draft, d, event)) return;
  // A contract-only agent can report before its application answers. Give the application the same
  // time as Berth's own probe.
  const isProbed = isBerthAgent(draft.node(d.node_id));
  // The grace period is 0: the decision does not depend on an agent, and requests fail until the
  // route is restored.
  if (!isProbed && !hasRunOut(draft, d, startSeconds(d, draft.facts.limits) * 1000, 0)) return;
  const address = `${event.host_ip}:${event.host_port}`;
  const why =
    `the proxy at ${event.proxy} returned ${event.saw} for ${address}; allow connections from ` +
    'the proxy to the node’s published ports';
  fail(draft, d, failure('proxy_cannot_reach_node', why));
}

function routeDeadline(draft: Draft, d: DeploymentRecord): void {
  if (d.route_published_at === null || !hasRunOut(draft, d, draft.facts.limits.routeMs)) return;
  fail(draft, d, whyUnconfirmed(draft, d));
}

// ── running ──────────────────────────────────────────────────────────────────────────────────────────────────────────

function runningTaskEnded(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'task_reported'> | EventOf<'task_lost'>,
): void {
  if (isCreation(event.task, d)) creationEnded(draft, d, event);
  else leaveEnded(draft, d, event);
}

function observedRunning(draft: Draft, d: DeploymentRecord, event: EventOf<'observed'>): void {
  if (observedWorker(draft, d, event)) return refreshHealth(draft, d);
  if (observedInstance(draft, d, event)) return refreshHealth(draft, d);
  if (event.node_id === d.node_id && promoteIfFirstFails(draft, d, event.container))
    return refreshHealth(draft, d);
  observed(draft, d, event);
  // If the deployment moved to another node, the next report of that node decides about a restart.
  if (!draft.plan.changeDeployments.some(({ set }) => set.node_id !== undefined))
    restartStopped(draft);
  if (d.stopped_first === null) createMissing(draft, d, event);
}

/** Keeps the route: a node that does not report might still serve requests. */
function nodeSilent(draft: Draft, d: DeploymentRecord): void {
  if (d.health?.status === 'unknown' || isProjectStopped(draft)) return;
  // Withdraw the route: the container is gone, and a contract-only agent would not report its
  // return.
  if (
    draft.facts.route === null &&
    d.health?.status === 'unhealthy' &&
    !reportsContainers(draft, d)
  )
    return;
  const routed =
    draft.facts.route?.deployment_id === d.id
      ? 'the route stays'
      : 'another container has its address, so it gets no requests';
  const detail = `${whySilent(draft, d)}; ${routed}`;
  draft.set(d, { health: { status: 'unknown', since: draft.facts.now, detail } });
  draft.addLine(d, 'health', `health unknown: ${detail}`);
}

const reportsContainers = (draft: Draft, d: DeploymentRecord): boolean => {
  const node = draft.node(d.node_id);
  return node === undefined || isBerthAgent(node);
};

// ── exits and ways back ──────────────────────────────────────────────────────────────────────────────────────────────

function taskLost(
  draft: Draft,
  stored: DeploymentRecord,
  { task, why }: EventOf<'task_lost'>,
): void {
  const { now, limits } = draft.facts;
  const phases =
    task.kind === 'deploy' ? started(stored.phases, task, now, false) : built(stored.phases, task);
  const d = task.kind === 'deploy' || task.kind === 'build' ? { ...stored, phases } : stored;
  addCopied(draft, d, task);
  if (task.kind === 'deploy') stoppedByTask(draft, d, task, 'unknown');
  const name = draft.node(task.node_id)?.hostname ?? task.node_id;
  if (d.cancel_requested_at !== null)
    return leave(draft, d, 'cancelled', null, `${name} did not confirm the cancellation in time`);
  if (why === 'wall') return fail(draft, d, failure('task_timeout', `${task.kind} on ${name}`));
  if (why === 'attempts')
    return fail(
      draft,
      d,
      failure('too_many_attempts', `${task.kind} on ${name}, ${task.attempt} attempts`),
    );
  const losses = [...d.losses, { node_id: task.node_id, at: now }];
  const code: FailureCode = why === 'queue' ? 'task_not_claimed' : 'node_lost';
  if (losses.length >= limits.maxLosses)
    return fail(draft, d, failure(code, `${name}, after ${losses.length} attempts`));
  stepBack(
    draft,
    d,
    losses,
    `${name} ${why === 'queue' ? 'did not claim the task' : 'stopped reporting'}; the task is ` +
      'reassigned',
  );
}

/** Failures that the node causes and not the task: the same task can succeed on another node. */
const NODE_FAILURES: readonly FailureCode[] = ['engine_unavailable', 'disk_full'];

/**
 * Records a failure that the node caused in `losses`, and reassigns the work to another node, at
 * most `maxLosses` times. Placement skips a node with a recorded loss. Without that, the broken
 * node would always look the least busy and get the work again. Without another eligible node the
 * deployment fails with the node's own error.
 */
function reassignOrFail(draft: Draft, d: DeploymentRecord, error: Failure, role: NodeRole): void {
  const { facts } = draft;
  const at = role === 'builder' ? d.builder_id : d.node_id;
  const losses = at === null ? d.losses : [...d.losses, { node_id: at, at: facts.now, error }];
  const another = facts.nodes.some(
    (n) => n.role === role && n.id !== at && refusalOf(n, losses, facts.now, facts.limits) === null,
  );
  // With stop-first the broken node might still run a container that cannot be stopped now. Two
  // versions must never write at once, so the work stays on this node.
  const isTied = role === 'deploy' && d.settings.replace === 'recreate';
  if (
    !NODE_FAILURES.includes(error.code) ||
    !another ||
    isTied ||
    losses.length >= facts.limits.maxLosses
  )
    return fail(draft, d, error);
  const name = draft.node(at)?.hostname ?? at;
  stepBack(
    draft,
    d,
    losses,
    `${name} failed: ${error.message}; the task is reassigned to another node`,
  );
}

/**
 * Waits for a node. If the container engines are the only reason why no node of this role can work,
 * the code is engine_unavailable.
 */
function waitForNode(
  draft: Draft,
  d: DeploymentRecord,
  role: NodeRole,
  code: FailureCode,
  refusals: Refusals,
): void {
  const { nodes, now, limits } = draft.facts;
  const engines_down = lackEngines(nodes, role, now, limits);
  const reason: WaitReason = { kind: 'no_node', role, refusals, engines_down };
  wait(draft, d, engines_down ? 'engine_unavailable' : code, reason);
}

function nodeDeleted(draft: Draft, d: DeploymentRecord, event: EventOf<'node_deleted'>): void {
  if (d.status === 'deploying' || d.status === 'running') {
    const failed = restartWorkers(draft, d, event);
    if (failed !== null) return fail(draft, d, failed);
    if (!restartElsewhere(draft, d, event)) return fail(draft, d, failure('node_deleted'));
    if (d.status === 'running' && d.node_id === event.node_id && !event.reachable) {
      const other = nextFirst(draft, d);
      if (other !== undefined) {
        promote(draft, d, other, null);
        reconcile(draft, d);
        return refreshHealth(draft, d);
      }
      // The replacement of the lost first instance starts already, or waits for a node.
      if (isFirstLost(d) && draft.instances(d).some(isWanted)) return;
    }
  }
  const at = d.status === 'building' ? d.builder_id : d.node_id;
  if (at !== event.node_id) return;
  if (d.status === 'running') {
    const isStopped = isProjectStopped(draft);
    // The deployment serves until the drain of its node has moved it (loops/removals.ts).
    if (event.reachable && !isStopped) return;
    UNDO.restore_route(draft, d);
    endLeave(draft, d, event.reachable ? null : event.node_id);
    if (event.reachable) UNDO.remove_container(draft, d);
    else endOthers(draft, d, { reason: 'its deployment ended', drain: false });
    const next = isStopped ? 'a start runs its release' : 'deploy it again to run it';
    return draft.move(
      d,
      'retired',
      { error: failure('node_deleted') },
      `its node was deleted; ${next} on another node`,
    );
  }
  if (d.cancel_requested_at !== null)
    return leave(draft, d, 'cancelled', null, 'its node was deleted');
  UNDO.end_tasks(draft, d);
  UNDO.restore_route(draft, d);
  stepBack(
    draft,
    d,
    [...d.losses, { node_id: event.node_id, at: draft.facts.now }],
    'its node was deleted; the task is reassigned',
  );
}

/** Returns to the previous waiting state, in which the same work is assigned again. */
function stepBack(
  draft: Draft,
  d: DeploymentRecord,
  losses: DeploymentRecord['losses'],
  message: string,
): void {
  if (d.status === 'building')
    return draft.move(d, 'pending', { builder_id: null, losses }, message);
  if (draft.event === 'task_reported' && d.container_id === null) freeRoom(draft, d, d.node_id);
  endOthers(draft, d, { reason: 'its deployment starts again', drain: false, startsAgain: true });
  draft.move(
    d,
    'built',
    { node_id: null, host_port: null, container_id: null, route_published_at: null, losses },
    message,
  );
}

function cancelNow(draft: Draft, d: DeploymentRecord): void {
  leave(draft, d, 'cancelled', null, 'cancelled on request');
}

/**
 * Lets a release command end as a container that stops does: SIGTERM first, and later SIGKILL.
 * `atOnce` ends a deployment without a command that might run.
 */
function cancelBuilt(
  draft: Draft,
  d: DeploymentRecord,
  why = 'cancellation requested',
  atOnce: (draft: Draft, d: DeploymentRecord) => void = cancelNow,
): void {
  const release = releaseTask(draft.facts, d);
  if (release === undefined || release.attempt === 0) return atOnce(draft, d);
  if (d.cancel_requested_at !== null) return;
  draft.task({ id: release.id, attempt: release.attempt, requestCancel: true });
  draft.set(d, { cancel_requested_at: draft.facts.now });
  draft.addLine(d, 'cancel_requested', `${why}; waiting until the release command has stopped`);
}

function builtStopped(draft: Draft, d: DeploymentRecord): void {
  cancelBuilt(draft, d, 'the project was stopped', projectStopped);
}

function builtDeleted(draft: Draft, d: DeploymentRecord): void {
  cancelBuilt(draft, d, 'the project is being deleted', projectDeleted);
}

/**
 * Asks the agents to cancel the tasks that they have claimed, one for each instance. The deployment
 * ends when the first one reports or its lease expires.
 */
function cancelTask(draft: Draft, d: DeploymentRecord): void {
  if (d.cancel_requested_at !== null) return;
  if (d.route_published_at !== null)
    throw new DomainError(
      'wrong_state',
      'its route is already published, so it can no longer be cancelled',
    );
  const tasks = draft.openTasks(d).filter((t) => t.kind !== 'retire');
  const canCancel = tasks.every((t) => isBerthAgent(draft.node(t.node_id)));
  if (tasks.some(({ kind }) => kind === 'deploy') && !canCancel)
    throw new DomainError('wrong_state', 'the agent of its node does not support cancellation');
  const claimed = tasks.filter(({ attempt }) => attempt > 0);
  if (claimed.length === 0 || !canCancel) return cancelNow(draft, d);
  for (const { id, attempt } of claimed) draft.task({ id, attempt, requestCancel: true });
  draft.set(d, { cancel_requested_at: draft.facts.now });
  draft.addLine(
    d,
    'cancel_requested',
    'cancellation requested; waiting until the agent stops the task',
  );
}

function projectDeleted(draft: Draft, d: DeploymentRecord): void {
  if (d.status === 'running') endLeave(draft, d);
  leave(
    draft,
    d,
    d.status === 'running' ? 'retired' : 'cancelled',
    failure('project_deleted'),
    'the project is being deleted',
  );
  if (draft.facts.route !== null) draft.plan.route = { remove: { project_id: d.project_id } };
}

function projectStopped(draft: Draft, d: DeploymentRecord): void {
  leave(draft, d, 'cancelled', null, 'the project was stopped');
}

/**
 * Handles events of a terminal deployment: ignores late reports and expired leases, and removes a
 * container that a node still reports.
 */
function terminal(draft: Draft, d: DeploymentRecord, event: FlowEvent): void {
  if (event.type === 'cancel')
    throw new DomainError('wrong_state', `deployment ${d.generation} is already ${d.status}`);
  if (event.type === 'observed') sweep(draft, d, event);
}

/** Ends a deployment: undoes the work of its state, then changes the state. */
function leave(
  draft: Draft,
  d: DeploymentRecord,
  to: 'failed' | 'cancelled' | 'superseded' | 'retired',
  error: Failure | null,
  message: string,
): void {
  for (const undo of STEPS[d.status as LiveState].undo) UNDO[undo](draft, d);
  const finished = d.finished_at === null ? { finished_at: draft.facts.now } : {};
  // Reset `retry`: failed stops and starts must not delay the removal of the container (retry.ts).
  draft.move(
    d,
    to,
    { ...finished, error, host_port: d.host_port, container_id: d.container_id, retry: null },
    message,
  );
  // A report without a container proves that none remains on the node: record that now. If a
  // container was reported, its removal or the next container list proves it later.
  const isGone = draft.event === 'task_reported' && d.host_port === null && d.container_id === null;
  const removal = isGone && d.node_id !== null ? { node_id: d.node_id, gone: [d.id] } : null;
  if (isGone) freeRoom(draft, d, d.node_id);
  if (d.status !== 'running') restartStopped(draft, { leaving: d.id, removal });
}

function fail(draft: Draft, d: DeploymentRecord, error: Failure): void {
  leave(draft, d, 'failed', error, error.message);
}

/** Waits for something outside Berth. Fails the deployment after QUEUE_TIMEOUT. */
function wait(draft: Draft, d: DeploymentRecord, code: FailureCode, reason: WaitReason): void {
  // Prefer the error that a node reported: it explains more than "no other node is eligible".
  const reported = d.losses.findLast((l) => l.error !== undefined)?.error;
  if (hasRunOut(draft, d, draft.facts.limits.queueMs))
    return fail(draft, d, reported ?? failure(code, waitText(reason)));
  setWaiting(draft, d, reason);
}

/** Waits for another task of Berth, which has its own deadline. Stops the queue timer meanwhile. */
function waitForOwnWork(draft: Draft, d: DeploymentRecord, reason: WaitReason): void {
  stopTimer(draft, d);
  setWaiting(draft, d, reason);
}

/** Records the reason to wait, and adds a line to the story if the reason changed. */
function setWaiting(draft: Draft, d: DeploymentRecord, reason: WaitReason): void {
  if (waitsFor(d, reason)) return;
  draft.set(d, waitingFor(reason));
  draft.addLine(d, 'waiting', waitText(reason));
}

/**
 * Fails the deployment of a project that requires a login if AUTH_SERVICE_URL is not set, so that
 * the project is never published without a login. Returns whether it failed.
 */
function loginMissing(draft: Draft, d: DeploymentRecord): boolean {
  if (
    !(d.settings.auth_required || draft.facts.project.auth_required) ||
    draft.facts.platform.authServiceUrl !== null
  )
    return false;
  fail(draft, d, failure('auth_service_missing'));
  return true;
}
