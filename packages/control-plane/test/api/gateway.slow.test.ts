/**
 * Routes of gateways: the policy and its delay, one-time codes, the device flow and attempts to
 * guess its codes.
 */
import { createHash } from 'node:crypto';
import { Policy } from '@berth/wire/gateway';
import { Ajv } from 'ajv';
import formats from 'ajv-formats';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Api, createApi, createProject, deploy } from './harness.ts';

let api: Api;
beforeEach(async () => {
  api = await createApi();
  return () => api.close();
});

const isPolicy = formats.default(new Ajv({ strict: true })).compile(Policy);
type Read = {
  projects: {
    id: string;
    name: string;
    hosts: string[];
    auth_required: boolean;
    auth_epoch: number;
  }[];
  disabled_users: string[];
  revoked_sessions: { id: string }[];
  device_tokens: { id: string; hash: string; identity: { email: string } }[];
};
async function policy(headers: Record<string, string> = {}, query: Record<string, number> = {}) {
  const reply = await api.call('gatewayPolicy', { headers, query });
  if (reply.status === 200) expect(isPolicy(reply.json) ? [] : isPolicy.errors).toEqual([]);
  return {
    status: reply.status,
    etag: String(reply.headers['etag']),
    policy: reply.json as unknown as Read,
  };
}
const ANN = { email: 'ann@example.com', name: 'Ann', avatar_url: null, provider: 'oidc' };
const asker = { address: '203.0.113.9', user_agent: 'curl/8' };
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

async function deviceToken(identity = ANN): Promise<string> {
  const { json } = await api.call('createDeviceCode', { body: asker });
  const decided = await api.call('decideDeviceCode', {
    body: { user_code: json['user_code'], address: '198.51.100.1', approve: true, identity },
  });
  expect(decided.status).toBe(204);
  const polled = await api.call('pollDeviceCode', { body: { device_code: json['device_code'] } });
  expect(polled.json).toMatchObject({ result: 'issued', expires_in: 7_776_000 });
  return polled.json['access_token'] as string;
}
const userId = async (email: string): Promise<string> =>
  (await api.stores.users.findByEmail(email))?.id ?? '';

