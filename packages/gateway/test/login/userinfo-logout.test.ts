/** Userinfo for pages of projects, and logout. */
import { createHash } from 'node:crypto';
import { type GithubStandIn, startGithubStandIn } from '@berth/testbed/github-stand-in';
import { type Page, PlainBrowser } from '@berth/testbed/plain-browser';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { githubEnv, type Site, startSite, titleOf } from './support.ts';

let github: GithubStandIn;
let site: Site;
let person: PlainBrowser;

beforeAll(async () => {
  github = await startGithubStandIn();
  site = await startSite(() => githubEnv(github));
});
afterAll(async () => {
  await site.close();
  await github.stop();
});
beforeEach(async () => {
  person = new PlainBrowser();
  await person.open(`${site.url}/_oauth/login`);
});

const userinfo = (headers: Record<string, string> = {}, browser = person): Promise<Page> =>
  browser.open(`${site.url}/_oauth/userinfo`, { headers });
const originOf = (host: string): string => site.url.replace('berth.localhost', host);
const cookieHeader = (): string =>
  person
    .cookies('berth.localhost')
    .map(({ name, value }) => `${name}=${value}`)
    .join('; ');

describe('userinfo', () => {
  test('without a session: 401 as a problem document with the address of the login', async () => {
    const page = await userinfo({}, new PlainBrowser());
    expect([page.status, page.headers['content-type'], page.headers['www-authenticate']]).toEqual([
      401,
      'application/problem+json; charset=utf-8',
      'Bearer',
    ]);
    expect(JSON.parse(page.body)).toMatchObject({
      code: 'unauthenticated',
      status: 401,
      login_url: `${site.url}/_oauth/login`,
    });
  });

  test('a project’s page can read it across origins; the answer names its exact origin', async () => {
    for (const origin of [
      originOf('alpha.berth.localhost'),
      originOf('beta.berth.localhost'),
      site.url,
    ]) {
      const page = await userinfo({ origin });
      expect([
        page.status,
        page.headers['access-control-allow-origin'],
        page.headers['access-control-allow-credentials'],
        page.headers['vary'],
      ]).toEqual([200, origin, 'true', 'Origin']);
      const preflight = await person.open(`${site.url}/_oauth/userinfo`, {
        method: 'OPTIONS',
        headers: {
          origin,
          'access-control-request-method': 'GET',
          'access-control-request-headers': 'authorization',
        },
      });
      expect([
        preflight.status,
        preflight.headers['access-control-allow-origin'],
        preflight.headers['access-control-allow-methods'],
      ]).toEqual([204, origin, 'GET']);
    }
  });

  test('a project’s page can also read a 401', async () => {
    const origin = originOf('alpha.berth.localhost');
    const page = await userinfo({ origin }, new PlainBrowser());
    expect([page.status, page.headers['access-control-allow-origin']]).toEqual([401, origin]);
  });

  test.each([
    ['another host', 'http://evil.test'],
    ['a host that is not a project', 'http://gamma.berth.localhost'],
    ['null', 'null'],
    ['a host with the same ending', 'http://xalpha.berth.localhost'],
    ['a host with the same beginning', 'http://alpha.berth.localhost.evil.test'],
    ['no origin at all', 'alpha.berth.localhost'],
    ['a star', '*'],
  ])('%s may not read it', async (_what, base) => {
    const origin = base.startsWith('http') ? `${base}:${new URL(site.url).port}` : base;
    for (const method of ['GET', 'OPTIONS']) {
      const page = await person.open(`${site.url}/_oauth/userinfo`, {
        method,
        headers: { origin },
      });
      expect(page.headers['access-control-allow-origin']).toBeUndefined();
      expect(page.headers['access-control-allow-credentials']).toBeUndefined();
    }
  });
  test('a project’s host with another scheme or port may not read it', async () => {
    for (const origin of [
      originOf('alpha.berth.localhost').replace('http:', 'https:'),
      'http://alpha.berth.localhost',
      'http://alpha.berth.localhost:1',
    ])
      expect((await userinfo({ origin })).headers['access-control-allow-origin']).toBeUndefined();
  });

  test('a project’s session cookie is valid only at that project’s host', async () => {
    const { sessions } = site.gateway.deps;
    const sso = sessions.open(person.cookies('berth.localhost')[0]?.value ?? '', 'sso');
    if (sso === null) throw new Error('not signed in');
    const cookie = `svc_fwd_session=${sessions.seal(sso, 'project:p-alpha')}`;
    const at = (host: string): Promise<Page> =>
      new PlainBrowser().open(`${originOf(host)}/_oauth/userinfo`, { headers: { cookie } });
    expect((await at('alpha.berth.localhost')).status).toBe(200);
    expect((await at('beta.berth.localhost')).status).toBe(401);
    expect((await at('berth.localhost')).status).toBe(401);
  });

  test('an invalid device token is refused, even beside a valid cookie (RFC 6750)', async () => {
    const page = await userinfo({ authorization: 'Bearer berth_nothing' });
    expect([page.status, page.headers['www-authenticate']]).toEqual([
      401,
      'Bearer error="invalid_token"',
    ]);
    expect(
      (await userinfo({ authorization: 'Bearer an-application’s-own'.replace('’', '') })).status,
    ).toBe(200);
  });

  test('device tokens of disabled users and expired device tokens get 401', async () => {
    const identity = {
      email: 'dora@example.test',
      name: null,
      avatar_url: null,
      provider: 'github',
    };
    const add = (token: string, days: number): void =>
      void site.cp.policy.device_tokens.push({
        id: token,
        hash: createHash('sha256').update(token).digest('hex'),
        identity,
        expires_at: new Date(Date.now() + days * 86_400_000).toISOString(),
      });
    add('berth_good', 1);
    add('berth_ended', -1);
    site.cp.changed();
    const asked = async (token: string): Promise<number> =>
      (await userinfo({ authorization: `Bearer ${token}` }, new PlainBrowser())).status;
    await waitFor('the good one opens', async () => (await asked('berth_good')) === 200);
    expect(await asked('berth_ended')).toBe(401);
    site.cp.policy.disabled_users = ['dora@example.test'];
    site.cp.changed();
    await waitFor('the good one opens nothing', async () => (await asked('berth_good')) === 401);
  });

  test('a page of a project without Require Auth may not read it', async () => {
    const alpha = originOf('alpha.berth.localhost');
    const seen = async (): Promise<unknown> =>
      (await userinfo({ origin: alpha })).headers['access-control-allow-origin'];
    const set = (auth_required: boolean): void => {
      site.cp.policy.projects = site.cp.policy.projects.map((p) =>
        p.name === 'alpha' ? { ...p, auth_required } : p,
      );
      site.cp.changed();
    };
    set(true);
    await waitFor('a protected one does', async () => (await seen()) === alpha);
    set(false);
    await waitFor('a public one does not', async () => (await seen()) === undefined);
    const preflight = await person.open(`${site.url}/_oauth/userinfo`, {
      method: 'OPTIONS',
      headers: { origin: alpha },
    });
    expect([preflight.status, preflight.headers['access-control-allow-origin']]).toEqual([
      403,
      undefined,
    ]);
    expect(
      (await userinfo({ origin: originOf('beta.berth.localhost') })).headers[
        'access-control-allow-origin'
      ],
    ).toBeDefined();
    set(true);
    await waitFor('it does again', async () => (await seen()) === alpha);
  });

  test('before a policy is loaded: 503 and no identity', async () => {
    const { createControlPlane } = await import('./control-plane.ts');
    const { createGateway } = await import('../../src/app.ts');
    const cp = createControlPlane();
    cp.away = true;
    const { config, log } = site.gateway.deps;
    const gateway = await createGateway(
      { ...config, STATE_DIR: `${config.STATE_DIR}/other` },
      { log, controlPlane: cp.client },
    );
    for (const url of [
      '/_oauth/userinfo',
      '/_oauth/login',
      '/_oauth/device/activate',
      '/_oauth/devices',
      '/_oauth/callback/github?state=x&code=y',
    ]) {
      const answer = await gateway.server.inject({
        url,
        headers: { cookie: cookieHeader(), host: new URL(site.url).host },
      });
      expect([url, answer.statusCode, answer.headers['retry-after']]).toEqual([url, 503, '5']);
    }
    await gateway.close();
  });
});

