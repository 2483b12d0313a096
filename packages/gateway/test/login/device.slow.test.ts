/**
 * The device flow (RFC 8628) with a standard client, its pages, and protection against guessing and
 * phishing.
 */
import { type GithubStandIn, startGithubStandIn } from '@berth/testbed/github-stand-in';
import { type Page, PlainBrowser } from '@berth/testbed/plain-browser';
import { waitFor } from '@berth/testbed/wait';
import {
  allowInsecureRequests,
  customFetch,
  discovery,
  initiateDeviceAuthorization,
  None,
  pollDeviceAuthorizationGrant,
} from 'openid-client';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createControlPlane } from './control-plane.ts';
import { githubEnv, type Site, startSite, textOf, titleOf } from './support.ts';

let github: GithubStandIn;
let site: Site;
/** Returns a browser that is signed in. */
let person: PlainBrowser;

const activation = (code?: string): string =>
  `${site.url}/_oauth/device/activate` +
  (code === undefined ? '' : `?code=${encodeURIComponent(code)}`);

type Answer = { status: number; headers: Page['headers']; body: Record<string, unknown> };
async function post(
  path: string,
  body?: string,
  type = 'application/json',
  more: Record<string, string> = {},
): Promise<Answer> {
  const headers = {
    accept: '*/*',
    'user-agent': 'berth-cli/1.2',
    ...(body === undefined ? {} : { 'content-type': type }),
    ...more,
  };
  const page = await new PlainBrowser().open(`${site.url}${path}`, {
    method: 'POST',
    headers,
    ...(body === undefined ? {} : { body }),
  });
  return {
    status: page.status,
    headers: page.headers,
    body: JSON.parse(page.body) as Record<string, unknown>,
  };
}
const begin = async (): Promise<{ device_code: string; user_code: string }> => {
  const { body } = await post('/_oauth/device/code');
  return { device_code: String(body['device_code']), user_code: String(body['user_code']) };
};
const poll = (device_code: string): Promise<Answer> =>
  post('/_oauth/device/token', JSON.stringify({ device_code }));
const FORM = 'application/x-www-form-urlencoded';

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

