/** Runtime logs and ends of a deployment with two instances, each on a node of its own. */
import type { ContainerExit, RuntimeLine, RuntimeLogs } from '@berth/wire/runtime';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Api, createApi, createProject, deploy, rulesOf } from './harness.ts';
import { logAgent } from './log-agent.ts';
import { view, type Viewer } from './log-viewer.ts';
import { type TwoInstances, twoInstances } from './two-instances.ts';

let api: Api;
let url: string;
let two: TwoInstances;
let agents: readonly [ReturnType<typeof logAgent>, ReturnType<typeof logAgent>];
beforeEach(async () => {
  api = await createApi({ overrides: { readerLimits: { lingerMs: 0 } } });
  url = await api.listen();
  two = await twoInstances(api);
  agents = [logAgent(() => url, two.nodes[0]), logAgent(() => url, two.nodes[1])];
}, 60_000);
afterEach(() => api.close());

const page = async (query = ''): Promise<RuntimeLogs> => {
  const answer = await fetch(`${url}/api/projects/${two.project}/logs${query}`, {
    headers: { authorization: `Bearer ${api.token('viewer')}` },
  });
  return (await answer.json()) as RuntimeLogs;
};
const named = ({ process, instance, text }: Partial<RuntimeLine>): string =>
  `${process} ${instance}: ${text}`;
const namedOf = (viewer: Viewer): string[] => viewer.of('line').map(named);
const follow = (query?: string, lastId?: string): Promise<Viewer> =>
  view(url, two.project, api.token('viewer'), query, lastId);
const both = async (): Promise<[string, string]> => [
  await agents[0].ready(),
  await agents[1].ready(),
];

test('as JSON: merged by time, cut together, or those of one instance', async () => {
  const [one, other] = agents;
  for (const [agent, text] of [
    [one, 'a'],
    [other, 'b'],
    [one, 'c'],
    [other, 'd'],
  ] as const)
    await agent.printUnfollowed(text);
  const all = await page();
  expect(all.lines.map(named)).toEqual(['web 1: a', 'web 2: b', 'web 1: c', 'web 2: d']);
  expect(all.lines.every(({ deployment_id }) => deployment_id === two.deployment)).toBe(true);
  const cut = await page('?tail=3');
  expect([cut.lines.map(named), cut.truncated]).toEqual([
    ['web 2: b', 'web 1: c', 'web 2: d'],
    true,
  ]);
  expect((await page('?instance=2')).lines.map(named)).toEqual(['web 2: b', 'web 2: d']);
  expect((await page('?process=web&instance=1')).lines.map(named)).toEqual([
    'web 1: a',
    'web 1: c',
  ]);
  expect((await page('?instance=7')).unavailable).toMatch(/^no instance 7 runs now/);
});

test('each node is asked for its own container only', async () => {
  const viewer = await follow();
  await both();
  const wants = await Promise.all(agents.map((agent) => agent.wants()));
  expect(wants.map((items) => items.map(({ key, instance }) => [key, instance]))).toEqual([
    [[`f-${two.deployment}`, null]],
    [[`f-${two.label}`, two.label]],
  ]);
  viewer.close();
});

test('an unknown process is refused, for logs, ends and metrics', async () => {
  const params = { id: two.project };
  for (const reply of [
    await api.call('projectLogs', { params, query: { process: 'worker' } }),
    await api.call('projectMetrics', { params, query: { process: 'worker' } }),
    await api.call('deploymentExits', {
      params: { id: two.deployment },
      query: { process: 'worker' },
    }),
  ]) {
    expect(reply.status, reply.text).toBe(422);
    expect(rulesOf(reply)).toEqual(['process:process']);
    expect(reply.text).toContain('the processes are web');
  }
  const zero = await api.call('projectLogs', { params, query: { instance: 0 } });
  expect(rulesOf(zero)).toEqual(['instance:minimum']);
});

