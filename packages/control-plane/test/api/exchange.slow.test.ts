/**
 * Exchange of device tokens and signed assertions of the gateway for API tokens, and attempts to
 * forge them.
 */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createHash } from 'node:crypto';
import {
  exportJWK,
  generateKeyPair,
  type GenerateKeyPairResult,
  SignJWT,
  UnsecuredJWT,
} from 'jose';
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { type Api, createApi, jwt } from './harness.ts';

let ours: GenerateKeyPairResult;
let strangers: GenerateKeyPairResult;
let rotated: GenerateKeyPairResult;
let gateway: Server;
let address: string;
let published: unknown;
let status = 200;
let fetched = 0;

const publish = async (...keys: [string, GenerateKeyPairResult][]): Promise<void> => {
  published = {
    keys: await Promise.all(
      keys.map(async ([kid, { publicKey }]) => ({
        ...(await exportJWK(publicKey)),
        kid,
        alg: 'EdDSA',
        use: 'sig',
      })),
    ),
  };
};
beforeAll(async () => {
  const pair = () => generateKeyPair('EdDSA', { crv: 'Ed25519', extractable: true });
  [ours, strangers, rotated] = await Promise.all([pair(), pair(), pair()]);
  gateway = createServer((request, response) => {
    fetched++;
    response.statusCode = request.url === '/_oauth/jwks.json' ? status : 404;
    response.setHeader('content-type', 'application/json');
    response.end(typeof published === 'string' ? published : JSON.stringify(published));
  });
  await new Promise<void>((resolve) => gateway.listen(0, '127.0.0.1', resolve));
  address = `http://127.0.0.1:${(gateway.address() as AddressInfo).port}`;
});
afterAll(() => new Promise((resolve) => void gateway.close(resolve)));

let api: Api;
const start = (env: Record<string, string | undefined> = {}) =>
  createApi({ env: { AUTH_SERVICE_URL: address, DEFAULT_ROLE: 'viewer', ...env } });
beforeAll(async () => {
  api = await start();
});
afterAll(() => api.close());
beforeEach(async () => {
  await publish(['k1', ours]);
  status = 200;
  fetched = 0;
});

type Options = { key?: GenerateKeyPairResult; kid?: string; alg?: string };
const seconds = (): number => Math.floor(Date.now() / 1000);
const claims = (more: Record<string, unknown> = {}) => ({
  iss: 'http://berth.localhost:8000',
  aud: 'berth.localhost',
  sub: 'ann@example.com',
  email: 'ann@example.com',
  provider: 'oidc',
  iat: seconds(),
  exp: seconds() + 300,
  ...more,
});
const assertion = (
  more: Record<string, unknown> = {},
  { key = ours, kid = 'k1' }: Options = {},
): Promise<string> =>
  new SignJWT(claims(more))
    .setProtectedHeader({ alg: 'EdDSA', typ: 'JWT', kid })
    .sign(key.privateKey);
const exchange = (headers: Record<string, string>, on: Api = api) =>
  on.call('exchange', { headers });
const byAssertion = (token: string, on: Api = api) =>
  exchange({ 'x-forwarded-user-assertion': token }, on);
const roleOf = (reply: { json: Record<string, unknown> }): unknown =>
  (reply.json['user'] as { role: string }).role;

async function deviceToken(
  email = 'ann@example.com',
  scope: string | undefined = 'projects api',
  on: Api = api,
): Promise<string> {
  const identity = { email, name: null, avatar_url: null, provider: 'oidc' };
  const asked = { address: '203.0.113.9', user_agent: 'curl', ...(scope === '' ? {} : { scope }) };
  const { json } = await on.call('createDeviceCode', { body: asked });
  await on.call('decideDeviceCode', {
    body: { user_code: json['user_code'], address: '::1', approve: true, identity },
  });
  return (await on.call('pollDeviceCode', { body: { device_code: json['device_code'] } })).json[
    'access_token'
  ] as string;
}

