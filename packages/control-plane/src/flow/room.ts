/**
 * Decides what a deployment takes of a node: memory and devices. Two versions need room for both.
 * If no node has it, and the node of the running version would have it without that version, the
 * deployment becomes stop-first: the story says so, the agent stops the old version before it
 * starts the new one, and the old one starts again if the new one fails. If only instances beside
 * the first one lack room, they start after the switch. With `replace: rolling` set by a person, the
 * deployment is refused instead. Pure.
 */
import { type InstanceRecord, ownLabel } from '../domain/deployments/instance.ts';
import { choose, type Choice, type Question } from '../domain/nodes/placement.ts';
import { isNoSpace, refusalText } from '../domain/nodes/refusal.ts';
import {
  devicesToTake,
  type DeviceLease,
  type DeviceTake,
  type Freed,
  type Holder,
  machineNeeds,
  type MachineNeeds,
  needsDevices,
  needsRoom,
  NO_ROOM_TAKEN,
} from '../domain/nodes/room.ts';
import type { NodeFact } from '../domain/deployments/facts.ts';
import type { MemoryTake } from '../domain/deployments/plan.ts';
import { waitingFor } from '../domain/deployments/wait-reason.ts';
import type { DeploymentRecord } from '../domain/platform/records.ts';
import { type Draft, isBerthAgent } from './plan-draft.ts';
import { isAtRest, isProjectStopped } from './stop.ts';

const runningOf = ({ facts }: Draft): DeploymentRecord | null =>
  facts.live.find((o) => o.status === 'running') ?? null;

/** Returns the containers of the running version that stop before the new one starts. */
export const freedFor = (draft: Draft, d: DeploymentRecord): Freed[] =>
  d.settings.replace === 'recreate' ? freedOf(draft, runningOf(draft)) : [];

/** Returns the containers of a version on the node of its first instance. */
export const freedOf = (draft: Draft, old: DeploymentRecord | null): Freed[] =>
  freedEverywhere(draft, old).filter(({ node_id }) => node_id === old?.node_id);

/** Returns the containers of a version on all its nodes. One that rests holds no memory. */
function freedEverywhere(draft: Draft, old: DeploymentRecord | null): Freed[] {
  if (old === null) return [];
  const first = old.stopped_first === 'stopped' && isAtRest(old) ? 0 : 1;
  const freed = new Map([[old.node_id, first]]);
  for (const { node_id } of draft.instances(old))
    if (node_id !== null) freed.set(node_id, (freed.get(node_id) ?? 0) + 1);
  const { id, settings } = old;
  return [...freed].map(([node_id, containers]) => ({ id, node_id, containers, settings }));
}

export const machineOf = (
  draft: Draft,
  d: DeploymentRecord,
  freed: readonly Freed[],
): MachineNeeds | null => machineNeeds(d.settings, roomWithPlan(draft), { own: firstOf(d), freed });

/** The container of the first instance gets no label of an instance when it starts. */
const firstOf = ({ id }: DeploymentRecord): Holder => ({ deployment_id: id, instance_id: null });

/**
 * Returns the needs of a further instance. A device that another container of its
 * deployment may still have is not free for it: the removal of that container frees the device.
 */
export const machineOfOther = (
  draft: Draft,
  d: DeploymentRecord,
  freed: readonly Freed[] = [],
): MachineNeeds | null => machineNeeds(d.settings, roomWithPlan(draft), { own: null, freed });

/** Returns what is held, with what other instances take in this plan. */
function roomWithPlan({ facts, plan: { takeMemory: bytes = [], takeDevices: takes = [] } }: Draft) {
  const room = facts.room ?? NO_ROOM_TAKEN;
  if (bytes.length === 0 && takes.length === 0) return room;
  const memory = new Map(room.memory);
  for (const take of bytes) memory.set(take.node_id, (memory.get(take.node_id) ?? 0) + take.bytes);
  const taken = takes.map(({ replaces: _, ...lease }): DeviceLease => {
    const { deployment_id, instance_id } = lease;
    return { ...lease, holders: [{ deployment_id, instance_id }] };
  });
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
  if (old === null || node === undefined || !isBerthAgent(node)) return null;
  if (d.settings.replace === 'recreate' || isProjectStopped(draft)) return null;
  const [refused] = choose(question, [node], facts).refusals.named;
  if (refused === undefined || !isNoSpace(refused.refusal)) return null;
  const freed = freedOf(draft, old);
  const choice = choose({ ...question, machine: machineOf(draft, d, freed) }, facts.nodes, facts);
  if (choice.placement.winner !== node.id) return null;
  return { choice, old, freed, why: `${node.hostname} ${refusalText(refused.refusal)}` };
}

/** Returns whether a person has set `replace: rolling`, so that no version may stop first. */
export const mustRoll = ({ facts }: Draft, d: DeploymentRecord): boolean =>
  facts.project.replace_set && d.settings.replace === 'rolling';

/**
 * Returns the running version if all instances of the new one have a place without it; else null.
 * Its containers end after the switch, and the instances that lack room now start then.
 */
export function oldInTheWay(
  draft: Draft,
  d: DeploymentRecord,
  lacksRoom: (machine: MachineNeeds | null) => boolean,
): DeploymentRecord | null {
  const old = runningOf(draft);
  if (old === null || !needsRoom(d.settings) || isProjectStopped(draft)) return null;
  return lacksRoom(machineOfOther(draft, d, freedEverywhere(draft, old))) ? null : old;
}

/** Says in the stories that the old version stops before the new one starts. */
export function addStopFirst(
  draft: Draft,
  d: DeploymentRecord,
  { old, why }: { old: DeploymentRecord; why: string },
): void {
  draft.addLine(
    d,
    'stopped_first',
    `there is no room for two versions, so deployment ${old.generation} stops before this one ` +
      `starts: ${why}`,
  );
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
  if (machine === null || !needsRoom(d.settings)) return [];
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
    devicesToTake(node, firstOf(d), machine, {
      leases: room.leases,
      freed: freedHere,
    }),
  );
}

/**
 * Adds to the plan the devices of a version whose container is created again on its own node. Those
 * that it had are free for it. Its memory counts already.
 */
export function takeDevicesAgain(draft: Draft, d: DeploymentRecord, node: NodeFact): DeviceTake[] {
  const { room = NO_ROOM_TAKEN } = draft.facts;
  const own: Holder = { deployment_id: d.id, instance_id: ownLabel(d) };
  const machine = machineNeeds(d.settings, roomWithPlan(draft), { own, freed: [] });
  if (machine === null || !needsDevices(d.settings)) return [];
  return takeDevices(
    draft,
    devicesToTake(node, firstOf(d), machine, { leases: room.leases, freed: [] }),
  );
}

function takeDevices(draft: Draft, takes: DeviceTake[]): DeviceTake[] {
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
  if (machine === null || !needsRoom(d.settings)) return [];
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
  if (nodeId === null || !needsDevices(d.settings)) return;
  draft.plan.freeDevices = [
    ...(draft.plan.freeDevices ?? []),
    { node_id: nodeId, deployment_id: d.id, instance_id: ownLabel(d) },
  ];
}
