/**
 * No host shows another project: two nodes with one address, and ports that the engine gave to
 * other containers.
 */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { routeCollisions } from '../../src/loops/route-collisions.ts';
import { runFailover } from './failover-loop.ts';
import { type Api, createApi, createProject, deploy, register, sha, tick } from './harness.ts';

let api: Api;
let builder: string;
beforeEach(async () => {
  api = await createApi();
  builder = await register(api);
});
afterEach(() => api.close());

type Reported = Record<string, unknown>;
/** Prefixes of the projects: a container with another name would have drifted. */
const prefixes = new Map<string, string>();
const box = (project: string, deployment: string, node: string, more: object = {}): Reported => ({
  id: `c-${deployment}`,
  name: `svc-${prefixes.get(project) ?? project}`,
  host_port: 32_768,
  state: 'running',
  labels: {
    'berth.deployment': deployment,
    'berth.project': project,
    'berth.generation': '1',
    'berth.node': node,
  },
  ...more,
});
const node = (
  hostname: string,
  host_ip: string,
  containers: Reported[] = [],
  more: object = {},
): Promise<string> =>
  register(api, {
    hostname,
    role: 'deploy',
    host_ip,
    boot_id: hostname,
    capabilities: [],
    containers,
    ...more,
  });
async function work(node: string, report: Reported): Promise<void> {
  for (const task of (await api.call('agentTasks', { query: { node_id: node } }))
    .json as unknown as { id: string }[]) {
    const claim = await api.call('agentStart', { params: { id: task.id } });
    const headers = { 'x-lease-token': String(claim.json['lease_token']) };
    const reply = await api.call('agentComplete', {
      params: { id: task.id },
      body: { status: 'completed', ...report },
      headers,
    });
    expect(reply.status, reply.text).toBe(200);
  }
}
/** Builds a deployment and publishes its route. */
async function published(project: string, home: string, port: number): Promise<string> {
  const id = await deploy(api, project);
  await tick(api, id);
  const { name } = (await api.call('getProject', { params: { id: project } })).json as {
    name: string;
  };
  await work(builder, { image_tag: `registry.test:5000/${name}:${sha(id)}` });
  await tick(api, id);
  await work(home, { host_port: port, container_id: `c-${id}` });
  return id;
}
async function live(project: string, home: string, host_ip: string, port: number): Promise<string> {
  const id = await published(project, home, port);
  await api.driver.advance(id, { type: 'route_confirmed', host_ip, host_port: port });
  await work(home, {});
  return id;
}
async function named(prefix: string): Promise<string> {
  const id = await createProject(api, {
    name: prefix,
    domain_prefix: prefix,
    git_url: `https://git.example.com/${prefix}.git`,
  });
  prefixes.set(id, prefix);
  return id;
}
const shopProject = (): Promise<string> => named('shop');
const blogProject = (): Promise<string> => named('blog');
/** Each published project with the address behind its host. */
async function hosts(): Promise<Record<string, string | undefined>> {
  await api.source.refresh();
  const { http } = (await api.call('traefikConfig')).json as {
    http: { services?: Record<string, { loadBalancer: { servers: { url: string }[] } }> };
  };
  return Object.fromEntries(
    Object.entries(http.services ?? {}).map(([name, { loadBalancer }]) => [
      name,
      loadBalancer.servers[0]?.url,
    ]),
  );
}
const loop = async (): Promise<void> => {
  await api.source.refresh();
  await routeCollisions({ ...api.stores, ...api })(new AbortController().signal);
};
const health = async (id: string) =>
  (await api.call('getDeployment', { params: { id } })).json['health'] as {
    status: string;
    detail: string | null;
  };
const stories = async (id: string): Promise<string[]> =>
  ((await api.call('getDeployment', { params: { id } })).json['events'] as { kind: string }[]).map(
    ({ kind }) => kind,
  );

/**
 * shop runs on node-1, which then dies; node-3 gets its address, and its engine gives blog the same
 * port.
 */
async function replaced(): Promise<{
  shop: string;
  old: string;
  d: string;
  n1: string;
  n3: string;
  blog: string;
}> {
  const n1 = await node('node-1', '10.0.0.5');
  const shop = await shopProject();
  const d = await live(shop, n1, '10.0.0.5', 32_768);
  await node('node-1', '10.0.0.5', [box(shop, d, n1)]);
  api.pass(180_000);
  await register(api);
  const n3 = await node('node-3', '10.0.0.5');
  const blog = await blogProject();
  return { shop, old: d, d, n1, n3, blog };
}

