/**
 * Moves the volumes of a stopped project from a node that is drained or being deleted, without a
 * start of the project. The tasks belong to its `running` deployment, whose container is stopped
 * (flow/stop.ts).
 *
 *   drain ──▶ `volumes_leave`: `incoming` copy, tasks `move` for both nodes ──▶ both report the same digest
 *     ──▶ the next list of the old node shows no container that ran meanwhile
 *     ──▶ the new copy is `current`, the other one `left`; the stopped container is removed; a start runs on the new node
 *     ──▶ a failure: the copy is deleted, the data stays where it was, and the drain tries again (flow/drain.ts)
 *
 * A start that is requested meanwhile waits for the end of the copy. Pure.
 */
import { defined } from '@berth/kit/defined';
import { deviceNeeds, limitNeeds } from '../domain/nodes/build-needs.ts';
import { wantedOf } from '../domain/data/mounts.ts';
import { choose } from '../domain/nodes/placement.ts';
import {
  plainWaitText,
  sameWait,
  waitingFor,
  type WaitReason,
  waitReasonOf,
  waitsFor,
} from '../domain/deployments/wait-reason.ts';
import type { DeploymentRecord, NodeRecord } from '../domain/platform/records.ts';
import type { Facts } from '../domain/deployments/facts.ts';
import type { Plan } from '../domain/deployments/plan.ts';
import { currentCopy, isProven, moveNeed, volumeNeeds } from '../domain/data/volumes.ts';
import { createDraft, type Draft } from './plan-draft.ts';
import type { EventOf } from './events.ts';
import { freedOf, machineOf } from './room.ts';
import { noNodeCan, secretNeeds } from './secrets.ts';
import { reasonToWait } from './single-writer.ts';
import { isAtRest, isProjectStopped, restReason } from './stop.ts';
import { createRetireTask } from './tasks.ts';
import {
  dropIncoming,
  endMove,
  incomingOf,
  isMoving,
  leavingNode,
  type MoveProblem,
  moveLost,
  moveReported,
  moveVolumes,
  notConfirmed,
  pinOf,
  runOnVolumes,
  saveProven,
  switchCopies,
  volumesAway,
  whyMoveEnds,
} from './volumes.ts';

/** Begins the move if possible. Otherwise stores the reason to wait in the deployment. */
export function volumesLeave(draft: Draft, d: DeploymentRecord): void {
  const { live, nodes } = draft.facts;
  if (!isProjectStopped(draft) || !isAtRest(d)) return;
  endVoidMove(draft);
  if (isMoving(draft) !== null) return;
  // If another deployment is in progress, that deployment moves the volumes.
  if (live.some((o) => o.id !== d.id)) return;
  const pin = pinOf(draft, d);
  const from = draft.node(pin?.node_id ?? null);
  if (pin === null || from === undefined || (from.drain === null && from.deleting_at === null))
    return;
  if (leavingNode(draft, pin) === null)
    return setWaiting(draft, d, { kind: 'agent_cannot_move', node: from.hostname });
  const away = volumesAway(draft, pin);
  if (away !== null) return setWaiting(draft, d, away);
  const run = runOnVolumes(draft, from);
  if (run !== null) return setWaiting(draft, d, run);
  if (d.stopped_first !== 'stopped') return setWaiting(draft, d, { kind: 'container_still_runs' });
  const arrived = incomingOf(draft, pin);
  if (arrived !== null && isProven(pin, arrived)) return useCopy(draft, d);
  const needs = [
    ...secretNeeds(draft.facts.secrets, 'deploy'),
    ...volumeNeeds(d.settings),
    ...limitNeeds(d.settings),
    ...deviceNeeds(d.settings),
    moveNeed,
  ];
  const cannot = noNodeCan(needs, nodes);
  if (cannot !== null) return setWaiting(draft, d, cannot);
  const wanted = wantedOf(d.settings.datasets, draft.facts.datasets);
  // A node whose disk was full during this drain is excluded. Failures before this drain do not
  // count.
  const since = leavingSince(from, d.project_id);
  const losses = d.losses.filter((loss) => loss.error !== undefined && loss.at >= since);
  const { placement, refusals } = choose(
    {
      wanted,
      losses,
      runsOn: null,
      stays: false,
      arch: d.image_arch,
      needs,
      machine: machineOf(draft, d, freedOf(draft, d)),
    },
    nodes,
    draft.facts,
  );
  const to = draft.node(placement.winner);
  if (to === undefined) {
    const request = from.deleting_at === null ? 'drain' : 'deletion';
    const tried_again_by = losses.length === 0 ? null : ({ request, node: from.hostname } as const);
    return setWaiting(draft, d, { kind: 'no_node_for_volumes', refusals, tried_again_by });
  }
  const notYet = reasonToWait(draft, d, to);
  if (notYet !== null) return setWaiting(draft, d, notYet.reason);
  const moving = moveVolumes(draft, d, { pin, from, to });
  setWaiting(draft, d, moving);
}

/**
 * Returns the time since which the drain counts the failed moves of the project (flow/drain.ts).
 */
