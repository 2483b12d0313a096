/** Leases of devices of runs: two control planes, and one of the version before. */
import type { RunPayload } from '@berth/wire/run-payload';
import { LABELS } from '@berth/wire/vocabulary';
import { beforeEach, expect, test } from 'vitest';
import type { DeviceTake } from '../../src/domain/nodes/room.ts';
import type { AllStores } from '../../src/store/open.ts';
import { newRun } from '../new-run.ts';
import { commit, deploymentIn, freshPath, nodeIn, NOW, open } from './fixtures.ts';
import { projectIn, rowsOf, runOn } from './fixtures.ts';

const GPU = 'nvidia.com/gpu';
let path: string;
let stores: AllStores;
let project: Awaited<ReturnType<typeof projectIn>>;
let nodeId: string;

beforeEach(async () => {
  path = freshPath();
  stores = await open(path);
  project = await projectIn(stores, 'shop');
  nodeId = (await list([], NOW)).id;
  for (const id of ['one', 'two']) await runIn(id);
});

/** The node lists these containers. */
const list = (containers: object[], at: number) =>
  nodeIn(
    stores,
    'n1',
    { role: 'deploy', agent_version: '1', devices: { [GPU]: ['0'] }, containers } as never,
    at,
  );

const runIn = (id: string) =>
  stores.runs.create(
    newRun({ id, project_id: project.id, devices: { [GPU]: 1 }, queue_deadline_at: NOW + 60_000 }),
    NOW,
  );

const take = (deployment_id: string, over: Partial<DeviceTake> = {}): DeviceTake => ({
  node_id: nodeId,
  kind: GPU,
  name: '0',
  deployment_id,
  instance_id: null,
  returns_to: null,
  returns_to_instance: null,
  replaces: null,
  ...over,
});
const offer = (id: string, takes = [take(id)]) =>
  stores.runs.offer(
    {
      run_id: id,
      deployment_id: 'd1',
      task: {
        id: `task-${id}`,
        node_id: nodeId,
        queue_deadline_at: NOW + 60_000,
        wall_deadline_at: NOW + 900_000,
        payload: { run_id: id, memory_bytes: null, cpus: null } as RunPayload,
      },
      takes,
    },
    NOW,
  );
const leases = async () =>
  (await rowsOf(path, 'device_leases')).map((row) => [row['name'], row['run_id']]);
const holders = async () => (await stores.nodes.room()).leases.map((one) => one.holders.length);

test('two control planes: one run gets the device, and the other one waits', async () => {
  expect(await Promise.all([offer('one'), offer('two')])).toEqual([true, false]);
  expect(await leases()).toEqual([['0', 'one']]);
  expect(await stores.runs.get('two')).toMatchObject({ task_id: null, attempt: 0 });
});

test('a deployment of this version does not take the device of a run', async () => {
  await deploymentIn(stores, project, 'd', { status: 'deploying', node_id: nodeId });
  await offer('one');
  expect(await commit(stores, project.id, { takeDevices: [take('d')] })).toBe('stale');
  expect(await leases()).toEqual([['0', 'one']]);
});

test('the version before can neither take the device nor start a run without it', async () => {
  await offer('one');
  // As that version takes over a lease whose deployment it does not know.
  const taken = runOn(path, "update device_leases set deployment_id = 'd' where name = '0'");
  await expect(taken).rejects.toThrow(/check/i);
  const handed = runOn(path, "update runs set task_id = 'other' where id = 'two'");
  await expect(handed).rejects.toThrow(/check/i);
  expect(await leases()).toEqual([['0', 'one']]);
});

test('an end that the version before wrote, or a deletion, ends the lease', async () => {
  await offer('one');
  expect(await stores.runs.endDevices(NOW + 1)).toBe(0);
  await runOn(path, "delete from runs where id = 'one'");
  await runOn(path, "delete from tasks where id = 'task-one'");
  expect(await stores.runs.endDevices(NOW + 1_000)).toBe(1);
  expect(await holders(), 'its command may run').toEqual([1]);
  const labels = { [LABELS.run]: 'one', [LABELS.devices]: `${GPU}=0` };
  await list([{ name: 'run-shop', labels, host_port: null, state: 'running' }], NOW + 50_000);
  expect(await holders(), 'its node lists it').toEqual([1]);
  await list([], NOW + 60_000);
  expect(await holders()).toEqual([0]);
  await stores.runs.freeDevices((await stores.nodes.room()).leases);
  expect(await leases()).toEqual([]);
});

test('a lease that an ended run left is taken over, and is not freed afterwards', async () => {
  await offer('one');
  await runOn(path, "delete from tasks where id = 'task-one'");
  await stores.runs.endDevices(NOW);
  const { leases: before } = await stores.nodes.room();
  const replaces = { deployment_id: 'one', instance_id: null };
  expect(await offer('two', [take('two', { replaces })])).toBe(true);
  await stores.runs.freeDevices(before);
  expect(await leases()).toEqual([['0', 'two']]);
});

test('a machine that registers as another node keeps the devices of its runs', async () => {
  const labels = { [LABELS.run]: 'one', [LABELS.devices]: `${GPU}=0` };
  const one = { name: 'run-shop', labels, host_port: null };
  await list([{ ...one, state: 'running' }], NOW + 1);
  expect(await holders()).toEqual([1]);
  await list([{ ...one, state: 'exited' }], NOW + 2);
  expect(await holders()).toEqual([]);
});
