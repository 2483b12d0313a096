/** Sessions and tokens of the API, removal of users, and the audit log. */
import { expect, test } from 'vitest';
import type { AuditRecord } from '../../src/domain/identity/identity-records.ts';
import type { UserRecord } from '../../src/domain/platform/records.ts';
import type { AllStores } from '../../src/store/open.ts';
import { codeOf, NOW, open } from './fixtures.ts';

const LIFE = 30 * 86_400_000;
const userIn = (
  stores: AllStores,
  name = 'ann',
  role: UserRecord['role'] = 'developer',
): Promise<UserRecord> =>
  stores.users.create({ email: `${name}@example.org`, role, password_hash: 'h' }, NOW);
const sessionIn = (stores: AllStores, user: UserRecord, id = 's1', now = NOW): Promise<boolean> =>
  stores.apiSessions.create(
    { id, user_id: user.id, refresh_hash: `r-${id}`, address: '127.0.0.1', expires_at: now + LIFE },
    now,
  );
const page = { limit: 100, cursor: null };

test('a session is found with its current user until it ends', async () => {
  const stores = await open();
  const ann = await userIn(stores);
  await sessionIn(stores, ann);
  expect(await stores.apiSessions.find('s1', NOW)).toEqual({
    session: { id: 's1', user_id: ann.id, created_at: NOW, expires_at: NOW + LIFE },
    user: ann,
  });
  expect(await stores.apiSessions.find('s1', NOW + LIFE)).toBeNull();
  expect(await stores.apiSessions.find('s2', NOW)).toBeNull();
  await stores.apiSessions.end('s1');
  expect(await stores.apiSessions.find('s1', NOW)).toBeNull();
  await sessionIn(stores, ann, 's3');
  expect(await stores.apiSessions.sweep(NOW + LIFE)).toBe(1);
});

test('a refresh token works once: a second use ends the session', async () => {
  const stores = await open();
  const ann = await userIn(stores);
  await sessionIn(stores, ann);
  expect(
    await stores.apiSessions.rotate('s1', { old: 'r-s1', next: 'r2' }, NOW + LIFE + 1, NOW),
  ).toBe('rotated');
  expect((await stores.apiSessions.find('s1', NOW + LIFE))?.session.expires_at).toBe(
    NOW + LIFE + 1,
  );
  expect(await stores.apiSessions.rotate('s1', { old: 'r-s1', next: 'r3' }, NOW + LIFE, NOW)).toBe(
    'reused',
  );
  expect(await stores.apiSessions.find('s1', NOW)).toBeNull();
  expect(await stores.apiSessions.rotate('s1', { old: 'r2', next: 'r3' }, NOW + LIFE, NOW)).toBe(
    'unknown',
  );
});

test('one of many parallel uses of a refresh token succeeds, and the session ends', async () => {
  const stores = await open();
  await sessionIn(stores, await userIn(stores));
  const outcomes = await Promise.all(
    [1, 2, 3, 4].map((i) =>
      stores.apiSessions.rotate('s1', { old: 'r-s1', next: `n${i}` }, NOW + LIFE, NOW),
    ),
  );
  expect(outcomes.filter((o) => o === 'rotated')).toHaveLength(1);
  expect(outcomes.filter((o) => o === 'reused')).toHaveLength(1);
  expect(await stores.apiSessions.find('s1', NOW)).toBeNull();
});

test('a user has at most 200 sessions: a new one ends the oldest', async () => {
  const stores = await open();
  const ann = await userIn(stores);
  for (let i = 0; i < 202; i++) await sessionIn(stores, ann, `s${i}`, NOW + i);
  const there = async (id: string): Promise<boolean> =>
    (await stores.apiSessions.find(id, NOW + 300)) !== null;
  expect([await there('s0'), await there('s1'), await there('s2'), await there('s201')]).toEqual([
    false,
    false,
    true,
    true,
  ]);
});

test.each([
  ['another password', { password_hash: 'other' }, true],
  ['no password', { password_hash: null }, true],
  ['disabled', { disabled: true }, true],
  ['another role', { role: 'viewer' as const }, false],
])('%s: sessions end %s', async (_, change, ends) => {
  const stores = await open();
  const ann = await userIn(stores);
  await sessionIn(stores, ann);
  expect(await stores.users.patch(ann.id, change)).toEqual({ ...ann, ...change });
  expect((await stores.apiSessions.find('s1', NOW)) === null).toBe(ends);
});

test('the last enabled admin cannot be removed', async () => {
  const stores = await open();
  const [one, two] = [await userIn(stores, 'one', 'admin'), await userIn(stores, 'two', 'admin')];
  const off = await userIn(stores, 'off', 'admin');
  await userIn(stores, 'dev', 'developer');
  await stores.users.patch(off.id, { disabled: true });
  // Concurrently: the second one finds that the other is deleted.
  const both = await Promise.allSettled([
    stores.users.patch(one.id, { role: 'viewer' }),
    stores.users.remove(two.id, NOW),
  ]);
  expect(both.filter((r) => r.status === 'fulfilled')).toHaveLength(1);
  const [last] = (await stores.users.list(page)).items.filter(
    (u) => u.role === 'admin' && !u.disabled,
  );
  if (last === undefined) throw new Error('no admin is left');
  expect(await codeOf(stores.users.patch(last.id, { role: 'developer' }))).toBe('last_admin');
  expect(await codeOf(stores.users.patch(last.id, { disabled: true }))).toBe('last_admin');
  expect(await codeOf(stores.users.remove(last.id, NOW))).toBe('last_admin');
  expect((await stores.users.patch(last.id, { role: 'admin', password_hash: null })).role).toBe(
    'admin',
  );
  expect(await codeOf(stores.users.patch('nobody', { role: 'admin' }))).toBe('not_found');
  // A disabled admin does not count and can be removed.
  await stores.users.remove(off.id, NOW);
  await stores.users.makeAdmins(['DEV@example.org', 'nobody@example.org']);
  await stores.users.remove(last.id, NOW);
  expect(
    (await stores.users.list(page)).items.filter((u) => u.role === 'admin').map((u) => u.email),
  ).toEqual(['dev@example.org']);
});

