/**
 * Messages of the builder while the log has no room: the builder goes on, and none is lost or out
 * of order.
 */
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createBuildSpool } from '../../src/build/build-spool.ts';

let dir: string;
beforeEach(async () => void (dir = await mkdtemp(join(tmpdir(), 'berth-spool-'))));
afterEach(() => rm(dir, { recursive: true }));

function spoolWith(
  full: { promise: Promise<void> | null },
  over: { maxBytes?: number; signal?: AbortSignal } = {},
) {
  const taken: string[] = [];
  const path = join(dir, 'messages');
  const signal = over.signal ?? new AbortController().signal;
  const spool = createBuildSpool({
    ...over,
    path,
    signal,
    room: () => full.promise,
    take: (message) => taken.push(message),
  });
  return { spool, taken, path };
}

it('messages are taken at once while there is room, and no file is made', async () => {
  const { spool, taken, path } = spoolWith({ promise: null });
  spool.add('a');
  expect(taken).toEqual(['a']);
  await spool.end();
  await expect(stat(path)).rejects.toThrow('ENOENT');
});

it('the builder never waits for the log: its messages wait in the file, and arrive whole and in order', async () => {
  const gate = Promise.withResolvers<void>();
  const full: { promise: Promise<void> | null } = { promise: gate.promise };
  const { spool, taken } = spoolWith(full);
  const messages = Array.from({ length: 500 }, (_, i) => `${i} ü日🚀 ${'x'.repeat(i)}`);
  for (const message of messages) {
    spool.add(message);
    expect(spool.room()).toBeNull();
  }
  expect(taken).toEqual([]);
  full.promise = null;
  gate.resolve();
  // More messages arrive while the file is being emptied.
  spool.add('last');
  await spool.end();
  expect(taken).toEqual([...messages, 'last']);
});

it('a full file lets the builder wait', async () => {
  const gate = Promise.withResolvers<void>();
  const full: { promise: Promise<void> | null } = { promise: gate.promise };
  const { spool, taken } = spoolWith(full, { maxBytes: 10 });
  spool.add('x'.repeat(11));
  const wait = spool.room();
  expect(wait).not.toBeNull();
  full.promise = null;
  gate.resolve();
  await wait;
  expect([spool.room(), taken.length]).toEqual([null, 1]);
  spool.add('again');
  await spool.end();
  expect(taken.at(-1)).toBe('again');
});

it('an abort ends the wait', async () => {
  const ending = new AbortController();
  const { spool, taken } = spoolWith(
    { promise: new Promise(() => undefined) },
    { signal: ending.signal },
  );
  spool.add('a');
  ending.abort();
  await spool.end();
  expect(taken).toEqual([]);
});
