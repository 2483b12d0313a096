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

test('the first batch that arrives may have overtaken another one: it waits, and no line is missing', async () => {
  const channel = createChannel({ lines: 100, bytes: 1_000_000 }, () => 0);
  channel.deliver(batch(5, 5, 'second'));
  expect(channel.end()).toBe(0);
  channel.deliver(batch(0, 5, 'first'));
  expect(channel.after(0, 100).map(({ lost, line }) => [lost, line?.text])).toEqual([
    ...Array.from({ length: 5 }, () => [0, 'first']),
    ...Array.from({ length: 5 }, () => [0, 'second']),
  ]);
  channel.close();
  const running = createChannel({ lines: 100, bytes: 1_000_000 }, () => 0);
  running.deliver(batch(1_000, 5, 'of a reader that ran before'));
  await expect.poll(() => running.end(), { timeout: 10_000 }).toBe(5);
  expect(running.missing()).toBe(0);
  running.close();
});
