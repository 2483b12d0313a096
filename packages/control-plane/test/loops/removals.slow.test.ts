/** Deletion of a node: running deployments move first, and no new ones are assigned to it. */
import { silentLogger } from '@berth/kit/log';
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { drains } from '../../src/loops/drains.ts';
import { removals } from '../../src/loops/removals.ts';
import { type Api, createApi, register, sha, tick, withBuild } from '../api/harness.ts';

let api: Api;
beforeEach(async () => void (api = await createApi()));
afterEach(() => api.close());

const go = new AbortController().signal;
const loops = async (): Promise<void> => {
  const deps = { ...api.stores, ...api, now: Date.now, log: silentLogger() };
  await drains(deps)(go);
  await removals(deps)(go);
};
type Task = { id: string; kind: string };
const tasks = async (node: string): Promise<Task[]> =>
  (await api.call('agentTasks', { query: { node_id: node } })).json as unknown as Task[];
async function work(id: string, report: object): Promise<void> {
  const claim = await api.call('agentStart', { params: { id } });
  const headers = { 'x-lease-token': String(claim.json['lease_token']) };
  const reply = await api.call('agentComplete', {
    params: { id },
    body: { status: 'completed', ...report },
    headers,
  });
  expect(reply.status, reply.text).toBe(200);
}
const deployment = async (id: string) => (await api.call('getDeployment', { params: { id } })).json;
const routed = async (): Promise<string[]> => (await api.stores.routes.all()).map((r) => r.node_id);
const node = (hostname: string, more: object = {}): Promise<string> =>
  register(api, {
    hostname,
    role: 'deploy',
    host_ip: `10.0.0.${hostname.at(-1)}`,
    boot_id: hostname,
    ...more,
  });

/** The deployment runs on node-1, whose agent reports its container. */
async function running(): Promise<{
  id: string;
  project: string;
  first: string;
  labels: Record<string, string>;
}> {
  const { deployment: id, project, task } = await withBuild(api);
  const first = await node('node-1');
  await work(task, { image_tag: `registry.test:5000/shop:${sha('c')}` });
  await tick(api, id);
  await work((await tasks(first))[0]?.id ?? '', { host_port: 32_001 });
  await api.driver.advance(id, { type: 'route_confirmed', host_ip: '10.0.0.1', host_port: 32_001 });
  for (const t of await tasks(first)) await work(t.id, {});
  const labels = {
    'berth.deployment': id,
    'berth.project': project,
    'berth.generation': '1',
    'berth.node': first,
  };
  await node('node-1', {
    containers: [{ id: 'c1', name: 'svc-shop', labels, host_port: 32_001, state: 'running' }],
  });
  return { id, project, first, labels };
}

test('DELETE of a serving node answers 202, moves its project with its route, and then removes the node', async () => {
  const { id, project, first } = await running();
  const second = await node('node-2');
  const reply = await api.call('deleteNode', { params: { id: first } });
  expect([reply.status, reply.json['deleting']]).toEqual([202, true]);
  expect((await deployment(id))['status']).toBe('running');
  expect(await routed()).toEqual([first]);
  await loops();
  const { items } = (await api.call('listDeployments', { query: { project_id: project } }))
    .json as { items: { id: string }[] };
  const next = items.find((d) => d.id !== id)?.id ?? '';
  await tick(api, next);
  await tick(api, next);
  expect(await routed()).toEqual([first]);
  await work((await tasks(second))[0]?.id ?? '', { host_port: 32_002 });
  await api.driver.advance(next, {
    type: 'route_confirmed',
    host_ip: '10.0.0.2',
    host_port: 32_002,
  });
  expect([(await deployment(id))['status'], (await deployment(next))['status']]).toEqual([
    'retired',
    'running',
  ]);
  expect(await routed()).toEqual([second]);
  for (const t of await tasks(first)) await work(t.id, {});
  await node('node-1', { containers: [] });
  await loops();
  await loops();
  expect((await api.call('getNode', { params: { id: first } })).status).toBe(404);
});

test('a project without another node keeps serving, and the node says why it still exists', async () => {
  const { id, first } = await running();
  await api.call('deleteNode', { params: { id: first } });
  for (let i = 0; i < 3; i++) await loops();
  expect((await deployment(id))['status']).toBe('running');
  expect((await api.call('getNode', { params: { id: first } })).json).toMatchObject({
    deleting: true,
    drain: { left: [{ deployment_id: id }] },
  });
  // The node never comes back; then its routes end.
  await api.call('deleteNode', { params: { id: first }, query: { force: true } });
  expect([(await deployment(id))['status'], await routed()]).toEqual(['retired', []]);
});

test('the node of a contract-only agent is not removed while it serves', async () => {
  const { first } = await running();
  await node('node-1', { containers: [] });
  await api.call('deleteNode', { params: { id: first } });
  await loops();
  expect((await api.call('getNode', { params: { id: first } })).json['deleting']).toBe(true);
});

