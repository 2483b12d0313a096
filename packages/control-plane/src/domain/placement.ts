/**
 * Where a deployment goes: the contract's score ("Scheduling score of each active deploy node"), with the reason beside each node
 * that is refused. One pass over the nodes (domain/cache-index.ts), so that ten thousand of them take milliseconds. Pure but
 * for what it remembers of reports that it has seen before.
 */
import type { Placement, PlacementRow } from '@berth/wire/node';
import { createCacheIndex, type Rows } from './cache-index.ts';
import type { DatasetFact, Limits } from './facts.ts';
import type { NodeLoss, NodeRecord } from './records.ts';
import { bytesText } from './sizes.ts';

/** A time that lies in the future is of a clock that was set back since: such a node is not known to be there until it registers again. */
export const isOnline = (node: Pick<NodeRecord, 'last_seen_at'>, now: number, limits: Pick<Limits, 'offlineMs'>): boolean =>
  Math.abs(now - node.last_seen_at) <= limits.offlineMs;

/** A `dependency` dataset of the project at its present version. */
export type Wanted = Pick<DatasetFact, 'id' | 'name' | 'bytes' | 'status'> & { version: number };

export type Question = {
  wanted: readonly Wanted[];
  /** Nodes that went silent over this deployment. */
  losses: readonly NodeLoss[];
  /** Where it runs now: first among equals, since its image is there. */
  runsOn: string | null;
  /** Replaced stop-first: it stays where it runs as long as that node is not refused, since elsewhere the old one must be stopped before. */
  stays: boolean;
  /** What the image was built for, in Go’s names; null: not known. */
  arch: string | null;
};

export const QUESTION: Question = { wanted: [], losses: [], runsOn: null, stays: false, arch: null };

const BUILDER = 'is a builder';
const OFFLINE = 'is offline';
const ENGINE_DOWN = 'has a container engine that does not answer';
export const NO_ROOM = 'has no room for the data that it lacks';
const NOT_HERE = 'has not the newest version of';

type Terms = Pick<PlacementRow, 'cached_dataset_count' | 'missing_bytes' | 'free_storage_bytes'>;
/** Contract: `cached_dataset_count * 10 - missing_bytes * 0.000001 + free_storage_bytes * 0.0000001`. */
export const score = (t: Terms, w: Limits['weights']): number =>
  t.cached_dataset_count * w.cached - t.missing_bytes * w.missing + t.free_storage_bytes * w.free;

/** Free storage as the node reported it; one that never did is taken at its capacity. */
export const freeStorage = (node: Pick<NodeRecord, 'free_storage' | 'max_storage'>): number => node.free_storage ?? node.max_storage;

/** Why a node can take no work at all now, without what differs from node to node; null when it can. */
function refused(node: NodeRecord, losses: readonly NodeLoss[], now: number, limits: Limits): string | null {
  if (node.deleting_at !== null) return 'is being deleted';
  if (!node.schedulable) return node.drain !== null && node.drain.finished_at === null ? 'is being drained' : 'is cordoned';
  if (!isOnline(node, now, limits)) return OFFLINE;
  if (isEngineDown(node)) return ENGINE_DOWN;
  if (losses.length === 0) return null;
  if (losses.some((l) => l.node_id === node.id && l.error !== undefined)) return 'reported that it could not do this deployment’s work';
  const loss = losses.findLast((l) => l.node_id === node.id);
  // A loss in the future is of before the machine's clock was set back: it says nothing about when the node was seen.
  if (loss !== undefined && loss.at <= now && node.last_seen_at <= loss.at)
    return 'went silent over this deployment and has not been seen since';
  return null;
}

/** Null on either side: nothing to compare. */
const otherArch = (node: Pick<NodeRecord, 'arch'>, arch: string | null): string | null =>
  arch === null || node.arch === null || node.arch === arch ? null : `runs ${node.arch}, and the image is for ${arch}`;

const since = (node: NodeRecord): string => ` since ${new Date(node.last_seen_at).toISOString()}`;

const isEngineDown = (node: Pick<NodeRecord, 'engine'>): boolean => node.engine?.ok === false;
/** Whether every node of the role that could take work, and there is one, has an engine that does not answer. */
export function lackEngines(nodes: readonly NodeRecord[], role: NodeRecord['role'], now: number, limits: Limits): boolean {
  const kinds = nodes.filter((n) => n.role === role).map((n) => refused(n, [], now, limits));
  return kinds.includes(ENGINE_DOWN) && !kinds.includes(null);
}
const engineError = (node: NodeRecord): string =>
  node.engine?.error === null || node.engine?.error === undefined ? '' : `: ${node.engine.error}`;

/** The same in full. */
export function refusal(node: NodeRecord, losses: readonly NodeLoss[], now: number, limits: Limits): string | null {
  const kind = refused(node, losses, now, limits);
  if (kind === ENGINE_DOWN) return kind + engineError(node);
  return kind === OFFLINE ? kind + since(node) : kind;
}

