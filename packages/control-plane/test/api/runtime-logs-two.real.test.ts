/**
 * Two control planes with one real PostgreSQL: the agent talks to one of them, and the viewers hang
 * at either.
 */
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { WantRecord } from '../../src/domain/deployments/runtime-logs.ts';
import type { AllStores } from '../../src/store/open.ts';
import { createWorld } from './deployed.ts';
import { type Api, createApi, createProject, register } from './harness.ts';
import { logAgent } from './log-agent.ts';
import { view, type Viewer } from './log-viewer.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());

describe.skipIf(server === undefined)(
  `runtime logs at two control planes${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    const apis: Api[] = [];
    const urls: string[] = [];
    let project = '';
    let node = '';
    const plane = (i: number): Api => {
      const api = apis[i];
      if (api === undefined) throw new Error('no control plane');
      return api;
    };
    /**
     * Wants that the first control plane knows, when it hears nothing from the database any more;
     * null: all.
     */
    let heard: Promise<WantRecord[]> | null = null;
    beforeAll(async () => {
      const databaseUrl = (await server?.createDatabase('logs')) ?? '';
      for (let i = 0; i < 2; i++) {
        const stores = (real: AllStores): AllStores => ({
          ...real,
          logWants: {
            ...real.logWants,
            list: (...args) => (i === 0 ? heard : null) ?? real.logWants.list(...args),
          },
        });
        const api = await createApi({ databaseUrl, stores });
        apis.push(api);
        urls.push(await api.listen());
      }
      const world = await createWorld(plane(0));
      project = await createProject(plane(0));
      await world.live(project);
      node = await register(plane(0), {
        hostname: 'node-1',
        role: 'deploy',
        agent_version: '0.1.0',
        capabilities: ['logs'],
      });
    });
    afterAll(async () => {
      for (const api of apis) await api.close();
    });

    test('the lines of an agent at one reach the viewers at both, in order and once, and gaps are marked', async () => {
      const [first, second] = [plane(0), plane(1)];
      // The first viewer hangs at the control plane that the agent does not ask.
      let asked = 0;
      const agent = logAgent(() => urls[asked] ?? '', node);
      const away = await view(urls[1] ?? '', project, second.token('viewer'));
      const key = await agent.ready();
      const beside = await view(urls[0] ?? '', project, first.token('viewer'));
      await agent.ready();
      // Each knows the wants of the other when a line has come by way of it.
      for (const [at, viewer] of [
        [1, beside],
        [0, away],
      ] as const) {
        asked = at;
        const has = async (): Promise<boolean> => {
          await agent.print(key, [`probe ${at}`]);
          return viewer.of('line').some(({ text }) => text === `probe ${at}`);
        };
        await expect.poll(has, { timeout: 30_000, interval: 200 }).toBe(true);
      }
      const linesOf = (viewer: Viewer) =>
        viewer.of('line').flatMap(({ text = '' }) => (text.startsWith('probe') ? [] : [text]));
      const texts: string[] = [];
      for (let i = 0; i < 60; i++) {
        // A balancer that is not sticky.
        asked = i % 3 === 0 ? 1 : 0;
        const part = Array.from({ length: 200 }, (_, j) => `line ${i * 200 + j} ${'x'.repeat(80)}`);
        texts.push(...part);
        expect(await agent.print(key, part)).toMatchObject({ wanted: true });
        // A viewer that is 5,000 lines behind loses some, and so does one that waits longer than a
        // second for the database.
        if (i % 3 === 2)
          for (const viewer of [away, beside])
            await expect.poll(() => linesOf(viewer).length, { timeout: 20_000 }).toBe(texts.length);
      }
      await agent.print(key, ['the end'], { dropped: 9 });
      texts.push('the end');
      for (const viewer of [away, beside]) {
        await expect.poll(() => linesOf(viewer).length, { timeout: 20_000 }).toBe(texts.length);
        expect(linesOf(viewer)).toEqual(texts);
        expect(viewer.of('lost').map((lost) => lost.count)).toEqual(['some']);
        viewer.close();
      }
      // Without viewers: both know after the time that a viewer may take to come back.
      for (asked = 0; asked < 2; asked++)
        await expect.poll(() => agent.wants(), { timeout: 50_000 }).toEqual([]);
    });

    test('the control plane that the agent asks dies before it knows of a viewer at the other one: no line is lost in silence', async () => {
      const [first, second] = [plane(0), plane(1)];
      for (const [tail, shown] of [
        [10, ['one', 'two']],
        [0, []],
      ] as const) {
        let asked = 0;
        const agent = logAgent(() => urls[asked] ?? '', node);
        const dying = await view(urls[0] ?? '', project, first.token('viewer'));
        const key = await agent.ready();
        await agent.print(key, ['one', 'two']);
        await expect.poll(() => dying.of('line').length, { timeout: 20_000 }).toBe(2);

        const before = agent.reads();
        heard = Promise.resolve([]);
        const away = await view(urls[1] ?? '', project, second.token('viewer'), `?tail=${tail}`);
        asked = 1;
        await expect.poll(agent.reads, { timeout: 20_000 }).toBe(before + 1);
        const linesOf = (viewer: Viewer) => viewer.of('line').map(({ text }) => text);
        await expect.poll(() => linesOf(away), { timeout: 20_000 }).toEqual(shown);
        asked = 0;
        await agent.print(key, ['three', 'four']);
        // From now on the first control plane is dead.
        asked = 1;
        await agent.print(key, ['five']);
        const all = [...shown, 'three', 'four', 'five'];
        await expect.poll(() => linesOf(away).at(-1), { timeout: 20_000 }).toBe('five');
        expect([linesOf(away).slice(-all.length), away.of('lost')]).toEqual([all, []]);
        away.close();
        dying.close();
        heard = null;
        for (asked = 0; asked < 2; asked++)
          await expect.poll(() => agent.wants(), { timeout: 40_000 }).toEqual([]);
      }
    });
  },
);
