import { describe, expect, it } from 'vitest';
import { chooseBuilder } from '../../src/domain/nodes/builder-choice.ts';
import { createCacheIndex } from '../../src/domain/nodes/cache-index.ts';
import { DEFAULT_LIMITS } from '../../src/domain/deployments/facts.ts';
import { choose, place, QUESTION, type Question, score } from '../../src/domain/nodes/placement.ts';
import {
  dataRefusal,
  plainRefusalsText,
  type Refusal,
  refusalsText,
  sameReason,
} from '../../src/domain/nodes/refusal.ts';
import { builder, deployment, NOW, node } from './fixtures.ts';

const L = DEFAULT_LIMITS;
const AT = { now: NOW, limits: L, cacheIndex: createCacheIndex() };
type Node = Parameters<typeof place>[1][number];
const data = (dataset_id: string, version = 1, bytes = 10, pinned = false) => ({
  dataset_id,
  version,
  bytes,
  last_used_at: '2026-11-21T00:00:00Z',
  pinned,
});
const wants = (id: string, bytes: number, over: object = {}) => ({
  id,
  name: id,
  version: 1,
  bytes,
  status: 'ok' as const,
  ...over,
});
const at = (nodes: readonly Node[], over: Partial<Question> = {}) =>
  place({ ...QUESTION, ...over }, nodes, AT);

describe('the choice of a node', () => {
  it('the score follows the formula of the contract', () => {
    expect(
      score(
        { cached_dataset_count: 2, missing_bytes: 3_000_000, free_storage_bytes: 50_000_000 },
        L.weights,
      ),
    ).toBeCloseTo(2 * 10 - 3 + 5);
  });
  it('the answer has all terms of all nodes', () => {
    const nodes = [
      node({
        id: 'a',
        hostname: 'a',
        free_storage: 200_000_000,
        copy_rate: 5_000_000,
        cached: [data('s1', 1, 30_000_000)],
      }),
      node({
        id: 'b',
        hostname: 'b',
        free_storage: 400_000_000,
        cached: [data('s1', 1, 30_000_000), data('s2', 1, 20_000_000)],
      }),
      node({ id: 'c', hostname: 'c', free_storage: 900_000_000 }),
    ];
    const { items, winner } = at(nodes, {
      wanted: [wants('s1', 30_000_000), wants('s2', 20_000_000)],
    });
    expect(winner).toBe('b');
    expect(
      items.map((r) => [
        r.node_id,
        r.cached_dataset_count,
        r.missing_bytes,
        r.free_storage_bytes,
        Math.round(r.score * 1000),
        r.estimated_seconds,
      ]),
    ).toEqual([
      ['b', 2, 0, 400_000_000, 60_000, 0],
      ['c', 0, 50_000_000, 900_000_000, 40_000, null],
      ['a', 1, 20_000_000, 200_000_000, 10_000, 4],
    ]);
  });
  it('an older cached version does not count', () => {
    const { items } = at([node({ cached: [data('s1', 2)] })], {
      wanted: [wants('s1', 500, { version: 3 })],
    });
    expect(items[0]).toMatchObject({ cached_dataset_count: 0, missing_bytes: 500 });
  });
  it('a version that a node reports twice counts once', () => {
    expect(
      at([node({ cached: [data('s1'), data('s1')] })], { wanted: [wants('s1', 10)] }).items[0],
    ).toMatchObject({
      cached_dataset_count: 1,
      missing_bytes: 0,
    });
  });
  it('the weights are settings', () => {
    const nodes = [
      node({ id: 'a', hostname: 'a', free_storage: 1e9, cached: [] }),
      node({ id: 'b', hostname: 'b', free_storage: 1e6, cached: [data('s1')] }),
    ];
    const question = { ...QUESTION, wanted: [wants('s1', 1000)] };
    expect(place(question, nodes, AT).winner).toBe('a');
    expect(
      place(question, nodes, { ...AT, limits: { ...L, weights: { ...L.weights, cached: 1000 } } })
        .winner,
    ).toBe('b');
  });
  it.each([
    ['is offline', { last_seen_at: NOW - L.offlineMs - 1 }],
    ['is cordoned', { schedulable: false }],
    [
      'is being drained',
      { schedulable: false, drain: { started_at: NOW, finished_at: null, moved: 0, tries: {} } },
    ],
    ['is being deleted', { deleting_at: NOW }],
    ['is a builder', { role: 'builder' as const }],
  ])('a node that %s is refused, and the answer says why', (why, over) => {
    const placement = at([node(over)]);
    expect(placement.winner).toBeNull();
    expect(placement.items[0]).toMatchObject({
      eligible: false,
      reason: expect.stringContaining(why),
    });
  });
  it('a node is online for exactly two minutes after its report', () => {
    expect(at([node({ last_seen_at: NOW - 120_000 })]).winner).toBe('n1');
    expect(at([node({ last_seen_at: NOW - 120_001 })]).winner).toBeNull();
  });
  it('equal scores: the current node wins, else the first by name', () => {
    const nodes = [node({ id: 'n2', hostname: 'b' }), node({ id: 'n1', hostname: 'a' })];
    expect(at(nodes).winner).toBe('n1');
    expect(at(nodes, { runsOn: 'n2' }).winner).toBe('n2');
  });
  it('a node of another architecture is refused, unless one architecture is unknown', () => {
    const nodes = [
      node({ id: 'arm', hostname: 'arm', arch: 'arm64', free_storage: 9e9 }),
      node({ id: 'amd', hostname: 'amd', arch: 'amd64' }),
    ];
    const placed = at(nodes, { arch: 'amd64' });
    expect(placed.winner).toBe('amd');
    expect(placed.items.find((row) => row.node_id === 'arm')?.reason).toBe(
      'runs arm64, but the image is for amd64',
    );
    expect(at(nodes, { arch: null }).winner).toBe('arm');
    expect(at([node({ id: 'unknown', arch: null })], { arch: 'amd64' }).winner).toBe('unknown');
  });
  it('stop-first: a deployment stays on its node despite better scores, unless the node is refused', () => {
    const nodes = [
      node({ id: 'here', hostname: 'b', free_storage: 1 }),
      node({ id: 'better', hostname: 'a' }),
    ];
    expect(at(nodes, { runsOn: 'here', stays: true }).winner).toBe('here');
    expect(
      at([{ ...(nodes[0] as Node), schedulable: false }, nodes[1] as Node], {
        runsOn: 'here',
        stays: true,
      }).winner,
    ).toBe('better');
  });
});

