/** Devices of runs through the API and the loop. The agents of the nodes are played by the test. */
import { LABELS } from '@berth/wire/vocabulary';
import type { Run } from '@berth/wire/run';
import { beforeEach, describe, expect, it, test } from 'vitest';
import { leaseReaper } from '../../src/loops/lease-reaper.ts';
import { runs } from '../../src/loops/runs.ts';
import { createWorld, type World } from './deployed.ts';
import { type Api, createApi, createProject, register } from './harness.ts';
import { claimRun, exited, failedWith } from './run-agent.ts';
import { loopParts } from './loop-parts.ts';

const GPU = 'nvidia.com/gpu';
const CAN = {
  agent_version: '0.3.0',
  capabilities: ['runs', 'devices', 'run-devices', 'instances'],
  devices: { [GPU]: ['0'] },
  containers: [],
};

let api: Api;
let world: World;
let project: string;
let passed: number;

beforeEach(async () => {
  api = await createApi();
  passed = 0;
  world = await createWorld(api);
  await report();
  project = await createProject(api);
  await world.live(project);
  return () => api.close();
});

/** The node lists these containers. */
const report = (containers: object[] = [], over: object = {}): Promise<string> =>
  register(api, { hostname: 'node-1', role: 'deploy', ...CAN, containers, ...over });
const container = (run: string, state: string) => ({
  name: `run-shop-${run.slice(0, 8)}`,
  labels: { [LABELS.run]: run, [LABELS.run_node]: world.home, [LABELS.devices]: `${GPU}=0` },
  host_port: null,
  state,
});
const now = (): number => Date.now() + passed;
const pass = (ms: number): void => {
  passed += ms;
  api.pass(ms);
};
const parts = () => loopParts(api, now);
const round = () => runs(parts())(new AbortController().signal);
const reap = () => leaseReaper(parts())(new AbortController().signal);

const create = (devices: object = { [GPU]: 1 }) =>
  api.call('createRun', { params: { id: project }, body: { command: ['train'], devices } });
const created = async (devices?: object): Promise<string> => {
  const reply = await create(devices);
  expect(reply.status, reply.text).toBe(201);
  return String(reply.json['id']);
};
const get = async (id: string): Promise<Run> =>
  (await api.call('getRun', { params: { id } })).json as unknown as Run;
const claim = (node = world.home) => claimRun(api, node);
const started = async (id: string): Promise<boolean> => (await get(id)).attempt === 1;
/** The first run has the only device, and the second one waits for it. */
async function two() {
  const first = await created();
  await round();
  const agent = await claim();
  const second = await created();
  await round();
  expect(await started(second)).toBe(false);
  return { first, second, agent };
}

it('a run gets the devices that it asks for, and no other run has them meanwhile', async () => {
  const { first, second, agent } = await two();
  expect(await get(first)).toMatchObject({ devices: { [GPU]: 1 }, status: 'running' });
  expect(agent.task.payload.devices).toEqual([`${GPU}=0`]);
  expect((await get(second)).reason).toBe(
    `no node can take the run: node-1 has too few free devices ${GPU}; ${GPU}=0 is held by run ` +
      first,
  );
  const without = await created({});
  await round();
  expect(await started(without), 'a run without devices').toBe(true);
  await agent.report(exited(0));
  await round();
  expect(await started(second)).toBe(true);
});

it('a run of another project does not learn whose device it waits for', async () => {
  const other = await createProject(api, { name: 'other', domain_prefix: 'other' });
  await world.live(other);
  await created();
  await round();
  project = other;
  const id = await created();
  await round();
  expect((await get(id)).reason).toContain(`${GPU}=0 is held by another project`);
});

it('a deployment does not get the device of a run', async () => {
  await two();
  const { leases } = await api.stores.nodes.room();
  expect(leases.map(({ name, holders }) => [name, holders.length])).toEqual([['0', 1]]);
});

