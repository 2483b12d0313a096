/** A project without the process `web` through the API, with nodes that act like agents. */
import { expect, it } from 'vitest';
import { createWorld } from './deployed.ts';
import { createApi, createProject, deploy, register, tick } from './harness.ts';

it('is live when its processes run, without an address', async () => {
  const api = await createApi();
  const world = await createWorld(api);
  await register(api, {
    hostname: 'node-1',
    role: 'deploy',
    agent_version: '0.2.0',
    capabilities: ['instances', 'volumes', 'processes'],
  });
  const id = await createProject(api, { processes: [{ name: 'bot', command: ['bot'] }] });
  const deployment = await deploy(api, id);
  await tick(api, deployment);
  await world.built();
  await tick(api, deployment);
  const payload = await world.work(world.home, { container_id: 'c1' });
  expect(payload).toMatchObject({ command: ['bot'], instance: { process: 'bot' } });
  const [route] = await api.stores.routes.all();
  await api.driver.advance(deployment, {
    type: 'route_confirmed',
    host_ip: route?.host_ip ?? '',
    host_port: route?.host_port ?? 0,
  });
  const live = await api.call('getDeployment', { params: { id: deployment } });
  expect(live.json).toMatchObject({
    status: 'running',
    node_id: null,
    health: { status: 'healthy' },
    instances: [{ process: 'bot', number: 1, state: 'up' }],
  });
  const project = await api.call('getProject', { params: { id } });
  expect(project.json).toMatchObject({
    url: null,
    stopped: false,
    running_deployment_id: deployment,
  });
  // Its host answers with a page: the proxy has no server for it.
  await api.source.refresh();
  const { json } = await api.call('traefikConfig', {});
  const { routers, services } = (json as { http: Record<string, Record<string, object>> }).http;
  expect(routers?.['shop']).toMatchObject({ rule: 'Host(`shop.berth.localhost`)' });
  expect(services?.['shop']).toEqual({ loadBalancer: { servers: [] } });
  // The page does not say that the project is stopped, also while it waits for a version with web.
  const says = async () => (await api.stores.routes.all()).map((one) => one.at_zero);
  expect(await says()).toEqual([true]);
  const processes = [{ name: 'web' }, { name: 'bot', command: ['bot'] }];
  await api.call('patchProject', { params: { id }, body: { processes } });
  expect(await says()).toEqual([true]);
  await api.call('stopProject', { params: { id } });
  expect(await says()).toEqual([undefined]);
  await api.close();
});

it('has its address until a version without web runs', async () => {
  const api = await createApi();
  const world = await createWorld(api);
  const bot = { name: 'bot', command: ['bot'] };
  const id = await createProject(api);
  await world.live(id);
  const shown = async (): Promise<unknown[]> => {
    const one = await api.call('getProject', { params: { id } });
    const all = await api.call('listProjects', {});
    return [one.json, ...(all.json as { items: object[] }).items].map(
      (project) => (project as { url: string | null }).url,
    );
  };
  const url = 'http://shop.berth.localhost:8000';
  expect(await shown()).toEqual([url, url]);
  await api.call('patchProject', { params: { id }, body: { processes: [bot] } });
  expect(await shown()).toEqual([url, url]);
  await api.close();
});
