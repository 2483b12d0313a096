/**
 * Faults of the identity provider: down, slow, invalid answers, new keys, forged tokens. Each gives
 * a readable page and no 5xx except 503, and the gateway recovers by itself.
 */
import {
  createHmac,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  sign,
} from 'node:crypto';
import { type GithubStandIn, startGithubStandIn } from '@berth/testbed/github-stand-in';
import {
  type Fault,
  type IdentityProvider,
  startIdentityProvider,
  type TokenAnswer,
} from '@berth/testbed/identity-provider';
import { type Page, PlainBrowser } from '@berth/testbed/plain-browser';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { githubEnv, oidcEnv, type Site, startSite, titleOf } from './support.ts';

let idp: IdentityProvider;
let github: GithubStandIn;
let site: Site;
const TIMEOUT_MS = 400;

const envOf = (url: string): Record<string, string> => ({
  ...oidcEnv(idp, url),
  ...githubEnv(github),
});

beforeAll(async () => {
  idp = await startIdentityProvider();
  github = await startGithubStandIn();
  site = await startSite(envOf, { providers: { timeoutMs: TIMEOUT_MS } });
});
afterAll(async () => {
  await site.close();
  await Promise.all([idp.stop(), github.stop()]);
});
afterEach(() => {
  idp.fault(null);
  idp.tamper(null);
  github.fault(null);
});

const login = (provider: string, at = site): string =>
  `${at.url}/_oauth/login?provider=${provider}&redirect=/mine`;
const isSignedIn = async (browser: PlainBrowser, at = site): Promise<boolean> =>
  (await browser.open(`${at.url}/_oauth/userinfo`)).status === 200;
const ada = (): IdentityProvider['accounts'][number] => {
  const [account] = idp.accounts;
  if (account === undefined) throw new Error('no accounts');
  return account;
};
async function expectUnavailable(page: Page): Promise<void> {
  expect([page.status, page.headers['retry-after'], titleOf(page.body)]).toEqual([
    503,
    '5',
    'The identity provider does not respond',
  ]);
  // The button that says "try again".
  expect(page.body).toMatch(/href="\/_oauth\/login\?[^"]*redirect=%2Fmine[^"]*">Try again/);
}

const FAULTS: readonly Fault[] = ['down', 'slow', 'garbage', 500, 404, 302, 204];

describe.each(FAULTS)('OpenID provider: %s', (fault) => {
  test('during the request for metadata; the next login works', async () => {
    const fresh = await startSite(envOf, { providers: { timeoutMs: TIMEOUT_MS } });
    const browser = new PlainBrowser();
    idp.fault(fault, '/.well-known/');
    await expectUnavailable(await browser.open(login('oidc', fresh)));
    expect(browser.cookies('berth.localhost')).toEqual([]);
    idp.fault(null);
    expect(
      (await idp.signIn(browser, await browser.open(login('oidc', fresh)), ada())).url.pathname,
    ).toBe('/mine');
    expect(await isSignedIn(browser, fresh)).toBe(true);
    await fresh.close();
  });

  test.each(['/token', '/jwks', '/me'])('at %s; the next login works', async (path) => {
    // New keys, so that the gateway must request them.
    if (path === '/jwks') idp.rotateKeys();
    const browser = new PlainBrowser();
    const form = await browser.open(login('oidc'));
    idp.fault(fault, path);
    await expectUnavailable(await idp.signIn(browser, form, ada()));
    expect(await isSignedIn(browser)).toBe(false);
    idp.fault(null);
    expect((await browser.open(login('oidc'))).url.pathname).toBe('/mine');
    expect(await isSignedIn(browser)).toBe(true);
  });
});

