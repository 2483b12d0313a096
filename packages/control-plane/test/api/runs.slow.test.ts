/** Runs through the API and the loop. The agents of the nodes are played by the test. */
import { MAX_OPEN_RUNS, type Run } from '@berth/wire/run';
import { beforeEach, describe, expect, it, test } from 'vitest';
import { leaseReaper } from '../../src/loops/lease-reaper.ts';
import { runs } from '../../src/loops/runs.ts';
import { createWorld, type World } from './deployed.ts';
import { type Api, createApi, createProject, deploy, register, rulesOf } from './harness.ts';
import { claimRun, createdRun, exited, failedWith, offeredTo } from './run-agent.ts';
import { loopParts } from './loop-parts.ts';

let api: Api;
let world: World;
let project: string;
let passed: number;
const CAN = { agent_version: '0.3.0', capabilities: ['runs', 'secrets', 'volumes'] };

beforeEach(async () => {
  api = await createApi();
  passed = 0;
  world = await createWorld(api);
  await register(api, { hostname: 'node-1', role: 'deploy', ...CAN });
  project = await createProject(api, { env: { COLOR: 'blue', SIZE: '1' } });
  return () => api.close();
});

const now = (): number => Date.now() + passed;
/** Moves the clock; the node registers, as it would have done meanwhile. */
const pass = (ms: number): void => {
  passed += ms;
  api.pass(ms);
};
const parts = () => loopParts(api, now);
const round = () => runs(parts())(new AbortController().signal);
const reap = () => leaseReaper(parts())(new AbortController().signal);

const create = (body: object = { command: ['echo', 'hi'] }, as?: 'viewer') =>
  api.call('createRun', {
    params: { id: project },
    body,
    ...(as === undefined ? {} : { as }),
  });
const created = (body?: object) => createdRun(create(body));
const get = async (id: string): Promise<Run> =>
  (await api.call('getRun', { params: { id } })).json as unknown as Run;
const tasks = (node = world.home) => offeredTo(api, node);
const claim = (node = world.home) => claimRun(api, node);

describe('refused', () => {
  test.each([
    [{}, 'command:required'],
    [{ command: 'ls' }, 'command:type'],
    [{ command: [] }, 'command:min_items'],
    [{ command: [''] }, 'command[0]:min_length'],
    [{ command: ['ls'], timeout_seconds: 0 }, 'timeout_seconds:minimum'],
    [{ command: ['ls'], timeout_seconds: 604_801 }, 'timeout_seconds:maximum'],
    [{ command: ['ls'], memory_bytes: 1 }, 'memory_bytes:minimum'],
    [{ command: ['ls'], cpus: 0 }, 'cpus:minimum'],
    [{ command: ['ls'], shell: true }, 'shell:unknown_field'],
    [{ command: ['ls'], env: { '1A': 'x' } }, 'env.1A:env_name'],
  ])('%j: %s', async (body, rule) => {
    await world.live(project);
    const reply = await create(body);
    expect(reply.status, reply.text).toBe(422);
    expect(rulesOf(reply)).toEqual([rule]);
  });

  it('a project of which no version ever ran', async () => {
    const reply = await create();
    expect(reply.status).toBe(409);
    expect(reply.text).toContain('no version of project');
    expect(reply.text).toContain('deploy it first');
  });

  it('a viewer', async () => {
    await world.live(project);
    expect((await create(undefined, 'viewer')).status).toBe(403);
  });

  it('more open runs than a project can have', async () => {
    await world.live(project);
    for (let i = 0; i < MAX_OPEN_RUNS; i++) await created();
    const reply = await create();
    expect(reply.status).toBe(429);
    expect(reply.text).toContain('cancel one');
  });
});

it('a command runs with the image, the env and the limits of the version that serves', async () => {
  const deployment = await world.live(project);
  const id = await created({
    command: ['node', 'migrate.js'],
    env: { SIZE: '2' },
    timeout_seconds: 60,
    memory_bytes: 50_000_000,
  });
  expect(await get(id)).toMatchObject({ status: 'pending', trigger: 'person', attempt: 0 });
  await round();
  const { task, log, report } = await claim();
  expect(task.payload).toMatchObject({
    run_id: id,
    command: ['node', 'migrate.js'],
    env: { COLOR: 'blue', SIZE: '2' },
    memory_bytes: 50_000_000,
    cpus: null,
    timeout_seconds: 60,
  });
  expect(task.payload.image).toContain('registry:5000/');
  expect(await get(id)).toMatchObject({
    status: 'running',
    attempt: 1,
    deployment_id: deployment,
    node_name: 'node-1',
    env_names: ['SIZE'],
    created_by: 'developer@example.com',
  });
  await log([
    { at: '2026-11-28T01:00:00.000000001Z', stream: 'stdout', text: 'table users' },
    { at: '2026-11-28T01:00:00.000000002Z', stream: 'stderr', text: 'slow' },
  ]);
  expect((await report(exited(0))).status).toBe(200);
  expect(await get(id)).toMatchObject({ status: 'succeeded', exit_code: 0, error: null });
  const { json } = await api.call('runLogs', { params: { id } });
  expect(
    (json['lines'] as { stream: string; text: string }[]).map((l) => [l.stream, l.text]),
  ).toEqual([
    ['stdout', 'table users'],
    ['stderr', 'slow'],
  ]);
  // No deployment and no list of tasks keeps the values of the variables.
  expect(await tasks()).toEqual([]);
  const [row] = (await api.stores.runs.list(project, {}, { limit: 5, cursor: null })).items;
  expect(row?.env).toEqual({});
});

