/**
 * Personal API tokens and device tokens: what they allow, what they never allow, and who revokes
 * them.
 */
import { ROUTES, type RouteName } from '@berth/wire/routes';
import { ROLES, type Role } from '@berth/wire/vocabulary';
import { beforeEach, describe, expect, test } from 'vitest';
import { type Api, createApi, createProject, rulesOf } from './harness.ts';

let api: Api;
beforeEach(async () => {
  api = await createApi();
  return () => api.close();
});

const DAY = 86_400_000;
const inDays = (days: number): string => new Date(Date.now() + days * DAY).toISOString();
const make = (as: Role, more: Record<string, unknown> = {}) =>
  api.call('createToken', { as, body: { name: 'ci', role: as, expires_at: inDays(30), ...more } });
const tokenOf = async (as: Role, more: Record<string, unknown> = {}): Promise<string> =>
  (await make(as, more)).json['token'] as string;
const bearer = (token: string) => ({ as: null, headers: { authorization: `Bearer ${token}` } });
const idOf = async (email: string): Promise<string> =>
  (await api.stores.users.findByEmail(email))?.id ?? '';

describe('personal tokens', () => {
  test('are shown once, and act as their owner', async () => {
    const made = await make('developer');
    const { token, ...shown } = made.json;
    expect(token).toMatch(/^berthpat_[\w-]{43}$/);
    expect(shown).toMatchObject({
      name: 'ci',
      role: 'developer',
      last_used_at: null,
      user_id: await idOf('developer@example.com'),
    });
    expect((await api.call('me', bearer(String(token)))).json).toMatchObject({
      email: 'developer@example.com',
      role: 'developer',
    });
    const listed = await api.call('listTokens', { as: 'developer' });
    expect(listed.json['items']).toMatchObject([{ id: shown['id'], name: 'ci' }]);
    expect((listed.json['items'] as { last_used_at: unknown }[])[0]?.last_used_at).not.toBeNull();
    expect(listed.text).not.toContain(String(token));
    expect(listed.text).not.toContain('hash');
  });
  test.each([
    [{ role: 'admin' }, 'role:above_own'],
    [{ expires_at: inDays(-1) }, 'expires_at:past'],
    [{ expires_at: inDays(367) }, 'expires_at:too_far'],
    [{ expires_at: undefined }, 'expires_at:required'],
    [{ expires_at: 'tomorrow' }, 'expires_at:date-time'],
    [{ name: '' }, 'name:min_length'],
    [{ user_id: 'x' }, 'user_id:unknown_field'],
  ])('%j is 422', async (more, rule) => {
    expect(rulesOf(await make('developer', more))).toEqual([rule]);
  });
  test('end at their expiry', async () => {
    const token = await tokenOf('viewer', { expires_at: inDays(1) });
    expect((await api.call('me', bearer(token))).status).toBe(200);
    api.pass(DAY + 1);
    expect((await api.call('me', bearer(token))).status).toBe(401);
  });
  test('their owner and admins revoke them at once; for everybody else they do not exist', async () => {
    const [one, two] = [await make('developer'), await make('developer')];
    expect((await api.call('me', bearer(String(one.json['token'])))).status).toBe(200);
    const remove = (as: Role, made: typeof one) =>
      api.call('deleteToken', { as, params: { id: String(made.json['id']) } });
    expect((await remove('viewer', one)).status).toBe(404);
    expect((await remove('developer', one)).status).toBe(204);
    expect((await api.call('me', bearer(String(one.json['token'])))).status).toBe(401);
    expect((await remove('admin', two)).status).toBe(204);
    expect((await api.call('me', bearer(String(two.json['token'])))).status).toBe(401);
  });
  test('are listed by their owner, and all of them by admins', async () => {
    await make('developer');
    const user_id = await idOf('developer@example.com');
    expect((await api.call('listTokens', { as: 'viewer' })).json['items']).toEqual([]);
    expect((await api.call('listTokens', { as: 'viewer', query: { user_id } })).status).toBe(403);
    expect(
      (await api.call('listTokens', { as: 'admin', query: { user_id } })).json['items'],
    ).toHaveLength(1);
  });
  test('cannot create tokens, passwords or sessions', async () => {
    const token = bearer(await tokenOf('admin'));
    const more = await api.call('createToken', {
      ...token,
      body: { name: 'x', role: 'viewer', expires_at: inDays(1) },
    });
    expect([more.status, more.json['code']]).toEqual([403, 'forbidden']);
    expect(
      (
        await api.call('changePassword', {
          ...token,
          body: { old_password: 'x', new_password: 'long enough for it' },
        })
      ).status,
    ).toBe(403);
    expect((await api.call('logout', token)).status).toBe(403);
    expect((await api.call('exchange', token)).status).toBe(401);
    expect(
      (await api.call('refresh', { body: { refresh_token: token.headers.authorization.slice(7) } }))
        .status,
    ).toBe(401);
  });
  test('end with the account, and are refused while it is disabled', async () => {
    const token = bearer(await tokenOf('developer'));
    const id = await idOf('developer@example.com');
    await api.call('patchUser', { params: { id }, body: { disabled: true } });
    expect((await api.call('me', token)).status).toBe(401);
    await api.call('patchUser', { params: { id }, body: { disabled: false } });
    expect((await api.call('me', token)).status).toBe(200);
    await api.call('deleteUser', { params: { id } });
    expect((await api.call('me', token)).status).toBe(401);
  });
  test('are limited to 100 per person', async () => {
    for (let i = 0; i < 100; i++) expect((await make('viewer')).status).toBe(201);
    expect((await make('viewer')).json['code']).toBe('too_many_tokens');
    expect((await make('developer')).status).toBe(201);
  });
  test('hide env values by their own role, whatever the role of the owner', async () => {
    const id = await createProject(api, { env: { KEY: 'canary-value' } });
    const asViewer = await api.call('getProject', {
      ...bearer(await tokenOf('admin', { role: 'viewer' })),
      params: { id },
    });
    expect([asViewer.status, asViewer.json['env_names'], asViewer.json['env_hidden']]).toEqual([
      200,
      ['KEY'],
      true,
    ]);
    const asDeveloper = await api.call('getProject', {
      ...bearer(await tokenOf('admin', { role: 'developer' })),
      params: { id },
    });
    expect(asDeveloper.json['env']).toEqual({ KEY: 'canary-value' });
  });
});