describe.each(['down', 'garbage', 500, 401] as const)('GitHub: %s', (fault) => {
  test.each(['/login/oauth/access_token', '/api/user', '/api/user/emails'])(
    'at %s; the next login works',
    async (path) => {
      const browser = new PlainBrowser();
      github.fault(fault, path);
      await expectUnavailable(await browser.open(login('github')));
      expect(await isSignedIn(browser)).toBe(false);
      github.fault(null);
      expect((await browser.open(login('github'))).url.pathname).toBe('/mine');
    },
  );
});

describe('a provider that goes down while its metadata are cached', () => {
  test.each(['down', 'slow', 500, 503] as const)(
    '%s: an error page and not a redirect to a dead address; it recovers by itself',
    async (fault) => {
      let clock = 0;
      const fresh = await startSite(envOf, {
        providers: { timeoutMs: TIMEOUT_MS, monotonic: () => performance.now() + clock },
      });
      expect((await new PlainBrowser().open(login('oidc', fresh))).url.origin).toBe(idp.issuer);
      idp.fault(fault);
      clock += 10_000;
      const browser = new PlainBrowser();
      const page = await browser.open(login('oidc', fresh));
      await expectUnavailable(page);
      expect([page.hops.length, browser.cookies('berth.localhost')]).toEqual([1, []]);
      idp.fault(null);
      clock += 10_000;
      expect((await new PlainBrowser().open(login('oidc', fresh))).url.origin).toBe(idp.issuer);
      await fresh.close();
    },
  );

  test('is probed once in some seconds, independent of the number of logins', async () => {
    const fresh = await startSite(envOf, { providers: { timeoutMs: TIMEOUT_MS } });
    const begin = () => new PlainBrowser().open(login('oidc', fresh), { follow: false });
    const before = idp.requests('/auth');
    const pages = await Promise.all(Array.from({ length: 20 }, begin));
    expect(pages.map((page) => page.status)).toEqual(Array<number>(20).fill(302));
    expect(idp.requests('/auth') - before).toBe(1);
    await fresh.close();
  });
});

test('a wrong client secret: the page says that the provider refused this platform, not that it is down', async () => {
  for (const [provider, wrong] of [
    ['oidc', { OIDC_CLIENT_SECRET: 'wrong-secret-of-the-client' }],
    ['github', { GITHUB_CLIENT_SECRET: 'wrong-secret-of-the-client' }],
  ] as const) {
    const other = await startSite((url) => ({ ...envOf(url), ...wrong }), {
      providers: { timeoutMs: TIMEOUT_MS },
    });
    const browser = new PlainBrowser();
    const first = await browser.open(login(provider, other));
    const page = provider === 'oidc' ? await idp.signIn(browser, first, ada()) : first;
    expect([provider, page.status, titleOf(page.body)]).toEqual([
      provider,
      503,
      'The identity provider refused this platform',
    ]);
    expect(page.body).toContain('client secret');
    expect(await isSignedIn(browser, other)).toBe(false);
    expect(other.log()).toContain('client_refused');
    expect(other.log()).not.toContain('wrong-secret-of-the-client');
    await other.close();
  }
});

test('metadata are reloaded after 10 minutes; if that fails, the old ones stay in use', async () => {
  let clock = 0;
  const fresh = await startSite(envOf, {
    providers: { timeoutMs: TIMEOUT_MS, monotonic: () => performance.now() + clock },
  });
  const asked = (): number => idp.requests('/.well-known/');
  const loginWorks = async (): Promise<boolean> => {
    const browser = new PlainBrowser();
    return (
      (await idp.signIn(browser, await browser.open(login('oidc', fresh)), ada())).url.pathname ===
      '/mine'
    );
  };
  expect(await loginWorks()).toBe(true);
  const before = asked();
  expect(await loginWorks()).toBe(true);
  expect(asked()).toBe(before);
  clock = 601_000;
  for (const fault of ['down', 'slow', 'garbage'] as const) {
    idp.fault(fault, '/.well-known/');
    expect(await loginWorks()).toBe(true);
  }
  expect(asked()).toBeGreaterThan(before);
  idp.fault(null);
  const during = asked();
  expect([await loginWorks(), await loginWorks()]).toEqual([true, true]);
  expect(asked()).toBe(during + 1);
  await fresh.close();
});