describe('storage for datasets', () => {
  const wanted = [wants('s1', 1000), wants('s2', 500)];
  const refusedFor = (cached: ReturnType<typeof data>[], free: number) =>
    at([node({ free_storage: free, cached })], { wanted }).items[0]?.reason;
  it.each([
    ['free', [], 1500, true],
    ['free, less by a byte', [], 1499, false],
    ['freed by evicting what nobody wants', [data('s9', 1, 1000)], 500, true],
    ['not what is pinned', [data('s9', 1, 1000, true)], 500, false],
    ['not what it wants itself', [data('s1', 1, 1000)], 499, false],
    ['an older version of what it wants may go', [data('s1', 7, 1000)], 500, true],
  ])('%s', (_, cached, free, fits) => {
    expect(refusedFor(cached, free) === null).toBe(fits);
  });
  it.each([
    ['frees what a full disk lacks', { max_storage: 5_000, own_disk: null }, true],
    ['is not enough, if MAX_STORAGE is what lacks', { max_storage: 1_200, own_disk: null }, false],
    [
      'frees nothing for datasets on another disk',
      { max_storage: 5_000, own_disk: { free: 1, total: 2 } },
      false,
    ],
  ])('an eviction of images and build cache %s', (_, { max_storage, own_disk }, fits) => {
    const images = [
      { name: 'r/app:1', bytes: 500, created_at: '2026-11-01T00:00:00Z', kept: true },
    ];
    const evictable = { build_cache: 600, images, own_disk };
    const disk = {
      datasets: 100,
      images: 800,
      build_cache: 600,
      other: 0,
      free: 400,
      total: 6_000,
      evictable,
    };
    const row = at([node({ free_storage: 400, max_storage, disk })], { wanted }).items[0];
    expect(row?.reason === null).toBe(fits);
    expect(row?.free_storage_bytes).toBe(400);
  });
  it('the refusal has the figures, and the placement names the failure', () => {
    const nodes = [node({ free_storage: 200, cached: [data('s9', 1, 300)] })];
    expect(at(nodes, { wanted }).items[0]?.reason).toBe(
      'has too little storage for its missing datasets: 1.5 kB missing, 200 B free, 300 B ' +
        'more after eviction',
    );
    expect(dataRefusal(choose({ ...QUESTION, wanted }, nodes, AT).refusals)).toBe('no_room');
  });
  it('a dataset that cannot be copied now requires a node with a full copy', () => {
    const nodes = [
      node({ id: 'a', hostname: 'a' }),
      node({ id: 'b', hostname: 'b', free_storage: 1, cached: [data('s1')] }),
    ];
    const question = { wanted: [wants('s1', 10, { status: 'unreachable' })] };
    expect(at(nodes, question).winner).toBe('b');
    const none = choose({ ...QUESTION, ...question }, nodes.slice(0, 1), AT).refusals;
    expect(refusalsText(none)).toBe(
      'a does not have the newest version of dataset s1, which is unreachable and cannot be ' +
        'copied now',
    );
    expect(dataRefusal(none)).toBe('dataset_unreachable');
  });
});

