/**
 * Idempotency-Key on requests that create a resource: the same key creates once and returns the
 * stored answer.
 */
import { ROUTES } from '@berth/wire/routes';
import type { Route } from '@berth/wire/route';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createRunOnce } from '../../src/api/idempotency.ts';
import type { AllStores } from '../../src/store/open.ts';
import { freshPath, open, rowsOf } from '../store/fixtures.ts';
import {
  type Api,
  createApi,
  createProject,
  deploy,
  type Input,
  PROJECT,
  type Reply,
  rulesOf,
  onceOnly,
} from './harness.ts';

let api: Api;
let project = '';
beforeAll(async () => {
  api = await createApi();
  project = await createProject(api);
});
afterAll(() => api.close());

let made = 0;
const body = (): Record<string, unknown> => {
  const name = `made-${made++}`;
  return { ...PROJECT, name, domain_prefix: name };
};
const expires_at = new Date(Date.now() + 3_600_000).toISOString();
const create = (key: string, given: unknown, more: Partial<Input> = {}) =>
  api.call('createProject', { body: given, headers: { 'idempotency-key': key }, ...more });
const replayed = (reply: Reply): unknown => reply.headers['idempotent-replayed'];

/** Route -> a request that creates something new. */
const CREATES: [string, () => Promise<Reply>, () => Promise<number>][] = [];
const count = async (
  route: 'listProjects' | 'listUsers' | 'listTokens' | 'listDeployments',
  as: 'admin' = 'admin',
): Promise<number> =>
  ((await api.call(route, { as, query: { limit: 200 } })).json['items'] as unknown[]).length;

beforeAll(() => {
  const headers = { 'idempotency-key': 'one key for all' };
  const given = body();
  CREATES.push(
    [
      'project',
      () => api.call('createProject', { body: given, headers }),
      () => count('listProjects'),
    ],
    [
      'user',
      () => api.call('createUser', { body: { email: 'new@example.com', role: 'viewer' }, headers }),
      () => count('listUsers'),
    ],
    [
      'token',
      () =>
        api.call('createToken', {
          as: 'admin',
          body: { name: 'ci', role: 'viewer', expires_at },
          headers,
        }),
      () => count('listTokens'),
    ],
    [
      'deployment',
      () => api.call('createDeployment', { params: { id: project }, headers }),
      () => count('listDeployments'),
    ],
  );
});

describe.each(['project', 'user', 'token', 'deployment'])('a %s', (kind) => {
  test('is created once by parallel duplicates, and all get the same answer', async () => {
    const [, request, amount] = CREATES.find(([name]) => name === kind) ?? [];
    if (request === undefined || amount === undefined) throw new Error(kind);
    const before = await amount();
    const all = await Promise.all(Array.from({ length: 10 }, request));
    expect(all.map((r) => r.status)).toEqual(Array(10).fill(201));
    expect(new Set(all.map((r) => r.text)).size).toBe(1);
    expect(new Set(all.map((r) => r.headers['location'])).size).toBe(1);
    expect(all.filter((r) => replayed(r) === 'true')).toHaveLength(9);
    expect(await amount()).toBe(before + 1);
  });
});

test('the stored answer with ETag and Location is returned, even if the resource has changed', async () => {
  const given = body();
  const first = await create('stored', given);
  expect(replayed(first)).toBeUndefined();
  await api.call('patchProject', {
    params: { id: String(first.json['id']) },
    body: { branch: 'changed' },
  });
  const again = await create('stored', given);
  expect([again.status, again.text, replayed(again)]).toEqual([201, first.text, 'true']);
  for (const header of ['etag', 'location'])
    expect(again.headers[header]).toBe(first.headers[header]);
});

test('equivalent bodies count as the same body', async () => {
  const given = body();
  await create('meaning', given);
  const otherOrder = Object.fromEntries(Object.entries(given).toReversed());
  expect(replayed(await create('meaning', { ...otherOrder, health_path: null }))).toBe('true');
});

test('another body gets 422 and creates nothing', async () => {
  await create('other', body());
  const before = await count('listProjects');
  const reply = await create('other', body());
  expect([reply.status, reply.json['code']]).toEqual([422, 'idempotency_mismatch']);
  expect(await count('listProjects')).toBe(before);
});

test('a key belongs to one user and one path', async () => {
  const one = await deploy(api, project);
  const as = (role: 'developer' | 'admin') =>
    api.call('createDeployment', {
      params: { id: project },
      as: role,
      headers: { 'idempotency-key': 'mine' },
    });
  const [first, second] = [await as('developer'), await as('admin')];
  expect(new Set([one, first.json['id'], second.json['id']]).size).toBe(3);
  expect((await create('mine', body(), { as: 'developer' })).status).toBe(201);
  // A path with the name of the project equals the path with its id.
  const byName = await api.call('createDeployment', {
    params: { id: 'shop' },
    as: 'developer',
    headers: { 'idempotency-key': 'mine' },
  });
  expect([byName.json['id'], replayed(byName)]).toEqual([first.json['id'], 'true']);
});

