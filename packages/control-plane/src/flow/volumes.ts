/**
 * Decides for flow/deployment.ts on which node the volumes of a project are (domain/data/volumes.ts
 * has the states of a copy). Pure.
 *
 * A move, while the deployment is `built`:
 *
 *   the node is drained ──▶ the old container stops ──▶ `incoming` copy, tasks `move` for both nodes ──▶ both report the same digest
 *     ──▶ the nodes list no container that ran meanwhile ──▶ deploy task with the new copy
 *     ──▶ its container answers: the new copy is `current`, the other one `left`
 *
 * The source does not change before the switch. After the switch, the old container never starts
 * again. Equal digests prove only the past content: the move ends (`endMove`) as soon as a
 * container might write to one of the copies, or the node is no longer drained or deleted.
 */
import {
  CAN_MOVE_VOLUMES,
  isMoveResult,
  type MovePayload,
  type VolumeMounts,
} from '@berth/wire/volume';
import type { NodeFact } from '../domain/deployments/facts.ts';
import type { WaitReason } from '../domain/deployments/wait-reason.ts';
import { isOnline } from '../domain/nodes/placement.ts';
import type {
  DeploymentRecord,
  Failure,
  NodeRecord,
  TaskRecord,
} from '../domain/platform/records.ts';
import { decimalSizeText } from '@berth/wire/size-text';
import type { MoveWitness, VolumeCopy } from '../domain/data/volume-copy.ts';
import { copyText, currentCopy, isProven, volumeMounts } from '../domain/data/volumes.ts';
import type { Draft } from './plan-draft.ts';
import type { EventOf, LossReason } from './events.ts';
import { failure, failureOf } from './failure.ts';
import { isStoppedContainer, observedAt, ofProject } from './reported-containers.ts';
import { isAtRest, isProjectStopped } from './stop.ts';
import { createMoveTask } from './tasks.ts';

/**
 * Returns the copy that must be on the deployment's node, or null if the volumes can be created on
 * any node.
 */
export function pinOf(
  draft: Draft,
  { settings }: Pick<DeploymentRecord, 'settings'>,
): VolumeCopy | null {
  if (settings.volumes.length === 0) return null;
  const current = currentCopy(draft.volumes());
  // If the copy has no names, no container that mounted it ever answered its probe.
  return current === null || current.names.length === 0 ? null : current;
}

/** Returns why the node of the volumes cannot take the deployment now, or null if it can. */
export function volumesAway(draft: Draft, pin: VolumeCopy | null): WaitReason | null {
  if (pin === null) return null;
  const { now, limits } = draft.facts;
  const volumes = copyText(pin);
  const node = draft.node(pin.node_id);
  if (node === undefined)
    return {
      kind: 'volumes_node_deleted',
      volumes,
      project_id: pin.project_id,
      copy_id: pin.id,
    };
  return isOnline(node, now, limits)
    ? null
    : { kind: 'volumes_node_offline', volumes, since: node.last_seen_at };
}

// ── move ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

const isLeaving = (node: Pick<NodeRecord, 'drain' | 'deleting_at' | 'capabilities'>): boolean =>
  (node.drain !== null || node.deleting_at !== null) &&
  node.capabilities?.includes(CAN_MOVE_VOLUMES) === true;

/**
 * Returns the node that the volumes must leave, because it is drained or being deleted; null if
 * they stay.
 */
export function leavingNode(draft: Draft, pin: VolumeCopy | null): NodeFact | null {
  const node = draft.node(pin?.node_id ?? null);
  return node === undefined || !isLeaving(node) ? null : node;
}

/** Returns the new copy that a move is creating from this copy, or null. */
export const incomingOf = (draft: Draft, pin: VolumeCopy): VolumeCopy | null =>
  draft.volumes().find((c) => c.state === 'incoming' && c.source === pin.id) ?? null;

/**
 * Returns why the volumes cannot leave the node yet, or null: what a command writes during the copy
 * would be lost. A node that is drained gets no new runs.
 */
