/**
 * Chooses the node for a deployment by the score of docs/contract.md "Scheduling score", and gives
 * a reason for each refused node. Pure.
 *
 *   countCopies   counts the wanted datasets on each node (dataset-copies.ts)
 *     ▼
 *   scoreNodes    computes the score of each node
 *     ▼
 *   refuseNodes   finds the first check of `checksOf` that refuses each node (refusal.ts)
 *     ▼
 *   winnerOf      returns the best node that no check refuses
 */
import { defined } from '@berth/kit/defined';
import type { Placement, PlacementRow } from '@berth/wire/node';
import { lack, type Need } from './build-needs.ts';
import { countCopies, type DatasetCopies, type Wanted } from './dataset-copies.ts';
import {
  countReasons,
  MAX_NAMED,
  plainRefusalText,
  type Refusal,
  refusalText,
  type Refusals,
} from './refusal.ts';
import { labelOf } from './machine.ts';
import { freeDevices, type Held, type MachineNeeds, NOTHING_HELD } from './room.ts';
import type { Facts, Limits } from '../deployments/facts.ts';
import type { NodeLoss, NodeRecord } from '../platform/records.ts';

/**
 * Returns whether the node reported recently. A time in the future (the clock was set back since)
 * does not count as recent.
 */
export const isOnline = (
  node: Pick<NodeRecord, 'last_seen_at'>,
  now: number,
  limits: Pick<Limits, 'offlineMs'>,
): boolean => Math.abs(now - node.last_seen_at) <= limits.offlineMs;

export type Question = {
  wanted: readonly Wanted[];
  /** Nodes that have lost this deployment. */
  losses: readonly NodeLoss[];
  /** The node that runs the project now. It wins if scores are equal, because it has the image. */
  runsOn: string | null;
  /**
   * True for a stop-first project: it stays on its node unless that node is refused, because a move
   * must stop the old version first.
   */
  stays: boolean;
  /** Architecture of the image in Go’s names, or null if unknown. */
  arch: string | null;
  /** Capabilities of the agent that the deployment needs. */
  needs: readonly Need[];
  /** The node that has the project's volumes; null or absent: any node is possible. */
  home?: string | null;
  /** Labels, architecture, memory and devices that the deployment needs; null or absent: none. */
  machine?: MachineNeeds | null;
};

export const QUESTION: Question = {
  wanted: [],
  losses: [],
  runsOn: null,
  stays: false,
  arch: null,
  needs: [],
};

/** `cacheIndex`: shared by all calls in a process, so that rows of unchanged nodes are reused. */
export type PlacementContext = Pick<Facts, 'now' | 'limits' | 'cacheIndex' | 'overdue'>;

// ── score ────────────────────────────────────────────────────────────────────────────────────────

type Terms = Pick<PlacementRow, 'cached_dataset_count' | 'missing_bytes' | 'free_storage_bytes'>;
/**
 * `cached_dataset_count * 10 - missing_bytes * 0.000001 + free_storage_bytes * 0.0000001`
 * (docs/contract.md "Scheduling score").
 */
export const score = (t: Terms, w: Limits['weights']): number =>
  t.cached_dataset_count * w.cached - t.missing_bytes * w.missing + t.free_storage_bytes * w.free;

/** Returns the reported free storage, or the capacity if the node never reported it. */
export const freeStorage = (node: Pick<NodeRecord, 'free_storage' | 'max_storage'>): number =>
  node.free_storage ?? node.max_storage;

function scoreNodes(
  nodes: readonly NodeRecord[],
  copies: DatasetCopies,
  weights: Limits['weights'],
): Float64Array {
  const scores = new Float64Array(nodes.length);
  // One object for all nodes: an object for each of 10,000 nodes costs more than the score.
  const terms = { cached_dataset_count: 0, missing_bytes: 0, free_storage_bytes: 0 };
  for (let i = 0; i < nodes.length; i++) {
    terms.cached_dataset_count = copies.counts[i] as number;
    terms.missing_bytes = copies.missing[i] as number;
    terms.free_storage_bytes = freeStorage(nodes[i] as NodeRecord);
    scores[i] = score(terms, weights);
  }
  return scores;
}

