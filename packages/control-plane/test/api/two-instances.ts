/** A live deployment with two instances of `web`, each on a node of its own. */
import { expect } from 'vitest';
import { createWorld, type World } from './deployed.ts';
import { type Api, createProject, register } from './harness.ts';

export type TwoInstances = {
  world: World;
  project: string;
  deployment: string;
  /** The nodes of the instances 1 and 2, and the label of the second one. */
  nodes: readonly [string, string];
  label: string;
  /** Both nodes say that they are online. */
  online(): Promise<void>;
};

const CAN = {
  role: 'deploy',
  agent_version: '0.2.0',
  capabilities: ['instances', 'logs', 'metrics'],
};

export async function twoInstances(api: Api): Promise<TwoInstances> {
  const world = await createWorld(api);
  const project = await createProject(api);
  const deployment = await world.live(project);
  const online = async (): Promise<void> => {
    await register(api, { hostname: 'node-1', ...CAN });
    await register(api, { hostname: 'node-2', host_ip: '10.0.1.2', ...CAN });
  };
  await online();
  const other = await register(api, { hostname: 'node-2', host_ip: '10.0.1.2', ...CAN });
  const scaled = await api.call('scaleProject', { params: { id: project }, body: { web: 2 } });
  expect(scaled.status, scaled.text).toBe(200);
  await world.work(other, { host_port: 33_000, container_id: 'c2' });
  const { json } = await api.call('getDeployment', { params: { id: deployment } });
  const instances = json['instances'] as { id: string; number: number; state: string }[];
  expect(instances.map(({ number, state }) => [number, state])).toEqual([
    [1, 'serving'],
    [2, 'serving'],
  ]);
  const label = instances[1]?.id ?? '';
  return { world, project, deployment, nodes: [world.home, other], label, online };
}
