/**
 * A whole run with the most verbose logging, followed by a search. No password, token, cookie, code
 * or secret of the run may appear in a log, a metric, a document, the database, the gateway's
 * folder, or an answer that is not meant to contain it. Wrong values (guessed, tampered, expired)
 * are searched for like correct ones.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PlainBrowser } from '@berth/testbed/plain-browser';
import { createClient } from '@berth/wire/client';
import {
  ADA,
  deviceToken,
  echoOf,
  headersOf,
  overWebSocket,
  signIn,
  startSignedInWorld,
  type SignedInWorld,
} from './signed-in-world.ts';

/** `mayStandIn`: answers that hand the value to its owner. */
type Canary = { what: string; value: string; mayStandIn?: RegExp };

/** The provider's form shows its accounts and passes on its parameters. */
const PROVIDER = /^http:\/\/127\.0\.0\.1:\d+\/(interaction|auth)/;

/** The only file that is meant to contain a secret. */
const SECRET_FILE = 'jwt-secret';

describe('canary', () => {
  let world: SignedInWorld;
  const canaries: Canary[] = [];
  const browsers: PlainBrowser[] = [];
  const watch = (what: string, value: string | undefined, mayStandIn?: RegExp): string => {
    if (value === undefined || value.length < 8)
      throw new Error(`${what}: too short to search for`);
    canaries.push({ what, value, ...(mayStandIn === undefined ? {} : { mayStandIn }) });
    return value;
  };
  const browser = (): PlainBrowser => {
    const made = new PlainBrowser();
    browsers.push(made);
    return made;
  };
  const json = { accept: 'application/json', 'content-type': 'application/json' };

  beforeAll(async () => {
    // Without JWT_SECRET the control plane creates one in a file, never in the database.
    world = await startSignedInWorld({
      proxy: 'built-in',
      env: { DEFAULT_ROLE: 'developer', JWT_SECRET: '' },
    });
  });
  afterAll(() => world?.stop());

  it('all correct credentials are used', { timeout: 180_000 }, async () => {
    const { berth, idp } = world;
    for (const [name, value] of Object.entries(berth.secrets)) watch(`secret of ${name}`, value);
    watch('client secret', idp.clientSecret);
    for (const account of idp.accounts)
      watch(`password of ${account.email} at the provider`, account.password, PROVIDER);

    const visitor = browser();
    const page = await signIn(visitor, world, `${berth.address('alpha')}/first`);
    expect(page.status).toBe(200);
    watch(
      'assertion',
      headersOf(echoOf(page), 'x-forwarded-user-assertion')[0],
      /^http:\/\/(alpha|beta)\./,
    );
    await visitor.open(`${berth.address('beta')}/second`);
    await overWebSocket(berth, 'alpha', {
      cookie: visitor
        .cookies(`alpha.${berth.baseDomain}`)
        .map((c) => `${c.name}=${c.value}`)
        .join('; '),
    });

    const device = await deviceToken(visitor, world, 'projects api');
    watch('device token', device.access_token, /\/_oauth\/device\/token$/);
    watch('device code', device.device_code, /\/_oauth\/device\/code$/);
    watch('user code', device.user_code, /\/_oauth\/device\/(code|activate)/);
    const curl = browser();
    const bearer = { ...json, authorization: `Bearer ${device.access_token}` };
    await curl.open(berth.address('alpha'), { headers: bearer });
    const login = /\/api\/auth\/(exchange|login|refresh)$/;
    const exchanged = await curl.open(`${berth.publicUrl}/api/auth/exchange`, {
      method: 'POST',
      headers: bearer,
    });
    expect(exchanged.status, exchanged.body).toBe(200);
    const password = await curl.open(`${berth.publicUrl}/api/auth/login`, {
      method: 'POST',
      headers: json,
      body: JSON.stringify(berth.admin),
    });
    expect(password.status, password.body).toBe(200);
    for (const [how, answer] of Object.entries({ exchange: exchanged, password })) {
      const tokens = JSON.parse(answer.body) as { token: string; refresh_token: string };
      watch(`API token by ${how}`, tokens.token, login);
      watch(`refresh token by ${how}`, tokens.refresh_token, login);
      // The session id makes a token valid: it is part of the tokens, and must appear nowhere else.
      const { sid } = JSON.parse(
        Buffer.from(tokens.token.split('.')[1] ?? '', 'base64url').toString(),
      ) as { sid: string };
      watch(`session id of the API token by ${how}`, sid, login);
      await curl.open(`${berth.publicUrl}/api/auth/me`, {
        headers: { ...json, authorization: `Bearer ${tokens.token}` },
      });
      const body = JSON.stringify({ refresh_token: tokens.refresh_token });
      const refreshed = await curl.open(`${berth.publicUrl}/api/auth/refresh`, {
        method: 'POST',
        headers: json,
        body,
      });
      expect(refreshed.status, refreshed.body).toBe(200);
      const next = JSON.parse(refreshed.body) as { token: string; refresh_token: string };
      watch(`API token by refresh after ${how}`, next.token, login);
      watch(`refresh token by refresh after ${how}`, next.refresh_token, login);
      // Used a second time: it counts as stolen.
      await curl.open(`${berth.publicUrl}/api/auth/refresh`, {
        method: 'POST',
        headers: json,
        body,
      });
    }
    // The second use of its refresh token ended that session.
    const { token } = await createClient({ baseUrl: berth.url }).call('login', {
      body: berth.admin,
    });
    watch('API token of a second sign-in', token);
    const asAdmin = { ...json, authorization: `Bearer ${token}` };
    const personal = await curl.open(`${berth.publicUrl}/api/tokens`, {
      method: 'POST',
      headers: asAdmin,
      body: JSON.stringify({
        name: 'canary',
        role: 'viewer',
        expires_at: new Date(Date.now() + 3_600_000).toISOString(),
      }),
    });
    expect(personal.status, personal.body).toBe(201);
    const made = watch(
      'personal API token',
      (JSON.parse(personal.body) as { token: string }).token,
      /\/api\/tokens$/,
    );
    expect(
      (
        await curl.open(`${berth.publicUrl}/api/auth/me`, {
          headers: { ...json, authorization: `Bearer ${made}` },
        })
      ).status,
    ).toBe(200);
    const user = {
      email: 'carol@example.org',
      role: 'viewer',
      password: watch('password of a user made by an admin', 'carols-first-password'),
    };
    expect(
      (
        await curl.open(`${berth.publicUrl}/api/users`, {
          method: 'POST',
          headers: asAdmin,
          body: JSON.stringify(user),
        })
      ).status,
    ).toBe(201);
    await visitor.submit(await visitor.open(`${berth.publicUrl}/_oauth/devices`), {}, 'Disconnect');
    await visitor.open(`${berth.publicUrl}/_oauth/logout`);
  });

  it('wrong credentials are tried', { timeout: 120_000 }, async () => {
    const { berth } = world;
    const stranger = browser();
    const wrong = (what: string): string => watch(`wrong ${what}`, `canary-${what}-7f3a9c51d2`);
    const post = (path: string, body: object, headers: Record<string, string> = {}) =>
      stranger.open(`${berth.publicUrl}${path}`, {
        method: 'POST',
        headers: { ...json, ...headers },
        body: JSON.stringify(body),
      });
    const follow = false;
    const alpha = berth.address('alpha');
    const statuses = [
      await stranger.open(alpha, {
        follow,
        headers: { cookie: `svc_fwd_session=${wrong('session')}; berth_nonce=${wrong('nonce')}` },
      }),
      await stranger.open(alpha, {
        follow,
        headers: {
          authorization: `Bearer ${watch('wrong device token', `berth_${'Canary7'.repeat(6)}c`)}`,
        },
      }),
      await stranger.open(alpha, {
        follow,
        headers: { authorization: `Bearer ${wrong('bearer')}` },
      }),
      await stranger.open(`${alpha}/_oauth/session?code=${wrong('one-time-code')}&redirect=%2F`, {
        follow,
      }),
      await stranger.open(
        `${berth.publicUrl}/_oauth/callback/oidc?code=${wrong('authorization-code')}&state=` +
          wrong('state'),
        {
          follow,
        },
      ),
      await stranger.open(`${berth.publicUrl}/_oauth/userinfo`, {
        headers: { ...json, authorization: `Bearer berth_${wrong('userinfo-token')}` },
      }),
      await post('/_oauth/device/token', { device_code: wrong('device-code') }),
      await post('/_oauth/device/token', {
        device_code: [wrong('device-code-list')],
        client_secret: wrong('client-secret'),
      }),
      await post('/api/auth/login', { email: berth.admin.email, password: wrong('password') }),
      await post('/api/auth/login', {
        email: berth.admin.email,
        password: { text: wrong('password-object') },
        extra: wrong('password-field'),
      }),
      await post('/api/auth/refresh', { refresh_token: wrong('refresh-token') }),
      await post(
        '/api/auth/exchange',
        {},
        { authorization: `Bearer berth_${wrong('exchange-token')}` },
      ),
      await stranger.open(`${berth.publicUrl}/api/auth/me`, {
        headers: { ...json, authorization: `Bearer ${wrong('jwt')}` },
      }),
      // Without the proxy, like an attacker inside the network.
      await stranger.open(`${berth.url}/api/auth/exchange`, {
        method: 'POST',
        headers: { ...json, 'x-forwarded-user-assertion': wrong('assertion') },
      }),
      await stranger.open(`${berth.url}/api/internal/policy`, {
        headers: { ...json, 'x-gateway-secret': wrong('gateway-secret') },
      }),
      await stranger.open(`${berth.url}/api/agent/config`, {
        headers: { ...json, 'x-agent-secret': wrong('agent-secret') },
      }),
    ].map((page) => page.status);
    expect(statuses.filter((status) => status < 300 || status >= 500)).toEqual([]);
    // A body that no parser accepts.
    await stranger.open(`${berth.publicUrl}/api/auth/login`, {
      method: 'POST',
      headers: json,
      body: `{"password": "${wrong('broken-json')}`,
    });
    await stranger.open(`${berth.publicUrl}/_oauth/device/token`, {
      method: 'POST',
      headers: json,
      body: `{"device_code": "${wrong('broken-device-json')}`,
    });
  });

  it('the control plane stops and starts again meanwhile', { timeout: 120_000 }, async () => {
    await world.berth.controlPlane.crash();
    await signIn(browser(), world, world.berth.address('alpha'));
    await world.berth.controlPlane.start();
    await world.berth.gateway?.stop();
    await world.berth.gateway?.start();
  });

  it('no secret appears in a place where it does not belong', async () => {
    const { berth, dir } = world;
    for (const made of browsers) {
      for (const { host, header } of made.setCookies) {
        const value = header.slice(header.indexOf('=') + 1).replace(/;.*$/, '');
        // The provider's own cookies may appear in its own form.
        if (value.length >= 8) watch('cookie', value, host === '127.0.0.1' ? PROVIDER : undefined);
      }
      for (const { url } of made.answers)
        for (const name of ['code', 'state', 'nonce'])
          for (const value of new URL(url).searchParams.getAll(name))
            if (value.length >= 16) watch(`${name} of an address`, value, PROVIDER);
    }
    watch('JWT secret', (await readFile(join(dir, SECRET_FILE), 'utf8')).trim());
    const places: { where: string; text: string; answer: boolean }[] = [];
    // Compares bytes, because the database is not text.
    // A draft (`.new`) is renamed at any moment.
    for (const folder of ['logs', 'gateway', '.'])
      for (const entry of await readdir(join(dir, folder), { withFileTypes: true }))
        if (entry.isFile() && entry.name !== SECRET_FILE && !entry.name.endsWith('.new'))
          places.push({
            where: join(folder, entry.name),
            text: (await readFile(join(dir, folder, entry.name))).toString('latin1'),
            answer: false,
          });
    for (const url of [berth.url, berth.gateway?.readyUrl.replace('/readyz', '') ?? ''])
      for (const path of ['/metrics', '/readyz', '/api/openapi.json'])
        places.push({
          where: url + path,
          text: await (await fetch(url + path)).text(),
          answer: false,
        });
    const audit = await berth.api.call('audit', { query: { limit: 200 } });
    expect(audit.items.length).toBeGreaterThan(3);
    places.push({ where: 'audit log', text: JSON.stringify(audit), answer: false });
    for (const made of browsers)
      for (const { url, body } of made.answers)
        places.push({ where: url, text: body, answer: true });

    // Proves that the search finds values: the signed-in user is not a secret.
    const naming = places.filter(({ text }) => text.includes(ADA.email)).map(({ where }) => where);
    expect(naming).toEqual(expect.arrayContaining(['logs/gateway.log', 'audit log']));
    expect(naming.some((where) => where.startsWith('berth.db'))).toBe(true);
    expect(places.map(({ where }) => where)).toEqual(
      expect.arrayContaining(['logs/control-plane.log', 'logs/proxy.log', 'gateway/policy.json']),
    );
    expect(canaries.length).toBeGreaterThan(40);
    const found = canaries.flatMap(({ what, value, mayStandIn }) =>
      places
        .filter(
          ({ where, text, answer }) =>
            text.includes(value) && !(answer && mayStandIn?.test(where) === true),
        )
        .map(({ where }) => `${what} in ${where.replace(/\?.*$/, '')}`),
    );
    expect([...new Set(found)]).toEqual([]);
  });
});
