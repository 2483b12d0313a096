/**
 * Projects through the API: refused values with their rules, what PATCH keeps, what each role sees.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type Api,
  createApi,
  createProject,
  deploy,
  PROJECT,
  rulesOf,
  sha,
  tick,
} from './harness.ts';

let api: Api;
beforeAll(async () => {
  api = await createApi({
    env: {
      ALLOWED_GIT_HOSTS: 'git.example.com',
      RESERVED_PREFIXES: 'registry,Grafana,Git.Berth.localhost',
      AUTH_SERVICE_URL: 'http://127.0.0.1:9',
      CONTROL_PLANE_URL: 'http://internal.berth.localhost:8080',
    },
  });
});
afterAll(() => api.close());

const long = 'a'.repeat(64);
const dataset = { dataset_id: 'd1', mode: 'dependency' };

/** By field: invalid values and the `field:rule` that each one breaks. */
const refused: [string, unknown, string][] = [
  ['name', undefined, 'name:required'],
  ['name', null, 'name:type'],
  ['name', 7, 'name:type'],
  ['name', '', 'name:min_length'],
  ['name', long, 'name:max_length'],
  ['name', 'Shop', 'name:dns_label'],
  ['name', '-shop', 'name:dns_label'],
  ['name', 'shop-', 'name:dns_label'],
  ['name', 'a.b', 'name:dns_label'],
  ['name', 'a_b', 'name:dns_label'],
  ['name', 'shöp', 'name:dns_label'],
  ['name', 'shop\n', 'name:dns_label'],
  ['name', 'shop-http', 'name:reserved'],
  ['name', 'berth-marker-web', 'name:reserved'],
  ['domain_prefix', undefined, 'domain_prefix:required'],
  ['domain_prefix', 'a b', 'domain_prefix:dns_label'],
  ['domain_prefix', 'registry', 'domain_prefix:reserved'],
  ['domain_prefix', 'internal', 'domain_prefix:reserved'],
  // As the operator spells them: in upper case, and as a whole host.
  ['domain_prefix', 'grafana', 'domain_prefix:reserved'],
  ['domain_prefix', 'git', 'domain_prefix:reserved'],
  ['domain_prefix', 'xn--zzzzzz', 'domain_prefix:host'],
  // Always: the proxy's dashboard has this host.
  ['domain_prefix', 'traefik', 'domain_prefix:reserved'],
  ['git_url', undefined, 'git_url:required'],
  ['git_url', '', 'git_url:min_length'],
  ['git_url', 'x'.repeat(2001), 'git_url:max_length'],
  ['git_url', 'https://other.example/x', 'git_url:host_allowed'],
  ['git_url', 'https://u:p@git.example.com/x', 'git_url:no_password'],
  ['git_url', 'ext::x', 'git_url:scheme'],
  ['branch', '', 'branch:min_length'],
  ['branch', '-x', 'branch:no_leading_dash'],
  ['branch', 'a..b', 'branch:ref_dots'],
  ['branch', null, 'branch:type'],
  ['dockerfile_path', '../x', 'dockerfile_path:no_parent'],
  ['dockerfile_path', '/x', 'dockerfile_path:relative'],
  ['container_port', 0, 'container_port:minimum'],
  ['container_port', 65_536, 'container_port:maximum'],
  ['container_port', '8080', 'container_port:type'],
  ['container_port', 80.5, 'container_port:type'],
  ['auth_required', 'true', 'auth_required:type'],
  ['auth_required', 1, 'auth_required:type'],
  ['env', [], 'env:type'],
  ['env', { 'A-B': 'x' }, 'env.A-B:env_name'],
  ['env', { '1A': 'x' }, 'env.1A:env_name'],
  ['env', { '': 'x' }, 'env.:env_name'],
  ['env', { A: 1 }, 'env.A:type'],
  ['env', { A: 'x'.repeat(32_769) }, 'env.A:max_length'],
  ['env', { A: 'x\u0000y' }, 'env.A:no_nul'],
  ['env', { [long.repeat(4)]: 'x' }, `env.${'a'.repeat(40)}…:max_length`],
  [
    'env',
    Object.fromEntries(Array.from({ length: 201 }, (_, i) => [`A${i}`, ''])),
    'env:max_properties',
  ],
  ['datasets', {}, 'datasets:type'],
  ['datasets', [{}], 'datasets[0].dataset_id:required'],
  ['datasets', [{ ...dataset, mode: 'rw' }], 'datasets[0].mode:enum'],
  ['datasets', [{ ...dataset, x: 1 }], 'datasets[0].x:unknown_field'],
  ['datasets', [dataset], 'datasets[0].dataset_id:exists'],
  ['datasets', [{ ...dataset, mount_path: 'data' }], 'datasets[0].mount_path:absolute'],
  ['datasets', [{ ...dataset, mount_path: '/proc' }], 'datasets[0].mount_path:mountable'],
  ['datasets', [dataset, dataset], 'datasets[1].dataset_id:unique'],
  ['health_path', 'x', 'health_path:path'],
  ['health_path', '/a b', 'health_path:path'],
  ['health_path', '//evil', 'health_path:path_only'],
  ['health_path', 5, 'health_path:type'],
  ['memory_bytes', 100, 'memory_bytes:minimum'],
  ['memory_bytes', '1g', 'memory_bytes:type'],
  ['cpus', 0, 'cpus:minimum'],
  ['cpus', 'two', 'cpus:type'],
  ['drain_seconds', -1, 'drain_seconds:minimum'],
  ['start_seconds', 0, 'start_seconds:minimum'],
  ['start_seconds', 3601, 'start_seconds:maximum'],
  ['start_seconds', '75', 'start_seconds:type'],
  ['stop_grace_seconds', 3601, 'stop_grace_seconds:maximum'],
  ['replace', 'blue-green', 'replace:enum'],
  ['colour', 'red', 'colour:unknown_field'],
  ['id', 'mine', 'id:unknown_field'],
];

