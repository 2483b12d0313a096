import { connect } from 'node:net';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createWorld, type World } from './deployed.ts';
import { type Api, createApi, createProject, deploy, register, tick } from './harness.ts';
import { logAgent } from './log-agent.ts';
import { unexplainedGaps, view } from './log-viewer.ts';

let api: Api;
let world: World;
let url: string;
let project: string;
beforeEach(async () => {
  api = await createApi({ overrides: { readerLimits: { slowMs: 300, lingerMs: 0 } } });
  url = await api.listen();
  world = await createWorld(api);
  project = await createProject(api);
  await world.live(project);
  await online();
}, 60_000);
afterEach(() => api.close());
const online = (): Promise<unknown> =>
  register(api, {
    hostname: 'node-1',
    role: 'deploy',
    agent_version: '0.1.0',
    capabilities: ['logs'],
  });
const held = async (): Promise<string | undefined> =>
  /^berth_http_requests_held\{kind="logs"\} (\d+)$/m.exec(
    (await api.call('metrics', { as: 'admin' })).text,
  )?.[1];

test('a viewer that does not read is disconnected, and the others get every line or a mark of the gap', async () => {
  const agent = logAgent(() => url, world.home);
  const viewer = await view(url, project, api.token('viewer'));
  const { hostname, port } = new URL(url);
  const mute = connect({ host: hostname, port: Number(port) });
  mute.on('error', () => undefined);
  mute.pause();
  mute.write(
    `GET /api/projects/${project}/logs?tail=0 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ` +
      `${api.token('viewer')}\r\naccept: text/event-stream\r\n\r\n`,
  );
  await expect.poll(held, { timeout: 20_000 }).toBe('2');
  const key = await agent.ready();
  let sent = 0;
  // Until the buffers of the connection are full, and so long.
  await expect
    .poll(
      async () => {
        await agent.print(
          key,
          Array.from({ length: 100 }, (_, i) => `line ${sent + i} ${'x'.repeat(4_000)}`),
        );
        sent += 100;
        return held();
      },
      { timeout: 60_000, interval: 20 },
    )
    .toBe('1');
  // The channel keeps 1 MiB: on a busy machine this viewer can fall behind, too.
  await expect
    .poll(() => viewer.of('line').at(-1)?.text, { timeout: 20_000 })
    .toContain(`line ${sent - 1} `);
  expect(unexplainedGaps(viewer)).toEqual([]);
  viewer.close();
  mute.destroy();
});

test('a gap is marked, and its times are corrected when the clock of the node is an hour behind', async () => {
  const agent = logAgent(() => url, world.home);
  const viewer = await view(url, project, api.token('viewer'));
  const key = await agent.ready();
  await agent.print(key, ['one'], { clockMs: -3_600_000 });
  await agent.print(key, ['two'], { dropped: 41, clockMs: -3_600_000 });
  await expect
    .poll(() => viewer.of('line').map((line) => line.text), { timeout: 20_000 })
    .toEqual(['one', 'two']);
  expect(viewer.events.map((e) => e.event)).toEqual(['line', 'lost', 'line']);
  const [lost] = viewer.of('lost');
  expect(lost?.count).toBe('some');
  for (const at of [lost?.from, lost?.to])
    expect(Math.abs(Date.now() - Date.parse(at ?? ''))).toBeLessThan(120_000);
  viewer.close();
});

test('a Last-Event-ID that is forged, or of another project, chooses only where this stream begins', {
  timeout: 60_000,
}, async () => {
  const agent = logAgent(() => url, world.home);
  await agent.elsewhere(3);
  const token = api.token('viewer');
  const deployment = (await agentKey(agent, token)).slice('f-'.length);
  const id = (at: string) => `${deployment}~${at}~${at},999999999:zzz`;
  const forged = [
    id('9999-01-01T00:00:00.000000000Z'),
    id('2001-01-01T00:00:00.000000000Z'),
    'd-of-another-project~2026-01-01T00:00:00Z~,0:c1',
    `${'x'.repeat(5_000)}~~`,
    'a~b~c~d,e:f:g',
  ];
  for (const lastId of forged) {
    const viewer = await view(url, project, token, '', lastId);
    await expect.poll(() => viewer.of('line').length, { timeout: 20_000 }).toBe(3);
    const isKnown = lastId.startsWith(deployment);
    expect(viewer.of('lost')).toHaveLength(isKnown ? 1 : 0);
    viewer.close();
  }
  // The shared follower begins where the log ended, not where a client says.
  const honest = await view(url, project, token);
  await agent.print(await agent.ready(), ['line 3']);
  await expect
    .poll(() => honest.of('line').map(({ text }) => text), { timeout: 20_000 })
    .toEqual(['line 3']);
  honest.close();
});