test('a new machine with the address of a dead one serves its own projects only, from the moment of the route', async () => {
  const { d, n3, blog } = await replaced();
  expect(await hosts()).toEqual({ shop: 'http://10.0.0.5:32768' });
  const b = await published(blog, n3, 32_768);
  expect(await hosts()).toEqual({ blog: 'http://10.0.0.5:32768' });
  await loop();
  expect(await health(d)).toMatchObject({
    status: 'unknown',
    detail: expect.stringMatching(
      /^node-1 is offline; its address 10\.0\.0\.5:32768 now belongs to project blog/,
    ),
  });
  expect(await stories(d)).toContain('route_withdrawn');
  await api.driver.advance(b, { type: 'route_confirmed', host_ip: '10.0.0.5', host_port: 32_768 });
  expect(await hosts()).toEqual({ blog: 'http://10.0.0.5:32768' });
});

test('the route of the dead one ends before the new machine has anything at its port', async () => {
  const { shop, d, n1, n3 } = await replaced();
  await runFailover(api);
  expect(await hosts()).toEqual({});
  const { json } = await api.call('getDeployment', { params: { id: d } });
  expect(json['events']).toContainEqual(
    expect.objectContaining({
      kind: 'route_withdrawn',
      message: expect.stringContaining(
        'node-1 is silent, and another machine, node-3, has its address 10.0.0.5 now',
      ),
    }),
  );
  // The dead machine comes back with an address of its own.
  await node('node-1', '10.0.0.6', [box(shop, d, n1)]);
  await node('node-1', '10.0.0.6', [box(shop, d, n1)]);
  await node('node-3', '10.0.0.5', [box('forgotten', 'nobody-knows', n3, { name: 'other' })]);
  await runFailover(api);
  expect(await hosts()).toEqual({ shop: 'http://10.0.0.6:32768' });
  expect(await health(d)).toMatchObject({ status: 'healthy' });
});

test('the new machine and the dead node with its address are shown: node, event, log of the nodes', async () => {
  const { n1, n3 } = await replaced();
  const shown = async (id: string) =>
    (await api.call('getNode', { params: { id } })).json['address_taken'];
  expect(await shown(n1)).toEqual({ node_id: n3, hostname: 'node-3' });
  expect(await shown(n3)).toBeNull();
  const { items } = await api.stores.events.read(0, 1_000);
  expect(
    items.filter(({ kind }) => kind === 'node.address_taken').map(({ message }) => message),
  ).toEqual([expect.stringContaining('node node-3 has its address 10.0.0.5 now')]);
  // The dead machine comes back with an address of its own.
  await node('node-1', '10.0.0.6', []);
  expect(await shown(n1)).toBeNull();
});

test('containers whose port the engine chooses are counted for the operator, unless their agent never says so', async () => {
  const notes = async () =>
    ((await api.call('readyz')).json['notes'] as string[]).filter((note) =>
      note.includes('another port'),
    );
  const home = await node('node-1', '10.0.0.1', [
    box('a', 'da', 'n', { port_fixed: false }),
    box('b', 'db', 'n', { port_fixed: true }),
    box('c', 'dc', 'n', { port_fixed: false, state: 'exited' }),
  ]);
  await node('node-2', '10.0.0.2', [box('x', 'dx', home)]);
  expect(await notes()).toEqual([
    expect.stringMatching(/^1 container on 1 node .* berth restart PROJECT/),
  ]);
  await node('node-1', '10.0.0.1', [box('a', 'da', 'n', { port_fixed: true })]);
  expect(await notes()).toEqual([]);
});

test('a container without a route ends the route of the dead node too', async () => {
  const { d, n3 } = await replaced();
  await node('node-3', '10.0.0.5', [
    box('forgotten', 'nobody-knows', n3, { name: 'svc-forgotten' }),
  ]);
  expect(await hosts()).toEqual({});
  expect(await health(d)).toMatchObject({
    detail: expect.stringContaining('svc-forgotten on node-3'),
  });
});

test('the returned machine gets its route back at a new address, and not at the one that another machine has', async () => {
  const { shop, d, n1, n3, blog } = await replaced();
  const b = await live(blog, n3, '10.0.0.5', 32_768);
  const ofBlog = box(blog, b, n3);
  await node('node-3', '10.0.0.5', [ofBlog]);
  await loop();
  // Both machines claim one address: the one whose container was observed there last stays, and the
  // other one says what to do.
  for (let i = 0; i < 3; i += 1) {
    await node('node-1', '10.0.0.5', [box(shop, d, n1)]);
    await node('node-3', '10.0.0.5', [ofBlog]);
    await loop();
    expect(await hosts()).toEqual({ blog: 'http://10.0.0.5:32768' });
  }
  expect(await health(d)).toMatchObject({
    status: 'unhealthy',
    detail: expect.stringContaining('HOST_IP'),
  });
  await node('node-1', '10.0.0.6', [box(shop, d, n1)]);
  await node('node-1', '10.0.0.6', [box(shop, d, n1)]);
  expect(await hosts()).toEqual({ blog: 'http://10.0.0.5:32768', shop: 'http://10.0.0.6:32768' });
  expect(await health(d)).toMatchObject({ status: 'healthy' });
});