export function runOnVolumes({ facts }: Draft, from: NodeFact): WaitReason | null {
  const run = facts.runs?.find(({ node_id }) => node_id === from.id);
  return run === undefined ? null : { kind: 'volumes_run', run: run.id, node: from.hostname };
}

/** Returns the reason to wait while volumes of the project are being copied, or null. */
export function isMoving({ facts, plan }: Draft): WaitReason | null {
  const open = facts.tasks.find(
    (t) => t.kind === 'move' && !plan.changeTasks.some((c) => c.id === t.id && 'end' in c),
  );
  if (open === undefined) return null;
  const { role, other } = open.payload as MovePayload;
  const own = facts.nodes.find((n) => n.id === open.node_id)?.hostname ?? open.node_id;
  const [from, to] = role === 'send' ? [own, other] : [other, own];
  return { kind: 'volumes_copying', from, to };
}

/** Returns whether this node's copy is not proven yet (the node has reported no digest). */
export function isStillAway(draft: Draft, pin: VolumeCopy, node: NodeFact): boolean {
  const copy = incomingOf(draft, pin);
  return copy === null || copy.node_id !== node.id || !isProven(pin, copy);
}

export type VolumeMove = { pin: VolumeCopy; from: NodeFact; to: NodeFact };

/**
 * Begins the copy. The caller ensures that no container of the project runs. Returns the reason to
 * wait.
 */
export function moveVolumes(
  draft: Draft,
  d: DeploymentRecord,
  { pin, from, to }: VolumeMove,
): WaitReason {
  const { now, project } = draft.facts;
  const unproven = incomingOf(draft, pin);
  if (unproven !== null)
    draft.putVolumes({ ...unproven, state: 'deleting', ...UNPROVEN, changed_at: now });
  draft.putVolumes({ ...pin, digest: null, seen: witnessOf(draft, from), changed_at: now });
  const id = draft.freshId();
  const where = { node_id: to.id, hostname: to.hostname, seen: witnessOf(draft, to) };
  draft.putVolumes({
    ...pin,
    id,
    ...where,
    state: 'incoming',
    source: pin.id,
    digest: null,
    created_at: now,
    changed_at: now,
  });
  const payload = {
    project_id: project.id,
    project: project.name,
    copy: pin.id,
    to: id,
    bytes: pin.bytes,
  };
  createMoveTask(draft, d, from, { ...payload, role: 'send', other: to.hostname });
  createMoveTask(draft, d, to, { ...payload, role: 'receive', other: from.hostname });
  return { kind: 'volumes_copying', from: from.hostname, to: to.hostname };
}

// ── proof ────────────────────────────────────────────────────────────────────────────────────────────────────────────

const UNPROVEN = { digest: null, seen: null };

type Container = ReturnType<typeof ofProject>[number];
const keyOf = ({ id, name }: Container): string => id ?? name;

const witnessOf = ({ facts }: Draft, node: NodeFact): MoveWitness => ({
  containers: Object.fromEntries(
    ofProject(node, facts.project.id).map((c) => [keyOf(c), c.started_at ?? null]),
  ),
  proven_at: null,
});

/**
 * Returns why the copy might have changed since the move began, or null. The node of the copy must
 * exist. A container that already ran on the target node before the move mounts older folders, not
 * the new copy.
 */
function whyTouched(draft: Draft, { seen, state }: VolumeCopy, node: NodeFact): string | null {
  const listed = ofProject(node, draft.facts.project.id);
  const running = state === 'incoming' ? undefined : listed.find((c) => !isStoppedContainer(c));
  if (running !== undefined)
    return `${running.name} runs on ${node.hostname} and may write to them`;
  if (seen === null) return 'it is not known what has run since';
  const ran = listed.find((c) => {
    const startedBefore = seen.containers[keyOf(c)];
    return startedBefore === undefined
      ? c.state !== 'created'
      : startedBefore !== (c.started_at ?? null);
  });
  return ran === undefined
    ? null
    : `${ran.name} ran on ${node.hostname} meanwhile and may have written to them`;
}

/**
 * Why a move ends. `loss`: the node to record in `losses`, because a container might have written
 * to a copy; null if the end does not count as a try.
 */
