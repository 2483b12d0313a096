/** Users: create, change and delete them. One admin always remains. */
import { beforeEach, describe, expect, test } from 'vitest';
import { type Api, createApi, PASSWORD, rulesOf } from './harness.ts';

let api: Api;
beforeEach(async () => {
  api = await createApi();
  return () => api.close();
});

const create = (body: Record<string, unknown>) => api.call('createUser', { body });
const patch = (id: string, body: Record<string, unknown>) =>
  api.call('patchUser', { params: { id }, body });
const idOf = async (email: string): Promise<string> =>
  (await api.stores.users.findByEmail(email))?.id ?? '';
const login = async (email: string, password: string): Promise<number> =>
  (await api.call('login', { body: { email, password } })).status;

describe('users', () => {
  test('are created, listed, changed and deleted', async () => {
    const made = await create({ email: 'Eve@Example.com', role: 'developer', password: PASSWORD });
    expect(made.json).toEqual({
      id: made.json['id'],
      email: 'eve@example.com',
      role: 'developer',
      disabled: false,
      last_login_at: null,
    });
    expect(await login('eve@example.com', PASSWORD)).toBe(200);
    const id = String(made.json['id']);
    expect((await patch(id, { role: 'viewer' })).json).toMatchObject({
      role: 'viewer',
      disabled: false,
    });
    expect((await patch(id, { password: 'another long one' })).status).toBe(200);
    expect([
      await login('eve@example.com', PASSWORD),
      await login('eve@example.com', 'another long one'),
    ]).toEqual([401, 200]);
    expect((await patch(id, { password: null })).status).toBe(200);
    expect(await login('eve@example.com', 'another long one')).toBe(401);
    const listed = await api.call('listUsers', { query: { limit: 2 } });
    expect((listed.json['items'] as { email: string }[]).map((u) => u.email)).toEqual([
      'admin@example.com',
      'developer@example.com',
    ]);
    const rest = await api.call('listUsers', {
      query: { limit: 2, cursor: String(listed.json['next_cursor']) },
    });
    expect((rest.json['items'] as { email: string }[]).map((u) => u.email)).toEqual([
      'eve@example.com',
      'viewer@example.com',
    ]);
    expect(listed.text + rest.text).not.toMatch(/scrypt|password/);
    expect((await api.call('deleteUser', { params: { id } })).status).toBe(204);
    expect((await api.call('deleteUser', { params: { id } })).status).toBe(404);
    expect((await patch(id, { role: 'admin' })).status).toBe(404);
  });

  test.each([
    [{ email: 'x', role: 'viewer' }, 'email:min_length'],
    [{ email: 'a@b.c', role: 'root' }, 'role:enum'],
    [{ email: 'a@b.c' }, 'role:required'],
    [{ email: 'a@b.c', role: 'viewer', password: 'short' }, 'password:min_length'],
    [{ email: 'a@b.c', role: 'viewer', disabled: true }, 'disabled:unknown_field'],
    [
      { email: 'a@b.c', role: 'viewer', password_hash: 'scrypt$4$8$1$x$y' },
      'password_hash:unknown_field',
    ],
  ])('%j is 422', async (body, rule) => {
    expect(rulesOf(await create(body))).toContain(rule);
  });
  test.each([
    [{}, 'body:min_properties'],
    [{ email: 'other@b.c' }, 'email:unknown_field'],
    [{ role: null }, 'role:type'],
  ])('a change of %j is 422', async (body, rule) => {
    expect(rulesOf(await patch(await idOf('viewer@example.com'), body))).toContain(rule);
  });
  test('change their own password only with the old one', async () => {
    expect(
      rulesOf(await patch(await idOf('admin@example.com'), { password: 'another long one' })),
    ).toEqual(['password:own']);
    expect(await login('admin@example.com', PASSWORD)).toBe(200);
  });
});

describe('one admin always remains', () => {
  beforeEach(async () => {
    await api.close();
    api = await createApi({ env: { ADMIN_EMAILS: undefined } });
    // Without ADMIN_EMAILS the first account is admin@BASE_DOMAIN. Delete it, so that
    // admin@example.com is the only admin.
    await api.call('deleteUser', { params: { id: await idOf('admin@berth.localhost') } });
  });
  test.each([
    ['deleted', (id: string) => api.call('deleteUser', { params: { id } })],
    ['demoted', (id: string) => patch(id, { role: 'developer' })],
    ['disabled', (id: string) => patch(id, { disabled: true })],
  ])('the last admin cannot be %s', async (_, doIt) => {
    const id = await idOf('admin@example.com');
    const reply = await doIt(id);
    expect([reply.status, reply.json['code']]).toEqual([409, 'last_admin']);
    expect((await api.call('me', { as: 'admin' })).json).toMatchObject({
      role: 'admin',
      disabled: false,
    });
    await create({ email: 'second@example.com', role: 'admin' });
    expect((await doIt(id)).status).toBeLessThan(300);
  });
});