it('a decision about volumes knows the runs that a node has', async () => {
  await world.live(project);
  const volumes = [{ name: 'data', mount_path: '/data' }];
  const body = { volumes, replace: 'recreate' };
  expect((await api.call('patchProject', { params: { id: project }, body })).status).toBe(200);
  const onNodes = async () => (await api.stores.flow.facts(project)).runs;
  const id = await created();
  expect(await onNodes(), 'it waits for a node').toBeUndefined();
  await round();
  expect(await onNodes()).toEqual([{ id, node_id: world.home }]);
  await (await claim()).report(exited(0));
  expect(await onNodes()).toBeUndefined();
});

it('the node names its commands, before a drain too', async () => {
  await world.live(project);
  const node = async () => (await api.call('getNode', { params: { id: world.home } })).json;
  expect((await node())['commands']).toEqual([]);
  const id = await created();
  expect((await node())['commands'], 'it waits for a node').toEqual([]);
  await round();
  expect((await node())['commands']).toMatchObject([
    { run_id: id, project: 'shop', project_id: project, timeout_seconds: 3600 },
  ]);
  const list = (await api.call('listNodes', {})).json['items'] as object[];
  expect(list.filter((one) => 'commands' in one)).toEqual([]);
  await (await claim()).report(exited(0));
  expect((await node())['commands']).toEqual([]);
});

it('a run of a job that begins after the clock was set back waits for the one that works', async () => {
  await world.live(project);
  const params = { id: project, name: 'report' };
  const job = { name: 'report', schedule: '@monthly', command: ['x'], overlap: 'queue' };
  await api.call('createJob', { params: { id: project }, body: job });
  expect((await api.call('runJob', { params })).status).toBe(201);
  await round();
  pass(-30 * 60_000);
  await register(api, { hostname: 'node-1', role: 'deploy', ...CAN });
  const later = String((await api.call('runJob', { params })).json['id']);
  await round();
  expect(await get(later)).toMatchObject({
    attempt: 0,
    reason: 'waits for the end of the earlier run of its job',
  });
  expect((await (await claim()).report(exited(0))).status).toBe(200);
  await round();
  expect(await get(later)).toMatchObject({ attempt: 1 });
});

test.each([
  ['exit code 3', exited(3), { status: 'failed', exit_code: 3, code: 'command_failed' }],
  ['exit code 127', exited(127), { status: 'failed', exit_code: 127, code: 'command_failed' }],
  [
    'no memory',
    exited(137, true),
    { status: 'failed', exit_code: 137, code: 'command_out_of_memory' },
  ],
  [
    'too long',
    failedWith('command_timeout'),
    { status: 'failed', exit_code: null, code: 'command_timeout' },
  ],
  ['gone', failedWith('run_lost'), { status: 'lost', exit_code: null, code: 'run_lost' }],
  [
    'no image',
    failedWith('image_pull_failed'),
    { status: 'failed', exit_code: null, code: 'image_pull_failed' },
  ],
  [
    'an exit code that no process has',
    exited(2 ** 40),
    { status: 'failed', exit_code: null, code: 'task_failed' },
  ],
  [
    'an exit code that a shell would show as 0',
    exited(256),
    { status: 'failed', exit_code: null, code: 'task_failed' },
  ],
  [
    'nonsense',
    { status: 'completed', result: 'fine' },
    { status: 'failed', exit_code: null, code: 'task_failed' },
  ],
] as const)('the end: %s', async (_, body, { status, exit_code, code }) => {
  await world.live(project);
  const id = await created();
  await round();
  const { report } = await claim();
  expect((await report(body)).status).toBe(200);
  expect(await get(id)).toMatchObject({ status, exit_code, error: { code } });
  expect((await report(body)).status, 'a repeated report').toBe(200);
});

