/** Sign-in without a window, through both proxies: what visitors, scripts and attackers get. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FORGED_HEADERS } from '@berth/testbed/forged-headers';
import { PlainBrowser } from '@berth/testbed/plain-browser';
import type { ProxyKind } from '@berth/testbed/platform';
import { waitFor } from '@berth/testbed/wait';
import { DEVICE_TOKEN_SECONDS } from '@berth/wire/gateway';
import {
  ADA,
  deviceToken,
  echoOf,
  GRACE,
  headersOf,
  overWebSocket,
  signIn,
  startSignedInWorld,
  type SignedInWorld,
  whyNoSignIn,
} from './signed-in-world.ts';

const FORGED = 'mallory@evil.example';
/** Every revocation takes effect within this time (docs/interfaces.md "Revocation and outages"). */
const SOON = { deadlineMs: 5_000, intervalMs: 100 };

export function signInSuite(proxy: ProxyKind): void {
  const reason = whyNoSignIn(proxy);
  describe.skipIf(reason !== undefined)(
    `sign-in through ${proxy}${reason === undefined ? '' : ` (skipped: ${reason})`}`,
    () => {
      let world: SignedInWorld;
      let visitor: PlainBrowser;
      const at = (prefix: string, path = '/'): string => `${world.berth.address(prefix)}${path}`;
      const script = { headers: { accept: 'application/json' } };
      const sessionAt = (browser: PlainBrowser, prefix: string): string =>
        browser
          .cookies(`${prefix}.${world.berth.baseDomain}`)
          .find((cookie) => cookie.name === 'svc_fwd_session')?.value ?? '';

      beforeAll(async () => {
        // Two gateway workers behind the real proxy: what one of them learns holds for both.
        world = await startSignedInWorld({
          proxy,
          gatewayEnv: { GATEWAY_WORKERS: proxy === 'built-in' ? '1' : '2' },
        });
        visitor = new PlainBrowser();
      });
      afterAll(() => world?.stop());

      it('a script gets 401 with the address of the login, and a browser is redirected there', async () => {
        const stranger = new PlainBrowser();
        const answer = await stranger.open(at('alpha', '/data?x=1'), script);
        expect(answer.status).toBe(401);
        expect(answer.headers['content-type']).toContain('application/problem+json');
        expect(JSON.parse(answer.body)).toMatchObject({
          status: 401,
          login_url: expect.stringContaining(`${world.berth.publicUrl}/_oauth/login`),
        });
        const sent = await stranger.open(at('alpha', '/data?x=1'), { follow: false });
        expect(sent.status).toBe(302);
        const login = new URL(String(sent.headers['location']));
        expect(login.origin + login.pathname).toBe(`${world.berth.publicUrl}/_oauth/login`);
        expect(login.searchParams.get('redirect')).toBe(at('alpha', '/data?x=1'));
        expect(await overWebSocket(world.berth, 'alpha')).toBe(401);
      });

      it('the first visit ends, signed in, at exactly the requested address', async () => {
        const page = await signIn(visitor, world, at('alpha', '/reports/2026?sort=name&q=a%20b'));
        expect(page.status).toBe(200);
        expect(page.url.href).toBe(at('alpha', '/reports/2026?sort=name&q=a%20b'));
        const echo = echoOf(page);
        expect(echo).toMatchObject({ app: 'alpha', url: '/reports/2026?sort=name&q=a%20b' });
        expect(headersOf(echo, 'x-forwarded-user')).toEqual([ADA.email]);
        expect(headersOf(echo, 'x-forwarded-user-provider')).toEqual(['oidc']);
        expect(headersOf(echo, 'x-forwarded-user-name').map(decodeURIComponent)).toEqual([
          ADA.name,
        ]);
        expect(headersOf(echo, 'x-forwarded-user-assertion')).toHaveLength(1);
      });

      it('the application receives its own cookies and tokens, and none of Berth’s', async () => {
        const mine = visitor
          .cookies(`alpha.${world.berth.baseDomain}`)
          .map((cookie) => `${cookie.name}=${cookie.value}`);
        expect(mine.length).toBeGreaterThan(0);
        const echo = echoOf(
          await visitor.open(at('alpha'), {
            headers: {
              cookie: ['a=1', ...mine, 'b=2'].join('; '),
              authorization: 'Bearer the-apps-own',
            },
          }),
        );
        expect(headersOf(echo, 'cookie').map((value) => value.split(/;\s*/))).toEqual([
          ['a=1', 'b=2'],
        ]);
        expect(headersOf(echo, 'authorization')).toEqual(['Bearer the-apps-own']);
        // The request has no cookie for the application, so the header is left out.
        expect(headersOf(echoOf(await visitor.open(at('alpha'))), 'cookie')).toEqual([]);
      });

      it('a second project opens without a new login and sets its own cookie', async () => {
        const page = await visitor.open(at('beta', '/second?one=1'));
        expect(page.url.href).toBe(at('beta', '/second?one=1'));
        expect(page.hops.map((hop) => new URL(hop.url).origin)).not.toContain(
          new URL(world.idp.issuer).origin,
        );
        expect(headersOf(echoOf(page), 'x-forwarded-user')).toEqual([ADA.email]);
        expect(sessionAt(visitor, 'alpha')).not.toBe('');
        expect(sessionAt(visitor, 'beta')).not.toBe(sessionAt(visitor, 'alpha'));
      });

      it('a stopped project: a stranger sees the login as before, and a visitor who signed in sees its page', async () => {
        const { berth } = world;
        const project = { id: world.projectId('beta') };
        const stranger = new PlainBrowser();
        const asStranger = async (): Promise<unknown> => {
          const [sent, answer] = [
            await stranger.open(at('beta', '/x'), { follow: false }),
            await stranger.open(at('beta', '/x'), script),
          ];
          return [
            sent.status,
            sent.headers['location'],
            sent.body,
            answer.status,
            answer.body,
            await overWebSocket(berth, 'beta'),
          ];
        };
        const before = await asStranger();
        await berth.api.call('stopProject', { params: project });
        await waitFor(
          'the visitor sees the page',
          async () => (await visitor.open(at('beta', '/x'))).status === 503,
        );
        const page = await visitor.open(at('beta', '/x'));
        expect(page.url.href).toBe(at('beta', '/x'));
        // The development proxy has no pages for errors: it answers 503 with its own line.
        if (proxy !== 'built-in') expect(page.body).toContain('This application is stopped');
        // The page names nothing: neither the project nor the visitor, and nothing of the version
        // before.
        expect(page.body).not.toMatch(/beta|@example|echo/i);
        expect(await asStranger()).toEqual(before);
        // A cookie of another project shows no more than none.
        const cookie = `svc_fwd_session=${sessionAt(visitor, 'alpha')}`;
        expect(
          (await stranger.open(at('beta', '/x'), { headers: { ...script.headers, cookie } }))
            .status,
        ).toBe(401);
        const started = await berth.settled(
          await berth.api.call('startProject', { params: project }),
          30_000,
        );
        expect(started).toMatchObject({ status: 'running', trigger: 'start' });
        await waitFor(
          'the visitor sees the application',
          async () => (await visitor.open(at('beta', '/x'))).status === 200,
        );
      });

      it('cookies are host-only, and hidden from scripts and from other sites’ requests', () => {
        const ours = visitor.setCookies.filter(({ host }) => host.endsWith(world.berth.baseDomain));
        expect(ours.length).toBeGreaterThan(3);
        for (const { header } of ours) {
          expect(header).not.toMatch(/;\s*domain=/i);
          expect(header).toMatch(/;\s*httponly/i);
          expect(header).toMatch(/;\s*samesite=lax/i);
          expect(/;\s*secure/i.test(header), header).toBe(world.berth.entry.secure);
        }
      });

      it('a cookie of one project opens no other project, and a changed cookie opens none', async () => {
        const stolen = sessionAt(visitor, 'alpha');
        const half = Math.floor(stolen.length / 2);
        const changed =
          stolen.slice(0, half) + (stolen[half] === 'A' ? 'B' : 'A') + stolen.slice(half + 1);
        const stranger = new PlainBrowser();
        for (const [prefix, value] of [
          ['beta', stolen],
          ['alpha', changed],
          ['alpha', stolen.slice(0, -1)],
          ['alpha', `${stolen}${'x'.repeat(8_000)}`],
        ] as const) {
          const headers = { ...script.headers, cookie: `svc_fwd_session=${value}` };
          expect((await stranger.open(at(prefix), { headers })).status, prefix).toBe(401);
        }
        expect(
          (
            await stranger.open(at('alpha'), {
              headers: { ...script.headers, cookie: `svc_fwd_session=${stolen}` },
            })
          ).status,
        ).toBe(200);
      });

      it('a forged identity reaches no project, in any spelling, over HTTP and WebSocket', async () => {
        expect(FORGED_HEADERS.length).toBeGreaterThanOrEqual(32);
        const email = ADA.email;
        const cookie = `svc_fwd_session=${sessionAt(visitor, 'alpha')}`;
        const AT_ONCE = 20;
        for (let first = 0; first < FORGED_HEADERS.length; first += AT_ONCE) {
          const spellings = FORGED_HEADERS.slice(first, first + AT_ONCE);
          const forged = {
            ...script.headers,
            ...Object.fromEntries(spellings.map((name) => [name, FORGED])),
          };
          for (const [prefix, headers] of [
            ['open', forged],
            ['alpha', { ...forged, cookie }],
          ] as const) {
            const overHttp = echoOf(await new PlainBrowser().open(at(prefix), { headers }));
            const overSocket = await overWebSocket(world.berth, prefix, headers);
            if (typeof overSocket === 'number')
              throw new Error(
                `${prefix} ${spellings.join()}: the WebSocket was refused with ${overSocket}`,
              );
            for (const echo of [overHttp, overSocket]) {
              expect(JSON.stringify(echo.headers), `${prefix} ${spellings.join()}`).not.toContain(
                FORGED,
              );
              expect(headersOf(echo, 'x-forwarded-user'), `${prefix} ${spellings.join()}`).toEqual(
                prefix === 'open' ? [] : [email],
              );
            }
          }
        }
      });

      it('a project without a login receives no device token, and its own Authorization unchanged, over HTTP and WebSocket', async () => {
        const token = `berth_${'A'.repeat(43)}`;
        const seenWith = async (authorization: string): Promise<string[][]> => {
          const overHttp = echoOf(
            await new PlainBrowser().open(at('open'), {
              headers: { ...script.headers, authorization },
            }),
          );
          const overSocket = await overWebSocket(world.berth, 'open', { authorization });
          if (typeof overSocket === 'number')
            throw new Error(`the WebSocket was refused with ${overSocket}`);
          return [overHttp, overSocket].map((echo) => headersOf(echo, 'authorization'));
        };
        for (const carried of [
          `Bearer ${token}`,
          `bearer  ${token}`,
          token,
          `Basic dTpw, Bearer ${token}`,
        ])
          expect(await seenWith(carried), carried).toEqual([[], []]);
        for (const own of ['Bearer the-apps-own', 'Basic dTpw'])
          expect(await seenWith(own)).toEqual([[own], [own]]);
      });

      it('a WebSocket behind the login carries the identity and nothing else of Berth’s', async () => {
        const echo = await overWebSocket(world.berth, 'alpha', {
          cookie: `a=1; svc_fwd_session=${sessionAt(visitor, 'alpha')}`,
        });
        if (typeof echo === 'number') throw new Error(`refused with ${echo}`);
        expect(headersOf(echo, 'x-forwarded-user')).toEqual([ADA.email]);
        expect(headersOf(echo, 'cookie')).toEqual(['a=1']);
      });

      it('userinfo answers pages of projects, and no other origin', async () => {
        const url = `${world.berth.publicUrl}/_oauth/userinfo`;
        const from = (origin: string) => ({ headers: { accept: 'application/json', origin } });
        const answer = await visitor.open(url, from(world.berth.address('alpha')));
        expect(answer.status).toBe(200);
        expect(JSON.parse(answer.body)).toMatchObject({
          email: ADA.email,
          name: ADA.name,
          provider: 'oidc',
        });
        expect(answer.headers).toMatchObject({
          'access-control-allow-origin': world.berth.address('alpha'),
          'access-control-allow-credentials': 'true',
        });
        for (const origin of [
          'https://evil.example',
          'null',
          `${world.berth.address('alpha')}.evil.example`,
        ])
          expect((await visitor.open(url, from(origin))).headers, origin).not.toHaveProperty(
            'access-control-allow-origin',
          );
        expect(
          (await new PlainBrowser().open(url, from(world.berth.address('alpha')))).status,
        ).toBe(401);
      });

      it('device flow: the token opens every project, is hidden from them, is exchanged for the API, and is revoked within 5 s', async () => {
        const { access_token, expires_in } = await deviceToken(visitor, world, 'projects api');
        expect(expires_in).toBe(DEVICE_TOKEN_SECONDS);
        const curl = new PlainBrowser();
        const bearer = { headers: { accept: '*/*', authorization: `Bearer ${access_token}` } };
        for (const prefix of ['alpha', 'beta']) {
          const echo = await waitFor(
            `${prefix} accepts the token`,
            async () => {
              const page = await curl.open(at(prefix), bearer);
              return page.status === 200 && echoOf(page);
            },
            SOON,
          );
          expect(headersOf(echo, 'x-forwarded-user')).toEqual([ADA.email]);
          expect(headersOf(echo, 'authorization')).toEqual([]);
        }
        for (const wrong of [
          `${access_token}x`,
          'berth_',
          'berth_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',
        ]) {
          // A wrong token is refused even beside a valid session.
          const headers = {
            authorization: `Bearer ${wrong}`,
            cookie: `svc_fwd_session=${sessionAt(visitor, 'alpha')}`,
          };
          const refused = await curl.open(at('alpha'), { headers });
          expect(refused.status).toBe(401);
          expect(refused.headers['www-authenticate']).toContain('error="invalid_token"');
        }
        expect(
          (
            await curl.open(at('alpha'), {
              headers: { ...script.headers, authorization: 'Bearer the-apps-own' },
            })
          ).status,
        ).toBe(401);

        // The API accepts the token only after an exchange.
        expect((await curl.open(`${world.berth.publicUrl}/api/auth/me`, bearer)).status).toBe(401);
        const exchange = () =>
          curl.open(`${world.berth.publicUrl}/api/auth/exchange`, { ...bearer, method: 'POST' });
        // A token without the scope `api`, like that of the contract's clients, opens only
        // projects.
        const contracts = await deviceToken(visitor, world);
        const refused = await curl.open(`${world.berth.publicUrl}/api/auth/exchange`, {
          method: 'POST',
          headers: { accept: '*/*', authorization: `Bearer ${contracts.access_token}` },
        });
        expect([refused.status, JSON.parse(refused.body)]).toEqual([
          403,
          expect.objectContaining({ code: 'insufficient_scope' }),
        ]);
        // The account is signed in but is no user: projects accept it, the API does not
        // (DEFAULT_ROLE is not set).
        const nobody = await exchange();
        expect([nobody.status, JSON.parse(nobody.body)]).toEqual([
          403,
          expect.objectContaining({ code: 'no_role' }),
        ]);
        await world.berth.api.call('createUser', { body: { email: ADA.email, role: 'viewer' } });
        const exchanged = await exchange();
        expect(exchanged.status, exchanged.body).toBe(200);
        const jwt = (JSON.parse(exchanged.body) as { token: string }).token;
        const me = await curl.open(`${world.berth.publicUrl}/api/auth/me`, {
          headers: { ...script.headers, authorization: `Bearer ${jwt}` },
        });
        expect(JSON.parse(me.body)).toMatchObject({ email: ADA.email });
        // A browser session is accepted too. A bare header or an assertion for another host is
        // refused.
        expect(
          (
            await visitor.open(`${world.berth.publicUrl}/api/auth/exchange`, {
              ...script,
              method: 'POST',
            })
          ).status,
        ).toBe(200);
        const [assertion = ''] = headersOf(
          echoOf(await visitor.open(at('alpha'))),
          'x-forwarded-user-assertion',
        );
        for (const headers of [
          { 'x-forwarded-user': ADA.email },
          { 'x-forwarded-user-assertion': assertion },
          { 'x-forwarded-user-assertion': jwt },
        ])
          expect(
            (
              await curl.open(`${world.berth.url}/api/auth/exchange`, {
                method: 'POST',
                headers: { ...script.headers, ...headers },
              })
            ).status,
          ).toBe(401);
        // An API token opens no project.
        expect(
          (
            await curl.open(at('alpha'), {
              headers: { ...script.headers, authorization: `Bearer ${jwt}` },
            })
          ).status,
        ).toBe(401);

        const devices = await visitor.open(`${world.berth.publicUrl}/_oauth/devices`);
        expect(devices.status).toBe(200);
        const after = await visitor.submit(
          await visitor.submit(devices, {}, 'Disconnect'),
          {},
          'Disconnect',
        );
        expect(after.status).toBe(200);
        await waitFor(
          'the token is refused',
          async () => (await curl.open(at('alpha'), bearer)).status === 401,
          SOON,
        );
        const withJwt = { headers: { ...script.headers, authorization: `Bearer ${jwt}` } };
        const asMe = () => curl.open(`${world.berth.publicUrl}/api/auth/me`, withJwt);
        await waitFor(
          'the exchanged token is refused',
          async () => (await asMe()).status === 401,
          SOON,
        );
      });

      it('control plane killed: sessions stay valid, even after a restart of the gateway; a new login gets a readable answer', async () => {
        const { controlPlane, gateway } = world.berth;
        if (gateway === undefined) throw new Error('no gateway');
        await controlPlane.crash();
        try {
          const works = async (): Promise<void> => {
            expect((await visitor.open(at('alpha', '/still'))).url.href).toBe(
              at('alpha', '/still'),
            );
            expect((await visitor.open(at('beta'))).status).toBe(200);
          };
          await works();
          await gateway.crash();
          await gateway.start();
          await works();
          expect(await gateway.stop()).toBe(0);
          await gateway.start();
          await works();
          const from = performance.now();
          const late = await signIn(new PlainBrowser(), world, at('alpha'), GRACE);
          // A new login cannot succeed, because nobody can tell whether its code was used. The
          // answer says so.
          expect(late.status).toBe(503);
          expect(late.headers['retry-after']).toMatch(/^\d+$/);
          expect(late.headers['content-type']).toContain('text/html');
          expect(performance.now() - from).toBeLessThan(20_000);
        } finally {
          await controlPlane.start();
        }
        await waitFor(
          'a new login works again',
          async () => (await signIn(new PlainBrowser(), world, at('alpha'), GRACE)).status === 200,
          {
            deadlineMs: 30_000,
            intervalMs: 500,
          },
        );
      });

      it('a disabled user is refused within 5 s, at every project', async () => {
        const other = new PlainBrowser();
        expect((await signIn(other, world, at('alpha'), GRACE)).status).toBe(200);
        expect((await other.open(at('beta'))).status).toBe(200);
        const known = await world.berth.api.call('createUser', {
          body: { email: GRACE.email, role: 'viewer' },
        });
        await world.berth.api.call('patchUser', {
          params: { id: known.id },
          body: { disabled: true },
        });
        for (const prefix of ['alpha', 'beta'])
          await waitFor(
            `${prefix} is closed`,
            async () => (await other.open(at(prefix), script)).status !== 200,
            SOON,
          );
        // Every worker refuses: one learns of it a moment after the other.
        const again = async (): Promise<number> =>
          (await signIn(new PlainBrowser(), world, at('alpha'), GRACE)).status;
        await waitFor('a new login is refused', async () => (await again()) === 403, SOON);
        // Other users are not affected.
        expect((await visitor.open(at('alpha'))).status).toBe(200);
      });

      it('signing out ends the session at every project within 5 s, also for copied cookies', async () => {
        const copied = ['alpha', 'beta'].map(
          (prefix) => [prefix, `svc_fwd_session=${sessionAt(visitor, prefix)}`] as const,
        );
        const sso =
          visitor
            .cookies(world.berth.baseDomain)
            .find((cookie) => cookie.name === 'svc_fwd_session')?.value ?? '';
        expect(sso).not.toBe('');
        const exchanged = await visitor.open(`${world.berth.publicUrl}/api/auth/exchange`, {
          ...script,
          method: 'POST',
        });
        const { token } = JSON.parse(exchanged.body) as { token: string };
        const out = await visitor.open(
          `${world.berth.publicUrl}/_oauth/logout?redirect=https%3A%2F%2Fevil.example%2F`,
          { follow: false },
        );
        expect([302, 303]).toContain(out.status);
        expect(new URL(String(out.headers['location']), world.berth.publicUrl).origin).toBe(
          world.berth.publicUrl,
        );
        expect(visitor.cookies(world.berth.baseDomain).map((cookie) => cookie.name)).not.toContain(
          'svc_fwd_session',
        );
        // The redirect leads to a page, not to an error.
        const home = await visitor.open(
          new URL(String(out.headers['location']), world.berth.publicUrl),
        );
        expect([home.status, home.body]).toEqual([200, expect.stringContaining('the dashboard')]);
        const thief = new PlainBrowser();
        for (const [prefix, cookie] of copied)
          await waitFor(
            `${prefix} refuses the old cookie`,
            async () =>
              (await thief.open(at(prefix), { headers: { ...script.headers, cookie } })).status ===
              401,
            SOON,
          );
        const api = { headers: { ...script.headers, authorization: `Bearer ${token}` } };
        await waitFor(
          'the API refuses the token that was exchanged before',
          async () =>
            (await thief.open(`${world.berth.publicUrl}/api/auth/me`, api)).status === 401,
          SOON,
        );
        const whoIs = { headers: { ...script.headers, cookie: `svc_fwd_session=${sso}` } };
        await waitFor(
          'userinfo refuses the old cookie',
          async () =>
            (await thief.open(`${world.berth.publicUrl}/_oauth/userinfo`, whoIs)).status === 401,
          SOON,
        );
      });

      it('no log contains a cookie of this run, also not the proxy’s (see canary.test.ts)', async () => {
        const { dir, berth } = world;
        const logs = [
          ...(await readdir(join(dir, 'logs'))).map((file) => join(dir, 'logs', file)),
          ...(berth.traefik === undefined ? [] : [join(dir, 'traefik', 'traefik.log')]),
        ];
        expect(logs.length).toBeGreaterThanOrEqual(3);
        expect(visitor.cookieValues.size).toBeGreaterThan(5);
        for (const log of logs) {
          const text = await readFile(log, 'utf8');
          expect(text.length, log).toBeGreaterThan(100);
          expect(
            [...visitor.cookieValues].filter((value) => text.includes(value)),
            log,
          ).toEqual([]);
        }
      });
    },
  );
}
