/** Device codes and tokens, one-time codes, revoked sessions, and the policy that contains them. */
import { expect, test } from 'vitest';
import type { Identity } from '@berth/wire/gateway';
import type { AllStores } from '../../src/store/open.ts';
import {
  codeOf,
  commit,
  deploymentIn,
  freshPath,
  manyTimes,
  NOW,
  nodeIn,
  open,
  projectIn,
  routeOf,
  rowsOf,
} from './fixtures.ts';

const ANN: Identity = { email: 'Ann@Example.org', name: 'Ann', avatar_url: null, provider: 'oidc' };
const BOB: Identity = {
  email: 'bob@example.org',
  name: null,
  avatar_url: null,
  provider: 'github',
};
const asker = { address: '203.0.113.9', user_agent: 'curl/8' };
const LIFE = 600_000;

const ask = (stores: AllStores, name = 'a', now = NOW): Promise<boolean> =>
  stores.deviceCodes.create(
    {
      device_hash: `d-${name}`,
      user_hash: `u-${name}`,
      poll_seconds: 5,
      expires_at: now + LIFE,
      scope: 'projects',
      ...asker,
    },
    now,
  );
const token = (name: string, at = NOW) => ({
  id: `id-${name}`,
  hash: `hash-${name}`,
  expires_at: at + 90 * 86_400_000,
});
async function tokenOf(
  stores: AllStores,
  name: string,
  identity: Identity,
  now = NOW,
): Promise<void> {
  await ask(stores, name, now);
  await stores.deviceCodes.decide(`u-${name}`, true, identity, now);
  expect(await stores.deviceCodes.poll(`d-${name}`, token(name, now), now)).toBe('issued');
}

test('a device code is requested, approved and exchanged once', async () => {
  const stores = await open();
  expect(await ask(stores)).toBe(true);
  expect(await stores.deviceCodes.findPending('u-a', NOW)).toEqual({
    status: 'pending',
    created_at: NOW,
    expires_at: NOW + LIFE,
    scope: 'projects',
    ...asker,
  });
  expect(await stores.deviceCodes.poll('d-a', token('early'), NOW + 5_000)).toBe(
    'authorization_pending',
  );
  await stores.deviceCodes.decide('u-a', true, ANN, NOW + 6_000);
  expect(await stores.deviceCodes.findPending('u-a', NOW + 6_000)).toBeNull();
  const polls = await Promise.all(
    [1, 2, 3, 4].map((i) => stores.deviceCodes.poll('d-a', token(`t${i}`), NOW + 7_000)),
  );
  expect(polls.toSorted()).toEqual(['invalid_grant', 'invalid_grant', 'invalid_grant', 'issued']);
  const { items } = await stores.deviceTokens.list({ email: 'ann@example.org' }, NOW + 7_000, {
    limit: 10,
    cursor: null,
  });
  expect(items).toMatchObject([
    { identity: ANN, created_at: NOW + 7_000, last_used_at: null, ...asker },
  ]);
  expect(await stores.deviceTokens.find('hash-early', NOW)).toBeNull();
});

test('a token has the scope of its code; a token without a scope opens projects only', async () => {
  const stores = await open();
  const code = (name: string, scope: 'projects' | 'projects api') =>
    stores.deviceCodes.create(
      {
        device_hash: `d-${name}`,
        user_hash: `u-${name}`,
        poll_seconds: 5,
        expires_at: NOW + LIFE,
        scope,
        ...asker,
      },
      NOW,
    );
  for (const [name, scope] of [
    ['p', 'projects'],
    ['a', 'projects api'],
  ] as const) {
    expect(await code(name, scope)).toBe(true);
    expect((await stores.deviceCodes.findPending(`u-${name}`, NOW))?.scope).toBe(scope);
    await stores.deviceCodes.decide(`u-${name}`, true, ANN, NOW);
    expect(await stores.deviceCodes.poll(`d-${name}`, token(name), NOW)).toBe('issued');
    expect((await stores.deviceTokens.find(`hash-${name}`, NOW))?.scope).toBe(scope);
  }
});

