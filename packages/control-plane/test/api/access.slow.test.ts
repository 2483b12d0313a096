/**
 * Tests every route of the table with every kind of caller. A new row of the table is tested
 * without a change here.
 */
import { ROUTES, type RouteName } from '@berth/wire/routes';
import { ROLES, type Role } from '@berth/wire/vocabulary';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createPresence } from '../../src/domain/identity/presence.ts';
import {
  AGENT_SECRET,
  type Api,
  claimsOf,
  createApi,
  GATEWAY_SECRET,
  type Input,
  jwt,
} from './harness.ts';

let api: Api;
beforeAll(async () => {
  api = await createApi();
});
afterAll(() => api.close());

const names = Object.keys(ROUTES) as RouteName[];
const people = names.filter((n) => (ROLES as readonly string[]).includes(ROUTES[n].who));
const agents = names.filter((n) => ROUTES[n].who === 'agent');
const gateways = names.filter((n) => ROUTES[n].who === 'gateway');
const open = names.filter((n) => ROUTES[n].who === 'public');

/**
 * Parameters with which the route is found. The answer about the missing resource does not matter
 * here.
 */
const somewhere: Input = { params: { id: 'nothing' }, query: {} };
const send = (name: RouteName, input: Input) => api.call(name, { ...somewhere, ...input });

describe('routes of people', () => {
  const admin = () => claimsOf(api.token('admin'));
  const strangers: [string, () => Record<string, string>][] = [
    ['no token', () => ({})],
    ['an invalid token', () => ({ authorization: 'Bearer rubbish' })],
    ['another scheme', () => ({ authorization: `Basic ${api.token('admin')}` })],
    [
      'a token with a wrong signature',
      () => ({ authorization: `Bearer ${jwt(admin(), { secret: 'guessed' })}` }),
    ],
    [
      'an expired token',
      () => ({
        authorization: `Bearer ${jwt({ ...admin(), exp: Math.floor(Date.now() / 1000) - 1 })}`,
      }),
    ],
    [
      'a token without an end',
      () => ({ authorization: `Bearer ${jwt({ ...admin(), exp: undefined })}` }),
    ],
    ['a token with alg none', () => ({ authorization: `Bearer ${jwt(admin(), { alg: 'none' })}` })],
    [
      'a token with alg HS512',
      () => ({ authorization: `Bearer ${jwt(admin(), { alg: 'HS512' })}` }),
    ],
    [
      'a token of another issuer',
      () => ({ authorization: `Bearer ${jwt({ ...admin(), iss: 'elsewhere' })}` }),
    ],
    [
      'a token of an unknown user',
      () => ({ authorization: `Bearer ${jwt({ ...admin(), sub: 'gone', role: 'admin' })}` }),
    ],
    [
      'a token without a session',
      () => ({ authorization: `Bearer ${jwt({ ...admin(), sid: undefined })}` }),
    ],
    [
      'a token of an unknown session',
      () => ({ authorization: `Bearer ${jwt({ ...admin(), sid: 'gone' })}` }),
    ],
    [
      'a token with the session of another user',
      () => ({
        authorization: `Bearer ${jwt({ ...admin(), sid: claimsOf(api.token('viewer')).sid })}`,
      }),
    ],
    ['an unknown personal token', () => ({ authorization: `Bearer berthpat_${'A'.repeat(43)}` })],
    ['a device token', () => ({ authorization: `Bearer berth_${'A'.repeat(43)}` })],
    ['the gateway secret', () => ({ 'x-gateway-secret': GATEWAY_SECRET })],
    [
      'identity headers of a proxy',
      () => ({ 'x-forwarded-user': 'admin@example.com', 'x-forwarded-user-provider': 'oidc' }),
    ],
    ['the agent secret', () => ({ 'x-agent-secret': AGENT_SECRET })],
  ];
  test.each(
    people.flatMap((name) => strangers.map(([who, headers]) => [name, who, headers] as const)),
  )('%s: %s gets 401', async (name, _who, headers) => {
    const reply = await send(name, { as: null, headers: headers() });
    expect(reply.status).toBe(401);
    expect(reply.json['code']).toBe('unauthenticated');
    expect(reply.headers['www-authenticate']).toMatch(/^Bearer/);
  });

  const pairs = people.flatMap((name) =>
    ROLES.map(
      (role) =>
        [name, role, ROLES.indexOf(role) >= ROLES.indexOf(ROUTES[name].who as Role)] as const,
    ),
  );
  test.each(pairs)('%s with the role %s: allowed is %s', async (name, role, allowed) => {
    const reply = await send(name, { as: role });
    if (allowed) expect([401, 403]).not.toContain(reply.status);
    else expect([reply.status, reply.json['code']]).toEqual([403, 'forbidden']);
    expect(reply.status).toBeLessThan(500);
    // The request ended this session.
    if (name === 'logout') await api.signIn(role);
  });

  test('the role comes from the database and not from the token', async () => {
    const claims = claimsOf(api.token('viewer'));
    const reply = await send('createProject', {
      as: null,
      headers: { authorization: `Bearer ${jwt({ ...claims, role: 'admin' })}` },
    });
    expect(reply.status).toBe(403);
  });
});

