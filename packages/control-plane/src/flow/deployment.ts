/**
 * The life of a deployment. Read this file and you know the flow; it does no I/O and asks no clock.
 *
 *   request ──▶ pending ──▶ building ──▶ built ──▶ deploying ─ ─ ─ ─ ─ ─ ─ ─ ▶ running ──▶ retired
 *               wait for    a builder    image in   a node starts it beside      the proxy     a newer one
 *               a builder   clones,      the        the old one and probes it;   serves its    took over
 *                 │  ▲      builds,      registry   then its route is published  route
 *                 │  └──────pushes         │  ▲         │
 *                 │   lost    │            │  └──lost───┤
 *                 ▼           ▼            ▼            ▼
 *          failed · cancelled · superseded   (from any rung; what was begun is undone as the rung's row says)
 *
 * The old version serves until the new route was seen at the proxy: nothing that serves is touched before `route_confirmed`.
 * Every event is decided here into a Plan (domain/plan.ts); store/commit-plan.ts writes it whole or not at all, and
 * flow/drive.ts decides again when the project moved on meanwhile. transitions.ts lists every change of state.
 */
import type { FailureCode } from '@berth/wire/errors';
import { type DeploymentState, isTerminal, type NodeRole } from '@berth/wire/vocabulary';
import { DomainError } from '../domain/errors.ts';
import type { Facts } from '../domain/facts.ts';
import { chooseBuilder } from '../domain/builder-choice.ts';
import { mountsOf, pinsOf, wantedOf } from '../domain/mounts.ts';
import { choose, dataRefusal, isOnline, lackEngines, refusal, whyNone } from '../domain/placement.ts';
import type { Plan } from '../domain/plan.ts';
import type { DeploymentRecord, Failure } from '../domain/records.ts';
import { mounted, tellMovedOn, tellVersions } from './data.ts';
import { createDraft, type Draft, knowsMoreThanContract } from './draft.ts';
import type { EventOf, FlowEvent } from './events.ts';
import { failure, failureOf } from './failure.ts';
import { type DeploymentRequest, newDeployment } from './new-deployment.ts';
import { observed, sayStopped, sweep } from './observe.ts';
import { begin, built, started } from './phases.ts';
import { refuseRelease, tellSettings } from './release.ts';
import { retireEnded } from './retired.ts';
import { leadsThere, routeTo, whyUnconfirmed } from './route.ts';
import { startAgain, whyNotYet } from './single-writer.ts';
import { createBuildTask, createDeployTask, createRetireTask, removes } from './tasks.ts';
import { hasRunOut, startedTimer, stopTimer } from './timer.ts';

type LiveState = Exclude<DeploymentState, 'retired' | 'failed' | 'cancelled' | 'superseded'>;
type Undo = 'end_tasks' | 'restore_route' | 'remove_container';
type Handlers = { [T in FlowEvent['type']]?: (draft: Draft, d: DeploymentRecord, event: EventOf<T>) => void };

/** Each rung: what it waits for, what must be undone when it is left by an exit (in this order), what moves it. */
const STEPS: Record<LiveState, { does: string; undo: readonly Undo[]; on: Handlers }> = {
  pending: {
    does: 'waits for a builder with room',
    undo: [],
    on: { tick: dispatchBuild, cancel: cancelNow, project_deleted: projectDeleted },
  },
  building: {
    does: 'a builder clones, builds and pushes',
    undo: ['end_tasks'],
    on: {
      task_reported: buildReported,
      task_lost: taskLost,
      cancel: cancelTask,
      node_deleted: nodeDeleted,
      project_deleted: projectDeleted,
    },
  },
  built: {
    does: 'waits for a deploy node, for another deployment of the project that is deploying, and stop-first until nothing else runs',
    undo: [],
    on: { tick: dispatchDeploy, cancel: cancelNow, project_deleted: projectDeleted },
  },
  deploying: {
    does: 'a node starts and probes it; its route is published; the proxy takes it over',
    undo: ['end_tasks', 'restore_route', 'remove_container'],
    on: {
      task_reported: deployReported,
      task_lost: taskLost,
      route_confirmed: routeConfirmed,
      route_unreachable: routeUnreachable,
      tick: routeDeadline,
      cancel: cancelTask,
      node_deleted: nodeDeleted,
      project_deleted: projectDeleted,
      observed,
    },
  },
  running: {
    does: 'serves',
    undo: ['restore_route', 'remove_container'],
    on: {
      observed: observedRunning,
      node_silent: nodeSilent,
      node_deleted: nodeDeleted,
      project_deleted: projectDeleted,
    },
  },
};

