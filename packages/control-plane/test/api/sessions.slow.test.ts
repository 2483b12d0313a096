/** Sessions: refresh tokens, logout, a changed password, and stolen tokens. */
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { readConfig } from '../../src/config.ts';
import { type Api, createApi, ENV, PASSWORD, rulesOf } from './harness.ts';

let api: Api;
beforeEach(async () => {
  api = await createApi();
  return () => api.close();
});

type Signed = { token: string; refresh_token: string };
const bearer = (token: string) => ({ as: null, headers: { authorization: `Bearer ${token}` } });
async function login(
  on: Api = api,
  email = 'admin@example.com',
  password = PASSWORD,
): Promise<Signed> {
  const reply = await on.call('login', { body: { email, password } });
  expect(reply.status, reply.text).toBe(200);
  return reply.json as unknown as Signed;
}
const refresh = (refresh_token: string, on: Api = api) =>
  on.call('refresh', { body: { refresh_token } });
const me = async (token: string): Promise<number> => (await api.call('me', bearer(token))).status;

describe('refresh', () => {
  test('returns the next pair; the old JWT works until it expires', async () => {
    const first = await login();
    const next = (await refresh(first.refresh_token)).json as unknown as Signed;
    expect(next.refresh_token).not.toBe(first.refresh_token);
    expect([await me(first.token), await me(next.token)]).toEqual([200, 200]);
    expect((await refresh(next.refresh_token)).status).toBe(200);
  });
  test('a second use of a token ends the session for everybody who holds a token of it', async () => {
    const first = await login();
    const other = await login();
    const next = (await refresh(first.refresh_token)).json as unknown as Signed;
    const again = await refresh(first.refresh_token);
    expect([again.status, again.json['code']]).toEqual([401, 'refresh_token']);
    expect(again.json['detail']).toContain('used before');
    expect((await refresh(next.refresh_token)).status).toBe(401);
    expect([await me(first.token), await me(next.token), await me(other.token)]).toEqual([
      401, 401, 200,
    ]);
  });
  test('of two concurrent requests with one token at most one succeeds', async () => {
    const { refresh_token } = await login();
    const replies = await Promise.all([
      refresh(refresh_token),
      refresh(refresh_token),
      refresh(refresh_token),
    ]);
    expect(replies.filter((r) => r.status === 200).length).toBeLessThanOrEqual(1);
  });
  test('ends after 30 days without use, and after 90 days in any case', async () => {
    const idle = await login();
    api.pass(30 * 86_400_000 + 1_000);
    expect((await refresh(idle.refresh_token)).status).toBe(401);
    let { refresh_token } = await login();
    for (let day = 0; day < 80; day += 20) {
      const reply = await refresh(refresh_token);
      expect(reply.status).toBe(200);
      ({ refresh_token } = reply.json as unknown as Signed);
      api.pass(20 * 86_400_000);
    }
    const last = await refresh(refresh_token);
    expect(last.status).toBe(200);
    api.pass(11 * 86_400_000);
    expect((await refresh(String(last.json['refresh_token']))).status).toBe(401);
  });
  test('is refused for a disabled account', async () => {
    await api.call('createUser', {
      body: { email: 'eve@example.com', role: 'viewer', password: PASSWORD },
    });
    const { refresh_token, token } = await login(api, 'eve@example.com');
    const eve = await api.stores.users.findByEmail('eve@example.com');
    await api.call('patchUser', { params: { id: eve?.id ?? '' }, body: { disabled: true } });
    expect([(await refresh(refresh_token)).status, await me(token)]).toEqual([401, 401]);
    // After the account is enabled, the user must sign in again.
    await api.call('patchUser', { params: { id: eve?.id ?? '' }, body: { disabled: false } });
    expect([(await refresh(refresh_token)).status, await me(token)]).toEqual([401, 401]);
    await login(api, 'eve@example.com');
  });
});

describe('logout', () => {
  test('ends this session at once, and no other session', async () => {
    const [one, two] = [await login(), await login()];
    expect((await api.call('logout', bearer(one.token))).status).toBe(204);
    expect([await me(one.token), await me(two.token)]).toEqual([401, 200]);
    expect((await refresh(one.refresh_token)).status).toBe(401);
    expect((await api.call('logout', bearer(one.token))).status).toBe(401);
  });
});

