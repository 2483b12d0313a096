/** A failover beside something else that happens to the project or the node. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createWorld, type World } from './deployed.ts';
import { runFailover } from './failover-loop.ts';
import { type Api, createApi, createProject, deploy, register, tick } from './harness.ts';

const SECOND = 1_000;
const HOME_IP = '10.0.0.7';
const agent = (n: number, over: object = {}) => ({
  hostname: `node-${n}`,
  role: 'deploy',
  host_ip: n === 1 ? HOME_IP : `10.0.0.1${n}`,
  capabilities: ['beat', 'instances'],
  ...over,
});

let api: Api;
let world: World;
let project: string;
let deployment: string;
/** Takes over from `world.home`. */
let other: string;

beforeEach(async () => {
  api = await createApi();
  world = await createWorld(api);
  await register(api, agent(1));
  project = await createProject(api);
  deployment = await world.live(project);
  other = await register(api, agent(2));
}, 60_000);
afterEach(() => api.close());

const of = (id: string) => ({ params: { id } });
/** Passes 35 s in which only these nodes poll, and runs the loop. */
async function silence(...polling: string[]): Promise<void> {
  for (let t = 0; t < 35; t += 5) {
    api.pass(5 * SECOND);
    for (const node_id of polling) await api.call('agentTasks', { query: { node_id, wait: 0 } });
  }
  await runFailover(api);
}
type Task = { id: string; kind: string; deployment_id: string; payload: object };
type Shown = {
  node_id: string;
  status: string;
  instances: { number: number; state: string; node_id: string | null; node_name: string }[];
};
const see = async (id = deployment): Promise<Shown> =>
  (await api.call('getDeployment', of(id))).json as unknown as Shown;
const rows = async (id = deployment): Promise<string[]> =>
  (await see(id)).instances.map((i) => `${i.number} ${i.state} ${i.node_name ?? '–'}`);
/** Reports the open task of a contract-only node, without a claim. */
async function reportPlain(node: string, report: object): Promise<void> {
  const [task] = await tasksOf(node);
  const headers = { 'x-node-id': node };
  const reply = await api.call('agentComplete', {
    params: { id: task?.id ?? '' },
    body: report,
    headers,
  });
  expect(reply.status, reply.text).toBe(200);
}
const answers = (node = other) => world.work(node, { host_port: 33_000, container_id: 'k9' });
/** Lets the deploy task of the deployment on `other` end, and the proxy confirm its route. */
async function serves(id: string): Promise<void> {
  const task = (await tasksOf(other)).find((t) => t.kind === 'deploy' && t.deployment_id === id);
  const claim = await api.call('agentStart', { params: { id: task?.id ?? '' } });
  const headers = { 'x-lease-token': String(claim.json['lease_token']) };
  const body = { status: 'completed', host_port: 33_000, container_id: 'k9' };
  await api.call('agentComplete', { params: { id: task?.id ?? '' }, body, headers });
  const route = { host_ip: '10.0.0.12', host_port: 33_000 };
  await api.driver.advance(id, { type: 'route_confirmed', ...route });
}
const tasksOf = async (node: string): Promise<Task[]> =>
  (await api.call('agentTasks', { query: { node_id: node, wait: 0 } })).json as never;
/** The machine is back, with the container that ran there. */
const returns = (over: object = {}): Promise<string> =>
  register(
    api,
    agent(1, {
      containers: [
        {
          id: 'c1',
          name: 'svc-shop',
          labels: { 'berth.project': project, 'berth.deployment': deployment },
          host_port: 32_001,
          state: 'running',
        },
      ],
      ...over,
    }),
  );
/** The driver of the harness has no failover watch: it does not know that the node is silent. */
const cordonHome = () => api.call('cordonNode', of(world.home));
const endpoint = async (): Promise<unknown> => {
  const { json } = await api.call('traefikConfig', {});
  const { http } = json as {
    http: { services?: Record<string, { loadBalancer: { servers: { url: string }[] } }> };
  };
  return http.services?.['shop']?.loadBalancer.servers.map(({ url }) => url);
};

