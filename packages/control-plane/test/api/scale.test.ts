/** Scale and instances through the API, with nodes that act like agents. */
import { beforeEach, describe, expect, it, test } from 'vitest';
import type { InstanceItem, PlacedInstance, ProjectPlacement } from '@berth/wire/instance';
import { createWorld, type World } from './deployed.ts';
import { type Api, createApi, createProject, deploy, register, rulesOf, tick } from './harness.ts';
import { withVersions } from './with-versions.ts';

let api: Api;
let world: World;
const CAN = { agent_version: '0.2.0', capabilities: ['instances', 'volumes'] };
const addresses = new Map<string, string>();

beforeEach(async () => {
  api = await createApi();
  world = await createWorld(api);
  await register(api, { hostname: 'node-1', role: 'deploy', ...CAN });
  for (const n of [2, 3]) {
    const hostname = `node-${n}`;
    const host_ip = `10.0.1.${n}`;
    addresses.set(hostname, await register(api, { hostname, role: 'deploy', host_ip, ...CAN }));
  }
  return () => api.close();
});

const of = (id: string) => ({ params: { id } });
const scale = (id: string, body: unknown, as?: 'viewer') =>
  api.call('scaleProject', { ...of(id), body, ...(as === undefined ? {} : { as }) });
const countOf = async (id: string): Promise<unknown> =>
  (await api.call('getProject', of(id))).json['processes'];
const instances = async (deployment: string): Promise<PlacedInstance[]> =>
  (await api.call('getDeployment', of(deployment))).json['instances'] as PlacedInstance[];
const short = (rows: readonly Pick<PlacedInstance, 'number' | 'state' | 'node_name'>[]): string[] =>
  rows.map((row) => `${row.number} ${row.state} ${row.node_name ?? '–'}`);
const answers = (hostname: string): Promise<unknown> =>
  world.work(addresses.get(hostname) ?? '', { host_port: 33_000, container_id: hostname });
const ipOf = (n: number) => (n === 1 ? {} : { host_ip: `10.0.1.${n}` });
const tasksOf = async (node_id: string): Promise<string[]> =>
  ((await api.call('agentTasks', { query: { node_id } })).json as unknown as { id: string }[]).map(
    ({ id }) => id,
  );
const complete = async (id: string, report: object): Promise<void> => {
  const claim = await api.call('agentStart', of(id));
  const headers = { 'x-lease-token': String(claim.json['lease_token']) };
  const body = { status: 'completed', ...report };
  await api.call('agentComplete', { ...of(id), body, headers });
};
const serviceOf = async (name: string): Promise<unknown> => {
  const { json } = await api.call('traefikConfig', {});
  return (json as { http: { services?: Record<string, unknown> } }).http.services?.[name];
};

