/**
 * The return from the auth host: a one-time code becomes a session at the project's host, once, in
 * the same browser.
 */
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { challengeOf } from '../src/codes.ts';
import type { Session } from '../src/deps.ts';
import {
  ANNA,
  BASE,
  BROWSER,
  policyOf,
  type Reply,
  type Running,
  sessionOf,
  startGateway,
} from './core-support.ts';

const HOST = `one.${BASE}`;
const NONCE = 'n'.repeat(43);
const NONCE_COOKIE = `__Host-berth_nonce=${NONCE}`;

let now = Date.now();
let berth: Running;
beforeAll(async () => {
  berth = await startGateway({ now: () => now });
  await waitFor('the policy is there', () => berth.gateway.deps.policy.view().loaded);
});
afterAll(() => berth.stop());

const mint = (session: Session = sessionOf(), host = HOST, nonce = NONCE): string =>
  berth.gateway.deps.codes.mint(session, host, challengeOf(nonce));
const arrive = (
  code: string | undefined,
  headers: Record<string, string | undefined> = {},
  redirect = '/page?x=1#f',
  path = '/verify?project=p1',
): Promise<Reply> => {
  const query = new URLSearchParams({ ...(code === undefined ? {} : { code }), redirect });
  return berth.verify(
    {
      ...BROWSER,
      Cookie: NONCE_COOKIE,
      'X-Forwarded-Uri': `/_oauth/session?${query.toString()}`,
      ...headers,
    },
    path,
  );
};
const sessionCookie = (reply: Reply): string | undefined =>
  (reply.headers['set-cookie'] ?? []).find((c) => c.startsWith('svc_fwd_session='));

it('a code leads to the requested page, with a host-only session cookie', async () => {
  const reply = await arrive(mint());
  expect(reply.status).toBe(302);
  // Absolute: Traefik resolves a relative one against the gateway's own address.
  expect(reply.headers.location).toBe(`https://${HOST}/page?x=1#f`);
  const cookie = sessionCookie(reply) ?? '';
  expect(cookie).toMatch(
    /^svc_fwd_session=[^;]+; Path=\/; Max-Age=(3599|3600); HttpOnly; SameSite=Lax; Secure$/,
  );
  const opened = await berth.verify({ Cookie: cookie.split(';')[0] });
  expect(opened.status).toBe(200);
  expect(opened.headers['x-forwarded-user']).toBe(ANNA.email);
  expect(
    (
      await berth.verify(
        { Cookie: cookie.split(';')[0], 'X-Forwarded-Host': `two.${BASE}` },
        '/verify?project=p2',
      )
    ).status,
  ).toBe(401);
});

it('a code works once; the second time there is an error page and no session', async () => {
  const code = mint();
  expect((await arrive(code)).status).toBe(302);
  const again = await arrive(code);
  expect(again.status).toBe(400);
  expect(sessionCookie(again)).toBeUndefined();
  expect(again.body).toContain(`https://${HOST}/page?x=1#f`);
});

it('a browser that already has a session is redirected to the page', async () => {
  const code = mint();
  const Cookie = `${NONCE_COOKIE}; ${(sessionCookie(await arrive(code)) ?? '').split(';')[0]}`;
  now += 61_000;
  const again = await arrive(code, { Cookie });
  expect(again.status).toBe(302);
  expect(again.headers.location).toBe(`https://${HOST}/page?x=1#f`);
});

