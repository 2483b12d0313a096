/**
 * Agents that implement only the contract: Berth ignores nothing in silence, and names the
 * containers that only a person can remove.
 */
import { silentLogger } from '@berth/kit/log';
import type { Deployment } from '@berth/wire/deployment';
import type { Node } from '@berth/wire/node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { emptyPlan } from '../../src/domain/deployments/plan.ts';
import { drains } from '../../src/loops/drains.ts';
import { removals } from '../../src/loops/removals.ts';
import { type Api, createApi, createProject, deploy, register, sha, tick } from './harness.ts';

type Task = { id: string; kind: string; payload: Record<string, unknown> };

const HOOK = { note: null, rollbackOf: null, idempotency: null, trigger: 'hook' } as const;

let api: Api;
beforeEach(async () => void (api = await createApi()));
afterEach(() => api.close());

const IP = '10.0.0.9';
const plain = (hostname: string, role: string, host_ip = IP): Promise<string> =>
  api
    .call('agentRegister', { body: { hostname, role, host_ip, max_storage: 1e12 } })
    .then((reply) => String(reply.json['id']));
const tasks = async (node: string): Promise<Task[]> =>
  (await api.call('agentTasks', { query: { node_id: node } })).json as unknown as Task[];
/** Reports as the contract says, without a claim. */
async function complete(node: string, body: object): Promise<Record<string, unknown>> {
  const [task] = await tasks(node);
  if (task === undefined) throw new Error('the node has no task');
  const reply = await api.call('agentComplete', {
    params: { id: task.id },
    body: { status: 'completed', ...body },
  });
  expect(reply.status, reply.text).toBe(200);
  return task.payload;
}
const get = async (id: string): Promise<Deployment> =>
  (await api.call('getDeployment', { params: { id } })).json as unknown as Deployment;
const story = async (id: string): Promise<string> =>
  (await get(id)).events?.map((e) => `${e.kind}: ${e.message}`).join('\n') ?? '';
const node = async (id: string): Promise<Node> =>
  (await api.call('getNode', { params: { id } })).json as unknown as Node;
const patch = (project: string, body: object): Promise<unknown> =>
  api.call('patchProject', { params: { id: project }, body });
const leftOn = async (id: string): Promise<string[]> =>
  ((await node(id)).unmanaged ?? []).map((c) => c.container);
const confirmGone = (id: string, container: string) =>
  api.call('confirmRemoved', { params: { id, container } });
async function loops(): Promise<void> {
  const deps = { ...api.stores, ...api, now: Date.now, log: silentLogger() };
  await drains(deps)(new AbortController().signal);
  await removals(deps)(new AbortController().signal);
}

async function world(settings: object = {}) {
  const builder = await plain('cb', 'builder');
  const home = await plain('cn', 'deploy');
  const project = await createProject(api, settings as Record<string, unknown>);
  const built = async (name: string): Promise<string> => {
    const id = await deploy(api, project);
    await tick(api, id);
    await complete(builder, { image_tag: `registry.test:5000/shop:${sha(name)}` });
    await tick(api, id);
    return id;
  };
  const started = async (id: string, port: number): Promise<void> => {
    await complete(home, { host_port: port });
    await api.driver.advance(id, { type: 'route_confirmed', host_ip: IP, host_port: port });
    expect((await get(id)).status).toBe('running');
  };
  const live = async (name: string, port: number): Promise<string> => {
    const id = await built(name);
    await started(id, port);
    return id;
  };
  return { builder, home, project, built, started, live };
}