test('a code in use is not issued again', async () => {
  const stores = await open();
  expect(await ask(stores)).toBe(true);
  const other = { poll_seconds: 5, expires_at: NOW + LIFE, scope: 'projects' as const, ...asker };
  expect(
    await stores.deviceCodes.create({ device_hash: 'd-b', user_hash: 'u-a', ...other }, NOW),
  ).toBe(false);
  expect(
    await stores.deviceCodes.create({ device_hash: 'd-a', user_hash: 'u-b', ...other }, NOW),
  ).toBe(false);
  expect(await stores.deviceCodes.poll('d-b', token('x'), NOW)).toBe('invalid_grant');
});

test('a device that polls too often must slow down', async () => {
  const stores = await open();
  await ask(stores);
  const poll = (at: number) => stores.deviceCodes.poll('d-a', token('x'), NOW + at);
  expect(await poll(0)).toBe('authorization_pending');
  expect(await poll(4_600)).toBe('authorization_pending');
  expect(await poll(6_000)).toBe('slow_down');
  // The interval is now 10 s, and 15 s after the next poll that is too early.
  expect(await poll(15_000)).toBe('slow_down');
  expect(await poll(29_000)).toBe('slow_down');
  expect(await poll(49_000)).toBe('authorization_pending');
});

test('denied, expired and unknown codes are reported as such', async () => {
  const stores = await open();
  await ask(stores, 'no');
  await ask(stores, 'late');
  await stores.deviceCodes.decide('u-no', false, ANN, NOW);
  expect(await stores.deviceCodes.poll('d-no', token('x'), NOW)).toBe('access_denied');
  expect(await stores.deviceCodes.poll('d-late', token('x'), NOW + LIFE)).toBe('expired_token');
  expect(await stores.deviceCodes.poll('d-other', token('x'), NOW)).toBe('invalid_grant');
  expect(await codeOf(stores.deviceCodes.decide('u-late', true, ANN, NOW + LIFE))).toBe(
    'not_found',
  );
  expect(await codeOf(stores.deviceCodes.decide('u-other', true, ANN, NOW))).toBe('not_found');
  // An approved code expires too if the device does not fetch its token.
  await ask(stores, 'kept');
  await stores.deviceCodes.decide('u-kept', true, ANN, NOW);
  expect(await stores.deviceCodes.poll('d-kept', token('x'), NOW + LIFE)).toBe('expired_token');
  expect(await stores.deviceTokens.list({}, NOW, { limit: 10, cursor: null })).toEqual({
    items: [],
    next: null,
  });
  expect(await stores.deviceCodes.sweep(NOW + LIFE + 600_000)).toBe(3);
  expect(await stores.deviceCodes.poll('d-late', token('x'), NOW + LIFE)).toBe('invalid_grant');
});

test('a decision is final: repeating it changes nothing, and another decision is refused', async () => {
  const stores = await open();
  await ask(stores);
  await stores.deviceCodes.decide('u-a', true, ANN, NOW);
  await stores.deviceCodes.decide('u-a', true, { ...ANN, email: 'ann@example.ORG' }, NOW);
  expect(await codeOf(stores.deviceCodes.decide('u-a', false, ANN, NOW))).toBe('wrong_state');
  expect(await codeOf(stores.deviceCodes.decide('u-a', true, BOB, NOW))).toBe('wrong_state');
  expect(await stores.deviceCodes.poll('d-a', token('x'), NOW)).toBe('issued');
  expect((await stores.deviceTokens.find('hash-x', NOW))?.identity).toEqual(ANN);
});

test('a disabled user gets no token, loses all tokens and cannot approve', async () => {
  const stores = await open();
  const ann = await stores.users.create(
    { email: ANN.email, role: 'viewer', password_hash: null },
    NOW,
  );
  await tokenOf(stores, 'old', ANN);
  await ask(stores, 'between');
  await stores.deviceCodes.decide('u-between', true, ANN, NOW);
  expect((await stores.deviceTokens.find('hash-old', NOW))?.id).toBe('id-old');
  await stores.users.patch(ann.id, { disabled: true });
  expect(await stores.deviceTokens.find('hash-old', NOW)).toBeNull();
  expect(await stores.deviceCodes.poll('d-between', token('between'), NOW)).toBe('access_denied');
  await ask(stores, 'new');
  expect(await codeOf(stores.deviceCodes.decide('u-new', true, ANN, NOW))).toBe('account_disabled');
  // Final: after the user is enabled again, the old tokens stay invalid.
  await stores.users.patch(ann.id, { disabled: false });
  expect(await stores.deviceTokens.find('hash-old', NOW)).toBeNull();
});

