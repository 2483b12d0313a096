/**
 * Sign-in with each provider over HTTP, with a real OpenID provider: the pages, and the cookies of
 * the browser afterwards.
 */
import { createHash, randomBytes } from 'node:crypto';
import { type GithubStandIn, startGithubStandIn } from '@berth/testbed/github-stand-in';
import { type IdentityProvider, startIdentityProvider } from '@berth/testbed/identity-provider';
import { type Page, PlainBrowser } from '@berth/testbed/plain-browser';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { FIRST_CLAIM } from '@berth/wire/gateway';
import { githubEnv, oidcEnv, type Site, startSite, textOf, titleOf } from './support.ts';

let idp: IdentityProvider;
let google: IdentityProvider;
let github: GithubStandIn;
let site: Site;
let ada: IdentityProvider['accounts'][number];
let eve: IdentityProvider['accounts'][number];

beforeAll(async () => {
  idp = await startIdentityProvider();
  google = await startIdentityProvider({ claimsInIdToken: true, clientAuth: 'client_secret_post' });
  github = await startGithubStandIn();
  site = await startSite(
    (url) => {
      google.allowRedirect(`${url}/_oauth/callback/google`);
      return {
        ...oidcEnv(idp, url, 'corp'),
        GOOGLE_CLIENT_ID: google.clientId,
        GOOGLE_CLIENT_SECRET: google.clientSecret,
        ...githubEnv(github),
        ALLOWED_EMAILS: '@example.test',
      };
    },
    { providers: { googleIssuer: google.issuer } },
  );
});
afterAll(async () => {
  await site.close();
  await Promise.all([idp.stop(), google.stop(), github.stop()]);
});
beforeEach(() => {
  [ada, eve] = idp.accounts as [typeof ada, typeof eve];
  site.cp.policy.disabled_users = [];
  site.cp.logins.length = 0;
});

/** Ada's Google account, managed by her company. */
function managed(
  hostedDomain: string | undefined = 'example.test',
): IdentityProvider['accounts'][number] {
  const [account] = google.accounts;
  if (account === undefined) throw new Error('no accounts');
  if (hostedDomain === '') delete account.hostedDomain;
  else account.hostedDomain = hostedDomain;
  return account;
}

const userinfo = async (browser: PlainBrowser): Promise<Page> =>
  browser.open(`${site.url}/_oauth/userinfo`);

