/** Several tabs of one browser that go through the login at the same time. */
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, expect, it } from 'vitest';
import {
  BASE,
  BROWSER,
  type Reply,
  type Running,
  sessionOf,
  startGateway,
} from './core-support.ts';

const HOST = `one.${BASE}`;
let berth: Running;
beforeAll(async () => {
  berth = await startGateway({});
  await waitFor('the policy is there', () => berth.gateway.deps.policy.view().loaded);
});
afterAll(() => berth.stop());

/** The cookie and challenge that a tab gets at its first request. */
const told = (reply: Reply): { cookie: string; challenge: string } => ({
  cookie: (reply.headers['set-cookie']?.[0] ?? '').split(';')[0] ?? '',
  challenge: new URL(reply.headers.location ?? '').searchParams.get('challenge') ?? '',
});
const arrive = (challenge: string, Cookie: string, path: string): Promise<Reply> => {
  const code = berth.gateway.deps.codes.mint(sessionOf(), HOST, challenge);
  const query = new URLSearchParams({ code, redirect: path });
  return berth.verify({
    ...BROWSER,
    Cookie,
    'X-Forwarded-Uri': `/_oauth/session?${query.toString()}`,
  });
};

it('tabs that open at the same moment all complete the login, in any order of their cookies', async () => {
  const tabs = (await Promise.all(Array.from({ length: 10 }, () => berth.verify(BROWSER)))).map(
    told,
  );
  const jar = new Map(tabs.map(({ cookie }) => [cookie.slice(0, cookie.indexOf('=')), cookie]));
  expect(jar.size).toBe(10);
  const header = [...jar.values()].join('; ');
  for (const [i, { challenge }] of tabs.entries()) {
    const reply = await arrive(challenge, header, `/tab/${i}`);
    expect([reply.status, reply.headers.location]).toEqual([302, `https://${HOST}/tab/${i}`]);
  }
});

it('a tab that opens later adds no further cookie', async () => {
  const first = told(await berth.verify(BROWSER));
  const second = told(await berth.verify({ ...BROWSER, Cookie: first.cookie }));
  expect(second).toEqual(first);
});

it('the cookies do not reach the application', async () => {
  const { cookie } = told(await berth.verify(BROWSER));
  const session = berth.gateway.deps.sessions.seal(sessionOf(), 'project:p1');
  const reply = await berth.verify({ Cookie: `a=1; ${cookie}; svc_fwd_session=${session}; b=2` });
  expect([reply.status, reply.headers['cookie']]).toEqual([200, 'a=1; b=2']);
});

it('a nonce of another browser is refused', async () => {
  const [mine, theirs] = [told(await berth.verify(BROWSER)), told(await berth.verify(BROWSER))];
  expect((await arrive(mine.challenge, theirs.cookie, '/')).status).toBe(400);
});