type MoveEnd = { why: string; loss: string | null };

/** Returns why the move in progress must end, or null. */
export function whyMoveEnds(draft: Draft): MoveEnd | null {
  const copy = draft.volumes().find((c) => c.state === 'incoming');
  if (copy === undefined) return null;
  const { live } = draft.facts;
  const ends = (why: string, loss: string | null = null): MoveEnd => ({ why, loss });
  const source = currentCopy(draft.volumes());
  if (source === null || source.id !== copy.source)
    return ends('they are a copy of volumes that the project does not use any more');
  const [from, to] = [draft.node(source.node_id), draft.node(copy.node_id)];
  const written = from === undefined ? null : whyTouched(draft, source, from);
  // Do not end the move: a container already mounts the copy, so its report or the end of its
  // deployment decides.
  const isMounted = live.some(
    (o) => o.status === 'deploying' && o.node_id === copy.node_id && o.settings.volumes.length > 0,
  );
  if (isMounted) return written === null ? null : ends(written, source.node_id);
  if (from === undefined)
    return ends(`${source.hostname} was deleted before both nodes had confirmed the same files`);
  if (from.drain === null && from.deleting_at === null)
    return ends(`${from.hostname} is not drained any more`);
  if (to === undefined) return ends(`${copy.hostname} was deleted`);
  if (to.deleting_at !== null) return ends(`${to.hostname} is being deleted`);
  if (to.drain !== null) return ends(`${to.hostname} is drained too`);
  const isAsked = live.some(
    (o) =>
      o.settings.volumes.length > 0 &&
      (o.status === 'built' ||
        o.status === 'deploying' ||
        (isProjectStopped(draft) && isAtRest(o))),
  );
  if (!isAsked) return ends('no deployment waits for them any more');
  if (written !== null) return ends(written, source.node_id);
  const changed = whyTouched(draft, copy, to);
  return changed === null ? null : ends(changed, source.node_id);
}

/**
 * Ends the move: clears the digests, deletes the copy, and cancels both tasks, so that late reports
 * change nothing. Does nothing without an incoming copy. If the source node is gone, a complete
 * copy stays on the disk.
 */
export function endMove(
  draft: Draft,
  d: Pick<DeploymentRecord, 'id'> | null,
  why: string | null,
  isSourceGone = false,
): void {
  const { now, tasks } = draft.facts;
  const copies = draft.volumes().filter((c) => c.state === 'incoming');
  if (copies.length === 0) return;
  const source = currentCopy(draft.volumes());
  for (const copy of copies) {
    const stays =
      copy.digest !== null &&
      source !== null &&
      (isSourceGone || draft.node(source.node_id) === undefined);
    draft.putVolumes({ ...copy, state: stays ? 'left' : 'deleting', ...UNPROVEN, changed_at: now });
    const rest = stays ? 'it stays there' : 'it is deleted';
    const where = source === null ? '' : `, and the data stays on ${source.hostname}`;
    if (d !== null && why !== null)
      draft.addLine(
        d,
        'volumes',
        `the copy of its volumes on ${copy.hostname} is not used: ${why}; ${rest}${where}`,
      );
  }
  if (source !== null && (source.digest !== null || source.seen !== null))
    draft.putVolumes({ ...source, ...UNPROVEN, changed_at: now });
  for (const task of tasks)
    if (task.kind === 'move' && !draft.plan.changeTasks.some((c) => c.id === task.id && 'end' in c))
      draft.task({ id: task.id, attempt: task.attempt, end: 'cancelled' });
}

/** Returns why the proven copy must not be used yet, or null. */
export function notConfirmed(draft: Draft, pin: VolumeCopy): WaitReason | null {
  const node = draft.node(pin.node_id);
  const provenAt = pin.seen?.proven_at ?? null;
  if (node !== undefined && provenAt !== null && observedAt(draft, node) > provenAt) return null;
  return { kind: 'volumes_unconfirmed', node: pin.hostname };
}

