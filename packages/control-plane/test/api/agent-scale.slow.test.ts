/** Many agents at once: a registration without news costs little, and a task reaches its agent. */
import { silentLogger } from '@berth/kit/log';
import { expect, onTestFinished, test } from 'vitest';
import type { AllStores } from '../../src/store/open.ts';
import { openStores } from '../../src/store/open.ts';
import { type Api, createApi, createProject, deploy, NODE, register, tick } from './harness.ts';

const until = async (what: () => boolean): Promise<void> =>
  expect.poll(what, { timeout: 10_000, interval: 5 }).toBe(true);

test('a registration without changes is answered even while the database is gone', async () => {
  const stores = await openStores({ databaseUrl: 'sqlite::memory:', log: silentLogger() });
  const api = await createApi({ overrides: { stores } });
  const body = { containers: [], hostname: 'calm' };
  const id = await register(api, body);
  await register(api, body);
  expect((await api.call('agentTasks', { query: { node_id: id } })).text).toBe('[]');
  await stores.tasks.openByNode();
  await stores.close();
  expect((await api.call('readyz')).status).toBe(503);
  const again = await api.call('agentRegister', { body: { ...NODE, ...body, free_storage: 1 } });
  expect(again.json).toMatchObject({ id, free_storage: 1, open_tasks: '' });
  // A change must be written.
  await expect(register(api, { ...body, boot_id: 'another' })).rejects.toThrow();
});

test('a task wakes only the held request of its agent among 2,000 others', async () => {
  let looks = 0;
  const counted = (real: AllStores): AllStores => ({
    ...real,
    tasks: { ...real.tasks, openFor: (node, now) => (looks++, real.tasks.openFor(node, now)) },
  });
  const api: Api = await createApi({ stores: counted });
  onTestFinished(() => api.close());
  const held = async (node: string) => {
    const reply = await api.call('agentTasks', { query: { node_id: node, wait: 50 } });
    return JSON.parse(reply.text) as { kind: string }[];
  };
  const others = 2_000;
  const answered: string[] = [];
  for (let i = 0; i < others; i++) {
    const { node } = await api.stores.nodes.register(
      { ...NODE, hostname: `other-${i}`, role: 'deploy' },
      Date.now(),
    );
    void held(node.id).then(() => answered.push(node.id));
  }
  const project = await createProject(api);
  const builder = held(await register(api, { hostname: 'builder' }));
  await until(() => looks === others + 1);
  const deployment = await deploy(api, project);
  await tick(api, deployment);
  expect(await builder).toMatchObject([{ kind: 'build' }]);
  expect([answered, looks]).toEqual([[], others + 2]);
}, 30_000);
