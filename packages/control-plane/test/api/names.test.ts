/**
 * Names instead of ids in paths and filters, by one rule for every route. Unknown and ambiguous
 * names get an error.
 */
import { ROUTES } from '@berth/wire/routes';
import type { Route } from '@berth/wire/route';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type Api,
  createApi,
  createProject,
  deploy,
  PROJECT,
  register,
  type Reply,
  rulesOf,
  onceOnly,
} from './harness.ts';

let api: Api;
let [project, dataset, builder, worker]: string[] = [];
beforeAll(async () => {
  api = await createApi();
  project = await createProject(api);
  dataset = (
    await api.stores.datasets.create({ name: 'prices.2026', nfs_path: 'prices' }, Date.now())
  ).id;
  builder = await register(api, { hostname: 'both.example.com', role: 'builder' });
  worker = await register(api, { hostname: 'both.example.com', role: 'deploy' });
  await register(api, { hostname: 'alone.example.com', role: 'deploy' });
});
afterAll(() => api.close());

const outcome = (reply: Reply): unknown[] => [reply.status, reply.json['code']];
const namesOf = (reply: Reply, field: string): unknown[] =>
  (reply.json['items'] as Record<string, unknown>[]).map((item) => item[field]);

describe('a path accepts', () => {
  test('the name of a project, also for resources below it', async () => {
    expect((await api.call('getProject', { params: { id: 'shop' } })).json['id']).toBe(project);
    const made = await api.call('createDeployment', { params: { id: 'shop' } });
    expect([made.status, made.json['project_id']]).toEqual([201, project]);
    expect(
      (await api.call('putEnv', { params: { id: 'shop', name: 'A' }, body: { value: '1' } })).json[
        'id'
      ],
    ).toBe(project);
  });
  test('the name of a dataset', async () => {
    expect((await api.call('getDataset', { params: { id: 'prices.2026' } })).json['id']).toBe(
      dataset,
    );
    expect((await api.call('datasetVersions', { params: { id: 'prices.2026' } })).status).toBe(200);
  });
  test('the host name of a node if it is unique; `role:hostname` always', async () => {
    expect((await api.call('getNode', { params: { id: 'alone.example.com' } })).json['role']).toBe(
      'deploy',
    );
    expect((await api.call('getNode', { params: { id: 'deploy:alone.example.com' } })).status).toBe(
      200,
    );
    expect(
      (await api.call('getNode', { params: { id: 'builder:both.example.com' } })).json['id'],
    ).toBe(builder);
    expect(
      (await api.call('getNode', { params: { id: 'deploy:both.example.com' } })).json['id'],
    ).toBe(worker);
    expect(
      (await api.call('cordonNode', { params: { id: 'deploy:both.example.com' } })).json['id'],
    ).toBe(worker);
    const two = await api.call('getNode', { params: { id: 'both.example.com' } });
    expect(outcome(two)).toEqual([409, 'ambiguous']);
    for (const part of [builder, worker, 'builder:both.example.com', 'deploy:both.example.com'])
      expect(two.json['detail']).toContain(part);
  });
  test('an id before a name; no project or dataset can have a name that is an id', async () => {
    const named = await api.call('createProject', {
      body: { ...PROJECT, name: project, domain_prefix: 'other' },
    });
    expect(outcome(named)).toEqual([409, 'name_taken']);
    const renamed = await api.call('patchDataset', {
      params: { id: 'prices.2026' },
      body: { name: dataset },
    });
    expect(outcome(renamed)).toEqual([409, 'dataset_name_taken']);
    // Agents choose their own names.
    await register(api, { hostname: builder, role: 'deploy' });
    expect((await api.call('getNode', { params: { id: builder ?? '' } })).json['hostname']).toBe(
      'both.example.com',
    );
  });
  test('nothing else, and the error names the missing resource', async () => {
    for (const [route, kind] of [
      ['getProject', 'project'],
      ['getDataset', 'dataset'],
      ['getNode', 'node'],
      ['getDeployment', 'deployment'],
    ] as const) {
      const reply = await api.call(route, { params: { id: 'no-such' } });
      expect(outcome(reply)).toEqual([404, 'not_found']);
      expect(reply.json['detail']).toMatch(new RegExp(`${kind}.*no-such`));
    }
    for (const id of ['builder:alone.example.com', 'deploy:', 'Shop', '%', 'a/b'])
      expect((await api.call('getNode', { params: { id } })).status, id).toBe(404);
  });
});