describe('two versions of a stop-first project never write at once', () => {
  it('with another prefix the new one waits until an admin confirms that the old container is gone', async () => {
    const w = await world({ replace: 'recreate' });
    await w.live('a', 31_001);
    expect(await leftOn(w.home)).toEqual([]);
    await patch(w.project, { domain_prefix: 'moved' });
    const next = await w.built('b');
    expect(await tasks(w.home)).toEqual([]);
    expect((await get(next)).waiting).toContain('svc-shop on cn may still write');
    expect((await get(next)).waiting).toContain('berth node removed cn svc-shop');
    expect((await confirmGone(w.home, 'svc-shop')).status).toBe(200);
    await tick(api, next);
    expect((await tasks(w.home)).map((t) => t.payload['domain_prefix'])).toEqual(['moved']);
    await w.started(next, 31_002);
  });

  it('a rollback to a release with another prefix waits too, and the deployment fails with still_writing', async () => {
    const w = await world({ replace: 'recreate' });
    const first = await w.live('a', 31_001);
    await patch(w.project, { domain_prefix: 'moved' });
    const next = await w.built('b');
    await confirmGone(w.home, 'svc-shop');
    await tick(api, next);
    await w.started(next, 31_002);
    await patch(w.project, { domain_prefix: 'third' });
    const reply = await api.call('rollback', {
      params: { id: w.project },
      body: { deployment_id: first },
    });
    expect(reply.status, reply.text).toBe(201);
    const back = String(reply.json['id']);
    for (let i = 0; i < 2; i++) await tick(api, back);
    expect((await get(back)).waiting).toContain('svc-moved on cn may still write');
    api.pass(31 * 60_000);
    await plain('cn', 'deploy');
    await tick(api, back);
    expect(await get(back)).toMatchObject({ status: 'failed', error: { code: 'still_writing' } });
    expect((await get(next)).status).toBe('running');
  });

  it('the same prefix needs nobody: the agent replaces the container', async () => {
    const w = await world({ replace: 'recreate' });
    await w.live('a', 31_001);
    await w.live('b', 31_002);
    expect(await leftOn(w.home)).toEqual([]);
  });

  it('a node that gets a Berth agent keeps the container without labels, and blocks', async () => {
    const w = await world({ replace: 'recreate' });
    await w.live('a', 31_001);
    await register(api, { hostname: 'cn', role: 'deploy', host_ip: IP, containers: [] });
    const next = await w.built('b');
    expect((await get(next)).waiting).toContain('svc-shop on cn may still write');
    await confirmGone(w.home, 'svc-shop');
    await tick(api, next);
    expect((await tasks(w.home)).map((t) => t.kind)).toEqual(['deploy']);
  });

  it('a node that loses its Berth agent keeps what that agent reported last, until a Berth agent is back', async () => {
    const w = await world({ replace: 'recreate' });
    const labels = {
      'berth.deployment': 'd9',
      'berth.project': w.project,
      'berth.project_name': 'shop',
    };
    const container = {
      id: 'c9',
      name: 'svc-shop-g9',
      host_port: 31_009,
      state: 'running',
      labels,
    };
    const berth = { hostname: 'cn', role: 'deploy', host_ip: IP };
    await register(api, { ...berth, containers: [container] });
    await plain('cn', 'deploy');
    expect(await leftOn(w.home)).toEqual(['svc-shop-g9']);
    const next = await w.built('a');
    expect((await get(next)).waiting).toContain('svc-shop-g9 on cn may still write');
    await register(api, { ...berth, containers: [] });
    expect(await leftOn(w.home)).toEqual([]);
  });
});

