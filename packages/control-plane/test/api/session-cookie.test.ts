/**
 * The session cookie of the dashboard: what sets it, what ends it, and which requests may use it.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Api, createApi, PASSWORD } from './harness.ts';

const ADMIN = { email: 'admin@example.com', password: PASSWORD };
const OWN = 'http://berth.localhost:8000';

let api: Api;
beforeAll(async () => {
  api = await createApi();
});
afterAll(() => api.close());

type Sent = {
  method?: 'GET' | 'POST';
  url: string;
  headers?: Record<string, string>;
  body?: unknown;
};
async function send({ method = 'GET', url, headers = {}, body }: Sent, of: Api = api) {
  const answer = await of.server.inject({
    method,
    url,
    headers,
    ...(body === undefined ? {} : { payload: body as object }),
  });
  return {
    status: answer.statusCode,
    cookie: answer.headers['set-cookie'],
    json: answer.body === '' ? null : answer.json(),
  };
}
async function signIn(of: Api = api): Promise<string> {
  const { cookie } = await send(
    { method: 'POST', url: '/api/auth/login', headers: { 'x-session': 'cookie' }, body: ADMIN },
    of,
  );
  return String(cookie).split(';')[0] ?? '';
}
const CREATE = {
  method: 'POST' as const,
  url: '/api/projects',
  body: { name: 'shop', git_url: 'https://git.example.com/shop.git', domain_prefix: 'shop' },
};

describe('sign-in', () => {
  test('with X-Session: cookie the token is in a cookie that no script reads, and not in the answer', async () => {
    const answer = await send({
      method: 'POST',
      url: '/api/auth/login',
      headers: { 'x-session': 'cookie' },
      body: ADMIN,
    });
    expect(answer.status).toBe(200);
    expect(answer.json).toMatchObject({
      token: '',
      refresh_token: '',
      user: { email: ADMIN.email },
    });
    expect(answer.cookie).toMatch(
      /^berth_dashboard=[\w.-]+; Path=\/; HttpOnly; SameSite=Strict; Max-Age=604800$/,
    );
  });

  test('without the header nothing changes', async () => {
    const answer = await send({ method: 'POST', url: '/api/auth/login', body: ADMIN });
    expect(answer.cookie).toBeUndefined();
    expect(answer.json).toMatchObject({
      token: expect.stringMatching(/^\w+\.\w+\./),
      expires_in: 3600,
    });
  });

  test('over https only this host can set the cookie', async () => {
    const secure = await createApi({ env: { PUBLIC_URL: 'https://berth.localhost' } });
    const { cookie } = await send(
      { method: 'POST', url: '/api/auth/login', headers: { 'x-session': 'cookie' }, body: ADMIN },
      secure,
    );
    expect(cookie).toMatch(/^__Host-berth_dashboard=.*; Secure; Max-Age=\d+$/);
    await secure.close();
  });

  test('the ways to sign in are public', async () => {
    expect((await send({ url: '/api/auth/methods' })).json).toEqual({ methods: ['password'] });
  });
});

describe('requests with the cookie', () => {
  test('a page of the same origin reads and changes', async () => {
    const cookie = await signIn();
    expect(
      (await send({ url: '/api/auth/me', headers: { cookie, 'sec-fetch-site': 'same-origin' } }))
        .json,
    ).toMatchObject({
      email: ADMIN.email,
    });
    expect((await send({ ...CREATE, headers: { cookie, origin: OWN } })).status).toBe(201);
  });

  test('it works for more than the hour of other tokens', async () => {
    const later = await createApi();
    const cookie = await signIn(later);
    later.pass(6 * 86_400_000);
    expect((await send({ url: '/api/auth/me', headers: { cookie } }, later)).status).toBe(200);
    later.pass(2 * 86_400_000);
    expect((await send({ url: '/api/auth/me', headers: { cookie } }, later)).status).toBe(401);
    await later.close();
  });

  test.each([
    ['a project of the same site', { origin: 'http://shop.berth.localhost:8000' }],
    ['another site', { origin: 'https://evil.example' }],
    ['a page in a sandbox', { origin: 'null' }],
    ['an unknown page', {}],
    [
      'a page that lies about its origin in an old browser',
      { origin: OWN, 'sec-fetch-site': 'same-site' },
    ],
  ])('%s changes nothing: 403', async (_who, headers) => {
    const cookie = await signIn();
    const answer = await send({ ...CREATE, headers: { cookie, ...headers } });
    expect(answer.status).toBe(403);
    expect(answer.json).toMatchObject({ code: 'forbidden' });
  });

  test.each(['same-site', 'cross-site'])('a %s page reads nothing: 401', async (site) => {
    const cookie = await signIn();
    expect(
      (await send({ url: '/api/projects', headers: { cookie, 'sec-fetch-site': site } })).status,
    ).toBe(401);
  });

  test('a second cookie of the same name, which a project may set over http, does not end the session', async () => {
    const cookie = await signIn();
    expect(
      (await send({ url: '/api/auth/me', headers: { cookie: `berth_dashboard=other; ${cookie}` } }))
        .status,
    ).toBe(200);
  });

  test('Authorization wins, so a program in a browser is what it says', async () => {
    const cookie = await signIn();
    const authorization = `Bearer ${api.token('viewer')}`;
    expect(
      (await send({ url: '/api/auth/me', headers: { cookie, authorization } })).json,
    ).toMatchObject({ email: 'viewer@example.com' });
  });
});

describe('the end', () => {
  test('sign-out ends the session and deletes the cookie', async () => {
    const cookie = await signIn();
    const answer = await send({
      method: 'POST',
      url: '/api/auth/logout',
      headers: { cookie, origin: OWN },
    });
    expect(answer.status).toBe(204);
    expect(answer.cookie).toMatch(/^berth_dashboard=; .*Max-Age=0$/);
    expect((await send({ url: '/api/auth/me', headers: { cookie } })).status).toBe(401);
  });
});

test('no project is called “new”, which is an address of the dashboard', async () => {
  const answer = await api.call('createProject', {
    as: 'developer',
    body: { ...CREATE.body, name: 'new', domain_prefix: 'fresh' },
  });
  expect(answer.status).toBe(422);
  expect(answer.json).toMatchObject({ errors: [{ field: 'name', rule: 'reserved' }] });
});

describe('several cookies', () => {
  const NAME = '__Host-berth_dashboard';
  let secure: Api;
  beforeAll(async () => {
    secure = await createApi({ env: { PUBLIC_URL: 'https://berth.localhost' } });
  });
  afterAll(() => secure.close());
  const me = async (cookie: string): Promise<unknown> => {
    const { status, json } = await send(
      { url: '/api/auth/me', headers: { cookie, 'sec-fetch-site': 'same-origin' } },
      secure,
    );
    return status === 200 ? (json as { email: string }).email : status;
  };
  const tokenOf = async (email: string): Promise<string> => {
    const { json } = await send(
      { method: 'POST', url: '/api/auth/login', body: { email, password: PASSWORD } },
      secure,
    );
    return (json as { token: string }).token;
  };

  test.each(['\u00a0', '\u000b', '\u0085', '\ufeff'])(
    '%j before the name makes another cookie of it',
    async (space) => {
      const token = await tokenOf(ADMIN.email);
      expect(await me(`${space}${NAME}=${token}`)).toBe(401);
      expect(await me(`${NAME}${space}=${token}`)).toBe(401);
      expect(await me(`${space}${NAME}=planted; ${NAME}=${token}`)).toBe(ADMIN.email);
    },
  );

  test('one that is planted or has expired does not lock the visitor out', async () => {
    const token = await tokenOf(ADMIN.email);
    expect(await me(`${NAME}=planted; ${NAME}=${token}; ${NAME}=`)).toBe(ADMIN.email);
    expect(await me(`${NAME}=${token}; ${NAME}=${await tokenOf(ADMIN.email)}`)).toBe(ADMIN.email);
    expect(
      await me(
        `${Array.from({ length: 32 }, (_, i) => `${NAME}=x${i}`).join('; ')}; ${NAME}=${token}`,
      ),
    ).toBe(401);
  });

  test('sessions of two people sign in neither', async () => {
    const body = { email: 'mallory@example.com', password: PASSWORD, role: 'admin' };
    expect((await secure.call('createUser', { body })).status).toBe(201);
    expect(await me(`${NAME}=${await tokenOf(body.email)}`)).toBe(body.email);
    expect(
      await me(`${NAME}=${await tokenOf(body.email)}; ${NAME}=${await tokenOf(ADMIN.email)}`),
    ).toBe(401);
  });
});