describe('an assertion of the gateway', () => {
  test('returns a token; an unknown person gets one account with DEFAULT_ROLE', async () => {
    const fresh = await start();
    const replies = await Promise.all(
      [1, 2, 3].map(async () => byAssertion(await assertion(), fresh)),
    );
    for (const reply of replies) expect([reply.status, roleOf(reply)]).toEqual([200, 'viewer']);
    const token = replies[0]?.json['token'] as string;
    expect(
      (await fresh.call('me', { as: null, headers: { authorization: `Bearer ${token}` } })).json,
    ).toMatchObject({
      email: 'ann@example.com',
    });
    expect(
      (await fresh.stores.users.list({ limit: 50, cursor: null })).items.filter(
        (u) => u.email === 'ann@example.com',
      ),
    ).toHaveLength(1);
    expect(fetched).toBe(1);
    await fresh.close();
  });
  test('people in ADMIN_EMAILS become admins, known people keep their role', async () => {
    const other = await start({ ADMIN_EMAILS: 'admin@example.com, Boss@example.com' });
    expect(roleOf(await byAssertion(await assertion({ email: 'boss@EXAMPLE.com' }), other))).toBe(
      'admin',
    );
    expect(
      roleOf(await byAssertion(await assertion({ email: 'developer@example.com' }), other)),
    ).toBe('developer');
    await other.close();
  });
  test('without DEFAULT_ROLE an unknown person gets 403 with the reason, and no account', async () => {
    const other = await start({ DEFAULT_ROLE: undefined });
    const reply = await byAssertion(await assertion(), other);
    expect([reply.status, reply.json['code']]).toEqual([403, 'no_role']);
    expect(reply.json['detail']).toContain('DEFAULT_ROLE');
    expect(await other.stores.users.findByEmail('ann@example.com')).toBeNull();
    await other.close();
  });
  test('a disabled account gets 403', async () => {
    const dev = await api.stores.users.findByEmail('developer@example.com');
    await api.call('patchUser', { params: { id: dev?.id ?? '' }, body: { disabled: true } });
    const reply = await byAssertion(await assertion({ email: 'developer@example.com' }));
    expect([reply.status, reply.json['code']]).toEqual([403, 'account_disabled']);
  });

  test.each([
    ['projects', 403],
    ['api', 403],
    [['projects api'], 403],
    ['projects api', 200],
  ])(
    'of a device token with the scope %j counts as the token itself: %i',
    async (scope, status) => {
      const reply = await byAssertion(await assertion({ scope }));
      expect([reply.status, reply.json['code']]).toEqual([
        status,
        status === 403 ? 'insufficient_scope' : undefined,
      ]);
    },
  );

  test('from before the deletion of the account is refused; a later one returns a token', async () => {
    const other = await start();
    const email = 'viewer@example.com';
    const id = (await other.stores.users.findByEmail(email))?.id ?? '';
    const from = (at: number) =>
      assertion({ email, iat: seconds() + at, exp: seconds() + at + 300 });
    expect((await byAssertion(await from(-10), other)).status).toBe(200);
    await other.call('deleteUser', { params: { id } });
    const reply = await byAssertion(await from(-10), other);
    expect([reply.status, reply.json['code']]).toEqual([401, 'unauthenticated']);
    expect(await other.stores.users.findByEmail(email)).toBeNull();
    other.pass(60_000);
    expect((await byAssertion(await from(60), other)).status).toBe(200);
    await other.close();
  });

  test.each(['assertion', 'device token'])(
    'the %s of a person who is deleted during the exchange creates no new account',
    async (kind) => {
      const email = 'viewer@example.com';
      let during = async (): Promise<void> => undefined;
      const other = await createApi({
        env: { AUTH_SERVICE_URL: address, DEFAULT_ROLE: 'viewer' },
        stores: (real) => ({
          ...real,
          users: {
            ...real.users,
            async findByEmail(wanted) {
              if (wanted === email) await during();
              return real.users.findByEmail(wanted);
            },
          },
        }),
      });
      onTestFinished(() => other.close());
      const id = (await other.stores.users.findByEmail(email))?.id ?? '';
      const sent =
        kind === 'assertion'
          ? { 'x-forwarded-user-assertion': await assertion({ email }) }
          : { authorization: `Bearer ${await deviceToken(email, 'projects api', other)}` };
      during = async () => {
        during = async () => undefined;
        await other.call('deleteUser', { params: { id } });
      };
      const reply = await exchange(sent, other);
      expect([reply.status, reply.json['code']]).toEqual([401, 'unauthenticated']);
      expect(await other.stores.users.findByEmail(email)).toBeNull();
    },
  );

  const hostile: [string, () => Promise<string> | string][] = [
    ['signed with another key', () => assertion({}, { key: strangers })],
    ['with an unknown kid', () => assertion({}, { key: strangers, kid: 'k2' })],
    ['for the host of a project', () => assertion({ aud: 'shop.berth.localhost' })],
    ['without an audience', () => assertion({ aud: undefined })],
    ['of another issuer', () => assertion({ iss: 'http://evil.example' })],
    ['without an issuer', () => assertion({ iss: undefined })],
    ['that has expired', () => assertion({ iat: seconds() - 400, exp: seconds() - 60 })],
    ['without an expiry', () => assertion({ exp: undefined })],
    [
      'that is valid for a year',
      () => assertion({ iat: seconds() - 86_400, exp: seconds() + 31_536_000 }),
    ],
    ['issued in the future', () => assertion({ iat: seconds() + 3_600, exp: seconds() + 3_900 })],
    ['without an e-mail', () => assertion({ email: undefined })],
    ['with an invalid e-mail', () => assertion({ email: 'ann' })],
    ['with a list for an e-mail', () => assertion({ email: ['ann@example.com'] })],
    ['with alg none', () => new UnsecuredJWT(claims()).encode()],
    ['with alg none, written by hand', () => jwt(claims(), { alg: 'none' })],
    ['with HS256 and JWT_SECRET', () => jwt(claims())],
    [
      'with HS256 and the public key as secret (RFC 8725 section 2.1)',
      async () =>
        jwt(claims(), { secret: JSON.stringify((published as { keys: object[] }).keys[0]) }),
    ],
    ['that is a token of the API', () => api.token('admin')],
    ['that is truncated', async () => (await assertion()).slice(0, -5)],
    [
      'with another payload',
      async () => {
        const [head, , signature] = (await assertion()).split('.');
        return (
          `${head}.` +
          Buffer.from(JSON.stringify(claims({ email: 'admin@example.com' }))).toString(
            'base64url',
          ) +
          `.${signature}`
        );
      },
    ],
    ['that is not a token', () => 'rubbish'],
    ['that appears twice', async () => `${await assertion()}, ${await assertion()}`],
  ];
  test.each(hostile)('%s is refused', async (_, make) => {
    const reply = await byAssertion(await make());
    expect([reply.status, reply.json['code']]).toEqual([401, 'unauthenticated']);
    expect(reply.headers['www-authenticate']).toMatch(/^Bearer/);
  });

  test('an algorithm other than EdDSA is refused even if its key is published', async () => {
    const { publicKey, privateKey } = await generateKeyPair('ES256', { extractable: true });
    await publish(['k1', ours]);
    (published as { keys: object[] }).keys.push({
      ...(await exportJWK(publicKey)),
      kid: 'k3',
      alg: 'ES256',
      use: 'sig',
    });
    const other = await start();
    const signed = await new SignJWT(claims())
      .setProtectedHeader({ alg: 'ES256', kid: 'k3' })
      .sign(privateKey);
    expect((await byAssertion(signed, other)).status).toBe(401);
    expect((await byAssertion(await assertion(), other)).status).toBe(200);
    await other.close();
  });

  test('changed keys are read again, but not once for each unknown key id', async () => {
    const other = await start();
    expect((await byAssertion(await assertion(), other)).status).toBe(200);
    for (let i = 0; i < 20; i++)
      expect(
        (await byAssertion(await assertion({}, { key: strangers, kid: `x${i}` }), other)).status,
      ).toBe(401);
    expect(fetched).toBe(1);
    await other.close();
    const fresh = await start();
    await publish(['k2', rotated], ['k1', ours]);
    expect(
      (await byAssertion(await assertion({}, { key: rotated, kid: 'k2' }), fresh)).status,
    ).toBe(200);
    expect((await byAssertion(await assertion(), fresh)).status).toBe(200);
    await fresh.close();
  });
  test.each([
    ['answers 500', () => void (status = 500)],
    ['answers invalid JSON', () => void (published = 'rubbish')],
    ['answers with an invalid key set', () => void (published = { keys: 'none' })],
  ])('a gateway that %s: 503, try again', async (_, breakIt) => {
    breakIt();
    const other = await start();
    const reply = await byAssertion(await assertion(), other);
    expect([reply.status, reply.json['code'], reply.headers['retry-after']]).toEqual([
      503,
      'gateway_unreachable',
      '5',
    ]);
    await other.close();
  });
  test('gets 503 while the gateway is unreachable, and 401 without a gateway', async () => {
    const away = await start({ AUTH_SERVICE_URL: 'http://127.0.0.1:1' });
    expect((await byAssertion(await assertion(), away)).status).toBe(503);
    await away.close();
    const none = await start({ AUTH_SERVICE_URL: undefined });
    expect((await byAssertion(await assertion(), none)).status).toBe(401);
    await none.close();
  });
});

