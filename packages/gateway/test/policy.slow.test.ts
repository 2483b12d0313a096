/**
 * The policy is followed and stored, and suffices while the control plane is down, including
 * restarts of the gateway.
 */
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { waitFor } from '@berth/testbed/wait';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { challengeOf } from '../src/codes.ts';
import {
  ANNA,
  BASE,
  BROWSER,
  fakeControlPlane,
  policyOf,
  type Running,
  sessionOf,
  startGateway,
} from './core-support.ts';

let stateDir: string;
let running: Running[] = [];
beforeEach(async () => {
  stateDir = await mkdtemp(join(tmpdir(), 'berth-gateway-'));
});
afterEach(async () => {
  for (const berth of running) await berth.stop();
  running = [];
  await rm(stateDir, { recursive: true, force: true });
});
async function start(controlPlane = fakeControlPlane()): Promise<Running> {
  const berth = await startGateway({ stateDir, controlPlane });
  running.push(berth);
  return berth;
}
async function stop(berth: Running): Promise<void> {
  running = running.filter((other) => other !== berth);
  await berth.stop();
}
const known = (berth: Running): Promise<true> =>
  waitFor('the policy is there', () => berth.gateway.deps.policy.view().loaded);
const away = () => {
  const controlPlane = fakeControlPlane(null);
  controlPlane.away(true);
  return controlPlane;
};
const ready = async (berth: Running): Promise<Record<string, unknown>> =>
  JSON.parse((await berth.get('/readyz')).body) as Record<string, unknown>;

it('without a policy every request gets 503, and /readyz gives the reason', async () => {
  const berth = await start(away());
  for (const headers of [
    {},
    { Cookie: berth.cookie(sessionOf()) },
    { Authorization: `Bearer berth_${'a'.repeat(43)}` },
    { Accept: 'text/html' },
  ]) {
    const reply = await berth.verify(headers);
    expect(reply.status).toBe(503);
    expect(reply.headers['retry-after']).toBe('5');
  }
  expect((await berth.get('/readyz')).status).toBe(503);
  expect((await ready(berth))['reasons']).toHaveLength(1);
  expect((await berth.get('/healthz')).status).toBe(200);
});

it('a gateway that starts before the control plane becomes ready as soon as the control plane answers', async () => {
  const controlPlane = away();
  const berth = await start(controlPlane);
  controlPlane.publish(policyOf());
  controlPlane.away(false);
  await known(berth);
  expect((await berth.verify({ Cookie: berth.cookie(sessionOf()) })).status).toBe(200);
});

describe('while the control plane is down', () => {
  const token = `berth_${randomBytes(32).toString('base64url')}`;
  const device_tokens = [
    {
      id: 't1',
      hash: createHash('sha256').update(token).digest('hex'),
      identity: ANNA,
      expires_at: new Date(Date.now() + 3_600_000).toISOString(),
    },
  ];

  it('sessions, device tokens, revocations and disabled users stay in effect, also after a restart', async () => {
    const revoked = sessionOf();
    const controlPlane = fakeControlPlane(
      policyOf({
        device_tokens,
        disabled_users: ['bad@example.com'],
        revoked_sessions: [
          { id: revoked.id, expires_at: new Date(revoked.expires_at).toISOString() },
        ],
      }),
    );
    const first = await start(controlPlane);
    await known(first);
    const session = sessionOf();
    const judge = async (berth: Running): Promise<number[]> => {
      const cookies = [session, revoked, sessionOf({ ...ANNA, email: 'bad@example.com' })].map(
        (s) => ({ Cookie: berth.cookie(s) }),
      );
      const replies = await Promise.all(
        [...cookies, { Authorization: `Bearer ${token}` }].map((headers) => berth.verify(headers)),
      );
      return replies.map((r) => r.status);
    };
    expect(await judge(first)).toEqual([200, 401, 401, 200]);
    controlPlane.away(true);
    await waitFor(
      'the control plane is missed',
      async () => (await ready(first))['control_plane'] !== 'answers',
    );
    expect(await judge(first)).toEqual([200, 401, 401, 200]);
    expect((await first.get('/readyz')).status).toBe(200);
    await stop(first);

    const second = await start(away());
    expect(await judge(second)).toEqual([200, 401, 401, 200]);
    expect((await second.get('/readyz')).status).toBe(200);
    expect(await ready(second)).toMatchObject({
      status: 'ready',
      policy_age_seconds: expect.any(Number),
    });
  });

  it('a logout takes effect here immediately, is stored on disk, and is sent as soon as possible', async () => {
    const controlPlane = fakeControlPlane();
    const first = await start(controlPlane);
    await known(first);
    controlPlane.away(true);
    const session = sessionOf();
    expect((await first.verify({ Cookie: first.cookie(session) })).status).toBe(200);
    await first.gateway.deps.policy.revokeSession(session);
    expect((await first.verify({ Cookie: first.cookie(session) })).status).toBe(401);
    await stop(first);

    const second = await start(controlPlane);
    expect((await second.verify({ Cookie: second.cookie(session) })).status).toBe(401);
    controlPlane.away(false);
    const told = await waitFor('it is told', () =>
      controlPlane.calls.find((c) => c.name === 'revokeSession'),
    );
    expect(told.body).toEqual({
      id: session.id,
      email: ANNA.email,
      expires_at: new Date(session.expires_at).toISOString(),
    });
    await waitFor(
      'it is off the disk',
      async () => (await readdir(join(stateDir, 'revocations'))).length === 0,
    );
    // The session stays revoked, although the policy may not contain the revocation yet.
    expect((await second.verify({ Cookie: second.cookie(session) })).status).toBe(401);
  });
});