describe('the device', () => {
  test('the device flow of openid-client works with only the metadata document', async () => {
    const insecureHost = (url: string, init: object): Promise<Response> => {
      // Node does not resolve *.localhost.
      const { port, pathname, search } = new URL(url);
      return fetch(`http://127.0.0.1:${port}${pathname}${search}`, init);
    };
    const config = await discovery(new URL(site.url), 'any-client', undefined, None(), {
      algorithm: 'oauth2',
      execute: [allowInsecureRequests],
      [customFetch]: insecureHost,
    });
    const answer = await initiateDeviceAuthorization(config, { scope: 'projects api' });
    expect(answer).toMatchObject({ expires_in: 600, interval: 5, verification_uri: activation() });
    expect(answer.verification_uri_complete).toBe(activation(answer.user_code));
    await person.submit(await person.open(answer.verification_uri_complete ?? ''), {}, 'Connect');
    const tokens = await pollDeviceAuthorizationGrant(config, { ...answer, interval: 0 });
    expect(tokens).toMatchObject({ token_type: 'bearer', expires_in: 7_776_000 });
    expect(tokens.access_token).toMatch(/^berth_[A-Za-z0-9_-]{43}$/);
  });

  test('the contract’s client sends no body to start and JSON to poll', async () => {
    const begun = await post('/_oauth/device/code');
    expect(begun.status).toBe(200);
    expect(begun.headers['cache-control']).toBe('no-store');
    expect(Object.keys(begun.body).sort()).toEqual([
      'device_code',
      'expires_in',
      'interval',
      'user_code',
      'verification_uri',
      'verification_uri_complete',
    ]);
    const pending = await poll(String(begun.body['device_code']));
    expect([pending.status, pending.body['error']]).toEqual([400, 'authorization_pending']);
    await person.submit(
      await person.open(String(begun.body['verification_uri_complete'])),
      {},
      'Connect',
    );
    const issued = await poll(String(begun.body['device_code']));
    expect(issued.status).toBe(200);
    expect(issued.body).toEqual({
      access_token: expect.stringMatching(/^berth_/) as string,
      token_type: 'Bearer',
      expires_in: 7_776_000,
      scope: 'projects',
    });
    expect([issued.headers['cache-control'], issued.headers['pragma']]).toEqual([
      'no-store',
      'no-cache',
    ]);
    const again = await poll(String(begun.body['device_code']));
    expect([again.status, again.body['error']]).toEqual([400, 'invalid_grant']);
  });

  test('forms are accepted like JSON (RFC 8628 sections 3.1 and 3.4)', async () => {
    const begun = await post('/_oauth/device/code', 'client_id=x&scope=projects+api', FORM);
    const body = new URLSearchParams({
      grant_type: 'urn:ietf:params:oauth:grant-type:device_code',
      device_code: String(begun.body['device_code']),
      client_id: 'x',
    });
    const answer = await post('/_oauth/device/token', body.toString(), FORM);
    expect([answer.status, answer.body['error']]).toEqual([400, 'authorization_pending']);
  });

  test.each([
    ['no body', undefined, undefined],
    ['an empty object', '{}', 'application/json'],
    ['invalid JSON', '{"device_code": ', 'application/json'],
    ['a list', '["device_code"]', 'application/json'],
    ['a number', '{"device_code": 7}', 'application/json'],
    ['a poisoned key', '{"__proto__": {"device_code": "x"}}', 'application/json'],
    ['the parameter twice', 'device_code=a&device_code=b', FORM],
    ['another content type', 'device_code=a', 'text/plain'],
    ['a megabyte', JSON.stringify({ device_code: 'x'.repeat(40_000) }), 'application/json'],
  ])('token endpoint, %s: 400 invalid_request', async (_what, body, type) => {
    const answer = await post('/_oauth/device/token', body, type);
    expect([answer.status, answer.body['error']]).toEqual([400, 'invalid_request']);
    expect(answer.body['error_description']).toBeTypeOf('string');
  });

  test('an unknown device code and a device code that is too long get invalid_grant', async () => {
    for (const code of ['nothing', 'x'.repeat(5_000)]) {
      const answer = await poll(code);
      expect([answer.status, answer.body['error']]).toEqual([400, 'invalid_grant']);
    }
  });

  test('while the control plane is down: 503 with Retry-After, as JSON', async () => {
    const { device_code } = await begin();
    site.cp.away = true;
    const answers = [await post('/_oauth/device/code'), await poll(device_code)];
    site.cp.away = false;
    for (const { status, headers, body } of answers)
      expect([status, headers['retry-after'], body['error']]).toEqual([
        503,
        '5',
        'temporarily_unavailable',
      ]);
    expect((await poll(device_code)).body['error']).toBe('authorization_pending');
  });

  test('the device learns that the person denied the request', async () => {
    const { device_code, user_code } = await begin();
    const page = await person.submit(await person.open(activation(user_code)), {}, 'Refuse');
    expect(titleOf(page.body)).toBe('The device was refused');
    const answer = await poll(device_code);
    expect([answer.status, answer.body['error']]).toEqual([400, 'access_denied']);
  });
});