test('users are listed in pages, by address', async () => {
  const stores = await open();
  for (const name of ['c', 'a', 'b']) await userIn(stores, name);
  const first = await stores.users.list({ limit: 2, cursor: null });
  expect(first.items.map((u) => u.email)).toEqual(['a@example.org', 'b@example.org']);
  expect(
    (await stores.users.list({ limit: 2, cursor: first.next })).items.map((u) => u.email),
  ).toEqual(['c@example.org']);
});

test('a personal token is found while it is valid, listed for its owner and deleted with the account', async () => {
  const stores = await open();
  const [ann, bob] = [await userIn(stores), await userIn(stores, 'bob')];
  const make = (user: UserRecord, name: string, now = NOW) =>
    stores.apiTokens.create(
      {
        id: `t-${name}`,
        user_id: user.id,
        name,
        hash: `h-${name}`,
        role: 'viewer',
        projects: null,
        expires_at: NOW + LIFE,
      },
      now,
    );
  const made = await make(ann, 'one');
  expect(made).toEqual({
    id: 't-one',
    projects: null,
    user_id: ann.id,
    name: 'one',
    role: 'viewer',
    created_at: NOW,
    expires_at: NOW + LIFE,
    last_used_at: null,
  });
  await make(ann, 'two', NOW + 1);
  await make(bob, 'three');
  expect(await stores.apiTokens.find('h-one', NOW)).toEqual({ token: made, user: ann });
  expect(await stores.apiTokens.find('h-one', NOW + LIFE)).toBeNull();
  expect(await stores.apiTokens.find('t-one', NOW)).toBeNull();
  expect((await stores.apiTokens.list(ann.id, NOW, page)).items.map((t) => t.id)).toEqual([
    't-two',
    't-one',
  ]);
  expect(await codeOf(stores.apiTokens.revoke('t-one', bob.id))).toBe('not_found');
  await stores.apiTokens.used('t-one', NOW + 5);
  expect((await stores.apiTokens.find('h-one', NOW))?.token.last_used_at).toBe(NOW + 5);
  await stores.apiTokens.revoke('t-one', ann.id);
  await stores.users.remove(ann.id, NOW);
  expect(await stores.apiTokens.find('h-two', NOW)).toBeNull();
  expect(await stores.apiTokens.sweep(NOW + LIFE)).toBe(1);
});

const line = (more: Partial<AuditRecord> = {}): AuditRecord => ({
  at: NOW,
  email: 'ann@example.org',
  via: 'session',
  action: 'createProject',
  target: 'p1',
  address: '127.0.0.1',
  outcome: 'done',
  status: 201,
  code: null,
  request_id: 'r',
  ...more,
});

test('the audit log is listed newest first, with filters and pages', async () => {
  const stores = await open();
  await stores.audit.append(line());
  await stores.audit.append(
    line({
      at: NOW + 1,
      email: 'bob@example.org',
      outcome: 'refused',
      status: 403,
      code: 'forbidden',
    }),
  );
  await stores.audit.append(line({ at: NOW + 2, action: 'deleteProject' }));
  await stores.audit.append(
    line({ at: NOW + 3, email: null, via: 'none', action: 'signIn', target: null }),
  );
  const times = async (filter: Parameters<AllStores['audit']['list']>[0], limit = 10) =>
    (await stores.audit.list(filter, { limit, cursor: null })).items.map((r) => r.at - NOW);
  expect(await times({})).toEqual([3, 2, 1, 0]);
  expect(await times({ email: 'ANN@example.org' })).toEqual([2, 0]);
  expect(await times({ action: 'createProject' })).toEqual([1, 0]);
  expect(await times({ outcome: 'refused' })).toEqual([1]);
  expect(await times({ since: NOW + 1, until: NOW + 3 })).toEqual([2, 1]);
  expect(
    await times({ email: 'ann@example.org', action: 'createProject', outcome: 'done' }),
  ).toEqual([0]);
  const first = await stores.audit.list({}, { limit: 3, cursor: null });
  expect((await stores.audit.list({}, { limit: 3, cursor: first.next })).items).toEqual([
    { id: first.items.at(-1)?.id === 2 ? 1 : 0, detail: null, ...line() },
  ]);
});

test('the audit log is bounded by age, and refusals displace only refusals', async () => {
  const stores = await open();
  await stores.audit.append(line({ at: NOW - 10 }));
  for (let i = 0; i < 5; i++) await stores.audit.append(line({ at: NOW + i }));
  for (let i = 0; i < 50; i++)
    await stores.audit.append(line({ at: NOW + 10 + i, outcome: 'refused' }));
  expect(await stores.audit.sweep(NOW, { done: 5, refused: 2, failed: 0 })).toBe(49);
  const { items } = await stores.audit.list({}, page);
  expect(items.map((r) => r.at - NOW)).toEqual([59, 58, 4, 3, 2, 1, 0]);
});
