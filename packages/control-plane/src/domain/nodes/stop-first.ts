/**
 * Decides whether a new version has room only if the running version stops before it starts. The
 * deployment (flow/room.ts) and the preview of its placement both use it. Pure.
 */
import type { NodeRecord, ProjectSettings } from '../platform/records.ts';
import { webSettings } from '../projects/processes.ts';
import { choose, type Choice, type PlacementContext, type Question } from './placement.ts';
import { isNoSpace, refusalText } from './refusal.ts';
import type { Freed, MachineNeeds } from './room.ts';

/** The node of the running version, and the needs of the new one when that version has stopped. */
type OldPlace = { node: NodeRecord; machine: MachineNeeds | null };

/**
 * Returns the choice of the node of the running version, if only that version is in the way;
 * otherwise null. `why`: why its node has no room now, for people.
 */
export function choiceWithoutOld(
  question: Question,
  { node, machine }: OldPlace,
  nodes: readonly NodeRecord[],
  context: PlacementContext,
): { choice: Choice; why: string } | null {
  // A contract-only agent stops the old version itself.
  if (node.agent_version === null) return null;
  const [refused] = choose(question, [node], context).refusals.named;
  if (refused === undefined || !isNoSpace(refused.refusal)) return null;
  const choice = choose({ ...question, machine }, nodes, context);
  if (choice.placement.winner !== node.id) return null;
  return { choice, why: `${node.hostname} ${refusalText(refused.refusal)}` };
}

/** Says what happens, in the story and in the preview. */
export const stopFirstText = (why: string): string =>
  `stop-first: the old version stops before the new one starts, because ${why}`;

type Version = {
  id: string;
  node_id: string | null;
  settings: Pick<ProjectSettings, 'memory_bytes' | 'cpus' | 'processes'>;
};

/**
 * Returns the containers of a version on all its nodes. `rests`: its first one has stopped already,
 * so it holds no memory.
 */
export function freedBy(
  { id, node_id: home, settings }: Version,
  others: readonly { node_id: string | null }[],
  rests = false,
): Freed[] {
  const freed = new Map([[home, rests ? 0 : 1]]);
  for (const { node_id } of others)
    if (node_id !== null) freed.set(node_id, (freed.get(node_id) ?? 0) + 1);
  const own = webSettings(settings);
  return [...freed].map(([node_id, containers]) => ({ id, node_id, containers, settings: own }));
}