describe('the policy', () => {
  test('has every project with its hosts; it gets 304 without a change and another ETag after one', async () => {
    const empty = await policy();
    expect(empty.policy).toEqual({
      projects: [],
      disabled_users: [],
      revoked_sessions: [],
      device_tokens: [],
      deleted_users: [],
    });
    expect((await policy({ 'if-none-match': empty.etag })).status).toBe(304);
    const id = await createProject(api, { domain_prefix: 'store' });
    const one = await policy({ 'if-none-match': empty.etag });
    expect(one.policy.projects).toMatchObject([
      { id, name: 'shop', hosts: ['store.berth.localhost'] },
    ]);
    await deploy(api, id);
    expect((await policy({ 'if-none-match': one.etag })).status).toBe(304);
    // An open deployment will be published under the prefix of its request.
    await api.call('patchProject', { params: { id }, body: { domain_prefix: 'market' } });
    expect((await policy()).policy.projects).toMatchObject([
      { id, name: 'shop', hosts: ['market.berth.localhost', 'store.berth.localhost'] },
    ]);
  });

  const changes: [string, () => Promise<unknown>, (read: Read) => void][] = [
    ['a new project', () => createProject(api), (p) => expect(p.projects).toHaveLength(1)],
    [
      'a revoked session',
      () =>
        api.call('revokeSession', {
          body: {
            id: 'sess',
            email: 'a@b.c',
            expires_at: new Date(Date.now() + 60_000).toISOString(),
          },
        }),
      (p) => expect(p.revoked_sessions.map((s) => s.id)).toEqual(['sess']),
    ],
    [
      'a disabled user',
      async () =>
        api.call('patchUser', {
          params: { id: await userId('viewer@example.com') },
          body: { disabled: true },
        }),
      (p) => expect(p.disabled_users).toEqual(['viewer@example.com']),
    ],
    [
      'a device token',
      () => deviceToken(),
      (p) => expect(p.device_tokens.map((t) => t.identity.email)).toEqual(['ann@example.com']),
    ],
  ];
  test.each(changes)('a held request is answered at once after %s', async (_, change, check) => {
    const { etag } = await policy();
    const held = policy({ 'if-none-match': etag }, { wait: 30 });
    await change();
    const next = await held;
    expect(next.status).toBe(200);
    check(next.policy);
  });

  test('a project that requires a login again gets a new epoch, which invalidates earlier cookies', async () => {
    await api.close();
    api = await createApi({ env: { AUTH_SERVICE_URL: 'http://127.0.0.1:4180' } });
    const id = await createProject(api, { auth_required: true });
    const patch = (auth_required: boolean) =>
      api.call('patchProject', { params: { id }, body: { auth_required } });
    const epoch = async (): Promise<unknown> => (await policy()).policy.projects[0]?.auth_epoch;
    expect(await epoch()).toBe(0);
    await patch(true);
    expect(await epoch()).toBe(0);
    await patch(false);
    await expect.poll(epoch).toBe(0);
    await patch(true);
    await expect.poll(epoch).toBe(1);
    await patch(false);
    await patch(true);
    await expect.poll(epoch).toBe(2);
  });

  test('a held request without a change gets 304 after the wait time, and at once on shutdown', async () => {
    const { etag } = await policy();
    expect((await policy({ 'if-none-match': etag }, { wait: 0.05 })).status).toBe(304);
    const held = policy({ 'if-none-match': etag }, { wait: 60 });
    await expect
      .poll(async () => (await api.call('metrics')).text)
      .toContain('berth_http_requests_held{kind="policy"} 1');
    await api.server.close();
    expect((await held).status).toBe(304);
  });

  test('a policy that cannot be read gets 503, and never an empty answer', async () => {
    let broken = true;
    const other = await createApi({
      stores: (real) => ({
        ...real,
        policy: {
          ...real.policy,
          read: (now) => (broken ? Promise.reject(new Error('disk')) : real.policy.read(now)),
        },
      }),
    });
    const reply = await other.call('gatewayPolicy');
    expect([reply.status, reply.json['code'], reply.headers['retry-after']]).toEqual([
      503,
      'policy_unknown',
      '2',
    ]);
    broken = false;
    expect((await other.call('gatewayPolicy')).status).toBe(200);
    broken = true;
    await createProject(other);
    await expect.poll(async () => (await other.call('gatewayPolicy')).status).toBe(503);
    await other.close();
  });

  test('expired entries leave the policy in time', async () => {
    const expires_at = new Date(Date.now() + 60_000).toISOString();
    await api.call('revokeSession', { body: { id: 'sess', email: 'a@b.c', expires_at } });
    expect((await policy()).policy.revoked_sessions).toHaveLength(1);
    api.pass(61_000);
    await createProject(api);
    await expect.poll(async () => (await policy()).policy.revoked_sessions).toEqual([]);
  });
});

test('the policy of 10,000 projects is created quickly and then cached', async () => {
  const many = Array.from({ length: 10_000 }, (_, i) => ({
    id: `p${i}`,
    name: `p${i}`,
    prefixes: [`p${i}`],
    auth_required: false,
    auth_epoch: 0,
  }));
  let reads = 0;
  const big = await createApi({
    stores: (real) => ({
      ...real,
      policy: {
        ...real.policy,
        read: async (now) => ({
          ...(await real.policy.read(now)),
          ...(reads++, { projects: many }),
        }),
      },
    }),
  });
  const first = await big.call('gatewayPolicy');
  expect((first.json['projects'] as unknown[]).length).toBe(10_000);
  for (let i = 0; i < 20; i++)
    await big.call('gatewayPolicy', {
      headers: { 'if-none-match': String(first.headers['etag']) },
    });
  expect(reads).toBe(1);
  await big.close();
});

describe('one-time codes', () => {
  test('are redeemed once', async () => {
    const body = { id: 'code-1', expires_at: new Date(Date.now() + 60_000).toISOString() };
    const replies = await Promise.all([1, 2, 3].map(() => api.call('redeemCode', { body })));
    expect(replies.filter((r) => r.status === 204)).toHaveLength(1);
    expect(replies.filter((r) => r.status === 409)).toHaveLength(2);
    expect(replies.find((r) => r.status === 409)?.json['code']).toBe('code_used');
  });
});

