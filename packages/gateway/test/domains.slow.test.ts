/**
 * Custom domains: the sign-in works there, and a cookie of a domain opens nothing but this domain
 * while its project has it.
 */
import type { Policy } from '@berth/wire/gateway';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { challengeOf } from '../src/codes.ts';
import {
  ANNA,
  BASE,
  BROWSER,
  policyOf,
  type Reply,
  type Running,
  sessionOf,
  startGateway,
} from './core-support.ts';

const WWW = 'www.shop.example';
const NONCE = 'n'.repeat(43);
type Project = Policy['projects'][number];
const ONE: Project = {
  id: 'p1',
  name: 'one',
  hosts: [`one.${BASE}`],
  auth_required: true,
  domains: [{ host: WWW, claim: 'claim-1' }],
};
const TWO: Project = { id: 'p2', name: 'two', hosts: [`two.${BASE}`], auth_required: true };

let berth: Running;
beforeAll(async () => {
  berth = await startGateway();
  await waitFor('the policy is there', () => berth.gateway.deps.policy.view().loaded);
});
afterAll(() => berth.stop());

async function publish(...projects: Project[]): Promise<void> {
  const { version } = berth.gateway.deps.policy.view();
  berth.controlPlane.publish(policyOf({ projects }));
  await waitFor(
    'the gateway has the policy',
    () => berth.gateway.deps.policy.view().version > version,
  );
}
beforeEach(() => publish(ONE, TWO));

const at = (host: string, headers: Record<string, string> = {}, project = 'p1'): Promise<Reply> =>
  berth.verify({ 'X-Forwarded-Host': host, ...headers }, `/verify?project=${project}`);
async function arrive(host: string, project = 'p1'): Promise<string> {
  const query = new URLSearchParams({
    code: berth.gateway.deps.codes.mint(sessionOf(), host, challengeOf(NONCE)),
    redirect: '/page',
  });
  const reply = await at(
    host,
    {
      ...BROWSER,
      Cookie: `__Host-berth_nonce=${NONCE}`,
      'X-Forwarded-Uri': `/_oauth/session?${query.toString()}`,
    },
    project,
  );
  expect([reply.status, reply.headers.location]).toEqual([302, `https://${host}/page`]);
  return (
    (reply.headers['set-cookie'] ?? [])
      .find((c) => c.startsWith('svc_fwd_session='))
      ?.split(';')[0] ?? ''
  );
}