const UNDO: Record<Undo, (draft: Draft, d: DeploymentRecord) => void> = {
  /** Voids the leases: whatever their agents report later is refused, and they throw it away. */
  end_tasks(draft, d) {
    for (const task of draft.openTasks(d)) if (task.kind !== 'retire') draft.task({ id: task.id, attempt: task.attempt, end: 'cancelled' });
  },
  /** Back to the version that still serves; without one the host is unknown to the proxy again. */
  restore_route(draft, d) {
    if (draft.facts.route?.deployment_id !== d.id) return;
    const old = draft.facts.live.find((o) => o.status === 'running' && o.id !== d.id);
    const node = draft.node(old?.node_id ?? null);
    draft.plan.route =
      old === undefined || node === undefined || old.host_port === null
        ? { remove: { project_id: d.project_id } }
        : routeTo(draft, old, node, old.host_port);
  },
  /** Only one that was reported: before that the agent removes what it started itself, and what it left is swept when seen. */
  remove_container(draft, d) {
    if (d.host_port === null) return;
    createRetireTask(draft, draft.node(d.node_id), {
      of: d,
      remove: [{ deployment: d, reason: 'its deployment ended' }],
      keep: null,
      // From the moment its route was published a proxy may send requests to it.
      drain: d.status === 'running' || d.route_published_at !== null,
    });
  },
};

/** Decides what `event` means for `d`. An event that means nothing in its state is an empty plan. Throws wrong_state on a cancel that is too late. */
export function advance(d: DeploymentRecord, event: FlowEvent, facts: Facts): Plan {
  const draft = createDraft(facts, event.type);
  // Whatever it says about the deployment, a report or a loss ends the task it is about.
  if (event.type === 'task_reported')
    draft.task({ id: event.task.id, attempt: event.task.attempt, end: event.report.status, report: event.report });
  if (event.type === 'task_lost') {
    const ranOut = event.why === 'lease' || event.why === 'attempts';
    const present = ranOut ? facts.tasks.find((t) => t.id === event.task.id) : undefined;
    const lease = present === undefined ? {} : { lease_expires_at: present.lease_expires_at };
    draft.task({ id: event.task.id, attempt: event.task.attempt, end: 'lost', ...lease });
  }

  if ((event.type === 'task_reported' || event.type === 'task_lost') && event.task.kind === 'retire') retireEnded(draft, d, event);
  else if (isTerminal(d.status)) terminal(draft, d, event);
  else {
    const handler = STEPS[d.status as LiveState].on[event.type] as
      | ((draft: Draft, d: DeploymentRecord, event: FlowEvent) => void)
      | undefined;
    if (handler !== undefined) handler(draft, d, event);
    else if (event.type === 'cancel')
      throw new DomainError(
        'wrong_state',
        `deployment ${d.generation} is ${d.status}: only a deployment that is not live yet can be cancelled`,
      );
    else if (event.type === 'observed') sweep(draft, d, event);
  }
  return draft.plan;
}

/** Builds that newer requests may end one after the other; the next one is let finish, and the newest request waits behind it. */
const BUILDS_GIVEN_UP = 2;
const isBefore = (status: DeploymentState): boolean => status === 'pending' || status === 'building' || status === 'built';