test('a code that a user approved before the account was disabled gives no token, also after it is enabled again', async () => {
  const stores = await open();
  const ann = await stores.users.create(
    { email: ANN.email, role: 'viewer', password_hash: null },
    NOW,
  );
  await ask(stores, 'slow');
  await stores.deviceCodes.decide('u-slow', true, ANN, NOW);
  await stores.users.patch(ann.id, { disabled: true });
  await stores.users.patch(ann.id, { disabled: false });
  expect(await stores.deviceCodes.poll('d-slow', token('slow'), NOW)).toBe('access_denied');
});

test('device tokens are found while they are valid, listed by user and revoked by their owner', async () => {
  const stores = await open();
  await tokenOf(stores, 'one', ANN);
  await tokenOf(stores, 'two', ANN, NOW + 1);
  await tokenOf(stores, 'three', BOB, NOW + 2);
  const page = { limit: 2, cursor: null };
  const first = await stores.deviceTokens.list({}, NOW + 3, page);
  expect(first.items.map((t) => t.id)).toEqual(['id-three', 'id-two']);
  const second = await stores.deviceTokens.list({}, NOW + 3, { limit: 2, cursor: first.next });
  expect([second.items.map((t) => t.id), second.next]).toEqual([['id-one'], null]);
  expect(
    (await stores.deviceTokens.list({ email: 'ANN@example.org' }, NOW + 3, page)).items.map(
      (t) => t.id,
    ),
  ).toEqual(['id-two', 'id-one']);
  expect(await codeOf(stores.deviceTokens.revoke('id-one', 'bob@example.org'))).toBe('not_found');
  await stores.deviceTokens.revoke('id-one', ANN.email);
  await stores.deviceTokens.revoke('id-three', null);
  expect(await codeOf(stores.deviceTokens.revoke('id-three', null))).toBe('not_found');
  await stores.deviceTokens.used([
    { id: 'id-two', at: NOW + 9 },
    { id: 'gone', at: NOW + 9 },
  ]);
  await stores.deviceTokens.used([{ id: 'id-two', at: NOW + 4 }]);
  expect((await stores.deviceTokens.find('hash-two', NOW + 3))?.last_used_at).toBe(NOW + 9);
  expect(await stores.deviceTokens.find('hash-two', NOW + 91 * 86_400_000)).toBeNull();
  expect(await stores.deviceTokens.sweep(NOW + 91 * 86_400_000)).toBe(1);
});

test('a user has at most 100 device tokens', async () => {
  const stores = await open();
  for (let i = 0; i < 100; i++) await tokenOf(stores, `t${i}`, BOB, NOW + i);
  await ask(stores, 'more', NOW + 100);
  expect(await codeOf(stores.deviceCodes.decide('u-more', true, BOB, NOW + 100))).toBe(
    'too_many_tokens',
  );
  // The code stays pending, for another user or until there is room.
  await stores.deviceTokens.revoke('id-t0', BOB.email);
  await stores.deviceCodes.decide('u-more', true, BOB, NOW + 100);
});

test('a one-time code works once, and never after it expired', async () => {
  const stores = await open();
  const code = { id: 'c1', expires_at: NOW + 60_000 };
  const tries = await Promise.allSettled([1, 2, 3].map(() => stores.usedCodes.redeem(code, NOW)));
  expect(tries.filter((t) => t.status === 'fulfilled')).toHaveLength(1);
  expect(await codeOf(stores.usedCodes.redeem(code, NOW))).toBe('code_used');
  const later = NOW + 60_000 + 300_000;
  expect(await stores.usedCodes.sweep(later - 1)).toBe(0);
  expect(await codeOf(stores.usedCodes.redeem(code, later - 1))).toBe('code_used');
  expect(await stores.usedCodes.sweep(later)).toBe(1);
  expect(await codeOf(stores.usedCodes.redeem(code, later))).toBe('code_used');
});