describe('containers that nobody can remove are named', () => {
  it('after a drain, which is not over before an admin confirms', async () => {
    const w = await world();
    const first = await w.live('a', 31_001);
    const away = await register(api, { hostname: 'node-2', role: 'deploy', host_ip: '10.0.0.2' });
    await api.call('drainNode', { params: { id: w.home } });
    await loops();
    const list = (await api.call('listDeployments', { query: { project_id: w.project } })).json[
      'items'
    ] as { id: string }[];
    const next = list[0]?.id ?? '';
    for (let i = 0; i < 3; i++) await tick(api, next);
    const [task] = await tasks(away);
    const claim = await api.call('agentStart', { params: { id: task?.id ?? '' } });
    const headers = { 'x-lease-token': String(claim.json['lease_token']) };
    await api.call('agentComplete', {
      params: { id: task?.id ?? '' },
      headers,
      body: { status: 'completed', host_port: 32_001 },
    });
    await api.driver.advance(next, {
      type: 'route_confirmed',
      host_ip: '10.0.0.2',
      host_port: 32_001,
    });
    await loops();
    const drained = await node(w.home);
    expect(drained.unmanaged).toMatchObject([
      { node: 'cn', container: 'svc-shop', project_id: w.project, project: 'shop' },
    ]);
    expect(drained.drain).toMatchObject({
      finished_at: null,
      left: [
        {
          project: 'shop',
          problem: expect.stringContaining('svc-shop may run on'),
          unmanaged_container: 'svc-shop',
        },
      ],
    });
    for (const id of [first, next])
      expect(await story(id)).toContain('left: svc-shop may run on at cn');
    await api.call('deleteNode', { params: { id: w.home } });
    await loops();
    expect((await node(w.home)).unmanaged).toHaveLength(1);
    expect((await confirmGone(w.home, 'svc-shop')).json['drain']).toMatchObject({ left: [] });
    await loops();
    await loops();
    expect((await api.call('getNode', { params: { id: w.home } })).status).toBe(404);
  });

  it('after a changed prefix and after the deletion of the project, which the node outlives', async () => {
    const w = await world();
    await w.live('a', 31_001);
    await patch(w.project, { domain_prefix: 'moved' });
    const next = await w.live('b', 31_002);
    expect(await story(next)).toContain('left: svc-shop may run on at cn');
    expect(await leftOn(w.home)).toEqual(['svc-shop']);
    const deleted = await api.call('deleteProject', { params: { id: w.project } });
    expect(deleted.json['unmanaged']).toMatchObject([
      { node: 'cn', container: 'svc-moved', project: 'shop' },
      { node: 'cn', container: 'svc-shop', project: 'shop' },
    ]);
    await loops();
    expect((await api.call('getProject', { params: { id: w.project } })).status).toBe(404);
    expect(await leftOn(w.home)).toEqual(['svc-moved', 'svc-shop']);
    const forced = await api.call('deleteNode', { params: { id: w.home }, query: { force: true } });
    expect((forced.json['unmanaged'] as { container: string }[]).map((c) => c.container)).toEqual([
      'svc-moved',
      'svc-shop',
    ]);
    expect((await api.call('getNode', { params: { id: w.home } })).status).toBe(404);
  });

  it('after a stop, and not any more when another container has the name', async () => {
    const w = await world();
    await w.live('a', 31_001);
    await api.call('stopProject', { params: { id: w.project } });
    expect(await leftOn(w.home)).toEqual(['svc-shop']);
    await w.live('b', 31_002);
    expect(await leftOn(w.home)).toEqual([]);
    await api.call('deleteProject', { params: { id: w.project } });
    await loops();
    expect(await leftOn(w.home)).toEqual(['svc-shop']);
    // Another project gets the prefix later.
    const other = await createProject(api, { name: 'other', domain_prefix: 'other' });
    const replaced = { node_id: w.home, container: 'svc-shop', project_id: other };
    const { project } = await api.stores.flow.facts(other);
    await api.stores.flow.commit({
      ...emptyPlan(project, Date.now(), 0),
      unmanaged: [{ replaced }],
    });
    expect(await leftOn(w.home)).toEqual([]);
  });

  it('only an admin confirms, and only what is listed', async () => {
    const w = await world();
    await w.live('a', 31_001);
    await patch(w.project, { domain_prefix: 'moved' });
    await w.live('b', 31_002);
    const params = { id: w.home, container: 'svc-shop' };
    expect((await api.call('confirmRemoved', { params, as: 'developer' })).status).toBe(403);
    expect((await confirmGone(w.home, 'svc-other')).status).toBe(404);
    expect((await confirmGone('cn', 'svc-shop')).status).toBe(200);
    expect((await confirmGone(w.home, 'svc-shop')).status).toBe(404);
    expect(await leftOn(w.home)).toEqual([]);
    const events = JSON.stringify(await api.stores.events.read(null, 50));
    expect(events).toContain('admin@example.com confirmed that svc-shop on cn is removed');
  });
});