test('an endless answer is not read completely', async () => {
  const fresh = await startSite(envOf, { providers: { timeoutMs: TIMEOUT_MS } });
  idp.tamper(
    (answer) => ({ ...answer, padding: 'x'.repeat(600_000) }),
    '/.well-known/openid-configuration',
  );
  await expectUnavailable(await new PlainBrowser().open(login('oidc', fresh)));
  idp.tamper(
    (answer) => ({ ...answer, padding: 'x'.repeat(60_000) }),
    '/.well-known/openid-configuration',
  );
  expect((await new PlainBrowser().open(login('oidc', fresh))).url.origin).toBe(idp.issuer);
  await fresh.close();
});

test('many logins share one request to a slow provider, and none waits beyond its time limit', async () => {
  const fresh = await startSite(envOf, { providers: { timeoutMs: TIMEOUT_MS } });
  idp.fault('slow', '/.well-known/');
  const asked = idp.requests('/.well-known/');
  const pages = await Promise.all(
    Array.from({ length: 20 }, () => new PlainBrowser().open(login('oidc', fresh))),
  );
  expect(pages.map((page) => page.status)).toEqual(Array<number>(20).fill(503));
  expect(idp.requests('/.well-known/') - asked).toBe(1);
  await fresh.close();
});

test('people who are signed in do not notice that the provider is down', async () => {
  const browser = new PlainBrowser();
  await browser.open(login('github'));
  github.fault('down');
  idp.fault('down');
  expect((await browser.open(`${site.url}/_oauth/login?redirect=/mine`)).url.pathname).toBe(
    '/mine',
  );
  expect(await isSignedIn(browser)).toBe(true);
});

test('logins work if keys rotate between two logins, or between the form and the answer', async () => {
  for (let i = 0; i < 3; i++) {
    const browser = new PlainBrowser();
    const form = await browser.open(login('oidc'));
    if (i > 0) idp.rotateKeys();
    expect((await idp.signIn(browser, form, ada())).url.pathname).toBe('/mine');
    expect(await isSignedIn(browser)).toBe(true);
  }
});