test('a stream merges the lines before now and the new ones, and resumes without a repeated or a missing line', {
  timeout: 60_000,
}, async () => {
  await agents[0].printUnfollowed('old 1');
  await agents[1].printUnfollowed('old 2');
  await agents[0].printUnfollowed('old 3');
  const viewer = await follow('?tail=2');
  const [first, second] = await both();
  await expect
    .poll(() => namedOf(viewer), { timeout: 20_000 })
    .toEqual(['web 2: old 2', 'web 1: old 3']);
  for (const [agent, key, text] of [
    [agents[1], second, 'new 1'],
    [agents[0], first, 'new 2'],
    [agents[1], second, 'new 3'],
  ] as const) {
    const before = Date.now();
    await agent.print(key, [text]);
    await expect.poll(() => Date.now()).toBeGreaterThan(before);
  }
  await expect
    .poll(() => namedOf(viewer).slice(2), { timeout: 20_000 })
    .toEqual(['web 2: new 1', 'web 1: new 2', 'web 2: new 3']);
  expect(viewer.of('lost')).toEqual([]);
  const ids = viewer.events.filter(({ event }) => event === 'line').map(({ id }) => id);
  viewer.close();

  // After the line `new 1`: both positions are in its id.
  const resumed = await follow('?tail=2', ids[2]);
  await both();
  await agents[0].print(first, ['new 4']);
  await expect
    .poll(() => namedOf(resumed).toSorted(), { timeout: 20_000 })
    .toEqual(['web 1: new 2', 'web 1: new 4', 'web 2: new 3']);
  expect(resumed.of('lost')).toEqual([]);
  resumed.close();
});

test('lines that an agent dropped are marked with their instance', async () => {
  const viewer = await follow();
  const [first, second] = await both();
  await agents[0].print(first, ['a']);
  await agents[1].print(second, ['b']);
  await agents[1].print(second, ['c'], { dropped: 5 });
  await expect.poll(() => viewer.of('line').length, { timeout: 20_000 }).toBe(3);
  expect(viewer.of('lost')).toMatchObject([{ process: 'web', instance: 2 }]);
  viewer.close();
});

test('ends name their instance; those of one do not push out those of another', async () => {
  const at = (second: number): string =>
    new Date(Date.UTC(2026, 10, 23, 12, 0, second)).toISOString();
  const report = (node_id: string, second: number, more: object) =>
    api.call('agentExits', {
      body: {
        node_id,
        exits: [
          {
            deployment_id: two.deployment,
            container_id: `c${second}`,
            container: 'svc-shop',
            exit_code: 1,
            out_of_memory: false,
            error: null,
            started_at: at(second),
            finished_at: at(second),
            lines: [{ at: at(second), stream: 'stdout', text: `end ${second}` }],
            truncated: false,
            ...more,
          },
        ],
      },
    });
  const instance = { id: two.label, process: 'web', number: 2 };
  expect((await report(two.nodes[0], 0, {})).json).toEqual({ stored: 1 });
  for (let second = 1; second <= 6; second += 1)
    expect((await report(two.nodes[1], second, { instance })).json).toEqual({ stored: 1 });
  const exits = async (query: Record<string, string> = {}): Promise<ContainerExit[]> =>
    (await api.call('deploymentExits', { params: { id: two.deployment }, query })).json[
      'items'
    ] as ContainerExit[];
  const all = await exits();
  expect(all.filter((exit) => exit.instance === 2)).toHaveLength(5);
  expect(await exits({ instance: '1' })).toMatchObject([
    { process: 'web', instance: 1, lines: [{ text: 'end 0' }] },
  ]);
  expect(await exits({ instance: '3' })).toEqual([]);
});

test('nothing runs: the last lines of each instance, merged by time', async () => {
  const blog = await createProject(api, { name: 'blog', domain_prefix: 'blog' });
  const failed = await deploy(api, blog);
  const at = (second: number): number => Date.UTC(2026, 10, 23, 12, 0, second);
  const end = (instance: number, second: number) => ({
    deployment_id: failed,
    run: `r${instance} ${second}`,
    process: 'web',
    instance,
    node_id: two.nodes[0],
    container: `svc-blog-${instance}`,
    exit_code: 3,
    out_of_memory: false,
    error: null,
    truncated: false,
    started_at: at(second),
    finished_at: at(second),
    lines: [0, 5].map((later) => ({
      at: new Date(at(second + later)).toISOString(),
      stream: 'stdout' as const,
      text: `${second + later}`,
    })),
  });
  for (const [i, one] of [end(1, 1), end(1, 10), end(2, 12)].entries())
    await api.stores.exits.add(one, at(30 + i));
  const { json } = await api.call('projectLogs', { params: { id: blog } });
  const { lines, unavailable } = json as unknown as RuntimeLogs;
  expect(lines.map(named)).toEqual(['web 1: 10', 'web 2: 12', 'web 1: 15', 'web 2: 17']);
  expect(unavailable).toMatch(/^nothing of this project runs now; .*, and of its other instances$/);
  const second = await api.call('projectLogs', { params: { id: blog }, query: { instance: '2' } });
  expect((second.json as unknown as RuntimeLogs).lines.map(named)).toEqual([
    'web 2: 12',
    'web 2: 17',
  ]);
});
