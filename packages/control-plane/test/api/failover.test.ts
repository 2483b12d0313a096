/** Beats of agents, silent nodes, the brake, and the failover that a person requests. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createWorld, type World } from './deployed.ts';
import { runFailover } from './failover-loop.ts';
import { AGENT_SECRET, type Api, createApi, createProject, register, rulesOf } from './harness.ts';

let api: Api;
let world: World;
beforeEach(async () => {
  api = await createApi();
  world = await createWorld(api);
  await register(api, HOME);
});
afterEach(() => api.close());

const agent = (n: number, over: object = {}) => ({
  hostname: `node-${n}`,
  role: 'deploy',
  host_ip: `10.0.0.${n}`,
  capabilities: ['beat', 'instances'],
  ...over,
});
const HOME = agent(1, { host_ip: '10.0.0.7' });
const SECOND = 1_000;

const beat = (node_id: string) => api.call('agentBeat', { query: { node_id } });
/** Passes time in steps of 5 s, in which only these nodes send beats. */
async function pass(seconds: number, ...beating: string[]): Promise<void> {
  for (let t = 0; t < seconds; t += 5) {
    api.pass(5 * SECOND);
    for (const id of beating) await beat(id);
  }
}
const failoverOf = async (id: string) =>
  (await api.call('getNode', { params: { id } })).json['failover'];
const request = (id: string, body?: object, as: 'admin' | 'developer' = 'admin') =>
  api.call('failoverNode', { params: { id }, as, ...(body === undefined ? {} : { body }) });
/** Runs the loop once. */
const runLoop = () => runFailover(api);
const deploymentOf = async (id: string) =>
  (await api.call('getDeployment', { params: { id } })).json as {
    node_id: string;
    instances: { number: number; state: string; node_id: string | null }[];
    events: { message: string; kind: string }[];
  };

test('a beat is answered with 204, and the answer to a registration tells how often', async () => {
  expect((await beat(world.home)).status).toBe(204);
  const told = await api.call('agentRegister', { body: { ...agent(2), max_storage: 1e12 } });
  expect(told.json['beat_seconds']).toBe(10);
  const builder = await api.call('agentRegister', {
    body: { hostname: 'b', role: 'builder', host_ip: '10.0.0.9', max_storage: 1 },
  });
  expect(builder.json).not.toHaveProperty('beat_seconds');
  expect((await api.call('getNode', { params: { id: world.home } })).json).not.toHaveProperty(
    'beat_seconds',
  );
});
test('a beat of nobody: 401 without a secret, 404 for an unknown node, 422 without a node', async () => {
  expect((await api.call('agentBeat', { query: { node_id: world.home }, as: null })).status).toBe(
    401,
  );
  expect((await beat('unknown')).json['code']).toBe('not_found');
  expect(rulesOf(await api.call('agentBeat'))).toEqual(['node_id:required']);
  const secret = `berthnode_${world.home}_${'x'.repeat(43)}`;
  const forged = await api.call('agentBeat', {
    query: { node_id: world.home },
    headers: { 'x-agent-secret': secret },
  });
  expect(forged.status).toBe(401);
});
test('with a secret of its own, a node beats only for itself', async () => {
  const body = { ...agent(2), max_storage: 1, capabilities: ['beat', 'node_secret'] };
  const told = (await api.call('agentRegister', { body })).json;
  const headers = { 'x-agent-secret': String(told['node_secret']) };
  const own = (node_id: unknown) =>
    api.call('agentBeat', { query: { node_id: String(node_id) }, headers });
  expect((await own(told['id'])).status).toBe(204);
  expect((await own(world.home)).status).toBe(401);
  // After the first request with it, other than a beat, AGENT_SECRET ends for the node.
  await api.call('agentTasks', { query: { node_id: String(told['id']) }, headers });
  const shared = { 'x-agent-secret': AGENT_SECRET };
  const used = await api.call('agentBeat', {
    query: { node_id: String(told['id']) },
    headers: shared,
  });
  expect(used.status).toBe(401);
});

