/**
 * Forged and wrong answers of providers: each ends at an error page, without a session, a redirect
 * loop or a secret in the log.
 */
import { type GithubStandIn, startGithubStandIn } from '@berth/testbed/github-stand-in';
import { type IdentityProvider, startIdentityProvider } from '@berth/testbed/identity-provider';
import { type Page, PlainBrowser } from '@berth/testbed/plain-browser';
import { waitFor } from '@berth/testbed/wait';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createGateway } from '../../src/app.ts';
import { html } from '../../src/pages/html.ts';
import { githubEnv, oidcEnv, type Site, startSite, titleOf } from './support.ts';

let idp: IdentityProvider;
let github: GithubStandIn;
let site: Site;
let clock = 0;
/** Secrets that must not appear in the log; the tests fill the list. */
const secrets = new Set<string>();

beforeAll(async () => {
  idp = await startIdentityProvider();
  github = await startGithubStandIn();
  site = await startSite((url) => ({ ...oidcEnv(idp, url), ...githubEnv(github) }), {
    now: () => Date.now() + clock,
    providers: { monotonic: () => performance.now() + clock },
  });
});
afterAll(async () => {
  await site.close();
  await Promise.all([idp.stop(), github.stop()]);
});

const remember = (browser: PlainBrowser, ...urls: (string | URL)[]): void => {
  for (const { header } of browser.setCookies)
    secrets.add(/^[^=]+=([^;]*)/.exec(header)?.[1] ?? '');
  for (const url of urls)
    for (const [name, value] of new URL(url, site.url).searchParams)
      if (['state', 'code', 'nonce', 'code_challenge'].includes(name)) secrets.add(value);
};

/** Runs a login up to the provider's redirect and returns its address without opening it. */
async function answered(
  browser: PlainBrowser,
  provider: 'oidc' | 'github' = 'github',
  redirect = '/mine',
): Promise<URL> {
  const begun = await browser.open(
    `${site.url}/_oauth/login?provider=${provider}&redirect=${encodeURIComponent(redirect)}`,
    {
      follow: false,
    },
  );
  const asked = String(begun.headers['location']);
  let page: Page;
  if (provider === 'github') page = await browser.open(asked, { follow: false });
  else {
    const form = await browser.open(asked);
    page = await postForm(browser, form);
  }
  const back = new URL(String(page.headers['location']));
  remember(browser, asked, back);
  return back;
}
/** Ada's login, stopped at the provider's redirect to the gateway. */
async function postForm(browser: PlainBrowser, form: Page): Promise<Page> {
  const action = /action="([^"]+)"/.exec(form.body)?.[1] ?? '';
  const body = new URLSearchParams({
    email: 'ada@example.test',
    password: 'ada-password',
  }).toString();
  let page = await browser.open(new URL(action, form.url), {
    method: 'POST',
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    body,
    follow: false,
  });
  while (new URL(String(page.headers['location']), page.url).origin === form.url.origin)
    page = await browser.open(new URL(String(page.headers['location']), page.url), {
      follow: false,
    });
  return page;
}

const isSignedIn = async (browser: PlainBrowser): Promise<boolean> =>
  (await browser.open(`${site.url}/_oauth/userinfo`)).status === 200;
async function expectRefused(
  browser: PlainBrowser,
  url: URL | string,
  status: number,
  title: string,
): Promise<Page> {
  const page = await browser.open(url);
  remember(browser, url);
  expect({ status: page.status, title: titleOf(page.body), hops: page.hops.length }).toEqual({
    status,
    title,
    hops: 1,
  });
  // The page has a button and repeats nothing from the request.
  expect(page.body).toContain('Start again');
  for (const secret of new URL(url).searchParams.values())
    if (secret.length > 8) expect(page.body).not.toContain(secret);
  expect(await isSignedIn(browser)).toBe(false);
  return page;
}
const changed = (url: URL, change: (query: URLSearchParams) => void): URL => {
  const copy = new URL(url);
  change(copy.searchParams);
  return copy;
};