describe('the lower role of token and owner applies to every route', () => {
  const names = (Object.keys(ROUTES) as RouteName[]).filter((n) =>
    (ROLES as readonly string[]).includes(ROUTES[n].who),
  );
  const rank = (role: Role): number => ROLES.indexOf(role);
  test.each(ROLES.flatMap((token) => ROLES.map((owner) => [token, owner] as const)))(
    'a token with the role %s of an owner with the role %s',
    async (role, owner) => {
      const made = await tokenOf('admin', { role });
      const id = await idOf('admin@example.com');
      await api.stores.users.create(
        { email: 'other@example.com', role: 'admin', password_hash: null },
        Date.now(),
      );
      await api.stores.users.patch(id, { role: owner });
      api.changes.notify('access');
      const may = Math.min(rank(role), rank(owner));
      for (const name of names) {
        const reply = await api.call(name, { ...bearer(made), params: { id: 'nothing' } });
        const allowed = may >= rank(ROUTES[name].who as Role);
        // These routes refuse personal tokens with 403 by themselves.
        const bySession = ['logout', 'createToken', 'changePassword'].includes(name);
        if (!allowed)
          expect([name, reply.status, reply.json['code']]).toEqual([name, 403, 'forbidden']);
        else if (!bySession)
          expect([name, [401, 403].includes(reply.status)]).toEqual([name, false]);
        expect(reply.status).toBeLessThan(500);
      }
    },
  );
});

describe('device tokens', () => {
  async function device(email: string): Promise<void> {
    const identity = { email, name: null, avatar_url: null, provider: 'oidc' };
    const { json } = await api.call('createDeviceCode', {
      body: { address: '203.0.113.9', user_agent: 'curl' },
    });
    await api.call('decideDeviceCode', {
      body: { user_code: json['user_code'], address: '::1', approve: true, identity },
    });
    await api.call('pollDeviceCode', { body: { device_code: json['device_code'] } });
  }
  const list = async (as: Role, query = {}): Promise<{ id: string; email: string }[]> => {
    const reply = await api.call('listDeviceTokens', { as, query });
    expect(reply.status, reply.text).toBe(200);
    return reply.json['items'] as { id: string; email: string }[];
  };
  const inPolicy = async (): Promise<number> =>
    ((await api.call('gatewayPolicy')).json['device_tokens'] as unknown[]).length;

  test('are listed by their owner, and all of them by admins; a revoked one leaves the policy', async () => {
    await device('viewer@example.com');
    await device('nobody@example.com');
    expect((await list('viewer')).map((t) => t.email)).toEqual(['viewer@example.com']);
    expect(await list('developer')).toEqual([]);
    expect((await list('admin', { all: true })).map((t) => t.email).toSorted()).toEqual([
      'nobody@example.com',
      'viewer@example.com',
    ]);
    const [theirs] = await list('admin', { email: 'Nobody@example.com' });
    for (const query of [{ all: true }, { email: 'nobody@example.com' }])
      expect((await api.call('listDeviceTokens', { as: 'developer', query })).status).toBe(403);
    expect(await inPolicy()).toBe(2);
    const remove = (as: Role, id = '') => api.call('deleteDeviceToken', { as, params: { id } });
    expect((await remove('viewer', theirs?.id)).status).toBe(404);
    expect((await remove('admin', theirs?.id)).status).toBe(204);
    const [mine] = await list('viewer');
    expect((await remove('viewer', mine?.id)).status).toBe(204);
    await expect.poll(inPolicy).toBe(0);
  });
  test('leave the policy with the account of their owner', async () => {
    await device('viewer@example.com');
    expect(await inPolicy()).toBe(1);
    await api.call('patchUser', {
      params: { id: await idOf('viewer@example.com') },
      body: { disabled: true },
    });
    await expect.poll(inPolicy).toBe(0);
  });
});
