/** ProjectMetrics of projects: agents send them, people read them. */
import { type ProjectMetrics, type SentPoint } from '@berth/wire/metrics';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createWorld } from './deployed.ts';
import { type Api, createApi, createProject, register, rulesOf } from './harness.ts';
import { twoInstances } from './two-instances.ts';

const CAN = { hostname: 'node-1', role: 'deploy', capabilities: ['metrics'] };
const point = (deployment_id: string, given: Partial<SentPoint> = {}): SentPoint => ({
  deployment_id,
  age_ms: 0,
  started_at: '2026-11-23T09:00:00.000Z',
  cpu_seconds: 1.5,
  throttled_seconds: null,
  memory_bytes: 1000,
  memory_limit: null,
  restarts: 0,
  oom_kills: 0,
  net_rx: 1,
  net_tx: 2,
  ...given,
});

async function start() {
  // Half a minute after the beginning of a quarter of an hour.
  const clock = { now: Math.floor(Date.now() / 900_000) * 900_000 + 30_000 };
  const at = (ms: number): string => new Date(clock.now + ms).toISOString();
  const api = await createApi({ overrides: { now: () => clock.now } });
  onTestFinished(() => api.close());
  const world = await createWorld(api);
  const project = await createProject(api);
  const deployment = await world.live(project);
  const send = (...points: SentPoint[]) =>
    api.call('agentMetrics', { body: { node_id: world.home, points } });
  const read = async (query: Record<string, string> = {}): Promise<ProjectMetrics> =>
    (await api.call('projectMetrics', { params: { id: project }, query }))
      .json as unknown as ProjectMetrics;
  return { api, clock, at, world, project, deployment, send, read };
}
const inventory = (api: Api, deployment: string, more: object): Promise<string> =>
  register(api, {
    ...CAN,
    boot_id: 'b2',
    containers: [
      {
        name: 'svc-shop',
        labels: { 'berth.deployment': deployment },
        host_port: 32_001,
        state: 'running',
        ...more,
      },
    ],
  });

describe('points of agents', () => {
  test('are read by people, with the time by the clock of the control plane', async () => {
    const { at, deployment, send, read } = await start();
    const reply = await send(
      point(deployment, { age_ms: 61_000, cpu_seconds: 1 }),
      point(deployment),
    );
    expect([reply.status, reply.json['stored']]).toEqual([200, 2]);
    const metrics = await read();
    expect(metrics).toMatchObject({
      from: at(-3_600_000),
      to: at(0),
      step_seconds: 60,
      truncated: false,
    });
    const { age_ms: _, ...given } = point(deployment);
    const values = { ...given, process: 'web', instance: 1 };
    expect(metrics.points).toEqual([
      { ...values, cpu_seconds: 1, at: at(-61_000) },
      { ...values, at: at(0) },
    ]);
  });

  test('are gauges for Prometheus while they are new, the newest of each deployment; unknown values are absent, not zero', async () => {
    const { api, clock, deployment, send } = await start();
    const gauges = async (): Promise<string[]> =>
      (await api.call('metrics')).text
        .split('\n')
        .filter((line) => line.startsWith('berth_project_') && line.includes('{project='));
    expect(await gauges()).toEqual([]);
    await send(
      point(deployment, { age_ms: 61_000, cpu_seconds: 1, oom_kills: 0 }),
      point(deployment, { memory_bytes: null, oom_kills: 2, net_rx: null }),
    );
    expect(await gauges()).toEqual([
      'berth_project_cpu_seconds{project="shop"} 1.5',
      'berth_project_restarts{project="shop"} 0',
      'berth_project_oom_kills{project="shop"} 2',
      'berth_project_network_sent_bytes{project="shop"} 2',
    ]);
    clock.now += 180_001;
    expect(await gauges()).toEqual([]);
  });

  test('too old, of another node or of no deployment are ignored', async () => {
    const { api, deployment, send, read } = await start();
    expect(
      (await send(point(deployment, { age_ms: 3_700_000 }), point('nothing'))).json['stored'],
    ).toBe(0);
    const other = await register(api, { ...CAN, hostname: 'node-2' });
    const reply = await api.call('agentMetrics', {
      body: { node_id: other, points: [point(deployment)] },
    });
    expect(reply.json['stored']).toBe(0);
    expect((await read()).points).toEqual([]);
  });

  test.each([
    ['a negative counter', { net_rx: -1 }],
    ['a text', { cpu_seconds: 'much' }],
    ['a missing value', { memory_bytes: undefined }],
    ['an age in the future', { age_ms: -1 }],
    ['a start that is no time', { started_at: 'yesterday' }],
    ['a number that no counter reaches', { net_tx: 1e300 }],
  ])('with %s are refused', async (_, wrong) => {
    const { deployment, send } = await start();
    expect((await send({ ...point(deployment), ...wrong } as SentPoint)).status).toBe(422);
  });

  test('more than 1,000 are refused; an agent of another node and a stranger too', async () => {
    const { api, world, deployment, send } = await start();
    expect((await send(...Array.from({ length: 1001 }, () => point(deployment)))).status).toBe(422);
    const body = { node_id: world.home, points: [] };
    expect(
      (await api.call('agentMetrics', { body, as: null, headers: { 'x-agent-secret': 'wrong' } }))
        .status,
    ).toBe(401);
  });

  test('the next reading is due once in each minute, at another second for each node', async () => {
    const { api, clock, world } = await start();
    const next = async (node_id: string): Promise<number> =>
      Number((await api.call('agentMetrics', { body: { node_id, points: [] } })).json['next_ms']);
    const slots: number[] = [];
    for (let i = 0; i < 20; i++) {
      const wait = await next(world.home);
      expect(wait).toBeGreaterThanOrEqual(10_000);
      clock.now += wait;
      slots.push(Math.floor(clock.now / 60_000));
      // Timers are late.
      clock.now += i * 400;
    }
    expect(slots.map((slot) => slot - (slots[0] ?? 0))).toEqual(slots.map((_, i) => i));
    const others = new Set(await Promise.all(['a', 'b', 'c', 'd'].map((node) => next(node))));
    expect(others.size).toBeGreaterThan(1);
  });
});

