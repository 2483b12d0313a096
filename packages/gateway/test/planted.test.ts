/**
 * Cookies that another application under BASE_DOMAIN planted: they give no access, end no session
 * and cause no endless redirects.
 */
import { randomBytes } from 'node:crypto';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { challengeOf } from '../src/codes.ts';
import { BASE, BROWSER, policyOf, type Running, sessionOf, startGateway } from './core-support.ts';

const HOST = `one.${BASE}`;
const GITHUB = { GITHUB_CLIENT_ID: 'berth', GITHUB_CLIENT_SECRET: 'secret of the client' };
let berth: Running;
beforeAll(async () => {
  berth = await startGateway({ env: GITHUB });
  await waitFor('the policy is there', () => berth.gateway.deps.policy.view().loaded);
});
afterAll(() => berth.stop());

/** Characters that ECMAScript's trim removes; node:http reads headers as latin1. */
const BLANKS = ['\u00a0', ' \u00a0', '\u00a0\u00a0', '\u000b', '\u000c'];

describe('a nonce cookie', () => {
  it.each(BLANKS.filter((blank) => blank.includes('\u00a0')))(
    'whose name begins with %j does not count as a __Host- cookie',
    async (blank) => {
      const nonce = randomBytes(32).toString('base64url');
      const code = berth.gateway.deps.codes.mint(sessionOf(), HOST, challengeOf(nonce));
      const query = new URLSearchParams({ code, redirect: '/' }).toString();
      const arrive = (Cookie: string) =>
        berth.verify({ ...BROWSER, Cookie, 'X-Forwarded-Uri': `/_oauth/session?${query}` });
      const planted = await arrive(
        `${blank}__Host-berth_nonce_${challengeOf(nonce).slice(0, 8)}=${nonce}`,
      );
      expect([planted.status, planted.headers['set-cookie']]).toEqual([400, undefined]);
      // Spaces and tabs are not part of a name (RFC 6265bis section 5.6), so browsers drop them.
      expect(
        (await arrive(` \t__Host-berth_nonce_${challengeOf(nonce).slice(0, 8)} = ${nonce}\t`))
          .status,
      ).toBe(302);
    },
  );
});

describe('session cookies', () => {
  const planted = (count: number): string =>
    Array.from({ length: count }, (_, i) => `svc_fwd_session=planted${i}`).join('; ');

  it('31 planted cookies before the valid one do not lock the owner out', async () => {
    const Cookie = `${planted(31)}; ${berth.cookie(sessionOf())}`;
    expect((await berth.verify({ ...BROWSER, Cookie })).status).toBe(200);
  });
  it('more than 32 cookies lead to an error page, not to endless redirects', async () => {
    const Cookie = `${planted(32)}; ${berth.cookie(sessionOf())}`;
    const page = await berth.verify({ ...BROWSER, Cookie });
    expect([page.status, page.headers.location]).toEqual([400, undefined]);
    expect(page.body).toContain('Too many cookies');
    const script = await berth.verify({ Cookie, Accept: 'application/json' });
    expect([script.status, script.headers['content-type']]).toEqual([
      401,
      'application/problem+json; charset=utf-8',
    ]);
  });
  it('more than 32 cookies lead to an error page at the auth host too', async () => {
    const auth = { host: BASE, ...BROWSER };
    const right = `svc_fwd_session=${berth.gateway.deps.sessions.seal(sessionOf(), 'sso')}`;
    const signedIn = await berth.get('/_oauth/login?redirect=/in', {
      ...auth,
      cookie: `${planted(31)}; ${right}`,
    });
    expect([signedIn.status, signedIn.headers.location]).toEqual([302, '/in']);
    for (const path of [
      '/_oauth/login?redirect=/in',
      '/_oauth/devices',
      '/_oauth/device/activate?code=BCDF-GHJK',
    ]) {
      const reply = await berth.get(path, { ...auth, cookie: `${planted(32)}; ${right}` });
      const page =
        reply.status === 302
          ? await berth.get(reply.headers.location ?? '', {
              ...auth,
              cookie: `${planted(32)}; ${right}`,
            })
          : reply;
      expect([path, page.status, page.body.includes('Too many cookies')]).toEqual([
        path,
        400,
        true,
      ]);
      expect(page.headers['clear-site-data']).toBe('"cookies"');
    }
  });
});