it('a change takes effect well within 5 s of its publication', async () => {
  const controlPlane = fakeControlPlane();
  const berth = await start(controlPlane);
  await known(berth);
  const Cookie = berth.cookie(sessionOf());
  expect((await berth.verify({ Cookie })).status).toBe(200);
  controlPlane.publish(policyOf({ disabled_users: [ANNA.email] }));
  await waitFor('she is out', async () => (await berth.verify({ Cookie })).status === 401, {
    deadlineMs: 5_000,
    intervalMs: 10,
  });
  controlPlane.publish(policyOf({ projects: [] }));
  await waitFor(
    'the project is gone',
    async () => (await berth.verify({ Cookie })).status === 403,
    { deadlineMs: 5_000, intervalMs: 10 },
  );
});

it('a person whom ALLOWED_EMAILS no longer allows loses access, even with an earlier session', async () => {
  const domain = ANNA.email.slice(ANNA.email.indexOf('@'));
  for (const [allowed, status] of [
    [domain, 200],
    ['@elsewhere.example, somebody@example.com', 401],
  ] as const) {
    const berth = await startGateway({ stateDir, env: { ALLOWED_EMAILS: allowed } });
    running.push(berth);
    await known(berth);
    expect((await berth.verify({ Cookie: berth.cookie(sessionOf()) })).status, allowed).toBe(
      status,
    );
    await stop(berth);
  }
});

it('until resolves when the policy satisfies the condition, or after its time limit', async () => {
  const controlPlane = fakeControlPlane();
  const berth = await start(controlPlane);
  await known(berth);
  const { policy } = berth.gateway.deps;
  expect(await policy.until((view) => view.projectById('p9') !== undefined, 20)).toBe(false);
  const waiting = policy.until((view) => view.projectById('p9') !== undefined, 5_000);
  controlPlane.publish(policyOf({ projects: [{ id: 'p9', name: 'nine', hosts: [] }] }));
  expect(await waiting).toBe(true);
  expect(policy.view().projectById('p9')?.name).toBe('nine');
});

it('an invalid answer does not change the policy', async () => {
  const controlPlane = fakeControlPlane();
  const berth = await start(controlPlane);
  await known(berth);
  controlPlane.publish({ projects: 'none' } as never);
  await waitFor('it is refused', async () => (await ready(berth))['control_plane'] !== 'answers');
  expect((await berth.verify({ Cookie: berth.cookie(sessionOf()) })).status).toBe(200);
});

it('the file is private and written atomically; a broken file is ignored', async () => {
  const first = await start();
  await known(first);
  const path = join(stateDir, 'policy.json');
  await waitFor('it is written', async () => (await readFile(path, 'utf8').catch(() => '')) !== '');
  expect((await stat(path)).mode & 0o777).toBe(0o600);
  expect((await stat(join(stateDir, 'revocations'))).mode & 0o777).toBe(0o700);
  await stop(first);
  for (const text of ['', '{', '{"projects":[]}', 'null', '[]']) {
    await writeFile(path, text);
    const berth = await start(away());
    expect((await berth.verify({ Cookie: berth.cookie(sessionOf()) })).status, text).toBe(503);
    await stop(berth);
  }
});