describe('a device token', () => {
  test('returns a token until it is revoked', async () => {
    const token = await deviceToken();
    const reply = await exchange({ authorization: `Bearer ${token}` });
    expect([reply.status, roleOf(reply)]).toEqual([200, 'viewer']);
    // It works only for the exchange.
    expect(
      (await api.call('me', { as: null, headers: { authorization: `Bearer ${token}` } })).status,
    ).toBe(401);
    const [mine] = (
      await api.stores.deviceTokens.list({ email: 'ann@example.com' }, Date.now(), {
        limit: 1,
        cursor: null,
      })
    ).items;
    await api.call('deleteDeviceToken', { as: 'admin', params: { id: mine?.id ?? '' } });
    expect((await exchange({ authorization: `Bearer ${token}` })).status).toBe(401);
  });
  test.each(['projects', ''])(
    'without the scope api (%s) it gets 403 insufficient_scope (RFC 6750 section 3.1)',
    async (scope) => {
      const token = await deviceToken('ann@example.com', scope);
      // A valid assertion in the same request changes nothing.
      const reply = await exchange({
        authorization: `Bearer ${token}`,
        'x-forwarded-user-assertion': await assertion(),
      });
      expect([reply.status, reply.json['code']]).toEqual([403, 'insufficient_scope']);
      expect(reply.headers['www-authenticate']).toBe(
        'Bearer error="insufficient_scope", scope="projects api"',
      );
      expect(reply.json['detail']).toContain('the scope "projects api"');
    },
  );
  test('shows its scope to its owner, on the page of devices and in the API', async () => {
    await deviceToken('dora@example.com', 'projects');
    await deviceToken('dora@example.com', 'projects api');
    const scopesOf = (reply: { json: Record<string, unknown> }): unknown[] =>
      (reply.json['items'] as { scope: string }[]).map((token) => token.scope).sort();
    expect(
      scopesOf(await api.call('deviceTokensOf', { body: { email: 'dora@example.com' } })),
    ).toEqual(['projects', 'projects api']);
    expect(
      scopesOf(
        await api.call('listDeviceTokens', { as: 'admin', query: { email: 'dora@example.com' } }),
      ),
    ).toEqual(['projects', 'projects api']);
  });
  test('an unknown scope is refused when the gateway requests it', async () => {
    const reply = await api.call('createDeviceCode', {
      body: { address: '203.0.113.9', user_agent: 'curl', scope: 'admin' },
    });
    expect(reply.status).toBe(422);
  });
  test.each([
    ['its hash', (t: string) => createHash('sha256').update(t).digest('hex')],
    ['a prefix of it', (t: string) => t.slice(0, -1)],
    ['in another case', (t: string) => t.toUpperCase()],
    ['another token', () => `berth_${'A'.repeat(43)}`],
    ['a personal token', () => `berthpat_${'A'.repeat(43)}`],
  ])('%s is refused, also with a valid assertion', async (_, make) => {
    const token = make(await deviceToken());
    const reply = await exchange({
      authorization: `Bearer ${token}`,
      'x-forwarded-user-assertion': await assertion(),
    });
    expect(reply.status).toBe(401);
  });
  test('of a disabled user is refused', async () => {
    const token = await deviceToken('viewer@example.com');
    const dev = await api.stores.users.findByEmail('viewer@example.com');
    await api.call('patchUser', { params: { id: dev?.id ?? '' }, body: { disabled: true } });
    expect((await exchange({ authorization: `Bearer ${token}` })).status).toBe(401);
  });
});

