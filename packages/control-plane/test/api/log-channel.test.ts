import { expect, test } from 'vitest';
import { createChannel } from '../../src/api/log-channel.ts';

const batch = (first: number, count: number, text: string) => ({
  epoch: 'e',
  first,
  now: 0,
  lines: Array.from({ length: count }, (_, i) => ({
    at: `2026-11-23T20:00:00.${String(first + i).padStart(9, '0')}Z`,
    stream: 'stdout' as const,
    text,
  })),
});

test('a part of the log has at most so many bytes, but at least one line', () => {
  const channel = createChannel({ lines: 100, bytes: 1_000_000 }, () => 0);
  channel.deliver(batch(0, 50, 'x'.repeat(10_000)));
  expect(channel.after(0, 500, 64 * 1024)).toHaveLength(6);
  expect(channel.after(0, 500, 10)).toHaveLength(1);
  expect(channel.until(3).map((line) => line.pos)).toEqual([1, 2, 3]);
  channel.close();
});

test('lines that the bounds drop are counted', () => {
  const channel = createChannel({ lines: 10, bytes: 1_000_000 }, () => 0);
  channel.deliver(batch(0, 25, 'x'));
  expect(channel.dropped()).toBe(15);
  expect(channel.after(0, 500)[0]?.lost).toBe(15);
  channel.close();
});
