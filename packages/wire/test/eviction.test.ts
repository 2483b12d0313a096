/** Checks eviction against a simple model that evicts one dataset after the other. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { evictionOrder, planEviction, WATERMARKS } from '../src/eviction.ts';
import type { CachedDataset } from '../src/node.ts';

const day = (n: number): string => new Date(Date.UTC(2026, 10, n)).toISOString();
const copy = (
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
const ids = (copies: readonly CachedDataset[]) => copies.map((c) => c.dataset_id);

describe('evictionOrder', () => {
  it('sorts by last use, oldest first, and omits pinned datasets', () => {
    expect(
      ids(
        evictionOrder([
          copy('b', 1, 3),
          copy('a', 1, 5),
          copy('c', 1, 1, { pinned: true }),
          copy('d', 1, 2),
        ]),
      ),
    ).toEqual(['d', 'b', 'a']);
  });
  it('compares times, not texts, so time zones do not matter', () => {
    expect(
      ids(
        evictionOrder([
          copy('late', 1, 1, { last_used_at: '2026-11-01T10:00:00Z' }),
          copy('soon', 1, 1, { last_used_at: '2026-11-01T11:00:00+02:00' }),
        ]),
      ),
    ).toEqual(['soon', 'late']);
  });
  it('sorts equally old datasets in a fixed order, with the older version first', () => {
    const copies = [
      copy('b', 1, 1),
      copy('a', 1, 1, { version: 10 }),
      copy('a', 1, 1, { version: 9 }),
    ];
    const order = evictionOrder(copies).map((c) => `${c.dataset_id} ${c.version}`);
    expect(order).toEqual(['a 9', 'a 10', 'b 1']);
    expect(evictionOrder(copies.toReversed()).map((c) => `${c.dataset_id} ${c.version}`)).toEqual(
      order,
    );
  });
});

describe('planEviction evicts', () => {
  const cached = [copy('a', 100, 1), copy('b', 100, 2), copy('c', 100, 3)];
  it.each([
    ['nothing up to the high watermark', { free: 700, wanted: 600, max: 1000 }, [], true],
    [
      'down to the low watermark when usage exceeds the high one',
      { free: 700, wanted: 601, max: 1000 },
      ['a', 'b'],
      true,
    ],
    [
      'nothing for space that other programs use: 50 bytes are free of 350',
      { free: 50, wanted: 0, max: 1e9 },
      [],
      true,
    ],
    ['enough that the wanted bytes fit', { free: 50, wanted: 70, max: 1e9 }, ['a'], true],
    [
      'everything if that is still not enough',
      { free: 50, wanted: 351, max: 1000 },
      ['a', 'b', 'c'],
      false,
    ],
    [
      'down to the low watermark if the cache is too full, even if nothing is wanted',
      { free: 20, wanted: 0, max: 1e9 },
      ['a'],
      true,
    ],
  ])('%s', (_, question, evict, enough) => {
    const plan = planEviction({ cached, ...question });
    expect([ids(plan.evict), plan.enough, plan.freed]).toEqual([evict, enough, 100 * evict.length]);
  });
});

it('never evicts a pinned dataset, never evicts too much, and evicts enough whenever that is possible', () => {
  const copies = fc.array(
    fc.record({
      id: fc.nat(5),
      bytes: fc.nat(100),
      used: fc.integer({ min: 1, max: 20 }),
      pinned: fc.boolean(),
      version: fc.integer({ min: 1, max: 3 }),
    }),
    { maxLength: 12 },
  );
  fc.assert(
    fc.property(
      copies,
      fc.nat(300),
      fc.nat(300),
      fc.integer({ min: 300, max: 1500 }),
      (given, free, wanted, max) => {
        const cached = given.map((g) =>
          copy(`s${g.id}`, g.bytes, g.used, { pinned: g.pinned, version: g.version }),
        );
        const plan = planEviction({ cached, free, wanted, max });
        // The model: evict the oldest dataset until enough is free.
        const there = [...cached];
        let has = free;
        const share = Math.min(max, free + cached.reduce((sum, c) => sum + c.bytes, 0));
        const [tooFull, goal] = [
          share - free + wanted > WATERMARKS.high * share || free < wanted,
          WATERMARKS.low * share,
        ];
        while (tooFull && (share - has + wanted > goal || has < wanted)) {
          const oldest = there
            .filter((c) => c.pinned !== true)
            .reduce<CachedDataset | null>(
              (min, c) => (min === null || c.last_used_at < min.last_used_at ? c : min),
              null,
            );
          if (oldest === null) break;
          there.splice(there.indexOf(oldest), 1);
          has += oldest.bytes;
        }
        expect(plan.evict.some((c) => c.pinned === true)).toBe(false);
        expect(plan.evict.map((c) => c.last_used_at)).toEqual(
          plan.evict.map((c) => c.last_used_at).toSorted(),
        );
        expect(plan.freed).toBe(plan.evict.reduce((sum, c) => sum + c.bytes, 0));
        expect(plan.enough).toBe(free + plan.freed >= wanted);
        const possible =
          free + cached.filter((c) => c.pinned !== true).reduce((sum, c) => sum + c.bytes, 0);
        expect(plan.enough).toBe(possible >= wanted);
        // The model may choose differently among equally old datasets, so compare only if all ages
        // differ.
        const ages = cached.map((c) => c.last_used_at);
        if (new Set(ages).size === ages.length) expect(plan.freed).toBe(has - free);
      },
    ),
    { numRuns: 500 },
  );
});

describe('a dataset that only kept releases pin, while the share still has it', () => {
  const kept = (id: string, bytes: number, used: number): CachedDataset => ({
    ...copy(id, bytes, used, { pinned: true }),
    recopyable: true,
  });
  it('is evicted last, and only as far as needed', () => {
    const cached = [
      kept('old', 40, 1),
      kept('older', 40, 2),
      copy('unpinned', 20, 9),
      copy('mounted', 20, 3, { pinned: true }),
    ];
    const plan = planEviction({ cached, free: 0, wanted: 50, max: 120 });
    expect(plan.evict.map((c) => c.dataset_id)).toEqual(['unpinned', 'old']);
    expect(plan).toMatchObject({ freed: 60, pinned: 20, enough: true });
  });
  it('stays while other evictions make enough room', () => {
    const cached = [kept('old', 40, 1), copy('unpinned', 60, 9)];
    expect(
      planEviction({ cached, free: 0, wanted: 50, max: 100 }).evict.map((c) => c.dataset_id),
    ).toEqual(['unpinned']);
  });
  it('stays forever if the cache has the only copy', () => {
    const cached = [copy('only-here', 40, 1, { pinned: true }), kept('old', 40, 2)];
    const plan = planEviction({ cached, free: 0, wanted: 50, max: 80 });
    expect(plan.evict.map((c) => c.dataset_id)).not.toContain('only-here');
    expect(plan.enough).toBe(false);
  });
});
