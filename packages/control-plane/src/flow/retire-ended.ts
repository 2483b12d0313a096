/**
 * Handles the end of a retire task. Changes no state of a deployment; the node's next report shows
 * the remaining work. Pure.
 */
import { isSettled } from '@berth/wire/vocabulary';
import {
  type RetireAction,
  type RetireFailure,
  waitingFor,
  waitsFor,
  waitText,
} from '../domain/deployments/wait-reason.ts';
import type { DeploymentRecord, TaskRecord } from '../domain/platform/records.ts';
import type { Draft } from './plan-draft.ts';
import type { EventOf } from './events.ts';
import { failureOf } from './failure.ts';
import { addNotes } from './task-facts.ts';
import { holderOfName, judge } from './observe.ts';
import { endRetries, tryLater } from './retry.ts';
import { lastSeen } from './route.ts';
import { isAtRest, isProjectStopped } from './stop.ts';
import { isStoppedFirst, markStopped, restartStopped } from './single-writer.ts';

export function retireEnded(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'task_reported'> | EventOf<'task_lost'>,
): void {
  addEnd(draft, d, event);
  countAttempts(draft, d, event);
  const { node_id, payload } = event.task as TaskRecord<'retire'>;
  const done = event.type === 'task_reported' && event.report.status === 'completed';
  // Retry a failed start at the node's next report: an immediate retry would most likely fail too.
  if (!done && isStart(payload)) return;
  restartStopped(draft, {
    removal: done ? { node_id, gone: payload.remove.map((r) => r.deployment_id) } : null,
  });
}

/**
 * Counts attempts on this deployment's container. Attempts on the container of another deployment
 * count for that deployment.
 */
function countAttempts(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'task_reported'> | EventOf<'task_lost'>,
): void {
  const attempt = attemptOn(d, (event.task as TaskRecord<'retire'>).payload);
  if (attempt === null) return;
  if (event.type === 'task_reported' && event.report.status === 'completed') endRetries(draft, d);
  else tryLater(draft, d, attempt);
}

/** Returns which action the task performs on the deployment's own container, or null. */
function attemptOn(
  d: DeploymentRecord,
  payload: TaskRecord<'retire'>['payload'],
): 'start' | 'stop' | 'remove' | null {
  if (isStart(payload)) return 'start';
  if (isAtRest(d) && payload.stop?.some((s) => s.deployment_id === d.id) === true) return 'stop';
  return payload.remove.some((r) => r.deployment_id === d.id) ? 'remove' : null;
}

function addEnd(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'task_reported'> | EventOf<'task_lost'>,
): void {
  const name = draft.node(event.task.node_id)?.hostname ?? event.task.node_id;
  const task = event.task as TaskRecord<'retire'>;
  if (event.type === 'task_lost') return addOnce(draft, d, { kind: 'retire_lost', node: name });
  addNotes(draft, d, event.report);
  if (event.report.status === 'failed') {
    const { code, message } = failureOf(event.report);
    addOnce(draft, d, {
      kind: 'retire_failed',
      node: name,
      action: actionOf(d, task.payload),
      message,
    });
    // Other failures can be temporary, for example while the engine is down. The next report of the
    // node then starts a retry (observe.ts).
    if (code === 'container_name_taken' && task.payload.keep?.deployment_id === d.id)
      showDrift(draft, d);
    return;
  }
  const { stop = [], start = null } = task.payload;
  if (start !== null) {
    draft.set(d, { stopped_first: null, ...waitingFor(null) });
    return draft.addLine(d, 'started_again', `${name} restarted the container`);
  }
  if (isSettled(d.status) && d.waiting !== null && !isStoppedFirst(d))
    draft.set(d, waitingFor(null));
  if (stop.length > 0) {
    markStopped(
      draft,
      task.node_id,
      stop.map((s) => s.deployment_id),
    );
    return draft.addLine(
      d,
      isProjectStopped(draft) ? 'stopped' : 'stopped_first',
      `${name} stopped the containers of the project`,
    );
  }
  const removed = task.payload.remove.length;
  const kept =
    task.payload.keep === null ? [] : [`the container is now named ${task.payload.keep.name}`];
  draft.addLine(
    d,
    'retire_done',
    [
      ...(removed === 0
        ? []
        : [
            `removed ${removed === 1 ? 'one old container' : `${removed} old containers`} from ` +
              name,
          ]),
      ...kept,
    ].join('; '),
  );
}

const isStart = ({ start }: TaskRecord<'retire'>['payload']): boolean => typeof start === 'string';

/**
 * Adds a story line only when the reason changes, because a failed removal is retried many times.
 */
function addOnce(draft: Draft, d: DeploymentRecord, reason: RetireFailure): void {
  if (waitsFor(d, reason)) return;
  // Add no line: `waiting` already says that the version will be restarted.
  if (isStoppedFirst(d) && reason.kind === 'retire_lost') return;
  // If the deployment is not settled, `waiting` already has a different reason: keep that reason.
  if (isSettled(d.status)) draft.set(d, waitingFor(reason));
  draft.addLine(d, reason.kind, waitText(reason));
}

function actionOf(d: DeploymentRecord, payload: TaskRecord<'retire'>['payload']): RetireAction {
  if (isStart(payload)) return 'restart';
  return isAtRest(d) ? 'stop' : 'retire';
}

/**
 * Sets the health to `drifted` at once because the container has the wrong name. Berth retries only
 * when the container that has the name is gone (observe.ts).
 */
function showDrift(draft: Draft, d: DeploymentRecord): void {
  const reported = lastSeen(draft, d);
  if (d.status !== 'running' || reported === undefined) return;
  const at = {
    now: draft.facts.now,
    retiring: false,
    holder: holderOfName(draft.node(d.node_id), d),
    squatter: null,
  };
  const { status, detail } = judge(d, reported, at);
  if (status !== 'drifted' || d.health?.detail === detail) return;
  draft.set(d, { health: { status, since: at.now, detail } });
  draft.addLine(d, 'health', `${status}: ${detail}`);
}
