/** Memory and devices that deployments have on nodes, and the labels of admins. */
import { expect, test } from 'vitest';
import { LABELS } from '@berth/wire/vocabulary';
import type { DeviceTake, Holder } from '../../src/domain/nodes/room.ts';
import type { DeploymentRecord, ProjectRecord } from '../../src/domain/platform/records.ts';
import type { AllStores } from '../../src/store/open.ts';
import {
  codeOf,
  commit,
  deploymentIn,
  freshPath,
  instanceOf,
  nodeIn,
  NOW,
  open,
  projectIn,
  retirePayload,
  rowsOf,
  taskOf,
  tasksIn,
} from './fixtures.ts';

const GPU = 'nvidia.com/gpu';
const MEMORY = 600 * 1_048_576;

type Scene = { stores: AllStores; path: string; project: ProjectRecord; nodeId: string };
async function scene(): Promise<Scene> {
  const path = freshPath();
  const stores = await open(path);
  const project = await projectIn(stores, 'shop', {
    memory_bytes: MEMORY,
    requires: { devices: { [GPU]: 1 } },
  });
  const node = await nodeIn(stores, 'n1', {
    role: 'deploy',
    agent_version: '1',
    cpus: 4,
    memory_bytes: 1e9,
    labels: { zone: 'a', bad: '?' },
    devices: { [GPU]: ['0', '1'] },
  });
  return { stores, path, project, nodeId: node.id };
}
const first = (deployment_id: string): Holder => ({ deployment_id, instance_id: null });
const take = (
  nodeId: string,
  deployment_id: string,
  over: Partial<DeviceTake> = {},
): DeviceTake => ({
  node_id: nodeId,
  kind: GPU,
  name: '0',
  ...first(deployment_id),
  returns_to: null,
  returns_to_instance: null,
  replaces: null,
  ...over,
});
const leases = async (path: string) =>
  (await rowsOf(path, 'device_leases')).map((row) => [
    row['name'],
    row['deployment_id'],
    row['returns_to'],
  ]);

test('a node keeps what its agent reports; a later report without it clears it', async () => {
  const { stores, nodeId } = await scene();
  expect(await stores.nodes.get(nodeId)).toMatchObject({
    cpus: 4,
    memory_bytes: 1e9,
    labels: { zone: 'a' },
    admin_labels: {},
    devices: { [GPU]: ['0', '1'] },
  });
  await nodeIn(stores, 'n1', { role: 'deploy' }, NOW + 1);
  expect(await stores.nodes.get(nodeId)).toMatchObject({ cpus: null, labels: {}, devices: {} });
});

test('labels of admins stay when the agent reports, and null removes one', async () => {
  const { stores, nodeId } = await scene();
  await stores.nodes.setLabels(nodeId, { zone: 'b', disk: 'ssd' });
  await nodeIn(stores, 'n1', { role: 'deploy', labels: { zone: 'c' } }, NOW + 1);
  expect(await stores.nodes.get(nodeId)).toMatchObject({
    labels: { zone: 'c' },
    admin_labels: { disk: 'ssd', zone: 'b' },
  });
  const patched = await stores.nodes.setLabels(nodeId, { zone: null });
  expect(patched.admin_labels).toEqual({ disk: 'ssd' });
  expect(await codeOf(stores.nodes.setLabels(nodeId, { 'a b': 'x' }))).toBe('validation');
  expect(await codeOf(stores.nodes.setLabels('none', { a: 'x' }))).toBe('not_found');
});