describe('a changed password', () => {
  const change = (token: string, old_password: string, new_password: string) =>
    api.call('changePassword', { ...bearer(token), body: { old_password, new_password } });
  test('with the old password: ends every session and returns a new one', async () => {
    const [mine, theirs] = [await login(), await login()];
    const reply = await change(mine.token, PASSWORD, 'a new and long one');
    expect(reply.status).toBe(200);
    expect([
      await me(mine.token),
      await me(theirs.token),
      await me((reply.json as unknown as Signed).token),
    ]).toEqual([401, 401, 200]);
    expect(
      (await api.call('login', { body: { email: 'admin@example.com', password: PASSWORD } }))
        .status,
    ).toBe(401);
    await login(api, 'admin@example.com', 'a new and long one');
  });
  test('with a wrong old password: refused, with the rate limit of the login', async () => {
    const { token } = await login();
    for (let i = 0; i < 10; i++)
      expect(rulesOf(await change(token, 'wrong', 'a new and long one'))).toEqual([
        'old_password:wrong',
      ]);
    expect((await change(token, PASSWORD, 'a new and long one')).status).toBe(429);
    expect(await me(token)).toBe(200);
  });
  test('for an account without a password: refused', async () => {
    expect(rulesOf(await change(api.token('viewer'), 'x', 'a new and long one'))).toEqual([
      'old_password:wrong',
    ]);
  });
  test('a short password is refused', async () => {
    const { token } = await login();
    expect(rulesOf(await change(token, PASSWORD, 'short'))).toEqual(['new_password:min_length']);
  });
});

describe('an account that changes while somebody signs in', () => {
  /**
   * Runs when the account was read, and before its new password is stored: checking and hashing
   * take hundreds of milliseconds.
   */
  const during = {
    read: async (): Promise<void> => undefined,
    patch: async (): Promise<void> => undefined,
  };
  let changing: Api;
  let eve = '';
  beforeEach(async () => {
    during.read = during.patch = async () => undefined;
    changing = await createApi({
      stores: (real) => ({
        ...real,
        users: {
          ...real.users,
          async findByEmail(email) {
            const found = await real.users.findByEmail(email);
            await during.read();
            return found;
          },
          async patch(...change) {
            await during.patch();
            return real.users.patch(...change);
          },
        },
      }),
    });
    const made = await changing.call('createUser', {
      body: { email: 'eve@example.com', role: 'developer', password: PASSWORD },
    });
    eve = String(made.json['id']);
    return () => changing.close();
  });
  const NEW = 'a new and long one';
  const tryToSignIn = (password = PASSWORD) =>
    changing.call('login', { body: { email: 'eve@example.com', password } });
  const change = (body: Record<string, unknown>) =>
    changing.call('patchUser', { params: { id: eve }, body });
  const once = (run: () => Promise<unknown>, at: keyof typeof during): void => {
    during[at] = async () => {
      during[at] = async () => undefined;
      await run();
    };
  };

  test('the password that was valid when the request arrived opens no session after it was replaced', async () => {
    once(() => change({ password: NEW }), 'read');
    const reply = await tryToSignIn();
    expect([reply.status, reply.json['code']]).toEqual([401, 'wrong_credentials']);
    expect((await tryToSignIn(NEW)).status).toBe(200);
  });
  test('a session that began while the account was being disabled does not come back with the account', async () => {
    once(() => change({ disabled: true }), 'read');
    const reply = await tryToSignIn();
    expect([reply.status, reply.json['code']]).toEqual([401, 'wrong_credentials']);
  });
  test('an account that was deleted meanwhile gets the answer of an unknown one', async () => {
    once(() => changing.call('deleteUser', { params: { id: eve } }), 'read');
    const reply = await tryToSignIn();
    expect([reply.status, reply.json['code']]).toEqual([401, 'wrong_credentials']);
  });
  test('a change of the own password with the old one does not replace the password that an admin set meanwhile', async () => {
    const { token } = (await tryToSignIn()).json as unknown as Signed;
    once(() => change({ password: NEW }), 'patch');
    const reply = await changing.call('changePassword', {
      ...bearer(token),
      body: { old_password: PASSWORD, new_password: 'chosen by the thief' },
    });
    expect(rulesOf(reply)).toEqual(['old_password:wrong']);
    expect((await tryToSignIn('chosen by the thief')).status).toBe(401);
    expect((await tryToSignIn(NEW)).status).toBe(200);
  });
});