test('a user who signs in and out endlessly does not fill the policy or affect other users', async () => {
  // In memory: 1,000 commits to a disk take seconds.
  const stores = await open(':memory:');
  const revoke = (id: string, email = 'Eve@example.org', now = NOW) =>
    stores.revokedSessions.revoke({ id, email, expires_at: now + 60_000 }, now);
  await manyTimes(1_000, (i) => revoke(`s${i}`));
  expect(await codeOf(revoke('more'))).toBe('too_many_sessions');
  await revoke('other', 'ann@example.org');
  await revoke('later', 'eve@example.org', NOW + 60_000);
  expect((await stores.policy.read(NOW)).revoked).toHaveLength(1_002);
});

test('the policy names every present and possible host of a project, and every revocation', async () => {
  const path = freshPath();
  const stores = await open(path);
  const shop = await projectIn(stores, 'shop', { domain_prefix: 'old' });
  const other = await projectIn(stores, 'other');
  const node = await nodeIn(stores, 'w1', { role: 'deploy' });
  await deploymentIn(stores, shop, 'd1', { status: 'running', node_id: node.id });
  await commit(stores, shop.id, { route: { set: routeOf(shop, 'd1', node.id) } });
  const stamps = new Set([await stores.policy.stamp()]);
  const stamped = async (): Promise<void> => {
    const before = stamps.size;
    expect(stamps.add(await stores.policy.stamp()).size).toBe(before + 1);
  };
  await stores.projects.patch(shop.id, { domain_prefix: 'mid' }, NOW);
  await stamped();
  const mid = await stores.projects.get(shop.id);
  await deploymentIn(stores, mid, 'd2', { status: 'building' });
  await stores.projects.patch(shop.id, { domain_prefix: 'new' }, NOW);
  await stamped();
  const user = await stores.users.create(
    { email: 'Eve@example.org', role: 'viewer', password_hash: null },
    NOW,
  );
  await stores.users.patch(user.id, { disabled: true });
  await stamped();
  await stores.revokedSessions.revoke({ id: 's1', email: 'a@b.c', expires_at: NOW + 1_000 }, NOW);
  await stores.revokedSessions.revoke({ id: 's1', email: 'a@b.c', expires_at: NOW + 1_000 }, NOW);
  await stores.revokedSessions.revoke({ id: 's0', email: 'a@b.c', expires_at: NOW }, NOW);
  await stamped();
  await tokenOf(stores, 'one', BOB);
  await stamped();
  const facts = await stores.policy.read(NOW);
  expect(facts.projects.map((project) => project.claims?.map(({ prefix }) => prefix))).toEqual([
    ['other'],
    ['mid', 'new', 'old'],
  ]);
  expect({
    ...facts,
    projects: facts.projects.map(({ claims: _, ...project }) => project),
  }).toEqual({
    projects: [
      {
        id: other.id,
        name: 'other',
        prefixes: ['other'],
        auth_required: false,
        domains: [],
        auth_epoch: 0,
      },
      {
        id: shop.id,
        name: 'shop',
        prefixes: ['mid', 'new', 'old'],
        auth_required: false,
        domains: [],
        auth_epoch: 0,
      },
    ],
    disabled: ['eve@example.org'],
    deleted: [],
    revoked: [{ id: 's1', expires_at: NOW + 1_000 }],
    tokens: [
      {
        id: 'id-one',
        hash: 'hash-one',
        identity: BOB,
        expires_at: NOW + 90 * 86_400_000,
        scope: 'projects',
      },
    ],
  });
  await commit(stores, shop.id, {
    changeDeployments: [
      { id: 'd2', from: 'building', set: { status: 'failed', finished_at: NOW } },
    ],
  });
  await stamped();
  expect((await stores.policy.read(NOW)).projects[1]?.prefixes).toEqual(['new', 'old']);
  expect(await stores.revokedSessions.sweep(NOW)).toBe(1);
  expect(JSON.stringify(await rowsOf(path, 'device_tokens'))).not.toContain('berth_');
});
