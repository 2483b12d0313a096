import type { LogCursor } from '@berth/wire/log-cursor';
import type { LogBatch } from '@berth/wire/runtime';
import { expect, onTestFinished, test } from 'vitest';
import {
  type Channel,
  closeChannel,
  createChannel,
  deliver,
  keptLines,
  type Place,
  stretchAfter,
} from '../../src/api/runtime-logs/channel.ts';

const atOf = (i: number): string => `2026-11-23T20:00:00.${String(i).padStart(9, '0')}Z`;
const cursor = (i: number, run = 'c1'): LogCursor => ({ run, at: atOf(i), ordinal: 0 });
const batch = (first: number, count: number, text: string, more: Partial<LogBatch> = {}) => ({
  epoch: 'e',
  first,
  now: 0,
  run: 'c1',
  after: first === 0 ? null : cursor(first - 1),
  lines: Array.from({ length: count }, (_, i) => ({
    at: atOf(first + i),
    stream: 'stdout' as const,
    text,
  })),
  ...more,
});
function channelOf(lines = 100, ...batches: ReturnType<typeof batch>[]): Channel {
  const channel = createChannel({ lines, bytes: 1_000_000 }, () => 0, { lines: 0, lost: 0 });
  onTestFinished(() => closeChannel(channel));
  for (const one of batches) deliver(channel, one);
  return channel;
}
const START: Place = { last: null, pos: null };
const shown = (channel: Channel, place: Place) => {
  const { lines, before } = stretchAfter(channel, place, 500);
  return [before, ...lines.map(({ cursor: { at } }) => Number(at.slice(20, 29)))];
};

test('a part of the log has at most so many bytes, but at least one line', () => {
  const channel = channelOf(100, batch(0, 50, 'x'.repeat(10_000)));
  expect(stretchAfter(channel, START, 500, 64 * 1024).lines).toHaveLength(6);
  expect(stretchAfter(channel, START, 500, 10).lines).toHaveLength(1);
});

test('a viewer that falls behind the lines that the bounds keep has a gap', () => {
  const channel = channelOf(10, batch(0, 5, 'x'));
  const place = { last: cursor(2), pos: 3 };
  expect(shown(channel, place)).toEqual(['nothing', 3, 4]);
  deliver(channel, batch(5, 20, 'x'));
  expect([channel.tail, keptLines(channel).length]).toEqual([25, 10]);
  expect(shown(channel, place).slice(0, 2)).toEqual(['gap', 15]);
  // One that comes with a read that reaches the kept lines has none.
  expect(shown(channel, { last: cursor(14), pos: null }).slice(0, 2)).toEqual(['nothing', 15]);
  expect(shown(channel, { last: cursor(13), pos: null }).slice(0, 2)).toEqual(['hole', 15]);
});

test('the first batch that arrives may have overtaken another one: it waits, and no line is missing', async () => {
  const channel = channelOf(100, batch(5, 5, 'second'));
  expect(channel.tail).toBe(0);
  deliver(channel, batch(0, 5, 'first'));
  expect(keptLines(channel).map(({ text }) => text)).toEqual([
    ...Array.from({ length: 5 }, () => 'first'),
    ...Array.from({ length: 5 }, () => 'second'),
  ]);
  expect(shown(channel, START).slice(0, 2)).toEqual(['nothing', 0]);
  const running = channelOf(100, batch(1_000, 5, 'of a reader that ran before'));
  await expect.poll(() => running.tail, { timeout: 10_000 }).toBe(5);
  expect(running.taken.lost).toBe(0);
  expect(shown(running, { last: cursor(900), pos: null }).slice(0, 2)).toEqual(['hole', 1_000]);
  expect(shown(running, { last: cursor(999), pos: null }).slice(0, 2)).toEqual(['nothing', 1_000]);
});

