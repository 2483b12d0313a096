/**
 * A deployment whose history retention removed: what people see, and that a rollback to it still
 * works.
 */
import { get } from 'node:http';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Api, createApi, createProject, deploy, register, tick } from './harness.ts';

const DAY = 86_400_000;
let api: Api;
let base = '';
let project = '';
const ids: string[] = [];
const envOf = (n: number): Record<string, string> => ({ RELEASE: String(n) });

beforeAll(async () => {
  api = await createApi();
  base = await api.listen();
  await register(api);
  await register(api, { hostname: 'w1', role: 'deploy', containers: [] });
  project = await createProject(api);
  for (let n = 1; n <= 6; n++) {
    await api.call('patchProject', { params: { id: project }, body: { env: envOf(n) } });
    ids.push(await goLive(await deploy(api, project), n));
  }
  for await (const _step of await api.stores.retention.begin(
    { deployments: 2, ms: 90 * DAY, logBytes: 1e9 },
    () => Date.now() + 200 * DAY,
  ));
});
afterAll(() => api.close());

async function finish(task: string, body: object): Promise<void> {
  const lease = (await api.call('agentStart', { params: { id: task } })).json[
    'lease_token'
  ] as string;
  const headers = { 'x-lease-token': lease };
  await api.call('agentLogs', {
    params: { id: task },
    body: { lines: [{ stream: 'stdout', text: `work of ${task}` }] },
    headers,
  });
  const reply = await api.call('agentComplete', {
    params: { id: task },
    body: { status: 'completed', result: {}, ...body },
    headers,
  });
  expect(reply.status, reply.text).toBe(200);
}

/** Builds, starts, publishes and confirms a deployment, and retires the previous one. */
async function goLive(id: string, n: number): Promise<string> {
  const open = async (kind: string): Promise<string> =>
    (await api.stores.flow.facts(project)).tasks.find((task) => task.kind === kind)?.id ?? '';
  await tick(api, id);
  const build = await open('build');
  if (build !== '')
    await finish(build, {
      image_tag: `registry.test:5000/shop:${String(n).repeat(40)}`,
      image_digest: `sha256:${String(n).repeat(64)}`,
    });
  await tick(api, id);
  await finish(await open('deploy'), { container_id: `c${n}`, host_port: 32_000 + n });
  const { host_ip, host_port } = (await api.stores.routes.all()).find(
    (route) => route.project_id === project,
  ) ?? {
    host_ip: '',
    host_port: 0,
  };
  await api.driver.advance(id, { type: 'route_confirmed', host_ip, host_port } as never);
  const retire = await open('retire');
  if (retire !== '') await finish(retire, {});
  expect((await api.stores.deployments.get(id)).status).toBe('running');
  return id;
}

test('a deployment shows that its log and story were removed, and when', async () => {
  const [first = '', , , , , last = ''] = ids;
  const old = (await api.call('getDeployment', { params: { id: first } })).json;
  expect(old).toMatchObject({ status: 'retired', generation: 1, placement: null, error: null });
  expect(Date.parse(String(old['log_removed_at']))).toBeGreaterThan(Date.now() + 199 * DAY);
  expect(old['story_removed_at']).toBe(old['log_removed_at']);
  expect(old['events']).toEqual([
    {
      at: old['story_removed_at'],
      kind: 'story_removed',
      message: expect.stringContaining('KEEP_DEPLOYMENT_DAYS'),
    },
  ]);
  const present = (await api.call('getDeployment', { params: { id: last } })).json;
  expect(present).toMatchObject({ log_removed_at: null, story_removed_at: null });
  expect((present['events'] as unknown[]).length).toBeGreaterThan(3);
  const list = (await api.call('listDeployments', { query: { project_id: project } })).json[
    'items'
  ] as Record<string, unknown>[];
  expect(list.map((d) => d['generation'])).toEqual([6, 5, 4, 3, 2, 1]);
  expect(list.map((d) => d['log_removed_at'] === null)).toEqual([
    true,
    true,
    false,
    false,
    false,
    false,
  ]);
});

test('its log is reported as removed, as a page and as a stream, and not as empty', async () => {
  const [first = '', , , , , last = ''] = ids;
  const page = (await api.call('deploymentLogs', { params: { id: first } })).json;
  expect(page).toEqual({
    lines: [],
    next: 0,
    unavailable: expect.stringMatching(/^the log was removed at \d{4}-.*KEEP_LOG_BYTES/),
  });
  expect(
    (await api.call('deploymentLogs', { params: { id: last } })).json['unavailable'],
  ).toBeUndefined();
  const text = await new Promise<string>((resolve, reject) => {
    const headers = { accept: 'text/event-stream', authorization: `Bearer ${api.token('viewer')}` };
    get(`${base}/api/deployments/${first}/logs`, { agent: false, headers }, (response) => {
      let all = '';
      response.setEncoding('utf8').on('data', (chunk: string) => (all += chunk));
      response.on('end', () => resolve(all));
    }).on('error', reject);
  });
  expect(text.match(/^event: .*/gm)).toEqual(['event: state', 'event: unavailable', 'event: end']);
  expect(text).toContain('the log was removed');
});

test('a rollback to each release works, also without its history; the generation continues', async () => {
  let generation = 6;
  for (const [i, id] of ids.entries()) {
    await register(api, { hostname: 'w1', role: 'deploy' });
    const reply = await api.call('rollback', {
      params: { id: project },
      body: { deployment_id: id },
    });
    expect([reply.status, reply.json['generation']], reply.text).toEqual([201, ++generation]);
    const back = await goLive(String(reply.json['id']), 7);
    const { image_digest, rollback_of } = await api.stores.deployments.get(back);
    expect([image_digest, rollback_of]).toEqual([`sha256:${String(i + 1).repeat(64)}`, id]);
    // The release itself is kept when its history is removed.
    expect((await api.stores.deployments.get(id)).settings.env).toEqual(envOf(i + 1));
  }
});