describe('ADMIN_EMAILS', () => {
  test.each([{ role: 'viewer' }, { disabled: true }])('cannot be changed to %j', async (body) => {
    await create({ email: 'second@example.com', role: 'admin' });
    const reply = await patch(await idOf('admin@example.com'), body);
    expect([reply.status, reply.json['code']]).toEqual([409, 'admin_by_settings']);
    const gone = await api.call('deleteUser', { params: { id: await idOf('admin@example.com') } });
    expect([gone.status, gone.json['code']]).toEqual([409, 'admin_by_settings']);
  });
  test('may be changed otherwise', async () => {
    expect(
      (await patch(await idOf('admin@example.com'), { role: 'admin', disabled: false })).status,
    ).toBe(200);
  });
  test('can be created only as admin', async () => {
    await api.close();
    api = await createApi({ env: { ADMIN_EMAILS: 'admin@example.com, later@example.com' } });
    expect((await create({ email: 'later@example.com', role: 'viewer' })).json['code']).toBe(
      'admin_by_settings',
    );
    expect((await create({ email: 'later@example.com', role: 'admin' })).status).toBe(201);
  });
  test('a demoted and disabled user is admin again after a start with the setting', async () => {
    const { stores } = api;
    const admin = await stores.users.create(
      { email: 'lost@example.com', role: 'viewer', password_hash: null },
      Date.now(),
    );
    await stores.users.patch(admin.id, { disabled: true });
    await stores.users.makeAdmins(['lost@example.com']);
    expect(await stores.users.get(admin.id)).toMatchObject({ role: 'admin', disabled: false });
  });
});

describe('the rights of a user end at once', () => {
  test.each(['disabled', 'deleted'])('when the user is %s', async (how) => {
    const id = await idOf('developer@example.com');
    expect((await api.call('me', { as: 'developer' })).status).toBe(200);
    if (how === 'disabled') await patch(id, { disabled: true });
    else await api.call('deleteUser', { params: { id } });
    expect((await api.call('me', { as: 'developer' })).status).toBe(401);
  });
  test('when the user is demoted', async () => {
    expect((await api.call('listUsers', { as: 'developer' })).status).toBe(403);
    const id = await idOf('developer@example.com');
    await patch(id, { role: 'admin' });
    expect((await api.call('listUsers', { as: 'developer' })).status).toBe(200);
    await patch(id, { role: 'viewer' });
    expect((await api.call('createProject', { as: 'developer', body: {} })).status).toBe(403);
  });
});

describe('an account that was deleted', () => {
  const ann = { email: 'ann@example.com', name: null, avatar_url: null, provider: 'oidc' };
  const tombstones = async (): Promise<unknown> =>
    (await api.call('gatewayPolicy')).json['deleted_users'];
  const askCode = async (): Promise<Record<string, unknown>> =>
    (await api.call('createDeviceCode', { body: { address: '203.0.113.9', user_agent: 'curl' } }))
      .json;
  const approve = (user_code: unknown) =>
    api.call('decideDeviceCode', {
      body: { user_code, address: '198.51.100.1', approve: true, identity: ann },
    });
  const poll = async (device_code: unknown): Promise<unknown> =>
    (await api.call('pollDeviceCode', { body: { device_code } })).json['result'];
  const remove = async (): Promise<void> => {
    expect((await api.call('deleteUser', { params: { id: await idOf(ann.email) } })).status).toBe(
      204,
    );
  };

  test.each([true, false])(
    'leaves a tombstone in the policy (disabled before: %s) for the longest lifetime of a session',
    async (disabled) => {
      await create({ email: 'Ann@Example.com', role: 'viewer' });
      expect(await tombstones()).toEqual([]);
      if (disabled) await patch(await idOf(ann.email), { disabled: true });
      const from = Date.now();
      await remove();
      await expect.poll(tombstones).toMatchObject([{ email: 'ann@example.com' }]);
      const [{ deleted_at } = { deleted_at: '' }] = (await tombstones()) as {
        deleted_at: string;
      }[];
      expect(Date.parse(deleted_at)).toBeGreaterThanOrEqual(from);
      expect(Date.parse(deleted_at)).toBeLessThanOrEqual(Date.now());
      // After a second deletion there is one tombstone, with the later time.
      api.pass(60_000);
      await create({ email: ann.email, role: 'viewer' });
      await remove();
      await expect
        .poll(async () =>
          ((await tombstones()) as { deleted_at: string }[]).map(
            (t) => Date.parse(t.deleted_at) > from + 59_000,
          ),
        )
        .toEqual([true]);
      const end = Date.now() + 60_000 + 91 * 86_400_000;
      expect((await api.stores.policy.read(end - 10_000)).deleted).toHaveLength(1);
      expect((await api.stores.policy.read(end + 10_000)).deleted).toEqual([]);
      expect([
        await api.stores.users.sweep(end - 10_000),
        await api.stores.users.sweep(end + 10_000),
      ]).toEqual([0, 1]);
    },
  );

  test('leaves no device token, also none that was approved earlier or is approved right afterwards', async () => {
    await create({ email: ann.email, role: 'viewer' });
    const before = await askCode();
    expect((await approve(before['user_code'])).status).toBe(204);
    const after = await askCode();
    await remove();
    expect(await poll(before['device_code'])).toBe('access_denied');
    // A gateway may not know of the deletion yet.
    expect((await approve(after['user_code'])).json['code']).toBe('account_disabled');
    api.pass(61_000);
    expect((await approve(after['user_code'])).status).toBe(204);
    expect(await poll(after['device_code'])).toBe('issued');
  });

  test('ends the API sessions of its owner, even if a new account gets the address', async () => {
    await create({ email: ann.email, role: 'viewer', password: PASSWORD });
    const { json } = await api.call('login', { body: { email: ann.email, password: PASSWORD } });
    const me = async (): Promise<number> =>
      (
        await api.call('me', {
          as: null,
          headers: { authorization: `Bearer ${String(json['token'])}` },
        })
      ).status;
    expect(await me()).toBe(200);
    await remove();
    await create({ email: ann.email, role: 'admin', password: 'another long one' });
    expect(await me()).toBe(401);
    expect(
      (await api.call('refresh', { body: { refresh_token: json['refresh_token'] } })).status,
    ).toBe(401);
    expect([await login(ann.email, PASSWORD), await login(ann.email, 'another long one')]).toEqual([
      401, 200,
    ]);
  });
});