test('the audit log has the id even if the request had a name', async () => {
  await api.call('patchProject', { params: { id: 'shop' }, body: { branch: 'x' } });
  const lines = await api.call('audit', {
    query: { action: 'patchProject', target: project ?? '' },
  });
  expect(namesOf(lines, 'target')).toEqual([project]);
});

describe('filters', () => {
  test('by project accept its name, and an unknown project is an error', async () => {
    await createProject(api, { name: 'empty', domain_prefix: 'empty' });
    const id = await deploy(api, project ?? '');
    expect(
      namesOf(await api.call('listDeployments', { query: { project_id: 'shop' } }), 'id'),
    ).toContain(id);
    expect(
      namesOf(await api.call('listDeployments', { query: { project_id: 'empty' } }), 'id'),
    ).toEqual([]);
    expect((await api.call('placement', { query: { project_id: 'shop' } })).status).toBe(200);
    for (const route of ['listDeployments', 'placement'] as const) {
      const reply = await api.call(route, { query: { project_id: 'nobody' } });
      expect([reply.status, rulesOf(reply)], route).toEqual([422, ['project_id:exists']]);
    }
    expect(
      rulesOf(await api.call('listTokens', { as: 'admin', query: { user_id: 'nobody' } })),
    ).toEqual(['user_id:exists']);
  });
  test('by name find the resource with this name', async () => {
    expect(namesOf(await api.call('listProjects', { query: { name: 'shop' } }), 'name')).toEqual([
      'shop',
    ]);
    expect(namesOf(await api.call('listProjects', { query: { name: 'nobody' } }), 'name')).toEqual(
      [],
    );
    const { json } = await api.call('getProject', { params: { id: 'shop' } });
    expect(
      namesOf(
        await api.call('listProjects', { query: { ids: `unknown,${String(json['id'])}` } }),
        'name',
      ),
    ).toEqual(['shop']);
    for (const ids of ['', 'a,,b', 'a b', Array.from({ length: 101 }, (_, i) => `p${i}`).join()])
      expect((await api.call('listProjects', { query: { ids } })).status, ids).toBe(422);
    expect(
      namesOf(await api.call('listDatasets', { query: { name: 'prices.2026' } }), 'id'),
    ).toEqual([dataset]);
    const both = namesOf(
      await api.call('listNodes', { query: { name: 'both.example.com' } }),
      'id',
    );
    expect(new Set(both)).toEqual(new Set([builder, worker]));
    expect(
      namesOf(await api.call('listNodes', { query: { name: 'both.example.com', limit: 1 } }), 'id'),
    ).toHaveLength(1);
  });
  test('the deployments of one project have their own list', async () => {
    const own = await api.call('projectDeployments', {
      params: { id: 'shop' },
      query: { limit: 1 },
    });
    const all = await api.call('listDeployments', { query: { project_id: 'shop', limit: 1 } });
    expect(own.json).toEqual(all.json);
    expect((await api.call('projectDeployments', { params: { id: 'nobody' } })).status).toBe(404);
    const none = await api.call('projectDeployments', {
      params: { id: 'shop' },
      query: { status: 'failed' },
    });
    expect(none.json['items']).toEqual([]);
  });
});