const leavingSince = (
  { drain, deleting_at }: Pick<NodeRecord, 'drain' | 'deleting_at'>,
  projectId: string,
): number => drain?.tries[projectId]?.at ?? drain?.started_at ?? deleting_at ?? 0;

/** Handles a `move` task that its agent reported, or whose lease or time limit expired. */
export function leaveEnded(
  draft: Draft,
  d: DeploymentRecord,
  event: EventOf<'task_reported'> | EventOf<'task_lost'>,
): void {
  if (event.task.kind !== 'move') return;
  const problem =
    event.type === 'task_lost'
      ? moveLost(draft, event.task, event.why)
      : moveReported(draft, d, event);
  if (problem !== null) return leaveFailed(draft, d, event.task.node_id, problem);
  if (!endVoidMove(draft)) useCopy(draft, d);
}

/**
 * Switches to the new copy if both nodes reported the same digest and the old node has listed its
 * containers since.
 */
function useCopy(draft: Draft, d: DeploymentRecord): void {
  const source = currentCopy(draft.volumes());
  const copy = source === null ? null : incomingOf(draft, source);
  // Wait: only one of the two nodes has reported.
  if (source === null || copy === null || !isProven(source, copy)) return;
  const why = notConfirmed(draft, source);
  // The drain loop tries again later.
  if (why !== null) return setWaiting(draft, d, why);
  switchCopies(draft, d, source, copy);
  draft.set(d, waitingFor(restReason(draft)));
  // Remove the old container: it could only write to the old copy, and a start runs a new
  // container.
  const removed = { deployment: d, reason: `its volumes are on ${copy.hostname} now` };
  createRetireTask(draft, draft.node(source.node_id), {
    of: d,
    remove: [removed],
    keep: null,
    drain: false,
  });
}

/**
 * Ends a move whose copy must no longer be used (flow/volumes.ts has the reasons), even if the
 * project runs. Returns whether a move ended.
 */
export function endVoidMove(draft: Draft): boolean {
  const ends = whyMoveEnds(draft);
  if (ends === null) return false;
  const { live, now, limits } = draft.facts;
  const waits = live.find(
    (o) => o.settings.volumes.length > 0 && (o.status === 'built' || o.status === 'deploying'),
  );
  const d = waits ?? live.find((o) => o.status === 'running') ?? null;
  endMove(draft, d, ends.why);
  if (d === null) return true;
  if (ends.loss !== null && d.status !== 'deploying')
    draft.set(d, {
      losses: [...d.losses, { node_id: ends.loss, at: now }].slice(-limits.maxLosses),
    });
  const rests = restReason(draft);
  if (isProjectStopped(draft) && isAtRest(d) && !waitsFor(d, rests))
    draft.set(d, waitingFor(rests));
  return true;
}

/**
 * Ends the move of a project if its node was uncordoned or deleted. These changes cause no event of
 * a deployment.
 */
export function reviewMove(facts: Facts): Plan {
  const draft = createDraft(facts, 'volumes_leave');
  endVoidMove(draft);
  return draft.plan;
}

/**
 * Ends what is left of a move after the deletion of its deployment or of one node. `gone`: the node
 * whose disk is unreachable.
 */
export function endLeave(draft: Draft, d: DeploymentRecord, gone: string | null = null): void {
  if (gone !== null && saveProven(draft, d, gone)) return;
  const open = draft.openTasks(d).filter((t) => t.kind === 'move');
  const isSource = gone !== null && currentCopy(draft.volumes())?.node_id === gone;
  if (open.length > 0 || isSource) dropIncoming(draft, d, isSource);
  for (const task of draft.openTasks(d))
    if (task.kind === 'move') draft.task({ id: task.id, attempt: task.attempt, end: 'cancelled' });
}

function leaveFailed(
  draft: Draft,
  d: DeploymentRecord,
  nodeId: string,
  { error, again }: MoveProblem,
): void {
  dropIncoming(draft, d);
  for (const task of draft.openTasks(d))
    if (task.kind === 'move') draft.task({ id: task.id, attempt: task.attempt, end: 'cancelled' });
  const loss = {
    node_id: nodeId,
    at: draft.facts.now,
    ...defined({ error: again === 'elsewhere' ? error : undefined }),
  };
  draft.set(d, { losses: [...d.losses, loss].slice(-draft.facts.limits.maxLosses) });
  setWaiting(draft, d, { kind: 'move_failed', message: error.message });
}

/** Stores the reason to wait, and adds a story line if the reason changed. */
function setWaiting(draft: Draft, d: DeploymentRecord, because: WaitReason): void {
  const at_zero = restReason(draft).kind === 'scaled_to_zero' ? (true as const) : undefined;
  const reason: WaitReason = { kind: 'project_stopped_and', because, ...defined({ at_zero }) };
  if (sameWait(waitReasonOf(d), reason)) return;
  const isNew = !waitsFor(d, reason);
  draft.set(d, waitingFor(reason));
  if (isNew) draft.addLine(d, 'volumes', plainWaitText(because));
}
