/**
 * Each line that a container prints after the start of a viewer is shown once or counted once as
 * lost, whenever the container floods. The agent follows the log for a viewer at another control
 * plane already, so the control plane reads it a second time.
 */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createWorld, type World } from './deployed.ts';
import { type Api, createApi, createProject, register } from './harness.ts';
import { logAgent, view, type Viewer } from './log-agent.ts';

let api: Api;
let world: World;
let url: string;
let project: string;
beforeEach(async () => {
  // As with a second control plane that never sends anything.
  const logRelay = { owner: 'a', send: () => undefined, subscribe: () => undefined };
  api = await createApi({
    stores: (real) => ({ ...real, logRelay }),
    overrides: { readerLimits: { lingerMs: 0 } },
  });
  url = await api.listen();
  world = await createWorld(api);
  project = await createProject(api);
  await world.live(project);
  await register(api, {
    hostname: 'node-1',
    role: 'deploy',
    agent_version: '0.1.0',
    capabilities: ['logs'],
  });
});
afterEach(() => api.close());

const lostOf = (viewer: Viewer): number =>
  viewer.of('lost').reduce((sum, { count = 0 }) => sum + count, 0);

/**
 * Numbers of lines: `hole` before the first that arrives; then a gap in the numbers, whose lines
 * are printed around the second read.
 */
type Flood = { hole: number; every?: number; before: number; after: number; end?: 'line' | 'sign' };
test.each<[string, Flood]>([
  [
    'it drops lines before and after the second read, and there are more before the first that ' +
      'arrives',
    { hole: 7_000, before: 20_000, after: 3_000 },
  ],
  [
    'it drops more after the second read than a read has',
    { hole: 5, before: 20_000, after: 20_000 },
  ],
  [
    'it drops lines among those that it sends, and after the read',
    { hole: 5, every: 20, before: 19_000, after: 700 },
  ],
  [
    'it drops lines before and after the second read, and no line follows',
    { hole: 5, before: 20_000, after: 3_000, end: 'sign' },
  ],
])(
  'every line is shown once or lost once: %s',
  { timeout: 60_000 },
  async (_, { hole, every = 1, before, after, end = 'line' }) => {
    const agent = logAgent(() => url, world.home);
    const viewer = await view(url, project, api.token('viewer'), '?tail=10');
    const key = await agent.ready();
    agent.pause(true);
    agent.drop(hole);
    await agent.flood(key, every === 1 ? 50 : before, every);
    if (every === 1) agent.drop(before);
    // The second read begins when the first batch has waited for those that it may have overtaken.
    await expect
      .poll(async () => (await agent.wants()).some(({ mode }) => mode === 'read'), {
        timeout: 20_000,
      })
      .toBe(true);
    const reads = agent.reads();
    agent.pause(false);
    await expect.poll(agent.reads, { timeout: 20_000 }).toBe(reads + 1);
    agent.drop(after);
    if (end === 'line') await agent.flood(key, 1, 1);
    else await agent.sign(key);
    const sum = (): number => viewer.of('line').length + lostOf(viewer);
    await expect.poll(sum, { timeout: 20_000 }).toBeGreaterThanOrEqual(agent.printed());
    await agent.print(key, ['the end']);
    await expect.poll(() => viewer.of('line').at(-1)?.text, { timeout: 20_000 }).toBe('the end');
    const texts = viewer.of('line').map(({ text }) => text);
    expect([new Set(texts).size, texts.length + lostOf(viewer)]).toEqual([
      texts.length,
      agent.printed(),
    ]);
    viewer.close();
  },
);