test('a deployment that was assigned to the node during the deletion moves', async () => {
  const { deployment: id, task } = await withBuild(api);
  const first = await node('node-1');
  await work(task, { image_tag: `registry.test:5000/shop:${sha('c')}` });
  // Like a control plane that read the nodes a moment before.
  await api.stores.nodes.markDeleting(first, Date.now());
  await api.stores.nodes.setSchedulable(first, true).catch(() => undefined);
  const d = await api.stores.deployments.get(id);
  const { project_id, generation } = d;
  const { flow_version } = await api.stores.projects.get(project_id);
  expect(generation).toBe(1);
  const set = { status: 'deploying' as const, node_id: first };
  await api.stores.flow.commit({
    project: { id: project_id, flow_version },
    createDeployment: null,
    changeDeployments: [{ id, from: 'built', set }],
    createTasks: [],
    changeTasks: [],
    route: null,
    storyLines: [],
    push: null,
    volumes: [],
    now: Date.now(),
    uptime: Date.now(),
  });
  await loops();
  expect((await api.stores.deployments.get(id)).status).toBe('built');
});

/** A stopped project with a volume on node-1, whose agent can move volumes. */
async function stoppedWithVolume(): Promise<{
  id: string;
  project: string;
  first: string;
  at: (hostname: string, more?: object) => Promise<string>;
}> {
  const capabilities = ['volumes', 'volume_moves'];
  const at = (hostname: string, more: object = {}): Promise<string> =>
    node(hostname, { capabilities, containers: [], ...more });
  const {
    deployment: id,
    project,
    task,
  } = await withBuild(api, { volumes: [{ name: 'data', mount_path: '/data' }] });
  const first = await at('node-1');
  await work(task, { image_tag: `registry.test:5000/shop:${sha('c')}` });
  await tick(api, id);
  await work((await tasks(first))[0]?.id ?? '', { host_port: 32_001, container_id: 'c1' });
  await api.driver.advance(id, { type: 'route_confirmed', host_ip: '10.0.0.1', host_port: 32_001 });
  for (const t of await tasks(first)) await work(t.id, {});
  await api.call('stopProject', { params: { id: project } });
  for (const t of await tasks(first)) await work(t.id, {});
  await at('node-1');
  return { id, project, first, at };
}
const moved = { result: { digest: 'a'.repeat(64), files: 1, bytes: 1 } };

test('DELETE of a node moves the volume of a stopped project, which stays stopped and starts where its data is', async () => {
  const { id, project, first, at } = await stoppedWithVolume();
  await api.call('deleteNode', { params: { id: first } });
  await loops();
  // No other node: the node waits, and says for what.
  expect((await api.call('getNode', { params: { id: first } })).json).toMatchObject({
    deleting: true,
    drain: {
      finished_at: null,
      left: [
        { deployment_id: id, problem: expect.stringContaining('no node can take its volumes') },
      ],
    },
  });
  const second = await at('node-2');
  await loops();
  expect((await deployment(id))['status']).toBe('running');
  const isMoving = async () => [...(await api.stores.tasks.moving([project, 'unknown']))];
  expect(await isMoving()).toEqual([project]);
  for (const t of await tasks(first)) await work(t.id, moved);
  // The other end still works.
  expect(await isMoving()).toEqual([project]);
  for (const t of await tasks(second)) await work(t.id, moved);
  expect(await isMoving()).toEqual([]);
  // Its next list shows that nothing ran there meanwhile.
  api.pass(1_000);
  await at('node-1');
  await loops();
  expect(await api.stores.volumes.ofProject(project)).toMatchObject([
    { node_id: first, state: 'left' },
    { node_id: second, state: 'current' },
  ]);
  for (const t of await tasks(first)) await work(t.id, {});
  await at('node-1');
  for (let i = 0; i < 4; i++) await loops();
  for (const t of await tasks(first)) await work(t.id, {});
  await at('node-1');
  for (let i = 0; i < 2; i++) await loops();
  expect((await api.call('getNode', { params: { id: first } })).status).toBe(404);
  expect((await api.call('getProject', { params: { id: project } })).json['stopped']).toBe(true);

  const { id: started } = (await api.call('startProject', { params: { id: project } })).json as {
    id: string;
  };
  await tick(api, started);
  await tick(api, started);
  expect(await tasks(second)).toMatchObject([
    { kind: 'deploy', payload: { volumes: { mounts: [{ name: 'data', create: false }] } } },
  ]);
});