describe('refused', () => {
  test.each([
    [{}, 'body:min_properties'],
    [{ worker: 2 }, 'worker:exists'],
    [{ web: 51 }, 'web:maximum'],
    [{ web: -1 }, 'web:minimum'],
    [{ web: 1.5 }, 'web:type'],
    [{ web: '3' }, 'web:type'],
    [{ web: null }, 'web:type'],
    [[], 'body:type'],
  ])('%j: %s', async (body, rule) => {
    const id = await createProject(api);
    const reply = await scale(id, body);
    expect(reply.status, reply.text).toBe(422);
    expect(rulesOf(reply)).toEqual([rule]);
    expect(await countOf(id)).toEqual([{ name: 'web', count: 1 }]);
  });

  it('more than one instance that would write to the same data', async () => {
    const genomes = await withVersions(api, 'genomes', [1_000]);
    const uploads = [{ name: 'uploads', mount_path: '/var/uploads' }];
    for (const [name, settings, why] of [
      ['one', { volumes: uploads, replace: 'recreate' }, 'the project has volumes'],
      [
        'two',
        { datasets: [{ dataset_id: genomes, mode: 'readwrite' }], replace: 'recreate' },
        'a dataset is mounted readwrite',
      ],
    ] as const) {
      const id = await createProject(api, { name, domain_prefix: name, ...settings });
      const reply = await scale(id, { web: 2 });
      expect(rulesOf(reply), reply.text).toEqual(['web:single_writer']);
      expect(reply.text).toContain(why);
      expect((await scale(id, { web: 1 })).status).toBe(200);
      const patched = { processes: [{ name: 'web', count: 2 }] };
      expect(rulesOf(await api.call('patchProject', { ...of(id), body: patched }))).toEqual([
        'processes[0].count:single_writer',
      ]);
    }
    const many = await createProject(api, { processes: [{ name: 'web', count: 2 }] });
    const body = { volumes: uploads, replace: 'recreate' };
    expect(rulesOf(await api.call('patchProject', { ...of(many), body }))).toContain(
      'processes[0].count:single_writer',
    );
  });

  it('for viewers, and for a project that is being deleted or does not exist', async () => {
    const id = await createProject(api);
    expect((await scale(id, { web: 2 }, 'viewer')).status).toBe(403);
    expect((await scale('nobody', { web: 2 })).status).toBe(404);
    await world.live(id);
    await api.call('deleteProject', of(id));
    expect((await scale(id, { web: 2 })).json['code']).toBe('being_deleted');
  });

  test.each([
    ['processes', [], 'processes:min_items'],
    ['processes', [{ name: 'web' }, { name: 'web' }], 'processes[1].name:unique'],
    ['processes', [{ name: 'Web' }], 'processes[0].name:dns_label'],
    ['processes', [{ count: 2 }], 'processes[0].name:required'],
    ['processes', [{ name: 'web', count: 51 }], 'processes[0].count:maximum'],
    ['processes', [{ name: 'web', count: -1 }], 'processes[0].count:minimum'],
    ['processes', [{ name: 'web', colour: 1 }], 'processes[0].colour:unknown_field'],
    ['spread', 'machines', 'spread:enum'],
    ['sticky', 'yes', 'sticky:type'],
    ['on_node_lost', 'panic', 'on_node_lost:enum'],
  ])('the field %s = %j: %s', async (field, value, rule) => {
    const id = await createProject(api);
    const reply = await api.call('patchProject', { ...of(id), body: { [field]: value } });
    expect(rulesOf(reply), reply.text).toEqual([rule]);
    const given = { name: 'two', domain_prefix: 'two', git_url: 'https://git.example.com/x.git' };
    const created = await api.call('createProject', { body: { ...given, [field]: value } });
    expect(rulesOf(created), created.text).toEqual([rule]);
  });

  it('no process web for a project that writes to its own data', async () => {
    const body = {
      name: 'one',
      domain_prefix: 'one',
      git_url: 'https://git.example.com/x.git',
      volumes: [{ name: 'uploads', mount_path: '/var/uploads' }],
      replace: 'recreate',
      processes: [{ name: 'bot' }],
    };
    const created = await api.call('createProject', { body });
    expect(rulesOf(created), created.text).toEqual(['processes:web']);
    const { volumes: _, replace: __, ...plain } = body;
    const id = (await api.call('createProject', { body: plain })).json['id'] as string;
    const given = { volumes: body.volumes, replace: 'recreate' };
    expect(rulesOf(await api.call('patchProject', { ...of(id), body: given }))).toContain(
      'processes:web',
    );
  });

  it('on_node_lost “move” for a project that writes to its own data', async () => {
    const body = {
      name: 'one',
      domain_prefix: 'one',
      git_url: 'https://git.example.com/x.git',
      volumes: [{ name: 'uploads', mount_path: '/var/uploads' }],
      replace: 'recreate',
    };
    const created = await api.call('createProject', { body: { ...body, on_node_lost: 'move' } });
    expect(rulesOf(created)).toEqual(['on_node_lost:single_writer']);
    const id = await createProject(api, { ...body, on_node_lost: 'wait' });
    const moved = await api.call('patchProject', { ...of(id), body: { on_node_lost: 'move' } });
    expect(rulesOf(moved)).toEqual(['on_node_lost:single_writer']);
  });

  it('a volume for a project with “move” set, and none for one with the default', async () => {
    const uploads = [{ name: 'uploads', mount_path: '/var/uploads' }];
    const body = { volumes: uploads, replace: 'recreate' };
    const set = await createProject(api, { on_node_lost: 'move' });
    const refused = await api.call('patchProject', { ...of(set), body });
    expect(rulesOf(refused)).toEqual(['on_node_lost:single_writer']);
    expect(refused.text).toContain('while the project has volumes');
    const both = { ...body, on_node_lost: 'wait' };
    expect((await api.call('patchProject', { ...of(set), body: both })).status).toBe(200);

    const later = await createProject(api, { name: 'later', domain_prefix: 'later' });
    await api.call('patchProject', { ...of(later), body: { on_node_lost: 'move' } });
    expect(rulesOf(await api.call('patchProject', { ...of(later), body }))).toEqual([
      'on_node_lost:single_writer',
    ]);
    const other = await createProject(api, { name: 'other', domain_prefix: 'other' });
    const taken = await api.call('patchProject', { ...of(other), body });
    expect(taken.status, taken.text).toBe(200);
    const again = await api.call('patchProject', { ...of(other), body: { sticky: true } });
    expect(again.status, again.text).toBe(200);
  });
});