describe('routes of agents', () => {
  const strangers: [string, () => Record<string, string>][] = [
    ['no secret', () => ({})],
    ['a wrong secret', () => ({ 'x-agent-secret': 'wrong' })],
    ['an empty secret', () => ({ 'x-agent-secret': '' })],
    ['a beginning of the secret', () => ({ 'x-agent-secret': AGENT_SECRET.slice(0, -1) })],
    ['the secret and more', () => ({ 'x-agent-secret': `${AGENT_SECRET}x` })],
    ['as many other letters', () => ({ 'x-agent-secret': AGENT_SECRET.replace(/.$/, 'x') })],
    ['100 KiB', () => ({ 'x-agent-secret': AGENT_SECRET.padEnd(100_000, 'x') })],
    ['an admin’s token', () => ({ authorization: `Bearer ${api.token('admin')}` })],
  ];
  test.each(
    agents.flatMap((name) => strangers.map(([who, headers]) => [name, who, headers] as const)),
  )('%s: %s gets 401', async (name, who, headers) => {
    // A minute is the window in which wrong guesses count, and all routes together exceed its limit.
    if (who === 'no secret') api.pass(61_000);
    const reply = await send(name, { as: null, headers: headers() });
    expect([reply.status, reply.json['code']]).toEqual([401, 'agent_secret']);
  });
  test.each(agents)('%s: the secret is accepted', async (name) => {
    const reply = await send(name, { as: 'agent' });
    expect(reply.status).not.toBe(401);
    expect(reply.status).toBeLessThan(500);
  });
  test('an earlier agent secret is accepted too', async () => {
    const other = await createApi({ env: { AGENT_SECRET: `new-one, ${AGENT_SECRET}` } });
    expect((await other.call('agentConfig')).status).toBe(200);
    expect(
      (await other.call('agentConfig', { headers: { 'x-agent-secret': 'new-one' } })).status,
    ).toBe(200);
    expect(
      (
        await other.call('agentConfig', {
          headers: { 'x-agent-secret': `new-one, ${AGENT_SECRET}` },
        })
      ).status,
    ).toBe(401);
    // Earlier requests leave no state behind.
    for (const wrong of ['new-one-secret', 'new-on', 'agent-secre'])
      expect(
        (await other.call('agentConfig', { headers: { 'x-agent-secret': wrong } })).status,
      ).toBe(401);
    await other.close();
  });
  test('without AGENT_SECRET every agent is accepted, and /readyz warns', async () => {
    const other = await createApi({ env: { AGENT_SECRET: undefined } });
    expect((await other.call('agentConfig', { as: null })).status).toBe(200);
    expect((await other.call('readyz')).json['notes']).toContain(
      'AGENT_SECRET is not set: every agent is accepted; for development only',
    );
    await other.close();
  });
});