describe('the address of the client', () => {
  const from = (address: string, password: string, email = 'admin@example.com') =>
    api.call('login', { body: { email, password }, headers: { 'x-forwarded-for': address } });
  test('is read from X-Forwarded-For behind a proxy on this machine, so one client does not lock out another', async () => {
    for (let i = 0; i < 12; i++) await from('203.0.113.66', 'wrong');
    expect((await from('203.0.113.66', PASSWORD)).status).toBe(429);
    expect((await from('198.51.100.7', PASSWORD)).status).toBe(200);
  });
  test('cannot be chosen by the client: only the address that the trusted proxy saw counts', async () => {
    for (let i = 0; i < 10; i++)
      expect((await from(`1.2.3.${i}, 203.0.113.66`, 'wrong')).status).toBe(401);
    expect((await from('9.9.9.9, 203.0.113.66', PASSWORD)).status).toBe(429);
  });
  test.each(['10.0.0.0/33', '10.0.0', '::/129', 'everybody', '10.0.0.0/8/8', '10.0.0.0/x'])(
    'TRUSTED_PROXIES=%s is refused at the start',
    (given) => {
      expect(() => readConfig({ ...ENV, TRUSTED_PROXIES: given })).toThrow(
        /TRUSTED_PROXIES: neither an address nor a network/,
      );
    },
  );
  test.each(['192.0.2.1', 'none', '2001:db8::/32, linklocal'])(
    'without a trusted proxy (%s) the header is ignored',
    async (given) => {
      const open = await createApi({ env: { TRUSTED_PROXIES: given } });
      const login = (i: number) =>
        open.call('login', {
          body: { email: 'admin@example.com', password: 'wrong' },
          headers: { 'x-forwarded-for': `1.2.3.${i}` },
        });
      for (let i = 0; i < 10; i++) expect((await login(i)).status).toBe(401);
      expect((await login(99)).status).toBe(429);
      await open.close();
    },
  );
  test('one password tried at many accounts from one address is limited too', async () => {
    const replies = [];
    for (let i = 0; i < 65; i++)
      replies.push((await from('203.0.113.66', 'Summer2026!', `user${i}@example.com`)).status);
    expect(replies.filter((status) => status === 401)).toHaveLength(60);
    expect((await from('198.51.100.7', PASSWORD)).status).toBe(200);
  });
  test('an account that signed in from that address before is not limited', async () => {
    await from('203.0.113.66', PASSWORD);
    for (let i = 0; i < 65; i++) await from('203.0.113.66', 'Summer2026!', `user${i}@example.com`);
    expect((await from('203.0.113.66', 'x', 'somebody@example.com')).status).toBe(429);
    expect((await from('203.0.113.66', PASSWORD)).status).toBe(200);
  });
});

describe('changed tokens', () => {
  let one: Api;
  let good: Signed;
  let personal: string;
  beforeAll(async () => {
    one = await createApi();
    good = await login(one);
    const made = await one.call('createToken', {
      as: 'admin',
      body: {
        name: 'ci',
        role: 'admin',
        expires_at: new Date(Date.now() + 86_400_000).toISOString(),
      },
    });
    personal = made.json['token'] as string;
  });
  afterAll(() => one.close());

  /**
   * Variants of a token: characters changed, added, removed or in another case, truncated, doubled,
   * with unusual characters.
   */
  const mutated = (text: string) =>
    fc.oneof(
      fc
        .tuple(
          fc.nat(text.length - 1),
          fc.constantFrom(...'A B a b 0 1 _ - . = ~ + / \t'.split(' ')),
        )
        .map(([i, c]) => text.slice(0, i) + c + text.slice(i + 1)),
      fc
        .tuple(fc.nat(text.length), fc.constantFrom(...'A a 0 _ - . = \u00e9'.split(' ')))
        .map(([i, c]) => text.slice(0, i) + c + text.slice(i)),
      fc.nat(text.length - 1).map((i) => text.slice(0, i)),
      fc.nat(text.length - 1).map((i) => text.slice(0, i) + text.slice(i + 1)),
      fc.constantFrom(
        `${text}.`,
        `${text}${text}`,
        text.toUpperCase(),
        `${text},${text}`,
        `${text.split('.').slice(0, 2).join('.')}.`,
      ),
      fc.base64String({ maxLength: 400 }),
    );
  /**
   * The last character of base64url can have unused bits. A change of only these bits is the same
   * token.
   */
  const meansTheSame = (a: string, b: string): boolean => {
    const bytes = (text: string): string =>
      text
        .split('.')
        .map((part) => Buffer.from(part, 'base64url').toString('hex'))
        .join('.');
    return a === b || bytes(a) === bytes(b);
  };
  const header = (text: string): boolean => /^[\t\x20-\x7e\x80-\xff]*$/.test(text);

  test('only the JWT that was issued is accepted', async () => {
    await fc.assert(
      fc.asyncProperty(mutated(good.token), async (token) => {
        fc.pre(header(token) && !meansTheSame(token.trim(), good.token));
        expect((await one.call('me', bearer(token))).status).toBe(401);
      }),
      { numRuns: 400 },
    );
    expect((await one.call('me', bearer(good.token))).status).toBe(200);
  });
  test('only the personal token that was issued is accepted', async () => {
    await fc.assert(
      fc.asyncProperty(mutated(personal), async (token) => {
        fc.pre(header(token) && token.trim() !== personal);
        expect((await one.call('me', bearer(token))).status).toBe(401);
      }),
      { numRuns: 300 },
    );
    expect((await one.call('me', bearer(personal))).status).toBe(200);
  });
  test('only the refresh token that was issued is accepted', async () => {
    await fc.assert(
      fc.asyncProperty(mutated(good.refresh_token), async (token) => {
        fc.pre(token !== good.refresh_token);
        expect([401, 422]).toContain((await refresh(token, one)).status);
      }),
      { numRuns: 300 },
    );
  });
  test.each([
    ['a refresh token as a bearer', () => good.refresh_token],
    ['the hash of a personal token', () => Buffer.from(personal).toString('hex')],
  ])('%s opens nothing', async (_, token) => {
    expect((await one.call('me', bearer(token()))).status).toBe(401);
  });
});
