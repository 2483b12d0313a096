/** Repair of the tables after a version of Berth that does not know instances. */
import { expect, test } from 'vitest';
import { commit, deploymentIn, instanceOf, open, projectIn, routeOf } from './fixtures.ts';

test('repair removes instances of ended deployments, and servers of a route that are not its instances', async () => {
  const stores = await open();
  const project = await projectIn(stores, 'shop');
  for (const [id, status] of [
    ['d1', 'retired'],
    ['d2', 'running'],
  ] as const)
    await deploymentIn(stores, project, id, { status, node_id: 'n1', host_port: 1 });
  const server = (instance_id: string) => ({
    instance_id,
    node_id: 'n2',
    host_ip: '10.0.0.2',
    host_port: 2,
  });
  const [kept, left] = [instanceOf(project, 'kept', 'd2'), instanceOf(project, 'left', 'd1')];
  const route = {
    ...routeOf(project, 'd2', 'n1'),
    servers: [server('left'), server('kept'), server('unknown')],
  };
  await commit(stores, project.id, {
    instances: [{ put: kept }, { put: left }],
    route: { set: route },
  });
  await stores.instances.repair();
  expect(await stores.instances.all()).toEqual([kept]);
  expect((await stores.flow.facts(project.id)).route?.servers).toEqual([server('kept')]);
  await stores.instances.repair();
  expect((await stores.flow.facts(project.id)).route?.servers).toEqual([server('kept')]);
});

test('the deployments whose routes lead to a node: by the first instance, and by a further one', async () => {
  const stores = await open();
  for (const [name, over] of [
    ['shop', {}],
    ['blog', { stopped: true }],
  ] as const) {
    const project = await projectIn(stores, name);
    const id = `d-${name}`;
    await deploymentIn(stores, project, id, { status: 'running', node_id: 'n1', host_port: 1 });
    const serving = { ...instanceOf(project, `i-${name}`, id), node_id: 'n2' };
    await commit(stores, project.id, {
      instances: [
        { put: { ...serving, state: 'serving' } },
        { put: { ...serving, id: `w-${name}`, number: 3, node_id: 'n3', state: 'unhealthy' } },
      ],
      route: { set: { ...routeOf(project, id, 'n1'), ...over } },
    });
  }
  expect(await stores.instances.routedTo(['n1', 'n2', 'n3'])).toEqual([
    { deployment_id: 'd-shop', node_id: 'n1' },
    { deployment_id: 'd-shop', node_id: 'n2' },
  ]);
  expect(await stores.instances.routedTo([])).toEqual([]);
});