describe('cancelled', () => {
  it('at once while no agent has it', async () => {
    await world.live(project);
    const [waiting, offered] = [await created(), await created()];
    await round();
    for (const id of [waiting, offered]) {
      const reply = await api.call('cancelRun', { params: { id } });
      expect(reply.json).toMatchObject({ status: 'cancelled' });
      expect(reply.json['reason']).toContain('cancelled by developer@example.com');
    }
    expect(await tasks()).toEqual([]);
    const again = await api.call('cancelRun', { params: { id: waiting } });
    expect(again.status).toBe(409);
  });

  it('through its agent', async () => {
    await world.live(project);
    const id = await created();
    await round();
    const { task, report } = await claim();
    const reply = await api.call('cancelRun', { params: { id } });
    expect(reply.json).toMatchObject({ status: 'running', cancel_requested: true });
    expect(await tasks()).toMatchObject([{ id: task.id, cancel_requested: true }]);
    await report(failedWith('cancelled'));
    expect(await get(id)).toMatchObject({ status: 'cancelled', error: null });
  });

  it('with its project', async () => {
    await world.live(project);
    const id = await created();
    await api.call('deleteProject', { params: { id: project } });
    await round();
    const run = await api.stores.runs.get(id);
    expect(run).toMatchObject({ status: 'cancelled', reason: 'the project is being deleted' });
  });
});

describe('a node that is lost', () => {
  it('before it took the task: another node gets it', async () => {
    await world.live(project);
    const other = await register(api, {
      hostname: 'node-2',
      role: 'deploy',
      host_ip: '10.0.1.2',
      ...CAN,
    });
    const id = await created();
    await round();
    pass(61_000);
    await register(api, { hostname: 'node-2', role: 'deploy', host_ip: '10.0.1.2', ...CAN });
    await reap();
    await round();
    const { report } = await claim(other);
    await report(exited(0));
    expect(await get(id)).toMatchObject({ status: 'succeeded', node_name: 'node-2', attempt: 1 });
  });

  it('with the command: the same node goes on with it, after the lines that it has sent', async () => {
    await world.live(project);
    const id = await created();
    await round();
    const first = await claim();
    await first.log([{ at: '2026-11-28T01:00:00.000000009Z', stream: 'stdout', text: 'one' }]);
    pass(40_000);
    await reap();
    expect(await get(id), 'until its agent returns').toMatchObject({ status: 'running' });
    const second = await claim();
    expect(second.task.id).toBe(first.task.id);
    expect(second.json['logged_until']).toBe('2026-11-28T01:00:00.000000009Z');
    await second.report(exited(0));
    expect((await first.report(exited(1))).status, 'the earlier attempt').toBe(409);
    expect(await get(id)).toMatchObject({ status: 'succeeded', exit_code: 0 });
  });

  it('for ever: the run is lost and does not start on another node', async () => {
    await world.live(project);
    const id = await created();
    await round();
    await claim();
    pass(40_000);
    await reap();
    const other = { hostname: 'node-2', role: 'deploy', host_ip: '10.0.1.2', ...CAN };
    pass(11 * 60_000);
    const spare = await register(api, other);
    await reap();
    await round();
    expect(await get(id)).toMatchObject({ status: 'lost', error: { code: 'run_lost' } });
    expect(await tasks(spare)).toEqual([]);
  });
});

describe('waits', () => {
  it('for a node whose agent can run commands', async () => {
    await register(api, {
      hostname: 'node-1',
      role: 'deploy',
      agent_version: '0.2.0',
      capabilities: ['instances'],
    });
    await world.live(project);
    const id = await created();
    await round();
    const { status, reason } = await get(id);
    expect(status).toBe('pending');
    expect(reason).toContain('cannot run a command in a container of its own');
    pass(31 * 60_000);
    await round();
    expect(await get(id)).toMatchObject({ status: 'failed', error: { code: 'no_deploy_node' } });
  });
});

it('the memory limit of a run counts on its node', async () => {
  await world.live(project);
  await register(api, {
    hostname: 'node-1',
    role: 'deploy',
    memory_bytes: 100_000_000,
    ...CAN,
  });
  const first = await created({ command: ['a'], memory_bytes: 60_000_000 });
  const second = await created({ command: ['b'], memory_bytes: 60_000_000 });
  await round();
  await round();
  expect((await get(first)).attempt).toBe(1);
  const waiting = await get(second);
  expect(waiting.attempt).toBe(0);
  expect(waiting.reason).toContain('memory');
  const { report } = await claim();
  await report(exited(0));
  await round();
  expect((await get(second)).attempt).toBe(1);
});

it('lists the runs of a project, newest first, and only of projects that the caller sees', async () => {
  await world.live(project);
  const id = await created();
  const list = await api.call('projectRuns', {
    params: { id: project },
    query: { status: 'pending' },
  });
  expect((list.json['items'] as Run[]).map((run) => run.id)).toEqual([id]);
  expect((await api.call('getRun', { params: { id: 'nothing' } })).status).toBe(404);
  await api.call('patchProject', {
    params: { id: project },
    body: { members: [{ email: 'admin@example.com', role: 'developer' }] },
    as: 'admin',
  });
  const hidden = await api.call('getRun', { params: { id }, as: 'viewer' });
  expect([200, 404]).toContain(hidden.status);
});

it('a deployment meanwhile does not disturb a run', async () => {
  await world.live(project);
  const id = await created();
  await round();
  const { report } = await claim();
  const next = await deploy(api, project);
  await api.driver.advance(next, { type: 'tick' });
  await world.built();
  await report(exited(0));
  expect(await get(id)).toMatchObject({ status: 'succeeded' });
});