describe('state', () => {
  const INCOMPLETE = 'This sign-in link is incomplete';
  const OVER = 'This sign-in is no longer valid';

  test.each<[string, (q: URLSearchParams) => void, string]>([
    ['missing', (q) => q.delete('state'), INCOMPLETE],
    ['empty', (q) => q.set('state', ''), INCOMPLETE],
    ['twice', (q) => q.append('state', q.get('state') ?? ''), INCOMPLETE],
    ['another', (q) => q.set('state', 'x'.repeat(43)), OVER],
    ['shorter', (q) => q.set('state', (q.get('state') ?? '').slice(0, -1)), OVER],
    ['longer', (q) => q.set('state', `${q.get('state')}A`), OVER],
    ['in another case', (q) => q.set('state', (q.get('state') ?? '').toUpperCase()), OVER],
    ['binary', (q) => q.set('state', '\u0000\u00ff\ud800'), OVER],
    ['very long', (q) => q.set('state', 's'.repeat(20_000)), OVER],
  ])('%s', async (_what, change, title) => {
    const browser = new PlainBrowser();
    await expectRefused(browser, changed(await answered(browser), change), 400, title);
  });

  test('of another browser (login CSRF): a link that would sign in its opener as another person', async () => {
    const attacker = new PlainBrowser();
    await expectRefused(new PlainBrowser(), await answered(attacker), 400, OVER);
  });

  test('used a second time: no second sign-in, and the page has a button to continue', async () => {
    const browser = new PlainBrowser();
    const back = await answered(browser, 'github', '/reports?week=7');
    expect((await browser.open(back)).url.pathname).toBe('/reports');
    const page = await browser.open(back);
    expect([page.status, titleOf(page.body)]).toEqual([400, OVER]);
    const again =
      /href="([^"]+)"/.exec(page.body.split('<main>')[1] ?? '')?.[1]?.replaceAll('&amp;', '&') ??
      '';
    expect((await browser.open(new URL(again, site.url))).url.href).toBe(
      `${site.url}/reports?week=7`,
    );
  });

  test('after 15 minutes', async () => {
    const browser = new PlainBrowser();
    const back = await answered(browser);
    clock = 901_000;
    await expectRefused(browser, back, 400, OVER);
    clock = 0;
  });

  test('without cookies: an error page after one redirect, no loop', async () => {
    const browser = new PlainBrowser();
    const back = await answered(browser);
    browser.forgetCookies();
    const page = await expectRefused(browser, back, 400, OVER);
    expect(page.body).toContain('cookies');
  });
});

describe('code', () => {
  test.each<[string, (q: URLSearchParams) => void, string]>([
    ['missing', (q) => q.delete('code'), 'This sign-in link is incomplete'],
    ['empty', (q) => q.set('code', ''), 'This sign-in link is incomplete'],
    ['twice', (q) => q.append('code', 'x'), 'This sign-in link is incomplete'],
    [
      'another',
      (q) => q.set('code', 'x'.repeat(43)),
      'The identity provider did not accept this sign-in',
    ],
    [
      'very long',
      (q) => q.set('code', 'c'.repeat(20_000)),
      'The identity provider did not accept this sign-in',
    ],
  ])('%s', async (_what, change, title) => {
    for (const provider of ['github', 'oidc'] as const) {
      const browser = new PlainBrowser();
      await expectRefused(browser, changed(await answered(browser, provider), change), 400, title);
    }
  });

  test('of another person’s login (code injection, RFC 9700 section 4.5): PKCE does not match', async () => {
    for (const provider of ['github', 'oidc'] as const) {
      const [attacker, victim] = [new PlainBrowser(), new PlainBrowser()];
      const stolen = (await answered(victim, provider)).searchParams.get('code') ?? '';
      const mine = await answered(attacker, provider);
      await expectRefused(
        attacker,
        changed(mine, (q) => q.set('code', stolen)),
        400,
        'The identity provider did not accept this sign-in',
      );
    }
  });
});