test('a batch whose predecessor does not come is a hole; dropped lines are a gap', async () => {
  const channel = channelOf(100, batch(0, 3, 'x'), batch(5, 2, 'x'));
  const place = { last: cursor(2), pos: 3 };
  expect(shown(channel, place)).toEqual(['nothing']);
  await expect.poll(() => channel.tail, { timeout: 10_000 }).toBe(5);
  expect(shown(channel, place)).toEqual(['hole', 5, 6]);
  // The viewer has read the missing lines.
  expect(shown(channel, { last: cursor(4), pos: null })).toEqual(['nothing', 5, 6]);
  deliver(channel, batch(27, 1, 'x', { gap: true, after: cursor(6) }));
  expect(shown(channel, { last: cursor(6), pos: 5 })).toEqual(['gap', 27]);
  expect(channel.taken.lost).toBe(22);
  expect(shown(channel, START)).toEqual(['nothing', 0, 1, 2]);
});

test('repeated batches and the lines that a new reader sends again come once', () => {
  const channel = channelOf(100, batch(0, 3, 'x'), batch(0, 3, 'x'));
  deliver(channel, batch(0, 5, 'x', { epoch: 'f', after: { ...cursor(2), ordinal: -1 } }));
  deliver(channel, batch(3, 9, 'late batch of the earlier reader'));
  expect(shown(channel, START)).toEqual(['nothing', 0, 1, 2, 3, 4]);
});

test('the clock of the node is set back: the order of the engine decides, not the time', () => {
  const lines = (times: [number, number, number][]) =>
    times.map(([at, record, ordinal]) => ({
      at: atOf(at),
      stream: 'stdout' as const,
      text: `${at}`,
      record: atOf(record),
      ordinal,
    }));
  const first = lines([
    [900, 900, 0],
    [100, 900, 1],
  ]);
  const again = lines([
    [900, 900, 0],
    [100, 900, 1],
    [101, 900, 2],
    [102, 900, 3],
  ]);
  const channel = channelOf(100, batch(0, 0, '', { lines: first }));
  deliver(
    channel,
    batch(0, 0, '', { lines: again, epoch: 'f', after: { ...cursor(900), ordinal: -1 } }),
  );
  expect(keptLines(channel).map(({ text }) => text)).toEqual(['900', '100', '101', '102']);
  expect(
    stretchAfter(channel, { last: { ...cursor(900), ordinal: 1 }, pos: null }, 9).lines.map(
      (l) => l.text,
    ),
  ).toEqual(['101', '102']);
});

test('another container, or a log without the line to begin after: all lines are new', () => {
  const channel = channelOf(100, batch(500, 3, 'x', { first: 0, after: null }));
  deliver(channel, batch(0, 2, 'x', { first: 3, run: 'c2', after: cursor(502) }));
  expect(shown(channel, { last: cursor(502), pos: 3 })).toEqual(['nothing', 0, 1]);
  expect(shown(channel, { last: cursor(500), pos: null })).toEqual(['nothing', 501, 502, 0, 1]);
  const reset = batch(0, 2, 'x', { run: 'c2', epoch: 'f', reset: true, after: cursor(9, 'c2') });
  deliver(channel, reset);
  deliver(channel, reset);
  expect(shown(channel, { last: cursor(1, 'c2'), pos: 5 })).toEqual(['gap', 0, 1]);
});

test('an agent of 0.1.0 has numbers instead of cursors: lines come once, and a missing number is a gap', () => {
  const old = (first: number, count: number, more: Partial<LogBatch> = {}) => {
    const { run: _run, after: _after, ...rest } = batch(first, count, 'x', more);
    return rest;
  };
  const channel = channelOf();
  deliver(channel, old(0, 3));
  deliver(channel, old(0, 3));
  expect(shown(channel, START)).toEqual(['nothing', 0, 1, 2]);
  // A read of the same log, whose container is not known.
  expect(shown(channel, { last: { run: '', at: atOf(1), ordinal: 0 }, pos: null })).toEqual([
    'nothing',
    2,
  ]);
  for (const first of [5, 6, 7, 8, 9]) deliver(channel, old(first, 1));
  expect(shown(channel, { last: channel.lines[2]?.cursor ?? null, pos: 3 })).toEqual([
    'gap',
    5,
    6,
    7,
    8,
    9,
  ]);
  // The agent was upgraded: its cursors go on with the same times.
  deliver(
    channel,
    batch(9, 3, 'x', { epoch: 'f', first: 0, after: { ...cursor(9), ordinal: -1 } }),
  );
  expect(shown(channel, { last: channel.lines[7]?.cursor ?? null, pos: 8 })).toEqual([
    'nothing',
    10,
    11,
  ]);
});