describe('beside a stop', () => {
  it('a stop during the failover ends the replacement; a start serves on another node', async () => {
    await silence(other);
    expect(await rows()).toEqual(['1 lost node-1', '1 starting node-2']);
    expect((await api.call('stopProject', of(project))).status).toBe(202);
    expect(await tasksOf(other)).toEqual([]);
    expect(await tasksOf(world.home)).toMatchObject([
      { payload: { stop: [{ deployment_id: deployment }] } },
    ]);
    await cordonHome();
    const reply = await api.call('startProject', of(project));
    expect(reply.status, reply.text).toBeLessThan(300);
    const { items } = (await api.call('projectDeployments', of(project))).json as never as {
      items: { id: string }[];
    };
    const next = items[0]?.id ?? '';
    await tick(api, next);
    await tick(api, next);
    await serves(next);
    expect(await see(next)).toMatchObject({ status: 'running', node_id: other });
  });
  it('a project that was stopped before its node became silent has nothing to move', async () => {
    await api.call('stopProject', of(project));
    await silence(other);
    expect(await tasksOf(other)).toEqual([]);
  });
});

describe('beside a drain', () => {
  it('a drain of the silent node that is taken back keeps the replacement', async () => {
    await api.call('drainNode', of(world.home));
    await silence(other);
    await api.driver.advance(deployment, { type: 'node_drained', node_id: world.home });
    await api.call('uncordonNode', of(world.home));
    expect(await rows()).toEqual(['1 lost node-1', '1 starting node-2']);
    await answers();
    expect((await see()).node_id).toBe(other);
  });
});

describe('beside an agent of 0.2.0', () => {
  it('which does not report the label of an instance, the first one stays', async () => {
    await silence(other);
    await answers();
    expect(await rows()).toEqual(['1 serving node-2', '1 lost node-1']);
    const labels = { 'berth.project': project, 'berth.deployment': deployment };
    const container = { name: 'svc-shop', labels, host_port: 33_000, state: 'running' };
    const containers = [{ ...container, id: 'k9' }];
    await register(api, agent(2, { capabilities: [], containers }));
    api.pass(60 * SECOND);
    await register(api, agent(2, { capabilities: [], containers }));
    const removals = (await tasksOf(other)).flatMap(({ payload }) =>
      'remove' in payload ? (payload.remove as unknown[]) : [],
    );
    expect(removals).toEqual([]);
    expect(await rows()).toEqual(['1 serving node-2', '1 lost node-1']);
  });
});

describe('beside a renamed machine', () => {
  it('the machine returns with another name before the replacement answers', async () => {
    await silence(other);
    const renamed = await returns({ hostname: 'renamed' });
    await tick(api, deployment);
    // Whichever serves, one instance is left.
    const kept = await see();
    if (kept.node_id !== renamed) await answers();
    expect((await rows()).filter((row) => row.includes('serving'))).toHaveLength(1);
    expect(await endpoint()).toHaveLength(1);
  });
  it('the machine returns with another name after it: the container there is removed', async () => {
    await silence(other);
    await answers();
    const renamed = await returns({ hostname: 'renamed' });
    await tick(api, deployment);
    expect((await see()).node_id).toBe(other);
    expect(await tasksOf(renamed)).toMatchObject([
      { payload: { remove: [{ deployment_id: deployment }] } },
    ]);
  });
});

describe('beside a change', () => {
  it('another prefix and settings: the replacement is like its version', async () => {
    const body = { domain_prefix: 'store', env: { MODE: 'new' } };
    expect((await api.call('patchProject', { ...of(project), body })).status).toBe(200);
    await silence(other);
    const payload = await answers();
    expect(payload).toMatchObject({ env: {} });
    expect(await endpoint()).toEqual(['http://10.0.0.12:33000']);
  });
  it('a rollback during the failover: its version serves, and the replacement is removed', async () => {
    const newer = await world.live(project);
    await silence(other);
    expect(await rows(newer)).toEqual(['1 lost node-1', '1 starting node-2']);
    await cordonHome();
    const reply = await api.call('rollback', of(project));
    expect(reply.status, reply.text).toBe(201);
    const back = String(reply.json['id']);
    await tick(api, back);
    await tick(api, back);
    expect((await see(back)).node_id).toBe(other);
    await serves(back);
    expect(await rows(back)).toEqual(['1 serving node-2']);
    expect(await endpoint()).toEqual(['http://10.0.0.12:33000']);
    const { payload } = (await tasksOf(other)).find(({ kind }) => kind === 'retire') ?? {};
    expect(payload).toMatchObject({ remove: [{ deployment_id: newer }] });
  });
});

