/**
 * Environment variables by key: PATCH merges (RFC 7396), PUT and DELETE change one variable, and no
 * change is lost.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Api, createApi, projectsNamed, rulesOf, onceOnly } from './harness.ts';

let api: Api;
beforeAll(async () => {
  api = await createApi();
});
afterAll(() => api.close());

const project = projectsNamed('e', () => api);
const envOf = async (id: string): Promise<unknown> =>
  (await api.call('getProject', { params: { id }, as: 'developer' })).json['env'];

describe('PATCH', () => {
  test('changes the named keys, removes a key with null, and keeps the others', async () => {
    const id = await project({ A: '1', B: '2' });
    const reply = await api.call('patchProject', {
      params: { id },
      body: { env: { B: null, C: '3', D: null } },
    });
    expect(reply.json['env']).toEqual({ A: '1', C: '3' });
  });
  test('20 concurrent requests keep all 20 keys', async () => {
    const id = await project({ KEPT: 'x' });
    const all = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        api.call('patchProject', { params: { id }, body: { env: { [`K${i}`]: String(i) } } }),
      ),
    );
    expect(all.map((r) => r.status)).toEqual(Array(20).fill(200));
    expect(await envOf(id)).toEqual({
      KEPT: 'x',
      ...Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`K${i}`, String(i)])),
    });
  });
  test('is refused if the result would exceed a limit', async () => {
    const id = await project(
      Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`A${i}`, ''])),
    );
    const patch = (env: Record<string, string | null>) =>
      api.call('patchProject', { params: { id }, body: { env } });
    expect(rulesOf(await patch({ ONE_MORE: '' }))).toEqual(['env:max_properties']);
    expect((await patch({ ONE_MORE: '', A0: null })).status).toBe(200);
    const large = Object.fromEntries(
      Array.from({ length: 20 }, (_, i) => [`A${i + 1}`, 'x'.repeat(32_000)]),
    );
    expect((await patch(large)).status).toBe(200);
    const more = Object.fromEntries(
      Array.from({ length: 20 }, (_, i) => [`A${i + 21}`, 'x'.repeat(32_000)]),
    );
    expect(rulesOf(await patch(more))).toEqual(['env:max_bytes']);
  });
  test('null is not a value in a new project', async () => {
    const body = {
      name: 'nulls',
      domain_prefix: 'nulls',
      git_url: 'https://git.example.com/a.git',
      env: { A: null },
    };
    expect(rulesOf(await api.call('createProject', { body }))).toEqual(['env.A:type']);
  });
});

describe('one variable', () => {
  const put = (id: string, name: string, body: unknown, headers = {}) =>
    api.call('putEnv', { params: { id, name }, body, headers });

  test('is set by PUT and removed by DELETE; both return the project', async () => {
    const id = await project({ A: '1' });
    expect((await put(id, 'B', { value: '2' })).json['env']).toEqual({ A: '1', B: '2' });
    expect((await put(id, 'A', { value: '' })).json['env']).toEqual({ A: '', B: '2' });
    const gone = await api.call('deleteEnv', { params: { id, name: 'A' } });
    expect([gone.status, gone.json['env']]).toEqual([200, { B: '2' }]);
    const again = await api.call('deleteEnv', { params: { id, name: 'A' } });
    expect([again.status, again.json['code'], again.json['detail']]).toEqual([
      404,
      'not_found',
      expect.stringContaining('A'),
    ]);
  });
  onceOnly.each([
    ['A-B', { value: '' }, 'name:env_name'],
    ['1A', { value: '' }, 'name:env_name'],
    ['A'.repeat(201), { value: '' }, 'name:max_length'],
    ['A', {}, 'value:required'],
    ['A', { value: null }, 'value:type'],
    ['A', { value: 'x'.repeat(32_769) }, 'value:max_length'],
    ['A', { value: 'x\u0000' }, 'value:no_nul'],
    ['A', { value: '', x: 1 }, 'x:unknown_field'],
  ])('%s with %j is 422 %s', async (name, body, rule) => {
    const reply = await put(await project(), name, body);
    expect([reply.status, rulesOf(reply)]).toEqual([422, [rule]]);
  });
  test('takes If-Match with the ETag of the project', async () => {
    const id = await project({ A: '1' });
    const tag = String(
      (await api.call('getProject', { params: { id }, as: 'developer' })).headers['etag'],
    );
    const all = await Promise.all(
      Array.from({ length: 20 }, (_, i) => put(id, `K${i}`, { value: '' }, { 'if-match': tag })),
    );
    expect(all.filter((r) => r.status === 200)).toHaveLength(1);
    expect(all.filter((r) => r.json['code'] === 'changed_meanwhile')).toHaveLength(19);
    expect(
      (await api.call('deleteEnv', { params: { id, name: 'A' }, headers: { 'if-match': tag } }))
        .status,
    ).toBe(412);
  });
  test('cannot be changed by viewers', async () => {
    const id = await project();
    expect(
      (await api.call('putEnv', { params: { id, name: 'A' }, body: { value: '' }, as: 'viewer' }))
        .status,
    ).toBe(403);
  });
});

test('a viewer gets the names and not the values, in lists too', async () => {
  const id = await project({ B: 'hush', A: 'hush' });
  const one = await api.call('getProject', { params: { id }, as: 'viewer' });
  expect(one.json).toMatchObject({ env_names: ['A', 'B'], env_hidden: true });
  expect(one.json).not.toHaveProperty('env');
  const list = await api.call('listProjects', { as: 'viewer' });
  expect(list.text).not.toContain('hush');
  expect((list.json['items'] as object[]).filter((p) => 'env' in p)).toEqual([]);
  expect((await api.call('getProject', { params: { id }, as: 'developer' })).json).toMatchObject({
    env: { A: 'hush', B: 'hush' },
    env_names: ['A', 'B'],
  });
});