/**
 * Switches to the proven copy if the source node was deleted and, by the last reports, no container
 * might have changed either copy. That copy is then the newest data. Returns whether it switched.
 */
export function saveProven(draft: Draft, d: DeploymentRecord, nodeId: string): boolean {
  const source = currentCopy(draft.volumes());
  const copy = source === null ? null : incomingOf(draft, source);
  const [from, to] = [draft.node(source?.node_id ?? null), draft.node(copy?.node_id ?? null)];
  if (
    source === null ||
    copy === null ||
    from === undefined ||
    to === undefined ||
    source.node_id !== nodeId
  )
    return false;
  if (
    !isProven(source, copy) ||
    whyTouched(draft, source, from) !== null ||
    whyTouched(draft, copy, to) !== null
  )
    return false;
  switchCopies(draft, d, source, copy);
  return true;
}

/** Makes the new copy `current`, and the source `left`. */
export function switchCopies(
  draft: Draft,
  d: DeploymentRecord,
  source: VolumeCopy,
  copy: VolumeCopy,
): void {
  const { now } = draft.facts;
  draft.putVolumes({ ...source, state: 'left', ...UNPROVEN, changed_at: now });
  draft.putVolumes({ ...copy, state: 'current', ...UNPROVEN, changed_at: now });
  draft.addLine(
    d,
    'volumes',
    `from now on the data is on ${copy.hostname}; the copy on ${source.hostname} stays there, ` +
      'unused',
  );
}

/**
 * Why a move failed. `again`: whether a retry is possible, and whether it can use the same two
 * nodes.
 */
export type MoveProblem = { error: Failure; again: 'yes' | 'elsewhere' | 'never' };

export function moveLost(draft: Draft, task: TaskRecord, why: LossReason): MoveProblem {
  const name = draft.node(task.node_id)?.hostname ?? task.node_id;
  if (why === 'wall')
    return { error: failure('task_timeout', `the copy of the volumes on ${name}`), again: 'never' };
  return {
    error: failure(
      why === 'queue' ? 'task_not_claimed' : 'node_lost',
      `${name}, during the copy of the volumes`,
    ),
    again: 'yes',
  };
}

/** Records the digest that one node reported. Returns why the move failed, or null. */
export function moveReported(
  draft: Draft,
  d: DeploymentRecord,
  { task, report }: EventOf<'task_reported'>,
): MoveProblem | null {
  const { role, copy, to } = task.payload as MovePayload;
  const { result } = report;
  if (report.status === 'failed' || !isMoveResult(result)) {
    const error = failureOf(report);
    return {
      error,
      again: role === 'receive' && error.code === 'disk_full' ? 'elsewhere' : 'never',
    };
  }
  const own = draft.volumes().find((c) => c.id === (role === 'send' ? copy : to));
  const other = draft.volumes().find((c) => c.id === (role === 'send' ? to : copy));
  if (own === undefined || other === undefined)
    return { error: failure('volume_failed', 'its copy is unknown'), again: 'never' };
  const isOfMove = [own, other].every((c) => c.state === (c.id === copy ? 'current' : 'incoming'));
  if (!isOfMove)
    return { error: failure('volume_failed', 'the move of its copy has ended'), again: 'yes' };
  const reported = {
    ...own,
    digest: result.digest,
    bytes: result.bytes,
    changed_at: draft.facts.now,
  };
  draft.putVolumes(reported);
  if (other.digest === null) return null;
  const [source, target] = role === 'send' ? [reported, other] : [other, reported];
  if (!isProven(source, target)) {
    const text =
      `the files on ${target.hostname} differ from those on ${source.hostname}, so the copy is ` +
      'not used';
    return { error: failure('volume_failed', text), again: 'yes' };
  }
  if (source.seen !== null)
    draft.putVolumes({ ...source, seen: { ...source.seen, proven_at: draft.facts.uptime.at } });
  draft.addLine(
    d,
    'volumes',
    `the volumes are on ${target.hostname}: ${result.files} files, ${decimalSizeText(result.bytes)}, ` +
      `equal to those on ${source.hostname} in content, owner and mode`,
  );
  return null;
}

