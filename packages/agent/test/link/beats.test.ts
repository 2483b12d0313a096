/** Beats: their interval, a hung connection, and a control plane that does not know them. */
import { silentLogger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { createBeats } from '../../src/link/beats.ts';

let calls: AbortSignal[] = [];
let unknown = 0;
let answer: (signal: AbortSignal) => Promise<void>;
let nodeId: string | null = 'n1';
let stop: AbortController;

beforeEach(() => {
  vi.useFakeTimers();
  [calls, unknown, nodeId, stop] = [[], 0, 'n1', new AbortController()];
  answer = () => Promise.resolve();
});
afterEach(() => {
  stop.abort();
  vi.useRealTimers();
});

const beats = () =>
  createBeats({
    client: {
      call: (name: string, input: { query: object; signal: AbortSignal }) => {
        expect([name, input.query]).toEqual(['agentBeat', { node_id: 'n1' }]);
        calls.push(input.signal);
        return answer(input.signal);
      },
    } as unknown as Client,
    nodeId: () => nodeId,
    onUnknown: () => void unknown++,
    log: silentLogger(),
    signal: stop.signal,
  });

it('sends the first beat at once and then one each interval, until the agent stops', async () => {
  const sender = beats();
  sender.every(10);
  expect(calls).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(30_000);
  expect(calls).toHaveLength(4);
  sender.every(10);
  expect(calls).toHaveLength(4);
  stop.abort();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(calls).toHaveLength(4);
});
it('takes another interval, and ends if an answer names none', async () => {
  const sender = beats();
  sender.every(10);
  sender.every(2);
  await vi.advanceTimersByTimeAsync(4_000);
  expect(calls).toHaveLength(4);
  sender.every(undefined);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(calls).toHaveLength(4);
});
it('takes an interval that is no whole number of milliseconds: a third of 10 s', async () => {
  const sender = beats();
  sender.every(10 / 3);
  await vi.advanceTimersByTimeAsync(3_333);
  expect(calls).toHaveLength(2);
});
it('a beat that hangs does not delay the next one', async () => {
  answer = () => new Promise(() => {});
  beats().every(10);
  await vi.advanceTimersByTimeAsync(20_000);
  expect(calls).toHaveLength(3);
});
it('sends nothing while another machine owns the node', async () => {
  nodeId = null;
  beats().every(10);
  await vi.advanceTimersByTimeAsync(20_000);
  expect(calls).toEqual([]);
});
it('registers after a control plane did not know the request, and only then', async () => {
  answer = () => Promise.reject(new Error('connection reset'));
  beats().every(10);
  await vi.advanceTimersByTimeAsync(0);
  expect(unknown).toBe(0);
  answer = () => Promise.reject(new ApiError(404, 'not_found', 'no such route', null));
  await vi.advanceTimersByTimeAsync(10_000);
  expect(unknown).toBe(1);
});
