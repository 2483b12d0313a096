/** Answers that are kept are kept no longer than what they rest on: time passes under the same requests. */
import { createHash, randomBytes } from 'node:crypto';
import { waitFor } from '@berth/testbed/wait';
import { decodeJwt } from 'jose';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ANNA, BASE, policyOf, type Running, sessionOf, startGateway } from './core-support.ts';

const token = `berth_${randomBytes(32).toString('base64url')}`;
let now = Date.now();
let berth: Running;
beforeAll(async () => {
  berth = await startGateway({ now: () => now });
  const hash = createHash('sha256').update(token).digest('hex');
  berth.controlPlane.publish(
    policyOf({ device_tokens: [{ id: 't1', hash, identity: ANNA, expires_at: new Date(now + 90_000).toISOString() }] }),
  );
  await waitFor('the policy holds', () => berth.gateway.deps.policy.view().deviceToken(token) !== undefined);
});
afterAll(() => berth.stop());

const keptSoFar = (): Promise<number> =>
  berth.get('/metrics').then(({ body }) => Number(/^berth_verify_total\{outcome="kept"\} (\d+)$/m.exec(body)?.[1]));

it('the same request is answered from what was decided before, another one never is', async () => {
  const [one, two] = [{ Cookie: berth.cookie(sessionOf()) }, { Cookie: berth.cookie(sessionOf({ ...ANNA, email: 'otto@example.com' })) }];
  const before = await keptSoFar();
  expect((await berth.verify(one)).headers['x-forwarded-user']).toBe(ANNA.email);
  expect(await keptSoFar()).toBe(before);
  expect((await berth.verify(one)).headers['x-forwarded-user']).toBe(ANNA.email);
  expect(await keptSoFar()).toBe(before + 1);
  expect((await berth.verify(two)).headers['x-forwarded-user']).toBe('otto@example.com');
  expect((await berth.verify({ ...one, Authorization: 'Basic eDp5' })).headers.authorization).toBe('Basic eDp5');
  expect((await berth.verify({ ...one, 'X-Forwarded-Host': `two.${BASE}` })).status).toBe(403);
  expect((await berth.verify(one, '/verify?project=p2')).status).toBe(403);
  expect((await berth.verify({ ...one, 'X-Forwarded-Uri': '/_oauth/x' })).status).toBe(404);
  expect(await keptSoFar()).toBe(before + 1);
});

it('a session ends when it ends', async () => {
  const Cookie = berth.cookie({ ...sessionOf(), expires_at: Math.ceil(now / 1000) * 1000 + 20_000 });
  for (let i = 0; i < 2; i++) expect((await berth.verify({ Cookie })).status).toBe(200);
  now += 22_000;
  expect((await berth.verify({ Cookie })).status).toBe(401);
});

it('a device token ends when it ends', async () => {
  const Authorization = `Bearer ${token}`;
  for (let i = 0; i < 2; i++) expect((await berth.verify({ Authorization })).status).toBe(200);
  now += 90_000;
  expect((await berth.verify({ Authorization })).status).toBe(401);
});

it('an assertion that is given out holds for another minute at least, and never beyond its session', async () => {
  const Cookie = berth.cookie({ ...sessionOf(), expires_at: Math.ceil(now / 1000) * 1000 + 600_000 });
  const claims = async () => decodeJwt(String((await berth.verify({ Cookie })).headers['x-forwarded-user-assertion']));
  const end = Math.ceil(now / 1000) + 600;
  const seen = new Set<number | undefined>();
  for (let passed = 0; passed < 540; passed += 20, now += 20_000) {
    const { exp = 0, iat } = await claims();
    seen.add(iat);
    expect(exp - now / 1000).toBeGreaterThanOrEqual(59);
    expect(exp - now / 1000).toBeLessThanOrEqual(301);
    expect(exp).toBeLessThanOrEqual(end);
  }
  // Signed when it must be, not with each request.
  expect(seen.size).toBe(3);
});