describe('the scope of a token (RFC 8628 section 3.1)', () => {
  const ask = (scope: unknown, type = 'application/json'): Promise<Answer> =>
    type === FORM
      ? post('/_oauth/device/code', `scope=${encodeURIComponent(String(scope))}`, FORM)
      : post('/_oauth/device/code', JSON.stringify({ scope }));
  const consent = async ({ body }: Answer): Promise<string> =>
    textOf((await person.open(activation(String(body['user_code'])))).body);

  test.each([
    ['no body', undefined],
    ['projects', 'projects'],
    ['projects twice', 'projects projects'],
    ['an empty one', ''],
  ])(
    '%s: the consent page says that the token opens projects, but not the API',
    async (_what, scope) => {
      const text = await consent(
        scope === undefined ? await post('/_oauth/device/code') : await ask(scope),
      );
      expect(text).toContain('open every project as octavia@example.test');
      expect(text).toContain('It will not be able to use the API of Berth');
      expect(site.cp.codes.at(-1)?.scope).toBe('projects');
    },
  );
  test.each(['projects api', 'api projects'])(
    '%s: the consent page says that the token also opens the API',
    async (scope) => {
      for (const type of ['application/json', FORM]) {
        const text = await consent(await ask(scope, type));
        expect(text).toContain('open every project and use the API of Berth with your role');
        expect(text).not.toContain('will not');
        expect(site.cp.codes.at(-1)?.scope).toBe('projects api');
      }
    },
  );
  test.each([
    'admin',
    'projects admin',
    'PROJECTS',
    'projects,api',
    'API',
    'openid',
    'openid profile email offline_access',
    ' ',
    'x'.repeat(5_000),
  ])(
    'an unknown one (%.20s) is ignored, and the token answer names what was granted',
    async (scope) => {
      for (const type of ['application/json', FORM]) {
        const { status, body } = await ask(scope, type);
        expect([status, site.cp.codes.at(-1)?.scope]).toEqual([200, 'projects']);
        await person.submit(
          await person.open(activation(String(body['user_code']))),
          {},
          'Connect',
        );
        expect((await poll(String(body['device_code']))).body['scope']).toBe('projects');
      }
    },
  );
  test.each(['api', 'openid api', 'projects api openid'])(
    '%s: the known part of it is granted and named',
    async (scope) => {
      const { body } = await ask(scope);
      await person.submit(await person.open(activation(String(body['user_code']))), {}, 'Connect');
      expect((await poll(String(body['device_code']))).body).toMatchObject({
        token_type: 'Bearer',
        scope: 'projects api',
      });
    },
  );
  test.each([[['projects']], [7], [null], [{}]])(
    'a scope that is not text (%j) gets 400 invalid_request',
    async (scope) => {
      const answer = await ask(scope);
      expect([answer.status, answer.body['error']]).toEqual([400, 'invalid_request']);
    },
  );
  test('the list of devices shows the scope of each device', async () => {
    for (const scope of ['projects', 'projects api']) {
      const { body } = await ask(scope);
      await person.submit(await person.open(activation(String(body['user_code']))), {}, 'Connect');
      expect((await poll(String(body['device_code']))).status).toBe(200);
    }
    const text = textOf((await person.open(`${site.url}/_oauth/devices`)).body);
    expect(text).toContain('Opens projects and the API of Berth');
    expect(text).toMatch(/Opens projects (?!and)/);
  });
  test('the metadata list both scopes', async () => {
    const page = await new PlainBrowser().open(
      `${site.url}/.well-known/oauth-authorization-server`,
    );
    expect(JSON.parse(page.body)).toMatchObject({ scopes_supported: ['projects', 'api'] });
  });
});