describe('mix-up of providers', () => {
  const WRONG = 'The answer came from the wrong provider';
  test('an answer at another provider’s callback', async () => {
    for (const [asked, other] of [
      ['github', 'oidc'],
      ['oidc', 'github'],
    ] as const) {
      const browser = new PlainBrowser();
      const back = await answered(browser, asked);
      back.pathname = `/_oauth/callback/${other}`;
      site.cp.logins.length = 0;
      await expectRefused(browser, back, 400, WRONG);
      // The attempt alone detects this, even if the provider does not name its issuer.
      await waitFor('the refusal is told', () =>
        site.cp.logins.some((l) => l.reason === 'provider_mismatch' && l.provider === asked),
      );
    }
  });
  test.each<[string, (q: URLSearchParams) => void]>([
    ['another issuer', (q) => q.set('iss', 'https://honest.example')],
    ['no issuer, although the provider announces one', (q) => q.delete('iss')],
    ['two issuers', (q) => q.append('iss', 'https://honest.example')],
    ['an issuer that only begins so', (q) => q.set('iss', `${q.get('iss')}.evil.test`)],
  ])('%s (RFC 9207 section 2.4)', async (_what, change) => {
    const browser = new PlainBrowser();
    await expectRefused(browser, changed(await answered(browser, 'oidc'), change), 400, WRONG);
  });
  test('GitHub may name its issuer or omit it, but must not name another one', async () => {
    for (const namesIssuer of [true, false]) {
      github.namesIssuer = namesIssuer;
      const browser = new PlainBrowser();
      const back = await answered(browser);
      expect(back.searchParams.get('iss')).toBe(namesIssuer ? `${github.url}/login/oauth` : null);
      await expectRefused(
        browser,
        changed(back, (q) => q.set('iss', idp.issuer)),
        400,
        WRONG,
      );
      expect((await browser.open(await answered(browser))).url.pathname).toBe('/mine');
    }
    github.namesIssuer = true;
  });
  test('a provider that is not configured', async () => {
    const browser = new PlainBrowser();
    for (const name of [
      'google',
      'nothing',
      '__proto__',
      'constructor',
      '%2e%2e',
      'p'.repeat(150),
    ]) {
      const page = await browser.open(`${site.url}/_oauth/callback/${name}?state=a&code=b`);
      expect([name, page.status]).toEqual([name, 404]);
    }
    expect((await browser.open(`${site.url}/_oauth/login?provider=google`)).status).toBe(404);
  });
});

describe('the provider’s own errors', () => {
  test.each([
    ['access_denied', 403],
    ['login_required', 403],
    ['invalid_scope', 403],
    ['<script>alert(1)</script>', 403],
    ['', 403],
    ['server_error', 503],
    ['temporarily_unavailable', 503],
  ])('%s: %i, with a button to continue', async (error, status) => {
    const browser = new PlainBrowser();
    const back = changed(await answered(browser), (q) => {
      q.delete('code');
      q.set('error', error);
      q.set('error_description', '<b>do not show me</b>');
    });
    const page = await browser.open(back);
    expect(page.status).toBe(status);
    expect(page.body).not.toMatch(/do not show me|<script/);
    expect(page.body).toContain('href="/_oauth/login?redirect=%2Fmine"');
    // An error without a valid state belongs to no login.
    expect((await new PlainBrowser().open(back)).status).toBe(400);
  });
});

test('a scope that the provider refuses: the page names it and differs from the page of a cancelled sign-in', async () => {
  const browser = new PlainBrowser();
  const page = await browser.open(
    changed(await answered(browser), (q) => {
      q.delete('code');
      q.set('error', 'invalid_scope');
    }),
  );
  expect([page.status, titleOf(page.body)]).toEqual([
    403,
    'The identity provider does not share your e-mail address',
  ]);
  expect(page.body).toContain('openid, email and profile');
});