/** A new deployment: it supersedes older ones of the project that are not deploying yet. Throws being_deleted, no_release. */
export function request(input: DeploymentRequest, facts: Facts): Plan {
  const { project, now } = facts;
  if (project.deleting_at !== null) throw new DomainError('being_deleted', `project ${project.name} is being deleted`);
  const { release } = input;
  if (release !== null) refuseRelease(release, facts);

  // Its only moves are those of the older deployments.
  const draft = createDraft(facts, 'superseded');
  const created = newDeployment(input, project, now, facts.uptime.at);
  for (const older of facts.live) {
    if (!isBefore(older.status)) continue;
    const hasWorked = older.status !== 'pending';
    // A release needs no build: it is what somebody wants at once.
    if (hasWorked && release === null && older.builds_given_up >= BUILDS_GIVEN_UP) {
      const isTold = facts.live.some((o) => o.generation > older.generation);
      if (!isTold)
        draft.say(
          older,
          'kept',
          `deployment ${created.generation} was requested and waits: ${older.builds_given_up} builds before this one were ended for newer requests`,
        );
      continue;
    }
    created.builds_given_up = Math.max(created.builds_given_up, older.builds_given_up + Number(hasWorked));
    leave(draft, older, 'superseded', null, `deployment ${created.generation} was requested`);
  }
  draft.plan.createDeployment = created;
  const asked =
    release !== null
      ? `requested: back to what deployment ${release.generation} built`
      : `requested from ${input.commit === null ? `branch ${project.branch}` : `commit ${input.commit}`} of ${project.git_url}`;
  draft.say({ id: input.id }, 'pending', input.why ?? asked);
  if (release !== null) {
    for (const line of tellSettings(release, project)) draft.say({ id: input.id }, 'settings', line);
    tellMovedOn(draft, { id: input.id }, release);
  }
  return draft.plan;
}

// ── pending ──────────────────────────────────────────────────────────────────────────────────────────────────────────

function dispatchBuild(draft: Draft, d: DeploymentRecord): void {
  const { facts } = draft;
  if (loginMissing(draft, d)) return;
  if (d.rollback_of !== null) return draft.move(d, 'built', {}, `image ${d.image_tag} is there already: nothing to build`);
  if (facts.platform.registryAddr === '') return fail(draft, d, failure('registry_missing'));
  const before = facts.live.find((o) => o.generation < d.generation && isBefore(o.status));
  if (before !== undefined) return waitForOwnWork(draft, d, `deployment ${before.generation} goes first: it is ${before.status}`);
  const choice = chooseBuilder(d, facts.nodes, facts.lastBuilderId, facts.now, facts.limits);
  if (choice.node === null)
    return choice.busy ? waitForOwnWork(draft, d, choice.why) : waitForNode(draft, d, 'builder', 'no_builder', choice);
  createBuildTask(draft, d, choice.node);
  draft.move(d, 'building', { builder_id: choice.node.id }, `the build is given to ${choice.node.hostname}`);
}

// ── building ─────────────────────────────────────────────────────────────────────────────────────────────────────────

function buildReported(draft: Draft, d: DeploymentRecord, { report, task }: EventOf<'task_reported'>): void {
  if (d.cancel_requested_at !== null) return leave(draft, d, 'cancelled', null, 'the builder has let go');
  if (report.status === 'failed') return elsewhereOr(draft, d, failureOf(report), 'builder');
  const image_tag = report.image_tag ?? null;
  const commit = report.commit ?? /:([0-9a-f]{40}|[0-9a-f]{64})$/.exec(image_tag ?? '')?.[1] ?? null;
  draft.move(
    d,
    'built',
    {
      image_tag,
      image_digest: report.image_digest ?? null,
      image_arch: report.arch ?? null,
      commit,
      commit_message: report.commit_message ?? null,
      commit_author: report.commit_author ?? null,
      losses: [],
      phases: built(d.phases, task),
    },
    `built and pushed as ${image_tag}`,
  );
}

// ── built ────────────────────────────────────────────────────────────────────────────────────────────────────────────

