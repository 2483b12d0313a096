/** /verify over HTTP, as the proxy calls it, for browsers, scripts, applications and attackers. */
import { createHash, randomBytes } from 'node:crypto';
import { signReach } from '@berth/kit/reach-token';
import { waitFor } from '@berth/testbed/wait';
import { createLocalJWKSet, createRemoteJWKSet, jwtVerify, SignJWT } from 'jose';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Audience } from '../src/deps.ts';
import {
  ANNA,
  BASE,
  BROWSER,
  policyOf,
  type Running,
  sessionOf,
  startGateway,
} from './core-support.ts';

/** Audience of the second host of project p2, for which the policy has no claim. */
const SECOND: Audience = `project:second.${BASE}  project:p2`;

let berth: Running;
beforeAll(async () => {
  berth = await startGateway();
  await waitFor('the policy is there', () => berth.gateway.deps.policy.view().loaded);
});
afterAll(() => berth.stop());

/** Publishes a policy and waits until it is in effect. */
async function policy(more: Parameters<typeof policyOf>[0]): Promise<void> {
  const before = berth.gateway.deps.policy.view().version;
  berth.controlPlane.publish(policyOf(more));
  await waitFor('the new policy holds', () => berth.gateway.deps.policy.view().version > before);
}

describe('a reach check of the control plane', () => {
  const claim = { project_id: 'p1', path: '/up?x=1' };
  const SECRETS = { own: 'between gateway and control plane', other: 'of somebody else' };
  const ask = (authorization: string, over: Record<string, string> = {}) =>
    berth.verify({ Authorization: authorization, 'X-Forwarded-Uri': claim.path, ...over });

  it('passes once without an identity, and the project does not see its token', async () => {
    const token = signReach(SECRETS.own, claim, Date.now());
    const first = await ask(token, { Cookie: `a=1; ${berth.cookie(sessionOf())}` });
    expect(first.status).toBe(200);
    expect(
      Object.keys(first.headers).filter((name) => /^(x-forwarded|authorization)/.test(name)),
    ).toEqual([]);
    expect(first.headers['cookie']).toBe('a=1');
    const second = await ask(token);
    expect(second.status).toBe(401);
  });

  it.each([
    ['of another path', signReach(SECRETS.own, { ...claim, path: '/' }, Date.now()), {}],
    ['of another project', signReach(SECRETS.own, { ...claim, project_id: 'p2' }, Date.now()), {}],
    ['under another secret', signReach(SECRETS.other, claim, Date.now()), {}],
    ['that is 10 s old', signReach(SECRETS.own, claim, Date.now() - 10_000), {}],
    ['from a clock that is far ahead', signReach(SECRETS.own, claim, Date.now() + 60_000), {}],
    [
      'with another method',
      signReach(SECRETS.own, claim, Date.now()),
      { 'X-Forwarded-Method': 'POST' },
    ],
    [
      'at another project’s host',
      signReach(SECRETS.own, claim, Date.now()),
      { 'X-Forwarded-Host': `two.${BASE}` },
    ],
    ['that is cut', signReach(SECRETS.own, claim, Date.now()).slice(0, -1), {}],
    ['that is invalid', 'Berth-Reach x.1.y', {}],
  ])('%s is refused, even beside a valid session', async (_, token, over) => {
    expect([401, 403]).toContain(
      (await ask(token, { ...over, Cookie: berth.cookie(sessionOf()) })).status,
    );
  });

  it('is not valid at /verify/admin or at /verify without a project', async () => {
    const token = signReach(SECRETS.own, claim, Date.now());
    for (const door of ['/verify', '/verify/admin'])
      expect((await berth.verify({ Authorization: token }, door)).status, door).not.toBe(200);
  });

  it('is refused while the control plane cannot say whether it was used', async () => {
    berth.controlPlane.away(true);
    try {
      expect((await ask(signReach(SECRETS.own, claim, Date.now()))).status).toBe(503);
    } finally {
      berth.controlPlane.away(false);
    }
  });
});

