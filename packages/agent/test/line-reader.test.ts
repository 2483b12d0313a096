import { expect, test } from 'vitest';
import { createBudget } from '../src/logs/budget.ts';
import { createLineReader, type RawLine } from '../src/logs/line-reader.ts';

const AT = '2026-11-24T01:00:00.000000000Z';

function reader(mayTake: (bytes: number) => boolean = () => true) {
  const lines: RawLine[] = [];
  const counts = { dropped: 0, most: 0 };
  const created = createLineReader({
    mayTake: (bytes) => {
      counts.most = Math.max(counts.most, bytes);
      return mayTake(bytes);
    },
    onLine: (line) => void lines.push(line),
    onDropped: () => void (counts.dropped += 1),
    onMessage: () => undefined,
  });
  return { ...created, lines, counts };
}

test('100 MB at once: each line is taken or counted, and the budget bounds what is kept', () => {
  let now = 0;
  const budget = createBudget({ lines: 6_000, bytes: 1_500_000 }, 1.5, () => now);
  const read = reader((bytes) => budget.has(bytes) && (budget.spend(bytes), true));
  const line = `${AT} ${'x'.repeat(70)}\n`;
  const chunk = Buffer.from(line.repeat(1_000));
  const chunks = Math.ceil(100_000_000 / chunk.length);
  for (let i = 0; i < chunks; i++) {
    now += 1_000 / chunks;
    read.chunk(chunk, 'stdout');
  }
  expect(read.lines.length + read.counts.dropped).toBe(chunks * 1_000);
  // A second of the rate, and the burst.
  expect(read.lines.length).toBeLessThanOrEqual(6_000 * 2.5);
  expect(read.lines.length).toBeGreaterThan(6_000);
});

test('100 MB without a line end: one line of at most 64 KiB', () => {
  const read = reader();
  read.chunk(Buffer.from(`${AT} `), 'stdout');
  const chunk = Buffer.alloc(1_000_000, 0xfe);
  for (let i = 0; i < 100; i++) read.chunk(chunk, 'stdout');
  read.chunk(Buffer.from(`\n${AT} next\n`), 'stdout');
  expect(read.lines).toHaveLength(2);
  expect(read.counts.most).toBeLessThanOrEqual(64 * 1024 + 64);
  expect(read.lines[1]?.text).toBe('next');
});

test('lines in any parts, both streams at once, an empty line, no line end at the end', () => {
  const whole = `${AT} one\r\n${AT} \n${AT} two \u00e9\n${AT} last`;
  for (let size = 1; size < 40; size += 3) {
    const read = reader();
    const bytes = Buffer.from(whole);
    for (let from = 0; from < bytes.length; from += size) {
      read.chunk(bytes.subarray(from, from + size), 'stdout');
      read.chunk(bytes.subarray(from, from + size), 'stderr');
    }
    read.end();
    for (const stream of ['stdout', 'stderr'])
      expect(read.lines.filter((line) => line.stream === stream).map((line) => line.text)).toEqual(['one', '', 'two \u00e9', 'last']);
  }
});
