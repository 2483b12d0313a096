/**
 * Decides about the instances on a lost node (the event `node_lost`): which wait for the node, which
 * start on another one, and which instance becomes the first. Pure.
 */
import { isStopFirst } from '../domain/data/volumes.ts';
import { type InstanceRecord, isWanted, WEB } from '../domain/deployments/instance.ts';
import { waitingFor } from '../domain/deployments/wait-reason.ts';
import type { DeploymentRecord } from '../domain/platform/records.ts';
import type { EventOf } from './events.ts';
import { failure } from './failure.ts';
import {
  isFirstLost,
  lostAs,
  nameOf,
  nextFirst,
  promote,
  publishServers,
  refreshHealth,
} from './instance-route.ts';
import { type Avoid, endTaskOf, reconcile, startElsewhere } from './instances.ts';
import type { Draft } from './plan-draft.ts';
import { addKeptDevices } from './room.ts';
import { isProjectStopped } from './stop.ts';

/**
 * Starts replacements for the instances on a lost node (the event `node_lost`). A repeated event
 * changes nothing.
 */
export function nodeLost(draft: Draft, d: DeploymentRecord, event: EventOf<'node_lost'>): void {
  if (isProjectStopped(draft) || d.status !== 'running') return;
  const { node_id, silent = [], forced } = event;
  const { now } = draft.facts;
  const hold = holdOf(draft, d, forced);
  const name = draft.node(node_id)?.hostname ?? node_id;
  const reason = `${name} is silent`;
  const avoid = [...new Set([node_id, ...silent])].map((id) => ({ node_id: id, at: now }));
  const lostHere = draft
    .instances(d)
    .filter((i) => i.node_id === node_id && (i.state === 'serving' || i.state === 'unhealthy'));
  const firstIsLost = d.node_id === node_id && !isFirstLost(d);
  const before = draft.instances(d);
  for (const instance of lostHere) {
    draft.putInstance({ ...instance, state: 'lost', detail: reason, since: now });
    if (hold !== null) draft.addLine(d, 'failover', heldLine(instance.number, name, hold));
  }
  const other = nextFirst(draft, d);
  if (firstIsLost && other !== undefined) promote(draft, d, other, lostAs(draft, d));
  else if (firstIsLost) loseFirst(draft, d, name, hold);
  for (const instance of before)
    if (instance.node_id === node_id && instance.state === 'starting')
      restartLost(draft, d, instance, name, avoid);
  if (lostHere.length > 0) publishServers(draft, d);
  // It was stopped for a newer version, which is not in progress any more.
  if (hold === null && firstIsLost && d.stopped_first !== null && draft.facts.live.length === 1)
    draft.set(d, { stopped_first: null, ...waitingFor(null) });
  if (hold === null) reconcile(draft, d, { avoid, isHeld: false });
  for (const instance of draft.instances(d))
    if (isWanted(instance) && !before.some(({ id }) => id === instance.id))
      addFailoverLine(draft, d, instance, name);
  if (lostHere.length > 0 || firstIsLost) refreshHealth(draft, d);
}

const heldLine = (number: number, name: string, hold: string): string =>
  `${WEB} ${number} stays on ${name}, which is silent: ${hold}`;

/** Says which instance moves, from where, to where and why. */
function addFailoverLine(
  draft: Draft,
  d: DeploymentRecord,
  instance: InstanceRecord,
  from: string,
): void {
  const { process, number, node_id, detail } = instance;
  const what =
    node_id === null
      ? `of ${from} waits for a node: ${detail}`
      : `moves from ${from} to ${nameOf(draft, instance)}`;
  draft.addLine(d, 'failover', `${process} ${number} ${what}; ${from} is silent`);
}

/** Returns why the instances of the project wait for their node; null if they move. */
export function holdOf(
  { facts: { project } }: Draft,
  d: DeploymentRecord,
  forced: EventOf<'node_lost'>['forced'],
): string | null {
  if (isStopFirst(d.settings)) return holdOfWriter(d);
  if (project.on_node_lost === 'move' || forced?.machine_is_off === true) return null;
  return 'on_node_lost of the project is wait';
}

/** Returns why a project that writes never moves by itself: the silent machine may still write. */
export const holdOfWriter = ({ settings }: Pick<DeploymentRecord, 'settings'>): string => {
  const volume = settings.volumes[0];
  return volume === undefined
    ? 'it writes to a dataset, and the silent machine may still write'
    : `its volume ${volume.name} is on that machine`;
};

/**
 * Handles the loss of the first instance while no other one serves. The route stays. If the instance
 * waits for its node, says so once.
 */
function loseFirst(draft: Draft, d: DeploymentRecord, name: string, hold: string | null): void {
  const { now } = draft.facts;
  if (hold === null) {
    const detail = `${name} is silent; its instance starts on another node`;
    draft.set(d, { lost_since: now, health: { status: 'unhealthy', since: now, detail } });
  } else if (d.health?.status !== 'unknown') {
    const detail = `${name} is silent; it waits for that node: ${hold}`;
    draft.set(d, { health: { status: 'unknown', since: now, detail } });
    draft.addLine(d, 'failover', heldLine(d.instance_number, name, hold));
  }
}

/**
 * Starts an instance again on another node. Its first node became silent before it served there.
 */
function restartLost(
  draft: Draft,
  d: DeploymentRecord,
  instance: InstanceRecord,
  name: string,
  avoid: Avoid,
): void {
  endTaskOf(draft, d, instance.id, 'lost');
  addKeptDevices(draft, d, instance);
  const losses = [...instance.losses, ...avoid.slice(0, 1)];
  startElsewhere(draft, d, { ...instance, losses }, failure('node_lost', name), avoid);
}