describe('each provider', () => {
  test('OpenID Connect: the person returns signed in to the requested page', async () => {
    const browser = new PlainBrowser();
    const form = await browser.open(
      `${site.url}/_oauth/login?provider=corp&redirect=${encodeURIComponent('/welcome?a=1&b=2')}`,
    );
    expect(form.url.origin).toBe(idp.issuer);
    const end = await idp.signIn(browser, form, ada);
    expect(end.url.href).toBe(`${site.url}/welcome?a=1&b=2`);
    expect(JSON.parse((await userinfo(browser)).body)).toEqual({
      email: 'ada@example.test',
      name: 'Ada Lovelace',
      avatar_url: 'https://pictures.example.test/ada.png',
      provider: 'corp',
    });
  });

  test('Google: the same protocol with another issuer and name', async () => {
    const browser = new PlainBrowser();
    const form = await browser.open(`${site.url}/_oauth/login?provider=google`);
    expect(form.url.origin).toBe(google.issuer);
    await google.signIn(browser, form, managed());
    expect(JSON.parse((await userinfo(browser)).body)).toMatchObject({
      email: 'ada@example.test',
      provider: 'google',
    });
  });

  test.each([
    ['none', ''],
    ['another domain', 'elsewhere.test'],
  ])(
    'Google: @example.test in ALLOWED_EMAILS allows accounts that example.test manages, but not one with %s',
    async (_what, hd) => {
      const browser = new PlainBrowser();
      const page = await google.signIn(
        browser,
        await browser.open(`${site.url}/_oauth/login?provider=google`),
        managed(hd),
      );
      expect([page.status, titleOf(page.body)]).toEqual([403, 'Your account may not sign in here']);
      expect((await userinfo(browser)).status).toBe(401);
    },
  );

  test('GitHub: the primary verified address, not the one of the public profile', async () => {
    const browser = new PlainBrowser();
    const end = await browser.open(`${site.url}/_oauth/login?provider=github&redirect=/there`);
    expect(end.url.href).toBe(`${site.url}/there`);
    expect(JSON.parse((await userinfo(browser)).body)).toEqual({
      email: 'octavia@example.test',
      name: 'Octavia Butler',
      avatar_url: 'https://avatars.example.test/u/1',
      provider: 'github',
    });
  });

  test('the session cookie is host-only, HttpOnly and Lax, and the attempt cookie is gone', async () => {
    const browser = new PlainBrowser();
    await browser.open(`${site.url}/_oauth/login?provider=github`);
    const mine = browser.cookies('berth.localhost');
    expect(
      mine.map(({ name, path, httpOnly, sameSite }) => ({ name, path, httpOnly, sameSite })),
    ).toEqual([{ name: 'svc_fwd_session', path: '/', httpOnly: true, sameSite: 'lax' }]);
    expect(
      browser.setCookies.filter(
        ({ host, header }) => host === 'berth.localhost' && /domain=/i.test(header),
      ),
    ).toEqual([]);
  });

  test('the choice page lists each provider and names the destination host', async () => {
    const browser = new PlainBrowser();
    const target = site.url.replace('berth.localhost', 'alpha.berth.localhost');
    const page = await browser.open(
      `${site.url}/_oauth/login?redirect=${encodeURIComponent(`${target}/page`)}`,
    );
    expect(page.status).toBe(200);
    expect(textOf(page.body)).toContain('continue to alpha.berth.localhost');
    expect([...page.body.matchAll(/Continue with ([^<]+)/g)].map(([, label]) => label)).toEqual([
      'corp',
      'GitHub',
      'Google',
    ]);
    const href =
      /href="([^"]+provider=github[^"]*)"/.exec(page.body)?.[1]?.replaceAll('&amp;', '&') ?? '';
    const end = await browser.open(new URL(href, site.url));
    expect(end.hops.at(-1)?.url).toBe(`${target}/page`);
  });
});

describe('single sign-on', () => {
  test('a signed-in person is redirected immediately, without the provider', async () => {
    const browser = new PlainBrowser();
    await browser.open(`${site.url}/_oauth/login?provider=github`);
    const asked = idp.requests('/');
    const end = await browser.open(`${site.url}/_oauth/login?redirect=/next`);
    expect(end.hops.map((hop) => hop.status)).toEqual([302, 404]);
    expect(end.url.href).toBe(`${site.url}/next`);
    expect(idp.requests('/')).toBe(asked);
  });

  test('a project’s host gets a one-time code that is bound to the browser’s nonce there', async () => {
    const browser = new PlainBrowser();
    await browser.open(`${site.url}/_oauth/login?provider=github`);
    const nonce = randomBytes(32).toString('base64url');
    const challenge = createHash('sha256').update(nonce).digest('base64url');
    const page = site.url.replace('berth.localhost', 'alpha.berth.localhost');
    const answer = await browser.open(
      `${site.url}/_oauth/login?redirect=${encodeURIComponent(`${page}/a?b=c#d`)}&challenge=` +
        challenge,
      {
        follow: false,
      },
    );
    const location = new URL(String(answer.headers['location']));
    expect(`${location.origin}${location.pathname}`).toBe(`${page}/_oauth/session`);
    expect(location.searchParams.get('redirect')).toBe('/a?b=c#d');
    const code = location.searchParams.get('code') ?? '';
    const { codes } = site.gateway.deps;
    const claim = FIRST_CLAIM;
    expect(codes.read(code, 'alpha.berth.localhost', nonce, claim)?.session.identity.email).toBe(
      'octavia@example.test',
    );
    expect(codes.read(code, 'beta.berth.localhost', nonce, claim)).toBeNull();
    expect(codes.read(code, 'alpha.berth.localhost', `${nonce}x`, claim)).toBeNull();
    expect(codes.read(code, 'alpha.berth.localhost', undefined, claim)).toBeNull();
    // The host belongs to another project by now.
    expect(codes.read(code, 'alpha.berth.localhost', nonce, 'another claim')).toBeNull();
  });

  test('a second tab that completes its login later shares the session, so one logout ends both', async () => {
    const browser = new PlainBrowser();
    const tabs = [
      await browser.open(`${site.url}/_oauth/login?provider=corp&redirect=/one`),
      await browser.open(`${site.url}/_oauth/login?provider=corp&redirect=/two`),
    ];
    const [one, two] = tabs as [Page, Page];
    expect((await idp.signIn(browser, one, ada)).url.pathname).toBe('/one');
    const first =
      browser.cookies('berth.localhost').find((c) => c.name === 'svc_fwd_session')?.value ?? '';
    expect((await idp.signIn(browser, two, ada)).url.pathname).toBe('/two');
    const second =
      browser.cookies('berth.localhost').find((c) => c.name === 'svc_fwd_session')?.value ?? '';
    const { sessions } = site.gateway.deps;
    expect(sessions.open(second, 'sso')?.id).toBe(sessions.open(first, 'sso')?.id);
  });
});