test.each([
  ['same-site', 403],
  ['cross-site', 403],
  ['same-origin', 200],
  ['none', 200],
])(
  'a page of another origin cannot begin a session for its visitor: Sec-Fetch-Site: %s is %i',
  async (site, status) => {
    const headers = { 'x-forwarded-user-assertion': await assertion(), 'sec-fetch-site': site };
    const reply = await exchange(headers);
    expect(reply.status).toBe(status);
    if (status === 403) expect(reply.json['code']).toBe('forbidden');
  },
);

test.each([
  ['ann%40example.com', 200],
  ['vera%40example.com', 403],
  ['%', 403],
  ['', 403],
])(
  'begins a session for the chosen account only: X-Session-Account: %s is %i',
  async (account, status) => {
    const headers = {
      'x-forwarded-user-assertion': await assertion(),
      'x-session': 'cookie',
      'x-session-account': account,
    };
    const answer = await api.server.inject({ method: 'POST', url: '/api/auth/exchange', headers });
    expect(answer.statusCode).toBe(status);
    if (status === 200) return;
    expect(answer.headers['set-cookie']).toBeUndefined();
    expect(answer.json()).toMatchObject({
      code: 'forbidden',
      detail: expect.stringContaining('nobody was signed in'),
    });
  },
);

describe('bare identity headers', () => {
  test.each([
    'x-forwarded-user',
    'x-forwarded-email',
    'remote-user',
    'x_forwarded_user',
    'x-forwarded-user_assertion',
  ])('%s is ignored', async (name) => {
    const reply = await exchange({ [name]: 'admin@example.com' });
    expect([reply.status, reply.json['code']]).toEqual([401, 'unauthenticated']);
  });
  test('an assertion as a bearer token is refused', async () => {
    expect((await exchange({ authorization: `Bearer ${await assertion()}` })).status).toBe(401);
  });
});