describe('an invalid ID token signs nobody in', () => {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const b64 = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  type Parts = { header: Record<string, unknown>; claims: Record<string, unknown> };
  const partsOf = (token: string): Parts => {
    const [header = '', claims = ''] = token.split('.');
    const read = (text: string): Record<string, unknown> =>
      JSON.parse(Buffer.from(text, 'base64url').toString()) as Record<string, unknown>;
    return { header: read(header), claims: read(claims) };
  };
  const signed = ({ header, claims }: Parts, key: KeyObject = privateKey): string => {
    const input = `${b64(header)}.${b64(claims)}`;
    return `${input}.${sign('sha256', Buffer.from(input), key).toString('base64url')}`;
  };
  const hmac = ({ header, claims }: Parts, secret: string): string => {
    const input = `${b64({ ...header, alg: 'HS256' })}.${b64(claims)}`;
    return `${input}.${createHmac('sha256', secret).update(input).digest('base64url')}`;
  };
  const edited = (change: (parts: Parts) => string) => (answer: TokenAnswer) => ({
    ...answer,
    id_token: change(partsOf(String(answer['id_token']))),
  });
  const REFUSED = [400, 'The identity could not be verified'];
  const AWAY = [503, 'The identity provider does not respond'];

  test.each<
    [string, (answer: TokenAnswer) => TokenAnswer | Promise<TokenAnswer>, (string | number)[]]
  >([
    ['signed with another key', edited((p) => signed(p)), REFUSED],
    [
      'signed with another key, its own public key beside it',
      edited((p) =>
        signed({
          ...p,
          header: {
            ...p.header,
            kid: undefined,
            jwk: createPublicKey(privateKey).export({ format: 'jwk' }),
          },
        }),
      ),
      REFUSED,
    ],
    ['alg none', edited(({ claims }) => `${b64({ alg: 'none' })}.${b64(claims)}.`), REFUSED],
    [
      'alg none, signature kept',
      (a) => ({ ...a, id_token: String(a['id_token']).replace(/^[^.]+/, b64({ alg: 'none' })) }),
      REFUSED,
    ],
    ['HMAC with the client’s secret', edited((p) => hmac(p, idp.clientSecret)), REFUSED],
    [
      'HMAC with the public key',
      async (a) => {
        const { keys } = (await (await fetch(`${idp.issuer}/jwks`)).json()) as {
          keys: Record<string, string>[];
        };
        const pem = createPublicKey({ key: keys[0] ?? {}, format: 'jwk' }).export({
          type: 'spki',
          format: 'pem',
        });
        return { ...a, id_token: hmac(partsOf(String(a['id_token'])), pem.toString()) };
      },
      REFUSED,
    ],
    [
      'claims changed under the signature',
      (a) => ({
        ...a,
        id_token: withClaims(String(a['id_token']), {
          sub: 'eve@example.test',
          email: 'root@example.test',
        }),
      }),
      REFUSED,
    ],
    [
      'no signature',
      (a) => ({ ...a, id_token: `${String(a['id_token']).split('.').slice(0, 2).join('.')}.` }),
      REFUSED,
    ],
    [
      'of another audience',
      edited((p) => idp.sign({ ...p.claims, aud: 'another-client' })),
      REFUSED,
    ],
    [
      'of another issuer',
      edited((p) => idp.sign({ ...p.claims, iss: 'https://evil.test' })),
      REFUSED,
    ],
    ['expired long ago', edited((p) => idp.sign({ ...p.claims, exp: 1_000_000_000 })), REFUSED],
    [
      'of another login (nonce)',
      edited((p) => idp.sign({ ...p.claims, nonce: 'of-another-login' })),
      REFUSED,
    ],
    ['without a nonce', edited((p) => idp.sign({ ...p.claims, nonce: undefined })), REFUSED],
    [
      'for several, us among them, but made out to another (azp)',
      edited((p) => idp.sign({ ...p.claims, aud: [idp.clientId, 'another'], azp: 'another' })),
      REFUSED,
    ],
    ['without a subject', edited((p) => idp.sign({ ...p.claims, sub: undefined })), REFUSED],
    ['issued without a time', edited((p) => idp.sign({ ...p.claims, iat: undefined })), REFUSED],
    ['rubbish', (a) => ({ ...a, id_token: 'a.b.c' }), AWAY],
    ['missing', ({ id_token: _gone, ...rest }) => rest, REFUSED],
    ['a number', (a) => ({ ...a, id_token: 7 }), REFUSED],
  ])('%s', async (_what, change, [status, title]) => {
    const browser = new PlainBrowser();
    const form = await browser.open(login('oidc'));
    idp.tamper(change);
    const page = await idp.signIn(browser, form, ada());
    expect([page.status, titleOf(page.body)]).toEqual([status, title]);
    expect(await isSignedIn(browser)).toBe(false);
    expect(browser.cookies('berth.localhost')).toEqual([]);
  });

  test('userinfo of another person (OpenID Connect Core section 5.3.2)', async () => {
    const browser = new PlainBrowser();
    const form = await browser.open(login('oidc'));
    idp.tamper(
      (answer) => ({ ...answer, sub: 'root@example.test', email: 'root@example.test' }),
      '/me',
    );
    const page = await idp.signIn(browser, form, ada());
    expect([page.status, titleOf(page.body)]).toEqual(REFUSED);
    expect(await isSignedIn(browser)).toBe(false);
  });

  /** Runs a login whose ID token has these additional claims. */
  async function withSaid(said: Record<string, unknown>): Promise<{ page: Page; who: Page }> {
    const browser = new PlainBrowser();
    const form = await browser.open(login('oidc'));
    idp.tamper(edited((p) => idp.sign({ ...p.claims, ...said })));
    const page = await idp.signIn(browser, form, ada());
    return { page, who: await browser.open(`${site.url}/_oauth/userinfo`) };
  }

  test.each([undefined, false, null, 'false', 'TRUE', 1, {}, ['true']])(
    'an address with email_verified %j is not verified',
    async (email_verified) => {
      const { page, who } = await withSaid({ email: 'root@example.test', email_verified });
      expect([page.status, titleOf(page.body), who.status]).toEqual([
        403,
        'Your e-mail address is not verified',
        401,
      ]);
    },
  );

  test.each([
    7,
    '',
    'root',
    ['root@example.test'],
    `${'x'.repeat(250)}@example.test`,
    'root@example.test\r\nX-Admin: 1',
  ])('an address %j is none', async (email) => {
    const { page, who } = await withSaid({ email, email_verified: true });
    expect([page.status, titleOf(page.body), who.status]).toEqual([
      403,
      'Your account has no usable e-mail address',
      401,
    ]);
  });

  test('dangerous characters and URLs are removed from name and picture', async () => {
    const said = {
      email: 'Root@Example.test',
      email_verified: 'true',
      name: 'Rö\r\nX-Admin: 1\u0000 \ud800',
      picture: 'javascript:alert(1)',
    };
    const { who } = await withSaid(said);
    expect(JSON.parse(who.body)).toEqual({
      email: 'root@example.test',
      name: 'Rö X-Admin: 1  \ufffd',
      avatar_url: null,
      provider: 'oidc',
    });
  });

  test('a token that was signed again with the right key is accepted', async () => {
    const browser = new PlainBrowser();
    const form = await browser.open(login('oidc'));
    idp.tamper(edited((p) => idp.sign(p.claims)));
    expect((await idp.signIn(browser, form, ada())).url.pathname).toBe('/mine');
  });

  function withClaims(token: string, more: Record<string, unknown>): string {
    const [header = '', , signature = ''] = token.split('.');
    return `${header}.${b64({ ...partsOf(token).claims, ...more })}.${signature}`;
  }
});

