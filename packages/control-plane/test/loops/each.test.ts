import { silentLogger } from '@berth/kit/log';
import { expect, test } from 'vitest';
import { each } from '../../src/loops/each.ts';
import { removals } from '../../src/loops/removals.ts';
import { scheduler } from '../../src/loops/scheduler.ts';
import { createApi, createProject, deploy } from '../api/harness.ts';

const go = new AbortController().signal;

test('an item that fails does not stop the others, and the run says how many failed', async () => {
  const done: number[] = [];
  const logged: [string, number][] = [];
  const problem = await each([1, 2, 3, 4], go, {
    async step(item) {
      if (item % 2 === 0) throw new Error(`no ${item}`);
      done.push(item);
    },
    failed: (error, item) => logged.push([(error as Error).message, item]),
  });
  expect(done).toEqual([1, 3]);
  expect(logged).toEqual([
    ['no 2', 2],
    ['no 4', 4],
  ]);
  expect(problem).toBe('2 of 4 failed: no 2');
});

test('a run without a failed item has no problem, and ends at its signal', async () => {
  const stop = new AbortController();
  const done: number[] = [];
  const step = async (item: number): Promise<void> => {
    done.push(item);
    stop.abort();
  };
  const failed = (): never => expect.unreachable();
  expect(await each([1, 2], stop.signal, { step, failed })).toBe(undefined);
  expect(done).toEqual([1]);
});

test('a deployment that no decision can advance makes its loop a failing one', async () => {
  const api = await createApi();
  const ids: string[] = [];
  for (const name of ['shop', 'blog'])
    ids.push(await deploy(api, await createProject(api, { name, domain_prefix: name })));
  const advanced: string[] = [];
  const run = scheduler({
    deployments: api.stores.deployments,
    driver: {
      async advance(id) {
        if (id === ids[0]) throw new TypeError('of undefined');
        advanced.push(id);
        return undefined as never;
      },
    },
    log: silentLogger(),
  });
  expect(await run(go)).toBe('1 of 2 failed: of undefined');
  expect(advanced).toEqual([ids[1]]);
  await api.close();
});

test('a project whose deletion fails does not keep the next one', async () => {
  const api = await createApi();
  const ids: string[] = [];
  for (const name of ['shop', 'blog']) {
    const id = await createProject(api, { name, domain_prefix: name });
    await api.stores.projects.markDeleting(id, 1);
    ids.push(id);
  }
  const [first = '', second = ''] = ids;
  const { stores, driver, changes } = api;
  const deps = { ...stores, driver, changes, log: silentLogger() };
  const facts = async (id: string) => {
    if (id === first) throw new Error('no facts');
    return stores.flow.facts(id);
  };
  expect(await removals({ ...deps, flow: { facts } })(go)).toBe('1 of 2 failed: no facts');
  const gone = async (id: string) => (await stores.projects.getMany([id])).length === 0;
  expect([await gone(first), await gone(second)]).toEqual([false, true]);
  expect(await removals(deps)(go)).toBe(undefined);
  expect(await gone(first)).toBe(true);
  await api.close();
});