describe('refused with field and rule', () => {
  test.each(refused)('POST %s = %j: %s', async (field, value, rule) => {
    const reply = await api.call('createProject', { body: { ...PROJECT, [field]: value } });
    expect(reply.status, reply.text).toBe(422);
    expect(rulesOf(reply)).toContain(rule);
    expect(reply.json['detail']).toContain(rule.split(/[.[:]/, 1)[0]);
  });

  // A field that POST requires is optional in PATCH. `name` cannot be patched.
  const patchable = refused.filter(([field, value]) => value !== undefined && field !== 'name');
  test.each(patchable)('PATCH %s = %j: %s', async (field, value, rule) => {
    const id = await once('patched', () =>
      createProject(api, { name: 'patched', domain_prefix: 'patched' }),
    );
    const reply = await api.call('patchProject', { params: { id }, body: { [field]: value } });
    expect(reply.status, reply.text).toBe(422);
    expect(rulesOf(reply)).toContain(rule);
  });

  test('all problems are reported at once', async () => {
    const reply = await api.call('createProject', { body: { name: 'A', container_port: 0, x: 1 } });
    expect(rulesOf(reply).sort()).toEqual([
      'container_port:minimum',
      'domain_prefix:required',
      'git_url:required',
      'name:dns_label',
      'x:unknown_field',
    ]);
  });
  test('two writers of one dataset are refused in every way', async () => {
    const both = { replace: 'rolling', datasets: [{ dataset_id: 'd1', mode: 'readwrite' }] };
    expect(rulesOf(await api.call('createProject', { body: { ...PROJECT, ...both } }))).toContain(
      'replace:single_writer',
    );
  });
  test('a PATCH without fields, of the name, and of an unknown project is refused', async () => {
    const id = await createProject(api, { name: 'fixed', domain_prefix: 'fixed' });
    expect(rulesOf(await api.call('patchProject', { params: { id }, body: {} }))).toEqual([
      'body:min_properties',
    ]);
    expect(
      rulesOf(await api.call('patchProject', { params: { id }, body: { name: 'new' } })),
    ).toEqual(['name:unknown_field']);
    expect(
      (await api.call('patchProject', { params: { id: 'nobody' }, body: { branch: 'x' } })).status,
    ).toBe(404);
  });
});

const made = new Map<string, Promise<string>>();
function once(key: string, make: () => Promise<string>): Promise<string> {
  const there = made.get(key) ?? make();
  made.set(key, there);
  return there;
}

describe('accepted', () => {
  test('absent fields get defaults; the URL follows PUBLIC_URL', async () => {
    const reply = await api.call('createProject', {
      body: { ...PROJECT, name: 'plain', domain_prefix: 'plain' },
    });
    expect(reply.json).toMatchObject({
      branch: 'main',
      dockerfile_path: 'Dockerfile',
      container_port: 8080,
      auth_required: false,
      env: {},
      datasets: [],
      health_path: null,
      start_seconds: null,
      drain_seconds: 5,
      stop_grace_seconds: 10,
      replace: 'rolling',
      url: 'http://plain.berth.localhost:8000',
      running_deployment_id: null,
      deleting: false,
    });
  });
  test('a PATCH changes only the named fields and sets no defaults', async () => {
    const set = {
      branch: 'dev',
      container_port: 3000,
      env: { A: '1' },
      drain_seconds: 0,
      auth_required: true,
      health_path: '/up',
      start_seconds: 300,
      memory_bytes: 100_000_000,
      replace: 'recreate',
    };
    const id = await createProject(api, { name: 'kept', domain_prefix: 'kept', ...set });
    const reply = await api.call('patchProject', {
      params: { id },
      body: { dockerfile_path: 'x/Dockerfile' },
    });
    expect(reply.json).toMatchObject({ ...set, dockerfile_path: 'x/Dockerfile' });
    const cleared = await api.call('patchProject', {
      params: { id },
      body: { health_path: null, env: {} },
    });
    expect(cleared.json).toMatchObject({
      ...set,
      dockerfile_path: 'x/Dockerfile',
      health_path: null,
      env: {},
    });
  });
  test('name and prefix are unique', async () => {
    await createProject(api, { name: 'one', domain_prefix: 'first' });
    const name = await api.call('createProject', {
      body: { ...PROJECT, name: 'one', domain_prefix: 'second' },
    });
    expect([name.status, name.json['code']]).toEqual([409, 'name_taken']);
    const prefix = await api.call('createProject', {
      body: { ...PROJECT, name: 'two', domain_prefix: 'first' },
    });
    expect([prefix.status, prefix.json['code']]).toEqual([409, 'domain_prefix_taken']);
    const id = await createProject(api, { name: 'three', domain_prefix: 'third' });
    const patched = await api.call('patchProject', {
      params: { id },
      body: { domain_prefix: 'first' },
    });
    expect([patched.status, patched.json['code']]).toEqual([409, 'domain_prefix_taken']);
  });
  test('a viewer sees the names of env and not the values, in lists too', async () => {
    const id = await createProject(api, {
      name: 'secretive',
      domain_prefix: 'secretive',
      env: { TOKEN: 'hush' },
    });
    const viewer = await api.call('getProject', { params: { id }, as: 'viewer' });
    expect(viewer.json).toMatchObject({ env_names: ['TOKEN'], env_hidden: true });
    const developer = await api.call('getProject', { params: { id }, as: 'developer' });
    expect(developer.json).toMatchObject({ env: { TOKEN: 'hush' }, env_hidden: false });
    expect((await api.call('listProjects', { as: 'viewer' })).text).not.toContain('hush');
  });
});

test('lists have pages, and a wrong cursor or parameter gets 422', async () => {
  const seen: string[] = [];
  let cursor: string | null = null;
  do {
    const page = await api.call('listProjects', {
      query: { limit: 2, ...(cursor === null ? {} : { cursor }) },
    });
    const items = page.json['items'] as { name: string }[];
    expect(items.length).toBeLessThanOrEqual(2);
    seen.push(...items.map((p) => p.name));
    cursor = page.json['next_cursor'] as string | null;
  } while (cursor !== null);
  expect(seen).toEqual([...new Set(seen)].sort());
  expect(seen).toContain('kept');
  expect(rulesOf(await api.call('listProjects', { query: { limit: 0 } }))).toEqual([
    'limit:minimum',
  ]);
  expect(rulesOf(await api.call('listProjects', { query: { limit: 'many' } }))).toEqual([
    'limit:type',
  ]);
  expect(rulesOf(await api.call('listProjects', { query: { cursor: 'rubbish' } }))[0]).toMatch(
    /^cursor:/,
  );
  expect(rulesOf(await api.call('listProjects', { query: { stauts: 'x' } }))).toEqual([
    'stauts:unknown_field',
  ]);
  expect(
    rulesOf(await api.call('getProject', { params: { id: 'x' }, query: { full: 1 } })),
  ).toEqual(['full:unknown_field']);
});

test('DELETE gets 202: deployments end, new ones are refused, and the project is removed when nothing of it is left', async () => {
  const id = await createProject(api, { name: 'doomed', domain_prefix: 'doomed' });
  const deployment = await deploy(api, id, { commit: sha('x') });
  await tick(api, deployment);
  const reply = await api.call('deleteProject', { params: { id } });
  expect([reply.status, reply.json['deleting']]).toEqual([202, true]);
  expect((await api.call('deleteProject', { params: { id } })).status).toBe(202);
  expect((await api.call('getDeployment', { params: { id: deployment } })).json['status']).toBe(
    'cancelled',
  );
  const late = await api.call('createDeployment', { params: { id } });
  expect([late.status, late.json['code']]).toEqual([409, 'being_deleted']);
  const patch = await api.call('patchProject', { params: { id }, body: { branch: 'x' } });
  expect([patch.status, patch.json['code']]).toEqual([409, 'being_deleted']);
  expect(await api.stores.projects.removeIfGone(id)).toBe(true);
  expect((await api.call('getProject', { params: { id } })).status).toBe(404);
});
