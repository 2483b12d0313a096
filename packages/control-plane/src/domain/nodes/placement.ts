/**
 * Chooses the node of a deployment by the score of docs/contract.md "Scheduling score", with a
 * reason for each refused node. One pass over the nodes with the caller's index of their caches
 * (cache-index.ts): 10,000 nodes take milliseconds. Pure.
 */
import { defined } from '@berth/kit/defined';
import type { Placement, PlacementRow } from '@berth/wire/node';
import { lack, type Need } from './build-needs.ts';
import type { CacheIndex, Rows } from './cache-index.ts';
import type { DatasetFact, Facts, Limits } from '../deployments/facts.ts';
import type { NodeLoss, NodeRecord } from '../platform/records.ts';
import { bytesText } from '../platform/sizes.ts';

/**
 * Returns whether the node reported recently. A time in the future, from before the clock was set
 * back, does not count as recent.
 */
export const isOnline = (
  node: Pick<NodeRecord, 'last_seen_at'>,
  now: number,
  limits: Pick<Limits, 'offlineMs'>,
): boolean => Math.abs(now - node.last_seen_at) <= limits.offlineMs;

/** A `dependency` dataset of the project at its newest version. */
export type Wanted = Pick<DatasetFact, 'id' | 'name' | 'bytes' | 'status'> & { version: number };

export type Question = {
  wanted: readonly Wanted[];
  /** Nodes that lost this deployment. */
  losses: readonly NodeLoss[];
  /** The node that runs it now. It wins among equal scores, because it has the image. */
  runsOn: string | null;
  /**
   * Stop-first: it stays on its node unless that node is refused, because a move must stop the old
   * version first.
   */
  stays: boolean;
  /** Architecture of the image in Go’s names, or null if unknown. */
  arch: string | null;
  /** Capabilities of the agent that the deployment needs. */
  needs: readonly Need[];
  /** The node that has its volumes; null or absent: any node may take it. */
  home?: string | null;
};

export const QUESTION: Question = {
  wanted: [],
  losses: [],
  runsOn: null,
  stays: false,
  arch: null,
  needs: [],
};

const BUILDER = 'is a builder';
const OFFLINE = 'is offline';
const ENGINE_DOWN = 'has a container engine that does not respond';
export const NO_ROOM = 'has too little storage for its missing datasets';
const NOT_HOME = 'does not have the volumes of the project';
const NOT_HERE = 'does not have the newest version of';

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

/** Returns why a node can take no work now, without details of the node, or null. */
function refusalKind(
  node: NodeRecord,
  losses: readonly NodeLoss[],
  now: number,
  limits: Limits,
): string | null {
  if (node.deleting_at !== null) return 'is being deleted';
  if (!node.schedulable)
    return node.drain !== null && node.drain.finished_at === null
      ? 'is being drained'
      : 'is cordoned';
  if (!isOnline(node, now, limits)) return OFFLINE;
  if (isEngineDown(node)) return ENGINE_DOWN;
  if (losses.length === 0) return null;
  if (losses.some((l) => l.node_id === node.id && l.error !== undefined))
    return 'reported a failure of its own for this deployment';
  const loss = losses.findLast((l) => l.node_id === node.id);
  // A loss in the future dates from before the machine's clock was set back, so it cannot be
  // compared with last_seen_at.
  if (loss !== undefined && loss.at <= now && node.last_seen_at <= loss.at)
    return 'stopped reporting during this deployment and is still silent';
  return null;
}

/** Returns the refusal if both architectures are known and differ. */
const otherArch = (node: Pick<NodeRecord, 'arch'>, arch: string | null): string | null =>
  arch === null || node.arch === null || node.arch === arch
    ? null
    : `runs ${node.arch}, but the image is for ${arch}`;

const since = (node: NodeRecord): string => ` since ${new Date(node.last_seen_at).toISOString()}`;

const isEngineDown = (node: Pick<NodeRecord, 'engine'>): boolean => node.engine?.ok === false;
/**
 * Returns whether only their container engines keep all otherwise eligible nodes of the role from
 * work.
 */
export function lackEngines(
  nodes: readonly NodeRecord[],
  role: NodeRecord['role'],
  now: number,
  limits: Limits,
): boolean {
  const kinds = nodes.filter((n) => n.role === role).map((n) => refusalKind(n, [], now, limits));
  return kinds.includes(ENGINE_DOWN) && !kinds.includes(null);
}
const engineError = (node: NodeRecord): string =>
  node.engine?.error === null || node.engine?.error === undefined ? '' : `: ${node.engine.error}`;

