/** A project that a person stopped: a scale stores the count, and only a person starts it again. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, test } from 'vitest';
import { createWorld, type World } from './deployed.ts';
import { type Api, createApi, createProject, deploy, register, tick } from './harness.ts';

let api: Api;
let world: World;
let id: string;
let first: string;
const CAN = { agent_version: '0.2.0', capabilities: ['instances', 'volumes', 'move'] };
const home = (over: object = {}) =>
  register(api, { hostname: 'node-1', role: 'deploy', ...CAN, ...over });

beforeEach(async () => {
  api = await createApi({ env: { AUTH_SERVICE_URL: 'http://127.0.0.1:9' } });
  world = await createWorld(api);
  await home();
  id = await createProject(api);
  first = await world.live(id);
  return () => api.close();
}, 60_000);

const of = (given: string) => ({ params: { id: given } });
async function scale(web: number): Promise<Record<string, unknown>> {
  const reply = await api.call('scaleProject', { ...of(id), body: { web } });
  expect(reply.status, reply.text).toBe(200);
  return reply.json;
}
async function stop(): Promise<void> {
  const reply = await api.call('stopProject', of(id));
  expect(reply.status, reply.text).toBe(202);
}
const projectOf = async () => (await api.call('getProject', of(id))).json;
type Item = { id: string; trigger: string; status: string };
const deployments = async (): Promise<Item[]> =>
  (await api.call('projectDeployments', of(id))).json['items'] as Item[];
const waitingOf = async (deployment: string) =>
  (await api.call('getDeployment', of(deployment))).json['waiting'];
async function page(): Promise<string[]> {
  const { http } = (await api.call('traefikConfig', {})).json as unknown as {
    http: {
      middlewares?: Record<string, { errors?: { query: string } }>;
      routers?: Record<string, { middlewares?: string[] }>;
    };
  };
  return (http.routers?.['shop']?.middlewares ?? []).flatMap(
    (one) => http.middlewares?.[one]?.errors?.query ?? [],
  );
}
const VOLUME = { name: 'data', mount_path: '/data' };
const STOPPED = 'the project is stopped; start it to serve again';
const SCALED = 'the project is scaled to 0; scale it up to serve again';
async function start(): Promise<string> {
  const reply = await api.call('startProject', of(id));
  expect(reply.status, reply.text).toBe(201);
  return String(reply.json['id']);
}
/** The project rests, nothing starts it, and everything says that a person stopped it. */
async function staysStopped(web: number, latest = first): Promise<void> {
  expect((await deployments())[0]?.id).toBe(latest);
  expect(await projectOf()).toMatchObject({
    stopped: true,
    stopped_by_person: true,
    processes: [{ name: 'web', count: web }],
  });
  expect(await waitingOf(first)).toBe(STOPPED);
  expect(await page()).toEqual(['/stopped']);
}

describe('a scale stores the count, and the project stays stopped', () => {
  it('stopped, scaled to 0, scaled up', async () => {
    await stop();
    await world.work(world.home, {});
    for (const web of [0, 2]) {
      expect(await scale(web)).toMatchObject({ stopped: true, stopped_by_person: true });
      await staysStopped(web);
    }
  });

  it('scaled to 0, stopped, scaled up', async () => {
    expect(await scale(0)).toMatchObject({ stopped: true, stopped_by_person: false });
    await world.work(world.home, {});
    expect(await waitingOf(first)).toBe(SCALED);
    await stop();
    await staysStopped(0);
    await scale(2);
    await staysStopped(2);
  });

  it('also when its container is still being stopped, and when it is stopped twice', async () => {
    await scale(0);
    await stop();
    await stop();
    await scale(1);
    await staysStopped(1);
  });

  it('counts in the settings too', async () => {
    await stop();
    for (const count of [0, 2]) {
      const body = { processes: [{ name: 'web', count }] };
      expect((await api.call('patchProject', { ...of(id), body })).status).toBe(200);
    }
    await staysStopped(2);
  });

  it('a project that never ran', async () => {
    id = await createProject(api, { name: 'fresh', domain_prefix: 'fresh' });
    await scale(0);
    await stop();
    await scale(2);
    expect(await projectOf()).toMatchObject({ stopped: true, stopped_by_person: true });
    expect(await deployments()).toEqual([]);
  });
});