// ── refusals ─────────────────────────────────────────────────────────────────────────────────────

/** Returns why the node cannot take work now, or null. */
export function refusalOf(
  node: NodeRecord,
  losses: readonly NodeLoss[],
  now: number,
  limits: Limits,
): Refusal | null {
  if (node.deleting_at !== null) return { kind: 'being_deleted' };
  if (!node.schedulable) return { kind: isDraining(node) ? 'draining' : 'cordoned' };
  if (!isOnline(node, now, limits)) return { kind: 'offline', since: node.last_seen_at };
  if (node.engine?.ok === false) return { kind: 'engine_down', error: node.engine.error };
  return losses.length === 0 ? null : refusalOfLosses(node, losses, now);
}

const isDraining = ({ drain }: NodeRecord): boolean => drain !== null && drain.finished_at === null;

function refusalOfLosses(
  node: NodeRecord,
  losses: readonly NodeLoss[],
  now: number,
): Refusal | null {
  const losesHere = losses.filter((loss) => loss.node_id === node.id);
  if (losesHere.some((loss) => loss.error !== undefined)) return { kind: 'failed_itself' };
  const last = losesHere.at(-1);
  // If `at` is in the future, the machine's clock was set back since: the time cannot be compared
  // with last_seen_at.
  return last !== undefined && last.at <= now && node.last_seen_at <= last.at
    ? { kind: 'still_silent' }
    : null;
}

/** Returns whether every otherwise eligible node of the role has a broken container engine. */
export function lackEngines(
  nodes: readonly NodeRecord[],
  role: NodeRecord['role'],
  now: number,
  limits: Limits,
): boolean {
  const kinds = nodes
    .filter((node) => node.role === role)
    .map((node) => refusalOf(node, [], now, limits)?.kind ?? null);
  return kinds.includes('engine_down') && !kinds.includes(null);
}

/**
 * Returns why a node cannot take the deployment, or null. `position`: position of the node in the
 * list.
 */
type Check = (node: NodeRecord, position: number) => Refusal | null;

/**
 * Returns the checks in order; the first refusal counts. A check that cannot refuse for this
 * question is left out, because each check runs for each of 10,000 nodes.
 */
function checksOf(
  question: Question,
  copies: DatasetCopies,
  { now, limits }: PlacementContext,
): readonly Check[] {
  const { losses, home = null, arch, needs, machine = null } = question;
  const checks: Check[] = [
    (node) => (node.role === 'deploy' ? null : { kind: 'builder' }),
    (node) => refusalOf(node, losses, now, limits),
  ];
  if (home !== null) checks.push((node) => withoutVolumes(node, home));
  if (arch !== null) checks.push((node) => otherArch(node, arch));
  if (needs.length > 0) checks.push((node) => lack(node, needs));
  if (copies.isStuck) checks.push((_, position) => withoutDataset(copies, position));
  checks.push(...machineChecks(machine, limits), (node, position) =>
    noRoom(node, copies, position),
  );
  return checks;
}

function machineChecks(machine: MachineNeeds | null, limits: Limits): readonly Check[] {
  if (machine === null) return [];
  // Read once and not for each node, because there can be 10,000 nodes.
  const labels = Object.entries(machine.requires.labels ?? {}).map(([label, required]) => ({
    label,
    required,
    equal: new Map<string | null, Refusal>(),
  }));
  const devices = Object.entries(machine.requires.devices ?? {});
  const { arch } = machine.requires;
  const checks: Check[] = [];
  if (labels.length > 0) checks.push((node) => withoutLabel(node, labels));
  if (arch !== undefined) checks.push((node) => withoutArch(node, arch));
  if (machine.memory !== null || devices.length > 0)
    checks.push((node) => withoutRoom(node, machine, devices, limits));
  return checks;
}

/**
 * Refuses the nodes whose agents are silent, while another node can take the deployment. A project
 * that stays on its node is tied to it.
 */
