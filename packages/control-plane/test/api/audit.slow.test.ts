/**
 * The audit log has every request that changes something, also refused ones, and never a secret.
 */
import { ROUTES, type RouteName } from '@berth/wire/routes';
import { ROLES } from '@berth/wire/vocabulary';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { whenAudited } from '../../src/api/audit.ts';
import { type Api, createApi, createProject, PASSWORD } from './harness.ts';

let api: Api;
beforeAll(async () => {
  api = await createApi();
});
afterAll(() => api.close());
/** Starts with an empty audit log, for tests that count its entries. */
async function restart(): Promise<void> {
  await api.close();
  api = await createApi();
}

type Line = Record<
  'user' | 'via' | 'action' | 'target' | 'address' | 'outcome' | 'code',
  string | null
> & { status: number; at: string };
async function lines(query: Record<string, string | number> = {}): Promise<Line[]> {
  const reply = await api.call('audit', { query });
  expect(reply.status, reply.text).toBe(200);
  return reply.json['items'] as Line[];
}
const names = Object.keys(ROUTES) as RouteName[];
const changing = names.filter(
  (n) => ROUTES[n].method !== 'GET' && (ROLES as readonly string[]).includes(ROUTES[n].who),
);

describe('entries by route', () => {
  test.each(changing)('%s is recorded with any outcome', async (name) => {
    await api.call(name, { params: { id: 'some-id' } });
    // The request ended the session.
    if (name === 'logout') await api.signIn('viewer');
    const [line] = await lines();
    expect(line).toMatchObject({
      user: `${ROUTES[name].who}@example.com`,
      via: 'session',
      action: name,
      address: '127.0.0.1',
    });
  });
  test.each(changing.filter((n) => ROUTES[n].who !== 'viewer'))(
    '%s is recorded when it is refused to a viewer',
    async (name) => {
      await api.call(name, { as: 'viewer', params: { id: 'some-id' } });
      expect((await lines())[0]).toMatchObject({
        user: 'viewer@example.com',
        action: name,
        target: ROUTES[name].path.includes(':id') ? 'some-id' : null,
        outcome: 'refused',
        status: 403,
        code: 'forbidden',
      });
    },
  );
  test.each(names.filter((n) => ROUTES[n].method === 'GET' && ROUTES[n].who === 'admin'))(
    '%s is recorded when it is refused, and not when it succeeds',
    async (name) => {
      await api.call(name, { as: 'viewer' });
      await api.call(name);
      const seen = (await lines({ action: name })).map((l) => [l.user, l.action, l.outcome]);
      expect(seen).toEqual([['viewer@example.com', name, 'refused']]);
    },
  );
});

