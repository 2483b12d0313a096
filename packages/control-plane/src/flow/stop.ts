/**
 * Stops a project and keeps it stopped. Its deployment stays `running`: release, route, node and
 * image stay reserved. The container is stopped and kept, the route leads to a page, and the health
 * is null.
 *
 *   stop ──▶ deployments in progress are cancelled; the route leads to the page; a retire task stops the container
 *   the node reports that the container runs again ──▶ another task stops it
 *   a deployment that a person requests goes live ──▶ the project is no longer stopped; the old container is removed
 *
 * A project that is scaled to 0 is stopped in the same way, and its page says so. A deployment of
 * such a project starts one container to prove that it answers, goes live, and is then stopped too.
 * A scale to 1 or more requests the same deployment as `start`.
 *
 * A project can be both. `stopped_by_person` then wins: a scale stores the count and starts nothing.
 * It ends when a deployment that a person requested is live, and not when it is accepted: one that
 * fails or is cancelled leaves the project as the person left it, and a push or a scale does not
 * start it. With count 0 the project then rests because of its count.
 *
 * `stopped_first` stores the progress of the stop, as in stop-first (flow/single-writer.ts), so
 * that no decision expects the container to run. Pure.
 */
import { defined } from '@berth/kit/defined';
import { hasWeb, isScaledToZero } from '@berth/wire/project';
import type { ObservedContainer } from '@berth/wire/node';
import { ownLabel } from '../domain/deployments/instance.ts';
import type { RouteChange } from '../domain/deployments/plan.ts';
import {
  waitingFor,
  type WaitReason,
  waitReasonOf,
  waitsFor,
} from '../domain/deployments/wait-reason.ts';
import type { DeploymentRecord, RouteRecord } from '../domain/platform/records.ts';
import { type Draft, isBerthAgent } from './plan-draft.ts';
import type { EventOf } from './events.ts';
import { isStoppedContainer } from './reported-containers.ts';
import { mayTry } from './retry.ts';
import { routeTo } from './route.ts';
import { createRetireTask } from './tasks.ts';

/** Returns whether the project is stopped, after the changes of this plan. */
export const isProjectStopped = ({ facts, plan }: Pick<Draft, 'facts' | 'plan'>): boolean =>
  plan.stopped === undefined ? facts.project.stopped_at !== null : plan.stopped.at !== null;

/**
 * Returns whether a person stopped the project, after the changes of this plan. The reason to wait
 * of its deployment does not tell it: a move of volumes writes its own there.
 */
export const isStoppedByPerson = ({ facts, plan }: Pick<Draft, 'facts' | 'plan'>): boolean =>
  plan.stopped?.byPerson ?? facts.project.stopped_by_person;

/** Returns whether the project rests because its count is 0, and not because a person stopped it. */
const isAtZero = (draft: Pick<Draft, 'facts' | 'plan'>): boolean =>
  isScaledToZero(draft.facts.project) && !isStoppedByPerson(draft);

/**
 * Returns whether the version rests because the count of `web` is 0. A version without `web` has no
 * container that would rest.
 */
export const restsAtZero = (
  { facts: { project } }: Pick<Draft, 'facts'>,
  { settings }: Pick<DeploymentRecord, 'settings'>,
): boolean => isScaledToZero(project) && hasWeb(settings);

/** Returns the reason to wait of a stopped project. */
export const restReason = (draft: Pick<Draft, 'facts' | 'plan'>): WaitReason => ({
  kind: isAtZero(draft) ? 'scaled_to_zero' : 'project_stopped',
});

/**
 * Updates the reason to wait of a stopped project after its count changed to or from 0, or a person
 * stopped it at count 0.
 */
export function refreshRest(draft: Draft, d: DeploymentRecord): void {
  const stored = waitReasonOf(d);
  const present = restReason(draft);
  if (!isAtRest(d) || stored === null) return;
  if (stored.kind === 'project_stopped' || stored.kind === 'scaled_to_zero') {
    if (stored.kind !== present.kind) draft.set(d, waitingFor(present));
  } else if (stored.kind === 'project_stopped_and' || stored.kind === 'project_stopped_but_runs') {
    const { at_zero: _, ...reason } = stored;
    const at_zero = present.kind === 'scaled_to_zero' ? (true as const) : undefined;
    if (stored.at_zero !== at_zero)
      draft.set(d, waitingFor({ ...reason, ...defined({ at_zero }) }));
  }
}

/**
 * Returns whether this is the running deployment of a stopped project. Only a stop sets the health
 * to null.
 */
export const isAtRest = (
  d: Pick<DeploymentRecord, 'status' | 'stopped_first' | 'health'>,
): boolean => d.status === 'running' && d.stopped_first !== null && d.health === null;