describe('a sign-in is refused for', () => {
  const refusedAs = async (account: typeof ada): Promise<Page> => {
    const browser = new PlainBrowser();
    const form = await browser.open(`${site.url}/_oauth/login?provider=corp&redirect=/mine`);
    const end = await idp.signIn(browser, form, account);
    expect((await userinfo(browser)).status).toBe(401);
    expect(browser.cookies('berth.localhost')).toEqual([]);
    return end;
  };

  test('an unverified address, until it is verified', async () => {
    const page = await refusedAs(eve);
    expect([page.status, titleOf(page.body)]).toEqual([403, 'Your e-mail address is not verified']);
    eve.emailVerified = true;
    const browser = new PlainBrowser();
    await idp.signIn(browser, await browser.open(`${site.url}/_oauth/login?provider=corp`), eve);
    expect((await userinfo(browser)).status).toBe(200);
    eve.emailVerified = false;
  });

  test('an unverified primary address at GitHub, though another is verified', async () => {
    const primary = github.account.emails.find((e) => e.primary);
    if (primary === undefined) throw new Error('the stand-in has no primary address');
    primary.verified = false;
    const page = await new PlainBrowser().open(`${site.url}/_oauth/login?provider=github`);
    primary.verified = true;
    expect([page.status, titleOf(page.body)]).toEqual([403, 'Your e-mail address is not verified']);
  });

  test('an address that ALLOWED_EMAILS does not list', async () => {
    ada.email = 'ada@example.test.evil.test';
    const page = await refusedAs(ada);
    ada.email = 'ada@example.test';
    expect([page.status, titleOf(page.body)]).toEqual([403, 'Your account may not sign in here']);
  });

  test('an invalid address, or an address that looks like another one', async () => {
    for (const email of [
      'not-an-address',
      'a@b@example.test',
      'ad\u0430@example.test',
      'x\u212a@example.test',
      'a b@example.test',
      'a,b@example.test',
    ]) {
      ada.email = email;
      const browser = new PlainBrowser();
      const page = await idp.signIn(
        browser,
        await browser.open(`${site.url}/_oauth/login?provider=corp`),
        ada,
      );
      ada.email = 'ada@example.test';
      expect([email, page.status, titleOf(page.body)]).toEqual([
        email,
        403,
        'Your account has no usable e-mail address',
      ]);
    }
  });

  test('a disabled user, whose earlier session ends too', async () => {
    const browser = new PlainBrowser();
    await idp.signIn(browser, await browser.open(`${site.url}/_oauth/login?provider=corp`), ada);
    expect((await userinfo(browser)).status).toBe(200);
    site.cp.policy.disabled_users = ['ada@example.test'];
    site.cp.changed();
    await waitFor('the session ends', async () => (await userinfo(browser)).status === 401);
    const fresh = new PlainBrowser();
    const end = await idp.signIn(
      fresh,
      await fresh.open(`${site.url}/_oauth/login?provider=corp`),
      ada,
    );
    expect([end.status, titleOf(end.body)]).toEqual([403, 'Your account is disabled']);
    site.cp.policy.disabled_users = [];
    site.cp.changed();
    await waitFor(
      'they may again',
      () => !site.gateway.deps.policy.view().isDisabled('ada@example.test'),
    );
  });

  test('a person who cancels at the provider, with a button to start again for the same page', async () => {
    const browser = new PlainBrowser();
    const form = await browser.open(`${site.url}/_oauth/login?provider=corp&redirect=/mine`);
    const page = await browser.submit(form, {}, 'Cancel');
    expect([page.status, titleOf(page.body)]).toEqual([403, 'You were not signed in']);
    expect(page.body).toContain('href="/_oauth/login?redirect=%2Fmine"');
  });
});

