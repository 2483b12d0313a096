/** How long requests are held, and when they read again. */
import { EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { createHolds, type Hold, readUntil } from '../../src/api/long-poll.ts';
import { createChanges } from '../../src/domain/platform/changes.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => void vi.useRealTimers());

const MINUTE = 60_000;
function held(waitMs: number) {
  const holds = createHolds();
  const changes = createChanges();
  const client = new EventEmitter() as unknown as ServerResponse;
  const hold = holds.begin('tasks', client) as Hold;
  const reads: number[] = [];
  const began = performance.now();
  const since = (): number => performance.now() - began;
  const read = async (): Promise<boolean> => (reads.push(since()), false);
  const answered: number[] = [];
  void readUntil(read, (result) => result, { changes, topic: 'node:n', waitMs, hold }).then(() =>
    answered.push(since()),
  );
  return { holds, changes, client, reads, answered };
}

test('a request is held for minutes if asked; it reads at the start and after a notification, and not at the end', async () => {
  const { reads, answered, changes } = held(4.5 * MINUTE);
  await vi.advanceTimersByTimeAsync(3 * MINUTE);
  changes.notify('node:n');
  await vi.advanceTimersByTimeAsync(1.4 * MINUTE);
  expect([reads, answered]).toEqual([[0, 3 * MINUTE], []]);
  await vi.advanceTimersByTimeAsync(0.1 * MINUTE);
  expect([reads, answered]).toEqual([[0, 3 * MINUTE], [4.5 * MINUTE]]);
});

test('one person holds at most 100 requests; a released hold can be used again', () => {
  const holds = createHolds();
  const client = (): ServerResponse => new EventEmitter() as unknown as ServerResponse;
  const begin = (holder: string) => holds.begin('events', client(), holder);
  const mine = Array.from({ length: 100 }, () => begin('viewer'));
  expect(mine).not.toContain(null);
  expect(begin('viewer')).toBeNull();
  expect(begin('somebody else')).not.toBeNull();
  mine[0]?.release();
  mine[0]?.release();
  expect([begin('viewer'), begin('viewer')]).toEqual([expect.anything(), null]);
});

test.each([
  ['its client disconnects', (h: ReturnType<typeof held>) => void h.client.emit('close')],
  ['the server closes', (h: ReturnType<typeof held>) => h.holds.closeAll()],
])('a hold ends at once when %s, without another read', async (_what, end) => {
  const one = held(5 * MINUTE);
  await vi.advanceTimersByTimeAsync(1_000);
  end(one);
  await vi.advanceTimersByTimeAsync(0);
  expect([one.answered, one.reads]).toEqual([[1_000], [0]]);
});