it.each<[string, () => [string | undefined, Record<string, string | undefined>?]]>([
  ['no code', () => [undefined]],
  ['an empty code', () => ['']],
  ['an invented code', () => ['x'.repeat(200)]],
  ['a code for another host', () => [mint(sessionOf(), `two.${BASE}`)]],
  ['a code of another browser', () => [mint(sessionOf(), HOST, 'm'.repeat(43))]],
  [
    'a session cookie instead of a code',
    () => [berth.gateway.deps.sessions.seal(sessionOf(), 'project:p1')],
  ],
  [
    'a value sealed for another purpose',
    () => [berth.gateway.deps.sealer.seal('login attempt', { id: 'x' }, 60_000)],
  ],
  ['a code without its last letter', () => [mint().slice(0, -1)]],
  ['a code of an expired session', () => [mint({ ...sessionOf(), expires_at: now - 1 })]],
])('%s: an error page, no session, no further redirect', async (_, make) => {
  const [code, headers] = make();
  const before = berth.controlPlane.calls.length;
  const reply = await arrive(code, headers);
  expect(reply.status).toBe(400);
  expect(reply.headers['content-type']).toMatch(/^text\/html/);
  expect(reply.headers['set-cookie']).toBeUndefined();
  // The gateway does not ask the control plane about invalid codes.
  expect(berth.controlPlane.calls.slice(before)).toEqual([]);
});

it('a code expires after one minute', async () => {
  const code = mint();
  now += 60_001;
  expect((await arrive(code)).status).toBe(400);
});

it('a browser without cookies gets an error page and not another redirect', async () => {
  const reply = await arrive(mint(), { Cookie: undefined });
  expect(reply.status).toBe(400);
  expect(reply.body).toContain('cookie');
  expect(reply.headers.location).toBeUndefined();
});

it('a code is refused if its session was revoked or its owner was disabled in the meantime', async () => {
  const revoked = sessionOf();
  const code = mint(revoked);
  await berth.gateway.deps.policy.revokeSession(revoked);
  expect((await arrive(code)).status).toBe(400);
  const other = mint(sessionOf({ ...ANNA, email: 'gone@example.com' }));
  berth.controlPlane.publish(policyOf({ disabled_users: ['gone@example.com'] }));
  await waitFor('the policy holds', () =>
    berth.gateway.deps.policy.view().isDisabled('gone@example.com'),
  );
  expect((await arrive(other)).status).toBe(400);
});

it('POST and HEAD do not accept a code', async () => {
  const code = mint();
  for (const method of ['POST', 'HEAD'])
    expect((await arrive(code, { 'X-Forwarded-Method': method })).status).toBe(404);
  expect((await arrive(code)).status).toBe(302);
});

it('a host that is not a project gets its own session the same way; the auth host gets none', async () => {
  const host = `proxy.${BASE}`;
  const reply = await arrive(
    mint(sessionOf(), host),
    { 'X-Forwarded-Host': host },
    '/',
    '/verify/admin',
  );
  const Cookie = (sessionCookie(reply) ?? '').split(';')[0];
  expect((await berth.verify({ Cookie, 'X-Forwarded-Host': host }, '/verify')).status).toBe(200);
  expect((await berth.verify({ Cookie, 'X-Forwarded-Host': host }, '/verify/admin')).status).toBe(
    403,
  );
  expect(
    (await arrive(mint(sessionOf(), BASE), { 'X-Forwarded-Host': BASE }, '/', '/verify')).status,
  ).toBe(404);
});

describe.each([
  '//evil.example',
  'https://evil.example/',
  '/\\evil.example',
  '/.//evil.example',
  '/%2e%2e//evil.example',
  'javascript:alert(1)',
  '/_oauth/logout',
  '/\t/evil.example',
  '',
])('the redirect target %j', (redirect) => {
  it('is replaced by the first page', async () => {
    expect((await arrive(mint(), {}, redirect)).headers.location).toBe(`https://${HOST}/`);
  });
});

it('while the control plane is down there is a page with 503; the same code works when it is back', async () => {
  const code = mint();
  berth.controlPlane.away(true);
  const reply = await arrive(code);
  expect(reply.status).toBe(503);
  expect(reply.headers['retry-after']).toBe('5');
  expect(reply.headers['content-type']).toMatch(/^text\/html/);
  expect(sessionCookie(reply)).toBeUndefined();
  berth.controlPlane.away(false);
  expect((await arrive(code)).status).toBe(302);
});