describe('a builder builds what was requested, or says that it does not', () => {
  const commit = sha('wanted');
  const reportOf = (name: string) => ({ image_tag: `registry.test:5000/shop:${sha(name)}` });

  it('the commit of a person is not given to it', async () => {
    const w = await world();
    const id = await deploy(api, w.project, { commit });
    await tick(api, id);
    expect(await get(id)).toMatchObject({
      status: 'failed',
      error: {
        code: 'agent_cannot',
        message: expect.stringContaining(`build commit ${commit.slice(0, 12)}`),
      },
    });
    expect(await tasks(w.builder)).toEqual([]);
  });

  it('the commit of a push is built as the tip of the branch: the story says so, and which commit it was', async () => {
    const w = await world();
    const { deployment } = await api.driver.request({ ...HOOK, projectId: w.project, commit });
    await tick(api, deployment.id);
    expect(await story(deployment.id)).toContain(
      'implements only the contract: it builds the tip of branch main',
    );
    await complete(w.builder, reportOf('newer'));
    expect(await get(deployment.id)).toMatchObject({ status: 'built', commit: sha('newer') });
    expect(await story(deployment.id)).toContain(
      `cb built commit ${sha('newer')} instead of commit ${commit}`,
    );
  });

  it('a builder with an agent of Berth is preferred, and fails with another commit', async () => {
    const w = await world();
    const berth = await register(api, { hostname: 'zz-builder' });
    const { deployment } = await api.driver.request({ ...HOOK, projectId: w.project, commit });
    await tick(api, deployment.id);
    expect(await tasks(w.builder)).toEqual([]);
    const [task] = await tasks(berth);
    const claim = await api.call('agentStart', { params: { id: task?.id ?? '' } });
    const headers = { 'x-lease-token': String(claim.json['lease_token']) };
    const body = { status: 'completed', ...reportOf('other'), commit: sha('other') };
    await api.call('agentComplete', { params: { id: task?.id ?? '' }, headers, body });
    expect(await get(deployment.id)).toMatchObject({
      status: 'failed',
      error: { code: 'wrong_commit' },
    });
  });

  it('submodules are named once; without them nothing is', async () => {
    const w = await world();
    const id = await w.built('a');
    for (let i = 0; i < 3; i++) await tick(api, id);
    expect((await story(id)).match(/need not fetch submodules/g)).toHaveLength(1);
    await patch(w.project, { submodules: false });
    const next = await deploy(api, w.project);
    await tick(api, next);
    expect(await get(next)).toMatchObject({ status: 'failed', error: { code: 'agent_cannot' } });
  });
});

describe('settings that a contract-only deploy agent does not know', () => {
  it.each([{ memory_bytes: 64_000_000 }, { cpus: 0.5 }])(
    '%j is a limit of the node: agent_cannot',
    async (settings) => {
      const w = await world(settings);
      const id = await w.built('a');
      expect(await get(id)).toMatchObject({
        status: 'failed',
        error: {
          code: 'agent_cannot',
          message: expect.stringContaining(`apply ${Object.keys(settings)[0]}`),
        },
      });
      const place = await api.call('placement', { query: { project_id: w.project } });
      expect(place.json).toMatchObject({ winner: null });
    },
  );

  it('a node with an agent of Berth gets the project instead', async () => {
    const w = await world({ memory_bytes: 64_000_000 });
    const away = await register(api, {
      hostname: 'node-2',
      role: 'deploy',
      host_ip: '10.0.0.2',
      free_storage: 1,
    });
    await w.built('a');
    expect((await tasks(away)).map((t) => t.payload['memory_bytes'])).toEqual([64_000_000]);
  });

  it('the others are named once in the story', async () => {
    const w = await world({ health_path: '/healthz', stop_grace_seconds: 60, drain_seconds: 5 });
    const id = await w.built('a');
    for (let i = 0; i < 3; i++) await tick(api, id);
    expect(
      (await story(id)).match(/health_path, stop_grace_seconds have no effect there/g),
    ).toHaveLength(1);
  });
});
