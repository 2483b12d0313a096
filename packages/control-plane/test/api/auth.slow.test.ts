/** Signing in: passwords, the rate limit, tokens and their expiry. */
import { decodeJwt, decodeProtectedHeader, jwtVerify } from 'jose';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { createPasswords } from '../../src/api/auth/passwords.ts';
import { createApp } from '../../src/app.ts';
import { readConfig } from '../../src/config.ts';
import type { UserRecord } from '../../src/domain/platform/records.ts';
import {
  type Api,
  claimsOf,
  createApi,
  ENV,
  type Input,
  jwt,
  PASSWORD,
  rulesOf,
} from './harness.ts';

const login = (api: Api, email: string, password: string, rest: Input = {}) =>
  api.call('login', { body: { email, password }, ...rest });

describe('login', () => {
  let api: Api;
  beforeAll(async () => {
    api = await createApi();
  });
  afterAll(() => api.close());

  test('returns a token and the user', async () => {
    const reply = await login(api, 'Admin@Example.com', PASSWORD);
    expect(reply.json).toMatchObject({
      token_type: 'Bearer',
      expires_in: 3_600,
      user: { email: 'admin@example.com', role: 'admin', disabled: false },
    });
    expect((reply.json['user'] as { last_login_at: string }).last_login_at).not.toBeNull();
    const token = reply.json['token'] as string;
    expect(decodeProtectedHeader(token)).toEqual({ alg: 'HS256', typ: 'JWT' });
    const claims = decodeJwt(token);
    expect(claims).toMatchObject({ email: 'admin@example.com', role: 'admin', iss: 'berth' });
    expect((claims.exp ?? 0) - (claims.iat ?? 0)).toBe(3_600);
    const me = await api.call('me', { as: null, headers: { authorization: `Bearer ${token}` } });
    expect(me.json).toMatchObject({ email: 'admin@example.com', role: 'admin' });
    api.pass(3_601_000);
    expect(
      (await api.call('me', { as: null, headers: { authorization: `Bearer ${token}` } })).status,
    ).toBe(401);
  });
  test('a wrong password, an unknown address and an account without a password get the same answer', async () => {
    const replies = [
      await login(api, 'admin@example.com', 'wrong'),
      await login(api, 'nobody@example.com', 'wrong'),
      await login(api, 'viewer@example.com', 'wrong'),
    ];
    for (const reply of replies)
      expect([reply.status, reply.json['code'], reply.json['detail']]).toEqual([
        401,
        'wrong_credentials',
        'The e-mail address or the password is wrong',
      ]);
  });
  test.each([
    [{ email: 'x', password: 'x' }, 'email:min_length'],
    [{ email: 'xxxx', password: 'x' }, 'email:email'],
    [{ email: 'a@b.c', password: '' }, 'password:min_length'],
    [{ email: 'a@b.c', password: 'x'.repeat(1025) }, 'password:max_length'],
    [{ email: 'a@b.c' }, 'password:required'],
    [{ email: 'a@b.c', password: 'x', otp: 1 }, 'otp:unknown_field'],
  ])('the body %j gets 422', async (body, rule) => {
    expect(rulesOf(await api.call('login', { body }))).toContain(rule);
  });
});

describe('the rate limit of the login', () => {
  test('allows 10 wrong passwords per minute, then answers 429 with Retry-After even to the right one', async () => {
    const api = await createApi();
    for (let i = 0; i < 10; i++)
      expect((await login(api, 'admin@example.com', 'wrong')).status).toBe(401);
    const blocked = await login(api, 'admin@example.com', PASSWORD);
    expect([blocked.status, blocked.json['code']]).toEqual([429, 'too_many_attempts']);
    expect(Number(blocked.headers['retry-after'])).toBeGreaterThan(50);
    // Another account from the same address is not limited.
    expect((await login(api, 'viewer@example.com', 'wrong')).status).toBe(401);
    api.pass(61_000);
    expect((await login(api, 'admin@example.com', PASSWORD)).status).toBe(200);
    await api.close();
  });
  test('counts parallel attempts, and ignores the case of the e-mail address', async () => {
    const api = await createApi();
    const replies = await Promise.all(
      Array.from({ length: 30 }, (_, i) =>
        login(api, i % 2 === 0 ? 'admin@example.com' : 'ADMIN@example.com', 'wrong'),
      ),
    );
    expect(replies.filter((r) => r.status === 401)).toHaveLength(10);
    expect(replies.filter((r) => r.status === 429)).toHaveLength(20);
    await api.close();
  });
  test('is reset by a right password', async () => {
    const api = await createApi();
    for (let i = 0; i < 9; i++) await login(api, 'admin@example.com', 'wrong');
    expect((await login(api, 'admin@example.com', PASSWORD)).status).toBe(200);
    for (let i = 0; i < 10; i++)
      expect((await login(api, 'admin@example.com', 'wrong')).status).toBe(401);
    await api.close();
  });
});