describe('a taken name or prefix', () => {
  test('is reported together with all other taken fields', async () => {
    const both = await api.call('createProject', { body: PROJECT });
    expect([...outcome(both), rulesOf(both)]).toEqual([
      409,
      'name_taken',
      ['name:taken', 'domain_prefix:taken'],
    ]);
    const name = await api.call('createProject', { body: { ...PROJECT, domain_prefix: 'free' } });
    expect([...outcome(name), rulesOf(name)]).toEqual([409, 'name_taken', ['name:taken']]);
    const prefix = await api.call('createProject', { body: { ...PROJECT, name: 'free' } });
    expect([...outcome(prefix), rulesOf(prefix)]).toEqual([
      409,
      'domain_prefix_taken',
      ['domain_prefix:taken'],
    ]);
    const patched = await api.call('patchProject', {
      params: { id: 'empty' },
      body: { domain_prefix: 'shop' },
    });
    expect([...outcome(patched), rulesOf(patched)]).toEqual([
      409,
      'domain_prefix_taken',
      ['domain_prefix:taken'],
    ]);
  });
  test('is a conflict, also for an e-mail address', async () => {
    const reply = await api.call('createUser', {
      body: { email: 'VIEWER@example.com', role: 'viewer' },
    });
    expect([...outcome(reply), rulesOf(reply)]).toEqual([409, 'email_taken', ['email:taken']]);
  });
  test('is a conflict for all but one of several concurrent requests', async () => {
    const all = await Promise.all(
      Array.from({ length: 8 }, () =>
        api.call('createProject', { body: { ...PROJECT, name: 'race', domain_prefix: 'race' } }),
      ),
    );
    expect(all.filter((r) => r.status === 201)).toHaveLength(1);
    for (const reply of all.filter((r) => r.status !== 201))
      expect([...outcome(reply), rulesOf(reply)]).toEqual([
        409,
        'name_taken',
        ['name:taken', 'domain_prefix:taken'],
      ]);
  });
});

describe('Location', () => {
  test('names the resource itself', async () => {
    const at = (reply: Reply): unknown => reply.headers['location'];
    const made = await api.call('createProject', {
      body: { ...PROJECT, name: 'placed', domain_prefix: 'placed' },
    });
    expect(at(made)).toBe(`/api/projects/${String(made.json['id'])}`);
    const deployment = await api.call('createDeployment', { params: { id: 'placed' } });
    expect(at(deployment)).toBe(`/api/deployments/${String(deployment.json['id'])}`);
    const user = await api.call('createUser', {
      body: { email: 'placed@example.com', role: 'viewer' },
    });
    expect(at(user)).toBe(`/api/users/${String(user.json['id'])}`);
    const expires_at = new Date(Date.now() + 60_000).toISOString();
    const token = await api.call('createToken', {
      body: { name: 'x', role: 'viewer', expires_at },
    });
    expect(at(token)).toBe(`/api/tokens/${String(token.json['id'])}`);
    expect(at(await api.call('deleteProject', { params: { id: 'placed' } }))).toBe(
      `/api/projects/${String(made.json['id'])}`,
    );
    expect(at(await api.call('drainNode', { params: { id: 'alone.example.com' } }))).toMatch(
      /^\/api\/nodes\/[0-9a-f]+$/,
    );
    expect(at(await api.call('agentRescan', { params: { id: dataset ?? '' } }))).toBe(
      `/api/agent/datasets/${dataset}`,
    );
    expect(at(await api.call('getProject', { params: { id: 'shop' } }))).toBeUndefined();
  });
  test('has the path of an existing route', () => {
    const paths = new Set(Object.values(ROUTES).map((row: Route) => row.path));
    const made = Object.values(ROUTES).filter(
      (row: Route) => row.status === 201 || row.status === 202,
    );
    for (const row of made as Route[]) {
      const end = row.path.indexOf('/:id');
      const at = row.location ?? (end < 0 ? `${row.path}/:id` : row.path.slice(0, end + 4));
      expect(paths, `${row.method} ${row.path}`).toContain(at);
    }
  });
});

describe('a POST without a body', () => {
  const sent = (raw: string, type = 'application/json') =>
    api.call('uncordonNode', {
      params: { id: 'alone.example.com' },
      raw,
      headers: { 'content-type': type },
    });
  onceOnly.each(['', '{}', ' { } '])('accepts %j', async (raw) => {
    expect((await sent(raw)).status).toBe(200);
  });
  onceOnly.each([
    ['{"why":"x"}', ['why:unknown_field']],
    ['[]', ['body:type']],
    ['null', ['body:type']],
    ['7', ['body:type']],
  ])('refuses %s', async (raw, rules) => {
    const reply = await sent(raw);
    expect([reply.status, rulesOf(reply)]).toEqual([422, rules]);
  });
  test('of an agent may have unknown fields, like every request of an agent', async () => {
    const reply = await api.call('agentStart', { params: { id: 'nobody' }, body: { more: 1 } });
    expect(reply.status).toBe(404);
  });
});