describe('GET /api/projects/{id}/metrics', () => {
  test('a longer range has quarters of an hour', async () => {
    const { clock, at, deployment, send, read } = await start();
    for (let i = 0; i < 3; i++) {
      await send(point(deployment, { cpu_seconds: i }));
      clock.now += 60_000;
    }
    const long = await read({ from: at(-3 * 86_400_000) });
    expect([long.step_seconds, long.points.map((p) => p.cpu_seconds)]).toEqual([900, [2]]);
    expect(
      (await read({ from: at(-130_000), to: at(-61_000) })).points.map((p) => p.cpu_seconds),
    ).toEqual([1]);
    expect((await read({ from: at(-25 * 3_600_000), to: at(-24 * 3_600_000) })).step_seconds).toBe(
      900,
    );
  });

  test.each([
    [{ from: '2026-11-23T12:00:00Z', to: '2026-11-23T11:00:00Z' }],
    [{ from: '2099-11-23T12:00:00Z' }],
    [{ from: 'yesterday' }],
    [{ to: '5' }],
    [{ from: '2026-13-45T99:00:00Z' }],
  ])('refuses %j', async (query) => {
    const { api, project } = await start();
    const reply = await api.call('projectMetrics', { params: { id: project }, query });
    expect(reply.status).toBe(422);
    expect(rulesOf(reply).join()).toMatch(/from|to/);
  });

  test('an unknown project is 404; a project that never ran has no points and no reason', async () => {
    const { api } = await start();
    expect((await api.call('projectMetrics', { params: { id: 'nothing' } })).status).toBe(404);
    const empty = await createProject(api, { name: 'empty', domain_prefix: 'empty' });
    const { json } = await api.call('projectMetrics', { params: { id: empty } });
    expect([json['points'], json['unavailable']]).toEqual([[], undefined]);
  });

  test('says why there are no points: an agent that cannot, and a node that cannot be read', async () => {
    const { api, deployment, read } = await start();
    expect((await read()).unavailable).toBe('the agent of node node-1 sends no metrics');
    await inventory(api, deployment, { metrics_problem: 'no control group' });
    expect((await read()).unavailable).toBe(
      'the agent of node node-1 cannot read what the container uses: no control group',
    );
    await inventory(api, deployment, {});
    expect((await read()).unavailable).toBeUndefined();
  });
});

test('two instances: their sum, and each one with `instance`; another node cannot send for them', async () => {
  const clock = { now: Math.floor(Date.now() / 900_000) * 900_000 + 30_000 };
  const api = await createApi({ overrides: { now: () => clock.now } });
  onTestFinished(() => api.close());
  const { project, deployment, nodes, label } = await twoInstances(api);
  const instance = { id: label, process: 'web', number: 2 };
  const send = async (node_id: string, given: Partial<SentPoint>): Promise<unknown> =>
    (await api.call('agentMetrics', { body: { node_id, points: [point(deployment, given)] } }))
      .json['stored'];
  const read = async (query: Record<string, string> = {}) =>
    (
      (await api.call('projectMetrics', { params: { id: project }, query }))
        .json as unknown as ProjectMetrics
    ).points.map(({ process, instance: number, memory_bytes, cpu_seconds }) => [
      process,
      number,
      memory_bytes,
      cpu_seconds,
    ]);
  expect(await send(nodes[0], { memory_bytes: 100 })).toBe(1);
  expect(await send(nodes[1], { memory_bytes: 20, cpu_seconds: 4, instance })).toBe(1);
  expect(await send(nodes[0], { instance })).toBe(0);
  expect(await send(nodes[1], {})).toBe(0);
  expect(await read()).toEqual([['web', undefined, 120, 5.5]]);
  expect(await read({ instance: '2' })).toEqual([['web', 2, 20, 4]]);
  expect(await read({ process: 'web', instance: '1' })).toEqual([['web', 1, 100, 1.5]]);
  expect((await api.call('metrics')).text).toContain(
    'berth_project_memory_bytes{project="shop"} 120',
  );

  // The next minute: one node has sent, the other one follows.
  clock.now += 60_000;
  expect(await send(nodes[0], { memory_bytes: 200 })).toBe(1);
  expect(await read()).toHaveLength(1);
  expect(await send(nodes[1], { memory_bytes: 30, instance })).toBe(1);
  expect((await read()).map(([, , memory]) => memory)).toEqual([120, 230]);
});
