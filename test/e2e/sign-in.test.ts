/**
 * The whole sign-in as a person sees it: the real Traefik, a real OpenID provider, headless
 * Chromium.
 */
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { repositoryRoot } from '@berth/testbed/config';
import { PlainBrowser } from '@berth/testbed/plain-browser';
import { waitFor } from '@berth/testbed/wait';
import { launchChromium, whyNoChromium } from './chromium.ts';
import type { Echo } from './echo.ts';
import { buildDashboard } from '../../scripts/lib/dashboard.ts';
import {
  ADA,
  GRACE,
  headersOf,
  startSignedInWorld,
  type SignedInWorld,
  whyNoSignIn,
} from './signed-in-world.ts';

const reason = whyNoChromium() ?? whyNoSignIn('traefik');
const DOMAIN = 'www.shop.example';
/** Folder of the pictures for people; git ignores it. */
const PICTURES = join(repositoryRoot, '.berth', 'pictures');
const SOON = { deadlineMs: 5_000, intervalMs: 100 };

describe.skipIf(reason !== undefined)(
  `sign-in in Chromium${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let world: SignedInWorld;
    let chromium: Awaited<ReturnType<typeof launchChromium>>;
    let browser: Browser;
    let person: BrowserContext;
    let page: Page;
    const at = (prefix: string, path = '/'): string => `${world.berth.address(prefix)}${path}`;
    const picture = (name: string, of = page) =>
      of.screenshot({ path: join(PICTURES, `${name}.png`) });
    const echo = async (of = page): Promise<Echo> =>
      JSON.parse((await of.locator('#echo').textContent()) ?? '') as Echo;
    const fresh = async (): Promise<BrowserContext> => {
      const context = await browser.newContext({
        ignoreHTTPSErrors: true,
        viewport: { width: 900, height: 640 },
      });
      context.setDefaultTimeout(15_000);
      return context;
    };
    const cookieHeader = async (prefix: string): Promise<string> =>
      (await person.cookies(at(prefix)))
        .map((cookie) => `${cookie.name}=${cookie.value}`)
        .join('; ');
    /** Fills in the form on the provider's page. */
    const fillIn = async (
      of: Page,
      account: { email: string; password: string },
    ): Promise<void> => {
      await of.locator('input[name=email], input[name=login]').first().fill(account.email);
      await of.locator('input[type=password]').fill(account.password);
      await of.locator('button[type=submit], input[type=submit]').first().click();
    };
    const signInAs = async (
      of: Page,
      address: string,
      account: { email: string; password: string },
    ): Promise<void> => {
      await of.goto(address);
      await of.getByRole('link', { name: /single sign-on/i }).click();
      await fillIn(of, account);
      await of.waitForLoadState();
    };

    beforeAll(async () => {
      await mkdir(PICTURES, { recursive: true });
      // Two providers, so that the page offers a choice. The second is never used.
      const gatewayEnv = {
        GITHUB_CLIENT_ID: 'nobody',
        GITHUB_CLIENT_SECRET: 'nothing',
        GITHUB_URL: 'http://127.0.0.1:9',
        GITHUB_API_URL: 'http://127.0.0.1:9',
      };
      const DASHBOARD_DIR = await buildDashboard(
        join(repositoryRoot, '.berth', 'dashboard-of-sign-in'),
      );
      world = await startSignedInWorld({
        proxy: 'traefik',
        gatewayEnv,
        adminEmails: [GRACE.email],
        env: { DASHBOARD_DIR, DOMAIN_QUARANTINE: '0s' },
      });
      // Without a network of its own, the browser asks for the address of the custom domain.
      chromium = await launchChromium([`--host-resolver-rules=MAP ${DOMAIN} 127.0.0.1`]);
      browser = chromium.browser;
      person = await fresh();
      page = await person.newPage();
    });
    afterAll(async () => {
      await chromium?.close();
      await world?.stop();
    });

    it('the first visit leads over the choice and the provider back to the same address', async () => {
      await page.goto(at('alpha', '/reports?year=2026&sort=name#totals'));
      expect(new URL(page.url()).origin).toBe(world.berth.publicUrl);
      expect(await page.getByRole('heading').first().textContent()).toBe('Sign in');
      await picture('1-choice');
      await page.emulateMedia({ colorScheme: 'dark' });
      await picture('1-choice-dark');
      await page.emulateMedia({ colorScheme: null });
      await page.getByRole('link', { name: /single sign-on/i }).click();
      expect(new URL(page.url()).origin).toBe(new URL(world.idp.issuer).origin);
      await picture('2-provider');
      await fillIn(page, ADA);
      await page.waitForURL((url) => url.host.startsWith('alpha.'));
      // The part after # never reaches a server. Browsers keep it over redirects, not over a form.
      expect(page.url().replace(/#.*$/, '')).toBe(at('alpha', '/reports?year=2026&sort=name'));
      const seen = await echo();
      expect(seen).toMatchObject({ app: 'alpha', url: '/reports?year=2026&sort=name' });
      expect(headersOf(seen, 'x-forwarded-user')).toEqual([ADA.email]);
      expect(headersOf(seen, 'x-forwarded-user-provider')).toEqual(['oidc']);
      expect(headersOf(seen, 'cookie')).toEqual([]);
      expect(headersOf(seen, 'authorization')).toEqual([]);
      await picture('3-application');
    });

    it('scripts of a page cannot read Berth’s cookies', async () => {
      expect(await page.evaluate('document.cookie')).toBe('');
      const cookies = await person.cookies();
      expect(cookies.length).toBeGreaterThan(1);
      for (const cookie of cookies.filter(({ domain }) =>
        domain.includes(world.berth.baseDomain),
      )) {
        // A leading dot would make it a cookie of every host below.
        expect(cookie).toMatchObject({
          httpOnly: true,
          secure: true,
          sameSite: 'Lax',
          domain: expect.not.stringMatching(/^\./),
        });
      }
    });

    it('a second project opens without a login, three tabs at once', async () => {
      const tabs = await Promise.all([1, 2, 3].map(() => person.newPage()));
      await Promise.all(tabs.map((tab, i) => tab.goto(at('beta', `/tab/${i}`))));
      for (const [i, tab] of tabs.entries()) {
        expect(tab.url()).toBe(at('beta', `/tab/${i}`));
        expect(headersOf(await echo(tab), 'x-forwarded-user')).toEqual([ADA.email]);
        await tab.close();
      }
    });

    it('three tabs at once without a session: each ends at its own address after the sign-in', async () => {
      const context = await fresh();
      const tabs = await Promise.all([0, 1, 2].map(() => context.newPage()));
      await Promise.all(tabs.map((tab, i) => tab.goto(at('alpha', `/tab/${i}`))));
      for (const [i, tab] of tabs.entries()) {
        await tab.getByRole('link', { name: /single sign-on/i }).click();
        if (i === 0) await fillIn(tab, ADA);
        await tab.waitForURL(at('alpha', `/tab/${i}`), { timeout: 10_000 });
      }
      const attempts = (await context.cookies(`${world.berth.publicUrl}/_oauth/login`)).filter(
        ({ name }) => name.startsWith('berth_login'),
      );
      expect(attempts.length).toBeLessThanOrEqual(5);
      await context.close();
    });

    it('an open project receives no identity, not even a forged one', async () => {
      const forging = await browser.newContext({
        ignoreHTTPSErrors: true,
        extraHTTPHeaders: { 'x-forwarded-user': 'mallory@evil.example' },
      });
      const tab = await forging.newPage();
      await tab.goto(at('open'));
      expect(JSON.stringify((await echo(tab)).headers)).not.toContain('mallory');
      await forging.close();
    });

    it('userinfo answers fetch with credentials from a project’s page', async () => {
      await page.goto(at('alpha'));
      const url = `${world.berth.publicUrl}/_oauth/userinfo`;
      const asked =
        `fetch(${JSON.stringify(url)}, { credentials: 'include' }).then(async (r) => ({ status: ` +
        'r.status, body: await r.json() }))';
      expect(await page.evaluate(asked)).toMatchObject({
        status: 200,
        body: { email: ADA.email, name: ADA.name, provider: 'oidc' },
      });
      const stranger = await fresh();
      const tab = await stranger.newPage();
      // The page of a project without a login: the browser withholds the answer from it, with and
      // without a session.
      await tab.goto(at('open'));
      await expect(tab.evaluate(asked)).rejects.toThrow(/Failed to fetch/);
      await page.goto(at('open'));
      await expect(page.evaluate(asked)).rejects.toThrow(/Failed to fetch/);
      await stranger.close();
    });

    it('a WebSocket of a page behind the login connects', async () => {
      await page.goto(at('alpha'));
      const first = await page.evaluate(
        "new Promise((resolve, reject) => { const s = new WebSocket('wss://' + location.host + " +
          "'/live'); s.onmessage = (m) => resolve(m.data); s.onerror = () => reject(new " +
          "Error('refused')); })",
      );
      const seen = JSON.parse(String(first)) as Echo;
      expect(headersOf(seen, 'x-forwarded-user')).toEqual([ADA.email]);
      expect(headersOf(seen, 'cookie')).toEqual([]);
    });

    it('device flow: a click in the browser confirms it, a command line uses it, the browser ends it', async () => {
      const curl = new PlainBrowser();
      const post = async (path: string, body?: object): Promise<Record<string, unknown>> => {
        const headers = {
          accept: '*/*',
          'user-agent': 'berth-cli/1.0 (laptop)',
          'content-type': 'application/json',
        };
        const answer = await curl.open(`${world.berth.publicUrl}${path}`, {
          method: 'POST',
          headers,
          ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        });
        return JSON.parse(answer.body) as Record<string, unknown>;
      };
      const device = await post('/_oauth/device/code');
      expect(device).toMatchObject({ expires_in: 600, interval: 5 });
      const poll = () => post('/_oauth/device/token', { device_code: device['device_code'] });
      expect(await poll()).toMatchObject({ error: 'authorization_pending' });
      await page.goto(String(device['verification_uri_complete']));
      expect(await page.textContent('body')).toContain('berth-cli/1.0 (laptop)');
      await picture('4-activation');
      await page.getByRole('button', { name: 'Connect', exact: true }).click();
      await page.getByRole('heading', { name: 'The device is connected' }).waitFor();
      await picture('5-connected');
      const answer = await waitFor(
        'the token is issued',
        async () => {
          const polled = await poll();
          return 'access_token' in polled && polled;
        },
        { deadlineMs: 30_000, intervalMs: 5_200 },
      );
      expect(answer).toMatchObject({ token_type: 'Bearer', expires_in: 7_776_000 });
      const headers = {
        accept: 'application/json',
        authorization: `Bearer ${String(answer['access_token'])}`,
      };
      const used = await waitFor(
        'the project accepts the token',
        async () => {
          const got = await curl.open(at('beta'), { headers });
          return got.status === 200 && got;
        },
        SOON,
      );
      expect(used.body).toContain(ADA.email);
      expect(used.body).not.toContain(String(answer['access_token']));
      await page.goto(`${world.berth.publicUrl}/_oauth/devices`);
      await picture('6-devices');
      await page.getByRole('button', { name: /Disconnect/ }).click();
      await waitFor(
        'the token is refused',
        async () => (await curl.open(at('beta'), { headers })).status === 401,
        SOON,
      );
    });

    it('the code can be typed, and a wrong code gets a readable answer', async () => {
      await page.goto(`${world.berth.publicUrl}/_oauth/device/activate`);
      await page.getByLabel('Code').fill('bbbb cccc');
      await picture('7-type-the-code');
      await page.getByRole('button', { name: 'Continue' }).click();
      await page.getByRole('alert').waitFor();
      await picture('8-wrong-code');
    });

    it('the proxy’s dashboard opens only for ADMIN_EMAILS', async () => {
      const dashboard = at('traefik', '/api/overview');
      const refused = await person.newPage();
      expect((await refused.goto(dashboard))?.status()).toBe(403);
      await picture('9-not-an-admin', refused);
      const other = await fresh();
      const tab = await other.newPage();
      await signInAs(tab, dashboard, GRACE);
      expect((await tab.goto(dashboard))?.status()).toBe(200);
      expect(JSON.parse((await tab.locator('body').textContent()) ?? '')).toHaveProperty(
        'http.routers',
      );
      await other.close();
      await refused.close();
    });

    it('blocked cookies lead to a page that says so, not to a loop', async () => {
      const context = await fresh();
      const tab = await context.newPage();
      await signInAs(tab, at('beta'), ADA);
      // Acts like a browser that stores no cookie of this host: what it sets is lost on the way.
      await tab.route(at('alpha', '/blocked'), async (route) => {
        const answer = await new PlainBrowser().open(route.request().url(), { follow: false });
        expect(answer.headers['set-cookie']).toBeDefined();
        await route.fulfill({
          status: answer.status,
          headers: { location: String(answer.headers['location']) },
        });
      });
      const hops: string[] = [];
      tab.on('request', (request) => hops.push(request.url()));
      const last = await tab.goto(at('alpha', '/blocked'));
      expect(last?.status()).toBe(400);
      expect(await tab.getByRole('heading').first().textContent()).toContain('cookie');
      await picture('10-cookies', tab);
      expect(hops.length).toBeLessThan(10);
      await context.close();
    });

    it('impossible requests lead to a page that says what to do', async () => {
      const context = await fresh();
      const tab = await context.newPage();
      const answer = await tab.goto(
        `${world.berth.publicUrl}/_oauth/callback/oidc?state=wrong&code=wrong`,
      );
      expect(answer?.status()).toBeGreaterThanOrEqual(400);
      expect(answer?.status()).toBeLessThan(500);
      await picture('11-wrong-callback', tab);
      // The provider fails between the person's sign-in there and the gateway's request.
      world.idp.fault('down', '/token');
      try {
        await signInAs(tab, at('alpha'), ADA);
        expect(await tab.getByRole('heading').first().textContent()).not.toContain('alpha');
        expect(new URL(tab.url()).origin).toBe(world.berth.publicUrl);
        await picture('12-provider-away', tab);
      } finally {
        world.idp.fault(null);
      }
      await context.close();
    });

    it('signing out ends the session of every project within 5 s', async () => {
      const cookies = await Promise.all(['alpha', 'beta'].map(cookieHeader));
      await page.goto(`${world.berth.publicUrl}/_oauth/logout`);
      await page.getByRole('heading', { name: 'Sign in to Berth' }).waitFor();
      await picture('13-signed-out');
      for (const [i, prefix] of ['alpha', 'beta'].entries())
        await waitFor(
          `${prefix} is closed`,
          async () =>
            (
              await new PlainBrowser().open(at(prefix), {
                headers: { accept: 'application/json', cookie: cookies[i] ?? '' },
              })
            ).status === 401,
          SOON,
        );
      await page.goto(at('alpha'));
      expect(new URL(page.url()).origin).toBe(world.berth.publicUrl);
    });

    describe('at a custom domain', () => {
      let visitor: BrowserContext;
      let tab: Page;
      const custom = (path = '/'): string => `https://${DOMAIN}:${world.berth.entry.port}${path}`;
      const asked = (): string =>
        `fetch('${world.berth.publicUrl}/_oauth/userinfo', { credentials: 'include' ` +
        '}).then(async (r) => ({ status: r.status, body: await r.json() }))';
      const give = (name: string, domains: string[]) =>
        world.berth.api.call('patchProject', {
          params: { id: world.projectId(name) },
          body: { domains },
        });
      /** Asks like a script outside of the browser, with nothing but these headers. */
      const ask = (address: string, headers: Record<string, string> = {}) =>
        new PlainBrowser().open(address, { headers: { accept: 'application/json', ...headers } });
      const untilStatus = (address: string, status: number, headers: Record<string, string> = {}) =>
        waitFor(
          `${address} answers ${status}`,
          async () => (await ask(address, headers)).status === status,
          SOON,
        );
      const cookieAt = async (address: string): Promise<string> => {
        const found = (await visitor.cookies(address)).filter(
          ({ name }) => name === 'svc_fwd_session',
        );
        expect(found).toHaveLength(1);
        // A leading dot would make it a cookie of every host below.
        expect(found[0]).toMatchObject({
          httpOnly: true,
          secure: true,
          sameSite: 'Lax',
          domain: new URL(address).hostname,
        });
        return `svc_fwd_session=${found[0]?.value}`;
      };

      beforeAll(async () => {
        visitor = await fresh();
        tab = await visitor.newPage();
        await give('alpha', [DOMAIN]);
        await untilStatus(custom(), 401);
      });
      afterAll(() => visitor?.close());

      it('the same login leads there and back, and the application gets the identity', async () => {
        await signInAs(tab, custom('/reports?year=2026'), ADA);
        await tab.waitForURL(custom('/reports?year=2026'));
        const seen = await echo(tab);
        expect(seen).toMatchObject({ app: 'alpha', url: '/reports?year=2026' });
        expect(headersOf(seen, 'x-forwarded-user')).toEqual([ADA.email]);
        expect(headersOf(seen, 'cookie')).toEqual([]);
        await visitor.setExtraHTTPHeaders({
          'x-forwarded-user': 'mallory@evil.example',
          X_Forwarded_User: 'mallory@evil.example',
        });
        await tab.goto(custom('/forged'));
        await visitor.setExtraHTTPHeaders({});
        expect(headersOf(await echo(tab), 'x-forwarded-user')).toEqual([ADA.email]);
        expect(JSON.stringify(await echo(tab))).not.toContain('mallory');
        expect((await ask(custom(), { 'x-forwarded-user': ADA.email })).status).toBe(401);
      });

      it('its cookie opens this host alone, and no other cookie opens it', async () => {
        await tab.goto(at('alpha'));
        await tab.goto(at('beta'));
        const cookies = {
          custom: await cookieAt(custom()),
          alpha: await cookieAt(at('alpha')),
          beta: await cookieAt(at('beta')),
        };
        const statusOf = async (address: string, cookie: string): Promise<number> =>
          (await ask(address, { cookie })).status;
        expect(await statusOf(custom(), cookies.custom)).toBe(200);
        expect(await statusOf(at('alpha'), cookies.custom)).toBe(401);
        expect(await statusOf(at('beta'), cookies.custom)).toBe(401);
        expect(await statusOf(custom(), cookies.alpha)).toBe(401);
        expect(await statusOf(custom(), cookies.beta)).toBe(401);
        expect(await statusOf(custom(), await cookieAt(`${world.berth.publicUrl}/`))).toBe(401);
      });

      it('userinfo lets its pages read the answer, without the cookie of the other site', async () => {
        await tab.goto(custom());
        expect(await tab.evaluate(asked())).toMatchObject({
          status: 401,
          body: { code: 'unauthenticated' },
        });
        await tab.goto(at('alpha'));
        expect(await tab.evaluate(asked())).toMatchObject({
          status: 200,
          body: { email: ADA.email },
        });
      });

      it('signing out ends it there', async () => {
        const cookie = await cookieAt(custom());
        await tab.goto(
          `${world.berth.publicUrl}/_oauth/logout?redirect=${encodeURIComponent(custom('/'))}`,
        );
        await untilStatus(custom(), 401, { cookie });
        await tab.goto(custom());
        expect(new URL(tab.url()).origin).toBe(world.berth.publicUrl);
      });

      it('the next project there gets neither the sessions nor the cookies of the visitors', async () => {
        await signInAs(tab, custom(), ADA);
        await tab.waitForURL(custom());
        const cookie = await cookieAt(custom());
        await give('alpha', []);
        await untilStatus(custom(), 404, { cookie });
        // A link to sign out leads no longer there. The gateway hears of it on another way than the
        // proxy.
        await waitFor(
          'no sign-out leads to the domain',
          async () => {
            const { hops } = await ask(
              `${world.berth.publicUrl}/_oauth/logout?redirect=${encodeURIComponent(custom())}`,
            );
            return hops.length > 1 && hops.every(({ url }) => new URL(url).hostname !== DOMAIN);
          },
          SOON,
        );

        await give('beta', [DOMAIN]);
        await untilStatus(custom(), 401, { cookie });
        const hops: string[] = [];
        tab.on('request', (request) =>
          hops.push(`${new URL(request.url()).host}${new URL(request.url()).pathname}`),
        );
        await tab.goto(custom('/new-owner'));
        // A login of its own, for which the single sign-on is still valid.
        expect(hops.some((hop) => hop.endsWith('/_oauth/login'))).toBe(true);
        const seen = await echo(tab);
        expect(seen).toMatchObject({ app: 'beta', url: '/new-owner' });
        expect(headersOf(seen, 'cookie')).toEqual([]);
        expect(await cookieAt(custom())).not.toBe(cookie);
        // The first owner's cookie opens nothing of the first owner either.
        expect((await ask(at('alpha'), { cookie })).status).toBe(401);

        // A project without a login gets no identity, and its pages cannot read userinfo.
        await give('beta', []);
        await give('open', [DOMAIN]);
        await untilStatus(custom(), 200);
        await tab.goto(custom());
        expect(await echo(tab)).toMatchObject({ app: 'open' });
        expect(headersOf(await echo(tab), 'x-forwarded-user')).toEqual([]);
        await expect(tab.evaluate(asked())).rejects.toThrow(/Failed to fetch/);
        await give('open', []);
      });
    });

    it('the dashboard of an admin opens by the same sign-in, and keeps the address', async () => {
      const context = await fresh();
      const tab = await context.newPage();
      await tab.goto(`${world.berth.publicUrl}/projects/alpha/settings`);
      await tab
        .getByRole('link', { name: 'Sign in with the identity provider of your team' })
        .click();
      await tab.getByRole('link', { name: /single sign-on/i }).click();
      await fillIn(tab, GRACE);
      await tab.getByRole('heading', { level: 1, name: 'alpha' }).waitFor();
      expect(tab.url()).toBe(`${world.berth.publicUrl}/projects/alpha/settings`);
      await picture('14-dashboard', tab);
      expect(await tab.evaluate('document.cookie')).toBe('');
      await tab.goto(`${world.berth.publicUrl}/account`);
      await tab.getByText(`${GRACE.email}, role admin`).waitFor();

      // Every page, as visitors of a real installation get it: the tests of the dashboard ask the
      // control plane without a proxy.
      const router = await readFile(
        join(repositoryRoot, 'packages/dashboard/src/app/router.tsx'),
        'utf8',
      );
      const { items } = await world.berth.api.call('listDeployments', { query: { limit: 1 } });
      const nodes = await world.berth.api.call('listNodes', { query: { limit: 1 } });
      const values = {
        deployments: items[0]?.id,
        nodes: nodes.items[0]?.hostname,
        projects: 'alpha',
        datasets: 'none',
      };
      const tabs = ['logs', 'metrics', 'env', 'data', 'domains', 'hook', 'members', 'settings'];
      const pages = [...router.matchAll(/^ {2}at\('([^']+)'/gm)].flatMap(([, path = '']) => {
        const filled = path.replace(
          /^\/(\w+)\/\$\w+/,
          (_all: string, noun: keyof typeof values) => `/${noun}/${values[noun] ?? ''}`,
        );
        return filled.endsWith('$tab')
          ? tabs.map((name) => filled.replace('$tab', name))
          : [filled];
      });
      expect(pages.length).toBeGreaterThan(20);
      const failed: string[] = [];
      tab.on('response', (answer) => {
        // The project has no hook, key and token, and the name of the dataset is of none. A 404 of
        // the proxy is no problem document.
        const isNone =
          answer.status() === 404 &&
          answer.headers()['content-type']?.startsWith('application/problem+json') === true &&
          /\/(hook|deploy-key|git-token)$|\/datasets\/none/.test(answer.url());
        if (answer.status() >= 400 && !isNone) failed.push(`${answer.status()} ${answer.url()}`);
      });
      for (const path of pages) {
        await tab.goto(world.berth.publicUrl + path);
        await tab.locator('h1').waitFor();
        await waitFor(
          `${path} has loaded`,
          async () =>
            (await tab.getByText(/^Loading /).count()) +
              (await tab.locator('[data-skeleton]').count()) ===
            0,
        );
        for (const text of await tab
          .getByText(/^(Loading|Saving|This page).* failed/)
          .allTextContents())
          failed.push(`${path}: ${text}`);
      }
      expect(failed).toEqual([]);
      await tab.goto(`${world.berth.publicUrl}/system`);
      await tab
        .getByRole('table', { name: 'Parts of the control plane' })
        .getByText('database')
        .waitFor();

      // The session ends while somebody types: the login opens in a tab of its own, and the page
      // keeps the text.
      await tab.goto(`${world.berth.publicUrl}/projects/alpha/settings`);
      await tab.getByLabel('Dockerfile').fill('Dockerfile.prod');
      expect(
        await tab.evaluate(
          async () => (await fetch('/api/auth/logout', { method: 'POST' })).status,
        ),
      ).toBe(204);
      await tab.getByText('Your session ended').waitFor({ timeout: 30_000 });
      await picture('15-session-ended', tab);
      const opened = context.waitForEvent('page');
      await tab
        .getByRole('dialog')
        .getByRole('link', { name: 'Sign in with the identity provider of your team' })
        .click();
      // The session of the gateway goes on, so it asks nothing in the new tab.
      await opened;
      await tab.getByText('Your session ended').waitFor({ state: 'detached' });
      expect(await tab.getByLabel('Dockerfile').inputValue()).toBe('Dockerfile.prod');

      // A link that this browser did not begin signs nobody in without a question.
      expect(
        await tab.evaluate(
          async () => (await fetch('/api/auth/logout', { method: 'POST' })).status,
        ),
      ).toBe(204);
      for (const value of ['gateway', '0'.repeat(32)]) {
        await tab.goto(`${world.berth.publicUrl}/account?signed-in=${value}`);
        await tab.getByRole('button', { name: `Continue as ${GRACE.email}` }).waitFor();
        expect(await tab.evaluate(async () => (await fetch('/api/auth/me')).status)).toBe(401);
      }
      await tab.getByRole('button', { name: `Continue as ${GRACE.email}` }).click();
      await tab.getByText(`${GRACE.email}, role admin`).waitFor();
      await context.close();
    });

    it('another person who signs in gets a page of their own: no answer and no typed text of the first', async () => {
      const vera = { email: 'vera@example.org', password: 'a long enough password' };
      await world.berth.api.call('createUser', { body: { ...vera, role: 'developer' } });
      const context = await fresh();
      const [tab, other] = [await context.newPage(), await context.newPage()];
      const settings = `${world.berth.publicUrl}/projects/alpha/settings`;
      const typePassword = async (of: Page): Promise<void> => {
        await of.getByLabel('E-mail address').fill(vera.email);
        await of.getByLabel(/^Password/).fill(vera.password);
        await of.getByRole('button', { name: 'Sign in', exact: true }).click();
      };
      const account = (of: Page, email: string) =>
        of.getByRole('button', { name: `Your account: ${email}` });
      await tab.goto(settings);
      await tab
        .getByRole('link', { name: 'Sign in with the identity provider of your team' })
        .click();
      await tab.getByRole('link', { name: /single sign-on/i }).click();
      await fillIn(tab, GRACE);
      await tab.getByLabel('Dockerfile').fill('Dockerfile.of-grace');

      // The first tab still has answers of the first person, and no request for the project is
      // answered after the change.
      let release = (): void => undefined;
      const released = new Promise<void>((resolve) => (release = resolve));
      expect(
        await tab.evaluate(
          async () => (await fetch('/api/auth/logout', { method: 'POST' })).status,
        ),
      ).toBe(204);
      await tab.getByText('Your session ended').waitFor({ timeout: 30_000 });
      await tab.route('**/api/projects/**', async (route) => {
        await released;
        await route.continue();
      });
      await other.goto(world.berth.publicUrl);
      await typePassword(other);
      await account(other, vera.email).waitFor();
      await account(tab, vera.email).waitFor();
      await tab.getByText('Your session ended').waitFor({ state: 'detached' });
      expect(await tab.getByRole('heading', { level: 1, name: 'alpha' }).count()).toBe(0);
      expect(await tab.getByLabel('Dockerfile').count()).toBe(0);
      release();
      await tab.getByRole('heading', { level: 1, name: 'alpha' }).waitFor();
      expect(await tab.getByLabel('Dockerfile').inputValue()).not.toBe('Dockerfile.of-grace');
      await context.close();
    });
  },
);
