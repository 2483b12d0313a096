/** With 10,000 held requests one query for all finds the changes of other control planes. */
import { expect, onTestFinished, test } from 'vitest';
import { taskWatch } from '../../src/loops/task-watch.ts';
import { type Api, createApi, register, withBuild } from '../api/harness.ts';

async function counted(): Promise<{ api: Api; looks: () => number; watch: () => Promise<void> }> {
  let looks = 0;
  const api = await createApi({
    stores: (real) => ({
      ...real,
      tasks: {
        ...real.tasks,
        openFor: (node, now) => {
          looks++;
          return real.tasks.openFor(node, now);
        },
      },
    }),
  });
  onTestFinished(() => api.close());
  const run = taskWatch({ ...api.stores, changes: api.changes });
  return { api, looks: () => looks, watch: () => run(new AbortController().signal) };
}
const until = async (what: () => boolean): Promise<void> =>
  expect.poll(what, { timeout: 3000, interval: 5 }).toBe(true);

test('a held request queries once, however long it is held', async () => {
  const { api, looks, watch } = await counted();
  const node = await register(api);
  const held = api.call('agentTasks', { query: { node_id: node, wait: 2.6 } });
  await until(() => looks() === 1);
  await watch();
  await watch();
  expect((await held).text).toBe('[]');
  expect(looks()).toBe(1);
});

test('a change by another control plane wakes the held request of that node only', async () => {
  const { api, looks, watch } = await counted();
  const { builder, task } = await withBuild(api);
  const other = await register(api, { hostname: 'idle' });
  const { etag } = (await api.call('agentTasks', { query: { node_id: builder } })).headers as {
    etag: string;
  };
  await watch();
  const before = looks();
  const idle = api.call('agentTasks', { query: { node_id: other, wait: 1 } });
  const held = api.call('agentTasks', {
    query: { node_id: builder, wait: 20 },
    headers: { 'if-none-match': etag },
  });
  await until(() => looks() === before + 2);
  // Changes only the store, as on another machine: this process gets no notification.
  await api.stores.tasks.claim(task, { token: 't', expires_at: Date.now() + 1000 }, Date.now(), 5);
  await watch();
  const moved = await held;
  expect([moved.status, (moved.json as unknown as { status: string }[])[0]?.status]).toEqual([
    200,
    'running',
  ]);
  expect((await idle).text).toBe('[]');
  expect(looks()).toBe(before + 3);
});