describe('a person takes it up again', () => {
  it('a start runs it with the stored count', async () => {
    await stop();
    await world.work(world.home, {});
    await scale(0);
    await scale(1);
    const next = await start();
    // Until it is live, the project counts as stopped: it might fail.
    expect(await projectOf()).toMatchObject({ stopped: true, stopped_by_person: true });
    await world.deployedAgain(next);
    expect(await projectOf()).toMatchObject({
      stopped: false,
      stopped_by_person: false,
      running_deployment_id: next,
    });
    expect(await page()).toEqual([]);
  });

  test.each(['start', 'deploy'] as const)(
    'a %s at count 0: it rests, says why, and a scale up starts it then',
    async (how) => {
      await stop();
      await world.work(world.home, {});
      await scale(0);
      let next: string;
      if (how === 'start') {
        next = await start();
        await world.deployedAgain(next);
      } else {
        next = await deploy(api, id);
        await tick(api, next);
        await world.built();
        await world.started(next);
      }
      const { stop: rests } = (await world.work(world.home, {})) as { stop?: unknown };
      expect(rests).toEqual([{ deployment_id: next, reason: 'the project is scaled to 0' }]);
      expect(await projectOf()).toMatchObject({
        stopped: true,
        stopped_by_person: false,
        running_deployment_id: next,
      });
      expect(await waitingOf(next)).toBe(SCALED);
      expect(await page()).toEqual(['/stopped?zero']);
      await scale(2);
      expect((await deployments())[0]).toMatchObject({ trigger: 'start', status: 'pending' });
    },
  );

  it('a start that is cancelled or fails leaves it stopped', async () => {
    await stop();
    await world.work(world.home, {});
    await scale(0);
    const cancelled = await start();
    expect((await api.call('cancelDeployment', of(cancelled))).status).toBe(200);
    await scale(2);
    await staysStopped(2, cancelled);
    const failed = await start();
    await tick(api, failed);
    await tick(api, failed);
    const error = { code: 'container_exited', message: 'it ended' };
    await world.work(world.home, { status: 'failed', error });
    await scale(0);
    await scale(3);
    await staysStopped(3, failed);
  });

  it('a restart names the stop and not the count', async () => {
    await stop();
    await scale(0);
    const refused = await api.call('restartProject', of(id));
    expect([refused.status, refused.text]).toEqual([
      409,
      expect.stringContaining('it is stopped; start it'),
    ]);
  });
});