/** What is known of each node after the one pass; `kinds`: why it is refused, null: it is not. */
type Rated = {
  nodes: readonly NodeRecord[];
  evictable: (i: number) => number;
  counts: Int32Array;
  missing: Float64Array;
  scores: Float64Array;
  kinds: (string | null)[];
  /** Of two nodes by their index: the better one first. Equal scores: where it runs, then by name, so that the answer is always the same. */
  order: (a: number, b: number) => number;
  winner: number;
};

const index = createCacheIndex();

/** Bytes of each wanted dataset by its number in the index, -1 for what nobody asks for; and what cannot be copied now. */
function lookup(wanted: readonly Wanted[], rows: Rows | null): { bytesOf: Float64Array; stuck: Stuck[] } {
  if (rows === null) return { bytesOf: new Float64Array(0), stuck: [] };
  const numbered = wanted.map((d) => ({ d, slot: index.slot(d.id, d.version) }));
  const bytesOf = new Float64Array(Math.max(rows.slots, ...numbered.map((n) => n.slot + 1))).fill(-1);
  for (const { d, slot } of numbered) bytesOf[slot] = d.bytes;
  return { bytesOf, stuck: numbered.flatMap(({ d, slot }) => (d.status === 'ok' ? [] : [{ slot, why: notHere(d) }])) };
}

function rate(question: Question, nodes: readonly NodeRecord[], now: number, limits: Limits): Rated {
  const { wanted, losses, runsOn } = question;
  const rows = wanted.length === 0 ? null : index.rows(nodes);
  const { bytesOf, stuck } = lookup(wanted, rows);
  const total = wanted.reduce((sum, d) => sum + d.bytes, 0);
  const n = nodes.length;
  const [missing, scores, counts] = [new Float64Array(n), new Float64Array(n), new Int32Array(n)];
  const kinds: (string | null)[] = [];
  const order = (a: number, b: number): number => {
    const higher = (scores[b] as number) - (scores[a] as number);
    if (higher !== 0) return higher;
    const [x, y] = [nodes[a] as NodeRecord, nodes[b] as NodeRecord];
    return Number(y.id === runsOn) - Number(x.id === runsOn) || compare(x.hostname, y.hostname) || compare(x.id, y.id);
  };
  const evictable = (i: number): number => evictableOn(rows, bytesOf, i);
  let winner = -1;
  let staying = -1;
  for (let i = 0; i < n; i++) {
    const node = nodes[i] as NodeRecord;
    let count = 0;
    let lacks = total;
    if (rows !== null) {
      const end = (rows.start[i] as number) + (rows.length[i] as number);
      for (let k = rows.start[i] as number; k < end; k++) {
        const bytes = bytesOf[rows.data[k] as number] as number;
        if (bytes < 0) continue;
        count += 1;
        lacks -= bytes;
      }
    }
    const free = freeStorage(node);
    counts[i] = count;
    missing[i] = lacks;
    scores[i] = score({ cached_dataset_count: count, missing_bytes: lacks, free_storage_bytes: free }, limits.weights);
    const kind =
      node.role === 'deploy'
        ? (refused(node, losses, now, limits) ??
          otherArch(node, question.arch) ??
          withoutData(stuck, rows, i) ??
          (lacks > free && lacks > free + evictable(i) ? NO_ROOM : null))
        : BUILDER;
    kinds.push(kind);
    if (kind !== null) continue;
    if (winner === -1 || order(i, winner) < 0) winner = i;
    if (question.stays && node.id === runsOn) staying = i;
  }
  return { nodes, evictable, counts, missing, scores, kinds, order, winner: staying === -1 ? winner : staying };
}

type Stuck = { slot: number; why: string };
const withoutData = (stuck: readonly Stuck[], rows: Rows | null, i: number): string | null => {
  if (stuck.length === 0 || rows === null) return null;
  const from = rows.start[i] as number;
  const row = rows.data.subarray(from, from + (rows.length[i] as number));
  return stuck.find(({ slot }) => !row.includes(slot))?.why ?? null;
};