describe('a session', () => {
  it('passes at its project, with the identity headers of the contract', async () => {
    const reply = await berth.verify({ Cookie: berth.cookie(sessionOf()) });
    expect(reply.status).toBe(200);
    expect(reply.headers['x-forwarded-user']).toBe('anna@example.com');
    expect(decodeURIComponent(String(reply.headers['x-forwarded-user-name']))).toBe(
      'Anna Ångström',
    );
    expect(reply.headers['x-forwarded-user-name']).toBe('Anna %C3%85ngstr%C3%B6m');
    expect(reply.headers['x-forwarded-user-avatar']).toBe('https://pics.example/anna.png');
    expect(reply.headers['x-forwarded-user-provider']).toBe('oidc');
  });

  it('without name and picture omits those two headers', async () => {
    const reply = await berth.verify({
      Cookie: berth.cookie(sessionOf({ ...ANNA, name: null, avatar_url: null })),
    });
    expect(reply.status).toBe(200);
    expect(
      Object.keys(reply.headers)
        .filter((h) => h.startsWith('x-forwarded-user'))
        .toSorted(),
    ).toEqual(['x-forwarded-user', 'x-forwarded-user-assertion', 'x-forwarded-user-provider']);
  });

  it('ignores forged identity headers of the request', async () => {
    const forged = {
      'X-Forwarded-User': 'boss@example.com',
      X_Forwarded_User: 'boss@example.com',
      'X-Forwarded-User-Assertion': 'x',
    };
    expect((await berth.verify(forged)).status).toBe(401);
    const reply = await berth.verify({ ...forged, Cookie: berth.cookie(sessionOf()) });
    expect(reply.headers['x-forwarded-user']).toBe('anna@example.com');
  });

  it.each([
    ['another project', 'project:p2'],
    ['the auth host', 'sso'],
    ['a host that is no project', `host:one.${BASE}`],
  ] as const)('for %s is refused here', async (_, audience) => {
    expect((await berth.verify({ Cookie: berth.cookie(sessionOf(), audience) })).status).toBe(401);
  });

  it('that has expired is refused', async () => {
    const past = { ...sessionOf(), expires_at: Date.now() - 1000 };
    expect((await berth.verify({ Cookie: berth.cookie(past) })).status).toBe(401);
  });

  it('is found among invalid cookies of the same name', async () => {
    const good = berth.cookie(sessionOf());
    for (const header of [
      `svc_fwd_session=junk; ${good}`,
      `${good}; svc_fwd_session=junk`,
      `svc_fwd_session=; a=1; ${good}`,
    ])
      expect((await berth.verify({ Cookie: header })).status, header).toBe(200);
  });

  it('is removed from the Cookie header together with all other cookies of Berth; every other byte is kept', async () => {
    const good = berth.cookie(sessionOf());
    const others = 'a=1;b="x; y"; \tc=\xe9; SVC_FWD_SESSION=theirs; svc_fwd_session_2=theirs; flag';
    const reply = await berth.verify({
      Cookie: `berth_nonce=n; ${others}; ${good}; berth_login_1=x; __Host-berth_nonce=n`,
    });
    expect(reply.status).toBe(200);
    expect(Buffer.from(String(reply.headers.cookie), 'latin1')).toEqual(
      Buffer.from(others, 'latin1'),
    );
    expect((await berth.verify({ Cookie: good })).headers.cookie).toBeUndefined();
  });

  it('passes other bearer tokens and basic credentials on to the project', async () => {
    const Cookie = berth.cookie(sessionOf());
    for (const Authorization of ['Bearer eyJhbGciOi.x.y', 'Basic dTpw', 'Bearer'])
      expect((await berth.verify({ Cookie, Authorization })).headers.authorization).toBe(
        Authorization,
      );
    expect((await berth.verify({ Cookie })).headers.authorization).toBeUndefined();
  });

  it('ends immediately when it is revoked here or in the policy', async () => {
    const [one, two] = [sessionOf(), sessionOf()];
    for (const s of [one, two])
      expect((await berth.verify({ Cookie: berth.cookie(s) })).status).toBe(200);
    await berth.gateway.deps.policy.revokeSession(one);
    expect((await berth.verify({ Cookie: berth.cookie(one) })).status).toBe(401);
    await policy({
      revoked_sessions: [{ id: two.id, expires_at: new Date(two.expires_at).toISOString() }],
    });
    expect((await berth.verify({ Cookie: berth.cookie(two) })).status).toBe(401);
    expect((await berth.verify({ Cookie: berth.cookie(sessionOf()) })).status).toBe(200);
  });

  it('ends when its owner is disabled, independent of upper and lower case in the address', async () => {
    const session = sessionOf({ ...ANNA, email: 'Carl@Example.com' });
    expect((await berth.verify({ Cookie: berth.cookie(session) })).status).toBe(200);
    await policy({ disabled_users: ['carl@example.com'] });
    expect((await berth.verify({ Cookie: berth.cookie(session) })).status).toBe(401);
    await policy({});
    expect((await berth.verify({ Cookie: berth.cookie(session) })).status).toBe(200);
  });
});