describe('tokens', () => {
  test('the first secret signs, an earlier secret still verifies, a removed one does not', async () => {
    const old = await createApi({ env: { JWT_SECRET: 'old' } });
    const both = await createApi({ env: { JWT_SECRET: 'new, old' } });
    const admin = claimsOf(both.token('admin'));
    const me = (token: string) =>
      both.call('me', { as: null, headers: { authorization: `Bearer ${token}` } });
    expect((await me(jwt(admin, { secret: 'old' }))).status).toBe(200);
    expect((await me(jwt(admin, { secret: 'new' }))).status).toBe(200);
    expect((await me(jwt(admin, { secret: 'older' }))).status).toBe(401);
    const { json } = await login(both, 'admin@example.com', PASSWORD);
    const signedWith = (secret: string) => jwtVerify(String(json['token']), Buffer.from(secret));
    expect((await signedWith('new')).payload.iss).toBe('berth');
    await expect(signedWith('old')).rejects.toThrow(/signature/);
    await old.close();
    await both.close();
  });
  test('a cached token expires in time, and a changed token is never accepted', async () => {
    const api = await createApi();
    const token = String((await login(api, 'admin@example.com', PASSWORD)).json['token']);
    const me = async (given: string) =>
      (await api.call('me', { as: null, headers: { authorization: `Bearer ${given}` } })).status;
    const [header = '', claims = '', signature = ''] = token.split('.');
    const forged = [
      header,
      Buffer.from(
        JSON.stringify({ ...claimsOf(token), role: 'admin', exp: 9_999_999_999 }),
      ).toString('base64url'),
      signature,
    ];
    // One minute is left of the hour, because the duration of the test counts too.
    for (const at of [1_000, 3_539_000]) {
      expect([
        await me(token),
        await me(forged.join('.')),
        await me(`${header}.${claims}.`),
      ]).toEqual([200, 401, 401]);
      api.pass(at);
    }
    expect([await me(token), await me(token)]).toEqual([200, 200]);
    api.pass(60_000);
    expect([await me(token), await me(token)]).toEqual([401, 401]);
    await api.close();
  });
  test('a disabled or deleted user is refused within 5 s', async () => {
    let disabled = false;
    const api = await createApi({
      stores: (real) => ({
        ...real,
        users: {
          ...real.users,
          findByEmail: async (e) => withDisabled(await real.users.findByEmail(e), disabled),
        },
        apiSessions: {
          ...real.apiSessions,
          async find(id, now) {
            const found = await real.apiSessions.find(id, now);
            return found === null ? null : { ...found, user: { ...found.user, disabled } };
          },
        },
      }),
    });
    expect((await api.call('me', { as: 'admin' })).status).toBe(200);
    disabled = true;
    await expect
      .poll(async () => (await api.call('me', { as: 'admin' })).status, {
        timeout: 5_000,
        interval: 100,
      })
      .toBe(401);
    expect((await login(api, 'admin@example.com', PASSWORD)).status).toBe(401);
    await api.close();
  });
  test('without JWT_SECRET the control plane generates a secret and keeps it', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'berth-jwt-'));
    const config = readConfig({
      ...ENV,
      JWT_SECRET: '',
      DATABASE_URL: `sqlite:${folder}/berth.db`,
    });
    const options = { log: silentLogger(), loops: false, passwordCost: { logN: 4, r: 8, p: 1 } };
    const first = await createApp(config, options);
    const answer = await first.server.inject({
      method: 'POST',
      url: '/api/auth/login',
      payload: { email: 'admin@example.com', password: PASSWORD },
    });
    const { token } = answer.json<{ token: string }>();
    await first.close();
    const second = await createApp(config, options);
    expect(
      (
        await second.server.inject({
          url: '/api/auth/me',
          headers: { authorization: `Bearer ${token}` },
        })
      ).statusCode,
    ).toBe(200);
    await second.close();
    await rm(folder, { recursive: true });
  });
});

const withDisabled = (user: UserRecord | null, disabled: boolean): UserRecord | null =>
  user === null ? null : { ...user, disabled };

