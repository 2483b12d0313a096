/** Cached answers expire with the session, token or policy that they depend on. */
import { createHash, randomBytes } from 'node:crypto';
import { type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { waitFor } from '@berth/testbed/wait';
import { decodeJwt } from 'jose';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ANNA, BASE, policyOf, type Running, sessionOf, startGateway } from './core-support.ts';

const token = `berth_${randomBytes(32).toString('base64url')}`;
let now = Date.now();
let berth: Running;
beforeAll(async () => {
  berth = await startGateway({ now: () => now });
  const hash = createHash('sha256').update(token).digest('hex');
  berth.controlPlane.publish(
    policyOf({
      device_tokens: [
        { id: 't1', hash, identity: ANNA, expires_at: new Date(now + 90_000).toISOString() },
      ],
    }),
  );
  await waitFor(
    'the policy holds',
    () => berth.gateway.deps.policy.view().deviceToken(token) !== undefined,
  );
});
afterAll(() => berth.stop());

const cachedSoFar = (): Promise<number> =>
  berth
    .get('/metrics')
    .then(({ body }) => Number(/^berth_verify_total\{outcome="cached"\} (\d+)$/m.exec(body)?.[1]));

it('the same request is answered from the cache, a different one never is', async () => {
  const [one, two] = [
    { Cookie: berth.cookie(sessionOf()) },
    { Cookie: berth.cookie(sessionOf({ ...ANNA, email: 'otto@example.com' })) },
  ];
  const before = await cachedSoFar();
  expect((await berth.verify(one)).headers['x-forwarded-user']).toBe(ANNA.email);
  expect(await cachedSoFar()).toBe(before);
  expect((await berth.verify(one)).headers['x-forwarded-user']).toBe(ANNA.email);
  expect(await cachedSoFar()).toBe(before + 1);
  expect((await berth.verify(two)).headers['x-forwarded-user']).toBe('otto@example.com');
  expect((await berth.verify({ ...one, Authorization: 'Basic eDp5' })).headers.authorization).toBe(
    'Basic eDp5',
  );
  expect((await berth.verify({ ...one, 'X-Forwarded-Host': `two.${BASE}` })).status).toBe(403);
  expect((await berth.verify(one, '/verify?project=p2')).status).toBe(403);
  expect((await berth.verify({ ...one, 'X-Forwarded-Uri': '/_oauth/x' })).status).toBe(404);
  expect(await cachedSoFar()).toBe(before + 1);
});

describe('a cached answer does not apply to a request that', () => {
  type Pairs = readonly (readonly [name: string, value: string])[];
  const OTTO = { ...ANNA, email: 'otto@example.com' };
  /** Sends the header names in exactly this spelling and number. */
  const send = (pairs: Pairs): Promise<IncomingMessage> =>
    new Promise((resolve, reject) => {
      const { port } = berth.gateway.server.server.address() as AddressInfo;
      const headers = ['Host', `127.0.0.1:${port}`, ...pairs.flat()];
      const sent = request(
        { host: '127.0.0.1', port, path: '/verify?project=p1', agent: false, headers },
        (response) => resolve(response.resume()),
      );
      sent.on('error', reject).end();
    });
  const seen = ({ statusCode, headers }: IncomingMessage): unknown[] => [
    statusCode,
    headers['x-forwarded-user'],
    headers.cookie,
  ];

  let anna = '';
  let otto = '';
  let plain: Pairs = [];
  beforeAll(async () => {
    [anna, otto] = [berth.cookie(sessionOf()), berth.cookie(sessionOf(OTTO))];
    plain = [
      ['X-Forwarded-Method', 'GET'],
      ['X-Forwarded-Host', `one.${BASE}`],
      ['X-Forwarded-Uri', '/page'],
      ['Cookie', anna],
    ];
    for (let i = 0; i < 2; i++)
      expect(seen(await send(plain))).toEqual([200, ANNA.email, undefined]);
  });

  it.each<[string, () => Pairs, unknown[]]>([
    [
      'names another host too',
      () => [...plain, ['X-Forwarded-Host', `two.${BASE}`]],
      [403, undefined, undefined],
    ],
    [
      'names another host first',
      () => [['x-forwarded-host', `two.${BASE}`], ...plain],
      [403, undefined, undefined],
    ],
    [
      'names its host twice',
      () => [...plain, ['x-forwarded-HOST', `one.${BASE}`]],
      [403, undefined, undefined],
    ],
    [
      'asks for a reserved path first',
      () => [['X-Forwarded-Uri', '/_oauth/x'], ...plain],
      [404, undefined, undefined],
    ],
    ['has another cookie too', () => [...plain, ['cookie', 'b=2']], [200, ANNA.email, 'b=2']],
    ['has another cookie first', () => [['COOKIE', 'b=2'], ...plain], [200, ANNA.email, 'b=2']],
    ['has an empty cookie too', () => [...plain, ['Cookie', '']], [200, ANNA.email, undefined]],
    [
      'has the session of another person first',
      () => [['Cookie', otto], ...plain],
      [200, OTTO.email, undefined],
    ],
    [
      'has similar header names',
      () => plain.map(([n, v]) => [n.replace('Cookie', 'Cookle'), v]),
      [401, undefined, undefined],
    ],
    [
      'has underscores in its names',
      () => plain.map(([n, v]) => [n.replaceAll('-', '_'), v]),
      [403, undefined, undefined],
    ],
  ])('%s', async (_, pairs, expected) => {
    for (let i = 0; i < 2; i++) expect(seen(await send(pairs()))).toEqual(expected);
  });

  it.each([
    ['in lower case', (name: string) => name.toLowerCase()],
    ['in upper case', (name: string) => name.toUpperCase()],
  ])('a cached answer applies to a request with header names %s', async (_, spelled) => {
    const before = await cachedSoFar();
    expect(seen(await send(plain.map(([name, value]) => [spelled(name), value])))).toEqual([
      200,
      ANNA.email,
      undefined,
    ]);
    expect(await cachedSoFar()).toBe(before + 1);
  });
});

it('a cached answer expires with its session', async () => {
  const Cookie = berth.cookie({
    ...sessionOf(),
    expires_at: Math.ceil(now / 1000) * 1000 + 20_000,
  });
  for (let i = 0; i < 2; i++) expect((await berth.verify({ Cookie })).status).toBe(200);
  now += 22_000;
  expect((await berth.verify({ Cookie })).status).toBe(401);
});

it('a cached answer expires with its device token', async () => {
  const Authorization = `Bearer ${token}`;
  for (let i = 0; i < 2; i++) expect((await berth.verify({ Authorization })).status).toBe(200);
  now += 90_000;
  expect((await berth.verify({ Authorization })).status).toBe(401);
});

it('an assertion is valid for at least another minute, but never longer than its session', async () => {
  const Cookie = berth.cookie({
    ...sessionOf(),
    expires_at: Math.ceil(now / 1000) * 1000 + 600_000,
  });
  const claims = async () =>
    decodeJwt(String((await berth.verify({ Cookie })).headers['x-forwarded-user-assertion']));
  const end = Math.ceil(now / 1000) + 600;
  const seen = new Set<number | undefined>();
  for (let passed = 0; passed < 540; passed += 20, now += 20_000) {
    const { exp = 0, iat } = await claims();
    seen.add(iat);
    expect(exp - now / 1000).toBeGreaterThanOrEqual(59);
    expect(exp - now / 1000).toBeLessThanOrEqual(301);
    expect(exp).toBeLessThanOrEqual(end);
  }
  // A new assertion is signed only when necessary, not with each request.
  expect(seen.size).toBe(3);
});