describe('the person', () => {
  test('is redirected to the login first, and then to the confirmation of the same code', async () => {
    const { user_code } = await begin();
    const stranger = new PlainBrowser();
    const page = await stranger.open(activation(user_code));
    expect(page.hops.some((hop) => hop.url.startsWith(github.url))).toBe(true);
    expect(titleOf(page.body)).toBe('Connect this device?');
    expect(textOf(page.body)).toContain(user_code);
  });

  test('sees program and address of the device, and their own account', async () => {
    const { user_code } = await begin();
    const text = textOf((await person.open(activation(user_code))).body);
    for (const shown of [user_code, 'berth-cli/1.2', '127.0.0.1', 'octavia@example.test'])
      expect(text).toContain(shown);
  });

  test('can type the code without the link, in any case, with spaces and dashes', async () => {
    const { user_code } = await begin();
    const form = await person.open(activation());
    expect(form.status).toBe(200);
    const typed = ` ${user_code.toLowerCase().replace('-', ' ')} `;
    const page = await person.submit(form, { code: typed }, 'Continue');
    expect(titleOf(page.body)).toBe('Connect this device?');
  });

  test('gets an error page if the session ended while the form was open, because form-action forbids a redirect to the provider', async () => {
    const { user_code } = await begin();
    const form = await person.open(activation());
    person.forgetCookies();
    const page = await person.submit(form, { code: user_code }, 'Continue');
    expect([page.status, titleOf(page.body), page.hops.length]).toEqual([
      401,
      'You are no longer signed in',
      1,
    ]);
    const href =
      /class="button first" href="([^"]+)">Sign in</
        .exec(page.body)?.[1]
        ?.replaceAll('&amp;', '&') ?? '';
    expect(titleOf((await person.open(new URL(href, site.url))).body)).toBe('Connect this device?');
  });

  test('does not approve anything by opening the link', async () => {
    const { device_code, user_code } = await begin();
    for (let i = 0; i < 3; i++) await person.open(activation(user_code));
    expect((await poll(device_code)).body['error']).toBe('authorization_pending');
  });

  const decide = async (
    browser: PlainBrowser,
    fields: Record<string, string>,
    headers: Record<string, string> = {},
  ): Promise<Page> =>
    browser.open(activation(), {
      method: 'POST',
      headers: { 'content-type': FORM, ...headers },
      body: new URLSearchParams(fields).toString(),
    });
  const csrfOf = (page: Page): string => /name="csrf" value="([^"]+)"/.exec(page.body)?.[1] ?? '';

  test('is protected against forms of other sites: a missing token, a token of another session, code or form, or another origin', async () => {
    const { device_code, user_code } = await begin();
    const other = await begin();
    const mine = csrfOf(await person.open(activation(user_code)));
    const ofOtherCode = csrfOf(await person.open(activation(other.user_code)));
    const ofDevices = csrfOf(await person.open(`${site.url}/_oauth/devices`)) || 'none';
    const attacker = new PlainBrowser();
    await attacker.open(`${site.url}/_oauth/login`);
    const ofAttacker = csrfOf(await attacker.open(activation(user_code)));
    const fields = { user_code, decision: 'approve' };
    for (const csrf of ['', 'x', ofOtherCode, ofAttacker, ofDevices, `${mine}x`, mine.slice(1)]) {
      const page = await decide(person, { ...fields, csrf });
      expect([page.status, titleOf(page.body)]).toEqual([403, 'This form is no longer valid']);
    }
    for (const headers of [
      { origin: 'https://evil.test' },
      { origin: 'null', 'sec-fetch-site': 'cross-site' },
    ])
      expect((await decide(person, { ...fields, csrf: mine }, headers)).status).toBe(403);
    expect((await decide(new PlainBrowser(), { ...fields, csrf: mine })).status).toBe(403);
    for (const wrong of [
      { user_code, csrf: mine },
      { ...fields, decision: 'maybe', csrf: mine },
      { decision: 'approve', csrf: mine },
    ])
      expect((await decide(person, wrong as Record<string, string>)).status).toBe(400);
    expect((await poll(device_code)).body['error']).toBe('authorization_pending');
    const done = await decide(person, { ...fields, csrf: mine }, { origin: site.url });
    expect([done.status, titleOf(done.body)]).toEqual([200, 'The device is connected']);
  });

  test('cannot decide about a code twice', async () => {
    const { user_code } = await begin();
    const form = await person.open(activation(user_code));
    await person.submit(form, {}, 'Refuse');
    const page = await person.submit(form, {}, 'Connect');
    expect([page.status, titleOf(page.body)]).toEqual([404, 'This code is not valid']);
  });

  test('sees the name of a device as text, never as markup', async () => {
    const nasty = '"><script>alert(1)</script><img src=x onerror=alert(2)>';
    const { body } = await post('/_oauth/device/code', undefined, undefined, {
      'user-agent': nasty,
    });
    const page = await person.open(activation(String(body['user_code'])));
    expect(page.body).not.toContain('<script>');
    expect(page.body).not.toContain('<img');
    expect(page.body).toContain('&lt;script&gt;alert(1)');
  });

  test('gets a 503 page with a link to the same code while the control plane is down', async () => {
    const { user_code } = await begin();
    site.cp.away = true;
    const page = await person.open(activation(user_code));
    site.cp.away = false;
    expect([page.status, page.headers['retry-after'], titleOf(page.body)]).toEqual([
      503,
      '5',
      'The platform does not respond',
    ]);
  });
});

describe('guessing user codes', () => {
  test('is limited to 10 wrong codes per minute and address; then even a valid code gets 429 with Retry-After', async () => {
    const cp = createControlPlane();
    const guessed = await startSite(() => githubEnv(github), { cp });
    const attacker = new PlainBrowser();
    await attacker.open(`${guessed.url}/_oauth/login`);
    const statuses: number[] = [];
    for (let i = 0; i < 12; i++) {
      const page = await attacker.open(
        `${guessed.url}/_oauth/device/activate?code=BBBB-BBB${'BCDFGHJKLMNP'[i]}`,
      );
      statuses.push(page.status);
      if (page.status === 429)
        expect([page.headers['retry-after'], titleOf(page.body)]).toEqual([
          '60',
          'Too many wrong codes',
        ]);
    }
    await guessed.close();
    expect(statuses).toEqual([...Array<number>(10).fill(404), 429, 429]);
  });
});