function dispatchDeploy(draft: Draft, d: DeploymentRecord): void {
  const { facts } = draft;
  if (loginMissing(draft, d)) return;
  // One at a time: two switches of one route at once could end with the older version live.
  const other = facts.live.find((o) => o.status === 'deploying');
  if (other !== undefined) return waitForOwnWork(draft, d, `deployment ${other.generation} is still deploying`);
  const running = facts.live.find((o) => o.status === 'running');
  const rows = mountsOf(d.settings.datasets, facts.datasets);
  if (!('mounts' in rows)) {
    const { code, message, final } = rows;
    return final ? fail(draft, d, failure(code, message)) : wait(draft, d, code, message);
  }
  const wanted = wantedOf(d.settings.datasets, facts.datasets);
  const stays = d.settings.replace === 'recreate';
  const question = { wanted, losses: d.losses, runsOn: running?.node_id ?? null, stays, arch: d.image_arch };
  const placement = choose(question, facts.nodes, facts.now, facts.limits);
  const node = draft.node(placement.winner);
  if (node === undefined) {
    if (placement.items.length === 0) return wait(draft, d, 'no_deploy_node', 'no deploy node has ever registered');
    const [why, plain, code] = [whyNone(placement), whyNone(placement, true), dataRefusal(placement)];
    return code === null ? waitForNode(draft, d, 'deploy', 'no_deploy_node', { why, plain }) : wait(draft, d, code, why, plain);
  }
  // Taken over by the new task, the container would be removed under it.
  const clearing = facts.tasks.some((t) => t.node_id === node.id && removes(t, d));
  if (clearing) return waitForOwnWork(draft, d, `${node.hostname} still removes what an earlier attempt left`);
  const notYet = d.settings.replace === 'recreate' ? whyNotYet(draft, d, node) : null;
  if (notYet !== null) return notYet.ownWork ? waitForOwnWork(draft, d, notYet.why) : wait(draft, d, 'still_writing', notYet.why);
  const missingBytes = placement.items.find((row) => row.node_id === node.id)?.missing_bytes ?? 0;
  createDeployTask(draft, d, node, { mounts: rows.mounts, missingBytes });
  if (d.settings.replace === 'recreate') sayStopped(draft, d, node);
  const datasets = pinsOf(rows.mounts);
  tellVersions(draft, d, datasets, running?.datasets ?? null, `deployment ${running?.generation}, that serves,`);
  draft.move(
    d,
    'deploying',
    { node_id: node.id, placement, datasets, host_port: null, container_id: null, route_published_at: null },
    `to be deployed on ${node.hostname} (${node.host_ip})${running === undefined ? '' : `, beside deployment ${running.generation} that serves`}`,
  );
}

// ── deploying ────────────────────────────────────────────────────────────────────────────────────────────────────────

/** The new container answered its probe: its route is published, and the old version goes on serving until the proxy follows. */
function deployReported(draft: Draft, d: DeploymentRecord, { report, task }: EventOf<'task_reported'>): void {
  const node = draft.node(d.node_id);
  if (report.status === 'failed') {
    const tried = { ...d, phases: started(d.phases, task, draft.facts.now, false) };
    if (d.cancel_requested_at !== null) return leave(draft, tried, 'cancelled', null, 'the node has let go');
    return elsewhereOr(draft, tried, failureOf(report), 'deploy');
  }
  const host_port = report.host_port ?? null;
  if (node === undefined || host_port === null) return fail(draft, d, failure('node_deleted'));
  const answering: DeploymentRecord = { ...d, host_port, container_id: report.container_id ?? null };
  if (d.cancel_requested_at !== null) return leave(draft, answering, 'cancelled', null, 'cancelled before its route was published');
  const datasets = mounted(d, report);
  tellVersions(draft, d, datasets ?? [], d.datasets, 'it moved on while it was copied: the task');
  const timer = startedTimer(d, draft.facts.uptime.at);
  const phases = begin(started(d.phases, task, draft.facts.now), 'route', draft.facts.now);
  draft.set(d, { host_port, container_id: answering.container_id, route_published_at: draft.facts.now, datasets, timer, phases });
  draft.plan.route = routeTo(draft, d, node, host_port);
  draft.say(d, 'route_published', `its container answers at ${node.host_ip}:${host_port}; the reverse proxy is told`);
}

