/** A project at count 0: nothing runs, its page says why, and a scale up starts it without a build. */
import { beforeEach, describe, expect, it, test } from 'vitest';
import { createWorld, type World } from './deployed.ts';
import { type Api, createApi, createProject, deploy, register, tick } from './harness.ts';

let api: Api;
let world: World;
const CAN = { agent_version: '0.2.0', capabilities: ['instances', 'volumes'] };

beforeEach(async () => {
  api = await createApi({ env: { AUTH_SERVICE_URL: 'http://127.0.0.1:9' } });
  world = await createWorld(api);
  await register(api, { hostname: 'node-1', role: 'deploy', ...CAN });
  return () => api.close();
});

const of = (id: string) => ({ params: { id } });
const scale = async (id: string, web: number) => {
  const reply = await api.call('scaleProject', { ...of(id), body: { web } });
  expect(reply.status, reply.text).toBe(200);
  return reply.json;
};
const projectOf = async (id: string) => (await api.call('getProject', of(id))).json;
const deploymentOf = async (id: string) => (await api.call('getDeployment', of(id))).json;
const newest = async (id: string) => {
  const { json } = await api.call('projectDeployments', of(id));
  return (json['items'] as { id: string; trigger: string; status: string }[])[0];
};
/** The service and the middlewares of the project in the configuration of the proxy. */
async function routed(name: string) {
  const { http } = (await api.call('traefikConfig', {})).json as unknown as {
    http: {
      services?: Record<string, { loadBalancer: { servers: unknown[] } }>;
      middlewares?: Record<string, { errors?: { query: string } }>;
      routers?: Record<string, { middlewares?: string[] }>;
    };
  };
  const page = (http.routers?.[name]?.middlewares ?? []).flatMap(
    (one) => http.middlewares?.[one]?.errors?.query ?? [],
  );
  return { servers: http.services?.[name]?.loadBalancer.servers.length, page };
}
const SCALED = 'the project is scaled to 0; scale it up to serve again';
/** Lets the node stop the containers of the deployment. */
const stops = async (deployment: string): Promise<void> => {
  const { stop } = (await world.work(world.home, {})) as { stop?: unknown };
  expect(stop).toEqual([{ deployment_id: deployment, reason: 'the project is scaled to 0' }]);
};

describe('scaled to 0', () => {
  it('nothing runs, the address stays, and the page says why', async () => {
    const id = await createProject(api);
    const first = await world.live(id);
    expect((await deploymentOf(first))['rests']).toBeNull();
    const { url } = await projectOf(id);
    await scale(id, 0);
    await stops(first);
    expect(await projectOf(id)).toMatchObject({
      url,
      stopped: true,
      processes: [{ name: 'web', count: 0 }],
      running_deployment_id: first,
    });
    expect(await deploymentOf(first)).toMatchObject({
      status: 'running',
      health: null,
      waiting: SCALED,
      rests: 'scaled_to_zero',
      instances: [],
    });
    expect(await routed('shop')).toEqual({ servers: 0, page: ['/stopped?zero'] });
    for (const verb of ['restartProject', 'startProject'] as const) {
      const refused = await api.call(verb, of(id));
      expect([refused.status, refused.text]).toEqual([
        409,
        expect.stringContaining('it is scaled to 0; scale it to 1 or more'),
      ]);
    }
    // The loops neither move it nor ask about it again.
    expect(await api.stores.instances.unmoved([world.home])).toEqual([]);
    expect(await api.stores.instances.scaled()).toEqual([]);
  });

  it('a scale up starts the release without a build, with as many instances', async () => {
    const id = await createProject(api);
    const first = await world.live(id);
    await scale(id, 0);
    await stops(first);
    await scale(id, 1);
    const start = await newest(id);
    expect(start).toMatchObject({ trigger: 'start', status: 'pending' });
    // A second one, before the first has an effect, changes nothing.
    await scale(id, 2);
    await scale(id, 1);
    expect((await newest(id))?.id).toBe(start?.id);
    await world.deployedAgain(start?.id ?? '');
    expect(await projectOf(id)).toMatchObject({
      stopped: false,
      running_deployment_id: start?.id,
    });
    expect(await routed('shop')).toEqual({ servers: 1, page: [] });
    expect((await deploymentOf(first))['status']).toBe('retired');
  });

  it('scaled up and down again before the start: it rests when the start is live', async () => {
    const id = await createProject(api);
    const first = await world.live(id);
    await scale(id, 0);
    await stops(first);
    await scale(id, 1);
    await scale(id, 0);
    const start = (await newest(id))?.id ?? '';
    await world.deployedAgain(start);
    await stops(start);
    expect(await projectOf(id)).toMatchObject({ stopped: true, running_deployment_id: start });
    expect(await routed('shop')).toEqual({ servers: 0, page: ['/stopped?zero'] });
  });

  test.each(['deploy', 'rollback'] as const)(
    'a %s starts one container, goes live and rests; the scale up runs it',
    async (what) => {
      const id = await createProject(api);
      const older = await world.live(id);
      const first = await world.live(id);
      await scale(id, 0);
      await stops(first);
      let next: string;
      if (what === 'deploy') {
        next = await deploy(api, id);
        await tick(api, next);
        await world.built();
        await world.started(next);
      } else {
        const { json } = await api.call('rollback', { ...of(id), body: {} });
        expect(json['rollback_of']).toBe(older);
        next = String(json['id']);
        await world.deployedAgain(next);
      }
      await stops(next);
      expect(await deploymentOf(next)).toMatchObject({ status: 'running', waiting: SCALED });
      expect(await projectOf(id)).toMatchObject({ stopped: true, running_deployment_id: next });
      expect(await routed('shop')).toEqual({ servers: 0, page: ['/stopped?zero'] });
      await scale(id, 1);
      const { id: start = '' } = (await newest(id)) ?? {};
      expect((await deploymentOf(start))['rollback_of']).toBe(next);
    },
  );

  it('scaled to 0 before and during the first deployment: it rests when it is live', async () => {
    const id = await createProject(api);
    await scale(id, 0);
    expect((await projectOf(id))['stopped']).toBe(false);
    const first = await world.live(id);
    await stops(first);
    expect((await projectOf(id))['stopped']).toBe(true);
  });

  it('its node is deleted: the page stays, and the scale up starts the release elsewhere', async () => {
    const id = await createProject(api);
    const first = await world.live(id);
    await scale(id, 0);
    await stops(first);
    expect((await api.call('deleteNode', of(world.home))).status).toBe(202);
    expect((await deploymentOf(first))['status']).toBe('retired');
    expect(await routed('shop')).toEqual({ servers: 0, page: ['/stopped?zero'] });
    await scale(id, 1);
    const start = await newest(id);
    expect(start).toMatchObject({ trigger: 'start', status: 'pending' });
  });

  it('deleted: nothing is left', async () => {
    const id = await createProject(api);
    await world.live(id);
    await scale(id, 0);
    expect((await api.call('deleteProject', of(id))).status).toBe(202);
    expect(await routed('shop')).toEqual({ servers: undefined, page: [] });
  });
});