describe('a session at the API ends with its origin', () => {
  type Signed = { token: string; refresh_token: string };
  const signed = (reply: {
    status: number;
    text: string;
    json: Record<string, unknown>;
  }): Signed => {
    expect(reply.status, reply.text).toBe(200);
    return reply.json as unknown as Signed;
  };
  /** Statuses of a request with the API token and of a refresh. */
  const worth = async ({ token, refresh_token }: Signed): Promise<number[]> => [
    (await api.call('me', { as: null, headers: { authorization: `Bearer ${token}` } })).status,
    (await api.call('refresh', { body: { refresh_token } })).status,
  ];
  const tokenIdOf = async (email: string): Promise<string> => {
    const { items } = (await api.call('deviceTokensOf', { body: { email } })).json as {
      items: { id: string }[];
    };
    return items[0]?.id ?? '';
  };

  test.each(['the token itself', 'the assertion that the gateway makes of it'])(
    'when the device token is revoked: %s',
    async (by) => {
      const email = `revoked-${by.length}@example.com`;
      const bearer = await deviceToken(email);
      const id = await tokenIdOf(email);
      const opened = () =>
        by === 'the token itself'
          ? exchange({ authorization: `Bearer ${bearer}` })
          : assertion({ email, scope: 'projects api', device_token: id }).then((a) =>
              byAssertion(a),
            );
      const [first, other] = [signed(await opened()), signed(await opened())];
      const next = signed(
        await api.call('refresh', { body: { refresh_token: first.refresh_token } }),
      );
      await api.call('revokeDeviceTokenOf', { body: { email, id } });
      expect([await worth(next), await worth(other)]).toEqual([
        [401, 401],
        [401, 401],
      ]);
    },
  );

  test('when its owner signs out of the gateway session; another session stays', async () => {
    const end = new Date(Date.now() + 3_600_000).toISOString();
    const [ended, other] = [
      signed(await byAssertion(await assertion({ sid: 'left' }))),
      signed(await byAssertion(await assertion({ sid: 'kept' }))),
    ];
    await api.call('revokeSession', {
      body: { id: 'left', email: 'ann@example.com', expires_at: end },
    });
    expect((await byAssertion(await assertion({ sid: 'left' }))).status).toBe(401);
    expect([await worth(ended), await worth(other)]).toEqual([
      [401, 401],
      [200, 200],
    ]);
  });
});
