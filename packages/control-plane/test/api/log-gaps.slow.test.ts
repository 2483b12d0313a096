/**
 * No line comes twice, all are in order, and each gap is marked, whenever the container floods. The
 * agent follows the log for a viewer at another control plane already, so the control plane reads
 * the missing lines once.
 */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createWorld, type World } from './deployed.ts';
import { type Api, createApi, createProject, register } from './harness.ts';
import { logAgent } from './log-agent.ts';
import { unexplainedGaps, view } from './log-viewer.ts';

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

/** Numbers of lines that are printed around the read of a viewer's missing lines. */
type Flood = { elsewhere: number; sent: number; before: number; after: number };
test.each<[string, Flood]>([
  [
    'it drops lines before and after the second read, and another control plane got earlier ones',
    { elsewhere: 7_000, sent: 50, before: 20_000, after: 3_000 },
  ],
  [
    'it drops more after the second read than a read has',
    { elsewhere: 5, sent: 50, before: 20_000, after: 20_000 },
  ],
  [
    'it sends a full batch, and drops lines after it',
    { elsewhere: 5, sent: 950, before: 19_000, after: 700 },
  ],
  ['it drops nothing', { elsewhere: 3_000, sent: 50, before: 0, after: 0 }],
])(
  'no line comes twice, all are in order, and each gap is marked: %s',
  { timeout: 60_000 },
  async (_, { elsewhere, sent, before, after }) => {
    const agent = logAgent(() => url, world.home);
    await agent.elsewhere(5);
    const viewer = await view(url, project, api.token('viewer'), '?tail=10');
    const key = await agent.ready();
    agent.pause(true);
    const reads = agent.reads();
    await agent.elsewhere(elsewhere);
    await agent.flood(key, sent);
    agent.drop(before);
    // The viewer's lines end before the first batch, so the control plane reads the log once more.
    await expect
      .poll(async () => (await agent.wants()).some(({ mode }) => mode === 'read'), {
        timeout: 20_000,
      })
      .toBe(true);
    agent.pause(false);
    await expect.poll(agent.reads, { timeout: 20_000 }).toBe(reads + 1);
    agent.drop(after);
    await agent.flood(key, 10);
    await agent.print(key, ['the end']);
    await expect.poll(() => viewer.of('line').at(-1)?.text, { timeout: 20_000 }).toBe('the end');
    const texts = viewer.of('line').map(({ text }) => text);
    expect(new Set(texts).size).toBe(texts.length);
    expect(unexplainedGaps(viewer)).toEqual([]);
    if (before + after === 0)
      expect([texts.length, viewer.of('lost')]).toEqual([agent.printed(), []]);
    viewer.close();
  },
);
