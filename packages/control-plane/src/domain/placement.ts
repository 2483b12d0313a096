/** Where a deployment goes: the contract's score ("Scheduling score of each active deploy node"), with the reason beside each row. Pure. */
import type { Placement, PlacementRow } from '@berth/wire/node';
import type { Limits, NodeFact } from './facts.ts';
import type { DeploymentRecord, NodeLoss, NodeRecord, ProjectSettings } from './records.ts';

export const isOnline = (node: Pick<NodeRecord, 'last_seen_at'>, now: number, limits: Pick<Limits, 'offlineMs'>): boolean =>
  now - node.last_seen_at <= limits.offlineMs;

/** Why a node can take no work at all now, in words; null when it can. */
export function refusal(node: NodeRecord, losses: readonly NodeLoss[], now: number, limits: Limits): string | null {
  if (node.deleting_at !== null) return 'is being deleted';
  if (!node.schedulable) return 'is cordoned';
  if (!isOnline(node, now, limits)) return `is offline since ${new Date(node.last_seen_at).toISOString()}`;
  const loss = losses.findLast((l) => l.node_id === node.id);
  if (loss !== undefined && node.last_seen_at <= loss.at) return 'went silent over this deployment and has not been seen since';
  return null;
}

/** Free storage as the node reported it; one that never did is taken at its capacity. */
const freeStorage = (node: NodeRecord): number => node.free_storage ?? node.max_storage;

type ScoreTerms = Pick<PlacementRow, 'cached_dataset_count' | 'missing_bytes' | 'free_storage_bytes'>;
/** Contract: `cached_dataset_count * 10 - missing_bytes * 0.000001 + free_storage_bytes * 0.0000001`. */
export const score = (t: ScoreTerms): number => t.cached_dataset_count * 10 - t.missing_bytes * 0.000001 + t.free_storage_bytes * 0.0000001;

/** `missing_bytes` of datasets comes with the datasets themselves; a project without any misses nothing anywhere. */
export function place(
  settings: Pick<ProjectSettings, 'datasets'>,
  nodes: readonly NodeRecord[],
  now: number,
  limits: Limits,
  losses: readonly NodeLoss[] = [],
  previousNodeId: string | null = null,
): Placement {
  const wanted = new Set(settings.datasets.filter((d) => d.mode === 'dependency').map((d) => d.dataset_id));
  const items = nodes
    .filter((node) => node.role === 'deploy')
    .map((node): PlacementRow => {
      const terms: ScoreTerms = {
        cached_dataset_count: node.cached.filter((c) => wanted.has(c.dataset_id)).length,
        missing_bytes: 0,
        free_storage_bytes: freeStorage(node),
      };
      const reason = refusal(node, losses, now, limits);
      return {
        node_id: node.id,
        hostname: node.hostname,
        eligible: reason === null,
        reason,
        ...terms,
        score: score(terms),
        estimated_seconds: null,
      };
    })
    // Equal scores: where it runs already (its image is there), then by name, so that the answer is always the same.
    .sort(
      (a, b) =>
        b.score - a.score ||
        Number(b.node_id === previousNodeId) - Number(a.node_id === previousNodeId) ||
        (a.hostname < b.hostname ? -1 : 1),
    );
  return { items, winner: items.find((row) => row.eligible)?.node_id ?? null };
}

/** How many nodes the record of a placement names. */
const NAMED = 20;

/** What a deployment keeps of its placement: the best nodes and the winner by name, of the others how many and why not. */
export function recordOf({ items, winner }: Placement): Placement {
  if (items.length <= NAMED) return { items, winner };
  const named = items.filter((row, i) => i < NAMED || row.node_id === winner);
  const others = items.filter((row, i) => i >= NAMED && row.node_id !== winner);
  return { items: named, winner, left_out: { eligible: others.filter((row) => row.eligible).length, refused: counted(others) } };
}

type Refused = { hostname: string; reason: string | null };

function counted(rows: readonly Refused[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { reason } of rows) {
    if (reason === null) continue;
    // Not since when, which is another time for each.
    const kind = reason.replace(/ since \d.*$/, '');
    counts[kind] = (counts[kind] ?? 0) + 1;
  }
  return counts;
}

/** Why none of them will do, in a sentence that stays short with ten thousand nodes. */
export function whyNone(rows: readonly Refused[]): string {
  const named = rows.slice(0, NAMED).map((row) => `${row.hostname} ${row.reason}`);
  const more = Object.entries(counted(rows.slice(NAMED))).map(([reason, count]) => `${count} more: ${reason}`);
  return [...named, ...more].join('; ');
}

export type BuilderChoice = { node: NodeFact } | { node: null; why: string };

/** The builder whose cache is warm, if it has room; else the least busy one. */
export function chooseBuilder(
  deployment: Pick<DeploymentRecord, 'losses'>,
  nodes: readonly NodeFact[],
  lastBuilderId: string | null,
  now: number,
  limits: Limits,
): BuilderChoice {
  const builders = nodes
    .filter((n) => n.role === 'builder')
    .map((node) => ({ node, why: refusal(node, deployment.losses, now, limits) ?? fullness(node) }));
  const free = builders
    .filter((b) => b.why === null)
    .map((b) => b.node)
    .sort(
      (a, b) =>
        Number(b.id === lastBuilderId) - Number(a.id === lastBuilderId) ||
        a.open_builds - b.open_builds ||
        (a.hostname < b.hostname ? -1 : 1),
    );
  if (free[0] !== undefined) return { node: free[0] };
  if (builders.length === 0) return { node: null, why: 'no builder node has ever registered' };
  return { node: null, why: whyNone(builders.map((b) => ({ hostname: b.node.hostname, reason: b.why }))) };
}

const fullness = (node: NodeFact): string | null =>
  node.open_builds >= node.max_builds ? `has ${node.open_builds} of ${node.max_builds} builds under way` : null;
