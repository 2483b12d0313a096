/**
 * Optimistic locking: a request with a stale `If-Match` changes nothing, also when many requests
 * have it at once.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Api, createApi, createProject, register, type Reply } from './harness.ts';

let api: Api;
beforeAll(async () => {
  api = await createApi();
});
afterAll(() => api.close());

const tagOf = (reply: Reply): string => String(reply.headers['etag']);
const outcome = (reply: Reply): unknown[] => [reply.status, reply.json['code']];
const STALE = [412, 'changed_meanwhile'];
/** Number of answers by status. */
const counts = (replies: readonly Reply[]): Record<number, number> =>
  replies.reduce<Record<number, number>>(
    (all, { status }) => ({ ...all, [status]: (all[status] ?? 0) + 1 }),
    {},
  );

/** Reads as a person who may change the resource. A viewer sees less, and so gets another ETag. */
const read = (
  get: 'getProject' | 'getDataset' | 'getUser',
  params: { id: string },
): Promise<Reply> => api.call(get, { params, as: 'admin' });

let made = 0;
const project = (more: Record<string, unknown> = {}): Promise<string> => {
  const name = `p${made++}`;
  return createProject(api, { name, domain_prefix: name, ...more });
};
const dataset = async (): Promise<string> => {
  const name = `d${made++}`;
  return (await api.stores.datasets.create({ name, nfs_path: name }, Date.now())).id;
};
const user = async (): Promise<string> =>
  String(
    (await api.call('createUser', { body: { email: `u${made++}@example.com`, role: 'viewer' } }))
      .json['id'],
  );

describe.each([
  [
    'project',
    project,
    'getProject',
    'patchProject',
    'deleteProject',
    { branch: 'next' },
    { branch: 'other' },
  ],
  ['dataset', dataset, 'getDataset', 'patchDataset', 'deleteDataset', null, { name: 'again' }],
  ['user', user, 'getUser', 'patchUser', 'deleteUser', { role: 'developer' }, { role: 'admin' }],
] as const)('a %s', (_kind, make, get, patch, remove, given, second) => {
  // Names are unique, so each test has its own.
  let first: object = given ?? {};
  beforeEach(() => {
    if (given === null) first = { name: `renamed${made++}` };
  });

  test('has a strong ETag that changes with it, and a PATCH with a stale ETag gets 412', async () => {
    const params = { id: await make() };
    const before = tagOf(await read(get, params));
    expect(before).toMatch(/^"[^"]+"$/);
    const changed = await api.call(patch, { params, body: first, headers: { 'if-match': before } });
    expect(changed.status).toBe(200);
    expect(tagOf(changed)).not.toBe(before);
    expect(tagOf(await read(get, params))).toBe(tagOf(changed));
    expect(
      outcome(await api.call(patch, { params, body: second, headers: { 'if-match': before } })),
    ).toEqual(STALE);
    expect((await read(get, params)).json).toMatchObject(first);
  });

  test('If-Match matches any tag of a list, `*` always matches, weak tags never match', async () => {
    const params = { id: await make() };
    const tag = tagOf(await read(get, params));
    const header = (value: string) => ({ params, body: first, headers: { 'if-match': value } });
    for (const never of ['"other"', `W/${tag}`, `"a", W/${tag}`, tag.slice(1, -1), ''])
      expect(outcome(await api.call(patch, header(never))), never).toEqual(STALE);
    expect((await api.call(patch, header(`"a,b", ${tag}`))).status).toBe(200);
    expect((await api.call(patch, header('*'))).status).toBe(200);
    for (const any of ['*', tag])
      expect(
        (
          await api.call(patch, {
            params: { id: 'nobody' },
            body: first,
            headers: { 'if-match': any },
          })
        ).status,
      ).toBe(404);
  });

  test('DELETE with a stale ETag deletes nothing', async () => {
    const params = { id: await make() };
    const before = tagOf(await read(get, params));
    const now = tagOf(await api.call(patch, { params, body: first }));
    expect(outcome(await api.call(remove, { params, headers: { 'if-match': before } }))).toEqual(
      STALE,
    );
    expect((await read(get, params)).status).toBe(200);
    expect((await api.call(remove, { params, headers: { 'if-match': now } })).status).toBeLessThan(
      300,
    );
  });
});

test('of 20 parallel PATCH requests with one If-Match exactly one succeeds', async () => {
  for (const [make, get, patch, body] of [
    [project, 'getProject', 'patchProject', (i: number) => ({ branch: `b${i}` })],
    [dataset, 'getDataset', 'patchDataset', (i: number) => ({ name: `n${made}-${i}` })],
    [user, 'getUser', 'patchUser', () => ({ role: 'developer' })],
  ] as const) {
    const params = { id: await make() };
    const tag = tagOf(await read(get, params));
    const all = await Promise.all(
      Array.from({ length: 20 }, (_, i) =>
        api.call(patch, { params, body: body(i), headers: { 'if-match': tag } }),
      ),
    );
    expect(counts(all), patch).toEqual({ 200: 1, 412: 19 });
  }
});

test('only changes by people change an ETag, and not the platform', async () => {
  const params = { id: await project() };
  await register(api);
  const before = tagOf(await read('getProject', params));
  await api.call('createDeployment', { params });
  expect(tagOf(await read('getProject', params))).toBe(before);
});

test('the ETag of a viewer reveals nothing about the values of env', async () => {
  const params = { id: await project({ env: { A: '1' } }) };
  const seen = async (): Promise<string> =>
    tagOf(await api.call('getProject', { params, as: 'viewer' }));
  const before = await seen();
  await api.call('patchProject', { params, body: { env: { A: '2' } } });
  expect(await seen()).toBe(before);
});