describe('metadata with wrong endpoints', () => {
  test.each<[string, Record<string, unknown>]>([
    ['another issuer', { issuer: 'https://evil.test' }],
    ['a script as authorization endpoint', { authorization_endpoint: 'javascript:alert(1)' }],
    ['no token endpoint', { token_endpoint: undefined }],
    ['keys in a file', { jwks_uri: 'file:///etc/passwd' }],
  ])('%s: 503, and no browser is redirected there', async (_what, change) => {
    const { createServer } = await import('node:http');
    let base = '';
    const fake = createServer((_request, response) => {
      const metadata = {
        issuer: base,
        authorization_endpoint: `${base}/auth`,
        token_endpoint: `${base}/token`,
        jwks_uri: `${base}/jwks`,
        response_types_supported: ['code'],
        ...change,
      };
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(metadata));
    });
    await new Promise<void>((resolve) => {
      fake.listen(0, '127.0.0.1', resolve);
    });
    const bound = fake.address();
    base = `http://127.0.0.1:${bound !== null && typeof bound === 'object' ? bound.port : 0}`;
    const fresh = await startSite(() => ({
      OIDC_ISSUER: base,
      OIDC_CLIENT_ID: 'x',
      OIDC_CLIENT_SECRET: 'y',
    }));
    await expectUnavailable(await new PlainBrowser().open(login('oidc', fresh)));
    await fresh.close();
    await new Promise((resolve) => fake.close(resolve));
  });
});

test('the log contains no secrets', () => {
  const log = site.log();
  for (const secret of [idp.clientSecret, github.clientSecret, 'ada-password', 'gho_', 'eyJ'])
    expect(log).not.toContain(secret);
});
