/** Placement over typed arrays gives the same result as a simple loop. */
import type { PlacementRow } from '@berth/wire/node';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createCacheIndex } from '../../src/domain/nodes/cache-index.ts';
import { DEFAULT_LIMITS } from '../../src/domain/deployments/facts.ts';
import { choose, place, type Question } from '../../src/domain/nodes/placement.ts';
import type { NodeRecord } from '../../src/domain/platform/records.ts';
import { runsOf } from '../store/fixtures.ts';
import { node, NOW } from './fixtures.ts';

const L = DEFAULT_LIMITS;
const AT = { now: NOW, limits: L, cacheIndex: createCacheIndex() };
const IDS = ['s0', 's1', 's2', 's3', 's4'];

const cached = fc.record({
  dataset_id: fc.constantFrom(...IDS),
  version: fc.integer({ min: 1, max: 3 }),
  bytes: fc.integer({ min: 0, max: 400 }),
  last_used_at: fc.constant('2026-11-21T00:00:00Z'),
  pinned: fc.boolean(),
});
const oneNode = fc.record({
  free_storage: fc.oneof(fc.constant(null), fc.integer({ min: 0, max: 1000 })),
  max_storage: fc.integer({ min: 0, max: 1000 }),
  copy_rate: fc.oneof(fc.constant(null), fc.integer({ min: 1, max: 50 })),
  cached: fc.array(cached, { maxLength: 8 }),
  role: fc.constantFrom('deploy' as const, 'deploy' as const, 'builder' as const),
  schedulable: fc.oneof(fc.constant(true), fc.constant(true), fc.boolean()),
  last_seen_at: fc.constantFrom(NOW, NOW, NOW - L.offlineMs - 1),
});
const question = fc.record({
  wanted: fc.subarray(IDS).chain((ids) =>
    fc.tuple(
      ...ids.map((id) =>
        fc.record({
          id: fc.constant(id),
          name: fc.constant(id),
          version: fc.integer({ min: 1, max: 3 }),
          bytes: fc.integer({ min: 0, max: 500 }),
          status: fc.constantFrom('ok' as const, 'ok' as const, 'unreachable' as const),
        }),
      ),
    ),
  ),
  losses: fc.constant([]),
  runsOn: fc.constantFrom(null, 'n0', 'n1'),
  stays: fc.boolean(),
  needs: fc.constant([]),
  arch: fc.constant(null),
});

/** Computes each row by the words of the contract. */
function naive({ wanted, runsOn, stays }: Question, nodes: readonly NodeRecord[]) {
  const rows = nodes.map((n): PlacementRow => {
    const copies = n.cached.filter(
      (c, i) =>
        n.cached.findIndex((o) => o.dataset_id === c.dataset_id && o.version === c.version) === i,
    );
    const has = (d: { id: string; version: number }) =>
      copies.some((c) => c.dataset_id === d.id && c.version === d.version);
    const free = n.free_storage ?? n.max_storage;
    const missing = wanted.filter((d) => !has(d)).reduce((sum, d) => sum + d.bytes, 0);
    const count = wanted.filter(has).length;
    const evictable = copies
      .filter(
        (c) => !c.pinned && !wanted.some((d) => d.id === c.dataset_id && d.version === c.version),
      )
      .reduce((sum, c) => sum + c.bytes, 0);
    const eligible =
      n.role === 'deploy' &&
      n.schedulable &&
      NOW - n.last_seen_at <= L.offlineMs &&
      wanted.every((d) => d.status === 'ok' || has(d)) &&
      missing <= Math.max(0, free + evictable);
    return {
      node_id: n.id,
      hostname: n.hostname,
      eligible,
      reason: null,
      cached_dataset_count: count,
      missing_bytes: missing,
      free_storage_bytes: free,
      score: count * 10 - missing * 0.000001 + free * 0.0000001,
      estimated_seconds: missing === 0 ? 0 : n.copy_rate === null ? null : missing / n.copy_rate,
    };
  });
  rows.sort(
    (a, b) =>
      b.score - a.score ||
      Number(b.node_id === runsOn) - Number(a.node_id === runsOn) ||
      (a.hostname < b.hostname ? -1 : a.hostname > b.hostname ? 1 : a.node_id < b.node_id ? -1 : 1),
  );
  const stayed = stays ? rows.find((r) => r.eligible && r.node_id === runsOn) : undefined;
  return { rows, winner: (stayed ?? rows.find((r) => r.eligible))?.node_id ?? null };
}

test('the rows, their order, the winner and the stored placement equal a simple implementation', () => {
  fc.assert(
    fc.property(fc.array(oneNode, { minLength: 0, maxLength: 40 }), question, (given, q) => {
      const nodes = given.map((over, i) => node({ id: `n${i}`, hostname: `h${i % 7}`, ...over }));
      const full = place(q, nodes, AT);
      const { rows, winner } = naive(q, nodes);
      expect(full.items.map((row) => ({ ...row, reason: null }))).toEqual(rows);
      for (const row of full.items) expect(row.reason === null).toBe(row.eligible);
      expect(full.winner).toBe(winner);

      const kept = choose(q, nodes, AT).placement;
      const deploy = full.items.filter(
        (row) => nodes.find((n) => n.id === row.node_id)?.role === 'deploy',
      );
      const named = deploy.filter((row, i) => i < 20 || row.node_id === winner);
      expect(kept.winner).toBe(winner);
      expect(kept.items).toEqual(named);
      const others = deploy.filter((row) => !named.includes(row));
      expect(kept.left_out?.eligible ?? 0).toBe(others.filter((row) => row.eligible).length);
      const refused = Object.values(kept.left_out?.refused ?? {}).reduce((sum, n) => sum + n, 0);
      expect(refused).toBe(others.filter((row) => !row.eligible).length);
    }),
    { numRuns: runsOf(500) },
  );
});

test('the index follows a node that reports another list', () => {
  const wanted = [{ id: 's1', name: 's1', version: 1, bytes: 100, status: 'ok' as const }];
  const q: Question = { wanted, losses: [], runsOn: null, stays: false, arch: null, needs: [] };
  const copy = { dataset_id: 's1', version: 1, bytes: 100, last_used_at: '2026-11-21T00:00:00Z' };
  const nodes = [node({ id: 'a', hostname: 'a' }), node({ id: 'b', hostname: 'b' })];
  expect(choose(q, nodes, AT).placement.winner).toBe('a');
  expect(
    choose(q, [nodes[0] as NodeRecord, { ...(nodes[1] as NodeRecord), cached: [copy] }], AT)
      .placement.winner,
  ).toBe('b');
  expect(choose(q, nodes, AT).placement.winner).toBe('a');
});
