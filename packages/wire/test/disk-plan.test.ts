/** The order in which a node evicts images, build cache and datasets. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type DiskPlan, mustStay, planDisk, planNode } from '../src/eviction.ts';
import type { CachedDataset, EvictableImage } from '../src/node.ts';

const day = (n: number): string => new Date(Date.UTC(2026, 10, n)).toISOString();
const image = (name: string, bytes: number, made: number, kept = false): EvictableImage => ({
  name,
  bytes,
  created_at: day(made),
  kept,
});
const data = (
  dataset_id: string,
  bytes: number,
  used: number,
  over: Partial<CachedDataset> = {},
): CachedDataset => ({
  dataset_id,
  version: 1,
  bytes,
  last_used_at: day(used),
  ...over,
});
const named = ({ steps }: DiskPlan): string[] =>
  steps.map((step) =>
    step.kind === 'build_cache'
      ? `cache ${step.bytes}, ${step.keep} stay`
      : step.kind === 'image'
        ? step.image.name
        : step.dataset.dataset_id,
  );

describe('a node of 1,000 bytes', () => {
  const kept = { pinned: true, recopyable: true };
  const all = {
    images: [
      image('kept-2', 50, 4, true),
      image('old-2', 50, 2),
      image('kept-1', 50, 3, true),
      image('old-1', 50, 1),
    ],
    cached: [
      data('d2', 100, 2),
      data('d1', 100, 1),
      data('mounted', 100, 1, { pinned: true }),
      data('kept-data', 100, 1, kept),
    ],
    buildCache: { total: 200, evictable: 180 },
    // 800 in the lists above and 100 of images that run. These and the cache of a build stay:
    // datasets share the other 880.
    used: 900,
    max: 1_000,
  };
  it.each([
    ['nothing up to the high watermark', { free: 100, wanted: 0 }, []],
    [
      'build cache beyond the floor first, as much as is needed for the low watermark',
      { free: 90, wanted: 0 },
      ['cache 100, 100 stay', 'old-1'],
    ],
    [
      'then images that nobody needs, oldest first',
      { free: 100, wanted: 30 },
      ['cache 100, 100 stay', 'old-1'],
    ],
    [
      'then datasets, least recently used first',
      { free: 100, wanted: 150 },
      ['cache 100, 100 stay', 'old-1', 'old-2', 'd1'],
    ],
    [
      'then the rest of the build cache down to the high watermark; cache of running builds stays',
      { free: 100, wanted: 420 },
      ['cache 100, 100 stay', 'old-1', 'old-2', 'd1', 'd2', 'cache 8, 92 stay'],
    ],
    [
      'then images of kept releases, one by one',
      { free: 100, wanted: 520 },
      ['cache 100, 100 stay', 'old-1', 'old-2', 'd1', 'd2', 'cache 80, 20 stay', 'kept-1'],
    ],
    [
      'data of kept releases last',
      { free: 100, wanted: 701 },
      [
        'cache 100, 100 stay',
        'old-1',
        'old-2',
        'd1',
        'd2',
        'cache 80, 20 stay',
        'kept-1',
        'kept-2',
        'kept-data',
      ],
    ],
    [
      'nothing that a rollback needs, if even that is not enough',
      { free: 100, wanted: 781 },
      ['cache 100, 100 stay', 'old-1', 'old-2', 'd1', 'd2'],
    ],
    [
      'more if more is used than the budget allows',
      { free: -150, used: 1_150, wanted: 0 },
      ['cache 100, 100 stay', 'old-1', 'old-2', 'd1'],
    ],
  ])('evicts %s', (_, question, expected) => {
    const plan = planDisk({ ...all, ...question });
    expect(named(plan)).toEqual(expected);
    expect(plan.enough).toBe(question.wanted !== 781);
  });

  it('does not empty itself for space that other programs use', () => {
    // Others use all but 1,000 bytes of a huge disk: 900 are used, 100 are free, and that is 90 %.
    expect(named(planDisk({ ...all, max: 1e12, free: 100, wanted: 0 }))).toEqual([]);
  });
});

describe('a node of 1,000 bytes on which images that run use most of the budget', () => {
  const none = { total: 0, evictable: 0 };
  const of = (
    running: number,
    cached: CachedDataset[],
    over: Partial<Parameters<typeof planDisk>[0]> = {},
  ): string[] => {
    const used = running + cached.reduce((sum, one) => sum + one.bytes, 0);
    return named(
      planDisk({
        images: [],
        buildCache: none,
        cached,
        used,
        free: 1_000 - used,
        wanted: 0,
        max: 1_000,
        ...over,
      }),
    );
  };
  it.each([
    // 100 bytes are left for datasets: they may use 90, and go down to 80.
    ['keeps the datasets that fit beside them', 900, [data('new', 40, 2), data('old', 50, 1)], []],
    [
      'evicts down to the low watermark of what is left beside them',
      900,
      [data('new', 40, 2), data('old', 55, 1)],
      ['old'],
    ],
    ['has no room for a dataset if they use all of it', 1_000, [data('new', 40, 2)], ['new']],
    ['keeps mounted datasets', 1_100, [data('mounted', 40, 2, { pinned: true })], []],
  ])('%s', (_, running, cached, expected) => {
    expect(of(running, cached)).toEqual(expected);
  });
  it('evicts datasets that nobody needs before images of kept releases', () => {
    const cached = [data('old', 60, 1)];
    expect(of(850, cached, { images: [image('kept', 90, 1, true)], used: 1_000, free: 0 })).toEqual(
      ['old'],
    );
  });
  it('evicts what is cheaper for the whole budget, not only for the part beside them', () => {
    expect(
      of(850, [data('new', 10, 1)], { images: [image('old', 50, 1)], used: 910, free: 90 }),
    ).toEqual(['old']);
  });
});

describe('a copy onto a node of 1,000 bytes', () => {
  const plan = (wanted: number, over: Partial<Parameters<typeof planNode>[0]> = {}) =>
    planNode({
      cached: [],
      images: [],
      buildCache: { total: 0, evictable: 0 },
      engineBytes: 1_200,
      limits: { max: 1_000, budget: 1_000, disk: 9_000 },
      wanted,
      ...over,
    });
  it('is refused for its datasets and its disk, not for images that run', () => {
    expect(plan(1_000)).toEqual({ steps: [], freed: 0, enough: true });
    expect(plan(1_001).enough).toBe(false);
    expect(plan(100, { limits: { max: 1_000, budget: 1_000, disk: 99 } }).enough).toBe(false);
  });
  it('evicts what is cheap first, and compares then', () => {
    expect(named(plan(600, { images: [image('old', 10, 1)], engineBytes: 1_210 }))).toEqual([
      'old',
    ]);
  });
});

it('never evicts what must stay, nor what a rollback needs in vain, and says rightly whether it is enough', () => {
  const bytes = fc.integer({ min: 0, max: 300 });
  const images = fc.array(
    fc
      .record({ bytes, made: fc.integer({ min: 1, max: 28 }), kept: fc.boolean() })
      .map(({ bytes: b, made, kept }) => image(`i${made}`, b, made, kept)),
    { maxLength: 6 },
  );
  const datasets = fc.array(
    fc
      .record({
        bytes,
        used: fc.integer({ min: 1, max: 28 }),
        pinned: fc.boolean(),
        recopyable: fc.boolean(),
      })
      .map(({ bytes: b, used, ...over }) => data(`d${used}`, b, used, over)),
    { maxLength: 6 },
  );
  fc.assert(
    fc.property(
      images,
      datasets,
      bytes,
      bytes,
      bytes,
      fc.integer({ min: -200, max: 2_000 }),
      (imgs, cached, total, inUse, others, free) => {
        const evictable = Math.max(0, total - inUse);
        const used = [...imgs, ...cached].reduce((sum, one) => sum + one.bytes, total + others);
        const wanted = others * 2;
        const plan = planDisk({
          images: imgs,
          cached,
          buildCache: { total, evictable },
          used,
          free,
          wanted,
          max: 1_000,
        });
        const sets = plan.steps.flatMap((step) => (step.kind === 'dataset' ? [step.dataset] : []));
        expect(sets.filter(mustStay)).toEqual([]);
        const canGo = [...imgs, ...cached.filter((c) => !mustStay(c))].reduce(
          (sum, one) => sum + one.bytes,
          evictable,
        );
        expect(plan.enough).toBe(free + canGo >= wanted);
        const share = Math.max(0, Math.min(1_000, free + used));
        const isFull = free < wanted || share - free + wanted > 0.9 * share;
        const keptImages = plan.steps.filter((step) => step.kind === 'image' && step.image.kept);
        if (!plan.enough || !isFull) expect(keptImages).toEqual([]);
        if (!plan.enough || free >= wanted)
          expect(sets.filter((one) => one.pinned === true)).toEqual([]);
        expect(
          plan.steps.reduce((sum, step) => sum + (step.kind === 'build_cache' ? step.bytes : 0), 0),
        ).toBeLessThanOrEqual(evictable);
        expect(plan.freed).toBe(plan.steps.reduce((sum, step) => sum + step.bytes, 0));
        if (plan.enough) expect(free + plan.freed).toBeGreaterThanOrEqual(wanted);
      },
    ),
  );
});