test('a silent node: its instance starts on another node, and the node shows it', async () => {
  const deployment = await world.live(await createProject(api));
  const other = await register(api, agent(2));
  await pass(25, other);
  await runLoop();
  expect(await failoverOf(world.home)).toBeNull();
  await pass(5, other);
  expect(await failoverOf(world.home)).toMatchObject({ held: false, waiting: 1 });
  await runLoop();
  await runLoop();
  const d = await deploymentOf(deployment);
  expect(d.instances.map((i) => [i.number, i.state, i.node_id])).toEqual([
    [1, 'lost', world.home],
    [1, 'starting', other],
  ]);
  expect(d.events.filter(({ message }) => message.includes('moves from'))).toMatchObject([
    { message: 'web 1 moves from node-1 to node-2; node-1 is silent' },
  ]);
  await world.work(other, { host_port: 33_000 });
  expect((await deploymentOf(deployment)).node_id).toBe(other);
  const kinds = (await api.call('events', { query: {} })).json['items'] as { kind: string }[];
  expect(kinds.map(({ kind }) => kind)).toContain('deployment.failover');
});
test.each(['beat', 'poll', 'registration'] as const)('a %s counts as heard', async (what) => {
  await pass(25);
  if (what === 'beat') await beat(world.home);
  else if (what === 'poll')
    await api.call('agentTasks', { query: { node_id: world.home, wait: 0 } });
  else await register(api, HOME);
  await pass(25);
  expect(await failoverOf(world.home)).toBeNull();
  await pass(5);
  expect(await failoverOf(world.home)).not.toBeNull();
});

test('the brake: two of three nodes are silent, nothing moves, and the metrics say so', async () => {
  const deployment = await world.live(await createProject(api));
  const second = await register(api, agent(2));
  const third = await register(api, agent(3));
  await beat(world.home);
  await pass(40, third);
  await runLoop();
  expect((await deploymentOf(deployment)).instances).toMatchObject([{ node_id: world.home }]);
  expect(await failoverOf(world.home)).toMatchObject({
    held: true,
    silent_nodes: 2,
    nodes: 3,
    waiting: 1,
  });
  expect((await api.call('metrics')).text).toMatch(/^berth_failover_brake 2$/m);
  expect((await api.call('metrics')).text).toMatch(/^berth_nodes_silent 2$/m);

  const forced = await request(world.home);
  expect(forced.status).toBe(202);
  expect(forced.json).toMatchObject({
    node: 'node-1',
    moved: [{ project: 'shop', process: 'web', number: 1, to: 'node-3' }],
    left: [],
  });
  expect((await request(world.home)).status).toBe(409);
  await beat(second);
  expect((await api.call('metrics')).text).toMatch(/^berth_failover_brake 0$/m);
  expect((await api.call('metrics')).text).toMatch(/^berth_nodes_silent 1$/m);
});
test('a failover is refused while the node answers or nothing waits; only admins may', async () => {
  expect((await request(world.home, {}, 'developer')).status).toBe(403);
  expect((await request(world.home)).json).toMatchObject({ status: 409, code: 'wrong_state' });
  await pass(40);
  expect((await request(world.home)).json).toMatchObject({
    status: 409,
    detail: 'no instance waits for node-1',
  });
  expect(rulesOf(await request(world.home, { machine_is_off: 'yes' }))).toEqual([
    'machine_is_off:type',
  ]);
  expect((await request(world.home, { now: true })).status).toBe(422);
  expect((await request('nobody')).status).toBe(404);
});
test('what waits by its setting moves if the machine is off; what writes stays, with the reason', async () => {
  await world.live(await createProject(api, { on_node_lost: 'wait' }));
  await register(
    api,
    agent(1, { host_ip: '10.0.0.7', capabilities: ['beat', 'instances', 'volumes'] }),
  );
  await world.live(
    await createProject(api, {
      name: 'wiki',
      domain_prefix: 'wiki',
      volumes: [{ name: 'data', mount_path: '/data' }],
    }),
  );
  const other = await register(api, agent(2));
  await pass(40, other);
  await runLoop();
  const now = await request(world.home);
  expect(now.json).toMatchObject({
    moved: [],
    left: [
      { project: 'shop', why: 'on_node_lost of the project is wait; --machine-is-off moves it' },
      { project: 'wiki', why: 'its volume data is on that machine' },
    ],
  });
  const off = await request(world.home, { machine_is_off: true });
  expect(off.json).toMatchObject({
    moved: [{ project: 'shop', to: 'node-2' }],
    left: [{ project: 'wiki', why: 'its volume data is on that machine' }],
  });
});
test('a repeated beat is answered without the route, until the secret or the node is gone', async () => {
  const url = await api.listen();
  const body = { ...agent(2), max_storage: 1, capabilities: ['beat', 'node_secret'] };
  const told = (await api.call('agentRegister', { body })).json;
  const id = String(told['id']);
  const send = (secret = String(told['node_secret'])) =>
    fetch(`${url}/api/agent/beat?node_id=${id}`, {
      method: 'POST',
      headers: { 'x-agent-secret': secret },
    });
  const first = await send();
  expect([first.status, first.headers.get('x-frame-options')]).toEqual([204, 'DENY']);
  const second = await send();
  expect([second.status, second.headers.get('x-frame-options')]).toEqual([204, null]);
  expect((await send('wrong')).status).toBe(401);
  await pass(30, id);
  await send();
  expect(await failoverOf(id)).toBeNull();
  await api.call('resetNodeSecret', { params: { id } });
  expect((await send()).status).toBe(401);
});