describe('a count', () => {
  it('is stored while nothing runs, while a deployment is in progress, and while it is stopped', async () => {
    const id = await createProject(api);
    const stored = await scale(id, { web: 2 });
    expect([stored.status, stored.json['processes']]).toEqual([200, [{ name: 'web', count: 2 }]]);
    expect(stored.headers['etag']).toBeTruthy();

    const deployment = await deploy(api, id);
    await tick(api, deployment);
    expect((await scale(id, { web: 3 })).status).toBe(200);
    expect(await instances(deployment)).toEqual([]);

    const other = await createProject(api, { name: 'other', domain_prefix: 'other' });
    expect((await api.call('stopProject', of(other))).status).toBe(202);
    expect((await scale(other, { web: 2 })).json).toMatchObject({
      stopped: true,
      processes: [{ name: 'web', count: 2 }],
    });
  });

  it('after the clock was set back, another project gets the port that an instance of a stopped one had', async () => {
    const shop = await createProject(api);
    const deployment = await world.live(shop);
    await api.call('cordonNode', of(addresses.get('node-3') ?? ''));
    await scale(shop, { web: 2 });
    await answers('node-2');
    expect(short(await instances(deployment))).toContain('2 serving node-2');
    await api.call('stopProject', of(shop));
    api.pass(-3_600_000);
    await register(api);
    for (const n of [1, 2, 3])
      await register(api, { hostname: `node-${n}`, role: 'deploy', ...CAN, ...ipOf(n) });
    await api.call('cordonNode', of(world.home));
    const blog = await createProject(api, { name: 'blog', domain_prefix: 'blog' });
    const next = await deploy(api, blog);
    await tick(api, next);
    await world.built();
    await tick(api, next);
    // The engine gives it the port of the instance that was stopped.
    const home = addresses.get('node-2') ?? '';
    for (const task of await tasksOf(home))
      await complete(task, { host_port: 33_000, container_id: 'blog' });
    await api.source.refresh();
    expect(api.source.current().collisions).toEqual([]);
    expect(await serviceOf('blog')).toEqual({
      loadBalancer: { servers: [{ url: 'http://10.0.1.2:33000' }] },
    });
  });

  it('takes effect at once, up and down, and the route follows', async () => {
    const id = await createProject(api);
    const deployment = await world.live(id);
    expect(short(await instances(deployment))).toEqual(['1 serving node-1']);
    expect((await scale(id, { web: 3 })).status).toBe(200);
    expect(short(await instances(deployment)).toSorted()).toEqual([
      '1 serving node-1',
      expect.stringMatching(/^2 starting node-[23]$/),
      expect.stringMatching(/^3 starting node-[23]$/),
    ]);
    expect((await api.call('getDeployment', of(deployment))).json['health']).toMatchObject({
      status: 'degraded',
      detail: '1 of 3 instances serve',
    });
    await answers('node-2');
    await answers('node-3');
    expect((await instances(deployment)).map(({ state }) => state)).toEqual([
      'serving',
      'serving',
      'serving',
    ]);
    expect((await api.call('getDeployment', of(deployment))).json['health']).toMatchObject({
      status: 'healthy',
    });
    await api.call('patchProject', { ...of(id), body: { sticky: true } });
    expect(await serviceOf('shop')).toMatchObject({
      loadBalancer: {
        sticky: { cookie: expect.objectContaining({ httpOnly: true, secure: true }) },
        servers: [{}, {}, {}],
      },
    });
    // The same count changes nothing.
    const before = await instances(deployment);
    expect((await scale(id, { web: 3 })).status).toBe(200);
    expect(await instances(deployment)).toEqual(before);

    expect((await scale(id, { web: 1 })).status).toBe(200);
    // The others answer their open requests before they end.
    expect(short(await instances(deployment)).toSorted()).toEqual([
      '1 serving node-1',
      expect.stringMatching(/^2 draining node-[23]$/),
      expect.stringMatching(/^3 draining node-[23]$/),
    ]);
    expect((await api.call('getDeployment', of(deployment))).json['health']).toMatchObject({
      status: 'healthy',
    });
  });

  it('that nodes cannot take is accepted: the rest waits and says why', async () => {
    const id = await createProject(api);
    const deployment = await world.live(id);
    for (const [hostname, node] of addresses)
      expect([hostname, (await api.call('cordonNode', of(node))).status]).toEqual([hostname, 200]);
    await register(api, { hostname: 'node-1', role: 'deploy', agent_version: '0.1.0' });
    expect((await scale(id, { web: 2 })).status).toBe(200);
    const [, second] = await instances(deployment);
    expect(second).toMatchObject({ number: 2, state: 'waiting', node_name: null });
    expect(second?.detail).toMatch(/node-1.*second instance|cordoned/);
    const { json } = await api.call('projectPlacement', of(id));
    const { items } = json as unknown as ProjectPlacement;
    expect(items[1]).toMatchObject({ number: 2, node_id: null, terms: [], note: second?.detail });
    expect(items[1]?.refusals.map(({ node_name }) => node_name).toSorted()).toEqual([
      'node-1',
      'node-2',
      'node-3',
    ]);
  });

  it('of a PATCH replaces the list, and takes effect at once', async () => {
    const id = await createProject(api);
    const deployment = await world.live(id);
    const body = { processes: [{ name: 'web', count: 2 }] };
    expect((await api.call('patchProject', { ...of(id), body })).status).toBe(200);
    expect(await instances(deployment)).toHaveLength(2);
    const bare = { processes: [{ name: 'web' }] };
    expect((await api.call('patchProject', { ...of(id), body: bare })).json['processes']).toEqual([
      { name: 'web', count: 1 },
    ]);
    expect(await instances(deployment)).toHaveLength(1);
    // These settings need no deployment.
    for (const change of [{ spread: 'pack' }, { sticky: true }, { on_node_lost: 'wait' }])
      await api.call('patchProject', { ...of(id), body: change });
    expect((await api.call('getDeployment', of(deployment))).json['health']).toMatchObject({
      status: 'healthy',
    });
  });
});