/** Deletes the incoming copy of this deployment if no container passed its probe with it. */
export function dropIncoming(draft: Draft, d: DeploymentRecord, isSourceGone = false): void {
  // Keep the copy if it belongs to the move of a stopped project (flow/volume-handoff.ts): this
  // deployment only waited for that move.
  if (draft.facts.tasks.some((t) => t.kind === 'move' && t.deployment_id !== d.id)) return;
  const others = draft.facts.live.some(
    (o) => o.id !== d.id && (o.status === 'built' || o.status === 'deploying'),
  );
  if (others && d.status !== 'deploying' && !draft.openTasks(d).some((t) => t.kind === 'move'))
    return;
  endMove(draft, null, null, isSourceGone);
}

// ── mount ────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Returns the volumes of a deploy task, and records the new copy of a first deployment. */
export function mountVolumes(
  draft: Draft,
  d: DeploymentRecord,
  node: NodeFact,
): { volumes?: VolumeMounts } {
  const { project, now } = draft.facts;
  if (d.settings.volumes.length === 0) return {};
  const pin = pinOf(draft, d);
  const arrived = pin === null || pin.node_id === node.id ? null : incomingOf(draft, pin);
  if (pin !== null && arrived !== null) {
    // Clear the digests: the container might write, so Berth must copy the files again if this
    // deployment does not go live.
    draft.putVolumes({ ...pin, digest: null, changed_at: now });
    draft.putVolumes({ ...arrived, digest: null, changed_at: now });
    return { volumes: volumeMounts(d.settings, arrived) };
  }
  if (pin !== null) {
    endMove(draft, d, `the project starts on ${node.hostname}`);
    return { volumes: volumeMounts(d.settings, pin) };
  }
  const begun = currentCopy(draft.volumes());
  if (begun?.node_id === node.id) return { volumes: volumeMounts(d.settings, begun) };
  if (begun !== null) draft.putVolumes({ ...begun, state: 'left', changed_at: now });
  const copy: VolumeCopy = {
    id: draft.freshId(),
    project_id: project.id,
    project: project.name,
    node_id: node.id,
    hostname: node.hostname,
    state: 'current',
    names: [],
    bytes: null,
    source: null,
    digest: null,
    sizes: {},
    seen: null,
    created_at: now,
    changed_at: now,
  };
  draft.putVolumes(copy);
  return { volumes: volumeMounts(d.settings, copy) };
}

/** Returns why the copy that the container mounts is no longer valid, or null. */
export function whyNotMounted(
  draft: Draft,
  d: DeploymentRecord,
  mounted: string | null,
): string | null {
  const current = currentCopy(draft.volumes());
  if (
    mounted === null ||
    current === null ||
    d.settings.volumes.length === 0 ||
    mounted === current.id
  )
    return null;
  const copy = incomingOf(draft, current);
  const from = draft.node(current.node_id);
  const touched = from === undefined ? null : whyTouched(draft, current, from);
  if (copy?.id === mounted && touched === null) return null;
  return (
    `its volumes on ${current.hostname} may have changed since they were ` +
    `copied${touched === null ? '' : `: ${touched}`}`
  );
}

/**
 * Records that a container with the volumes answered its probe: the volumes now exist and must
 * never be created again. After a move this switches to the new copy, in the same commit that
 * publishes the route, because requests can write to the new copy from then on.
 */
export function volumesMounted(draft: Draft, d: DeploymentRecord): void {
  const { now } = draft.facts;
  const current = currentCopy(draft.volumes());
  if (current === null || d.settings.volumes.length === 0) return;
  const arrived = current.node_id === d.node_id ? null : incomingOf(draft, current);
  const copy = arrived ?? current;
  if (copy.node_id !== d.node_id) return;
  const names = [...new Set([...copy.names, ...d.settings.volumes.map((v) => v.name)])];
  if (arrived !== null) switchCopies(draft, d, current, { ...arrived, names });
  else if (names.length > copy.names.length) draft.putVolumes({ ...copy, names, changed_at: now });
}