function routeConfirmed(draft: Draft, d: DeploymentRecord, event: EventOf<'route_confirmed'>): void {
  if (!leadsThere(draft, d, event)) return;
  const node = draft.node(d.node_id);
  const old = draft.facts.live.find((o) => o.status === 'running');
  if (old !== undefined) draft.move(old, 'retired', {}, `deployment ${d.generation} took over`, 'replaced');
  draft.move(
    d,
    'running',
    { finished_at: draft.facts.now, health: { status: 'healthy', since: draft.facts.now, detail: null } },
    `the reverse proxy serves it: it is live${event.note === undefined ? '' : ` (not checked whether the proxy reaches the node: ${event.note})`}`,
  );

  const removeOld = old === undefined ? [] : [{ deployment: old, reason: `replaced by deployment ${d.generation}` }];
  const together = old !== undefined && old.node_id === d.node_id;
  createRetireTask(draft, node, { of: d, remove: together ? removeOld : [], keep: d, drain: true });
  if (old !== undefined && !together)
    createRetireTask(draft, draft.node(old.node_id), { of: old, remove: removeOld, keep: null, drain: true });
}

/** The old version still stands, and its requests go nowhere since the route was published: back to it at once. */
function routeUnreachable(draft: Draft, d: DeploymentRecord, event: EventOf<'route_unreachable'>): void {
  if (!leadsThere(draft, d, event)) return;
  // An agent that knows the contract alone reports before its application answers: it has the time of Berth's own probe.
  const isProbed = knowsMoreThanContract(draft.node(d.node_id));
  // No grace period: nobody has to be heard of, and requests go nowhere meanwhile.
  if (!isProbed && !hasRunOut(draft, d, draft.facts.limits.probeSeconds * 1000, 0)) return;
  const seen = `the proxy at ${event.proxy} gave ${event.saw} for ${event.host_ip}:${event.host_port}`;
  fail(draft, d, failure('proxy_cannot_reach_node', `${seen}; let the proxy through to the node’s published ports`));
}

function routeDeadline(draft: Draft, d: DeploymentRecord): void {
  if (d.route_published_at === null || !hasRunOut(draft, d, draft.facts.limits.routeMs)) return;
  fail(draft, d, whyUnconfirmed(draft, d));
}

// ── running ──────────────────────────────────────────────────────────────────────────────────────────────────────────

function observedRunning(draft: Draft, d: DeploymentRecord, event: EventOf<'observed'>): void {
  observed(draft, d, event);
  // The next report decides for the node that it moved to.
  if (!draft.plan.deployments.some(({ set }) => set.node_id !== undefined)) startAgain(draft);
}

/** Its route stays: a silent node is not a dead one. */
function nodeSilent(draft: Draft, d: DeploymentRecord): void {
  if (d.health?.status === 'unknown') return;
  const detail = `${whySilent(draft, d)}; the route stays`;
  draft.set(d, { health: { status: 'unknown', since: draft.facts.now, detail } });
  draft.say(d, 'health', `health unknown: ${detail}`);
}

function whySilent({ facts, node: nodeOf }: Draft, d: DeploymentRecord): string {
  const node = nodeOf(d.node_id);
  if (node === undefined) return 'its node has not been heard of';
  if (!isOnline(node, facts.now, facts.limits)) return `${node.hostname} has not been heard of`;
  return knowsMoreThanContract(node)
    ? `${node.hostname} registers, but does not report its containers`
    : `${node.hostname} registers, but its agent does not report containers`;
}

// ── exits and ways back ──────────────────────────────────────────────────────────────────────────────────────────────

