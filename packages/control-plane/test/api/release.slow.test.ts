/**
 * Settings of a release, settings that apply at once, and which deployment can be rolled back to.
 */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createWorld, type World } from './deployed.ts';
import { type Api, createApi, createProject, deploy, PROJECT, rulesOf, tick } from './harness.ts';

let api: Api;
let world: World;
beforeEach(async () => {
  api = await createApi({ env: { AUTH_SERVICE_URL: 'http://127.0.0.1:9' } });
  world = await createWorld(api);
});
afterEach(() => api.close());

const health = async (id: string): Promise<unknown> =>
  (await api.call('getDeployment', { params: { id } })).json['health'];
const patch = (id: string, body: Record<string, unknown>) =>
  api.call('patchProject', { params: { id }, body });
const rollback = (id: string, deployment_id: string) =>
  api.call('rollback', { params: { id }, body: { deployment_id } });

describe('a login that a project starts to require', () => {
  const config = (): Record<string, { middlewares?: string[] }> =>
    (
      JSON.parse(api.source.current().bytes) as {
        http: { routers: Record<string, { middlewares?: string[] }> };
      }
    ).http.routers;

  test('protects the running deployment before PATCH is answered', async () => {
    const project = await createProject(api);
    await world.live(project);
    await api.source.refresh();
    expect(config()['shop']?.middlewares).not.toContain('shop-auth');
    expect((await patch(project, { auth_required: true })).status).toBe(200);
    expect(config()['shop']?.middlewares).toContain('shop-auth');
    expect((await patch(project, { auth_required: false })).status).toBe(200);
    expect(config()['shop']?.middlewares).not.toContain('shop-auth');
  });

  test('is refused without AUTH_SERVICE_URL, and the running deployment stays published', async () => {
    const bare = await createApi();
    const body = { ...PROJECT, auth_required: true };
    const created = await bare.call('createProject', { body });
    expect([created.status, rulesOf(created)]).toEqual([422, ['auth_required:auth_service']]);
    const id = await createProject(bare);
    const reply = await bare.call('patchProject', {
      params: { id },
      body: { auth_required: true },
    });
    expect([reply.status, rulesOf(reply)]).toEqual([422, ['auth_required:auth_service']]);
    expect((await bare.call('getProject', { params: { id } })).json).toMatchObject({
      auth_required: false,
    });
    expect(
      (await bare.call('patchProject', { params: { id }, body: { auth_required: false } })).status,
    ).toBe(200);
    await bare.close();
  });
});

describe('drift', () => {
  test('the order of names in env is no drift', async () => {
    const project = await createProject(api, { env: { A: '1', B: '2' } });
    const id = await world.live(project);
    await patch(project, { env: { B: '2', A: '1' } });
    expect(await health(id)).toMatchObject({ status: 'healthy' });
    await patch(project, { env: { A: '1', B: '3' } });
    expect(await health(id)).toMatchObject({
      status: 'drifted',
      detail: expect.stringContaining('the project’s env changed since'),
    });
  });
  test('a setting that takes effect at once is no drift', async () => {
    const project = await createProject(api);
    const id = await world.live(project);
    await patch(project, { auth_required: true, on_dataset_change: 'ignore' });
    expect(await health(id)).toMatchObject({ status: 'healthy' });
  });
});

const story = async (id: string, kind: string): Promise<string[]> =>
  (
    (await api.call('getDeployment', { params: { id } })).json['events'] as {
      kind: string;
      message: string;
    }[]
  )
    .filter((e) => e.kind === kind)
    .map((e) => e.message);
const made = (reply: { json: Record<string, unknown> }): string => String(reply.json['id']);

