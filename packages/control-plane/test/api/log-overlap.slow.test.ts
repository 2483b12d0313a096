import { afterEach, expect, test, vi } from 'vitest';
import { createChannel } from '../../src/api/log-channel.ts';
import { createGaps, createOverlap } from '../../src/api/log-overlap.ts';

afterEach(() => void vi.useRealTimers());

const NONE = { stdout: '', stderr: '' };
const at = (n: number): string => `2026-11-23T20:00:00.${String(n).padStart(9, '0')}Z`;
const line = (n: number, text = `line ${n}`, stream: 'stdout' | 'stderr' = 'stdout') => ({
  at: at(n),
  text,
  stream,
});

test('lines up to the newest of the read were shown, of each stream', () => {
  const overlap = createOverlap([line(1), line(2, 'e', 'stderr'), line(3)], [], NONE);
  expect([line(1), line(3), line(4)].map(overlap.wasShown)).toEqual([true, true, false]);
  expect([line(2, 'e', 'stderr'), line(3, 'f', 'stderr')].map(overlap.wasShown)).toEqual([
    true,
    false,
  ]);
});

test('two lines with the same nanosecond are two lines', () => {
  const overlap = createOverlap([line(1), line(2, 'a')], [], NONE);
  expect([line(2, 'a'), line(2, 'b'), line(2, 'a')].map(overlap.wasShown)).toEqual([
    true,
    false,
    false,
  ]);
});

test('a line that the channel had before the viewer is not taken for a later one', () => {
  const overlap = createOverlap([line(2, 'same')], [line(2, 'same')], NONE);
  expect(overlap.wasShown(line(2, 'same'))).toBe(false);
});

test('what an earlier connection had is not shown again', () => {
  const overlap = createOverlap([], [], { stdout: at(5), stderr: '' });
  expect([line(4), line(5), line(6)].map(overlap.wasShown)).toEqual([true, true, false]);
});

/**
 * A container prints `count` lines, of which an agent sends one in `every`, in batches. A viewer
 * has a read up to line `read`, and gets the lines of the channel from position `joined` on.
 * Returns how many lines it gets or are lost.
 */
async function follow(s: {
  count: number;
  every: number;
  batch: number;
  read: number;
  capacity: number;
  recount: number;
  bounds: number;
  early: number;
}) {
  const printed = Array.from({ length: s.count }, (_, i) => line(i + 1));
  const channel = createChannel({ lines: s.bounds, bytes: 1e6 }, () => 0);
  let done = 0;
  const deliver = (to: number): void => {
    for (; done < to; done += s.batch) {
      const part = printed.slice(done, Math.min(done + s.batch, s.count));
      channel.deliver({
        epoch: 'e',
        first: done,
        now: 0,
        lines: part.filter((_, i) => i % s.every === 0),
      });
    }
    // An agent that waits for lines says how many there were.
    channel.deliver({ epoch: 'e', first: Math.min(done, s.count), now: 0, lines: [] });
    // A gap waits for a batch that was overtaken.
    vi.advanceTimersByTime(1_000);
  };
  deliver(s.early);
  let pos = channel.end();
  const read = printed.slice(0, s.read);
  const shown = read.slice(-s.capacity);
  const overlap = createOverlap(shown, channel.until(pos), NONE);
  const gaps = createGaps(overlap.newest, () => false);
  let [got, lost] = [shown.length, read.length - shown.length];
  const seen = new Set(shown.map(({ text }) => text));
  const take = async (): Promise<void> => {
    for (;;) {
      const items = channel.after(pos, 7);
      if (items.length === 0) return;
      const ready = gaps.ready(items);
      if (ready === 0)
        await gaps.settle(
          channel,
          pos,
          async (after) => {
            const lines = printed
              .slice(0, Math.max(done, s.read))
              .filter(({ at }) => at > after.stdout);
            return { lines: lines.slice(-s.recount), total: lines.length };
          },
          async () => undefined,
        );
      for (const item of items.slice(0, ready)) {
        lost += gaps.lost(item);
        pos = item.line?.pos ?? pos + item.lost;
        if (item.line === null || overlap.wasShown(item.line)) continue;
        gaps.sent();
        got += 1;
        expect(seen.has(item.line.text)).toBe(false);
        seen.add(item.line.text);
      }
    }
  };
  for (let to = s.batch; done < s.count; to += s.batch * 2) {
    deliver(Math.max(to, s.early));
    await take();
  }
  channel.close();
  return got + lost;
}

test('each line is shown once or counted once, wherever a read ends and however much of it is left out', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const wrong: unknown[] = [];
  for (const every of [1, 2, 5, 40])
    for (const batch of [10, 40])
      for (const capacity of [4, 15, 200])
        for (const bounds of [8, 1_000])
          for (const early of [0, 120])
            for (let read = Math.max(early, 1); read <= 160; read += 13)
              for (const recount of [160, 4]) {
                const schedule = {
                  count: 160,
                  every,
                  batch,
                  read,
                  capacity,
                  bounds,
                  early,
                  recount,
                };
                const sum = await follow(schedule);
                // A recount without the line that ends the gap counts nothing: then too many are
                // lost, and never too few.
                if (sum < 160 || (recount === 160 && sum !== 160)) wrong.push({ ...schedule, sum });
              }
  expect(wrong.slice(0, 5)).toEqual([]);
});

test('a gap whose lines cannot be counted is lost as a whole', async () => {
  const channel = createChannel({ lines: 100, bytes: 1e6 }, () => 0);
  channel.deliver({ epoch: 'e', first: 0, now: 0, lines: [line(1)] });
  channel.deliver({ epoch: 'e', first: 9, now: 0, lines: [line(10)] });
  await expect.poll(() => channel.end(), { timeout: 10_000 }).toBe(10);
  for (const recount of [async () => null, async () => ({ lines: [line(50)], total: 30 })]) {
    const gaps = createGaps({ stdout: at(3), stderr: '' }, () => false);
    const items = channel.after(0, 10);
    expect(gaps.ready(items)).toBe(1);
    expect(gaps.lost(items[0] ?? { lost: 0, line: null })).toBe(0);
    await gaps.settle(channel, 1, recount, async () => undefined);
    expect(gaps.ready(items.slice(1))).toBe(1);
    expect(gaps.lost({ lost: 8, line: null })).toBe(8);
  }
  channel.close();
});