test('a drain says which stopped project it waits for, and an uncordon ends the wait', async () => {
  const { id, project, first } = await stoppedWithVolume();
  await api.call('drainNode', { params: { id: first } });
  await loops();
  const left = [
    {
      project_id: project,
      deployment_id: id,
      moving_to: null,
      problem: expect.stringContaining('no node can take its volumes'),
    },
  ];
  expect((await api.call('getNode', { params: { id: first } })).json['drain']).toMatchObject({
    finished_at: null,
    left,
  });
  await api.call('uncordonNode', { params: { id: first } });
  await loops();
  expect(await api.stores.volumes.ofProject(project)).toMatchObject([
    { node_id: first, state: 'current' },
  ]);
});

/** A project that runs on node-2 without its volume, whose data is still on node-1. */
async function droppedVolume(): Promise<{ project: string; first: string }> {
  const { project, first, at } = await stoppedWithVolume();
  await api.call('patchProject', { params: { id: project }, body: { volumes: [] } });
  const second = await at('node-2');
  await api.call('cordonNode', { params: { id: first } });
  const { id: next } = (await api.call('createDeployment', { params: { id: project }, body: {} }))
    .json as { id: string };
  const builder = await register(api);
  await tick(api, next);
  await work((await tasks(builder))[0]?.id ?? '', {
    image_tag: `registry.test:5000/shop:${sha('d')}`,
  });
  await tick(api, next);
  await tick(api, next);
  await work((await tasks(second))[0]?.id ?? '', { host_port: 32_002, container_id: 'c2' });
  await api.driver.advance(next, {
    type: 'route_confirmed',
    host_ip: '10.0.0.2',
    host_port: 32_002,
  });
  for (const t of await tasks(first)) await work(t.id, {});
  await at('node-1');
  expect((await deployment(next))['status']).toBe('running');
  return { project, first };
}
const drainOf = async (id: string) => (await api.call('getNode', { params: { id } })).json['drain'];

test('a drain ends although the data of a volume that its project has removed is there; the data stays and is listed', async () => {
  const { project, first } = await droppedVolume();
  await api.call('drainNode', { params: { id: first } });
  await loops();
  expect(await drainOf(first)).toMatchObject({ finished_at: expect.any(String), left: [] });
  expect((await api.call('nodeVolumes', { params: { id: first } })).json['items']).toMatchObject([
    { project_id: project, folders: [{ name: 'data' }] },
  ]);
  expect(await api.stores.volumes.ofProject(project)).toMatchObject([
    { node_id: first, state: 'current' },
  ]);
});

test('a drain waits if the settings of the project have the volume again, and names the way out', async () => {
  const { project, first } = await droppedVolume();
  await api.call('patchProject', {
    params: { id: project },
    body: { replace: 'recreate', volumes: [{ name: 'data', mount_path: '/data' }] },
  });
  await api.call('drainNode', { params: { id: first } });
  await loops();
  const problem = expect.stringContaining('deploy one while the node is drained');
  expect(await drainOf(first)).toMatchObject({
    finished_at: null,
    left: [{ project_id: project, problem }],
  });
});

test('the deletion of a node waits for the data of a removed volume, says so, and with force leaves it on the disk', async () => {
  const { project, first } = await droppedVolume();
  await api.call('drainNode', { params: { id: first } });
  await loops();
  await api.call('deleteNode', { params: { id: first } });
  for (let i = 0; i < 3; i++) await loops();
  const problem = expect.stringMatching(
    /settings.*delete the project, or delete the node with force/,
  );
  expect(await drainOf(first)).toMatchObject({
    finished_at: null,
    left: [{ project_id: project, problem }],
  });
  await api.call('deleteNode', { params: { id: first }, query: { force: true } });
  expect((await api.call('getNode', { params: { id: first } })).status).toBe(404);
  expect(await api.stores.volumes.ofProject(project)).toMatchObject([
    { node_id: first, state: 'current', names: ['data'] },
  ]);
});

test('a drain reads no facts of the projects that wait, and tries no move after its control plane was told to stop', async () => {
  const { first } = await stoppedWithVolume();
  await api.call('drainNode', { params: { id: first } });
  const facts = vi.spyOn(api.stores.flow, 'facts');
  const moves = vi.spyOn(api.driver, 'moveVolumes');
  await drains({ ...api.stores, ...api, now: Date.now, log: silentLogger() })(AbortSignal.abort());
  expect(moves).not.toHaveBeenCalled();
  await api.call('getNode', { params: { id: first } });
  expect(facts).not.toHaveBeenCalled();
});

test('a repeated DELETE gives a stopped project all tries again', async () => {
  const { project, first } = await stoppedWithVolume();
  await api.call('deleteNode', { params: { id: first } });
  await loops();
  const at = async () => (await api.stores.nodes.get(first)).drain?.tries[project]?.at ?? 0;
  const before = await at();
  vi.spyOn(Date, 'now').mockReturnValue(before + 60_000);
  onTestFinished(() => void vi.restoreAllMocks());
  await loops();
  expect(await at()).toBe(before);
  await api.call('deleteNode', { params: { id: first } });
  expect(await at()).toBe(before + 60_000);
});