describe('entries in detail', () => {
  beforeEach(restart);
  test('a new resource is named by its id, a new user by the e-mail address', async () => {
    const id = await createProject(api);
    await api.call('createUser', { body: { email: 'Eve@example.com', role: 'viewer' } });
    expect((await lines()).map((l) => [l.action, l.target, l.outcome, l.status])).toEqual([
      ['createUser', 'eve@example.com', 'done', 201],
      ['createProject', id, 'done', 201],
    ]);
  });
  test('successful and failed sign-ins are recorded by account; a request without an account is not recorded', async () => {
    await api.call('login', { body: { email: 'Admin@example.com', password: PASSWORD } });
    await api.call('login', { body: { email: 'nobody@example.com', password: 'x' } });
    for (let i = 0; i < 11; i++)
      await api.call('login', { body: { email: 'admin@example.com', password: 'x' } });
    await api.call('createProject', { as: null });
    await api.call('login', { body: {} });
    await api.call('exchange');
    await api.call('refresh', { body: { refresh_token: 'x' } });
    const all = await lines();
    expect(all).toHaveLength(13);
    expect(all[0]).toMatchObject({
      user: 'admin@example.com',
      action: 'login',
      outcome: 'refused',
      status: 429,
      code: 'too_many_attempts',
    });
    expect(all[11]).toMatchObject({
      user: 'nobody@example.com',
      action: 'login',
      outcome: 'refused',
      status: 401,
      code: 'wrong_credentials',
    });
    expect(all[12]).toMatchObject({
      user: 'admin@example.com',
      via: 'none',
      action: 'login',
      outcome: 'done',
      status: 200,
      code: null,
    });
  });
  test('a refresh token that was used before is recorded', async () => {
    const { json } = await api.call('login', {
      body: { email: 'admin@example.com', password: PASSWORD },
    });
    const again = () => api.call('refresh', { body: { refresh_token: json['refresh_token'] } });
    await again();
    await again();
    expect((await lines()).map((l) => [l.user, l.action, l.code])).toEqual([
      ['admin@example.com', 'refresh', 'refresh_token'],
      ['admin@example.com', 'login', null],
    ]);
  });
  test('sign-ins that the gateway reports are recorded', async () => {
    const seen = {
      email: 'Ann@example.com',
      provider: 'oidc',
      address: '203.0.113.9',
      user_agent: 'Mozilla',
    };
    await api.call('loginSeen', { body: { ...seen, outcome: 'signed_in', reason: null } });
    await api.call('loginSeen', {
      body: { ...seen, outcome: 'refused', reason: 'unverified_email' },
    });
    await api.call('loginSeen', {
      body: { ...seen, email: null, outcome: 'refused', reason: 'wrong_state' },
    });
    await api.call('loginSeen', { body: { ...seen, outcome: 'signed_out', reason: null } });
    expect(
      (await lines()).map((l) => [l.user, l.via, l.action, l.target, l.address, l.outcome, l.code]),
    ).toEqual([
      ['ann@example.com', 'gateway', 'signOut', 'oidc', '203.0.113.9', 'done', null],
      [null, 'gateway', 'signIn', 'oidc', '203.0.113.9', 'refused', 'wrong_state'],
      [
        'ann@example.com',
        'gateway',
        'signIn',
        'oidc',
        '203.0.113.9',
        'refused',
        'unverified_email',
      ],
      ['ann@example.com', 'gateway', 'signIn', 'oidc', '203.0.113.9', 'done', null],
    ]);
  });
  test('an approved device is recorded with person and address', async () => {
    const identity = { email: 'ann@example.com', name: null, avatar_url: null, provider: 'oidc' };
    const { json } = await api.call('createDeviceCode', {
      body: { address: '203.0.113.9', user_agent: 'curl' },
    });
    await api.call('decideDeviceCode', {
      body: { user_code: json['user_code'], address: '198.51.100.1', approve: true, identity },
    });
    expect(await lines()).toMatchObject([
      {
        user: 'ann@example.com',
        via: 'gateway',
        action: 'decideDeviceCode',
        target: 'approved',
        address: '198.51.100.1',
        outcome: 'done',
      },
    ]);
    expect(JSON.stringify(await lines())).not.toContain(String(json['user_code']));
  });
  test('an entry distinguishes a personal token from a session of its owner', async () => {
    const made = await api.call('createToken', {
      as: 'admin',
      body: { name: 'ci', role: 'admin', expires_at: new Date(Date.now() + 1e6).toISOString() },
    });
    await api.call('createProject', {
      as: null,
      headers: { authorization: `Bearer ${String(made.json['token'])}` },
      body: {},
    });
    expect((await lines()).map((l) => [l.action, l.via, l.target])).toEqual([
      ['createProject', 'api_token', null],
      ['createToken', 'session', made.json['id']],
    ]);
  });
});

