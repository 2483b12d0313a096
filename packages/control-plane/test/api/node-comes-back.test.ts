/**
 * A node that was deleted by force and registers again: containers from before are found, and
 * removed or quarantined.
 */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Api, createApi, register, sha, tick, withBuild } from './harness.ts';

let api: Api;
beforeEach(async () => void (api = await createApi()));
afterEach(() => api.close());

const DEPLOY_NODE = { hostname: 'node-1', role: 'deploy' };
const container = (name: string, deployment: string, project: string, node: string) => ({
  id: `id-${name}`,
  name,
  labels: {
    'berth.deployment': deployment,
    'berth.project': project,
    'berth.generation': '1',
    'berth.node': node,
  },
  host_port: 32_001,
  state: 'running',
});
type Task = {
  id: string;
  kind: string;
  payload: { remove: { deployment_id: string; reason: string }[] };
};
const tasks = async (node: string): Promise<Task[]> =>
  (await api.call('agentTasks', { query: { node_id: node } })).json as unknown as Task[];

async function live(): Promise<{ project: string; deployment: string; node: string }> {
  const { project, deployment, task } = await withBuild(api);
  const node = await register(api, DEPLOY_NODE);
  const work = async (id: string, report: object): Promise<void> => {
    const claim = await api.call('agentStart', { params: { id } });
    const headers = { 'x-lease-token': String(claim.json['lease_token']) };
    await api.call('agentComplete', {
      params: { id },
      body: { status: 'completed', ...report },
      headers,
    });
  };
  await work(task, { image_tag: `registry.test:5000/shop:${sha('c')}` });
  await tick(api, deployment);
  await work((await tasks(node))[0]?.id ?? '', { host_port: 32_001 });
  await api.driver.advance(deployment, {
    type: 'route_confirmed',
    host_ip: '10.0.0.7',
    host_port: 32_001,
  });
  for (const { id } of await tasks(node)) await work(id, {});
  return { project, deployment, node };
}
const statusOf = async (id: string): Promise<unknown> =>
  (await api.call('getDeployment', { params: { id } })).json['status'];

test('the container of a deployment that ended with the node is removed; an unknown container is quarantined and shown', async () => {
  const { project, deployment, node } = await live();
  await api.call('deleteNode', { params: { id: node }, query: { force: true } });
  expect(await statusOf(deployment)).toBe('retired');

  const containers = [
    container('svc-shop', deployment, project, node),
    container('svc-shop-g9', 'forgotten', project, node),
  ];
  const back = await register(api, { ...DEPLOY_NODE, containers });
  expect(back).not.toBe(node);
  const given = await tasks(back);
  expect(given.map((t) => [t.kind, t.payload.remove])).toEqual([
    ['retire', [{ deployment_id: deployment, reason: 'its deployment is retired' }]],
  ]);
  const seen = (await api.call('getNode', { params: { id: back } })).json;
  expect(seen['quarantined']).toEqual(['svc-shop-g9']);
  const [listed] = (
    (await api.call('listNodes', { query: {} })).json['items'] as {
      id: string;
      quarantined: string[];
    }[]
  ).filter((n) => n.id === back);
  expect(listed?.quarantined).toEqual(['svc-shop-g9']);
  expect((await api.call('readyz')).json['notes']).toContain(
    'containers of unknown deployments are in quarantine on 1 node: berth status names them, ' +
      'and only people remove them',
  );
  // A repeated registration requests nothing more.
  await register(api, { ...DEPLOY_NODE, containers });
  expect(await tasks(back)).toEqual(given);
});

test('a node without unknown containers shows none', async () => {
  const { project, deployment, node } = await live();
  await register(api, {
    ...DEPLOY_NODE,
    containers: [container('svc-shop', deployment, project, node)],
  });
  expect((await api.call('getNode', { params: { id: node } })).json['quarantined']).toEqual([]);
  expect((await api.call('readyz')).text).not.toContain('quarantine');
  expect(await tasks(node)).toEqual([]);
});