test('room counts deployments with a container, and removals that are not finished', async () => {
  const { stores, project, nodeId } = await scene();
  await deploymentIn(stores, project, 'gone', { status: 'retired', node_id: nodeId });
  await deploymentIn(stores, project, 'runs', { status: 'running', node_id: nodeId });
  await deploymentIn(stores, project, 'new', { status: 'built' });
  expect((await stores.nodes.room()).memory.get(nodeId)).toBe(MEMORY);
  const retire = taskOf(project, 'retire', nodeId, { deployment_id: 'runs', kind: 'retire' });
  const remove = [{ deployment_id: 'gone', reason: 'replaced' }];
  await tasksIn(stores, project, {
    ...retire,
    payload: { ...retirePayload(project), remove },
  } as typeof retire);
  expect((await stores.nodes.room()).memory.get(nodeId)).toBe(2 * MEMORY);
  // An instance that ends has no row any more, and its version runs on.
  const ends = taskOf(project, 'ends', nodeId, { deployment_id: 'runs', kind: 'retire' });
  await tasksIn(stores, project, {
    ...ends,
    payload: {
      ...retirePayload(project),
      remove: [{ deployment_id: 'runs', reason: 'scaled down', instance_id: 'i2' }],
    },
  } as typeof ends);
  const { room } = await stores.flow.facts(project.id);
  expect(room?.memory.get(nodeId)).toBe(3 * MEMORY);
  expect(await stores.nodes.countUnlimited()).toBe(0);
  const free = await projectIn(stores, 'free');
  await deploymentIn(stores, free, 'free', { status: 'running', node_id: nodeId });
  expect(await stores.nodes.countUnlimited()).toBe(1);
});

test('a plan is stale if another project has taken the memory since', async () => {
  const { stores, project, nodeId } = await scene();
  const other = await projectIn(stores, 'other', { memory_bytes: MEMORY });
  const take = { node_id: nodeId, bytes: MEMORY, most: 1e9, without: ['new'] };
  const takeMemory = [take];
  expect(await commit(stores, project.id, { takeMemory })).toBe('committed');
  await deploymentIn(stores, other, 'other', { status: 'running', node_id: nodeId });
  expect(await commit(stores, project.id, { takeMemory })).toBe('stale');
  const without = ['new', 'other'];
  expect(await commit(stores, project.id, { takeMemory: [{ ...take, without }] })).toBe(
    'committed',
  );
});

test('only one deployment takes a device; the second plan is stale and writes nothing', async () => {
  const { stores, path, project, nodeId } = await scene();
  const other = await projectIn(stores, 'other');
  expect(await commit(stores, project.id, { takeDevices: [take(nodeId, 'a')] })).toBe('committed');
  expect(
    await commit(stores, other.id, {
      takeDevices: [take(nodeId, 'b', { name: '1' }), take(nodeId, 'b')],
    }),
  ).toBe('stale');
  expect(await leases(path)).toEqual([['0', 'a', null]]);
  const { flow_version } = await stores.projects.get(other.id);
  expect(flow_version).toBe(other.flow_version);
});

test('a device passes to the new version and returns to the old one if that runs', async () => {
  const { stores, path, project, nodeId } = await scene();
  await deploymentIn(stores, project, 'old', { status: 'running', node_id: nodeId });
  await deploymentIn(stores, project, 'new', { status: 'deploying', node_id: nodeId });
  await commit(stores, project.id, { takeDevices: [take(nodeId, 'old')] });
  const passed = take(nodeId, 'new', { returns_to: 'old', replaces: first('old') });
  await commit(stores, project.id, { takeDevices: [passed] });
  expect(await leases(path)).toEqual([['0', 'new', 'old']]);
  // A repeated attempt of the same deployment takes it again.
  await commit(stores, project.id, { takeDevices: [{ ...passed, replaces: first('new') }] });
  expect(await leases(path)).toEqual([['0', 'new', 'old']]);
  const freed = { freeDevices: [{ node_id: nodeId, ...first('new') }] };
  await commit(stores, project.id, freed);
  expect(await leases(path)).toEqual([['0', 'old', null]]);
});

test('the end of a removal frees the devices of the removed container', async () => {
  const { stores, path, project, nodeId } = await scene();
  await deploymentIn(stores, project, 'old', { status: 'retired', node_id: nodeId });
  await deploymentIn(stores, project, 'new', { status: 'running', node_id: nodeId });
  await commit(stores, project.id, {
    takeDevices: [take(nodeId, 'old'), take(nodeId, 'old', { name: '1' })],
  });
  const retire = taskOf(project, 'retire', nodeId, { deployment_id: 'new', kind: 'retire' });
  const remove = [{ deployment_id: 'old', reason: 'replaced' }];
  const payload = { ...retirePayload(project), remove };
  await tasksIn(stores, project, { ...retire, payload } as typeof retire);
  expect((await stores.nodes.room()).leases.map((one) => one.holders)).toEqual([
    [first('old')],
    [first('old')],
  ]);
  await commit(stores, project.id, {
    changeTasks: [{ id: 'retire', attempt: 0, end: 'completed' }],
  });
  expect(await leases(path)).toEqual([]);
});