async function agentKey(agent: ReturnType<typeof logAgent>, token: string): Promise<string> {
  const viewer = await view(url, project, token);
  const key = await agent.ready();
  viewer.close();
  return key;
}

test('a resumed stream can be resumed again without lines that the viewer has, also of a quiet deployment', async () => {
  const agent = logAgent(() => url, world.home);
  await agent.elsewhere(3);
  const second = await deploy(api, project);
  await tick(api, second);
  await world.built();
  await tick(api, second);
  const token = api.token('viewer');
  const first = await view(url, project, token, '');
  await expect.poll(() => first.of('line'), { timeout: 20_000 }).toHaveLength(6);
  first.close();
  const again = await view(url, project, token, '', first.events.at(-1)?.id);
  const follows = async () => (await agent.wants()).filter(({ mode }) => mode === 'follow');
  await expect.poll(follows, { timeout: 20_000 }).toHaveLength(2);
  await agent.print(await agent.ready(), ['new']);
  await expect
    .poll(() => again.of('line').map(({ text }) => text), { timeout: 20_000 })
    .toEqual(['new']);
  // The newest lines of both deployments.
  expect(again.events.at(-1)?.id.match(/(?<=^|,)[\w-]+~/g)).toHaveLength(2);
  again.close();
});

test('a node that is lost while its log is read: the stream says so once and goes on when the node is back', async () => {
  const agent = logAgent(() => url, world.home);
  const viewer = await view(url, project, api.token('viewer'));
  await agent.print(await agent.ready(), ['before']);
  await expect.poll(() => viewer.of('line').length, { timeout: 20_000 }).toBe(1);
  viewer.close();
  api.pass(300_000);
  const later = await view(url, project, api.token('viewer'));
  await expect
    .poll(() => later.of('gone').map((gone) => gone.message), { timeout: 20_000 })
    .toEqual([expect.stringMatching(/^node node-1 is offline since /)]);
  await online();
  await agent.print(await agent.ready(), ['after']);
  await expect
    .poll(() => later.of('line').map((line) => line.text), { timeout: 20_000 })
    .toEqual(['after']);
  expect(later.of('gone')).toHaveLength(1);
  later.close();
});

test('nothing runs: JSON and stream show the last lines of the container that ended last, and say so', async () => {
  const at = '2026-11-24T01:00:00.000000000Z';
  const blog = await createProject(api, { name: 'blog', domain_prefix: 'blog' });
  const failed = await deploy(api, blog);
  const end = {
    container: 'svc-blog',
    exit_code: 3,
    out_of_memory: false,
    error: null,
    truncated: false,
    node_id: world.home,
  };
  const lines = ['first', 'last'].map((text) => ({ at, stream: 'stdout' as const, text }));
  const times = { started_at: Date.parse(at), finished_at: Date.parse(at) };
  expect(
    await api.stores.exits.add(
      { ...end, ...times, run: 'r', deployment_id: failed, process: 'web', instance: 1, lines },
      Date.now(),
    ),
  ).toBe(true);
  const message =
    'nothing of this project runs now; these are the last lines of svc-blog, which ended at ' +
    '2026-11-24T01:00:00.000Z with exit code 3';
  const { json } = await api.call('projectLogs', { params: { id: blog } });
  expect(json).toMatchObject({
    truncated: false,
    unavailable: message,
    lines: [{ text: 'first' }, { text: 'last' }],
  });
  const stopped = await view(url, blog, api.token('viewer'), '');
  await expect
    .poll(() => stopped.of('gone').map((gone) => gone.message), { timeout: 20_000 })
    .toEqual([message]);
  expect(stopped.of('line').map((line) => line.text)).toEqual(['first', 'last']);
  stopped.close();

  const empty = await createProject(api, { name: 'empty', domain_prefix: 'empty' });
  expect((await api.call('projectLogs', { params: { id: empty } })).json).toEqual({
    lines: [],
    truncated: false,
    unavailable: 'nothing of this project runs now, and no end of a container is stored',
  });
  const viewer = await view(url, empty, api.token('viewer'));
  await expect
    .poll(() => viewer.of('gone').map((gone) => gone.message), { timeout: 20_000 })
    .toEqual(['nothing of this project runs now, and no end of a container is stored']);
  viewer.close();
});
