/**
 * Two control planes with one real PostgreSQL: rights that end at one of them end at the other, and
 * in its policy.
 */
import { randomBytes } from 'node:crypto';
import { copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { createClient, type Client } from '@berth/wire/client';
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type App, createApp } from '../../src/app.ts';
import { readConfig } from '../../src/config.ts';
import { ENV, GATEWAY_SECRET, PASSWORD } from './harness.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());

describe.skipIf(server === undefined)(
  `two control planes${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    const apps: App[] = [];
    const urls: string[] = [];
    let STATE_DIR = '';
    beforeAll(async () => {
      STATE_DIR = await mkdtemp(join(tmpdir(), 'berth-state-'));
      const DATABASE_URL = (await server?.createDatabase('two')) ?? '';
      for (let i = 0; i < 2; i++) {
        const config = readConfig({ ...ENV, DATABASE_URL, JWT_SECRET: undefined, STATE_DIR });
        const app = await createApp(config, {
          log: silentLogger(),
          passwordCost: { logN: 4, r: 8, p: 1 },
        });
        apps.push(app);
        urls.push(await app.listen());
      }
    });
    afterAll(async () => {
      for (const app of apps) await app.close();
      await rm(STATE_DIR, { recursive: true, force: true });
    });

    const gateway = (i: number): Client =>
      createClient({
        baseUrl: urls[i] ?? '',
        headers: () => ({ 'x-gateway-secret': GATEWAY_SECRET }),
      });
    const person = (i: number, token = ''): Client =>
      createClient({
        baseUrl: urls[i] ?? '',
        headers: () => ({ authorization: `Bearer ${token}` }),
      });
    const signIn = () =>
      person(0).call('login', { body: { email: 'admin@example.com', password: PASSWORD } });
    const statusOf = (call: Promise<unknown>): Promise<unknown> =>
      call.then(
        () => 200,
        (error: { status?: number }) => error.status,
      );

    /** Measures the time from a change at one until the held answer of the other. */
    async function follows(change: () => Promise<unknown>): Promise<number> {
      const { etag } = await gateway(1).exchange('gatewayPolicy', {});
      const held = gateway(1).exchange('gatewayPolicy', {
        query: { wait: 30 },
        headers: { 'if-none-match': etag ?? '' },
        timeoutMs: 40_000,
      });
      await change();
      const changed = performance.now();
      const { status } = await held;
      expect(status).toBe(200);
      return performance.now() - changed;
    }

    test('a change at one reaches a gateway held at the other well within 5 s', async () => {
      const { token } = await signIn();
      const me = person(0, token);
      const changes: (() => Promise<unknown>)[] = [
        () =>
          me.call('createProject', {
            body: { name: 'shop', git_url: 'https://git.example.com/a.git', domain_prefix: 'shop' },
          }),
        () =>
          gateway(0).call('revokeSession', {
            body: {
              id: 's1',
              email: 'a@b.c',
              expires_at: new Date(Date.now() + 60_000).toISOString(),
            },
          }),
        async () => {
          const { id } = await me.call('createUser', {
            body: { email: 'eve@example.com', role: 'viewer' },
          });
          await me.call('patchUser', { params: { id }, body: { disabled: true } });
        },
      ];
      for (const change of changes) expect(await follows(change)).toBeLessThan(4_000);
      const { answer } = await gateway(1).exchange('gatewayPolicy', {});
      expect(answer).toMatchObject({
        projects: [{ hosts: ['shop.berth.localhost'] }],
        disabled_users: ['eve@example.com'],
        revoked_sessions: [{ id: 's1' }],
      });
    });

    test('a code is redeemed only once, at either', async () => {
      const body = { id: 'c1', expires_at: new Date(Date.now() + 60_000).toISOString() };
      const all = await Promise.all(
        [0, 1, 0, 1, 0, 1].map((i) => statusOf(gateway(i).call('redeemCode', { body }))),
      );
      expect(all.filter((status) => status === 200)).toHaveLength(1);
      expect(all.filter((status) => status === 409)).toHaveLength(5);
    });

    test('a device gets one token, from either', async () => {
      const asker = { address: '203.0.113.9', user_agent: 'curl' };
      const { device_code, user_code } = await gateway(0).call('createDeviceCode', { body: asker });
      const identity = { email: 'ann@example.com', name: null, avatar_url: null, provider: 'oidc' };
      await gateway(1).call('decideDeviceCode', {
        body: { user_code, address: '::1', approve: true, identity },
      });
      const polls = await Promise.all(
        [0, 1, 0, 1].map((i) => gateway(i).call('pollDeviceCode', { body: { device_code } })),
      );
      expect(polls.filter((p) => p.result === 'issued')).toHaveLength(1);
      expect(polls.filter((p) => p.result === 'invalid_grant')).toHaveLength(3);
    });

    test('a session that ends at one ends at the other within 5 s; a refresh token works once, at either', async () => {
      const first = await signIn();
      expect(await statusOf(person(1, first.token).call('me', {}))).toBe(200);
      const next = await person(1).call('refresh', {
        body: { refresh_token: first.refresh_token },
      });
      expect(await statusOf(person(0, next.token).call('me', {}))).toBe(200);
      await person(0, next.token).call('logout', {});
      await expect
        .poll(() => statusOf(person(1, next.token).call('me', {})), {
          timeout: 5_000,
          interval: 50,
        })
        .toBe(401);
      expect(
        await statusOf(person(1).call('refresh', { body: { refresh_token: next.refresh_token } })),
      ).toBe(401);
    });

    test('of two admins who demote each other at the same moment one stays admin', async () => {
      const { token } = await signIn();
      const made = await Promise.all(
        ['a', 'b'].map((n) =>
          person(0, token).call('createUser', {
            body: { email: `${n}@example.com`, role: 'admin' },
          }),
        ),
      );
      // Write past the API, so that the admin of the settings does not count.
      const first = await apps[0]?.stores.users.findByEmail('admin@example.com');
      await apps[0]?.stores.users.patch(first?.id ?? '', { role: 'viewer' });
      const gone = await Promise.allSettled(
        made.map(async (user, i) => apps[i]?.stores.users.remove(user.id, Date.now())),
      );
      expect(gone.filter((r) => r.status === 'fulfilled')).toHaveLength(1);
    });

    test('a second control plane with another SECRETS_KEY does not start; with the same file it does, and a dump has no secret', async () => {
      const databaseUrl = (await server?.createDatabase('keys')) ?? '';
      const other = await mkdtemp(join(tmpdir(), 'berth-state-'));
      const start = (folder: string, secretsKey?: string): Promise<App> =>
        createApp(
          readConfig({
            ...ENV,
            DATABASE_URL: databaseUrl,
            SECRETS_KEY: secretsKey,
            STATE_DIR: folder,
          }),
          {
            log: silentLogger(),
            loops: false,
            passwordCost: { logN: 4, r: 8, p: 1 },
          },
        );
      const first = await start(STATE_DIR);
      const { id } = await first.stores.projects.create(
        { name: 'keys', git_url: 'https://git.test/k.git', domain_prefix: 'keys' },
        1,
      );
      const canary = `canary-${randomBytes(8).toString('hex')}`;
      const address = await first.listen();
      const signedIn = await createClient({ baseUrl: address }).call('login', {
        body: { email: 'admin@example.com', password: PASSWORD },
      });
      const admin = createClient({
        baseUrl: address,
        headers: () => ({ authorization: `Bearer ${signedIn.token}` }),
      });
      await admin.call('putSecret', { params: { id, name: 'TOKEN' }, body: { value: canary } });
      // It generates a key of its own and finds that the database has another one.
      await expect(start(other)).rejects.toThrow(
        /secrets-key is missing, and the database needs it/,
      );
      await expect(start(other, randomBytes(32).toString('base64'))).rejects.toThrow(
        /does not have the key that encrypts the secrets/,
      );
      await copyFile(join(STATE_DIR, 'secrets-key'), join(other, 'secrets-key'));
      const second = await start(other);
      expect((await second.server.inject({ url: '/readyz' })).body).toContain(
        '0 of 1 project keys are wrapped by an earlier SECRETS_KEY',
      );
      const dump = (await server?.dump('keys')) ?? '';
      expect(dump).toContain('TOKEN');
      for (const form of [canary, Buffer.from(canary).toString('base64').replace(/=+$/, '')])
        expect(dump).not.toContain(form);
      await Promise.all([first.close(), second.close()]);
      await rm(other, { recursive: true });
    });

    test('/readyz reports a control plane with another JWT secret, until it has stopped', async () => {
      const databaseUrl = (await server?.createDatabase('secrets')) ?? '';
      const other = await mkdtemp(join(tmpdir(), 'berth-state-'));
      await writeFile(join(other, 'jwt-secret'), 'o'.repeat(40), { mode: 0o600 });
      const start = (folder: string): Promise<App> =>
        createApp(
          readConfig({
            ...ENV,
            DATABASE_URL: databaseUrl,
            JWT_SECRET: undefined,
            STATE_DIR: folder,
          }),
          {
            log: silentLogger(),
            loops: false,
            passwordCost: { logN: 4, r: 8, p: 1 },
          },
        );
      const first = await start(STATE_DIR);
      const second = await start(other);
      const parts = async (app: App): Promise<unknown> =>
        (await app.server.inject({ url: '/readyz' })).json<{
          parts: { name: string; ok: boolean }[];
        }>().parts;
      expect(await parts(second)).toContainEqual(
        expect.objectContaining({ name: 'jwt secret', ok: false, required: false }),
      );
      await second.close();
      const third = await start(STATE_DIR);
      expect(await parts(third)).not.toContainEqual(
        expect.objectContaining({ name: 'jwt secret' }),
      );
      await Promise.all([first.close(), third.close()]);
      await rm(other, { recursive: true });
    });
  },
);