function refuseOverdue(
  { stays, runsOn }: Question,
  nodes: readonly NodeRecord[],
  refusals: readonly (Refusal | null)[],
  overdue: ReadonlySet<string>,
): readonly (Refusal | null)[] {
  const isOverdue = (position: number): boolean => {
    const id = nodes[position]?.id ?? '';
    return overdue.has(id) && !(stays && id === runsOn);
  };
  if (!refusals.some((refusal, position) => refusal === null && !isOverdue(position)))
    return refusals;
  return refusals.map((refusal, position) =>
    refusal === null && isOverdue(position) ? OVERDUE : refusal,
  );
}

const OVERDUE: Refusal = { kind: 'overdue' };

const refuseNodes = (nodes: readonly NodeRecord[], checks: readonly Check[]): (Refusal | null)[] =>
  nodes.map((node, position) => firstRefusal(checks, node, position));

function firstRefusal(
  checks: readonly Check[],
  node: NodeRecord,
  position: number,
): Refusal | null {
  for (const check of checks) {
    const refusal = check(node, position);
    if (refusal !== null) return refusal;
  }
  return null;
}

const withoutVolumes = (node: NodeRecord, home: string): Refusal | null =>
  node.id === home ? null : { kind: 'without_volumes' };

/** Refuses the node if both architectures are known and differ. */
const otherArch = ({ arch }: NodeRecord, image: string): Refusal | null =>
  arch === null || arch === image ? null : { kind: 'other_arch', arch, image };

/** `equal`: the refusals so far, by the node's value of the label. */
type RequiredLabel = { label: string; required: string; equal: Map<string | null, Refusal> };

function withoutLabel(node: NodeRecord, labels: readonly RequiredLabel[]): Refusal | null {
  for (const { label, required, equal } of labels) {
    const value = labelOf(node, label);
    if (value === required) continue;
    // Nodes with the same value share one refusal, which makes it cheap to count them.
    const refusal = equal.get(value) ?? { kind: 'other_label', label, required, value };
    equal.set(value, refusal);
    return refusal;
  }
  return null;
}

const withoutArch = ({ arch }: NodeRecord, required: string): Refusal | null =>
  arch === required ? null : { kind: 'not_required_arch', arch, required };

function withoutRoom(
  node: NodeRecord,
  { memory, held }: MachineNeeds,
  devices: readonly (readonly [string, number])[],
  limits: Limits,
): Refusal | null {
  const onNode = held.get(node.id) ?? NOTHING_HELD;
  const refusal = memory === null ? null : withoutMemory(node, memory, onNode, limits);
  if (refusal !== null) return refusal;
  for (const [device, needed] of devices) {
    const free = freeDevices(node, device, onNode).length;
    if (free < needed) return { kind: 'no_device', device, needed, free };
  }
  return null;
}

/**
 * Refuses the node if the memory limits of its containers and of this one exceed its memory. A node
 * that does not report its memory takes every limit.
 */
function withoutMemory(
  { memory_bytes }: NodeRecord,
  needed: number,
  held: Held,
  { memoryOvercommit }: Limits,
): Refusal | null {
  if (memory_bytes === null) return null;
  const free = Math.max(0, Math.floor(memory_bytes * memoryOvercommit) - held.memory);
  return needed <= free ? null : { kind: 'no_memory', needed, free };
}

function withoutDataset(copies: DatasetCopies, position: number): Refusal | null {
  const dataset = copies.unobtainable(position);
  return dataset === null
    ? null
    : { kind: 'without_dataset', dataset: dataset.name, status: dataset.status };
}

function noRoom(node: NodeRecord, copies: DatasetCopies, position: number): Refusal | null {
  const missing = copies.missing[position] as number;
  const free = freeStorage(node);
  if (missing <= free) return null;
  const evictable = copies.evictable(position) + evictableByEngine(node);
  return missing <= free + evictable ? null : { kind: 'no_room', missing, free, evictable };
}

/**
 * Returns the bytes that the agent can free on the disk by evicting images and build cache. The
 * score does not count them as free, because it follows the contract. Evicting them frees no space
 * beyond MAX_STORAGE, against which `free_storage` counts only SVC_ROOT.
 */