describe('a drain that is taken back', () => {
  it('ends the replacement at once, and the instance stays', async () => {
    const id = await createProject(api);
    const deployment = await world.live(id);
    await scale(id, { web: 2 });
    const [, second] = await instances(deployment);
    await answers(second?.node_name ?? '');
    const node = second?.node_id ?? '';
    expect((await api.call('drainNode', of(node))).status).toBe(202);
    await api.driver.advance(deployment, { type: 'node_drained', node_id: node });
    const states = (await instances(deployment)).map(({ state }) => state);
    expect(states.toSorted()).toEqual(['serving', 'serving', 'starting']);
    expect((await api.call('uncordonNode', of(node))).status).toBe(200);
    expect(short(await instances(deployment))).toEqual([
      '1 serving node-1',
      `2 serving ${second?.node_name}`,
    ]);
  });
});

describe('who sees instances', () => {
  it('the list has those of all projects that the caller sees, by project or by node', async () => {
    const shop = await createProject(api);
    await world.live(shop);
    await scale(shop, { web: 2 });
    const blog = await createProject(api, { name: 'blog', domain_prefix: 'blog' });
    await world.live(blog);
    const list = async (query: object = {}, as?: 'viewer'): Promise<InstanceItem[]> =>
      (await api.call('listInstances', { query: query as never, ...(as ? { as } : {}) })).json[
        'items'
      ] as InstanceItem[];
    const names = (rows: InstanceItem[]): string[] =>
      rows.map((row) => `${row.project} ${row.process} ${row.number}`);
    expect(names(await list())).toEqual(['blog web 1', 'shop web 1', 'shop web 2']);
    expect(names(await list({ project_id: shop }))).toEqual(['shop web 1', 'shop web 2']);
    expect(names(await list({ node_id: world.home }))).toEqual(['blog web 1', 'shop web 1']);
    const [second] = (await list({ project_id: shop })).slice(1);
    expect(names(await list({ node_id: second?.node_id }))).toEqual(['shop web 2']);
    const first = await api.call('listInstances', { query: { limit: 1 } });
    expect(names(first.json['items'] as InstanceItem[])).toEqual(['blog web 1']);
    expect(names(await list({ cursor: first.json['next_cursor'] }))).toEqual([
      'shop web 1',
      'shop web 2',
    ]);

    const admin = (await api.stores.users.findByEmail('admin@example.com'))?.id;
    await api.call('patchProject', {
      ...of(shop),
      as: 'admin',
      body: { members: [{ user_id: admin, role: 'developer' }] },
    });
    expect(names(await list({}, 'viewer'))).toEqual(['blog web 1']);
    expect((await api.call('projectPlacement', { ...of(shop), as: 'viewer' })).status).toBe(404);
  });

  it('a stopped project has none, and “why this node” has one row for each instance', async () => {
    const id = await createProject(api);
    expect((await api.call('projectPlacement', of(id))).json).toEqual({
      deployment_id: null,
      items: [],
    });
    const deployment = await world.live(id);
    await scale(id, { web: 2 });
    const { json } = await api.call('projectPlacement', of(id));
    expect(json).toMatchObject({
      deployment_id: deployment,
      items: [
        { process: 'web', number: 1, node_name: 'node-1', note: null },
        { process: 'web', number: 2, node_name: expect.stringMatching(/^node-[23]$/), note: null },
      ],
    });
    const [first, second] = await instances(deployment);
    expect(first?.placement?.winner).toBe(first?.node_id);
    expect(second?.placement?.winner).toBe(second?.node_id);
    await api.call('stopProject', of(id));
    expect(await instances(deployment)).toEqual([]);
  });
});