test('several agents of one machine share its address, each with ports of its own', async () => {
  const [n1, n2] = [await node('node-1', '127.0.0.1'), await node('node-2', '127.0.0.1')];
  const shop = await shopProject();
  await api.call('cordonNode', { params: { id: n2 } });
  const d = await live(shop, n1, '127.0.0.1', 20_001);
  await node('node-1', '127.0.0.1', [box(shop, d, n1, { host_port: 20_001 })]);
  await api.call('uncordonNode', { params: { id: n2 } });
  await api.call('cordonNode', { params: { id: n1 } });
  const blog = await blogProject();
  const b = await live(blog, n2, '127.0.0.1', 20_002);
  await node('node-2', '127.0.0.1', [box(blog, b, n2, { host_port: 20_002 })]);
  await loop();
  expect(await hosts()).toEqual({ blog: 'http://127.0.0.1:20002', shop: 'http://127.0.0.1:20001' });
  // One of them is silent: its container serves on.
  api.pass(180_000);
  await node('node-2', '127.0.0.1', [box(blog, b, n2, { host_port: 20_002 })]);
  await loop();
  await runFailover(api);
  expect(await hosts()).toEqual({ blog: 'http://127.0.0.1:20002', shop: 'http://127.0.0.1:20001' });
});

test('after a failed deployment, the old version gets its host back only where its node reports it', async () => {
  const home = await node('node-1', '10.0.0.1');
  const shop = await shopProject();
  const a = await live(shop, home, '10.0.0.1', 32_001);
  const blog = await blogProject();
  const b = await live(blog, home, '10.0.0.1', 32_005);
  // The engine restarts: the container of shop does not come up, and the one of blog gets its port.
  const down = box(shop, a, home, { name: 'svc-shop', host_port: null, state: 'exited' });
  const squatting = [down, box(blog, b, home, { name: 'svc-blog', host_port: 32_001 })];
  await node('node-1', '10.0.0.1', squatting);
  expect(await hosts()).toEqual({ blog: 'http://10.0.0.1:32001' });
  const id = await published(shop, home, 32_006);
  expect(await hosts()).toEqual({ blog: 'http://10.0.0.1:32001', shop: 'http://10.0.0.1:32006' });
  await api.driver.advance(id, {
    type: 'route_unreachable',
    host_ip: '10.0.0.1',
    host_port: 32_006,
    proxy: 'http://p',
    saw: '502 Bad Gateway',
  });
  expect(await hosts()).toEqual({ blog: 'http://10.0.0.1:32001' });
  for (let i = 0; i < 3; i += 1) await node('node-1', '10.0.0.1', squatting);
  expect(await hosts()).toEqual({ blog: 'http://10.0.0.1:32001' });
  const up = {
    name: 'svc-shop',
    host_port: 32_007,
    started_at: new Date(Date.now() - 60_000).toISOString(),
  };
  await node('node-1', '10.0.0.1', [
    box(shop, a, home, up),
    box(blog, b, home, { name: 'svc-blog', host_port: 32_001 }),
  ]);
  expect(await hosts()).toEqual({ blog: 'http://10.0.0.1:32001', shop: 'http://10.0.0.1:32007' });
});

test('the clock of the control plane is set back: the newest route still has the address', async () => {
  const { n3, blog } = await replaced();
  api.pass(-3_600_000);
  await node('node-3', '10.0.0.5');
  await register(api);
  await published(blog, n3, 32_768);
  expect(await hosts()).toEqual({ blog: 'http://10.0.0.5:32768' });
  await loop();
  expect(await hosts()).toEqual({ blog: 'http://10.0.0.5:32768' });
});

test('the clock is set back, and a contract-only node moves to the address of a dead one: its route has the address', async () => {
  const bare = {
    agent_version: undefined,
    boot_id: undefined,
    capabilities: undefined,
    containers: undefined,
  };
  const n2 = await node('node-2', '10.0.0.9', [], bare);
  const blog = await blogProject();
  const b = await published(blog, n2, 32_768);
  await api.driver.advance(b, { type: 'route_confirmed', host_ip: '10.0.0.9', host_port: 32_768 });
  await api.call('cordonNode', { params: { id: n2 } });
  const n1 = await node('node-1', '10.0.0.5');
  const shop = await shopProject();
  const d = await live(shop, n1, '10.0.0.5', 32_768);
  await node('node-1', '10.0.0.5', [box(shop, d, n1)]);
  // Then node-1 dies.
  api.pass(-3_600_000);
  await node('node-2', '10.0.0.5', [], bare);
  expect(await hosts()).toEqual({ blog: 'http://10.0.0.5:32768' });
});

