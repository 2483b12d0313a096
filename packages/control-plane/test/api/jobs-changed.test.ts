/** A job whose schedule changes while a control plane records its times. */
import { expect, it } from 'vitest';
import { createApi, createProject } from './harness.ts';

it('the times of the old schedule are not written over those of the new one', async () => {
  const api = await createApi();
  const id = await createProject(api);
  const of = { params: { id, name: 'report' } };
  const body = { name: 'report', schedule: '*/5 * * * *', command: ['x'] };
  await api.call('createJob', { params: { id }, body });
  const { jobs } = api.stores;
  const before = await jobs.get(id, 'report');
  expect((await api.call('patchJob', { ...of, body: { schedule: '* * * * *' } })).status).toBe(200);
  // The next times of both schedules are the same when this minute is a fifth one.
  const { next_at: _, ...changed } = await jobs.get(id, 'report');
  await jobs.change(id, 'report', { ...changed, next_at: before.next_at });

  const from = before.next_at;
  const nothing = { runs: [], cancel: [] };
  const times = { from, next: (from ?? 0) + 300_000 };
  expect(await jobs.due(before, times, nothing, 0)).toBe(false);
  expect((await jobs.get(id, 'report')).next_at).toBe(from);
  expect(await jobs.due(changed, { from, next: (from ?? 0) + 60_000 }, nothing, 0)).toBe(true);
  await api.close();
});