describe('without a session', () => {
  it('a browser is redirected to the login with its address and a nonce of this host', async () => {
    const reply = await berth.verify(BROWSER);
    expect(reply.status).toBe(302);
    const to = new URL(String(reply.headers.location));
    expect(to.origin + to.pathname).toBe(`https://${BASE}/_oauth/login`);
    expect(to.searchParams.get('redirect')).toBe(`https://one.${BASE}/page?x=1`);
    const [cookie = ''] = reply.headers['set-cookie'] ?? [];
    expect(cookie).toMatch(
      /^__Host-berth_nonce_[\w-]{8}=[\w-]{43}; Path=\/; Max-Age=900; HttpOnly; SameSite=Lax; Secure$/,
    );
    const nonce = cookie.slice(cookie.indexOf('=') + 1, cookie.indexOf(';'));
    expect(to.searchParams.get('challenge')).toBe(
      createHash('sha256').update(nonce).digest('base64url'),
    );
    expect(reply.headers['cache-control']).toBe('no-store');
  });

  it('a second tab of the browser gets the same challenge', async () => {
    const first = await berth.verify(BROWSER);
    const Cookie = String(first.headers['set-cookie']).split(';')[0];
    const second = await berth.verify({ ...BROWSER, Cookie, 'X-Forwarded-Uri': '/other' });
    const challenge = (r: typeof first): string | null =>
      new URL(String(r.headers.location)).searchParams.get('challenge');
    expect(challenge(second)).toBe(challenge(first));
  });

  it.each<[string, Record<string, string | undefined>]>([
    ['PUT', { ...BROWSER, 'X-Forwarded-Method': 'PUT' }],
    ['a request without a method', { ...BROWSER, 'X-Forwarded-Method': undefined }],
    ['fetch()', { ...BROWSER, 'Sec-Fetch-Mode': 'cors' }],
    ['an image', { ...BROWSER, 'Sec-Fetch-Mode': 'no-cors', 'Sec-Fetch-Dest': 'image' }],
    ['XMLHttpRequest', { ...BROWSER, 'X-Requested-With': 'XMLHttpRequest' }],
    ['a WebSocket', { ...BROWSER, 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==' }],
    ['curl', { Accept: '*/*' }],
    ['no Accept', {}],
    ['HTML with weight 0', { Accept: 'text/html;q=0.0, */*' }],
  ])('%s gets 401 with the address of the login', async (_, headers) => {
    const reply = await berth.verify(headers);
    expect(reply.status).toBe(401);
    expect(reply.headers['content-type']).toMatch(/^application\/problem\+json/);
    expect(reply.headers['www-authenticate']).toBe('Bearer');
    expect(reply.headers['set-cookie']).toBeUndefined();
    const problem = JSON.parse(reply.body) as { code: string; status: number; login_url: string };
    expect(problem).toMatchObject({ code: 'unauthenticated', status: 401 });
    expect(new URL(problem.login_url).pathname).toBe('/_oauth/login');
  });

  it('a bearer token of the application gives no access', async () => {
    expect((await berth.verify({ Authorization: 'Bearer eyJhbGciOiJub25lIn0.e30.' })).status).toBe(
      401,
    );
  });

  it('an address that is too long as a redirect target is shortened to its path', async () => {
    const reply = await berth.verify({ ...BROWSER, 'X-Forwarded-Uri': `/p?${'x'.repeat(60_000)}` });
    expect(new URL(String(reply.headers.location)).searchParams.get('redirect')).toBe(
      `https://one.${BASE}/p`,
    );
  });
});

describe('host and project', () => {
  it.each<[string, string, Record<string, string | undefined>]>([
    ['an unknown project', '/verify?project=nope', {}],
    ['no project in the parameter', '/verify?project=', {}],
    ['a misspelled parameter', '/verify?projct=p1', {}],
    ['two projects', '/verify?project=p1&project=p2', {}],
    ['the host of another project', '/verify?project=p1', { 'X-Forwarded-Host': `two.${BASE}` }],
    ['an unpublished host', '/verify?project=p1', { 'X-Forwarded-Host': `nobody.${BASE}` }],
    ['a foreign host', '/verify?project=p1', { 'X-Forwarded-Host': 'one.evil.example' }],
    ['a host that only ends with the same text', '/verify', { 'X-Forwarded-Host': `evil${BASE}` }],
    ['a foreign host without a project', '/verify', { 'X-Forwarded-Host': 'evil.example' }],
    ['no host', '/verify?project=p1', { 'X-Forwarded-Host': undefined }],
    ['no path', '/verify?project=p1', { 'X-Forwarded-Uri': undefined }],
    ['a host with a user', '/verify?project=p1', { 'X-Forwarded-Host': `x@one.${BASE}` }],
  ])('%s: 403, with or without a session', async (_, path, headers) => {
    for (const audience of [
      'project:p1',
      'project:p2',
      'project:nope',
      'sso',
      'host:evil.example',
    ] as const) {
      const reply = await berth.verify(
        { ...headers, Cookie: berth.cookie(sessionOf(), audience) },
        path,
      );
      expect(reply.status, audience).toBe(403);
      expect(JSON.parse(reply.body)).toMatchObject({ code: 'forbidden' });
    }
    expect((await berth.verify({ ...BROWSER, ...headers }, path)).status).toBe(403);
  });

  it('two hosts in one header are refused', async () => {
    const Cookie = berth.cookie(sessionOf());
    expect(
      (await berth.verify({ Cookie, 'X-Forwarded-Host': [`one.${BASE}`, `two.${BASE}`] })).status,
    ).toBe(403);
  });

  it('port and case of the host do not matter; a second host of a project has sessions of its own', async () => {
    const Cookie = berth.cookie(sessionOf());
    expect((await berth.verify({ Cookie, 'X-Forwarded-Host': `ONE.${BASE}:8443` })).status).toBe(
      200,
    );
    const at = async (host: string, cookie: string): Promise<number> =>
      (await berth.verify({ Cookie: cookie, 'X-Forwarded-Host': host }, '/verify?project=p2'))
        .status;
    const first = berth.cookie(sessionOf(), 'project:p2');
    expect([await at(`two.${BASE}`, first), await at(`second.${BASE}`, first)]).toEqual([200, 401]);
    const second = berth.cookie(sessionOf(), SECOND);
    expect([await at(`two.${BASE}`, second), await at(`second.${BASE}`, second)]).toEqual([
      401, 200,
    ]);
  });

  it('addresses that are similar to /verify get 404', async () => {
    const Cookie = berth.cookie(sessionOf());
    for (const path of [
      '/verify/',
      '/verify/x',
      '/verifyy',
      '/verify%3Fproject=p1',
      '/Verify?project=p1',
      '//verify?project=p1',
    ])
      expect((await berth.verify({ Cookie }, path)).status, path).toBe(404);
  });
});

describe('device tokens', () => {
  const token = `berth_${randomBytes(32).toString('base64url')}`;
  const record = (more: object = {}) => ({
    id: 't1',
    hash: createHash('sha256').update(token).digest('hex'),
    identity: { ...ANNA, email: 'dora@example.com' },
    expires_at: new Date(Date.now() + 3_600_000).toISOString(),
    ...more,
  });
  beforeEach(() => policy({ device_tokens: [record()] }));

  it('get an assertion with their scope, so that the API allows no more than for the token itself; sessions get none', async () => {
    const scopeIn = async (headers: Record<string, string>): Promise<unknown> => {
      const [, payload = ''] = String(
        (await berth.verify(headers)).headers['x-forwarded-user-assertion'],
      ).split('.');
      return (JSON.parse(Buffer.from(payload, 'base64url').toString()) as { scope?: string }).scope;
    };
    const Authorization = `Bearer ${token}`;
    expect(await scopeIn({ Authorization })).toBe('projects');
    expect(await scopeIn({ Cookie: berth.cookie(sessionOf()) })).toBeUndefined();
    await policy({ device_tokens: [{ ...record(), scope: 'projects api' }] });
    expect(await scopeIn({ Authorization })).toBe('projects api');
  });

  it.each([`Bearer ${token}`, `bearer ${token}`, `BEARER   ${token}`])(
    '%j opens a project, and the project does not get it',
    async (Authorization) => {
      const reply = await berth.verify({
        Authorization,
        Cookie: `a=1; ${berth.cookie(sessionOf())}`,
      });
      expect(reply.status).toBe(200);
      expect(reply.headers['x-forwarded-user']).toBe('dora@example.com');
      expect(reply.headers.authorization).toBeUndefined();
      expect(reply.headers.cookie).toBe('a=1');
    },
  );

  it.each([
    ['unknown', `Bearer berth_${randomBytes(32).toString('base64url')}`],
    ['cut', `Bearer ${token.slice(0, -1)}`],
    ['longer', `Bearer ${token}A`],
    ['very long', `Bearer berth_${'a'.repeat(5000)}`],
    ['only the prefix', 'Bearer berth_'],
    ['in another case', `Bearer ${token.toLowerCase().replace('berth_', 'berth_A')}`],
  ])(
    '%s: 401 invalid_token, even with a valid cookie or in a browser',
    async (_, Authorization) => {
      for (const headers of [
        {},
        { Cookie: berth.cookie(sessionOf()) },
        { ...BROWSER, Cookie: berth.cookie(sessionOf()) },
      ]) {
        const reply = await berth.verify({ ...headers, Authorization });
        expect(reply.status).toBe(401);
        expect(reply.headers['www-authenticate']).toBe('Bearer error="invalid_token"');
      }
    },
  );

  it.each([
    ['that has expired', { expires_at: new Date(Date.now() - 1000).toISOString() }, []],
    ['of a disabled owner', {}, ['dora@example.com']],
  ])('a token %s is refused', async (_, more, disabled_users) => {
    await policy({ device_tokens: [record(more)], disabled_users });
    expect((await berth.verify({ Authorization: `Bearer ${token}` })).status).toBe(401);
  });

  it('a revoked token is refused', async () => {
    expect((await berth.verify({ Authorization: `Bearer ${token}` })).status).toBe(200);
    await policy({ device_tokens: [] });
    expect((await berth.verify({ Authorization: `Bearer ${token}` })).status).toBe(401);
  });

  it('a token in another header or scheme is refused and does not reach the project', async () => {
    const Cookie = berth.cookie(sessionOf());
    for (const Authorization of [
      token,
      `Token ${token}`,
      `Basic x, Bearer ${token}`,
      `Bearer,${token}`,
    ]) {
      expect((await berth.verify({ Authorization })).status, Authorization).toBe(401);
      expect(
        (await berth.verify({ Authorization, Cookie })).headers.authorization,
        Authorization,
      ).toBeUndefined();
    }
  });

  it('is not valid at /verify/admin', async () => {
    await policy({ device_tokens: [record({ identity: { ...ANNA, email: 'boss@example.com' } })] });
    expect((await berth.verify({ Authorization: `Bearer ${token}` }, '/verify/admin')).status).toBe(
      401,
    );
  });
});

describe('hosts that are not projects', () => {
  it('accept any signed-in person, with their own cookie', async () => {
    const host = `dashboard.${BASE}`;
    const own = berth.cookie(sessionOf(), `host:${host}`);
    expect((await berth.verify({ Cookie: own, 'X-Forwarded-Host': host }, '/verify')).status).toBe(
      200,
    );
    expect(
      (await berth.verify({ Cookie: own, 'X-Forwarded-Host': `other.${BASE}` }, '/verify')).status,
    ).toBe(401);
    expect(
      (
        await berth.verify(
          { Cookie: berth.cookie(sessionOf()), 'X-Forwarded-Host': host },
          '/verify',
        )
      ).status,
    ).toBe(401);
  });

  it('the auth host accepts the single sign-on cookie and sets no nonce', async () => {
    const sso = berth.cookie(sessionOf(), 'sso');
    expect((await berth.verify({ Cookie: sso, 'X-Forwarded-Host': BASE }, '/verify')).status).toBe(
      200,
    );
    const reply = await berth.verify({ ...BROWSER, 'X-Forwarded-Host': BASE }, '/verify');
    expect(reply.status).toBe(302);
    expect(reply.headers['set-cookie']).toBeUndefined();
    expect(new URL(String(reply.headers.location)).searchParams.has('challenge')).toBe(false);
  });

  it('only at the auth host the assertion names the session or token, so that the API can check for a revocation', async () => {
    const claimsAt = async (
      host: string,
      door: string,
      headers: Record<string, string>,
    ): Promise<Record<string, unknown>> => {
      const { status, headers: given } = await berth.verify(
        { ...headers, 'X-Forwarded-Host': host },
        door,
      );
      expect(status).toBe(200);
      const [, payload = ''] = String(given['x-forwarded-user-assertion']).split('.');
      const { sid, device_token } = JSON.parse(
        Buffer.from(payload, 'base64url').toString(),
      ) as Record<string, unknown>;
      return { sid, device_token };
    };
    const token = `berth_${randomBytes(32).toString('base64url')}`;
    const hash = createHash('sha256').update(token).digest('hex');
    const expires_at = new Date(Date.now() + 3_600_000).toISOString();
    await policy({
      device_tokens: [{ id: 't7', hash, identity: ANNA, expires_at, scope: 'projects api' }],
    });
    const session = sessionOf();
    const bearer = { Authorization: `Bearer ${token}` };
    expect(await claimsAt(BASE, '/verify', { Cookie: berth.cookie(session, 'sso') })).toEqual({
      sid: session.id,
    });
    expect(await claimsAt(BASE, '/verify', bearer)).toEqual({ device_token: 't7' });
    for (const headers of [{ Cookie: berth.cookie(session) }, bearer])
      expect(await claimsAt(`one.${BASE}`, '/verify?project=p1', headers)).toEqual({});
  });

  it('/verify/admin accepts ADMIN_EMAILS; others get 403, or an error page in a browser', async () => {
    const headers = { 'X-Forwarded-Host': `proxy.${BASE}` };
    const as = (email: string): string =>
      berth.cookie(sessionOf({ ...ANNA, email }), `host:proxy.${BASE}`);
    expect(
      (await berth.verify({ ...headers, Cookie: as('Boss@example.com') }, '/verify/admin')).status,
    ).toBe(200);
    expect(
      (await berth.verify({ ...headers, Cookie: as('anna@example.com') }, '/verify/admin')).status,
    ).toBe(403);
    const page = await berth.verify(
      { ...headers, ...BROWSER, Cookie: as('anna@example.com') },
      '/verify/admin',
    );
    expect(page.status).toBe(403);
    expect(page.headers['content-type']).toMatch(/^text\/html/);
    expect(page.body).toContain('anna@example.com');
    expect((await berth.verify({ ...headers, ...BROWSER }, '/verify/admin')).status).toBe(302);
    // A cached decision of one middleware does not apply to another.
    expect(
      (await berth.verify({ ...headers, Cookie: as('anna@example.com') }, '/verify')).status,
    ).toBe(200);
  });
});

describe('reserved paths', () => {
  it.each([
    '/_oauth/',
    '/_oauth',
    '/_oauth/login',
    '/_oauth/userinfo?x=1',
    '/_oauth/session/',
    '/_oauth/../_oauth/x',
    '/x/../_oauth/x',
    '/%5foauth/x',
    '/%5Foauth%2Fx',
    '//_oauth/x',
    '/./_oauth/x',
    '/_oauth;a=1/x',
    '/_oauth%2fsession',
    '/a/%2e%2e/_oauth/x',
    '/\\_oauth/x',
  ])('%s belongs to the gateway', async (uri) => {
    const reply = await berth.verify({ Cookie: berth.cookie(sessionOf()), 'X-Forwarded-Uri': uri });
    expect(reply.status).toBe(404);
  });

  it.each(['/_oauthx', '/x/_oauth/y', '/?a=/_oauth/', '/_OAUTH/', '/%zz', '/a%2fb', '//x'])(
    '%s belongs to the project',
    async (uri) => {
      expect(
        (await berth.verify({ Cookie: berth.cookie(sessionOf()), 'X-Forwarded-Uri': uri })).status,
      ).toBe(200);
    },
  );
});

describe('the signed assertion', () => {
  const assertionFor = async (headers = {}): Promise<string> => {
    const reply = await berth.verify({ Cookie: berth.cookie(sessionOf()), ...headers });
    return String(reply.headers['x-forwarded-user-assertion']);
  };
  const stock = () =>
    createRemoteJWKSet(
      new URL(
        `http://127.0.0.1:${(berth.gateway.server.server.address() as { port: number }).port}` +
          '/_oauth/jwks.json',
      ),
    );

  it('verifies with jose and its standard JWKS client, for this host and for at most 5 minutes', async () => {
    const token = await assertionFor();
    const { payload, protectedHeader } = await jwtVerify(token, stock(), {
      issuer: `https://${BASE}`,
      audience: `one.${BASE}`,
      algorithms: ['EdDSA'],
    });
    expect(payload).toMatchObject({
      sub: 'anna@example.com',
      email: 'anna@example.com',
      name: ANNA.name,
      avatar_url: ANNA.avatar_url,
      provider: 'oidc',
    });
    expect((payload.exp ?? 0) - Date.now() / 1000).toBeLessThanOrEqual(300);
    expect((payload.exp ?? 0) - Date.now() / 1000).toBeGreaterThan(50);
    expect(protectedHeader.alg).toBe('EdDSA');
    await expect(jwtVerify(token, stock(), { audience: `two.${BASE}` })).rejects.toThrow('"aud"');
  });

  it('is reused for a session and host for some minutes, and differs for another host', async () => {
    const Cookie = berth.cookie(sessionOf());
    expect(await assertionFor({ Cookie })).toBe(await assertionFor({ Cookie }));
    const two = await berth.verify(
      { Cookie: berth.cookie(sessionOf(), SECOND), 'X-Forwarded-Host': `second.${BASE}` },
      '/verify?project=p2',
    );
    await jwtVerify(String(two.headers['x-forwarded-user-assertion']), stock(), {
      audience: `second.${BASE}`,
    });
  });

  it('does not verify with a foreign signature or without a signature', async () => {
    const jwks = JSON.parse((await berth.get('/_oauth/jwks.json')).body) as Parameters<
      typeof createLocalJWKSet
    >[0];
    expect(JSON.stringify(jwks)).not.toContain('"d"');
    const [header, payload] = (await assertionFor()).split('.');
    const none = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${payload}.`;
    const hmac = await new SignJWT({ email: 'boss@example.com' })
      .setProtectedHeader({ alg: 'HS256' })
      .sign(Buffer.from(jwks.keys[0]?.x ?? '', 'base64url'));
    const forged =
      `${header}.${Buffer.from('{"email":"boss@example.com"}').toString('base64url')}.` +
      (await assertionFor()).split('.')[2];
    for (const token of [none, hmac, forged])
      await expect(jwtVerify(token, createLocalJWKSet(jwks))).rejects.toThrow();
  });
});

describe('limits', () => {
  it('128 KiB of headers are accepted; more gets 431', async () => {
    const Cookie = `${berth.cookie(sessionOf())}; big=${'x'.repeat(124 * 1024)}`;
    expect((await berth.verify({ Cookie })).status).toBe(200);
    expect((await berth.verify({ Cookie: `${Cookie}${'x'.repeat(400 * 1024)}` })).status).toBe(431);
    const many = Array.from({ length: 30_000 }, () => 'a=1').join(';');
    expect((await berth.verify({ Cookie: many })).status).toBe(401);
  });

  it('a name and a picture that are too large for a cookie do not prevent a sign-in', async () => {
    const large = {
      ...ANNA,
      name: '名'.repeat(500),
      avatar_url: `https://pics.example/${'a'.repeat(1900)}`,
    };
    const cookie = berth.cookie(sessionOf(large));
    expect(cookie.length).toBeLessThan(4096);
    const reply = await berth.verify({ Cookie: cookie });
    expect(reply.status).toBe(200);
    expect(decodeURIComponent(String(reply.headers['x-forwarded-user-name']))).toBe(
      '名'.repeat(500),
    );
  });
});

describe('requests of pages of other origins', () => {
  const APP = 'https://app.example.com';
  const project = {
    id: 'p1',
    name: 'one',
    hosts: [`one.${BASE}`],
    auth_required: true,
    cors_origins: [APP],
    domains: [{ host: 'www.one.example', claim: 'c' }],
  };
  beforeEach(async () => {
    berth.controlPlane.publish(
      policyOf({
        projects: [
          project,
          { id: 'p2', name: 'two', hosts: [`two.${BASE}`], auth_required: false },
        ],
      }),
    );
    await waitFor(
      'the policy holds',
      () => berth.gateway.deps.policy.view().projectById('p1')?.cors_origins !== undefined,
    );
  });
  const preflight = (origin: string, host = `one.${BASE}`, more: Record<string, string> = {}) =>
    berth.get(
      '/api/x',
      {
        host,
        origin,
        'access-control-request-method': 'PUT',
        'access-control-request-headers': 'authorization,content-type',
        ...more,
      },
      'OPTIONS',
    );

  it.each([`one.${BASE}`, `ONE.${BASE}:8443`, 'www.one.example'])(
    'a preflight of a listed origin is answered at %s, without a session',
    async (host) => {
      const { status, headers, body } = await preflight(APP, host);
      expect([status, body]).toEqual([204, '']);
      expect(headers).toMatchObject({
        'access-control-allow-origin': APP,
        'access-control-allow-credentials': 'true',
        'access-control-allow-methods': 'PUT',
        'access-control-allow-headers': 'authorization,content-type',
        'access-control-max-age': '600',
        vary:
          'Origin, Access-Control-Request-Method, Access-Control-Request-Headers, ' +
          'Access-Control-Request-Private-Network',
      });
      expect(headers).not.toHaveProperty('access-control-allow-private-network');
    },
  );

  it('a listed origin of the internet may call a project at a private address, and no other origin', async () => {
    const asked = (origin: string) =>
      preflight(origin, `one.${BASE}`, { 'access-control-request-private-network': 'true' });
    expect((await asked(APP)).headers).toMatchObject({
      'access-control-allow-private-network': 'true',
    });
    expect((await asked('https://evil.example')).headers).not.toHaveProperty(
      'access-control-allow-private-network',
    );
  });

  it.each([
    'null',
    'http://app.example.com',
    `${APP}:444`,
    `${APP}/`,
    'https://APP.example.com',
    'https://evil.example',
    `${APP}.evil.example`,
    `https://two.${BASE}`,
  ])('a preflight of %s gets no permission', async (origin) => {
    const { status, headers } = await preflight(origin);
    expect(status).toBe(204);
    expect(Object.keys(headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
    expect(headers['vary']).toContain('Origin');
  });

  it('hosts of projects without a login, unknown hosts and requests that are no preflight get none of these answers', async () => {
    for (const host of [`two.${BASE}`, `nobody.${BASE}`, 'other.example'])
      expect((await preflight(APP, host)).status, host).toBe(404);
    expect(
      (await berth.get('/api/x', { host: `one.${BASE}`, origin: APP }, 'OPTIONS')).status,
    ).toBe(404);
    expect(
      (
        await berth.get(
          '/api/x',
          { host: `one.${BASE}`, 'access-control-request-method': 'PUT' },
          'OPTIONS',
        )
      ).status,
    ).toBe(404);
  });

  it('an odd method or header list is not repeated', async () => {
    const { headers } = await preflight(APP, `one.${BASE}`, {
      'access-control-request-method': 'P<T',
      'access-control-request-headers': 'a;b',
    });
    expect(headers).not.toHaveProperty('access-control-allow-methods');
    expect(headers).not.toHaveProperty('access-control-allow-headers');
  });

  it('the request itself needs a session or device token; a listed page can read why not', async () => {
    const refused = await berth.verify({ Origin: APP, 'X-Forwarded-Method': 'PUT' });
    expect(refused.status).toBe(401);
    expect(refused.headers).toMatchObject({
      'access-control-allow-origin': APP,
      'access-control-allow-credentials': 'true',
      vary: 'Origin',
    });
    expect(JSON.parse(refused.body)).toMatchObject({ code: 'unauthenticated' });
    // A preflight that reaches /verify all the same opens nothing.
    expect(
      (
        await berth.verify({
          Origin: APP,
          'X-Forwarded-Method': 'OPTIONS',
          'Access-Control-Request-Method': 'PUT',
        })
      ).status,
    ).toBe(401);
    const other = await berth.verify({
      Origin: 'https://evil.example',
      'X-Forwarded-Method': 'PUT',
    });
    expect(other.headers).not.toHaveProperty('access-control-allow-origin');
    expect(other.headers['vary']).toBe('Origin');
  });
});

describe('a form that is sent after the session ended', () => {
  const FORM = {
    ...BROWSER,
    'X-Forwarded-Method': 'POST',
    'X-Forwarded-Uri': '/orders',
    'Sec-Fetch-Mode': 'navigate',
  };
  const target = async (headers: Record<string, string>): Promise<unknown[]> => {
    const reply = await berth.verify({ ...FORM, ...headers });
    const login = reply.headers.location === undefined ? null : new URL(reply.headers.location);
    return [reply.status, login?.searchParams.get('redirect'), login?.searchParams.get('lost')];
  };

  it('leads to the login and back to its page', async () => {
    expect(await target({ Referer: `https://one.${BASE}/orders/new?x=1` })).toEqual([
      303,
      `https://one.${BASE}/orders/new?x=1`,
      'form',
    ]);
  });

  it.each([
    'https://evil.example/orders/new',
    `https://two.${BASE}/x`,
    `https://one.${BASE}/_oauth/logout`,
    `https://one.${BASE}//evil.example`,
    'nothing',
    '',
  ])('leads back to the first page when it came from %j', async (Referer) => {
    expect(await target({ Referer })).toEqual([303, `https://one.${BASE}/`, 'form']);
  });

  it('says at the login that it is lost, also to somebody with a session there', async () => {
    const { headers } = await berth.verify({ ...FORM, Referer: `https://one.${BASE}/orders/new` });
    const login = new URL(headers.location ?? '');
    const page = await berth.get(`${login.pathname}${login.search}`, {
      host: BASE,
      cookie: berth.cookie(sessionOf(), 'sso'),
    });
    expect(page.status).toBe(200);
    expect(page.body).toContain('Your form was not sent');
    const next =
      /href="(\/_oauth\/login[^"]*)"/.exec(page.body)?.[1]?.replaceAll('&amp;', '&') ?? '';
    const back = await berth.get(next, { host: BASE, cookie: berth.cookie(sessionOf(), 'sso') });
    expect(new URL(back.headers.location ?? '').searchParams.get('redirect')).toBe('/orders/new');
  });

  it.each([
    ['fetch', { 'Sec-Fetch-Mode': 'cors' }],
    ['XMLHttpRequest', { 'X-Requested-With': 'XMLHttpRequest' }],
    ['a program', { Accept: '*/*' }],
    ['PUT', { 'X-Forwarded-Method': 'PUT' }],
  ])('%s still gets 401', async (_name, headers) => {
    expect((await target(headers as Record<string, string>))[0]).toBe(401);
  });
});
