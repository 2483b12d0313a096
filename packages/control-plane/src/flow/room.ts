/**
 * Decides what a deployment takes of a node: memory and devices. Two versions need room for both.
 * If no node has it, and the node of the running version would have it without that version, the
 * deployment becomes stop-first: the story says so, the agent stops the old version before it
 * starts the new one, and the old one starts again if the new one fails. With `replace: rolling`
 * set by a person, the deployment waits instead. Pure.
 */
import { choose, type Choice, type Question } from '../domain/nodes/placement.ts';
import { isNoSpace, refusalText } from '../domain/nodes/refusal.ts';
import {
  devicesToTake,
  type DeviceTake,
  type Freed,
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
import { isProjectStopped } from './stop.ts';

const runningOf = ({ facts }: Draft): DeploymentRecord | null =>
  facts.live.find((o) => o.status === 'running') ?? null;

/**
 * Returns the running version if its container has stopped before the new one starts, else null.
 */
export function freedFor(draft: Draft, d: DeploymentRecord): Freed | null {
  const isFreed = d.settings.replace === 'recreate' || isProjectStopped(draft);
  return isFreed ? runningOf(draft) : null;
}

export const machineOf = (
  { facts }: Draft,
  d: DeploymentRecord,
  freed: Freed | null,
): MachineNeeds | null =>
  machineNeeds(d.settings, facts.room ?? NO_ROOM_TAKEN, { own: d.id, freed });

/**
 * Returns the needs of an instance beside the first one. A device that another container of its
 * deployment may still have is not free for it: the removal of that container frees the device.
 */
export const machineOfOther = ({ facts }: Draft, d: DeploymentRecord): MachineNeeds | null =>
  machineNeeds(d.settings, facts.room ?? NO_ROOM_TAKEN, { own: null, freed: null });

/**
 * Returns the choice of the node of the running version, if only that version is in the way;
 * otherwise null.
 */
export function stopFirstChoice(
  draft: Draft,
  d: DeploymentRecord,
  question: Question,
): { choice: Choice; old: DeploymentRecord; why: string } | null {
  const { facts } = draft;
  const old = runningOf(draft);
  const node = draft.node(old?.node_id ?? null);
  if (old === null || node === undefined || !isBerthAgent(node)) return null;
  if (d.settings.replace === 'recreate' || facts.project.replace_set || isProjectStopped(draft))
    return null;
  const [refused] = choose(question, [node], facts).refusals.named;
  if (refused === undefined || !isNoSpace(refused.refusal)) return null;
  const choice = choose({ ...question, machine: machineOf(draft, d, old) }, facts.nodes, facts);
  if (choice.placement.winner !== node.id) return null;
  return { choice, old, why: `${node.hostname} ${refusalText(refused.refusal)}` };
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
  freed: Freed | null,
): DeviceTake[] {
  const machine = machineOf(draft, d, freed);
  if (machine === null || !needsRoom(d.settings)) return [];
  const { limits, room = NO_ROOM_TAKEN } = draft.facts;
  const freedHere = freed?.node_id === node.id ? freed : null;
  if (machine.memory !== null && node.memory_bytes !== null)
    takeMemory(draft, {
      node_id: node.id,
      bytes: machine.memory,
      most: Math.floor(node.memory_bytes * limits.memoryOvercommit),
      without: [d.id, ...(freedHere === null ? [] : [freedHere.id])],
    });
  const takes = devicesToTake(node, d.id, machine, { leases: room.leases, freed: freedHere });
  if (takes.length > 0) draft.plan.takeDevices = takes;
  return takes;
}

/** Adds to the plan what an instance beside the first one takes of its node. Returns the devices. */
export function takeRoomOfOther(draft: Draft, d: DeploymentRecord, node: NodeFact): DeviceTake[] {
  const machine = machineOfOther(draft, d);
  if (machine === null || !needsRoom(d.settings)) return [];
  const { limits, live, room = NO_ROOM_TAKEN } = draft.facts;
  if (machine.memory !== null && node.memory_bytes !== null)
    takeMemory(draft, {
      node_id: node.id,
      bytes: machine.memory,
      most: Math.floor(node.memory_bytes * limits.memoryOvercommit),
      // A deployment that has no node yet gets its first instance in the same plan.
      without: live.some(({ id, status }) => id === d.id && status === 'built') ? [d.id] : [],
    });
  const takes = devicesToTake(node, d.id, machine, { leases: room.leases, freed: null });
  if (takes.length > 0) draft.plan.takeDevices = [...(draft.plan.takeDevices ?? []), ...takes];
  return takes;
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

/** Frees the devices of a deployment whose container is gone from its node. */
export function freeRoom(draft: Draft, d: DeploymentRecord, nodeId: string | null): void {
  if (nodeId === null || !needsDevices(d.settings)) return;
  draft.plan.freeDevices = [
    ...(draft.plan.freeDevices ?? []),
    { node_id: nodeId, deployment_id: d.id },
  ];
}