/**
 * Returns whether a report about a stopped project needs no decision: Berth stopped the container,
 * the container is stopped, and the host shows the page.
 */
export const restsAsExpected = (
  d: DeploymentRecord,
  container: ObservedContainer | null,
  route: RouteRecord | null,
): boolean =>
  isAtRest(d) &&
  d.stopped_first === 'stopped' &&
  (container === null || isStoppedContainer(container)) &&
  !leadsToContainer(d, route);

/**
 * Returns whether the route leads to the container of this deployment, and not to the page or to a
 * version that is being started.
 */
const leadsToContainer = (d: DeploymentRecord, route: RouteRecord | null): boolean =>
  route?.deployment_id === d.id && route.stopped !== true;

/** Publishes the page instead of the container, and stops the container. */
export function stopRunning(draft: Draft, d: DeploymentRecord): void {
  showPage(draft, d);
  if (isAtRest(d)) return refreshRest(draft, d);
  draft.set(d, {
    // A version without `web` has no container of its own that would have to stop.
    stopped_first: hasWeb(d.settings) ? 'asked' : 'stopped',
    health: null,
    ...waitingFor(restReason(draft)),
  });
  const what = isAtZero(draft) ? 'scaled to 0' : 'stopped on request';
  draft.addLine(
    d,
    'stopped',
    `${what}: its host answers with a page; its release, node and data stay reserved`,
  );
  stopContainer(draft, d);
}

function showPage(draft: Draft, d: DeploymentRecord): void {
  const { route } = draft.facts;
  const node = draft.node(d.node_id);
  if (draft.plan.route !== null || route?.stopped === true) return;
  if (route !== null) draft.plan.route = stoppedRoute(route);
  else if (node !== undefined && d.host_port !== null)
    draft.plan.route = stoppedRoute(routeTo(draft, d, node, d.host_port).set);
}

export const stoppedRoute = (route: RouteRecord): RouteChange => ({
  set: { ...route, stopped: true },
});

/** Returns whether an open task stops the deployment's container. */
export const isStopping = (
  { facts }: Pick<Draft, 'facts'>,
  d: Pick<DeploymentRecord, 'id'>,
): boolean =>
  facts.tasks.some(
    (t) =>
      t.kind === 'retire' &&
      'stop' in t.payload &&
      t.payload.stop?.some((s) => s.deployment_id === d.id),
  );

function stopContainer(draft: Draft, d: DeploymentRecord): void {
  const node = draft.node(d.node_id);
  if (isStopping(draft, d)) return;
  if (node !== undefined && !isBerthAgent(node)) {
    const reason: WaitReason = {
      kind: 'project_stopped_but_runs',
      node: node.hostname,
      ...defined({ at_zero: isAtZero(draft) ? (true as const) : undefined }),
    };
    if (waitsFor(d, reason)) return;
    draft.set(d, waitingFor(reason));
    return draft.addLine(
      d,
      'stopped',
      `the agent of ${node.hostname} cannot stop containers: this one runs on without requests`,
    );
  }
  createRetireTask(draft, node, {
    of: d,
    remove: [],
    keep: null,
    drain: true,
    stop: [
      {
        deployment_id: d.id,
        // Its workers go on while only the count of `web` is 0.
        ...defined({ instance_id: draft.workers(d).length === 0 ? undefined : ownLabel(d) }),
        reason: isAtZero(draft) ? 'the project is scaled to 0' : 'the project is stopped',
      },
    ],
  });
}

/**
 * Handles a report about the container of a stopped project. Stops the container again if a person
 * or an old task started it.
 */
export function keepStopped(
  draft: Draft,
  d: DeploymentRecord,
  { container, node_id }: EventOf<'observed'>,
  isListOld: boolean,
): void {
  if (node_id !== d.node_id) return;
  if (leadsToContainer(d, draft.facts.route)) showPage(draft, d);
  if (!isAtRest(d))
    draft.set(d, {
      stopped_first: d.stopped_first ?? 'asked',
      health: null,
      ...waitingFor(restReason(draft)),
    });
  if (container === null) {
    if (d.stopped_first !== 'stopped') draft.set(d, { stopped_first: 'stopped' });
    return;
  }
  // Stop an exited container too: the engine can restart a container that was not stopped through
  // the engine.
  const isDone = isStoppedContainer(container) && d.stopped_first === 'stopped';
  if (isDone || isListOld || !mayTry(draft, d)) return;
  if (d.stopped_first === 'stopped') {
    draft.set(d, { stopped_first: 'asked' });
    draft.addLine(
      d,
      'stopped',
      `its container is ${container.state} although the project is stopped; it is stopped again`,
    );
  }
  stopContainer(draft, d);
}