describe('routes of gateways', () => {
  const strangers: [string, () => Record<string, string>][] = [
    ['no secret', () => ({})],
    ['a wrong secret', () => ({ 'x-gateway-secret': 'wrong' })],
    ['an empty secret', () => ({ 'x-gateway-secret': '' })],
    ['a beginning of the secret', () => ({ 'x-gateway-secret': GATEWAY_SECRET.slice(0, -1) })],
    [
      'the agent secret',
      () => ({ 'x-agent-secret': AGENT_SECRET, 'x-gateway-secret': AGENT_SECRET }),
    ],
    ['an admin’s token', () => ({ authorization: `Bearer ${api.token('admin')}` })],
  ];
  test.each(
    gateways.flatMap((name) => strangers.map(([who, headers]) => [name, who, headers] as const)),
  )('%s: %s gets 401', async (name, _who, headers) => {
    const reply = await send(name, { as: null, headers: headers() });
    expect([reply.status, reply.json['code']]).toEqual([401, 'gateway_secret']);
  });
  test.each(gateways)('%s: the gateway secret is accepted', async (name) => {
    const reply = await send(name, { as: 'gateway' });
    expect(reply.status).not.toBe(401);
    expect(reply.status).toBeLessThan(500);
  });
  test('an earlier gateway secret is accepted too; the unsplit list is not', async () => {
    const other = await createApi({ env: { GATEWAY_SECRET: `new-one, ${GATEWAY_SECRET}` } });
    expect((await other.call('gatewayPolicy')).status).toBe(200);
    expect(
      (await other.call('gatewayPolicy', { headers: { 'x-gateway-secret': 'new-one' } })).status,
    ).toBe(200);
    expect(
      (
        await other.call('gatewayPolicy', {
          headers: { 'x-gateway-secret': `new-one, ${GATEWAY_SECRET}` },
        })
      ).status,
    ).toBe(401);
    await other.close();
  });
  test('without GATEWAY_SECRET every gateway is refused, and /readyz warns', async () => {
    const other = await createApi({ env: { GATEWAY_SECRET: undefined } });
    for (const secret of [undefined, '', 'undefined', GATEWAY_SECRET])
      expect(
        (
          await other.call('gatewayPolicy', {
            as: null,
            headers: secret === undefined ? {} : { 'x-gateway-secret': secret },
          })
        ).status,
      ).toBe(401);
    expect((await other.call('readyz')).json['notes']).toContain(
      'GATEWAY_SECRET is not set: requests of gateways are refused, so nobody can sign in to a ' +
        'project',
    );
    await other.close();
  });
});

test('these tests cover the callers of every route', () => {
  expect([...people, ...agents, ...gateways, ...open].sort()).toEqual([...names].sort());
});

test.each(open.filter((name) => name !== 'exchange'))(
  '%s requires no credentials',
  async (name) => {
    // Refresh like the loop does: routes that were read more than 10 s ago are not served.
    await api.source.refresh();
    const reply = await send(name, { as: null });
    expect([401, 403]).not.toContain(reply.status);
    expect(reply.status).toBeLessThan(500);
  },
);

describe('outside the table', () => {
  test.each(['/', '/api', '/api/nothing', '/api/projects/a/b', '/favicon.ico'])(
    '%s gets 404',
    async (url) => {
      const reply = await api.server.inject({ url });
      expect([reply.statusCode, reply.json<{ code: string }>().code]).toEqual([404, 'not_found']);
    },
  );
  test.each([
    ['PUT', '/api/projects', 'GET, HEAD, POST'],
    ['DELETE', '/api/projects', 'GET, HEAD, POST'],
    ['POST', '/api/projects/x', 'DELETE, GET, HEAD, PATCH'],
    ['GET', '/api/auth/login', 'POST'],
    ['GET', '/api/agent/tasks/x/complete', 'POST'],
    ['OPTIONS', '/healthz', 'GET, HEAD'],
    ['OPTIONS', '/api/nodes/join-tokens', 'GET, HEAD, POST'],
    ['DELETE', '/api/nodes/admissions', 'GET, HEAD, POST'],
  ] as const)('%s %s gets 405 with Allow', async (method, url, allow) => {
    const reply = await api.server.inject({ method, url });
    expect([reply.statusCode, reply.headers['allow'], reply.json<{ code: string }>().code]).toEqual(
      [405, allow, 'method_not_allowed'],
    );
  });
  test('a route without a row cannot be registered', async () => {
    const other = await createApi();
    // Injected requests made the shared server ready. Only a new server accepts routes.
    expect(() => other.server.get('/smuggled', () => 'hello')).toThrow(/no row in wire\/routes.ts/);
    await other.close();
  });
});

describe('presence', () => {
  test('begins with an accepted request of a person, and not of an agent, a gateway or a stranger', async () => {
    const quiet = await createApi();
    onTestFinished(() => quiet.close());
    await quiet.call('agentTasks', { as: 'agent', query: { node: 'nobody', wait: 0 } });
    await quiet.call('listProjects', { as: null });
    await quiet.call('healthz', { as: null });
    expect(quiet.presence.arePeopleHere()).toBe(false);
    await quiet.call('listProjects', { as: 'viewer' });
    expect(quiet.presence.arePeopleHere()).toBe(true);
  });

  test('ends shortly after the last request', () => {
    let now = 1_000_000;
    const presence = createPresence(() => now);
    expect(presence.arePeopleHere()).toBe(false);
    presence.seen();
    now += 1_000;
    presence.seen();
    now += 1_500;
    expect(presence.arePeopleHere()).toBe(true);
    now += 1_000;
    expect(presence.arePeopleHere()).toBe(false);
  });
});