describe('a release that is deployed again has its own settings', () => {
  const SET = {
    env: { A: '1' },
    container_port: 8080,
    health_path: '/up',
    memory_bytes: 100_000_000,
  };
  test('after a rollback by a person', async () => {
    const project = await createProject(api, SET);
    const first = await world.live(project);
    await patch(project, {
      env: { A: '2' },
      container_port: 9000,
      domain_prefix: 'store',
      health_path: null,
      memory_bytes: null,
    });
    await world.live(project);
    const id = made(await rollback(project, first));
    expect(await world.deployedAgain(id)).toMatchObject({
      ...SET,
      domain_prefix: 'shop',
      container_name: 'svc-shop-g3',
    });
    expect(await story(id, 'settings')).toEqual([
      'uses the settings of deployment 1; the project’s domain_prefix, container_port, env, ' +
        'health_path, memory_bytes changed since and take effect with the next deployment from ' +
        'source',
    ]);
    expect((await api.call('getDeployment', { params: { id } })).json['url']).toBe(
      'http://shop.berth.localhost:8000',
    );
  });
  test('after a drain, or a redeployment for new data', async () => {
    const project = await createProject(api, SET);
    const first = await world.live(project);
    await patch(project, { env: { A: '2' }, container_port: 9000, domain_prefix: 'store' });
    const id = api.driver.newId();
    await api.driver.redeploy(first, { id, note: 'node-1 is drained', trigger: 'drain' });
    expect(await world.deployedAgain(id)).toMatchObject({ ...SET, domain_prefix: 'shop' });
    expect((await story(id, 'settings')).join()).toContain(
      'the project’s domain_prefix, container_port, env changed since',
    );
  });
  test('without a note if no setting changed', async () => {
    const project = await createProject(api, SET);
    const first = await world.live(project);
    expect(await story(made(await rollback(project, first)), 'settings')).toEqual([]);
  });
  test('and the next deployment from source has the new settings', async () => {
    const project = await createProject(api, SET);
    const first = await world.live(project);
    await patch(project, { env: { A: '2' } });
    await world.deployedAgain(made(await rollback(project, first)));
    const next = await deploy(api, project);
    await tick(api, next);
    await world.built();
    await tick(api, next);
    expect(await world.work(world.home, { host_port: 32_001 })).toMatchObject({ env: { A: '2' } });
  });

  test('and is not drifted after a rollback, until somebody changes a setting again; a restart and a drain keep that', async () => {
    const healthOf = async (id: string) =>
      (await api.call('getDeployment', { params: { id } })).json as unknown as {
        health: { status: string; detail: string | null } | null;
        rolled_back_from: number | null;
      };
    const drifts = async (id: string) => (await healthOf(id)).health?.detail ?? null;
    const from = async (id: string) => (await healthOf(id)).rolled_back_from;
    const project = await createProject(api, SET);
    const first = await world.live(project);
    await patch(project, { env: { A: 'bad' }, memory_bytes: null });
    const bad = await world.live(project);
    expect(await from(bad)).toBeNull();
    const back = made(await rollback(project, first));
    await world.deployedAgain(back);
    expect([await drifts(back), await from(back)]).toEqual([null, 2]);
    // The person changes one of the settings that the rollback set aside, and another one.
    await patch(project, { env: { A: 'better' }, health_path: '/healthy' });
    const detail =
      'the project’s env, health_path changed since the rollback from deployment 2; the next ' +
      'deployment from source applies it';
    expect(await drifts(back)).toBe(detail);
    await patch(project, { env: { A: 'bad' }, health_path: '/up' });
    expect(await drifts(back)).toBeNull();
    const again = made(await api.call('restartProject', { params: { id: project } }));
    await world.deployedAgain(again);
    expect([await drifts(again), await from(again)]).toEqual([null, 2]);
    const moved = api.driver.newId();
    await api.driver.redeploy(again, { id: moved, note: 'node-1 is drained', trigger: 'drain' });
    await world.deployedAgain(moved);
    expect([await drifts(moved), await from(moved)]).toEqual([null, 2]);
    // Back to the version from which they rolled back.
    const forward = made(await rollback(project, bad));
    await world.deployedAgain(forward);
    expect([await drifts(forward), await from(forward)]).toEqual([null, null]);
    const next = await world.live(project);
    expect(await from(next)).toBeNull();
  });

  test('except the login: a release from before the login was required is not published without it', async () => {
    const project = await createProject(api);
    const first = await world.live(project);
    await patch(project, { auth_required: true });
    await world.live(project);
    const id = made(await rollback(project, first));
    await world.deployedAgain(id);
    await api.source.refresh();
    expect(api.source.current().bytes).toContain('shop-auth');
    expect((await story(id, 'settings')).join()).toContain(
      'requires a login, like the project now',
    );
    expect(await health(id)).toMatchObject({ status: 'healthy' });
    // A release from the time with a login does not require it again.
    await patch(project, { auth_required: false });
    expect((await story(made(await rollback(project, id)), 'settings')).join()).toContain(
      'requires no login, like the project now',
    );
  });

  describe('a host name of the release that its project no longer has', () => {
    let project: string;
    let first: string;
    beforeEach(async () => {
      // Otherwise the prefix stays reserved for its project, and no other one gets it.
      await api.close();
      api = await createApi({ env: { DOMAIN_QUARANTINE: '0s' } });
      world = await createWorld(api);
      project = await createProject(api);
      first = await world.live(project);
      await patch(project, { domain_prefix: 'store' });
      await world.live(project);
    });
    test('is refused if another project has it', async () => {
      await createProject(api, { name: 'other', domain_prefix: 'shop' });
      const reply = await rollback(project, first);
      expect([reply.status, reply.json['code']]).toEqual([409, 'domain_prefix_taken']);
    });
    test('is refused while another project still serves under it', async () => {
      const other = await createProject(api, { name: 'other', domain_prefix: 'shop' });
      await world.live(other);
      await patch(other, { domain_prefix: 'elsewhere' });
      const reply = await rollback(project, first);
      expect([reply.status, reply.json['code']]).toEqual([409, 'domain_prefix_taken']);
    });
    test('is reserved again after the rollback', async () => {
      await rollback(project, first);
      const reply = await api.call('createProject', {
        body: { ...PROJECT, name: 'other', domain_prefix: 'shop' },
      });
      expect([reply.status, reply.json['code']]).toEqual([409, 'domain_prefix_taken']);
    });
  });
});

