/** Progress reports of copies. */
import type { CopyProgress } from '@berth/wire/dataset';
import { expect, it } from 'vitest';
import { createProgressSender } from '../../src/link/progress-sender.ts';
import { until } from '../fake-control-plane.ts';

const row = (bytes_done: number): CopyProgress => ({
  dataset_id: 'd',
  name: 'set',
  version: 2,
  step: 'copying',
  bytes_done,
  bytes_total: 10,
  bytes_per_second: null,
  remaining_seconds: null,
});
it('sends only the newest state, one request at a time, and drops failed reports', async () => {
  const sent: number[] = [];
  let requests = 0;
  const sender = createProgressSender(async ([first]) => {
    expect((requests += 1)).toBe(1);
    await new Promise((resolve) => setTimeout(resolve, 5));
    requests -= 1;
    sent.push(first?.bytes_done ?? -1);
    if (first?.bytes_done === 2) throw new Error('away');
  }, 1);
  sender.push([row(1)]);
  sender.push([row(2)]);
  await until('the first report', () => sent.length === 1);
  sender.push([row(3)]);
  await sender.flush();
  expect(sent).toEqual([2, 3]);
  sender.stop();
  sender.push([row(4)]);
  await sender.flush();
  expect(sent).toEqual([2, 3]);
});
it('flush sends at once', async () => {
  const sent: number[] = [];
  const sender = createProgressSender(
    async ([first]) => void sent.push(first?.bytes_done ?? -1),
    3_600_000,
  );
  sender.push([row(1)]);
  await until('the first report', () => sent.length === 1);
  sender.push([row(2)]);
  await sender.flush();
  expect(sent).toEqual([1, 2]);
});
