/**
 * Decides where the volumes of a project are, for flow/deployment.ts (domain/volumes.ts has the states of a copy). Pure.
 *
 * A move, while the deployment is `built`:
 *
 *   the node is drained ──▶ the old container stops ──▶ `incoming` copy, tasks `move` for both nodes ──▶ both report the same digest
 *     ──▶ deploy task with the new copy ──▶ its container answers: the new copy is `current`, the other one `left`
 *
 * Before the switch nothing changes the source. After it, the old container never starts again.
 */
import type { FailureCode } from '@berth/wire/errors';
import { CAN_MOVE_VOLUMES, isMoveResult, type MovePayload, type VolumeMounts } from '@berth/wire/volume';
import type { NodeFact } from '../domain/facts.ts';
import { isOnline } from '../domain/placement.ts';
import type { DeploymentRecord, Failure, NodeRecord, TaskRecord } from '../domain/records.ts';
import { bytesText } from '../domain/sizes.ts';
import type { VolumeCopy } from '../domain/volume-copy.ts';
import { copyText, currentCopy, isProven, volumeMounts } from '../domain/volumes.ts';
import type { Draft } from './draft.ts';
import type { EventOf, LossReason } from './events.ts';
import { failure, failureOf } from './failure.ts';
import { createMoveTask } from './tasks.ts';

/** Returns the copy that must be where the deployment runs, or null if its volumes may begin on any node. */
export function pinOf(draft: Draft, { settings }: Pick<DeploymentRecord, 'settings'>): VolumeCopy | null {
  if (settings.volumes.length === 0) return null;
  const current = currentCopy(draft.volumes());
  // Without a name, no deployment has ever reported a container with this copy.
  return current === null || current.names.length === 0 ? null : current;
}

/** Returns why no node can take the deployment now, because of its volumes; null if their node can. */
export function volumesAway(draft: Draft, pin: VolumeCopy | null): { code: FailureCode; why: string; plain: string } | null {
  if (pin === null) return null;
  const { now, limits } = draft.facts;
  const what = copyText(pin, bytesText);
  const node = draft.node(pin.node_id);
  if (node === undefined) {
    const why = `${what}: that node was deleted. Berth starts the project with its data only: add the machine with its disk as a node again`;
    return { code: 'volume_unreachable', why, plain: why };
  }
  if (isOnline(node, now, limits)) return null;
  const plain = `${what}: that node is offline. The project waits for it, because it must not start with an empty volume`;
  return { code: 'volume_unreachable', why: `${plain} (offline since ${new Date(node.last_seen_at).toISOString()})`, plain };
}

// ── move ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

const isLeaving = (node: Pick<NodeRecord, 'drain' | 'deleting_at' | 'capabilities'>): boolean =>
  (node.drain !== null || node.deleting_at !== null) && node.capabilities?.includes(CAN_MOVE_VOLUMES) === true;

/** Returns the node that the volumes must leave, because it is drained or being deleted; null if they stay. */
export function leavingNode(draft: Draft, pin: VolumeCopy | null): NodeFact | null {
  const node = draft.node(pin?.node_id ?? null);
  return node === undefined || !isLeaving(node) ? null : node;
}

/** Returns the copy that a move is making from this one. */
export const incomingOf = (draft: Draft, pin: VolumeCopy): VolumeCopy | null =>
  draft.volumes().find((c) => c.state === 'incoming' && c.source === pin.id) ?? null;

/** Returns the reason to wait while volumes of the project are being copied, or null. */
export function isMoving({ facts, plan }: Draft): string | null {
  const open = facts.tasks.find((t) => t.kind === 'move' && !plan.changeTasks.some((c) => c.id === t.id && 'end' in c));
  if (open === undefined) return null;
  const { role, other } = open.payload as MovePayload;
  const own = facts.nodes.find((n) => n.id === open.node_id)?.hostname ?? open.node_id;
  const [from, to] = role === 'send' ? [own, other] : [other, own];
  return movingText(from, to);
}

const movingText = (from: string, to: string): string =>
  `its volumes are being copied from ${from} to ${to}; the project is stopped meanwhile`;

/** Returns whether the node does not have a proven copy yet. */
export function isStillAway(draft: Draft, pin: VolumeCopy, node: NodeFact): boolean {
  const copy = incomingOf(draft, pin);
  return copy === null || copy.node_id !== node.id || !isProven(pin, copy);
}

/** Begins the copy. Nothing of the project may be running. Returns the reason to wait. */
export function moveVolumes(
  draft: Draft,
  d: DeploymentRecord,
  { pin, from, to }: { pin: VolumeCopy; from: NodeFact; to: NodeFact },
): string {
  const { now, project } = draft.facts;
  const unproven = incomingOf(draft, pin);
  if (unproven !== null) draft.putVolumes({ ...unproven, state: 'deleting', changed_at: now });
  draft.putVolumes({ ...pin, digest: null, changed_at: now });
  const id = draft.freshId();
  const where = { node_id: to.id, hostname: to.hostname };
  draft.putVolumes({ ...pin, id, ...where, state: 'incoming', source: pin.id, digest: null, created_at: now, changed_at: now });
  const payload = { project_id: project.id, project: project.name, copy: pin.id, to: id, bytes: pin.bytes };
  createMoveTask(draft, d, from, { ...payload, role: 'send', other: to.hostname });
  createMoveTask(draft, d, to, { ...payload, role: 'receive', other: from.hostname });
  return movingText(from.hostname, to.hostname);
}