test('a lease is free when its deployment has ended and its node reports no container', async () => {
  const { stores, project, nodeId } = await scene();
  await deploymentIn(stores, project, 'old', { status: 'failed', node_id: nodeId });
  await commit(stores, project.id, { takeDevices: [take(nodeId, 'old')] });
  await tasksIn(
    stores,
    project,
    taskOf(project, 't', nodeId, { deployment_id: 'old', kind: 'deploy' }),
  );
  await commit(stores, project.id, { changeTasks: [{ id: 't', attempt: 0, end: 'lost' }] });
  const holders = async () => (await stores.nodes.room()).leases.map((one) => one.holders);
  const report = (at: number, containers: object[]) =>
    nodeIn(
      stores,
      'n1',
      { role: 'deploy', agent_version: '1', containers: containers as never },
      at,
    );
  expect(await holders()).toEqual([[first('old')]]);
  const labels = { [LABELS.deployment]: 'old', [LABELS.project]: project.id };
  await report(NOW + 100_000, [{ name: 'svc-shop', labels, host_port: null, state: 'exited' }]);
  expect(await holders()).toEqual([[first('old')]]);
  await report(NOW + 200_000, []);
  expect(await holders()).toEqual([[]]);
});

test('each instance has its own lease: the end of one frees only its device', async () => {
  const { stores, path, project, nodeId } = await scene();
  await deploymentIn(stores, project, 'd', { status: 'running', node_id: nodeId });
  const second = { deployment_id: 'd', instance_id: 'i2' };
  await commit(stores, project.id, {
    instances: [{ put: instanceOf(project, 'i2', 'd', nodeId) }],
    takeDevices: [take(nodeId, 'd'), { ...take(nodeId, 'd', { name: '1' }), ...second }],
  });
  const holders = async () => (await stores.nodes.room()).leases.map((one) => one.holders);
  expect(await holders()).toEqual([[first('d')], [second]]);
  const retire = taskOf(project, 'retire', nodeId, { deployment_id: 'd', kind: 'retire' });
  const remove = [{ deployment_id: 'd', instance_id: 'i2', reason: 'scaled down' }];
  const payload = { ...retirePayload(project), remove };
  await tasksIn(stores, project, { ...retire, payload } as typeof retire);
  await commit(stores, project.id, {
    instances: [{ remove: 'i2' }],
    changeTasks: [{ id: 'retire', attempt: 0, end: 'completed' }],
  });
  expect(await leases(path)).toEqual([['0', 'd', null]]);
});

test('a device returns to the container that had it, with the label of its instance', async () => {
  const { stores, path, project, nodeId } = await scene();
  await deploymentIn(stores, project, 'old', { status: 'running', node_id: nodeId });
  await deploymentIn(stores, project, 'new', { status: 'deploying', node_id: nodeId });
  const older = { deployment_id: 'old', instance_id: 'i2' };
  await commit(stores, project.id, { takeDevices: [{ ...take(nodeId, 'old'), ...older }] });
  const passed = take(nodeId, 'new', {
    returns_to: 'old',
    returns_to_instance: 'i2',
    replaces: older,
  });
  await commit(stores, project.id, { takeDevices: [passed] });
  await commit(stores, project.id, { freeDevices: [{ node_id: nodeId, ...first('new') }] });
  expect(await rowsOf(path, 'device_leases')).toMatchObject([{ ...older, returns_to: null }]);
});