it('uses of device tokens are reported, including those answered from the cache', async () => {
  const token = `berth_${randomBytes(32).toString('base64url')}`;
  const hash = createHash('sha256').update(token).digest('hex');
  const controlPlane = fakeControlPlane(
    policyOf({
      device_tokens: [
        {
          id: 't9',
          hash,
          identity: ANNA,
          expires_at: new Date(Date.now() + 3_600_000).toISOString(),
        },
      ],
    }),
  );
  const berth = await start(controlPlane);
  await known(berth);
  const from = Date.now();
  for (let i = 0; i < 3; i++)
    expect((await berth.verify({ Authorization: `Bearer ${token}` })).status).toBe(200);
  await stop(berth);
  const told = controlPlane.calls
    .filter((c) => c.name === 'deviceTokensUsed')
    .flatMap((c) => (c.body as { items: { id: string; at: string }[] }).items);
  expect(told.map((t) => t.id)).toContain('t9');
  expect(Date.parse(told.at(-1)?.at ?? '')).toBeGreaterThanOrEqual(from);
});

describe('a person whose account was deleted', () => {
  const deleted_users = (at: number) => [
    { email: 'Anna@Example.com', deleted_at: new Date(at).toISOString() },
  ];

  it('loses access with earlier sessions; a session that began later is valid', async () => {
    const berth = await start();
    const now = Date.now();
    const before = { ...sessionOf(), begun_at: now - 60_000 };
    const after = { ...sessionOf(), begun_at: now + 60_000 };
    const opens = async (session: ReturnType<typeof sessionOf>): Promise<number> =>
      (await berth.verify({ Cookie: berth.cookie(session) })).status;
    expect([await opens(before), await opens(after)]).toEqual([200, 200]);
    berth.controlPlane.publish(policyOf({ deleted_users: deleted_users(now) }));
    await waitFor(
      'the session from before opens nothing',
      async () => (await opens(before)) === 401,
    );
    expect(await opens(after)).toBe(200);
    expect(
      (
        await berth.verify({
          Cookie: berth.cookie({ ...before, identity: { ...ANNA, email: 'other@example.com' } }),
        })
      ).status,
    ).toBe(200);
    // The session of the auth host and a one-time code made from it are invalid too.
    const sso = `svc_fwd_session=${berth.gateway.deps.sessions.seal(before, 'sso')}`;
    expect((await berth.get('/_oauth/userinfo', { host: BASE, cookie: sso })).status).toBe(401);
    const nonce = randomBytes(32).toString('base64url');
    const code = berth.gateway.deps.codes.mint(before, `one.${BASE}`, challengeOf(nonce));
    const arrived = await berth.verify({
      ...BROWSER,
      Cookie: `__Host-berth_nonce_x=${nonce}`,
      'X-Forwarded-Uri': `/_oauth/session?${new URLSearchParams({ code, redirect: '/' }).toString()}`,
    });
    expect([arrived.status, arrived.headers['set-cookie']]).toEqual([400, undefined]);
  });

  it('has no access after a restart of the gateway without a control plane', async () => {
    const berth = await start(
      fakeControlPlane(policyOf({ deleted_users: deleted_users(Date.now() + 1_000) })),
    );
    await known(berth);
    const Cookie = berth.cookie(sessionOf());
    await stop(berth);
    const again = await start(away());
    expect((await again.verify({ Cookie })).status).toBe(401);
  });

  it('loses access even if the clocks of two machines differ by up to 30 s', async () => {
    const now = Date.now();
    const berth = await start(fakeControlPlane(policyOf({ deleted_users: deleted_users(now) })));
    await known(berth);
    for (const [later, status] of [
      [29_000, 401],
      [32_000, 200],
    ] as const)
      expect(
        (await berth.verify({ Cookie: berth.cookie({ ...sessionOf(), begun_at: now + later }) }))
          .status,
      ).toBe(status);
  });
});