/** `again`: whether the deployment may try once more, and with the same nodes. */
export type MoveProblem = { error: Failure; again: 'yes' | 'elsewhere' | 'never' };

export function moveLost(draft: Draft, task: TaskRecord, why: LossReason): MoveProblem {
  const name = draft.node(task.node_id)?.hostname ?? task.node_id;
  if (why === 'wall') return { error: failure('task_timeout', `the copy of the volumes on ${name}`), again: 'never' };
  return { error: failure(why === 'queue' ? 'task_not_claimed' : 'node_lost', `${name}, during the copy of the volumes`), again: 'yes' };
}

/** Records what one end has. Returns why the move failed, or null. */
export function moveReported(draft: Draft, d: DeploymentRecord, { task, report }: EventOf<'task_reported'>): MoveProblem | null {
  const { role, copy, to } = task.payload as MovePayload;
  const { result } = report;
  if (report.status === 'failed' || !isMoveResult(result)) {
    const error = failureOf(report);
    return { error, again: role === 'receive' && error.code === 'disk_full' ? 'elsewhere' : 'never' };
  }
  const own = draft.volumes().find((c) => c.id === (role === 'send' ? copy : to));
  const other = draft.volumes().find((c) => c.id === (role === 'send' ? to : copy));
  if (own === undefined || other === undefined) return { error: failure('volume_failed', 'its copy is unknown'), again: 'never' };
  const reported = { ...own, digest: result.digest, bytes: result.bytes, changed_at: draft.facts.now };
  draft.putVolumes(reported);
  if (other.digest === null) return null;
  const [source, target] = role === 'send' ? [reported, other] : [other, reported];
  if (!isProven(source, target)) {
    const text = `the files on ${target.hostname} differ from those on ${source.hostname}, so the copy is not used`;
    return { error: failure('volume_failed', text), again: 'yes' };
  }
  draft.addLine(
    d,
    'volumes',
    `the volumes are on ${target.hostname}: ${result.files} files, ${bytesText(result.bytes)}, equal to those on ${source.hostname} in content, owner and mode`,
  );
  return null;
}

/** A copy that no container answered with is deleted, if it belongs to this deployment. */
export function dropIncoming(draft: Draft, d: DeploymentRecord): void {
  const incoming = draft.volumes().filter((c) => c.state === 'incoming');
  if (incoming.length === 0) return;
  // The volumes of a stopped project move (flow/leave.ts), and this deployment only waited for that.
  if (draft.facts.tasks.some((t) => t.kind === 'move' && t.deployment_id !== d.id)) return;
  const others = draft.facts.live.some((o) => o.id !== d.id && (o.status === 'built' || o.status === 'deploying'));
  if (others && d.status !== 'deploying' && !draft.openTasks(d).some((t) => t.kind === 'move')) return;
  for (const copy of incoming) draft.putVolumes({ ...copy, state: 'deleting', changed_at: draft.facts.now });
}

// ── mount ────────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Returns the volumes of a deploy task, and records the copy that a first deployment begins. */
export function mountVolumes(draft: Draft, d: DeploymentRecord, node: NodeFact): { volumes?: VolumeMounts } {
  const { project, now } = draft.facts;
  if (d.settings.volumes.length === 0) return {};
  const pin = pinOf(draft, d);
  if (pin !== null) return { volumes: volumeMounts(d.settings, pin.node_id === node.id ? pin : (incomingOf(draft, pin) ?? pin)) };
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
    created_at: now,
    changed_at: now,
  };
  draft.putVolumes(copy);
  return { volumes: volumeMounts(d.settings, copy) };
}

/**
 * Records that a container with the volumes answered: from now on these volumes exist, and may never be created again. After a move this
 * is the switch, in the commit that publishes the route: requests may write to the new copy from now on.
 */
export function volumesMounted(draft: Draft, d: DeploymentRecord): void {
  const { now } = draft.facts;
  const current = currentCopy(draft.volumes());
  if (current === null || d.settings.volumes.length === 0) return;
  const arrived = current.node_id === d.node_id ? null : incomingOf(draft, current);
  const copy = arrived ?? current;
  if (copy.node_id !== d.node_id) return;
  const names = [...new Set([...copy.names, ...d.settings.volumes.map((v) => v.name)])];
  if (arrived !== null) {
    draft.putVolumes({ ...current, state: 'left', changed_at: now });
    draft.addLine(d, 'volumes', `from now on the data is on ${arrived.hostname}; the copy on ${current.hostname} stays there, unused`);
  }
  if (arrived !== null || names.length > copy.names.length) draft.putVolumes({ ...copy, names, state: 'current', changed_at: now });
}