describe('the device flow', () => {
  test('code, lookup, approval, token; the policy has the hash of the token and never the token', async () => {
    const { json: code } = await api.call('createDeviceCode', { body: asker });
    expect(code).toMatchObject({ expires_in: 600, interval: 5 });
    expect(code['user_code']).toMatch(/^[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}$/);
    const typed = ` ${String(code['user_code']).toLowerCase().replace('-', ' – ')} `;
    const seen = await api.call('lookupDeviceCode', {
      body: { user_code: typed, address: '198.51.100.1' },
    });
    expect(seen.json).toMatchObject({ user_code: code['user_code'], ...asker });
    const poll = () => api.call('pollDeviceCode', { body: { device_code: code['device_code'] } });
    expect((await poll()).json).toEqual({
      result: 'authorization_pending',
      access_token: null,
      expires_in: 0,
    });
    expect((await poll()).json['result']).toBe('slow_down');
    await api.call('decideDeviceCode', {
      body: { user_code: typed, address: '198.51.100.1', approve: true, identity: ANN },
    });
    const { json } = await poll();
    expect(json['access_token']).toMatch(/^berth_[\w-]{43}$/);
    expect((await poll()).json['result']).toBe('invalid_grant');
    const read = await policy();
    expect(read.policy.device_tokens).toMatchObject([
      { hash: sha256(String(json['access_token'])), identity: ANN },
    ]);
    expect(JSON.stringify(read)).not.toContain(String(json['access_token']));
  });

  test('a denied device gets no token', async () => {
    const { json: code } = await api.call('createDeviceCode', { body: asker });
    await api.call('decideDeviceCode', {
      body: { user_code: code['user_code'], address: '::1', approve: false, identity: ANN },
    });
    expect(
      (await api.call('pollDeviceCode', { body: { device_code: code['device_code'] } })).json[
        'result'
      ],
    ).toBe('access_denied');
  });

  test('tokens are listed with their last use, and only their owner revokes them', async () => {
    const token = await deviceToken();
    const { device_tokens } = (await policy()).policy;
    const id = device_tokens[0]?.id;
    const at = new Date(Date.now() - 1_000).toISOString();
    await api.call('deviceTokensUsed', {
      body: {
        items: [
          { id, at },
          { id: 'gone', at },
        ],
      },
    });
    const mine = await api.call('deviceTokensOf', { body: { email: 'ANN@example.com' } });
    expect(mine.json['items']).toMatchObject([
      { id, email: 'ann@example.com', provider: 'oidc', last_used_at: at, ...asker },
    ]);
    expect(mine.text).not.toContain(token);
    expect(
      (await api.call('revokeDeviceTokenOf', { body: { id, email: 'bob@example.com' } })).status,
    ).toBe(404);
    expect((await api.call('revokeDeviceTokenOf', { body: { id, email: ANN.email } })).status).toBe(
      204,
    );
    await expect.poll(async () => (await policy()).policy.device_tokens).toEqual([]);
  });

  test('a last use in the future is stored as now', async () => {
    await deviceToken();
    const id = (await policy()).policy.device_tokens[0]?.id;
    await api.call('deviceTokensUsed', { body: { items: [{ id, at: '2099-01-01T00:00:00Z' }] } });
    const mine = await api.call('deviceTokensOf', { body: { email: ANN.email } });
    expect(
      Date.parse((mine.json['items'] as { last_used_at: string }[])[0]?.last_used_at ?? ''),
    ).toBeLessThanOrEqual(Date.now());
  });
});

