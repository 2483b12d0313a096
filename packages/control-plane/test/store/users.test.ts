import { expect, test } from 'vitest';
import { codeOf, NOW, open } from './fixtures.ts';

test('users are found by address in any case', async () => {
  const stores = await open();
  expect(await stores.users.count()).toBe(0);
  const user = await stores.users.create(
    { email: 'Ann@Example.org', role: 'admin', password_hash: 'h' },
    NOW,
  );
  expect(user).toEqual({
    id: user.id,
    email: 'ann@example.org',
    role: 'admin',
    password_hash: 'h',
    disabled: false,
    last_login_at: null,
    created_at: NOW,
  });
  expect(await stores.users.findByEmail('ANN@example.ORG')).toEqual(user);
  expect(await stores.users.findByEmail('bob@example.org')).toBeNull();
  expect(
    await codeOf(
      stores.users.create({ email: 'ann@example.org', role: 'viewer', password_hash: null }, NOW),
    ),
  ).toBe('email_taken');
  await stores.users.setLastLogin(user.id, NOW + 1);
  expect(await stores.users.get(user.id)).toEqual({ ...user, last_login_at: NOW + 1 });
  expect(await codeOf(stores.users.get('nobody'))).toBe('not_found');
  expect(await stores.users.count()).toBe(1);
});

test('meta keeps the first value', async () => {
  const stores = await open();
  expect(await stores.meta.get('secret')).toBeNull();
  // All callers get the value of the first one.
  const [first = '', ...others] = await Promise.all(
    ['a', 'b', 'c'].map((v) => stores.meta.setOnce('secret', v)),
  );
  expect(['a', 'b', 'c']).toContain(first);
  expect(others).toEqual([first, first]);
  expect(await stores.meta.setOnce('secret', 'd')).toBe(first);
  expect(await stores.meta.get('secret')).toBe(first);
  await stores.ping();
});