describe('reading the audit log', () => {
  beforeAll(restart);
  test('it is filtered by user, action, outcome and time, in pages', async () => {
    await createProject(api);
    await api.call('createProject', { as: 'viewer', body: {} });
    await api.call('createProject', { as: 'developer', body: {} });
    const actions = async (query: Record<string, string | number>): Promise<unknown[]> =>
      (await lines(query)).map((l) => [l.user, l.outcome]);
    expect(await actions({ user: 'Viewer@example.com' })).toEqual([
      ['viewer@example.com', 'refused'],
    ]);
    expect(await actions({ action: 'createProject', outcome: 'done' })).toEqual([
      ['developer@example.com', 'done'],
    ]);
    expect(await actions({ action: 'deleteProject' })).toEqual([]);
    expect(await actions({ since: new Date(Date.now() + 60_000).toISOString() })).toEqual([]);
    expect(await actions({ until: new Date(Date.now() + 60_000).toISOString() })).toHaveLength(3);
    const first = await api.call('audit', { query: { limit: 2 } });
    const rest = await api.call('audit', {
      query: { limit: 2, cursor: String(first.json['next_cursor']) },
    });
    expect([
      (first.json['items'] as unknown[]).length,
      (rest.json['items'] as unknown[]).length,
      rest.json['next_cursor'],
    ]).toEqual([2, 1, null]);
  });
  test.each([{ outcome: 'maybe' }, { since: 'yesterday' }, { usr: 'a@b.c' }, { cursor: 'x' }])(
    'the filter %j gets 422',
    async (query) => {
      expect((await api.call('audit', { query })).status).toBe(422);
    },
  );
});

test('a failed write to the audit log does not undo the action', async () => {
  const broken = await createApi({
    stores: (real) => ({
      ...real,
      audit: { ...real.audit, append: () => Promise.reject(new Error('disk')) },
    }),
  });
  const id = await createProject(broken);
  expect((await broken.call('getProject', { params: { id } })).status).toBe(200);
  await broken.close();
});

test('only sign-ins are audited among routes without a role', () => {
  const audited = names.filter(
    (n) => !(ROLES as readonly string[]).includes(ROUTES[n].who) && whenAudited(n) !== 'never',
  );
  expect(audited.toSorted()).toEqual([
    'decideDeviceCode',
    'exchange',
    'login',
    'loginSeen',
    'refresh',
    'revokeDeviceTokenOf',
  ]);
});

test('the audit log, the policy and the metrics contain no secret', async () => {
  await restart();
  const secrets: string[] = [PASSWORD, 'a new and long one', 'canary-value'];
  const signed = await api.call('login', {
    body: { email: 'admin@example.com', password: PASSWORD },
  });
  const next = await api.call('refresh', { body: { refresh_token: signed.json['refresh_token'] } });
  const changed = await api.call('changePassword', {
    as: null,
    headers: { authorization: `Bearer ${String(next.json['token'])}` },
    body: { old_password: PASSWORD, new_password: 'a new and long one' },
  });
  for (const { json } of [signed, next, changed])
    secrets.push(String(json['token']), String(json['refresh_token']));
  await api.signIn('admin');
  const made = await api.call('createToken', {
    as: 'admin',
    body: { name: 'ci', role: 'admin', expires_at: new Date(Date.now() + 1e6).toISOString() },
  });
  secrets.push(String(made.json['token']));
  await createProject(api, { env: { KEY: 'canary-value' } });
  await api.call('login', { body: { email: 'admin@example.com', password: 'a new and long one' } });
  await api.call('refresh', { body: { refresh_token: signed.json['refresh_token'] } });
  const identity = { email: 'ann@example.com', name: null, avatar_url: null, provider: 'oidc' };
  const { json: code } = await api.call('createDeviceCode', {
    body: { address: '203.0.113.9', user_agent: 'curl' },
  });
  await api.call('decideDeviceCode', {
    body: { user_code: code['user_code'], address: '::1', approve: true, identity },
  });
  const polled = await api.call('pollDeviceCode', { body: { device_code: code['device_code'] } });
  secrets.push(
    String(code['device_code']),
    String(code['user_code']),
    String(polled.json['access_token']),
  );
  const [log, policy, metrics] = [
    await lines({ limit: 200 }),
    await api.call('gatewayPolicy'),
    await api.call('metrics'),
  ];
  expect(secrets.filter((s) => s.length < 6)).toEqual([]);
  for (const secret of secrets)
    expect(JSON.stringify(log) + policy.text + metrics.text).not.toContain(secret);
});