describe('the first admin', () => {
  test('gets a generated password in a file of mode 0600; a second start changes neither', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'berth-admin-'));
    const config = readConfig({
      ...ENV,
      ADMIN_PASSWORD: '',
      ADMIN_EMAILS: '',
      DATABASE_URL: `sqlite:${folder}/deep/berth.db`,
    });
    const options = { log: silentLogger(), loops: false, passwordCost: { logN: 4, r: 8, p: 1 } };
    const file = join(folder, 'deep/admin-password');
    let password = '';
    for (let start = 0; start < 2; start++) {
      const app = await createApp(config, options);
      const text = await readFile(file, 'utf8');
      if (start === 1) expect(text.trim()).toBe(password);
      password = text.trim();
      expect(password.length).toBeGreaterThanOrEqual(24);
      expect((await stat(file)).mode & 0o777).toBe(0o600);
      const answer = await app.server.inject({
        method: 'POST',
        url: '/api/auth/login',
        payload: { email: 'admin@berth.localhost', password },
      });
      expect(answer.statusCode).toBe(200);
      expect(await app.stores.users.count()).toBe(1);
      await app.close();
    }
    await rm(folder, { recursive: true });
  });

  async function start(password: string): Promise<string[]> {
    const folder = await mkdtemp(join(tmpdir(), 'berth-admin-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const config = readConfig({
      ...ENV,
      ADMIN_PASSWORD: password,
      DATABASE_URL: `sqlite:${folder}/berth.db`,
    });
    const log = silentLogger();
    const warn = vi.spyOn(log, 'warn');
    const app = await createApp(config, {
      log,
      loops: false,
      passwordCost: { logN: 4, r: 8, p: 1 },
    });
    await app.close();
    return warn.mock.calls.map((call) => String(call[1]));
  }
  test('cannot get a password that no sign-in accepts', () =>
    expect(start('x'.repeat(1025))).rejects.toThrow(
      'ADMIN_PASSWORD: must have at most 1024 characters',
    ));
  test('with a short password is created, and the log says so', async () => {
    expect(await start('too short')).toContainEqual(
      expect.stringContaining('ADMIN_PASSWORD is shorter'),
    );
    expect(await start('long enough')).not.toContainEqual(
      expect.stringContaining('ADMIN_PASSWORD'),
    );
  });
});

describe('password hashes', () => {
  const passwords = createPasswords({ logN: 4, r: 8, p: 1 });
  test('contain their cost and a random salt', async () => {
    const [a, b] = [await passwords.hash('x'), await passwords.hash('x')];
    expect(a).toMatch(/^scrypt\$4\$8\$1\$[\w-]{22}\$[\w-]{43}$/);
    expect(a).not.toBe(b);
    expect(await passwords.verify('x', a)).toBe(true);
    expect(await passwords.verify('y', a)).toBe(false);
    expect(await createPasswords({ logN: 5, r: 8, p: 1 }).verify('x', a)).toBe(true);
  });
  test.each([null, '', 'plain', 'scrypt$4$8$1$short$x', 'bcrypt$4$8$1$AAAAAAAAAAAAAAAAAAAAAA$x'])(
    'the invalid hash %j matches no password',
    async (hash) => {
      expect(await passwords.verify('', hash)).toBe(false);
    },
  );
  test('checking the password of an unknown account takes as long as that of a known one', async () => {
    const slow = createPasswords({ logN: 13, r: 8, p: 1 });
    const known = await slow.hash('x');
    const took = async (hash: string | null): Promise<number> => {
      const began = process.cpuUsage();
      await slow.verify('y', hash);
      const { user, system } = process.cpuUsage(began);
      return user + system;
    };
    const times = { known: [] as number[], none: [] as number[] };
    for (let i = 0; i < 15; i++) {
      times.known.push(await took(known));
      times.none.push(await took(null));
    }
    const median = (all: number[]): number => all.toSorted((a, b) => a - b)[7] ?? 0;
    // Without hashing it would take a hundredth of the time.
    expect(median(times.none)).toBeGreaterThan(median(times.known) / 3);
    expect(median(times.none)).toBeLessThan(median(times.known) * 3);
  });
  test('another Unicode form of the same characters is the same password', async () => {
    expect(await passwords.verify('e\u0301', await passwords.hash('é'))).toBe(true);
  });
  test('too many concurrent checks are refused and not queued without a limit', async () => {
    const all = await Promise.allSettled(Array.from({ length: 100 }, () => passwords.hash('x')));
    expect(all.filter((r) => r.status === 'fulfilled')).toHaveLength(66);
    expect(await passwords.verify('x', await passwords.hash('x'))).toBe(true);
  });
});