test('a container that is created again without its label takes its device again', async () => {
  const { stores, path, project, nodeId } = await scene();
  await deploymentIn(stores, project, 'd', { status: 'running', node_id: nodeId });
  const older = { deployment_id: 'd', instance_id: 'i2' };
  await commit(stores, project.id, { takeDevices: [{ ...take(nodeId, 'd'), ...older }] });
  const again = {
    freeDevices: [{ node_id: nodeId, ...older }],
    takeDevices: [take(nodeId, 'd', { replaces: older })],
  };
  expect(await commit(stores, project.id, again)).toBe('committed');
  expect(await rowsOf(path, 'device_leases')).toMatchObject([{ ...first('d'), name: '0' }]);
});

test('room names the containers that are ending, with what they hold', async () => {
  const { stores, project, nodeId } = await scene();
  await deploymentIn(stores, project, 'old', { status: 'retired', node_id: nodeId, generation: 4 });
  expect((await stores.nodes.room()).ending).toBeUndefined();
  const retire = taskOf(project, 'retire', nodeId, { deployment_id: 'old', kind: 'retire' });
  const remove = [{ deployment_id: 'old', reason: 'replaced', containers: 2 }];
  const payload = { ...retirePayload(project), remove };
  await tasksIn(stores, project, { ...retire, payload } as typeof retire);
  expect((await stores.nodes.room()).ending).toEqual([
    {
      project_id: project.id,
      deployment_id: 'old',
      generation: 4,
      node_id: nodeId,
      containers: 2,
      bytes: 2 * MEMORY,
    },
  ]);
});

test('a stopped project holds neither memory nor devices', async () => {
  const { stores, project, nodeId } = await scene();
  await deploymentIn(stores, project, 'd', { status: 'running', node_id: nodeId });
  await commit(stores, project.id, { takeDevices: [take(nodeId, 'd')] });
  const held = async () => {
    const { memory, leases } = await stores.nodes.room();
    return [memory.get(nodeId) ?? 0, leases.map((one) => one.holders)];
  };
  expect(await held()).toEqual([MEMORY, [[first('d')]]]);
  const change = (set: Partial<DeploymentRecord>) =>
    commit(stores, project.id, { changeDeployments: [{ id: 'd', from: 'running', set }] });
  await change({ stopped_first: 'asked', health: null });
  expect(await held()).toEqual([MEMORY, [[first('d')]]]);
  await change({ stopped_first: 'stopped' });
  expect(await held()).toEqual([0, [[]]]);
});

test('a machine that registers as another node keeps the devices of its containers', async () => {
  const { stores, project, nodeId } = await scene();
  await deploymentIn(stores, project, 'd', { status: 'running', node_id: nodeId });
  await commit(stores, project.id, { takeDevices: [take(nodeId, 'd')] });
  const labels = {
    [LABELS.deployment]: 'd',
    [LABELS.project]: project.id,
    [LABELS.devices]: `${GPU}=0`,
  };
  const renamed = await nodeIn(stores, 'renamed', {
    role: 'deploy',
    agent_version: '1',
    devices: { [GPU]: ['0'] },
    containers: [{ name: 'svc-shop', labels, host_port: 1, state: 'running' }] as never,
  });
  const { leases } = await stores.nodes.room();
  expect(leases.map(({ node_id, holders }) => [node_id, holders.length])).toEqual([
    [nodeId, 1],
    [renamed.id, 1],
  ]);
});

test('leases are removed with their node', async () => {
  const { stores, path, project, nodeId } = await scene();
  await commit(stores, project.id, { takeDevices: [take(nodeId, 'old')] });
  await stores.nodes.markDeleting(nodeId, NOW);
  await stores.nodes.removeIfGone(nodeId, true);
  expect(await leases(path)).toEqual([]);
});

test('a project knows whether a person set `replace`', async () => {
  const { stores, project } = await scene();
  expect(project.replace_set).toBe(false);
  expect((await projectIn(stores, 'set', { replace: 'rolling' })).replace_set).toBe(true);
  await stores.projects.patch(project.id, { cpus: 1 }, NOW);
  expect((await stores.projects.get(project.id)).replace_set).toBe(false);
  const patched = await stores.projects.patch(project.id, { replace: 'rolling' }, NOW);
  expect(patched.replace_set).toBe(true);
});