describe('an attempt cookie, over https', () => {
  const begin = async (): Promise<{ state: string; line: string }> => {
    const begun = await berth.get('/_oauth/login?provider=github&redirect=/mine', { host: BASE });
    const line = begun.headers['set-cookie']?.find((c) => c.includes('berth_login_')) ?? '';
    return { state: new URL(begun.headers.location ?? '').searchParams.get('state') ?? '', line };
  };
  const callback = (state: string, cookie: string) =>
    berth.get(
      '/_oauth/callback/github?' +
        new URLSearchParams({ state, error: 'access_denied' }).toString(),
      { host: BASE, cookie },
    );

  it('has the prefix __Host-, so that no other host can plant it', async () => {
    const { line } = await begin();
    expect(line).toMatch(
      /^__Host-berth_login_[\w-]+=[\w-]+; Path=\/; Max-Age=900; HttpOnly; SameSite=Lax; Secure$/,
    );
  });
  it('without the prefix, or with a blank before it, is ignored', async () => {
    const { state, line } = await begin();
    const pair = line.split(';')[0] ?? '';
    expect((await callback(state, pair)).status).toBe(403);
    for (const planted of [pair.replace('__Host-', ''), `\u00a0${pair}`, `a=1;\u00a0 ${pair}`])
      expect([planted, (await callback(state, planted)).status]).toEqual([planted, 400]);
  });
  it('does not reach an application', async () => {
    const { line } = await begin();
    const Cookie = `a=1; ${line.split(';')[0]}; ${berth.cookie(sessionOf())}`;
    expect((await berth.verify({ Cookie })).headers['cookie']).toBe('a=1');
  });
});

describe('a session cookie that an application could read while its project was public', () => {
  const [one, two] = policyOf().projects as [
    { id: string; name: string; hosts: string[] },
    { id: string; name: string; hosts: string[] },
  ];
  const withEpoch = async (auth_epoch: number): Promise<void> => {
    berth.controlPlane.publish(policyOf({ projects: [{ ...one, auth_epoch }, two] }));
    await waitFor(
      'the policy holds',
      () => berth.gateway.deps.policy.view().projectById('p1')?.auth_epoch === auth_epoch,
    );
  };

  it('is invalid once the project requires a login again; a new cookie is valid', async () => {
    const before = berth.cookie(sessionOf());
    await withEpoch(0);
    expect((await berth.verify({ Cookie: before })).status).toBe(200);
    await withEpoch(1);
    expect((await berth.verify({ Cookie: before })).status).toBe(401);
    // The auth host has a session, so the browser signs in without questions and gets a new cookie.
    const nonce = randomBytes(32).toString('base64url');
    const code = berth.gateway.deps.codes.mint(sessionOf(), HOST, challengeOf(nonce));
    const arrived = await berth.verify({
      ...BROWSER,
      Cookie: `__Host-berth_nonce_${challengeOf(nonce).slice(0, 8)}=${nonce}`,
      'X-Forwarded-Uri': `/_oauth/session?${new URLSearchParams({ code, redirect: '/' }).toString()}`,
    });
    const after =
      arrived.headers['set-cookie']?.find((c) => c.startsWith('svc_fwd_session='))?.split(';')[0] ??
      '';
    expect((await berth.verify({ Cookie: after })).status).toBe(200);
    await withEpoch(2);
    expect((await berth.verify({ Cookie: after })).status).toBe(401);
    await withEpoch(0);
  });

  it('gives no access to another project or to the auth host, and reveals no identity', async () => {
    const Cookie = berth.cookie(sessionOf());
    expect(
      (await berth.verify({ Cookie, 'X-Forwarded-Host': `two.${BASE}` }, '/verify?project=p2'))
        .status,
    ).toBe(401);
    for (const path of ['/verify', '/verify/admin'])
      expect((await berth.verify({ Cookie, 'X-Forwarded-Host': BASE }, path)).status).toBe(401);
    expect((await berth.get('/_oauth/userinfo', { host: BASE, cookie: Cookie })).status).toBe(401);
    expect(
      (await berth.get('/_oauth/devices', { host: BASE, cookie: Cookie })).headers.location,
    ).toBe('/_oauth/login?page=devices');
  });
});