describe('logout', () => {
  test('ends the session and not only the cookie: a copy of the cookie is refused', async () => {
    const copy = cookieHeader();
    expect(
      (await new PlainBrowser().open(`${site.url}/_oauth/userinfo`, { headers: { cookie: copy } }))
        .status,
    ).toBe(200);
    const answer = await person.open(`${site.url}/_oauth/logout`, { follow: false });
    expect([answer.status, answer.headers['location']]).toEqual([302, '/']);
    // The remaining cookie gives no access; it makes the next login show an account choice.
    expect(person.cookies('berth.localhost').map(({ name, value }) => [name, value])).toEqual([
      ['berth_ask', 'ask-who-signs-in'],
    ]);
    expect(titleOf((await person.open(`${site.url}/`)).body)).toBe('You are signed out');
    expect(
      (await new PlainBrowser().open(`${site.url}/_oauth/userinfo`, { headers: { cookie: copy } }))
        .status,
    ).toBe(401);
    await waitFor(
      'the control plane is told',
      () =>
        site.cp.calls.includes('revokeSession') &&
        site.cp.logins.some((l) => l.outcome === 'signed_out'),
    );
  });

  test('redirects to the requested target if it belongs to the platform', async () => {
    const page = `${originOf('alpha.berth.localhost')}/bye`;
    const answer = await person.open(
      `${site.url}/_oauth/logout?redirect=${encodeURIComponent(page)}`,
      { follow: false },
    );
    expect(answer.headers['location']).toBe(page);
    for (const elsewhere of [
      'https://evil.test/',
      '//evil.test',
      '/\\evil.test',
      'javascript:alert(1)',
      '/_oauth/logout',
      'http://berth.localhost.evil.test/',
    ]) {
      const refused = await person.open(
        `${site.url}/_oauth/logout?redirect=${encodeURIComponent(elsewhere)}`,
        { follow: false },
      );
      expect([elsewhere, refused.status, refused.headers['location']]).toEqual([
        elsewhere,
        302,
        '/',
      ]);
    }
  });

  test('with the button on our own pages leads to a confirmation page', async () => {
    const form = await person.open(`${site.url}/_oauth/devices`);
    const page = await person.submit(form, {}, 'Sign out');
    expect([page.status, titleOf(page.body)]).toEqual([200, 'You are signed out']);
    expect((await userinfo()).status).toBe(401);
  });

  test('works while the control plane is down, and without a session', async () => {
    site.cp.away = true;
    const copy = cookieHeader();
    expect((await person.open(`${site.url}/_oauth/logout`, { follow: false })).status).toBe(302);
    expect(
      (await new PlainBrowser().open(`${site.url}/_oauth/userinfo`, { headers: { cookie: copy } }))
        .status,
    ).toBe(401);
    expect(
      (await new PlainBrowser().open(`${site.url}/_oauth/logout`, { follow: false })).status,
    ).toBe(302);
    site.cp.away = false;
  });
});
