/** The story of a deployment has a size limit, and lists of deployments contain no stories. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Api, createApi, createProject, register } from './harness.ts';
import { createWorld, type World } from './deployed.ts';

let api: Api;
let world: World;
beforeEach(async () => {
  api = await createApi();
  world = await createWorld(api);
});
afterEach(() => api.close());

type Event = { at: string; kind: string; message: string; count?: number; since?: string };
const story = async (id: string): Promise<Event[]> =>
  (await api.call('getDeployment', { params: { id } })).json['events'] as Event[];
/** Reports the container of `id`, like its node. */
const seen = (id: string, project: string, container: Record<string, unknown>): Promise<string> =>
  register(api, {
    hostname: 'node-1',
    role: 'deploy',
    containers: [
      {
        name: 'svc-shop',
        labels: { 'berth.deployment': id, 'berth.project': project },
        ...container,
      },
    ],
  });

test('a container that crashes 100 times has three story lines with a count', async () => {
  const project = await createProject(api);
  const id = await world.live(project);
  const before = await story(id);
  let first = '';
  for (let i = 0; i < 100; i++) {
    await seen(id, project, { state: 'restarting', host_port: null, exit_code: 1 });
    if (i === 0) first = (await story(id)).at(-1)?.at ?? '';
    api.pass(1000);
    await seen(id, project, { state: 'running', host_port: 32_100 + i });
    api.pass(1000);
  }
  const after = await story(id);
  expect(after.slice(0, before.length)).toEqual(before);
  expect(after.slice(before.length).map((e) => [e.kind, e.count, e.message])).toEqual([
    [
      'health',
      100,
      'unhealthy: its container keeps exiting with exit code 1; the engine restarts it each ' +
        `time (100 times since ${first})`,
    ],
    [
      'port_changed',
      100,
      expect.stringMatching(
        /^the port of its container is now 32199 \(was 32198\); the route follows \(100 times since /,
      ),
    ],
    ['health', 100, expect.stringMatching(/^healthy again: .* \(100 times since /)],
  ]);
  expect(after.at(-1)?.since).toBeDefined();
}, 60_000);

test('of many different lines the middle ones are left out, and one line has their number', async () => {
  const project = await createProject(api);
  const id = await world.live(project);
  const before = await story(id);
  for (let i = 0; i < 300; i++) {
    await seen(id, project, { state: 'exited', host_port: null, exit_code: i });
    api.pass(1000);
  }
  const after = await story(id);
  expect(after).toHaveLength(200);
  expect(after.slice(0, before.length)).toEqual(before);
  expect(after[40]).toMatchObject({
    kind: 'left_out',
    message: `${before.length + 300 - 199} lines are omitted here`,
  });
  expect(after.at(-1)?.message).toContain('exit code 299');
  expect(after.at(-159)?.message).toContain('exit code 141');
}, 60_000);

test('lists contain no stories and no placement', async () => {
  const project = await createProject(api, { env: { BIG: 'x'.repeat(30_000) } });
  const id = await world.live(project);
  const { json, text } = await api.call('listDeployments', { query: { project_id: project } });
  const [item] = json['items'] as Record<string, unknown>[];
  expect(item).toMatchObject({
    id,
    status: 'running',
    url: 'http://shop.berth.localhost:8000',
    health: { status: 'healthy' },
  });
  expect(Object.keys(item ?? {})).not.toEqual(expect.arrayContaining(['events']));
  expect(Object.keys(item ?? {})).not.toEqual(expect.arrayContaining(['placement']));
  expect(text.length).toBeLessThan(2_000);
});
