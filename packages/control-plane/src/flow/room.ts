/**
 * Decides what a deployment takes of a node: memory and devices. Two versions need room for both.
 * If no node has it, and the node of the running version would have it without that version, the
 * deployment becomes stop-first: the story says so, the agent stops the old version before it
 * starts the new one, and the old one starts again if the new one fails. If only instances beside
 * the first one lack room, they start after the switch. With `replace: rolling` set by a person, the
 * deployment is refused instead. Pure.
 */
import { webSettings } from '../domain/projects/processes.ts';
import { type InstanceRecord, ownLabel } from '../domain/deployments/instance.ts';
import type { Choice, Question } from '../domain/nodes/placement.ts';
import { refusalText } from '../domain/nodes/refusal.ts';
import {
  devicesToTake,
  type DeviceLease,
  type DeviceTake,
  type Ending,
  type Freed,
  type Holder,
  isSameHolder,
  machineNeeds,
  type MachineNeeds,
  needsDevices,
  needsRoom,
  type NoDevice,
  NO_ROOM_TAKEN,
  type Room,
  withoutEnding,
} from '../domain/nodes/room.ts';
import { choiceWithoutOld, freedBy, stopFirstText } from '../domain/nodes/stop-first.ts';
import type { NodeFact } from '../domain/deployments/facts.ts';
import type { MemoryTake } from '../domain/deployments/plan.ts';
import { waitingFor } from '../domain/deployments/wait-reason.ts';
import { hasEnded } from '../domain/deployments/rest.ts';
import type { DeploymentRecord, ProjectSettings } from '../domain/platform/records.ts';
import type { Draft } from './plan-draft.ts';
import { isProjectStopped } from './stop.ts';

const runningOf = ({ facts }: Draft): DeploymentRecord | null =>
  facts.live.find((o) => o.status === 'running') ?? null;

/** Returns the containers of the running version that stop before the new one starts. */
export const freedFor = (draft: Draft, d: DeploymentRecord): Freed[] =>
  d.settings.replace === 'recreate' ? freedOf(draft, runningOf(draft)) : [];

/** Returns the containers of a version on the node of its first instance. */
export const freedOf = (draft: Draft, old: DeploymentRecord | null): Freed[] =>
  freedEverywhere(draft, old).filter(({ node_id }) => node_id === old?.node_id);

/** Returns the containers of a version on all its nodes. One that rests holds no memory. */
export function freedEverywhere(draft: Draft, old: DeploymentRecord | null): Freed[] {
  if (old === null) return [];
  return freedBy(old, draft.instances(old), hasEnded(old, old.health));
}

/** Room that counts as free for an instance although it is held now. */
type FreeSoon = {
  freed?: readonly Freed[];
  ending?: readonly Ending[];
  /** The instances of the version that start with it. */
  beside?: readonly PlacedBeside[];
};

/** An instance that has a node and takes its room later in the same plan. */
export type PlacedBeside = { node_id: string; settings: ProjectSettings };

export const machineOf = (
  draft: Draft,
  d: DeploymentRecord,
  freed: readonly Freed[],
): MachineNeeds | null => machineOfFirst(draft, d, { freed });

export const machineOfFirst = (
  draft: Draft,
  d: DeploymentRecord,
  { freed = [], ending = [] }: FreeSoon,
): MachineNeeds | null =>
  machineNeeds(webSettings(d.settings), withoutEnding(roomWithPlan(draft), ending), {
    own: firstOf(d),
    freed,
  });

/** The container of the first instance gets no label of an instance when it starts. */
const firstOf = ({ id }: DeploymentRecord): Holder => ({ deployment_id: id, instance_id: null });

/**
 * Returns the needs of a further instance. A device that another container of its
 * deployment may still have is not free for it: the removal of that container frees the device.
 */
export const machineOfOther = (
  draft: Draft,
  d: DeploymentRecord,
  { freed = [], ending = [], beside = [] }: FreeSoon = {},
): MachineNeeds | null => {
  const room = withoutEnding(roomWithPlan(draft), ending);
  return machineNeeds(webSettings(d.settings), withPlaced(draft, room, beside, freed), {
    own: null,
    freed,
  });
};

/** Returns the room with the memory and the devices that these instances will take. */
function withPlaced(
  draft: Draft,
  room: Room,
  beside: readonly PlacedBeside[],
  freed: readonly Freed[],
): Room {
  let { leases } = room;
  const memory = new Map(room.memory);
  beside.forEach(({ node_id, settings }, i) => {
    memory.set(node_id, (memory.get(node_id) ?? 0) + (settings.memory_bytes ?? 0));
    const node = draft.node(node_id);
    const needs = machineNeeds(settings, { memory, leases }, { own: null, freed });
    if (node === undefined || needs === null || !needsDevices(settings)) return;
    const holder = { deployment_id: `beside-${i}`, instance_id: null };
    const takes = devicesToTake(node, holder, needs, { leases, freed });
    if ('kind' in takes) return;
    leases = [...leases, ...takes.map(({ replaces: _, ...lease }) => leaseOf(lease))];
  });
  return { ...room, memory, leases };
}