describe('the devices of a person', () => {
  const connect = async (browser: PlainBrowser): Promise<string> => {
    const { device_code, user_code } = await begin();
    await browser.submit(await browser.open(activation(user_code)), {}, 'Connect');
    return String((await poll(device_code)).body['access_token']);
  };
  const opens = async (token: string): Promise<number> =>
    (
      await new PlainBrowser().open(`${site.url}/_oauth/userinfo`, {
        headers: { authorization: `Bearer ${token}` },
      })
    ).status;

  test('are listed with their last use, and lose access when they are disconnected', async () => {
    site.cp.tokens.length = 0;
    const token = await connect(person);
    await waitFor('the token opens', async () => (await opens(token)) === 200);
    const page = await person.open(`${site.url}/_oauth/devices`);
    expect(textOf(page.body)).toMatch(
      /berth-cli\/1\.2 Never used Connected \d{4}-\d\d-\d\d \d\d:\d\d UTC from 127\.0\.0\.1/,
    );
    const after = await person.submit(page, {}, 'Disconnect');
    expect([after.status, after.url.pathname]).toEqual([200, '/_oauth/devices']);
    expect(textOf(after.body)).toContain('No device or command line is connected');
    await waitFor('the token opens nothing', async () => (await opens(token)) === 401);
  });

  test('are limited in number: the page then asks to disconnect one, with a link', async () => {
    const { user_code } = await begin();
    site.cp.fullFor = 'octavia@example.test';
    try {
      const page = await person.submit(await person.open(activation(user_code)), {}, 'Connect');
      expect([page.status, titleOf(page.body)]).toEqual([409, 'Too many devices']);
      expect(page.body).toContain('href="/_oauth/devices">Show your devices</a>');
    } finally {
      site.cp.fullFor = null;
    }
  });

  test('can only be disconnected with a form of their own page', async () => {
    await connect(person);
    const id = site.cp.tokens.at(-1)?.id ?? '';
    const { user_code } = await begin();
    const csrfOf = (page: Page): string => /name="csrf" value="([^"]+)"/.exec(page.body)?.[1] ?? '';
    const ofActivation = csrfOf(await person.open(activation(user_code)));
    const stranger = new PlainBrowser();
    await stranger.open(`${site.url}/_oauth/login`);
    const ofAnotherSession = csrfOf(await stranger.open(`${site.url}/_oauth/devices`));
    expect([ofActivation, ofAnotherSession]).not.toContain('');
    for (const csrf of ['', 'x', ofActivation, ofAnotherSession]) {
      const body = new URLSearchParams({ csrf, id }).toString();
      const page = await person.open(`${site.url}/_oauth/devices`, {
        method: 'POST',
        headers: { 'content-type': FORM },
        body,
      });
      expect([page.status, titleOf(page.body)]).toEqual([403, 'This form is no longer valid']);
    }
    expect(site.cp.tokens.some((t) => t.id === id)).toBe(true);
  });

  test('of other people can neither be seen nor disconnected', async () => {
    const token = await connect(person);
    const id = site.cp.tokens.at(-1)?.id ?? '';
    github.account.emails = [
      { email: 'mallory@example.test', primary: true, verified: true, visibility: null },
    ];
    const mallory = new PlainBrowser();
    await mallory.open(`${site.url}/_oauth/login`);
    github.account.emails = [
      { email: 'octavia@example.test', primary: true, verified: true, visibility: null },
    ];
    await connect(mallory);
    const page = await mallory.open(`${site.url}/_oauth/devices`);
    expect(page.body).not.toContain(id);
    const csrf = /name="csrf" value="([^"]+)"/.exec(page.body)?.[1] ?? '';
    await mallory.open(`${site.url}/_oauth/devices`, {
      method: 'POST',
      headers: { 'content-type': FORM },
      body: new URLSearchParams({ csrf, id }).toString(),
    });
    await waitFor('the token opens', async () => (await opens(token)) === 200);
    expect(site.cp.tokens.some((t) => t.id === id)).toBe(true);
  });

  test('are visible only to signed-in people', async () => {
    const page = await new PlainBrowser().open(`${site.url}/_oauth/devices`, { follow: false });
    expect([page.status, page.headers['location']]).toEqual([302, '/_oauth/login?page=devices']);
    const forged = await new PlainBrowser().open(`${site.url}/_oauth/devices`, {
      method: 'POST',
      headers: { 'content-type': FORM },
      body: 'id=x&csrf=y',
    });
    expect(forged.status).toBe(403);
  });
});