describe('attempt cookies', () => {
  const attemptsOf = (browser: PlainBrowser): string[] =>
    browser
      .cookies('berth.localhost')
      .filter((c) => c.name.startsWith('berth_login_'))
      .map((c) => c.name);

  test('are limited to five: the oldest is removed, and the newest five work', async () => {
    const browser = new PlainBrowser();
    const backs: URL[] = [];
    for (let i = 0; i < 9; i++) {
      clock += 1_000;
      backs.push(await answered(browser, 'github', `/tab${i}`));
      expect(attemptsOf(browser).length).toBe(Math.min(i + 1, 5));
    }
    for (const [i, back] of backs.entries()) {
      const page = await browser.open(back);
      if (i < 4) expect([i, page.status]).toEqual([i, 400]);
      else expect([i, page.url.pathname]).toEqual([i, `/tab${i}`]);
    }
    expect(attemptsOf(browser)).toEqual([]);
    clock = 0;
  });

  test('are hidden from scripts, other hosts and other paths', async () => {
    const browser = new PlainBrowser();
    await answered(browser);
    const line = browser.setCookies.find((c) => c.header.startsWith('berth_login_'))?.header ?? '';
    expect(line).toMatch(/; Path=\/_oauth\/; Max-Age=900; HttpOnly; SameSite=Lax$/);
  });

  test('that were changed in any way are refused without a server error (fast-check)', async () => {
    const browser = new PlainBrowser();
    const back = await answered(browser);
    const cookie = browser
      .cookies('berth.localhost')
      .find((c) => c.name.startsWith('berth_login_'));
    if (cookie === undefined) throw new Error('no attempt cookie');
    const { name, value } = cookie;
    const path = back.pathname + back.search;
    const ask = async (header: string): Promise<number> => {
      const answer = await site.gateway.server.inject({
        url: path,
        headers: { cookie: header, host: new URL(site.url).host },
      });
      expect(answer.headers['set-cookie'] ?? '').not.toMatch(/svc_fwd_session=[^;]/);
      return answer.statusCode;
    };
    const mutation = fc.oneof(
      fc
        .tuple(
          fc.nat(value.length - 1),
          fc.constantFrom('A', 'B', 'a', '0', '1', '-', '_', '=', '.'),
        )
        .map(([at, c]) => value.slice(0, at) + c + value.slice(at + 1)),
      fc.nat(value.length).map((at) => value.slice(0, at)),
      fc.nat(value.length).map((at) => value.slice(at)),
      fc.string({ maxLength: 5 }).map((s) => value + s.replace(/[;\s]/g, '') + 'A'),
      fc.base64String({ maxLength: 6_000 }),
      fc
        .string({ unit: 'binary', maxLength: 200 })
        .map((s) => s.replace(/[^\u0020-\u007e\u0080-\u00ff]|;/g, '')),
    );
    await fc.assert(
      fc.asyncProperty(mutation, async (mutated) => {
        fc.pre(mutated.trim() !== value);
        expect(await ask(`${name}=${mutated}`)).toBe(400);
      }),
      { numRuns: 150 },
    );
    // The valid value under another attempt's name, beside 100 others, and among invalid values.
    expect(await ask(`berth_login_AAAAAAAAAAAAAAAA=${value}`)).toBe(400);
    expect(
      await ask(Array.from({ length: 100 }, (_, i) => `berth_login_${i}=${value}`).join('; ')),
    ).toBe(400);
    expect(await ask(`;;=; ${name}; =x; ${name}`)).toBe(400);
    // The unchanged attempt still works, because none of these requests used it up.
    expect((await browser.open(back)).url.pathname).toBe('/mine');
  });

  test('of two logins are refused if their values are exchanged', async () => {
    const browser = new PlainBrowser();
    const backs = [await answered(browser), await answered(browser)];
    const [one, two] = browser
      .cookies('berth.localhost')
      .filter((c) => c.name.startsWith('berth_login_'));
    const cookie = `${one?.name}=${two?.value}; ${two?.name}=${one?.value}`;
    for (const back of backs) {
      const answer = await site.gateway.server.inject({
        url: back.pathname + back.search,
        headers: { cookie, host: new URL(site.url).host },
      });
      expect([answer.statusCode, titleOf(answer.body)]).toEqual([
        400,
        'This sign-in is no longer valid',
      ]);
    }
  });

  test('any query is answered with 400 or 404 (fast-check)', async () => {
    const browser = new PlainBrowser();
    const back = await answered(browser);
    const header = browser
      .cookies('berth.localhost')
      .map((c) => `${c.name}=${c.value}`)
      .join('; ');
    const pair = fc.tuple(
      fc.constantFrom('state', 'code', 'iss', 'error', 'session_state', '__proto__', 'toString'),
      fc.string({ unit: 'binary', maxLength: 60 }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(pair, { maxLength: 6 }), async (pairs) => {
        const query = new URLSearchParams(pairs).toString();
        const answer = await site.gateway.server.inject({
          url: `${back.pathname}?${query}`,
          headers: { cookie: header, host: new URL(site.url).host },
        });
        expect(answer.statusCode).toBe(400);
        expect(answer.headers['content-type']).toBe('text/html; charset=utf-8');
      }),
      { numRuns: 150 },
    );
  });
});

test('over https every cookie is also Secure', async () => {
  const { config, log } = site.gateway.deps;
  const gateway = await createGateway(
    { ...config, PUBLIC_URL: 'https://berth.localhost', STATE_DIR: `${config.STATE_DIR}/https` },
    { log, controlPlane: site.cp.client },
  );
  await waitFor('the policy is known', () => gateway.deps.policy.view().loaded);
  const begun = await gateway.server.inject({
    url: '/_oauth/login?provider=github',
    headers: { host: 'berth.localhost' },
  });
  const state = new URL(String(begun.headers.location)).searchParams.get('state') ?? '';
  const [attempt = ''] = [begun.headers['set-cookie'] ?? []].flat();
  expect(attempt).toMatch(/; HttpOnly; SameSite=Lax; Secure$/);
  const asked = await new PlainBrowser().open(String(begun.headers.location), { follow: false });
  const back = new URL(String(asked.headers['location']));
  expect(`${back.origin}${back.pathname}`).toBe('https://berth.localhost/_oauth/callback/github');
  const cookie = attempt.split(';')[0] ?? '';
  const done = await gateway.server.inject({
    url: back.pathname + back.search,
    headers: { host: 'berth.localhost', cookie },
  });
  secrets.add(state);
  expect(done.statusCode).toBe(302);
  for (const line of [done.headers['set-cookie'] ?? []].flat())
    expect(line).toMatch(/; HttpOnly; SameSite=Lax; Secure$/);
  await gateway.close();
});

