import { describe, expect, it } from 'vitest';
import { DEFAULT_LIMITS } from '../../src/domain/facts.ts';
import { chooseBuilder, place, recordOf, score, whyNone } from '../../src/domain/placement.ts';
import { builder, deployment, NOW, node, SETTINGS } from './fixtures.ts';

const L = DEFAULT_LIMITS;
const data = (dataset_id: string) => ({ dataset_id, version: 1, bytes: 10, last_used_at: '2026-11-21T00:00:00Z' });

describe('where a deployment goes', () => {
  it('the contract’s score, term by term', () => {
    expect(score({ cached_dataset_count: 2, missing_bytes: 3_000_000, free_storage_bytes: 50_000_000 })).toBeCloseTo(2 * 10 - 3 + 5);
  });
  it('the node that holds the data wins over the emptier one', () => {
    const settings = { ...SETTINGS, datasets: [{ dataset_id: 's1', mode: 'dependency' as const }] };
    const placement = place(
      settings,
      [
        node({ id: 'n1', hostname: 'empty', free_storage: 9e7 }),
        node({ id: 'n2', hostname: 'holds-data', free_storage: 1e6, cached: [data('s1')] }),
      ],
      NOW,
      L,
    );
    expect(placement.winner).toBe('n2');
    expect(placement.items.map((row) => [row.hostname, row.cached_dataset_count])).toEqual([
      ['holds-data', 1],
      ['empty', 0],
    ]);
  });
  it.each([
    ['is offline', { last_seen_at: NOW - L.offlineMs - 1 }],
    ['is cordoned', { schedulable: false }],
    ['is being deleted', { deleting_at: NOW }],
  ])('a node that %s is refused, and the answer says so', (why, over) => {
    const placement = place(SETTINGS, [node(over)], NOW, L);
    expect(placement.winner).toBeNull();
    expect(placement.items[0]).toMatchObject({ eligible: false, reason: expect.stringContaining(why) });
  });
  it('is online until the contract’s two minutes are over, to the millisecond', () => {
    expect(place(SETTINGS, [node({ last_seen_at: NOW - 120_000 })], NOW, L).winner).toBe('n1');
    expect(place(SETTINGS, [node({ last_seen_at: NOW - 120_001 })], NOW, L).winner).toBeNull();
  });
  it('with equal scores stays where it runs, else takes the first by name', () => {
    const nodes = [node({ id: 'n2', hostname: 'b' }), node({ id: 'n1', hostname: 'a' })];
    expect(place(SETTINGS, nodes, NOW, L).winner).toBe('n1');
    expect(place(SETTINGS, nodes, NOW, L, [], 'n2').winner).toBe('n2');
  });
  it('builders are no place to run on', () => {
    expect(place(SETTINGS, [builder()], NOW, L)).toEqual({ items: [], winner: null });
  });
});

describe('with ten thousand nodes', () => {
  const many = (over: (i: number) => Parameters<typeof node>[0]) =>
    Array.from({ length: 10_000 }, (_, i) => node({ id: `n${i}`, hostname: `h${String(i).padStart(5, '0')}`, ...over(i) }));
  it('a deployment keeps the best nodes and the winner, and of the others how many and why not', () => {
    // The emptiest are cordoned or offline, each since another moment: the winner is none of the best.
    const nodes = many((i) => ({
      free_storage: 1e9 - i,
      ...(i < 30 ? { schedulable: false } : i < 50 ? { last_seen_at: NOW - L.offlineMs - 1 - i } : {}),
    }));
    const placement = place(SETTINGS, nodes, NOW, L);
    const kept = recordOf(placement);
    expect(placement.items).toHaveLength(10_000);
    expect(kept.winner).toBe('n50');
    expect(kept.items.map((row) => row.node_id)).toEqual([...Array.from({ length: 20 }, (_, i) => `n${i}`), 'n50']);
    expect(kept.left_out).toEqual({ eligible: 9_949, refused: { 'is cordoned': 10, 'is offline': 20 } });
    expect(JSON.stringify(kept).length).toBeLessThan(6_000);
  });
  it('few are kept as they are', () => {
    const placement = place(SETTINGS, [node()], NOW, L);
    expect(recordOf(placement)).toEqual(placement);
  });
  it('why none of them will do stays short enough to read', () => {
    const { items } = place(
      SETTINGS,
      many((i) => (i % 2 === 0 ? { schedulable: false } : { deleting_at: NOW })),
      NOW,
      L,
    );
    const why = whyNone(items);
    expect(why).toMatch(/^h00000 is cordoned; h00001 is being deleted; .*; 4990 more: is cordoned; 4990 more: is being deleted$/);
    expect(why.length).toBeLessThan(1_000);
  });
});

describe('who builds', () => {
  const choose = (nodes: Parameters<typeof chooseBuilder>[1], last: string | null = null) =>
    chooseBuilder(deployment(), nodes, last, NOW, L);
  it('the one whose cache is warm, if it has room; else the least busy', () => {
    const nodes = [
      builder({ id: 'b1', max_builds: 3, open_builds: 2 }),
      builder({ id: 'b2', hostname: 'builder-2', max_builds: 3, open_builds: 1 }),
    ];
    expect(choose(nodes).node?.id).toBe('b2');
    expect(choose(nodes, 'b1').node?.id).toBe('b1');
    expect(choose([builder({ open_builds: 1 }), builder({ id: 'b2', hostname: 'builder-2' })], 'b1').node?.id).toBe('b2');
  });
  it('says of each builder why it cannot', () => {
    expect(choose([builder({ open_builds: 1 }), builder({ id: 'b2', hostname: 'builder-2', schedulable: false })])).toEqual({
      node: null,
      why: 'builder-1 has 1 of 1 builds under way; builder-2 is cordoned',
    });
  });
});