/** Returns why a node can take no work now, with details, or null. */
export function refusal(
  node: NodeRecord,
  losses: readonly NodeLoss[],
  now: number,
  limits: Limits,
): string | null {
  const kind = refusalKind(node, losses, now, limits);
  if (kind === ENGINE_DOWN) return kind + engineError(node);
  return kind === OFFLINE ? kind + since(node) : kind;
}

/** The result of the pass, by the index of each node. `kinds`: why the node is refused, or null. */
type Rated = {
  nodes: readonly NodeRecord[];
  evictable: (i: number) => number;
  counts: Int32Array;
  missing: Float64Array;
  scores: Float64Array;
  kinds: (string | null)[];
  /**
   * Compares two nodes by their index, better first. Equal scores: the node that runs it, then by
   * name, so the order is deterministic.
   */
  order: (a: number, b: number) => number;
  winner: number;
};

/** `cacheIndex`: one for all calls of a process; it reuses the rows of unchanged nodes. */
export type PlacementContext = Pick<Facts, 'now' | 'limits' | 'cacheIndex'>;

/**
 * Returns the bytes of each wanted dataset by its number in the index (-1: not wanted), and the
 * datasets that cannot be copied now.
 */
function lookup(
  index: CacheIndex,
  wanted: readonly Wanted[],
  rows: Rows | null,
): { bytesOf: Float64Array; stuck: Stuck[] } {
  if (rows === null) return { bytesOf: new Float64Array(0), stuck: [] };
  const numbered = wanted.map((d) => ({ d, slot: index.slot(d.id, d.version) }));
  const bytesOf = new Float64Array(Math.max(rows.slots, ...numbered.map((n) => n.slot + 1))).fill(
    -1,
  );
  for (const { d, slot } of numbered) bytesOf[slot] = d.bytes;
  return {
    bytesOf,
    stuck: numbered.flatMap(({ d, slot }) =>
      d.status === 'ok' ? [] : [{ slot, why: notHere(d) }],
    ),
  };
}

function rate(
  question: Question,
  nodes: readonly NodeRecord[],
  { now, limits, cacheIndex }: PlacementContext,
): Rated {
  const { wanted, losses, runsOn } = question;
  const rows = wanted.length === 0 ? null : cacheIndex.rows(nodes);
  const { bytesOf, stuck } = lookup(cacheIndex, wanted, rows);
  const total = wanted.reduce((sum, d) => sum + d.bytes, 0);
  const n = nodes.length;
  const [missing, scores, counts] = [new Float64Array(n), new Float64Array(n), new Int32Array(n)];
  const kinds: (string | null)[] = [];
  const order = (a: number, b: number): number => {
    const higher = (scores[b] as number) - (scores[a] as number);
    if (higher !== 0) return higher;
    const [x, y] = [nodes[a] as NodeRecord, nodes[b] as NodeRecord];
    return (
      Number(y.id === runsOn) - Number(x.id === runsOn) ||
      compare(x.hostname, y.hostname) ||
      compare(x.id, y.id)
    );
  };
  const evictable = (i: number): number =>
    evictableOn(rows, bytesOf, i) + engineRoom(nodes[i] as NodeRecord);
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
    scores[i] = score(
      { cached_dataset_count: count, missing_bytes: lacks, free_storage_bytes: free },
      limits.weights,
    );
    const kind =
      node.role === 'deploy'
        ? (refusalKind(node, losses, now, limits) ??
          (question.home === null || question.home === undefined || node.id === question.home
            ? null
            : NOT_HOME) ??
          otherArch(node, question.arch) ??
          lack(node, question.needs) ??
          withoutData(stuck, rows, i) ??
          (lacks > free && lacks > free + evictable(i) ? NO_ROOM : null))
        : BUILDER;
    kinds.push(kind);
    if (kind !== null) continue;
    if (winner === -1 || order(i, winner) < 0) winner = i;
    if (question.stays && node.id === runsOn) staying = i;
  }
  return {
    nodes,
    evictable,
    counts,
    missing,
    scores,
    kinds,
    order,
    winner: staying === -1 ? winner : staying,
  };
}

type Stuck = { slot: number; why: string };
const withoutData = (stuck: readonly Stuck[], rows: Rows | null, i: number): string | null => {
  if (stuck.length === 0 || rows === null) return null;
  const from = rows.start[i] as number;
  const row = rows.data.subarray(from, from + (rows.length[i] as number));
  return stuck.find(({ slot }) => !row.includes(slot))?.why ?? null;
};

/** Returns the bytes that can be evicted for this deployment: neither pinned nor wanted by it. */
function evictableOn(rows: Rows | null, bytesOf: Float64Array, i: number): number {
  if (rows === null) return 0;
  let room = rows.evictableTotal[i] as number;
  const end = (rows.start[i] as number) + (rows.length[i] as number);
  for (let k = rows.start[i] as number; k < end; k++)
    if ((bytesOf[rows.data[k] as number] as number) >= 0) room -= rows.evictable[k] as number;
  return room;
}