describe('beside a deletion', () => {
  it.each([false, true])(
    'a project is deleted while its node is silent (replacement serves: %s)',
    async (serves) => {
      await silence(other);
      if (serves) await answers();
      expect((await api.call('deleteProject', of(project))).status).toBe(202);
      expect(await endpoint()).toBeUndefined();
      // The loop starts no part of it, also not when it runs again.
      await silence(other);
      for (const { payload } of await tasksOf(other)) expect(payload).not.toHaveProperty('image');
      await returns();
      expect(await tasksOf(world.home)).toMatchObject([
        { payload: { remove: [{ deployment_id: deployment }] } },
      ]);
    },
  );
});

/** A project that runs on a contract-only node; the other nodes are cordoned. */
async function onPlain() {
  const body = { hostname: 'plain', role: 'deploy', host_ip: '10.0.0.19', max_storage: 1e12 };
  const registers = async () => String((await api.call('agentRegister', { body })).json['id']);
  const plain = await registers();
  await cordonHome();
  await api.call('cordonNode', of(other));
  const wiki = await createProject(api, { name: 'wiki', domain_prefix: 'wiki' });
  const id = await deploy(api, wiki);
  await tick(api, id);
  await world.built();
  await tick(api, id);
  await reportPlain(plain, { status: 'completed', host_port: 34_000 });
  const at = { host_ip: '10.0.0.19', host_port: 34_000 };
  await api.driver.advance(id, { type: 'route_confirmed', ...at });
  expect(await rows(id)).toEqual(['1 serving plain']);
  return { id, plain, registers };
}

describe('beside contract-only agents', () => {
  it('a node of a contract-only agent does not take over, and the reason says so', async () => {
    const { capabilities: _, ...contract } = agent(3);
    const body = { ...contract, max_storage: 1e12 };
    const plain = String((await api.call('agentRegister', { body })).json['id']);
    await api.call('cordonNode', of(other));
    await silence(other, plain);
    const [, replacement] = (await see()).instances as unknown as { detail: string }[];
    expect(await rows()).toEqual(['1 lost node-1', '1 waiting –']);
    expect(replacement?.detail).toContain('second instance');
  });

  it('its own node is lost after OFFLINE_AFTER: the replacement takes over and stays at its return', async () => {
    const { id, plain, registers } = await onPlain();
    await api.call('uncordonNode', of(other));

    await silence(other, world.home);
    expect(await rows(id)).toEqual(['1 serving plain']);
    for (let n = 0; n < 3; n++) {
      await register(api, agent(2));
      await silence(other, world.home);
    }
    expect(await rows(id)).toEqual(['1 lost plain', '1 starting node-2']);
    await answers();
    // It cannot list its old container, so no instance waits for that: a person removes it.
    expect(await rows(id)).toEqual(['1 serving node-2']);
    await registers();
    await tick(api, id);
    expect(await rows(id)).toEqual(['1 serving node-2']);
    expect((await api.call('getNode', of(plain))).json).toMatchObject({
      unmanaged: [{ container: 'svc-wiki', project: 'wiki' }],
    });
  });
  it('it is back before a node can take its instance: it serves again, and nothing starts', async () => {
    const { id, plain, registers } = await onPlain();
    for (let n = 0; n < 4; n++) await silence(other, world.home);
    expect(await rows(id)).toEqual(['1 lost plain', '1 waiting –']);
    await api.driver.advance(id, { type: 'scaled' });
    expect(await rows(id)).toEqual(['1 lost plain', '1 waiting –']);
    api.pass(SECOND);
    await registers();
    await api.driver.advance(id, { type: 'scaled' });
    const back = await see(id);
    expect(back).toMatchObject({
      node_id: plain,
      instances: [{ number: 1, node_id: plain }],
      health: {
        status: 'unknown',
        detail: 'plain is back, but its agent does not report containers; the route stays',
      },
    });
    await api.call('uncordonNode', of(other));
    await register(api, agent(2));
    await api.driver.advance(id, { type: 'scaled' });
    expect(await tasksOf(other)).toEqual([]);
    // Silent again, it is lost again.
    for (let n = 0; n < 4; n++) {
      await register(api, agent(2));
      await silence(other, world.home);
    }
    expect(await rows(id)).toEqual(['1 lost plain', '1 starting node-2']);
  });
});