describe('sign-in at a custom domain', () => {
  it('leads to the auth host and back, with a host-only cookie', async () => {
    const first = await at(WWW, BROWSER);
    expect(first.status).toBe(302);
    const login = new URL(first.headers.location ?? '');
    expect(login.searchParams.get('redirect')).toBe(`https://${WWW}/page?x=1`);
    expect(first.headers['set-cookie']?.[0]).toMatch(
      /^__Host-berth_nonce_[^;]+; Path=\/; Max-Age=900; HttpOnly; SameSite=Lax; Secure$/,
    );
    // The auth host sends a signed-in person back with a code.
    const back = await berth.get(`${login.pathname}${login.search}`, {
      host: BASE,
      cookie: berth.cookie(sessionOf(), 'sso'),
    });
    expect(back.headers.location).toMatch(new RegExp(`^https://${WWW}/_oauth/session\\?code=`));
    const opened = await at(WWW, { Cookie: await arrive(WWW) });
    expect([opened.status, opened.headers['x-forwarded-user']]).toEqual([200, ANNA.email]);
  });

  it('another project’s middleware, an unknown domain and a middleware of the platform refuse it', async () => {
    const Cookie = await arrive(WWW);
    expect((await at(WWW, { Cookie }, 'p2')).status).toBe(403);
    expect((await at('other.example', { Cookie })).status).toBe(403);
    expect((await berth.verify({ 'X-Forwarded-Host': WWW, Cookie }, '/verify')).status).toBe(403);
    expect((await berth.verify({ 'X-Forwarded-Host': WWW, Cookie }, '/verify/admin')).status).toBe(
      403,
    );
    expect((await at(`${WWW}.`, { Cookie })).status).toBe(403);
    expect((await at(WWW, { Cookie, 'X-Forwarded-Uri': '/_oauth/other' })).status).toBe(404);
  });

  it('a login leads to custom domains of projects and to no other host', async () => {
    const target = (redirect: string): string => berth.gateway.deps.redirects.target(redirect);
    expect(target(`https://${WWW}/a?b#c`)).toBe(`https://${WWW}/a?b#c`);
    for (const bad of [
      `http://${WWW}/`,
      `https://${WWW}:8443/`,
      `https://${WWW}.evil.example/`,
      `https://evil.${WWW}/`,
      `https://${WWW}@evil.example/`,
      `https://${WWW}./`,
      `https://${WWW}/_oauth/session`,
      'https://evil.example/',
    ])
      expect(target(bad), bad).toBe('/');
    await publish({ ...ONE, domains: [] }, TWO);
    expect(target(`https://${WWW}/`)).toBe('/');
  });

  it('a login that began before the domain was removed does not lead there', async () => {
    const { redirects, codes } = berth.gateway.deps;
    const { arrivalOf, retryPathOf } = await import('../src/login/destination.ts');
    const destination = {
      kind: 'target' as const,
      target: `https://${WWW}/page`,
      challenge: challengeOf(NONCE),
    };
    expect(arrivalOf(destination, sessionOf(), redirects, codes)).toContain(WWW);
    await publish({ ...ONE, domains: [] }, TWO);
    expect(arrivalOf(destination, sessionOf(), redirects, codes)).toBe('/');
    expect(retryPathOf(destination, redirects)).not.toContain(WWW);
  });

  it('a one-time code from before the domain moved opens nothing for the next project, which needs a login of its own', async () => {
    const { redirects, codes } = berth.gateway.deps;
    const { arrivalOf } = await import('../src/login/destination.ts');
    const arrival = (): URL =>
      new URL(
        arrivalOf(
          { kind: 'target', target: `https://${WWW}/page`, challenge: challengeOf(NONCE) },
          sessionOf(),
          redirects,
          codes,
        ),
      );
    const openAt = (url: URL, project: string): Promise<Reply> =>
      at(
        WWW,
        {
          ...BROWSER,
          Cookie: `__Host-berth_nonce=${NONCE}`,
          'X-Forwarded-Uri': `${url.pathname}${url.search}`,
        },
        project,
      );
    const [early, unused] = [arrival(), arrival()];
    await publish({ ...ONE, domains: [] }, { ...TWO, domains: [{ host: WWW, claim: 'claim-2' }] });
    const refused = await openAt(early, 'p2');
    expect([refused.status, refused.headers['set-cookie']]).toEqual([400, undefined]);
    expect((await openAt(arrival(), 'p2')).status).toBe(302);
    // Nor after the first project has it again.
    await publish({ ...ONE, domains: [{ host: WWW, claim: 'claim-3' }] }, TWO);
    expect((await openAt(unused, 'p1')).status).toBe(400);
    // A gateway of an earlier version makes codes without a claim.
    expect((await at(WWW, { Cookie: await arrive(WWW) })).status).toBe(200);
  });

  it('a device token works there, as at the project’s own host', async () => {
    const { createHash } = await import('node:crypto');
    const token = `berth_${'t'.repeat(43)}`;
    const hash = createHash('sha256').update(token).digest('hex');
    berth.controlPlane.publish(
      policyOf({
        projects: [ONE],
        device_tokens: [
          {
            id: 't1',
            hash,
            identity: ANNA,
            expires_at: new Date(Date.now() + 60_000).toISOString(),
          },
        ],
      }),
    );
    await waitFor(
      'the token is known',
      async () => (await at(WWW, { Authorization: `Bearer ${token}` })).status === 200,
    );
    const reply = await at(WWW, { Authorization: `Bearer ${token}` });
    expect(reply.headers['authorization']).toBeUndefined();
    // Browsers send no cookie of another site to userinfo; a page there can send its token.
    const seen = await berth.get('/_oauth/userinfo', {
      host: BASE,
      origin: `https://${WWW}`,
      authorization: `Bearer ${token}`,
    });
    expect([seen.status, seen.headers['access-control-allow-origin']]).toEqual([
      200,
      `https://${WWW}`,
    ]);
  });
});