function taskLost(draft: Draft, given: DeploymentRecord, { task, why }: EventOf<'task_lost'>): void {
  const { now, limits } = draft.facts;
  const d = task.kind === 'deploy' ? { ...given, phases: started(given.phases, task, now, false) } : given;
  const name = draft.node(task.node_id)?.hostname ?? task.node_id;
  if (d.cancel_requested_at !== null) return leave(draft, d, 'cancelled', null, `${name} went silent; its lease is void`);
  if (why === 'wall') return fail(draft, d, failure('task_timeout', `${task.kind} on ${name}`));
  if (why === 'attempts') return fail(draft, d, failure('too_many_attempts', `${task.kind} on ${name}, ${task.attempt} times`));
  const losses = [...d.losses, { node_id: task.node_id, at: now }];
  const code: FailureCode = why === 'queue' ? 'task_not_claimed' : 'node_lost';
  if (losses.length >= limits.maxLosses) return fail(draft, d, failure(code, `${name}, after ${losses.length} tries`));
  stepBack(draft, d, losses, `${name} ${why === 'queue' ? 'did not take the task' : 'went silent'}; it is given out again`);
}

/** Failures of a node rather than of what it was given: another node may succeed. */
const OF_THE_NODE: readonly FailureCode[] = ['engine_unavailable', 'disk_full'];

/**
 * A node that cannot work fails at once, so it is always the least busy one: its failure is a loss, and the work goes to another node, a
 * bounded number of times. Without another node that takes work it fails with the node's own error.
 */
function elsewhereOr(draft: Draft, d: DeploymentRecord, error: Failure, role: NodeRole): void {
  const { facts } = draft;
  const at = role === 'builder' ? d.builder_id : d.node_id;
  const losses = at === null ? d.losses : [...d.losses, { node_id: at, at: facts.now, error }];
  const another = facts.nodes.some((n) => n.role === role && n.id !== at && refusal(n, losses, facts.now, facts.limits) === null);
  // Stop-first the node may still have a container of it that nobody can stop now: two versions must never write at once.
  const tied = role === 'deploy' && d.settings.replace === 'recreate';
  if (!OF_THE_NODE.includes(error.code) || !another || tied || losses.length >= facts.limits.maxLosses) return fail(draft, d, error);
  const name = draft.node(at)?.hostname ?? at;
  stepBack(draft, d, losses, `${name} could not do it: ${error.message}; it is given to another node`);
}

/** Where the container engine is all that every usable node of the role lacks, the deployment says so. */
function waitForNode(
  draft: Draft,
  d: DeploymentRecord,
  role: NodeRole,
  code: FailureCode,
  { why, plain }: { why: string; plain: string },
): void {
  const { nodes, now, limits } = draft.facts;
  if (!lackEngines(nodes, role, now, limits)) return wait(draft, d, code, why, plain);
  const none = `no ${role} node has a working container engine: `;
  wait(draft, d, 'engine_unavailable', none + why, none + plain);
}

function nodeDeleted(draft: Draft, d: DeploymentRecord, event: EventOf<'node_deleted'>): void {
  const at = d.status === 'building' ? d.builder_id : d.node_id;
  if (at !== event.node_id) return;
  if (d.status === 'running') {
    // It serves until its drain has moved it (loops/removals.ts).
    if (event.reachable) return;
    UNDO.restore_route(draft, d);
    return draft.move(d, 'retired', { error: failure('node_deleted') }, 'its node was deleted; deploy it again to have it elsewhere');
  }
  if (d.cancel_requested_at !== null) return leave(draft, d, 'cancelled', null, 'its node was deleted');
  UNDO.end_tasks(draft, d);
  UNDO.restore_route(draft, d);
  stepBack(draft, d, [...d.losses, { node_id: event.node_id, at: draft.facts.now }], 'its node was deleted; it is given out again');
}

/** One rung down: the same work is given out again. */
function stepBack(draft: Draft, d: DeploymentRecord, losses: DeploymentRecord['losses'], message: string): void {
  if (d.status === 'building') draft.move(d, 'pending', { builder_id: null, losses }, message);
  else draft.move(d, 'built', { node_id: null, host_port: null, container_id: null, route_published_at: null, losses }, message);
}

function cancelNow(draft: Draft, d: DeploymentRecord): void {
  leave(draft, d, 'cancelled', null, 'cancelled on request');
}