function evictableByEngine(node: NodeRecord): number {
  const evictable = node.disk?.evictable;
  if (evictable === undefined || evictable.own_disk !== null) return 0;
  const bytes = evictable.images.reduce((sum, image) => sum + image.bytes, evictable.build_cache);
  const belowLimit = node.max_storage - (node.disk?.datasets ?? 0) - freeStorage(node);
  return Math.max(0, Math.min(bytes, belowLimit));
}

// ── order and winner ─────────────────────────────────────────────────────────────────────────────

/** Compares two nodes by their positions, better first. */
type Order = (a: number, b: number) => number;

/**
 * Orders by score, highest first. If scores are equal: the node that runs the project, then by
 * name, so that the order is deterministic.
 */
const byScore =
  (nodes: readonly NodeRecord[], scores: Float64Array, runsOn: string | null): Order =>
  (a, b) => {
    const higher = (scores[b] as number) - (scores[a] as number);
    if (higher !== 0) return higher;
    const [x, y] = [nodes[a] as NodeRecord, nodes[b] as NodeRecord];
    return (
      Number(y.id === runsOn) - Number(x.id === runsOn) ||
      compare(x.hostname, y.hostname) ||
      compare(x.id, y.id)
    );
  };

function compare(a: string, b: string): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

/** Returns the position of the best eligible node; -1: none is eligible. */
function winnerOf(
  { runsOn, stays }: Question,
  nodes: readonly NodeRecord[],
  refusals: readonly (Refusal | null)[],
  order: Order,
): number {
  let best = -1;
  for (let i = 0; i < nodes.length; i++) {
    if (refusals[i] !== null) continue;
    if (stays && nodes[i]?.id === runsOn) return i;
    if (best === -1 || order(i, best) < 0) best = i;
  }
  return best;
}

/** Result of all steps. Each array has one entry per node, by position. */
type Ranking = {
  nodes: readonly NodeRecord[];
  copies: DatasetCopies;
  scores: Float64Array;
  refusals: readonly (Refusal | null)[];
  order: Order;
  winner: number;
};

function rank(
  question: Question,
  nodes: readonly NodeRecord[],
  context: PlacementContext,
): Ranking {
  const copies = countCopies(question.wanted, nodes, context.cacheIndex);
  const scores = scoreNodes(nodes, copies, context.limits.weights);
  const refused = refuseNodes(nodes, checksOf(question, copies, context));
  const { overdue } = context;
  const refusals =
    overdue === undefined || overdue.size === 0
      ? refused
      : refuseOverdue(question, nodes, refused, overdue);
  const order = byScore(nodes, scores, question.runsOn);
  return {
    nodes,
    copies,
    scores,
    refusals,
    order,
    winner: winnerOf(question, nodes, refusals, order),
  };
}

// ── answers ──────────────────────────────────────────────────────────────────────────────────────

function rowOf({ nodes, copies, scores, refusals }: Ranking, position: number): PlacementRow {
  const node = nodes[position] as NodeRecord;
  const refusal = refusals[position] ?? null;
  const missing_bytes = copies.missing[position] as number;
  return {
    node_id: node.id,
    hostname: node.hostname,
    eligible: refusal === null,
    reason: refusal === null ? null : refusalText(refusal),
    cached_dataset_count: copies.counts[position] as number,
    missing_bytes,
    free_storage_bytes: freeStorage(node),
    score: scores[position] as number,
    estimated_seconds: copySeconds(missing_bytes, node.copy_rate),
  };
}

/**
 * Returns the copy duration in seconds at the node's measured rate; null if the node never copied.
 */
export function copySeconds(bytes: number, rate: number | null): number | null {
  if (bytes === 0) return 0;
  return rate === null ? null : bytes / rate;
}

/** Returns every node with all terms of its score, best first, including builders (as refused). */
export function place(
  question: Question,
  nodes: readonly NodeRecord[],
  context: PlacementContext,
): Placement {
  const ranking = rank(question, nodes, context);
  const positions = Array.from(nodes, (_, position) => position).sort(ranking.order);
  return {
    items: positions.map((position) => rowOf(ranking, position)),
    winner: nodes[ranking.winner]?.id ?? null,
  };
}