describe('datasets of a release', () => {
  const newDataset = async (name: string): Promise<string> =>
    (await api.stores.datasets.create({ name, nfs_path: `${name}-${n++}` }, Date.now())).id;
  let n = 0;
  test('a deleted dataset is refused', async () => {
    const dataset = await newDataset('maps');
    const project = await createProject(api, {
      datasets: [{ dataset_id: dataset, mode: 'readwrite' }],
    });
    const first = await world.live(project);
    await patch(project, { datasets: [] });
    await world.live(project);
    expect((await api.call('deleteDataset', { params: { id: dataset } })).status).toBe(202);
    const reply = await rollback(project, first);
    expect([reply.status, reply.json['code'], reply.json['detail']]).toEqual([
      409,
      'no_release',
      'its dataset maps was deleted',
    ]);
  });
  test('a renamed dataset keeps its mount path in the running deployment, in releases and in the project', async () => {
    const dataset = await newDataset('maps');
    const project = await createProject(api, {
      datasets: [{ dataset_id: dataset, mode: 'readwrite' }],
    });
    const mounts = { datasets: [{ dataset_id: dataset, mount_path: '/data/maps' }] };
    expect((await api.call('getProject', { params: { id: project } })).json).toMatchObject(mounts);
    const first = await world.live(project);
    expect(
      (await api.call('patchDataset', { params: { id: dataset }, body: { name: 'atlas' } })).status,
    ).toBe(200);
    expect(await health(first)).toMatchObject({ status: 'healthy' });
    const next = await deploy(api, project);
    await tick(api, next);
    await world.built();
    expect(await world.deployedAgain(next)).toMatchObject(mounts);
    // A client without mount paths sends the same list again.
    await patch(project, { datasets: [{ dataset_id: dataset, mode: 'readwrite' }] });
    expect((await api.call('getProject', { params: { id: project } })).json).toMatchObject(mounts);
    await patch(project, {
      datasets: [{ dataset_id: dataset, mode: 'readwrite', mount_path: '/srv' }],
    });
    expect(await world.deployedAgain(made(await rollback(project, first)))).toMatchObject(mounts);
  });
  test('the mount path of a renamed dataset is refused to another dataset', async () => {
    const dataset = await newDataset('maps');
    const project = await createProject(api, {
      datasets: [{ dataset_id: dataset, mode: 'dependency' }],
    });
    await api.call('patchDataset', { params: { id: dataset }, body: { name: 'atlas' } });
    const second = await newDataset('maps');
    const uses = [dataset, second].map((dataset_id) => ({ dataset_id, mode: 'dependency' }));
    expect(rulesOf(await patch(project, { datasets: uses }))).toEqual([
      'datasets[1].mount_path:unique',
    ]);
  });
});

describe('only a deployment that was live can be rolled back to', () => {
  test('a deployment that failed its probe is refused, one that was live is accepted', async () => {
    const project = await createProject(api);
    const first = await world.live(project);
    const id = await deploy(api, project);
    await tick(api, id);
    await world.built();
    const waits = await rollback(project, id);
    expect([waits.status, waits.json['code']]).toEqual([409, 'no_release']);
    await tick(api, id);
    await world.work(world.home, {
      status: 'failed',
      result: { error: { code: 'probe_timeout', message: 'no answer' } },
    });
    const failed = await rollback(project, id);
    expect([failed.status, failed.json['code']]).toEqual([409, 'no_release']);
    expect(failed.json['detail']).toBe(
      'deployment 2 is failed: a rollback needs a deployment that ran',
    );
    expect((await rollback(project, first)).status).toBe(201);
  });
});