const leaseOf = (take: Omit<DeviceTake, 'replaces'>): DeviceLease => {
  const { deployment_id, instance_id } = take;
  return { ...take, holders: [{ deployment_id, instance_id }] };
};

/** Returns what is held, with what other instances take and free in this plan. */
function roomWithPlan({ facts, plan }: Draft): Room {
  const { takeMemory: bytes = [], takeDevices: takes = [], freeDevices = [] } = plan;
  const freed = freeDevices.map((one) => ({ ...one, bytes: 0 }));
  const room = withoutEnding(facts.room ?? NO_ROOM_TAKEN, freed);
  if (bytes.length === 0 && takes.length === 0) return room;
  const memory = new Map(room.memory);
  for (const take of bytes) memory.set(take.node_id, (memory.get(take.node_id) ?? 0) + take.bytes);
  const taken = takes.map(({ replaces: _, ...lease }) => leaseOf(lease));
  return { memory, leases: [...room.leases, ...taken] };
}

/** A place that is free when containers of the running version have ended. */
export type PlaceWithoutOld = {
  choice: Choice;
  old: DeploymentRecord;
  freed: Freed[];
  /** Why its node has no room now, for people. */
  why: string;
};

/**
 * Returns the choice of the node of the running version, if only that version is in the way;
 * otherwise null. Then the old version stops first, or the deployment is refused (`mustRoll`).
 */
export function placeWithoutOld(
  draft: Draft,
  d: DeploymentRecord,
  question: Question,
): PlaceWithoutOld | null {
  const { facts } = draft;
  const old = runningOf(draft);
  const node = draft.node(old?.node_id ?? null);
  if (old === null || node === undefined) return null;
  if (d.settings.replace === 'recreate' || isProjectStopped(draft)) return null;
  const freed = freedOf(draft, old);
  const machine = machineOf(draft, d, freed);
  const place = choiceWithoutOld(question, { node, machine }, facts.nodes, facts);
  return place === null ? null : { ...place, old, freed };
}

/** Returns whether a person has set `replace: rolling`, so that no version may stop first. */
export const mustRoll = ({ facts }: Draft, d: DeploymentRecord): boolean =>
  facts.project.replace_set && d.settings.replace === 'rolling';

/** Returns the running version if its room may be in the way of further instances; else null. */
export function needsOldRoom(draft: Draft, d: DeploymentRecord): DeploymentRecord | null {
  return needsRoom(webSettings(d.settings)) && !isProjectStopped(draft) ? runningOf(draft) : null;
}

/** Says in the stories that the old version stops before the new one starts. */
export function addStopFirst(
  draft: Draft,
  d: DeploymentRecord,
  { old, why }: { old: DeploymentRecord; why: string },
): void {
  draft.addLine(d, 'stopped_first', stopFirstText(why));
  if (old.stopped_first !== null) return;
  draft.set(old, {
    stopped_first: 'asked',
    ...waitingFor({ kind: 'asked_to_stop', generation: d.generation }),
  });
  draft.addLine(
    old,
    'stopped_first',
    `asked to stop before deployment ${d.generation} starts: there is no room for both`,
  );
}

/** Adds to the plan what the deployment takes of the node. Returns the devices. */
export function takeRoom(
  draft: Draft,
  d: DeploymentRecord,
  node: NodeFact,
  freed: readonly Freed[],
): DeviceTake[] {
  const machine = machineOf(draft, d, freed);
  if (machine === null || !needsRoom(webSettings(d.settings))) return [];
  const { limits, room = NO_ROOM_TAKEN } = draft.facts;
  const freedHere = freed.filter(({ node_id }) => node_id === node.id);
  if (machine.memory !== null && node.memory_bytes !== null)
    takeMemory(draft, {
      node_id: node.id,
      bytes: machine.memory,
      most: Math.floor(node.memory_bytes * limits.memoryOvercommit),
      // The deployment has no node yet: its containers that still end here count.
      without: freedHere.map(({ id }) => id),
    });
  return takeDevices(
    draft,
    node,
    devicesToTake(node, firstOf(d), machine, {
      leases: room.leases,
      freed: freedHere,
    }),
  );
}