describe('redirect targets of a login', () => {
  test.each([
    'https://evil.test/',
    '//evil.test/',
    '/\\evil.test',
    '\\\\evil.test',
    'https:evil.test',
    'http://berth.localhost@evil.test/',
    'http://berth.localhost.evil.test/',
    'javascript:alert(1)',
    'data:text/html,x',
    '/_oauth/logout',
    '/%5foauth/logout',
    '/\t/evil.test',
    '/x/..//evil.test',
  ])('%s leads to the first page', async (redirect) => {
    const browser = new PlainBrowser();
    const end = await browser.open(
      `${site.url}/_oauth/login?provider=github&redirect=${encodeURIComponent(redirect)}`,
    );
    expect(end.url.href).toBe(`${site.url}/`);
  });
});

test('pages cannot be framed, run or load anything, or be cached', async () => {
  const browser = new PlainBrowser();
  await browser.open(`${site.url}/_oauth/login?provider=github`);
  for (const path of [
    '/_oauth/login?provider=nothing',
    '/_oauth/callback/oidc',
    '/_oauth/device/activate',
    '/_oauth/devices',
    '/_oauth/signed-out',
    '/',
  ]) {
    const stranger = path.startsWith('/_oauth/device') ? browser : new PlainBrowser();
    const { headers, body } = await stranger.open(`${site.url}${path}`);
    const csp = String(headers['content-security-policy']);
    expect(csp).toMatch(/default-src 'none'/);
    expect(csp).toMatch(/frame-ancestors 'none'/);
    expect(csp).toMatch(/form-action 'self'/);
    expect(csp).not.toMatch(/unsafe|script-src|\*/);
    expect([
      headers['x-frame-options'],
      headers['cache-control'],
      headers['referrer-policy'],
      headers['x-content-type-options'],
    ]).toEqual(['DENY', 'no-store', 'no-referrer', 'nosniff']);
    expect(body).not.toMatch(/<script|\son\w+=|style="/i);
    expect(body).toMatch(/^<!doctype html>\n<html lang="en">/);
  }
});

test('inserted values are always text: they cannot add markup or leave an attribute (fast-check)', () => {
  const nasty = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.constantFrom('<', '>', '"', "'", '&', '&lt;', '</p>', '" onclick="', '<!--', ']]>'),
  );
  fc.assert(
    fc.property(fc.array(nasty, { maxLength: 6 }), (parts) => {
      const text = parts.join('');
      const { text: page } = html`<p title="${text}">${text}</p>`;
      const [, attribute = '', content = ''] = /^<p title="([^"]*)">([^]*)<\/p>$/.exec(page) ?? [];
      expect(attribute).toBe(content);
      expect(content).not.toMatch(/[<>"']|&(?!(amp|lt|gt|quot|#39);)/);
      const back = content
        .replaceAll('&lt;', '<')
        .replaceAll('&gt;', '>')
        .replaceAll('&quot;', '"')
        .replaceAll('&#39;', "'")
        .replaceAll('&amp;', '&');
      expect(back).toBe(text);
    }),
  );
});

test('an error page has a reference that the log contains beside the reason', async () => {
  const page = await new PlainBrowser().open(`${site.url}/_oauth/callback/oidc?state=nothing`);
  const reference =
    /Reference for your administrator: <span class="mark">([^<]+)</.exec(page.body)?.[1] ?? '';
  expect(reference).not.toBe('');
  const line = site
    .log()
    .split('\n')
    .find((l) => l.includes(reference));
  expect(JSON.parse(line ?? '{}')).toMatchObject({
    code: 'state_unknown',
    path: '/_oauth/callback/oidc',
  });
});

test('the log contains no state, code, cookie, secret or password', () => {
  const log = site.log();
  expect(secrets.size).toBeGreaterThan(60);
  expect(log.length).toBeGreaterThan(1_000);
  const lines = log.split('\n');
  for (const secret of [...secrets].filter((s) => s.length > 16))
    expect(lines.find((line) => line.includes(secret))).toBeUndefined();
  for (const secret of [
    idp.clientSecret,
    github.clientSecret,
    'ada-password',
    'a-session-secret',
    'gateway-secret',
    'gho_',
  ])
    expect(log).not.toContain(secret);
});