/** Bytes that may go for this deployment: neither pinned nor what it wants itself. */
function evictableOn(rows: Rows | null, bytesOf: Float64Array, i: number): number {
  if (rows === null) return 0;
  let room = rows.evictableTotal[i] as number;
  const end = (rows.start[i] as number) + (rows.length[i] as number);
  for (let k = rows.start[i] as number; k < end; k++)
    if ((bytesOf[rows.data[k] as number] as number) >= 0) room -= rows.evictable[k] as number;
  return room;
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const notHere = (d: Wanted): string => `${NOT_HERE} dataset ${d.name}, which is ${d.status} and cannot be copied now`;

function rowOf(rated: Rated, i: number): PlacementRow {
  const node = rated.nodes[i] as NodeRecord;
  const [kind, missing_bytes] = [rated.kinds[i] ?? null, rated.missing[i] as number];
  return {
    node_id: node.id,
    hostname: node.hostname,
    eligible: kind === null,
    reason: kind === null ? null : kind + figures(rated, i, kind),
    cached_dataset_count: rated.counts[i] as number,
    missing_bytes,
    free_storage_bytes: freeStorage(node),
    score: rated.scores[i] as number,
    estimated_seconds: copySeconds(missing_bytes, node.copy_rate),
  };
}

function figures(rated: Rated, i: number, kind: string): string {
  const node = rated.nodes[i] as NodeRecord;
  if (kind === OFFLINE) return since(node);
  if (kind === ENGINE_DOWN) return engineError(node);
  if (kind !== NO_ROOM) return '';
  const [lacks, evictable] = [rated.missing[i] as number, rated.evictable(i)];
  return `: ${bytesText(lacks)} are missing, ${bytesText(freeStorage(node))} are free and ${bytesText(evictable)} more could be evicted`;
}

/** By the node's measured rate; null where it never copied. */
export const copySeconds = (bytes: number, rate: number | null): number | null => (bytes === 0 ? 0 : rate === null ? null : bytes / rate);

/** Every node with every term, best first; builders too, refused. */
export function place(question: Question, nodes: readonly NodeRecord[], now: number, limits: Limits): Placement {
  const rated = rate(question, nodes, now, limits);
  const all = Array.from(nodes, (_, i) => i).sort(rated.order);
  return { items: all.map((i) => rowOf(rated, i)), winner: nodes[rated.winner]?.id ?? null };
}

/** How many nodes the record of a placement names. */
const NAMED = 20;

/** What a deployment keeps of its placement: the best deploy nodes and the winner by name, of the others how many and why not. */
export function choose(question: Question, nodes: readonly NodeRecord[], now: number, limits: Limits): Placement {
  const rated = rate(question, nodes, now, limits);
  const best: number[] = [];
  for (let i = 0; i < nodes.length; i++) {
    if (rated.kinds[i] === BUILDER) continue;
    if (best.length === NAMED && rated.order(i, best.at(-1) as number) > 0) continue;
    const at = best.findIndex((other) => rated.order(i, other) < 0);
    best.splice(at === -1 ? best.length : at, 0, i);
    if (best.length > NAMED) best.pop();
  }
  const named = new Set(rated.winner === -1 ? best : [...best, rated.winner]);
  const others = leftOut(rated, named);
  return {
    items: [...named].map((i) => rowOf(rated, i)),
    winner: nodes[rated.winner]?.id ?? null,
    ...(others === null ? {} : { left_out: others }),
  };
}

/** Of those that are not named how many could take it, and how many not and why; null: all are named. */
function leftOut({ kinds }: Rated, named: ReadonlySet<number>): NonNullable<Placement['left_out']> | null {
  const refusedFor = new Map<string, number>();
  let eligible = 0;
  for (let i = 0; i < kinds.length; i++) {
    const kind = kinds[i] ?? null;
    if (kind === BUILDER || named.has(i)) continue;
    if (kind === null) eligible += 1;
    else refusedFor.set(kind, (refusedFor.get(kind) ?? 0) + 1);
  }
  return eligible === 0 && refusedFor.size === 0 ? null : { eligible, refused: Object.fromEntries(refusedFor) };
}

function counted(kinds: readonly (string | null)[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const kind of kinds) if (kind !== null) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

/** A reason without the figures of the moment: by it the same reason is known again. */
const kindOf = (reason: string | null): string | null =>
  reason?.startsWith(ENGINE_DOWN) === true ? ENGINE_DOWN : (reason?.replace(/( since |: )\d.*$/, '') ?? null);

type Refused = { items: readonly { hostname: string; reason: string | null }[]; left_out?: Placement['left_out'] };

/** Why none of them will do, in a sentence that stays short with ten thousand nodes. `plain`: without the figures of the moment. */
export function whyNone({ items, left_out }: Refused, plain = false): string {
  const named = items.slice(0, NAMED).map((row) => `${row.hostname} ${plain ? kindOf(row.reason) : row.reason}`);
  const rest = { ...left_out?.refused, ...counted(items.slice(NAMED).map((row) => kindOf(row.reason))) };
  return [...named, ...Object.entries(rest).map(([reason, count]) => `${count} more: ${reason}`)].join('; ');
}

/** What the nodes that were refused for the sake of data were refused for. */
export function dataRefusal({ items, left_out }: Placement): 'no_room' | 'dataset_unreachable' | null {
  const kinds = [...items.map((row) => kindOf(row.reason) ?? ''), ...Object.keys(left_out?.refused ?? {})];
  if (kinds.includes(NO_ROOM)) return 'no_room';
  return kinds.some((kind) => kind.startsWith(NOT_HERE)) ? 'dataset_unreachable' : null;
}