/**
 * Adds to the plan the devices of a version whose container is created again on its own node, or
 * returns why it cannot have them. Those that it had are free for it. Its memory counts already.
 */
export function takeDevicesAgain(
  draft: Draft,
  d: DeploymentRecord,
  node: NodeFact,
): DeviceTake[] | NoDevice {
  const { room = NO_ROOM_TAKEN } = draft.facts;
  // Its container is gone, so its leases end first: the new container may have another label.
  const own = { deployment_id: d.id, instance_id: ownLabel(d), node_id: node.id };
  const present = withoutEnding(roomWithPlan(draft), [{ ...own, bytes: 0 }]);
  const machine = machineNeeds(webSettings(d.settings), present, { own: null, freed: [] });
  if (machine === null || !needsDevices(d.settings)) return [];
  const takes = devicesToTake(node, firstOf(d), machine, { leases: room.leases, freed: [] });
  if ('kind' in takes) return takes;
  freeRoom(draft, d, node.id);
  return takeDevices(draft, node, takes);
}

/** Adds to the plan the devices on a node that placement chose. */
function takeDevices(
  draft: Draft,
  { hostname }: Pick<NodeFact, 'hostname'>,
  takes: DeviceTake[] | NoDevice,
): DeviceTake[] {
  // Placement counts the same devices, so this is a bug in the flow. The container must not start
  // without its devices.
  if ('kind' in takes)
    throw new Error(`${hostname} ${refusalText(takes)}, although placement chose it`);
  if (takes.length > 0) draft.plan.takeDevices = [...(draft.plan.takeDevices ?? []), ...takes];
  return takes;
}

/** Adds to the plan what a further instance takes of its node. Returns the devices. */
export function takeRoomOfOther(
  draft: Draft,
  d: DeploymentRecord,
  { id: instance_id }: Pick<InstanceRecord, 'id'>,
  node: NodeFact,
): DeviceTake[] {
  const machine = machineOfOther(draft, d);
  if (machine === null || !needsRoom(webSettings(d.settings))) return [];
  const { limits, room = NO_ROOM_TAKEN } = draft.facts;
  if (machine.memory !== null && node.memory_bytes !== null)
    takeMemory(draft, {
      node_id: node.id,
      bytes: machine.memory,
      most: Math.floor(node.memory_bytes * limits.memoryOvercommit),
      without: [],
    });
  return takeDevices(
    draft,
    node,
    devicesToTake(node, { deployment_id: d.id, instance_id }, machine, {
      leases: room.leases,
      freed: [],
    }),
  );
}

/** Instances that start on one node in one plan take their memory together. */
function takeMemory(draft: Draft, take: MemoryTake): void {
  const { takeMemory: before = [] } = draft.plan;
  const there = before.find(({ node_id }) => node_id === take.node_id);
  draft.plan.takeMemory =
    there === undefined
      ? [...before, take]
      : before.map((one) =>
          one === there
            ? {
                ...one,
                bytes: one.bytes + take.bytes,
                without: [...new Set([...one.without, ...take.without])],
              }
            : one,
        );
}

/** Frees the devices of the first instance of a deployment, whose container is gone from its node. */
export function freeRoom(draft: Draft, d: DeploymentRecord, nodeId: string | null): void {
  if (nodeId !== null) freeDevicesOf(draft, d, nodeId, ownLabel(d));
}

/** Frees the devices of an instance by its label: its container is gone from the node. */
export function freeDevicesOf(
  draft: Draft,
  { id: deployment_id, settings }: DeploymentRecord,
  node_id: string,
  instance_id: string | null,
): void {
  if (!needsDevices(settings)) return;
  const freed = draft.plan.freeDevices ?? [];
  draft.plan.freeDevices = [...freed, { node_id, deployment_id, instance_id }];
}

/**
 * Says which devices a further instance keeps on the node where it did not start: its container may
 * still exist there.
 */
export function addKeptDevices(
  draft: Draft,
  d: DeploymentRecord,
  { id, number, node_id }: Pick<InstanceRecord, 'id' | 'number' | 'node_id'>,
): void {
  const own: Holder = { deployment_id: d.id, instance_id: id };
  const kept = (draft.facts.room?.leases ?? [])
    .filter((lease) => lease.node_id === node_id && isSameHolder(lease, own))
    .map(({ kind, name }) => `${kind}=${name}`);
  if (kept.length === 0) return;
  const node = draft.node(node_id)?.hostname ?? 'a deleted node';
  draft.addLine(
    d,
    'instance',
    `${kept.join(', ')} on ${node} ${kept.length === 1 ? 'stays' : 'stay'} reserved for instance ` +
      `${number} until ${node} lists no container of it`,
  );
}