describe('guessing user codes', () => {
  const guess = (address: string, user_code = 'BBBB-BBBB') =>
    api.call('lookupDeviceCode', { body: { user_code, address } });

  test('an address has 10 attempts per minute, then gets 429 with Retry-After; other addresses are not limited', async () => {
    const { json: code } = await api.call('createDeviceCode', { body: asker });
    for (let i = 0; i < 10; i++) expect((await guess('198.51.100.1')).status).toBe(404);
    const blocked = await guess('198.51.100.1', String(code['user_code']));
    expect([blocked.status, blocked.json['code']]).toEqual([429, 'too_many_attempts']);
    expect(Number(blocked.headers['retry-after'])).toBeGreaterThan(50);
    expect(blocked.json['retry_after']).toBe(Number(blocked.headers['retry-after']));
    const decided = await api.call('decideDeviceCode', {
      body: { user_code: code['user_code'], address: '198.51.100.1', approve: true, identity: ANN },
    });
    expect(decided.status).toBe(429);
    expect((await guess('198.51.100.2', String(code['user_code']))).status).toBe(200);
    api.pass(61_000);
    expect((await guess('198.51.100.1', String(code['user_code']))).status).toBe(200);
  });
  test('malformed codes count too, and a correct code does not reset the count', async () => {
    const { json: code } = await api.call('createDeviceCode', { body: asker });
    const wrong = [
      '',
      'AAAA-AAAA',
      'x',
      'BBBB-BBB',
      'BBBB-BBBBB',
      '\u{1F600}'.repeat(8),
      '%00',
      'BBBB_BBBB',
      'BBBB-BBB1',
      'ßßßß-ßßßß',
    ];
    for (const text of wrong) {
      expect((await guess('198.51.100.1', String(code['user_code']))).status).toBe(200);
      expect((await guess('198.51.100.1', text)).status).toBe(404);
    }
    expect((await guess('198.51.100.1', String(code['user_code']))).status).toBe(429);
  });
  test('all addresses of one IPv6 network count as one', async () => {
    const from = (i: number): string => `2001:db8:1:2:${i.toString(16)}::1`;
    for (let i = 0; i < 10; i++) expect((await guess(from(i))).status).toBe(404);
    expect((await guess(from(99))).status).toBe(429);
    expect((await guess('2001:db8:1:3::1')).status).toBe(404);
  });
  test('requests for device codes are limited by address too', async () => {
    const replies = await Promise.all(
      Array.from({ length: 40 }, () => api.call('createDeviceCode', { body: asker })),
    );
    expect(replies.filter((r) => r.status === 200)).toHaveLength(30);
    expect(replies.filter((r) => r.status === 429)).toHaveLength(10);
    expect(
      (await api.call('createDeviceCode', { body: { ...asker, address: '203.0.113.10' } })).status,
    ).toBe(200);
  });
});

describe('two control planes', () => {
  let other: Api;
  beforeAll(async () => {
    other = await createApi();
  });
  afterAll(() => other.close());
  test('a change by another control plane is found without a notification', async () => {
    const before = await other.call('gatewayPolicy');
    // Write like another process, without a notification here.
    await other.stores.revokedSessions.revoke(
      { id: 'sess', email: 'a@b.c', expires_at: Date.now() + 60_000 },
      Date.now(),
    );
    expect(
      (
        await other.call('gatewayPolicy', {
          headers: { 'if-none-match': String(before.headers['etag']) },
        })
      ).status,
    ).toBe(304);
    const held = other.call('gatewayPolicy', {
      headers: { 'if-none-match': String(before.headers['etag']) },
      query: { wait: 30 },
    });
    await other.policy.refreshIfChanged();
    expect((await held).json['revoked_sessions']).toMatchObject([{ id: 'sess' }]);
  });
  test('a user disabled and another one enabled between two reads are both noticed', async () => {
    const { users } = other.stores;
    const made = ['one@b.c', 'two@b.c', 'zed@b.c'].map((email) =>
      users.create({ email, role: 'viewer', password_hash: null }, Date.now()),
    );
    // In the order of their ids, so that the greatest id stays the same.
    const [first = '', middle = '', last = ''] = (await Promise.all(made))
      .map((user) => user.id)
      .sort();
    const read = async (): Promise<unknown> =>
      (await other.call('gatewayPolicy')).json['disabled_users'];
    for (const id of [first, last]) await users.patch(id, { disabled: true });
    await other.policy.refreshIfChanged();
    const before = await read();
    expect(before).toHaveLength(2);
    await users.patch(first, { disabled: false });
    await users.patch(middle, { disabled: true });
    await other.policy.refreshIfChanged();
    expect(await read()).not.toEqual(before);
  });
  test('a device token revoked and another one issued between two reads are both noticed, even with a slow clock', async () => {
    const stamp = () => other.stores.policy.stamp();
    const issue = async (name: string, at: number): Promise<void> => {
      const code = {
        device_hash: `d-${name}`,
        user_hash: `u-${name}`,
        poll_seconds: 5,
        expires_at: at + 60_000,
        scope: 'projects' as const,
      };
      await other.stores.deviceCodes.create({ ...code, ...asker }, at);
      await other.stores.deviceCodes.decide(`u-${name}`, true, ANN, at);
      await other.stores.deviceCodes.poll(
        `d-${name}`,
        { id: name, hash: sha256(name), expires_at: at + 1_000_000 },
        at,
      );
    };
    const at = Date.now();
    await issue('old', at);
    await issue('newest', at + 5);
    const before = await stamp();
    await other.stores.deviceTokens.revoke('old', null);
    await issue('behind', at + 2);
    expect(await stamp()).not.toBe(before);
  });
});