describe('the device is free at once', () => {
  test.each([
    ['exit code 0', exited(0)],
    ['exit code 1', exited(1)],
    ['the time limit', failedWith('command_timeout')],
  ])('after %s', async (_, body) => {
    const { second, agent } = await two();
    await agent.report(body);
    await round();
    expect(await started(second)).toBe(true);
  });

  it('after a cancellation through the agent, and not before', async () => {
    const { first, second, agent } = await two();
    await api.call('cancelRun', { params: { id: first } });
    await round();
    expect(await started(second)).toBe(false);
    await agent.report(failedWith('cancelled'));
    await round();
    expect(await started(second)).toBe(true);
  });

  it('after a cancellation before its agent took it', async () => {
    const first = await created();
    await round();
    const second = await created();
    await api.call('cancelRun', { params: { id: first } });
    await round();
    expect(await started(second)).toBe(true);
  });

  it('if no agent took the run in time', async () => {
    const id = await created();
    await round();
    pass(61_000);
    await report();
    await reap();
    expect((await api.stores.nodes.room()).leases).toEqual([]);
    pass(1_000);
    await report();
    await round();
    expect(await get(id), 'handed out again').toMatchObject({ attempt: 1 });
  });
});

describe('the device is free when its node has listed its containers without the run', () => {
  test.each([['agent_cannot'], ['run_lost'], ['engine_down']])(
    'after the report %s',
    async (code) => {
      const { first, second, agent } = await two();
      await agent.report(failedWith(code));
      await round();
      expect(await started(second), 'the container may run').toBe(false);
      pass(1_000);
      await report([container(first, 'running')]);
      await round();
      expect(await started(second), 'the container runs').toBe(false);
      await report([container(first, 'exited')]);
      await round();
      expect(await started(second)).toBe(true);
    },
  );

  it('after its agent was lost', async () => {
    const { first, second } = await two();
    pass(40_000);
    await reap();
    await round();
    pass(11 * 60_000);
    await round();
    expect(await get(first)).toMatchObject({ status: 'lost' });
    await report([container(first, 'running')]);
    await round();
    expect(await started(second), 'its agent returned and stops it').toBe(false);
    pass(31_000);
    await report([container(first, 'running')]);
    await round();
    expect(await started(second)).toBe(false);
    await report();
    await round();
    expect(await started(second)).toBe(true);
  });

  it('after its run was deleted with its project', async () => {
    const rival = await createProject(api, { name: 'rival', domain_prefix: 'rival' });
    await world.live(rival);
    const first = await created();
    await round();
    const agent = await claim();
    await api.call('deleteProject', { params: { id: project } });
    await round();
    await agent.report(failedWith('cancelled'));
    expect((await api.stores.runs.get(first)).status).toBe('cancelled');
    project = rival;
    const second = await created();
    await round();
    expect(await started(second)).toBe(true);
  });
});

it('the leases of a deleted node are gone', async () => {
  await two();
  await api.stores.nodes.markDeleting(world.home, now());
  await api.stores.nodes.removeIfGone(world.home, true);
  expect((await api.stores.nodes.room()).leases).toEqual([]);
});

it('a request for devices that no node has is refused with the figures', async () => {
  const reply = await create({ [GPU]: 2 });
  expect(reply.status).toBe(409);
  expect(reply.text).toContain(`${GPU}: 2 needed, at most 1 on one node`);
  const job = { name: 'train', schedule: '@daily', command: ['x'], devices: { [GPU]: 2 } };
  expect((await api.call('createJob', { params: { id: project }, body: job })).status).toBe(201);
  const params = { id: project, name: 'train' };
  expect((await api.call('runJob', { params })).status).toBe(409);
  await api.call('patchJob', { params, body: { devices: { [GPU]: 1 } } });
  const run = await api.call('runJob', { params });
  expect(run.json).toMatchObject({ devices: { [GPU]: 1 } });
});

it('an agent of an earlier version is refused with the reason', async () => {
  await report([], { capabilities: ['runs', 'devices'] });
  const id = await created();
  await round();
  expect((await get(id)).reason).toContain(`its agent cannot pass ${GPU} to the container of a`);
});
