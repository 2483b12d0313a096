/**
 * Decides where the instances of a new version get room while the running version serves (flow/room.ts).
 *
 *   a node has room beside the running version              ──▶ it starts there
 *   containers of the project that are ending have the room ──▶ it waits for them
 *   only the running version has the room                   ──▶ that version stops first; further instances start after it
 *   else                                                    ──▶ it waits for a node
 *
 * Pure.
 */
import type { NodeFact } from '../domain/deployments/facts.ts';
import type { RoomEnds } from '../domain/deployments/wait-reason.ts';
import { type Choice, choose, type Question } from '../domain/nodes/placement.ts';
import type { Ending, MachineNeeds } from '../domain/nodes/room.ts';
import { endingOf, roomEnds } from '../domain/nodes/room-ends.ts';
import type { DeploymentRecord } from '../domain/platform/records.ts';
import { placeOthers } from './instances.ts';
import type { Draft } from './plan-draft.ts';
import {
  freedEverywhere,
  freedFor,
  machineOfFirst,
  machineOfOther,
  needsOldRoom,
  placeWithoutOld,
  type PlaceWithoutOld,
} from './room.ts';

type PlaceOfFirst =
  | { kind: 'without_old'; place: PlaceWithoutOld }
  | { kind: 'room_ends'; reason: RoomEnds }
  | { kind: 'none' };

/** Returns where the first instance gets room, if no node has it now. */
export function placeOfFirst(draft: Draft, d: DeploymentRecord, question: Question): PlaceOfFirst {
  const fits = (machine: MachineNeeds | null): boolean =>
    choose({ ...question, machine }, draft.facts.nodes, draft.facts).placement.winner !== null;
  const ending = endingHere(draft);
  if (ending.length > 0 && fits(machineOfFirst(draft, d, { freed: freedFor(draft, d), ending })))
    return { kind: 'room_ends', reason: reasonOf(draft, ending) };
  const place = placeWithoutOld(draft, d, question);
  return place === null ? { kind: 'none' } : { kind: 'without_old', place };
}

type PlacesOfOthers =
  | { kind: 'now'; choices: readonly Choice[] }
  /** The instances without a node start after the containers of the running version have ended. */
  | { kind: 'after_old'; choices: readonly Choice[]; lacking: Choice; old: DeploymentRecord }
  | { kind: 'room_ends'; reason: RoomEnds }
  | { kind: 'none'; lacking: Choice };

/** Returns where the further instances get room; the first one goes to `first`. */
export function placesOfOthers(
  draft: Draft,
  d: DeploymentRecord,
  question: Question,
  first: NodeFact,
): PlacesOfOthers {
  const placed = (machine: MachineNeeds | null): ReturnType<typeof placeOthers> =>
    placeOthers(draft, d, { ...question, machine }, first);
  const freed = freedFor(draft, d);
  const { choices, lacking } = placed(machineOfOther(draft, d, { freed }));
  if (lacking === null) return { kind: 'now', choices };
  const ending = endingHere(draft);
  if (ending.length > 0 && placed(machineOfOther(draft, d, { freed, ending })).lacking === null)
    return { kind: 'room_ends', reason: reasonOf(draft, ending) };
  const old = needsOldRoom(draft, d);
  if (old === null) return { kind: 'none', lacking };
  const afterOld = placed(machineOfOther(draft, d, { freed: freedEverywhere(draft, old) }));
  return afterOld.lacking === null
    ? { kind: 'after_old', choices, lacking, old }
    : { kind: 'none', lacking };
}

/** Returns the containers of the project that are ending: their room is free soon. */
function endingHere(draft: Draft): readonly Ending[] {
  const { project, live, room = {} } = draft.facts;
  return endingOf(
    project.id,
    room,
    live.map((d) => ({ ...d, instances: draft.instances(d) })),
  );
}

const reasonOf = (draft: Draft, ending: readonly Ending[]): RoomEnds =>
  roomEnds(ending, (id) => draft.node(id)?.hostname);