/**
 * Returns the bytes that the agent can free on the disk by evicting images and build cache. They do
 * not count as free, because the score follows the contract. They give no room beyond MAX_STORAGE,
 * of which `free_storage` counts only SVC_ROOT.
 */
function engineRoom(node: NodeRecord): number {
  const evictable = node.disk?.evictable;
  if (evictable === undefined || evictable.own_disk !== null) return 0;
  const bytes = evictable.images.reduce((sum, image) => sum + image.bytes, evictable.build_cache);
  return Math.max(
    0,
    Math.min(bytes, node.max_storage - (node.disk?.datasets ?? 0) - freeStorage(node)),
  );
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const notHere = (d: Wanted): string =>
  `${NOT_HERE} dataset ${d.name}, which is ${d.status} and cannot be copied now`;

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
  return (
    `: ${bytesText(lacks)} missing, ${bytesText(freeStorage(node))} free, ` +
    `${bytesText(evictable)} more after eviction`
  );
}

/** Returns the duration by the node's measured rate, or null if it never copied. */
export const copySeconds = (bytes: number, rate: number | null): number | null =>
  bytes === 0 ? 0 : rate === null ? null : bytes / rate;

/** Returns every node with all terms of its score, best first. Builders are included as refused. */
export function place(
  question: Question,
  nodes: readonly NodeRecord[],
  context: PlacementContext,
): Placement {
  const rated = rate(question, nodes, context);
  const all = Array.from(nodes, (_, i) => i).sort(rated.order);
  return { items: all.map((i) => rowOf(rated, i)), winner: nodes[rated.winner]?.id ?? null };
}

/** The record of a placement names at most this many nodes. */
const NAMED = 20;

/**
 * Returns the placement that a deployment stores: the best deploy nodes and the winner by name, and
 * the number and reasons of the rest.
 */
export function choose(
  question: Question,
  nodes: readonly NodeRecord[],
  context: PlacementContext,
): Placement {
  const rated = rate(question, nodes, context);
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
    ...defined({ left_out: others ?? undefined }),
  };
}

/**
 * Counts the nodes that are not named: the eligible ones, and the refused ones by reason. Returns
 * null if all are named.
 */
function leftOut(
  { kinds }: Rated,
  named: ReadonlySet<number>,
): NonNullable<Placement['left_out']> | null {
  const refusedFor = new Map<string, number>();
  let eligible = 0;
  for (let i = 0; i < kinds.length; i++) {
    const kind = kinds[i] ?? null;
    if (kind === BUILDER || named.has(i)) continue;
    if (kind === null) eligible += 1;
    else refusedFor.set(kind, (refusedFor.get(kind) ?? 0) + 1);
  }
  return eligible === 0 && refusedFor.size === 0
    ? null
    : { eligible, refused: Object.fromEntries(refusedFor) };
}

function counted(kinds: readonly (string | null)[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const kind of kinds) if (kind !== null) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

/** Removes changing figures from a reason, so that equal reasons compare equal. */
const kindOf = (reason: string | null): string | null =>
  reason?.startsWith(ENGINE_DOWN) === true
    ? ENGINE_DOWN
    : (reason?.replace(/( since |: )\d.*$/, '') ?? null);

type Refused = {
  items: readonly { hostname: string; reason: string | null }[];
  left_out?: Placement['left_out'];
};

/**
 * Explains why no node is eligible, in a text that stays short with 10,000 nodes. `plain`: without
 * changing figures.
 */
export function whyNone({ items, left_out }: Refused, plain = false): string {
  const named = items
    .slice(0, NAMED)
    .map((row) => `${row.hostname} ${plain ? kindOf(row.reason) : row.reason}`);
  const rest = {
    ...left_out?.refused,
    ...counted(items.slice(NAMED).map((row) => kindOf(row.reason))),
  };
  return [
    ...named,
    ...Object.entries(rest).map(([reason, count]) => `${count} more: ${reason}`),
  ].join('; ');
}

/** Returns the failure code if a node was refused because of datasets. */
export function dataRefusal({
  items,
  left_out,
}: Placement): 'no_room' | 'dataset_unreachable' | null {
  const kinds = [
    ...items.map((row) => kindOf(row.reason) ?? ''),
    ...Object.keys(left_out?.refused ?? {}),
  ];
  if (kinds.includes(NO_ROOM)) return 'no_room';
  return kinds.some((kind) => kind.startsWith(NOT_HERE)) ? 'dataset_unreachable' : null;
}