describe('10,000 nodes', () => {
  const many = (over: (i: number) => Parameters<typeof node>[0]) =>
    Array.from({ length: 10_000 }, (_, i) =>
      node({ id: `n${i}`, hostname: `h${String(i).padStart(5, '0')}`, ...over(i) }),
    );
  it('a deployment stores the best nodes, the winner, and the number and reasons of the rest', () => {
    // The nodes with the most storage are cordoned or offline since different times, so the winner
    // is not one of the best.
    const nodes = many((i) => ({
      free_storage: 1e9 - i,
      ...(i < 30
        ? { schedulable: false }
        : i < 50
          ? { last_seen_at: NOW - L.offlineMs - 1 - i }
          : {}),
    }));
    const kept = choose(QUESTION, [...nodes, builder()], AT).placement;
    expect(at(nodes).items).toHaveLength(10_000);
    expect(kept.winner).toBe('n50');
    expect(kept.items.map((row) => row.node_id)).toEqual([
      ...Array.from({ length: 20 }, (_, i) => `n${i}`),
      'n50',
    ]);
    expect(kept.left_out).toEqual({
      eligible: 9_949,
      refused: { 'is cordoned': 10, 'is offline': 20 },
    });
    expect(JSON.stringify(kept).length).toBeLessThan(6_000);
  });
  it('a few nodes are all named', () => {
    expect(choose(QUESTION, [node()], AT).placement).toEqual(at([node()]));
  });
  it('the reason why no node is eligible stays short', () => {
    const why = refusalsText(
      choose(
        QUESTION,
        many((i) => (i % 2 === 0 ? { schedulable: false } : { deleting_at: NOW })),
        AT,
      ).refusals,
    );
    expect(why).toMatch(
      /^h00000 is cordoned; h00001 is being deleted; .*; 4990 more: is cordoned; 4990 more: is being deleted$/,
    );
    expect(why.length).toBeLessThan(1_000);
  });
  it('the plain reason does not change with the figures', () => {
    const why = (free_storage: number) =>
      plainRefusalsText(
        choose({ ...QUESTION, wanted: [wants('s1', 1e9)] }, [node({ free_storage })], AT).refusals,
      );
    expect(why(5000)).toBe('node-1 has too little storage for its missing datasets');
    expect(why(6000)).toBe(why(5000));
  });
});

describe('the choice of a builder', () => {
  const choose = (nodes: Parameters<typeof chooseBuilder>[1], last: string | null = null) =>
    chooseBuilder(deployment(), nodes, last, NOW, L);
  it('the builder with the warm cache if it has a free slot, else the least busy one', () => {
    const nodes = [
      builder({ id: 'b1', max_builds: 3, open_builds: 2 }),
      builder({ id: 'b2', hostname: 'builder-2', max_builds: 3, open_builds: 1 }),
    ];
    expect(choose(nodes).node?.id).toBe('b2');
    expect(choose(nodes, 'b1').node?.id).toBe('b1');
    expect(
      choose([builder({ open_builds: 1 }), builder({ id: 'b2', hostname: 'builder-2' })], 'b1').node
        ?.id,
    ).toBe('b2');
  });
  it('names the reason of each builder', () => {
    const choice = choose([
      builder({ open_builds: 1 }),
      builder({ id: 'b2', hostname: 'builder-2', schedulable: false }),
    ]);
    const refusals = choice.node === null ? choice.refusals : { named: [], others: [] };
    const text = 'builder-1 already runs 1 of 1 builds; builder-2 is cordoned';
    expect([refusalsText(refusals), plainRefusalsText(refusals)]).toEqual([text, text]);
    expect(choice).toEqual({
      node: null,
      busy: true,
      cannot: false,
      refusals: {
        named: [
          { hostname: 'builder-1', refusal: { kind: 'builds_full', running: 1, max: 1 } },
          { hostname: 'builder-2', refusal: { kind: 'cordoned' } },
        ],
        others: [],
      },
    });
  });
});

describe('reasons', () => {
  it.each<[boolean, Refusal, Refusal]>([
    [true, { kind: 'offline', since: 1 }, { kind: 'offline', since: 2 }],
    [true, { kind: 'engine_down', error: 'a' }, { kind: 'engine_down', error: null }],
    [
      true,
      { kind: 'no_room', missing: 1, free: 2, evictable: 3 },
      { kind: 'no_room', missing: 4, free: 5, evictable: 6 },
    ],
    [false, { kind: 'cordoned' }, { kind: 'draining' }],
    [
      false,
      { kind: 'other_arch', arch: 'arm64', image: 'amd64' },
      { kind: 'other_arch', arch: 'riscv64', image: 'amd64' },
    ],
    [
      false,
      { kind: 'without_dataset', dataset: 's1', status: 'unreachable' },
      { kind: 'without_dataset', dataset: 's2', status: 'unreachable' },
    ],
  ])('whether they are the same (%s): %o, %o', (isSame, a, b) => {
    expect(sameReason(a, b)).toBe(isSame);
  });
});