describe('a cookie of a custom domain', () => {
  it('opens neither the project’s own host nor another domain of the project, and theirs do not open it', async () => {
    const second = 'second.example';
    await publish(
      { ...ONE, domains: [...(ONE.domains ?? []), { host: second, claim: 'claim-2' }] },
      TWO,
    );
    const [domain, own, other] = [
      await arrive(WWW),
      await arrive(`one.${BASE}`),
      await arrive(second),
    ];
    expect((await at(WWW, { Cookie: domain })).status).toBe(200);
    for (const [host, Cookie] of [
      [`one.${BASE}`, domain],
      [second, domain],
      [WWW, own],
      [WWW, other],
    ] as const)
      expect((await at(host, { Cookie })).status).toBe(401);
    // Nor does the single sign-on cookie of the auth host.
    expect((await at(WWW, { Cookie: berth.cookie(sessionOf(), 'sso') })).status).toBe(401);
    // Nor is it one at the auth host.
    expect((await berth.get('/_oauth/userinfo', { host: BASE, cookie: domain })).status).toBe(401);
  });

  it('is invalid when the domain is removed, belongs to another project, or comes back', async () => {
    const Cookie = await arrive(WWW);
    await publish({ ...ONE, domains: [] }, TWO);
    expect((await at(WWW, { Cookie })).status).toBe(403);
    await publish({ ...ONE, domains: [] }, { ...TWO, domains: [{ host: WWW, claim: 'claim-2' }] });
    expect((await at(WWW, { Cookie }, 'p2')).status).toBe(401);
    // The next owner reads the visitors' cookies of this host: they open nothing of the earlier
    // project.
    expect((await at(`one.${BASE}`, { Cookie })).status).toBe(401);
    await publish({ ...ONE, domains: [{ host: WWW, claim: 'claim-3' }] }, TWO);
    expect((await at(WWW, { Cookie })).status).toBe(401);
    expect((await at(WWW, { Cookie: await arrive(WWW) })).status).toBe(200);
  });

  it('stays in no browser for longer than the domain is kept for its project after a removal', async () => {
    const maxAgeOf = async (host: string): Promise<number> => {
      const query = new URLSearchParams({
        code: berth.gateway.deps.codes.mint(sessionOf(), host, challengeOf(NONCE)),
        redirect: '/',
      });
      const headers = {
        ...BROWSER,
        Cookie: `__Host-berth_nonce=${NONCE}`,
        'X-Forwarded-Uri': `/_oauth/session?${query.toString()}`,
      };
      return Number(
        /; Max-Age=(\d+);/.exec((await at(host, headers)).headers['set-cookie']?.[0] ?? '')?.[1],
      );
    };
    const session = await maxAgeOf(WWW);
    expect(session).toBeGreaterThan(3_000);
    await publish({ ...ONE, domains: [{ host: WWW, claim: 'claim-1', cookie_seconds: 600 }] }, TWO);
    expect(await maxAgeOf(WWW)).toBe(600);
    // Not longer than the session either.
    await publish(
      { ...ONE, domains: [{ host: WWW, claim: 'claim-1', cookie_seconds: 86_400 }] },
      TWO,
    );
    expect(await maxAgeOf(WWW)).toBeLessThanOrEqual(3_600);
    expect(await maxAgeOf(`one.${BASE}`)).toBeGreaterThan(3_000);
  });

  it('is invalid after the project was public, because the application could read it then', async () => {
    const Cookie = await arrive(WWW);
    await publish({ ...ONE, auth_epoch: 1 }, TWO);
    expect((await at(WWW, { Cookie })).status).toBe(401);
  });

  it('a policy that lists a host of the platform as a custom domain changes nothing there', async () => {
    await publish(
      {
        ...ONE,
        domains: [
          { host: BASE, claim: 'x' },
          { host: `two.${BASE}`, claim: 'y' },
        ],
      },
      TWO,
    );
    const sso = berth.cookie(sessionOf(), 'sso');
    expect((await at(BASE, { Cookie: sso })).status).toBe(403);
    expect((await at(`two.${BASE}`, {}, 'p1')).status).toBe(403);
    expect(
      (await at(`two.${BASE}`, { Cookie: await arrive(`two.${BASE}`, 'p2') }, 'p2')).status,
    ).toBe(200);
  });

  it('signing out ends the session at the custom domain too', async () => {
    const session = sessionOf();
    const query = new URLSearchParams({
      code: berth.gateway.deps.codes.mint(session, WWW, challengeOf(NONCE)),
      redirect: '/',
    });
    const arrived = await at(WWW, {
      ...BROWSER,
      Cookie: `__Host-berth_nonce=${NONCE}`,
      'X-Forwarded-Uri': `/_oauth/session?${query.toString()}`,
    });
    const Cookie = arrived.headers['set-cookie']?.[0]?.split(';')[0] ?? '';
    expect((await at(WWW, { Cookie })).status).toBe(200);
    await berth.get('/_oauth/logout', { host: BASE, cookie: berth.cookie(session, 'sso') });
    expect((await at(WWW, { Cookie })).status).toBe(401);
  });
});

describe('userinfo', () => {
  const originOf = async (origin: string): Promise<unknown> =>
    (
      await berth.get('/_oauth/userinfo', {
        host: BASE,
        origin,
        cookie: berth.cookie(sessionOf(), 'sso'),
      })
    ).headers['access-control-allow-origin'];
  it('answers pages of custom domains of projects with a login, and of no others', async () => {
    expect(await originOf(`https://${WWW}`)).toBe(`https://${WWW}`);
    for (const origin of [
      `http://${WWW}`,
      `https://${WWW}:8443`,
      `https://evil.${WWW}`,
      'https://evil.example',
      'null',
    ])
      expect(await originOf(origin), origin).toBeUndefined();
    await publish({ ...ONE, auth_required: false }, TWO);
    expect(await originOf(`https://${WWW}`)).toBeUndefined();
    await publish({ ...ONE, domains: [] }, TWO);
    expect(await originOf(`https://${WWW}`)).toBeUndefined();
  });
  it('at the custom domain itself it reads the cookie of this domain', async () => {
    const reply = await berth.get('/_oauth/userinfo', { host: WWW, cookie: await arrive(WWW) });
    expect([reply.status, JSON.parse(reply.body)]).toMatchObject([200, { email: ANNA.email }]);
    expect(
      (await berth.get('/_oauth/userinfo', { host: WWW, cookie: await arrive(`one.${BASE}`) }))
        .status,
    ).toBe(401);
  });
});