test('an error is not stored: the next request with the key runs', async () => {
  const given = body();
  const blocker = await createProject(api, {
    name: 'blocker',
    domain_prefix: String(given['domain_prefix']),
  });
  expect((await create('error', given)).status).toBe(409);
  await api.call('patchProject', { params: { id: blocker }, body: { domain_prefix: 'elsewhere' } });
  const reply = await create('error', given);
  expect([reply.status, replayed(reply)]).toEqual([201, undefined]);
});

test('an answer that version 0.1.0 stored is returned', async () => {
  const stored =
    '6agYUbviwzS2D931iJAO1j4tUSalce7_r6T3_O6K91Rb2isyB3wgzr_7qkBUMErMjcWlDKQYArloOww9ePfCRWmGFbWT' +
    'JyXZCR8x4pXfGFgtM9LLskjYi5IS';
  const begin: AllStores['idempotencyAnswers']['begin'] = () =>
    Promise.resolve({ kind: 'stored', answer: Buffer.from(stored, 'base64url') });
  const runOnce = createRunOnce({
    idempotencyAnswers: { ...(await open()).idempotencyAnswers, begin },
    secrets: () => ['another', 's'.repeat(32)],
    now: Date.now,
  });
  const request = { user: 'u1', key: 'k1', method: 'POST', path: '/api/tokens', body: {} };
  expect(await runOnce(request, () => Promise.reject(new Error('runs again')))).toEqual({
    text: '{"token":"t"}',
    headers: {},
    target: null,
    replayed: true,
  });
});

describe('a control plane that was killed during a request', () => {
  const answer = { text: '{}', headers: {}, target: null };
  const asked = (user: string) => ({ user, key: 'k', method: 'POST', path: '/p', body: {} });
  /** Starts two control planes with one database. */
  async function two() {
    const stores = await open();
    const { id } = await stores.users.create(
      { email: 'ann@example.com', role: 'developer', password_hash: null },
      0,
    );
    const plane = (
      idempotencyAnswers: AllStores['idempotencyAnswers'] = stores.idempotencyAnswers,
    ) => createRunOnce({ idempotencyAnswers, secrets: () => ['s'], now: Date.now });
    return { stores, user: id, plane };
  }

  test('delays the same request at another one for seconds, not for the whole claim', async () => {
    const { stores, user, plane } = await two();
    const { promise: claimed, resolve: hasClaim } = Promise.withResolvers<void>();
    // From now on it writes nothing, as after kill -9.
    const dead = { ...stores.idempotencyAnswers, renew: () => Promise.resolve() };
    void plane(dead)(asked(user), () => {
      hasClaim();
      return new Promise(() => {});
    });
    await claimed;
    // A claim lasts for a minute, which is longer than the time limit of a test.
    expect(await plane()(asked(user), () => Promise.resolve(answer))).toMatchObject({
      replayed: false,
    });
  });

  test('is distinguished from one whose request takes long', async () => {
    const { user, plane } = await two();
    const { promise: claimed, resolve: hasClaim } = Promise.withResolvers<void>();
    const { promise: done, resolve: end } = Promise.withResolvers<typeof answer>();
    const first = plane()(asked(user), () => {
      hasClaim();
      return done;
    });
    await claimed;
    let runs = 0;
    const second = plane()(asked(user), () => {
      runs++;
      return Promise.resolve(answer);
    });
    setTimeout(() => end(answer), 5_000);
    expect([await first, await second, runs]).toEqual([
      { ...answer, replayed: false },
      { ...answer, replayed: true },
      0,
    ]);
  });
});

onceOnly.each(['', 'x'.repeat(201), 'ä', 'a\tb'])('%j is not a valid key', async (key) => {
  expect(rulesOf(await create(key, body()))).toEqual(['Idempotency-Key:printable']);
});

test('every POST with which a person creates a resource takes a key', () => {
  const creating = Object.values(ROUTES).filter((row: Route) => row.status === 201);
  expect(
    creating.every(
      (row: Route) => row.method === 'POST' && !['public', 'agent', 'gateway'].includes(row.who),
    ),
  ).toBe(true);
});

test('the database contains no secret in clear text', async () => {
  const path = freshPath();
  const other = await createApi({ databaseUrl: `sqlite:${path}` });
  onTestFinished(() => other.close());
  const given = {
    as: 'developer',
    body: { name: 'x', role: 'viewer', expires_at },
    headers: { 'idempotency-key': 'secret' },
  } as const;
  const token = await other.call('createToken', given);
  expect((await other.call('createToken', given)).json['token']).toBe(token.json['token']);
  const [row] = await rowsOf(path, 'kept_answers');
  expect(row?.['answer']).toBeInstanceOf(Buffer);
  expect(String((row?.['answer'] as Buffer | undefined)?.toString('latin1'))).not.toMatch(
    /berthpat_|"id"/,
  );
  expect(JSON.stringify(row)).not.toContain('secret');
});