/**
 * How further instances spread. `taken`: number of instances of the same process by node. With
 * `nodes`, the nodes with the fewest instances come first; with `pack`, the score alone decides.
 */
export type Spread = {
  mode: 'nodes' | 'pack';
  taken: ReadonlyMap<string, number>;
  /**
   * A node on which another instance starts at the same time; its memory does not count as held
   * yet.
   */
  starting?: string;
};

/**
 * Chooses a node for each of `count` further instances, one after the other. The ranking of the
 * nodes is computed once.
 */
export function chooseMore(
  question: Question,
  nodes: readonly NodeRecord[],
  context: PlacementContext,
  count: number,
  { mode, taken, starting }: Spread,
): Choice[] {
  const ranking = rank(question, nodes, context);
  const instances = new Map(taken);
  // By position: a lookup by id for each of 10,000 nodes and each instance costs more.
  const counts = new Int32Array(nodes.length);
  if (mode === 'nodes')
    for (let i = 0; i < nodes.length; i++) counts[i] = instances.get(nodes[i]?.id ?? '') ?? 0;
  const room = createRoomLeft(question.machine ?? null, nodes, context.limits);
  const refuse = (): Ranking => ({
    ...ranking,
    refusals: refuseFull(ranking, instances, room.full),
  });
  if (starting !== undefined) room.take(nodes.findIndex(({ id }) => id === starting));
  let present = refuse();
  let summary = summaryOf(present);
  return Array.from({ length: count }, () => {
    const winner = leastTaken(present, counts);
    const choice = choiceOf({ ...present, winner }, summary);
    const id = nodes[winner]?.id;
    if (id === undefined) return choice;
    const onNode = (instances.get(id) ?? 0) + 1;
    instances.set(id, onNode);
    if (mode === 'nodes') counts[winner] = onNode;
    if (room.take(winner) || onNode === MAX_INSTANCES_ON_NODE) {
      present = refuse();
      summary = summaryOf(present);
    }
    return choice;
  });
}

/**
 * Counts the memory and devices of the instances that are placed together. `take` returns whether
 * the node became full with this one.
 */
function createRoomLeft(
  machine: MachineNeeds | null,
  nodes: readonly NodeRecord[],
  limits: Limits,
): { full: ReadonlyMap<string, Refusal>; take(position: number): boolean } {
  const full = new Map<string, Refusal>();
  const placed = new Map<string, number>();
  return {
    full,
    take(position) {
      const node = nodes[position];
      if (machine === null || node === undefined || full.has(node.id)) return false;
      const count = (placed.get(node.id) ?? 0) + 1;
      placed.set(node.id, count);
      const refusal = fullWith(machine, node, count, limits);
      if (refusal === null) return false;
      full.set(node.id, refusal);
      return true;
    },
  };
}

/** Returns why the node takes no further instance beside these; null if it does. */
function fullWith(
  { requires, memory, held }: MachineNeeds,
  node: NodeRecord,
  count: number,
  limits: Limits,
): Refusal | null {
  const onNode = held.get(node.id) ?? NOTHING_HELD;
  if (memory !== null) {
    const withThese = { ...onNode, memory: onNode.memory + count * memory };
    const refusal = withoutMemory(node, memory, withThese, limits);
    if (refusal !== null) return refusal;
  }
  for (const [device, needed] of Object.entries(requires.devices ?? {})) {
    const free = freeDevices(node, device, onNode).length - count * needed;
    if (free < needed) return { kind: 'no_device', device, needed, free: Math.max(0, free) };
  }
  return null;
}

/**
 * Maximum number of instances of a version on one node. The network of a project on a node has 13
 * addresses (agent/src/engine/networks.ts), and a new version starts beside the old one.
 */
export const MAX_INSTANCES_ON_NODE = 6;