describe('beside other changes', () => {
  it('renamed between', async () => {
    await stop();
    await scale(0);
    const reply = await api.call('patchProject', { ...of(id), body: { domain_prefix: 'store' } });
    expect(reply.status, reply.text).toBe(200);
    await scale(2);
    await staysStopped(2);
  });

  it('a stop between the count and the start of a scale up', async () => {
    await scale(0);
    await world.work(world.home, {});
    const { patch } = api.stores.projects;
    // Another person stops the project just after the count was stored.
    api.stores.projects.patch = async (...given) => {
      const project = await patch(...given);
      await api.driver.stop(id, 'somebody else');
      return project;
    };
    await scale(2);
    api.stores.projects.patch = patch;
    await staysStopped(2);
  });

  it('two people at once: whoever is first, the stop stays', async () => {
    await scale(0);
    await world.work(world.home, {});
    await Promise.all([scale(2), stop(), scale(0), scale(1)]);
    expect(await projectOf()).toMatchObject({ stopped: true, stopped_by_person: true });
    for (const { id: other, status } of await deployments())
      expect(other === first || status === 'cancelled', `${other} is ${status}`).toBe(true);
  });

  it('a stop cancels the start of a scale up, and the next scale starts nothing', async () => {
    await scale(0);
    await world.work(world.home, {});
    await scale(2);
    const [begun] = await deployments();
    expect(begun).toMatchObject({ trigger: 'start', status: 'pending' });
    await stop();
    await scale(0);
    await scale(2);
    expect((await deployments())[0]).toMatchObject({ id: begun?.id, status: 'cancelled' });
    await staysStopped(2, begun?.id);
  });

  it('its node is drained, and the drain is taken back', async () => {
    await stop();
    await world.work(world.home, {});
    await scale(0);
    expect((await api.call('drainNode', of(world.home))).status).toBe(202);
    await scale(1);
    expect((await api.call('uncordonNode', of(world.home))).status).toBe(200);
    await scale(0);
    await scale(2);
    await staysStopped(2);
  });

  it('its volumes wait to leave a drained node: the reason of the move is not the record', async () => {
    id = await createProject(api, { name: 'data', domain_prefix: 'data', volumes: [VOLUME] });
    first = await world.live(id);
    await stop();
    expect((await api.call('drainNode', of(world.home))).status).toBe(202);
    await api.driver.moveVolumes(first);
    expect(await waitingOf(first)).not.toBe(STOPPED);
    await scale(0);
    await scale(1);
    expect((await api.call('uncordonNode', of(world.home))).status).toBe(200);
    await scale(0);
    await scale(1);
    expect((await deployments())[0]?.id).toBe(first);
    expect(await projectOf()).toMatchObject({ stopped: true, stopped_by_person: true });
  });

  it('its node is lost, and returns with the container running', async () => {
    await stop();
    await world.work(world.home, {});
    await scale(0);
    await api.driver.advance(first, { type: 'node_silent', node_id: world.home } as never);
    api.pass(120_000);
    await scale(2);
    const container = {
      ...{ id: 'c1', name: 'svc-shop', host_port: 32_001, state: 'running' },
      labels: { 'berth.project': id, 'berth.deployment': first },
    };
    await home({ containers: [container] });
    expect((await deployments())[0]?.id).toBe(first);
    expect(await world.work(world.home, {})).toMatchObject({
      stop: [{ deployment_id: first, reason: 'the project is stopped' }],
    });
    await scale(0);
    await scale(2);
    await staysStopped(2);
  });

  it('its node is deleted', async () => {
    await stop();
    await world.work(world.home, {});
    expect((await api.call('deleteNode', of(world.home))).status).toBe(202);
    await scale(0);
    await scale(2);
    expect((await deployments())[0]?.id).toBe(first);
    expect(await projectOf()).toMatchObject({ stopped: true, stopped_by_person: true });
    expect(await page()).toEqual(['/stopped']);
  });

  it('the project is deleted', async () => {
    await stop();
    await scale(0);
    expect((await api.call('deleteProject', of(id))).status).toBe(202);
    const late = await api.call('scaleProject', { ...of(id), body: { web: 2 } });
    expect(late.json['code']).toBe('being_deleted');
    expect((await deployments()).map(({ id: one }) => one)).toEqual([first]);
  });
});

it('the control plane restarts between', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'berth-stopped-'));
  const databaseUrl = `sqlite:${join(folder, 'berth.db')}`;
  await api.close();
  api = await createApi({ databaseUrl });
  world = await createWorld(api);
  await home();
  id = await createProject(api);
  first = await world.live(id);
  await stop();
  await scale(0);
  await api.close();
  api = await createApi({ databaseUrl });
  await scale(2);
  expect((await deployments())[0]?.id).toBe(first);
  expect(await projectOf()).toMatchObject({ stopped: true, stopped_by_person: true });
  await rm(folder, { recursive: true });
});