test('sign-ins and refusals are reported to the control plane, and no login waits for it', async () => {
  const browser = new PlainBrowser();
  await browser.open(`${site.url}/_oauth/login?provider=github`);
  const other = new PlainBrowser();
  await idp.signIn(other, await other.open(`${site.url}/_oauth/login?provider=corp`), eve);
  await waitFor('both are told', () => site.cp.logins.length >= 2);
  expect(site.cp.logins).toContainEqual({
    outcome: 'signed_in',
    email: 'octavia@example.test',
    provider: 'github',
    address: '127.0.0.1',
    user_agent: 'PlainBrowser',
    reason: null,
  });
  expect(site.cp.logins).toContainEqual(
    expect.objectContaining({ outcome: 'refused', provider: 'corp', reason: 'email_unverified' }),
  );

  site.cp.away = true;
  const third = new PlainBrowser();
  const end = await third.open(`${site.url}/_oauth/login?provider=github&redirect=/in`);
  expect(end.url.pathname).toBe('/in');
  expect((await userinfo(third)).status).toBe(200);
  const told = site.cp.logins.length;
  site.cp.away = false;
  await waitFor(
    'it is told when the control plane is back',
    () => site.cp.logins.length === told + 1,
  );
});

describe('after a sign-out', () => {
  const signIn = async (browser: PlainBrowser): Promise<Page> => {
    const page = await browser.open(`${site.url}/_oauth/login?provider=corp&redirect=/in`);
    return page.url.origin === idp.issuer ? idp.signIn(browser, page, ada) : page;
  };
  const promptOf = async (browser: PlainBrowser, provider: string): Promise<string | null> => {
    const begun = await browser.open(`${site.url}/_oauth/login?provider=${provider}`, {
      follow: false,
    });
    return new URL(String(begun.headers['location'])).searchParams.get('prompt');
  };

  test.each(['the contract’s address', 'the button'])(
    'with %s: the next login lets the person choose an account',
    async (by) => {
      const browser = new PlainBrowser();
      expect((await signIn(browser)).url.pathname).toBe('/in');
      if (by === 'the button')
        await browser.submit(await browser.open(`${site.url}/_oauth/devices`), {}, 'Sign out');
      else await browser.open(`${site.url}/_oauth/logout`);
      expect([
        await promptOf(browser, 'corp'),
        await promptOf(browser, 'github'),
        await promptOf(browser, 'google'),
      ]).toEqual(['login', 'select_account', 'select_account']);
      const again = await browser.open(`${site.url}/_oauth/login?provider=corp&redirect=/in`);
      expect(again.url.origin).toBe(idp.issuer);
      expect(again.body).toContain('type="password"');
      expect((await idp.signIn(browser, again, ada)).url.pathname).toBe('/in');
      expect(browser.cookies('berth.localhost').map((cookie) => cookie.name)).not.toContain(
        'berth_ask',
      );
    },
  );
  test('without a sign-out there is no account choice', async () => {
    expect(await promptOf(new PlainBrowser(), 'corp')).toBeNull();
    await new PlainBrowser().open(`${site.url}/_oauth/logout`);
    expect(await promptOf(new PlainBrowser(), 'github')).toBeNull();
  });

  test('the page links to the provider’s own sign-out, if it has one, and the provider accepts it', async () => {
    const browser = new PlainBrowser();
    await signIn(browser);
    const page = await browser.submit(
      await browser.open(`${site.url}/_oauth/devices`),
      {},
      'Sign out',
    );
    const href =
      /href="([^"]+)">Sign out at corp too</.exec(page.body)?.[1]?.replaceAll('&amp;', '&') ?? '';
    const url = new URL(href);
    expect([
      url.origin,
      url.searchParams.get('client_id'),
      url.searchParams.get('post_logout_redirect_uri'),
    ]).toEqual([idp.issuer, idp.clientId, `${site.url}/_oauth/signed-out`]);
    expect((await browser.open(url)).status).toBe(200);
    // GitHub has none.
    const other = new PlainBrowser();
    await other.open(`${site.url}/_oauth/login?provider=github`);
    const plain = await other.submit(
      await other.open(`${site.url}/_oauth/devices`),
      {},
      'Sign out',
    );
    expect(plain.body).not.toContain('Sign out at');
    for (const query of [
      '?provider=nothing',
      '?provider=__proto__',
      '?provider=corp&provider=corp',
    ])
      expect((await other.open(`${site.url}/_oauth/signed-out${query}`)).body).not.toContain(
        'Sign out at',
      );
  });
});