function refuseFull(
  { nodes, refusals }: Ranking,
  instances: ReadonlyMap<string, number>,
  withoutMemoryLeft: ReadonlyMap<string, Refusal>,
): readonly (Refusal | null)[] {
  const full = new Map<string, Refusal>(withoutMemoryLeft);
  for (const [id, count] of instances)
    if (count >= MAX_INSTANCES_ON_NODE) full.set(id, { kind: 'full_network', instances: count });
  if (full.size === 0) return refusals;
  return refusals.map((refusal, i) => refusal ?? full.get(nodes[i]?.id ?? '') ?? null);
}

/** Returns the position of the best eligible node among those with the fewest instances. */
function leastTaken({ nodes, refusals, order }: Ranking, counts: Int32Array): number {
  let best = -1;
  let fewest = Number.POSITIVE_INFINITY;
  for (let i = 0; i < nodes.length; i++) {
    if (refusals[i] !== null) continue;
    const count = counts[i] as number;
    if (best === -1 || count < fewest || (count === fewest && order(i, best) < 0)) {
      best = i;
      fewest = count;
    }
  }
  return best;
}

export type Choice = {
  /**
   * Placement to store with the deployment: names the chosen node and the best deploy nodes, and
   * counts all further nodes: the eligible nodes, and the refused nodes by reason.
   */
  placement: Placement;
  /** Reasons of the refused deploy nodes. */
  refusals: Refusals;
};

export function choose(
  question: Question,
  nodes: readonly NodeRecord[],
  context: PlacementContext,
): Choice {
  return choiceOf(rank(question, nodes, context));
}

function choiceOf(ranking: Ranking, summary: Summary = summaryOf(ranking)): Choice {
  const { nodes, winner } = ranking;
  const { best, refused } = summary;
  const isAdded = winner !== -1 && !best.includes(winner);
  const named = isAdded ? [...best, winner] : best;
  const eligible = summary.eligible - (isAdded ? 1 : 0);
  const isComplete = eligible === 0 && refused.length === 0;
  return {
    placement: {
      items: named.map((position) => rowOf(ranking, position)),
      winner: nodes[ranking.winner]?.id ?? null,
      ...defined({ left_out: isComplete ? undefined : { eligible, refused: byText(refused) } }),
    },
    refusals: {
      named: named.flatMap((position) => {
        const refusal = ranking.refusals[position] ?? null;
        const hostname = nodes[position]?.hostname ?? '';
        return refusal === null ? [] : [{ hostname, refusal }];
      }),
      others: refused,
    },
  };
}

/** The part of a choice that does not depend on the winner, so further instances share it. */
type Summary = {
  /** Positions of the best deploy nodes, best first. */
  best: readonly number[];
  /** Number of the other nodes that can take the deployment. */
  eligible: number;
  /** Reasons of the other nodes that are refused. */
  refused: Refusals['others'];
};

function summaryOf(ranking: Ranking): Summary {
  const best = bestOf(ranking);
  return { best, ...countOthers(ranking, new Set(best)) };
}

function bestOf({ nodes, order }: Ranking): readonly number[] {
  const best: number[] = [];
  for (let i = 0; i < nodes.length; i++) {
    if (nodes[i]?.role !== 'deploy') continue;
    if (best.length === MAX_NAMED && order(i, best.at(-1) as number) > 0) continue;
    const worse = best.findIndex((other) => order(i, other) < 0);
    best.splice(worse === -1 ? best.length : worse, 0, i);
    if (best.length > MAX_NAMED) best.pop();
  }
  return best;
}

/** Counts the deploy nodes that are not in `named`: eligible nodes, and refused nodes by reason. */
function countOthers(
  { nodes, refusals }: Ranking,
  named: ReadonlySet<number>,
): { eligible: number; refused: Refusals['others'] } {
  const refused: Refusal[] = [];
  let eligible = 0;
  for (let i = 0; i < nodes.length; i++) {
    if (nodes[i]?.role !== 'deploy' || named.has(i)) continue;
    const refusal = refusals[i] ?? null;
    if (refusal === null) eligible += 1;
    else refused.push(refusal);
  }
  return { eligible, refused: countReasons(refused) };
}

const byText = (refused: Refusals['others']): Record<string, number> =>
  Object.fromEntries(refused.map(({ refusal, count }) => [plainRefusalText(refusal), count]));
