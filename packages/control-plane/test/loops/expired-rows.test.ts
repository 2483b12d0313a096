import { expect, test } from 'vitest';
import { deleteExpiredRows } from '../../src/loops/expired-rows.ts';
import { createApi } from '../api/harness.ts';

const DAY = 86_400_000;

test('expired rows are removed, and the others stay', async () => {
  const api = await createApi();
  const { stores } = api;
  const at = Date.now();
  const identity = { email: 'ann@example.com', name: null, avatar_url: null, provider: 'oidc' };
  const asker = { address: '203.0.113.9', user_agent: 'curl' };
  const user = await stores.users.create(
    { email: 'ann@example.com', role: 'viewer', password_hash: null },
    at,
  );
  const soon = at + 60_000;
  const late = at + 365 * DAY;
  for (const [name, expires_at] of [
    ['short', soon],
    ['long', late],
  ] as const) {
    await stores.revokedSessions.revoke({ id: name, email: identity.email, expires_at }, at);
    await stores.usedCodes.redeem({ id: name, expires_at }, at);
    await stores.deviceCodes.create(
      {
        device_hash: `d-${name}`,
        user_hash: `u-${name}`,
        poll_seconds: 5,
        expires_at,
        scope: 'projects',
        ...asker,
      },
      at,
    );
    await stores.deviceCodes.create(
      {
        device_hash: `e-${name}`,
        user_hash: `v-${name}`,
        poll_seconds: 5,
        expires_at,
        scope: 'projects',
        ...asker,
      },
      at,
    );
    await stores.deviceCodes.decide(`u-${name}`, true, identity, at);
    expect(
      await stores.deviceCodes.poll(`d-${name}`, { id: name, hash: name, expires_at }, at),
    ).toBe('issued');
    await stores.apiSessions.create(
      { id: name, user_id: user.id, refresh_hash: name, address: '', expires_at },
      at,
    );
    await stores.apiTokens.create(
      { id: name, user_id: user.id, name, hash: name, role: 'viewer', projects: null, expires_at },
      at,
    );
  }
  await api.call('createProject', { body: {} });

  const run = deleteExpiredRows({ ...stores, now: () => at + DAY });
  await run(new AbortController().signal);
  const tables = [
    'revokedSessions',
    'usedCodes',
    'deviceCodes',
    'deviceTokens',
    'apiSessions',
    'apiTokens',
  ] as const;
  for (const table of tables)
    expect([table, await stores[table].sweep(at + DAY)]).toEqual([table, 0]);
  expect((await stores.apiSessions.find('long', at + DAY))?.user.id).toBe(user.id);
  expect((await stores.apiTokens.find('long', at + DAY))?.user.id).toBe(user.id);
  expect((await stores.deviceTokens.find('long', at + DAY))?.id).toBe('long');
  expect((await stores.policy.read(at + DAY)).revoked.map((s) => s.id)).toEqual(['long']);
  expect((await stores.audit.list({}, { limit: 10, cursor: null })).items).toHaveLength(1);
  // Two years later all of it is removed, including the line of the audit log.
  await deleteExpiredRows({ ...stores, now: () => late + 2 * 365 * DAY })(
    new AbortController().signal,
  );
  for (const table of tables)
    expect([table, await stores[table].sweep(late + 3 * 365 * DAY)]).toEqual([table, 0]);
  expect((await stores.audit.list({}, { limit: 10, cursor: null })).items).toEqual([]);
  await api.close();
});
