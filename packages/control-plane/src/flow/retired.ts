/** The end of a retire task. Retiring is no rung: what it left undone is seen at the node's next report. Pure. */
import { isSettled } from '@berth/wire/vocabulary';
import type { DeploymentRecord, TaskRecord } from '../domain/records.ts';
import type { Draft } from './draft.ts';
import type { EventOf } from './events.ts';
import { failureOf } from './failure.ts';
import { holderOfName, judge } from './observe.ts';
import { endRetries, tryLater } from './retry.ts';
import { lastSeen } from './route.ts';
import { isStoppedFirst, startAgain, wasStopped } from './single-writer.ts';

export function retireEnded(draft: Draft, d: DeploymentRecord, event: EventOf<'task_reported'> | EventOf<'task_lost'>): void {
  tellEnd(draft, d, event);
  countTries(draft, d, event);
  const { node_id, payload } = event.task as TaskRecord<'retire'>;
  const done = event.type === 'task_reported' && event.report.status === 'completed';
  // A start that did not succeed is tried again at the next report of its node: at once it would most likely fail again.
  if (!done && isStart(payload)) return;
  startAgain(draft, { said: done ? { node_id, gone: payload.remove.map((r) => r.deployment_id) } : null });
}

/** Only of work on its own container: another one's is seen, and tried under its own name, at the node's next report. */
function countTries(draft: Draft, d: DeploymentRecord, event: EventOf<'task_reported'> | EventOf<'task_lost'>): void {
  const { payload } = event.task as TaskRecord<'retire'>;
  const what = isStart(payload) ? 'start' : payload.remove.some((r) => r.deployment_id === d.id) ? 'remove' : null;
  if (what === null) return;
  if (event.type === 'task_reported' && event.report.status === 'completed') endRetries(draft, d);
  else tryLater(draft, d, what);
}

function tellEnd(draft: Draft, d: DeploymentRecord, event: EventOf<'task_reported'> | EventOf<'task_lost'>): void {
  const name = draft.node(event.task.node_id)?.hostname ?? event.task.node_id;
  const task = event.task as TaskRecord<'retire'>;
  if (event.type === 'task_lost') return once(draft, d, 'retire_lost', `${name} did not finish retiring; it is told again when it reports`);
  if (event.report.status === 'failed') {
    const { code, message } = failureOf(event.report);
    once(draft, d, 'retire_failed', `${name} could not ${isStart(task.payload) ? 'start it again' : 'retire'}: ${message}`);
    // Any other failure may pass, with an engine that comes back, say: that one is seen and tried once more (observe.ts).
    if (code === 'container_name_taken' && task.payload.keep?.deployment_id === d.id) showUnnamed(draft, d);
    return;
  }
  const { stop = [], start = null } = task.payload;
  if (start !== null) {
    draft.set(d, { stopped_first: null, waiting: null });
    return draft.say(d, 'started_again', `${name} has started it again`);
  }
  if (isSettled(d.status) && d.waiting !== null && !isStoppedFirst(d)) draft.set(d, { waiting: null });
  if (stop.length > 0) {
    wasStopped(
      draft,
      task.node_id,
      stop.map((s) => s.deployment_id),
    );
    return draft.say(d, 'stopped_first', `${name} has stopped what ran there`);
  }
  const removed = task.payload.remove.length;
  const kept = task.payload.keep === null ? [] : [`the container is now ${task.payload.keep.name}`];
  draft.say(
    d,
    'retire_done',
    [...(removed === 0 ? [] : [`${removed === 1 ? 'one old container' : `${removed} old containers`} removed from ${name}`]), ...kept].join(
      '; ',
    ),
  );
}

const isStart = ({ start }: TaskRecord<'retire'>['payload']): boolean => typeof start === 'string';

/** A container that cannot be removed is tried again at each report of its node: the story says so once for each reason. */
function once(draft: Draft, d: DeploymentRecord, kind: string, message: string): void {
  if (d.waiting === message) return;
  // `waiting` already says what it waits for: to be started again.
  if (isStoppedFirst(d) && kind === 'retire_lost') return;
  // One that is under way has reasons of its own to wait for, and an end.
  if (isSettled(d.status)) draft.set(d, { waiting: message });
  draft.say(d, kind, message);
}

/** The name did not pass on. Shown at once, and so not tried again: what stood in the way must change first (observe.ts). */
function showUnnamed(draft: Draft, d: DeploymentRecord): void {
  const seen = lastSeen(draft, d);
  if (d.status !== 'running' || seen === undefined) return;
  const at = { now: draft.facts.now, retiring: false, holder: holderOfName(draft.node(d.node_id), d) };
  const { status, detail } = judge(d, seen, at);
  if (status !== 'drifted' || d.health?.detail === detail) return;
  draft.set(d, { health: { status, since: at.now, detail } });
  draft.say(d, 'health', `${status}: ${detail}`);
}