/** A task that an agent has begun is cancelled when that agent says so (or is lost): nothing then runs that nobody wants. */
function cancelTask(draft: Draft, d: DeploymentRecord): void {
  if (d.cancel_requested_at !== null) return;
  if (d.route_published_at !== null)
    throw new DomainError('wrong_state', 'its route is already published, so it can no longer be cancelled');
  const task = draft.openTasks(d).find((t) => t.kind !== 'retire');
  const told = knowsMoreThanContract(draft.node(task?.node_id ?? null));
  if (task?.kind === 'deploy' && !told) throw new DomainError('wrong_state', 'the agent of its node does not support cancellation');
  if (task === undefined || task.attempt === 0 || !told) return cancelNow(draft, d);
  draft.task({ id: task.id, attempt: task.attempt, requestCancel: true });
  draft.set(d, { cancel_requested_at: draft.facts.now });
  draft.say(d, 'cancel_requested', 'cancellation asked for; the agent is told');
}

function projectDeleted(draft: Draft, d: DeploymentRecord): void {
  leave(draft, d, d.status === 'running' ? 'retired' : 'cancelled', failure('project_deleted'), 'the project is being deleted');
  if (draft.facts.route !== null) draft.plan.route = { remove: { project_id: d.project_id } };
}

/** A report or loss that comes after the end changes nothing; a container that is seen after it is removed. */
function terminal(draft: Draft, d: DeploymentRecord, event: FlowEvent): void {
  if (event.type === 'cancel') throw new DomainError('wrong_state', `deployment ${d.generation} is already ${d.status}`);
  if (event.type === 'observed') sweep(draft, d, event);
}

/** Leaves the ladder: undoes what its rung says, then changes the state. */
function leave(
  draft: Draft,
  d: DeploymentRecord,
  to: 'failed' | 'cancelled' | 'superseded' | 'retired',
  error: Failure | null,
  message: string,
): void {
  for (const undo of STEPS[d.status as LiveState].undo) UNDO[undo](draft, d);
  const settled = d.finished_at === null ? { finished_at: draft.facts.now } : {};
  draft.move(d, to, { ...settled, error, host_port: d.host_port, container_id: d.container_id }, message);
  // Its node itself says that nothing of it is left there; whatever was published is removed first.
  const said = draft.event === 'task_reported' && d.host_port === null && d.node_id !== null ? { node_id: d.node_id, gone: [d.id] } : null;
  if (d.status !== 'running') startAgain(draft, { leaving: d.id, said });
}

function fail(draft: Draft, d: DeploymentRecord, error: Failure): void {
  leave(draft, d, 'failed', error, error.message);
}

/** Waits for something outside Berth; fails when that took longer than the queue's deadline. `plain`: `why` without changing figures. */
function wait(draft: Draft, d: DeploymentRecord, code: FailureCode, why: string, plain = why): void {
  // What a node reported of itself says more than that nobody else was there.
  const reported = d.losses.findLast((l) => l.error !== undefined)?.error;
  if (hasRunOut(draft, d, draft.facts.limits.queueMs)) return fail(draft, d, reported ?? failure(code, why));
  tellWaiting(draft, d, why, plain);
}

/** Waits for work of Berth itself, which has deadlines of its own: the queue's deadline stands still meanwhile. */
function waitForOwnWork(draft: Draft, d: DeploymentRecord, why: string): void {
  stopTimer(draft, d);
  tellWaiting(draft, d, why, why);
}

/** The story gets a line when the reason changes. */
function tellWaiting(draft: Draft, d: DeploymentRecord, why: string, plain: string): void {
  if (d.waiting === plain) return;
  draft.set(d, { waiting: plain });
  draft.say(d, 'waiting', why);
}

/** A project that requires a login is never published open: without a forward-auth service it fails before anything is replaced. */
function loginMissing(draft: Draft, d: DeploymentRecord): boolean {
  if (!(d.settings.auth_required || draft.facts.project.auth_required) || draft.facts.platform.authServiceUrl !== null) return false;
  fail(draft, d, failure('auth_service_missing'));
  return true;
}