it('a policy of an older control plane has no domains, and everything else works', async () => {
  await publish({ id: 'p1', name: 'one', hosts: [`one.${BASE}`] });
  expect((await at(`one.${BASE}`, { Cookie: await arrive(`one.${BASE}`) })).status).toBe(200);
  expect((await at(WWW, BROWSER)).status).toBe(403);
});

describe('a host under BASE_DOMAIN', () => {
  const NEW = `new.${BASE}`;
  const OLD = `one.${BASE}`;
  const claimed = (host: string, claim: string): Project => ({
    ...ONE,
    domains: [],
    hosts: [host],
    host_claims: [{ host, claim }],
  });

  for (const [name, first, next] of [
    ['with claims', claimed(OLD, 'c1'), claimed(NEW, 'c2')],
    ['that had its host before there were claims', claimed(OLD, 'first'), claimed(NEW, 'c2')],
    ['of an older control plane', { ...ONE, domains: [] }, { ...ONE, domains: [], hosts: [NEW] }],
  ] satisfies [string, Project, Project][])
    it(`a cookie of the host that a project left opens nothing, for a project ${name}`, async () => {
      await publish(first, TWO);
      const Cookie = await arrive(OLD);
      expect((await at(OLD, { Cookie })).status).toBe(200);
      // Another project, without a login, gets the host and the cookies of its visitors.
      await publish(next, { ...TWO, hosts: [OLD], auth_required: false });
      expect((await at(NEW, { Cookie })).status).toBe(401);
      expect((await at(OLD, { Cookie })).status).toBe(403);
      await publish(next, { ...TWO, hosts: [OLD], auth_required: true });
      expect((await at(OLD, { Cookie }, 'p2')).status).toBe(401);
    });

  it('a cookie opens one host of a project, also while it has two, and none after the host came back', async () => {
    const both: Project = {
      ...ONE,
      hosts: [OLD, NEW],
      host_claims: [claimed(OLD, 'first'), claimed(NEW, 'c2')].flatMap((p) => p.host_claims ?? []),
    };
    await publish(both, TWO);
    const [old, young] = [await arrive(OLD), await arrive(NEW)];
    const statuses = async (host: string): Promise<number[]> => [
      (await at(host, { Cookie: old })).status,
      (await at(host, { Cookie: young })).status,
    ];
    expect([await statuses(OLD), await statuses(NEW)]).toEqual([
      [200, 401],
      [401, 200],
    ]);
    await publish(claimed(OLD, 'c3'), TWO);
    expect(await statuses(OLD)).toEqual([401, 401]);
  });

  it('a one-time code from before the host moved opens nothing for its next project', async () => {
    await publish(claimed(OLD, 'first'), TWO);
    const login = new URL((await at(OLD, BROWSER)).headers.location ?? '');
    const back = await berth.get(`${login.pathname}${login.search}`, {
      host: BASE,
      cookie: berth.cookie(sessionOf(), 'sso'),
    });
    const uri = new URL(back.headers.location ?? '');
    await publish(claimed(NEW, 'c2'), {
      ...TWO,
      hosts: [OLD],
      host_claims: [{ host: OLD, claim: 'c3' }],
    });
    const reply = await at(
      OLD,
      {
        ...BROWSER,
        Cookie: `__Host-berth_nonce=${NONCE}`,
        'X-Forwarded-Uri': `${uri.pathname}${uri.search}`,
      },
      'p2',
    );
    expect([reply.status, reply.headers['set-cookie']]).toEqual([400, undefined]);
  });

  it('browsers keep its cookie for at most the time for which the host is kept for its project', async () => {
    await publish(
      { ...ONE, domains: [], host_claims: [{ host: OLD, claim: 'c1', cookie_seconds: 600 }] },
      TWO,
    );
    const query = new URLSearchParams({
      code: berth.gateway.deps.codes.mint(sessionOf(), OLD, challengeOf(NONCE), 'c1'),
    });
    const reply = await at(OLD, {
      ...BROWSER,
      Cookie: `__Host-berth_nonce=${NONCE}`,
      'X-Forwarded-Uri': `/_oauth/session?${query.toString()}`,
    });
    expect(reply.headers['set-cookie']?.[0]).toContain('Max-Age=600;');
  });
});
