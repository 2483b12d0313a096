/** The rule of BACKUP_KEEP, and the names of backups. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Keep, keepRule, notKept } from '../../src/backup/keep.ts';
import { named, newName } from '../../src/backup/names.ts';

const HOUR = 3_600_000;
const at = (text: string) => ({ name: text, at: Date.parse(text) });

describe('BACKUP_KEEP', () => {
  test('is numbers of hours, days and weeks', () => {
    expect(keepRule('24h 7d 4w')).toEqual({ h: 24, d: 7, w: 4 });
    expect(keepRule('3d')).toEqual({ h: 0, d: 3, w: 0 });
    for (const wrong of ['', '24', '0h', '1h 2h', '7 d', '5m', '99999h', '-1h'])
      expect(() => keepRule(wrong)).toThrow('24h 7d 4w');
  });

  test('keeps the newest of each hour, day and week', () => {
    const monday = '2026-11-23';
    const hours = Array.from({ length: 30 }, (_, i) =>
      new Date(Date.parse(`${monday}T05:10:00Z`) - i * HOUR).toISOString(),
    );
    const old = [
      '2026-11-21T23:10:00Z',
      '2026-11-21T22:10:00Z',
      '2026-11-15T23:10:00Z',
      '2026-11-15T01:00:00Z',
      '2026-11-08T23:00:00Z',
    ];
    const gone = notKept([...hours, ...old].map(at), { h: 3, d: 3, w: 3 });
    const kept = [...hours, ...old].filter((name) => !gone.some((backup) => backup.name === name));
    expect(kept).toEqual([
      '2026-11-23T05:10:00.000Z',
      '2026-11-23T04:10:00.000Z',
      '2026-11-23T03:10:00.000Z',
      // The last one of Sunday, which is also the last one of its week.
      '2026-11-22T23:10:00.000Z',
      '2026-11-21T23:10:00Z',
      '2026-11-15T23:10:00Z',
    ]);
  });

  const rules = fc.record({ h: fc.nat(30), d: fc.nat(10), w: fc.nat(6) });
  /** Gaps between backups, from minutes to weeks. */
  const histories = fc
    .array(
      fc.oneof(
        fc.integer({ min: 1, max: 5 * 60 }),
        fc.integer({ min: 60, max: 3 * 24 * 60 }),
        fc.constant(14 * 24 * 60),
      ),
      {
        maxLength: 120,
      },
    )
    .map((gaps) =>
      gaps.reduce<number[]>(
        (times, gap) => [...times, (times.at(-1) ?? Date.UTC(2026, 0, 1)) + gap * 60_000],
        [],
      ),
    );
  const all = (times: number[]) => times.map((time, i) => ({ name: String(i), at: time }));

  test('property: deleting after each backup keeps the same ones as deleting once at the end, and nothing else', () => {
    fc.assert(
      fc.property(histories, rules, (times, rule: Keep) => {
        const backups = all(times);
        let present: typeof backups = [];
        for (const backup of backups) {
          present.push(backup);
          const gone = notKept(present, rule);
          present = present.filter((b) => !gone.includes(b));
        }
        const gone = notKept(backups, rule);
        expect(present).toEqual(backups.filter((b) => !gone.includes(b)));
      }),
      { numRuns: 300 },
    );
  });

  test('property: it keeps the newest one, at most as many as the rule says, and one of each of the last periods', () => {
    const DAY = 24 * HOUR;
    fc.assert(
      fc.property(histories, rules, (times, rule: Keep) => {
        const backups = all(times);
        const gone = notKept(backups, rule);
        const kept = backups.filter((b) => !gone.includes(b));
        expect(kept.at(-1)).toEqual(backups.at(-1));
        expect(kept.length).toBeLessThanOrEqual(Math.max(1, rule.h + rule.d + rule.w));
        const days = new Set(backups.map((b) => Math.floor(b.at / DAY)));
        const lastDays = [...days].sort((a, b) => b - a).slice(0, rule.d);
        for (const day of lastDays)
          expect(kept.some((b) => Math.floor(b.at / DAY) === day)).toBe(true);
      }),
      { numRuns: 300 },
    );
  });
});

test('only names of backups are names of backups', () => {
  const name = newName('0a1b2c3d', Date.parse('2026-11-23T15:03:27.900Z'), true);
  expect(named(name)).toEqual({
    name,
    installation: '0a1b2c3d',
    at: Date.parse('2026-11-23T15:03:27Z'),
    tag: expect.stringMatching(/^[0-9a-f]{6}$/),
    encrypted: true,
  });
  for (const other of [
    'berth.db',
    `.${name}.partial`,
    `${name}.bak`,
    `x${name}`,
    name.replace('2026-11', '2026-13'),
  ])
    expect(named(other)).toBeNull();
});