test('a person who was just deleted gets an error page and no redirect loop; a minute later they can sign in', async () => {
  const deleted = (at: number): void => {
    site.cp.policy.deleted_users = [
      { email: 'octavia@example.test', deleted_at: new Date(at).toISOString() },
    ];
    site.cp.changed();
  };
  const login = (browser: PlainBrowser): Promise<Page> =>
    browser.open(`${site.url}/_oauth/login?provider=github&redirect=/in`);
  const before = new PlainBrowser();
  expect((await login(before)).url.pathname).toBe('/in');
  deleted(Date.now());
  await waitFor(
    'the session from before has ended',
    async () => (await userinfo(before)).status === 401,
  );
  const page = await login(new PlainBrowser());
  expect([page.status, titleOf(page.body)]).toEqual([403, 'Your account was just deleted']);
  deleted(Date.now() - 60_000);
  const again = new PlainBrowser();
  await waitFor('a new sign-in holds', async () => (await login(again)).url.pathname === '/in');
  expect((await userinfo(again)).status).toBe(200);
  site.cp.policy.deleted_users = [];
  site.cp.changed();
});

test('without ALLOWED_EMAILS the gateway starts and logs a warning; without a provider it shows an error page', async () => {
  const bare = await startSite(() => ({}));
  expect(bare.log()).toContain('ALLOWED_EMAILS is not set');
  const page = await new PlainBrowser().open(`${bare.url}/_oauth/login?redirect=/mine`);
  expect([page.status, titleOf(page.body)]).toEqual([503, 'Sign-in is not configured']);
  await bare.close();
  expect(site.log()).not.toContain('ALLOWED_EMAILS is not set');
});

test('a callback of another login does not revoke the existing session (forced sign-out)', async () => {
  const browser = new PlainBrowser();
  const form = await browser.open(`${site.url}/_oauth/login?provider=corp`);
  await browser.open(`${site.url}/_oauth/login?provider=github`);
  const before =
    browser.cookies('berth.localhost').find((c) => c.name === 'svc_fwd_session')?.value ?? '';
  site.cp.calls.length = 0;
  await idp.signIn(browser, form, ada);
  expect(JSON.parse((await userinfo(browser)).body)).toMatchObject({ email: 'ada@example.test' });
  const copy = await new PlainBrowser().open(`${site.url}/_oauth/userinfo`, {
    headers: { cookie: `svc_fwd_session=${before}` },
  });
  expect(copy.status).toBe(200);
  expect(site.cp.calls).not.toContain('revokeSession');
});