test('an address of the same machine in another spelling is the same address', async () => {
  const n1 = await node('node-1', 'FD00:0:0::5');
  const shop = await shopProject();
  const d = await live(shop, n1, 'fd00::5', 32_768);
  await node('node-1', 'FD00:0:0::5', [box(shop, d, n1)]);
  expect(await hosts()).toEqual({ shop: 'http://[fd00::5]:32768' });
  api.pass(180_000);
  const n3 = await node('node-3', 'fd00:0::5');
  await node('node-3', 'fd00:0::5', [
    box('forgotten', 'nobody-knows', n3, { name: 'svc-forgotten' }),
  ]);
  expect(await hosts()).toEqual({});
});

test('two nodes swap their addresses, and one of them has not listed its containers yet', async () => {
  const [n1, n2] = [await node('node-1', '10.0.0.1'), await node('node-2', '10.0.0.2')];
  const shop = await shopProject();
  await api.call('cordonNode', { params: { id: n2 } });
  const d = await live(shop, n1, '10.0.0.1', 20_001);
  const ofShop = box(shop, d, n1, { host_port: 20_001 });
  await node('node-1', '10.0.0.1', [ofShop]);
  await api.call('uncordonNode', { params: { id: n2 } });
  await api.call('cordonNode', { params: { id: n1 } });
  const blog = await blogProject();
  const b = await live(blog, n2, '10.0.0.2', 20_001);
  const ofBlog = box(blog, b, n2, { host_port: 20_001 });
  await node('node-2', '10.0.0.2', [ofBlog]);
  expect(await hosts()).toEqual({ blog: 'http://10.0.0.2:20001', shop: 'http://10.0.0.1:20001' });
  // Both machines restart with the address of the other one. The engine of node-1 is slow: it lists
  // nothing yet.
  await register(api, {
    hostname: 'node-1',
    role: 'deploy',
    host_ip: '10.0.0.2',
    boot_id: 'node-1',
    capabilities: [],
  });
  const forgotten = box('forgotten', 'nobody-knows', n2, {
    name: 'svc-forgotten',
    host_port: 20_001,
  });
  await node('node-2', '10.0.0.1', [forgotten]);
  expect((await hosts())['shop']).toBeUndefined();
  await node('node-2', '10.0.0.1', [ofBlog]);
  await loop();
  expect(await hosts()).toEqual({ blog: 'http://10.0.0.1:20001' });
  await node('node-1', '10.0.0.2', [ofShop]);
  await node('node-1', '10.0.0.2', [ofShop]);
  await loop();
  expect(await hosts()).toEqual({ blog: 'http://10.0.0.1:20001', shop: 'http://10.0.0.2:20001' });
});

test('of two containers with the label of one deployment, the one that its node deployed counts', async () => {
  const home = await node('node-1', '10.0.0.1');
  const shop = await shopProject();
  const d = await live(shop, home, '10.0.0.1', 20_001);
  const own = box(shop, d, home, {
    name: 'svc-shop',
    host_port: 20_001,
    started_at: new Date(Date.now() - 60_000).toISOString(),
  });
  const copies = ['exited', 'running'].map((state) => ({
    ...own,
    id: `c-${state}`,
    name: `svc-shop-${state}`,
    host_port: state === 'running' ? 20_007 : null,
    state,
  }));
  for (const listed of [[own], [own, ...copies], [...copies, own]]) {
    await node('node-1', '10.0.0.1', listed);
    expect(await hosts()).toEqual({ shop: 'http://10.0.0.1:20001' });
    expect(await health(d)).toMatchObject({ status: 'healthy' });
  }
});

test('a contract-only agent has removed the old container: after a failed deployment its route does not come back', async () => {
  const bare = {
    agent_version: undefined,
    boot_id: undefined,
    capabilities: undefined,
    containers: undefined,
  };
  const home = await node('node-1', '10.0.0.1', [], bare);
  const shop = await shopProject();
  const d = await published(shop, home, 32_001);
  await api.driver.advance(d, { type: 'route_confirmed', host_ip: '10.0.0.1', host_port: 32_001 });
  const id = await published(shop, home, 32_005);
  await tick(api, id);
  expect(await hosts()).toEqual({ shop: 'http://10.0.0.1:32005' });
  api.pass(600_000);
  await node('node-1', '10.0.0.1', [], bare);
  await tick(api, id);
  // Another container of the node gets the free port, and nobody reports it.
  expect(await hosts()).toEqual({});
  for (let i = 0; i < 2; i += 1) {
    expect(await health(d)).toMatchObject({
      status: 'unhealthy',
      detail: expect.stringMatching(/^the agent of node-1 replaced its container/),
    });
    await api.driver.advance(d, { type: 'node_silent' });
  }
});
