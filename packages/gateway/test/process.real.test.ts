/**
 * The gateway as a process: a killed control plane, restarts, several workers, signals, wrong
 * settings.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { programsRoot } from '@berth/testbed/config';
import { freePort } from '@berth/testbed/ports';
import {
  isRunning,
  run,
  type RunningProcess,
  signalProcess,
  startProcess,
  untilReady,
} from '@berth/testbed/process';
import { childrenOf } from '@berth/testbed/process-tree';
import { waitFor } from '@berth/testbed/wait';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Session } from '../src/deps.ts';
import { deriveKeys } from '../src/keys.ts';
import { createSessions } from '../src/session.ts';
import { ANNA, BASE, ENV, policyOf, SECRET, sessionOf } from './core-support.ts';
import { type HttpControlPlane, httpControlPlane } from './http-control-plane.ts';

let dir: string;
let controlPlane: HttpControlPlane;
let port: number;
let gateway: RunningProcess | undefined;
const sessions = createSessions(deriveKeys([SECRET]), Date.now);

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'berth-gateway-'));
  controlPlane = await httpControlPlane(policyOf());
  port = await freePort();
});
afterEach(async () => {
  await gateway?.stop();
  await controlPlane.kill();
  await rm(dir, { recursive: true, force: true });
});

const environment = (more: Record<string, string> = {}): Record<string, string> => ({
  ...ENV,
  LISTEN: `127.0.0.1:${port}`,
  CONTROL_PLANE_URL: controlPlane.url,
  STATE_DIR: join(dir, 'state'),
  LOG_FORMAT: 'json',
  ...more,
});
async function start(more: Record<string, string> = {}): Promise<RunningProcess> {
  const started = await startProcess(
    [process.execPath, join(programsRoot(), 'bin', 'berth'), 'gateway'],
    {
      name: 'gateway',
      logFile: join(dir, 'gateway.log'),
      env: environment(more),
    },
  );
  await untilReady(started, async () => (await ask('/readyz')).status === 200, 60_000);
  gateway = started;
  return started;
}

/** Uses a new connection for each request, so that any worker may get it. */
function ask(
  path: string,
  headers: Record<string, string> = {},
  agent: Agent | false = false,
): Promise<{ status: number; headers: Record<string, unknown>; body: string }> {
  return new Promise((resolve, reject) => {
    const sent = request(
      { host: '127.0.0.1', port, path, headers, agent, timeout: 20_000 },
      (response) => {
        let body = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => (body += chunk));
        response.on('end', () =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body }),
        );
      },
    );
    sent.on('timeout', () => sent.destroy(new Error('no answer in time')));
    sent.on('error', reject);
    sent.end();
  });
}
const verify = async (session: Session, secrets = sessions): Promise<number> =>
  (
    await ask('/verify?project=p1', {
      'X-Forwarded-Method': 'GET',
      'X-Forwarded-Host': `one.${BASE}`,
      'X-Forwarded-Uri': '/',
      Cookie: `svc_fwd_session=${secrets.seal(session, 'project:p1')}`,
    })
  ).status;

it('sessions pass while the control plane is killed, also after restarts of the gateway; when it is back, changes take effect within 5 s', async () => {
  const session = sessionOf();
  await start();
  expect(await verify(session)).toBe(200);
  await controlPlane.kill();
  for (let i = 0; i < 50; i++) expect(await verify(session)).toBe(200);

  expect(await stopped()).toBe(0);
  await start();
  for (let i = 0; i < 50; i++) expect(await verify(session)).toBe(200);

  // Like a crash: nothing is written at the end.
  gateway?.kill('SIGKILL');
  await gateway?.exited;
  await start();
  for (let i = 0; i < 50; i++) expect(await verify(session)).toBe(200);
  expect(JSON.parse((await ask('/readyz')).body)).toMatchObject({
    status: 'ready',
    policy_age_seconds: expect.any(Number),
  });

  controlPlane.publish(
    policyOf({
      revoked_sessions: [
        { id: session.id, expires_at: new Date(session.expires_at).toISOString() },
      ],
    }),
  );
  await controlPlane.start();
  await waitFor('it is revoked', async () => (await verify(session)) === 401, {
    deadlineMs: 5_000,
  });
});

it('a revoked session and a disabled user lose access within 5 s', async () => {
  await start();
  const [one, two] = [sessionOf(), sessionOf({ ...ANNA, email: 'otto@example.com' })];
  expect([await verify(one), await verify(two)]).toEqual([200, 200]);
  controlPlane.publish(
    policyOf({
      revoked_sessions: [{ id: one.id, expires_at: new Date(one.expires_at).toISOString() }],
    }),
  );
  await waitFor('it is revoked', async () => (await verify(one)) === 401, { deadlineMs: 5_000 });
  controlPlane.publish(policyOf({ disabled_users: ['otto@example.com'] }));
  await waitFor('he is out', async () => (await verify(two)) === 401, { deadlineMs: 5_000 });
});

it('after a rotation of SESSION_SECRET earlier sessions pass until the old secret is dropped', async () => {
  const [old, fresh] = [SECRET, 'another secret of more than thirty-two characters'];
  const session = sessionOf();
  await start({ SESSION_SECRET: `${fresh},${old}` });
  expect(await verify(session)).toBe(200);
  expect(await verify(session, createSessions(deriveKeys([fresh]), Date.now))).toBe(200);
  await stopped();
  await start({ SESSION_SECRET: fresh });
  expect(await verify(session)).toBe(401);
  expect(await verify(session, createSessions(deriveKeys([fresh]), Date.now))).toBe(200);
});

describe('several workers', () => {
  const workers = (): number[] => childrenOf(gateway?.pid ?? Number.NaN);

  const listening = (count: number): Promise<true> =>
    waitFor(
      `${count} workers listen`,
      async () =>
        ((await readFile(join(dir, 'gateway.log'), 'utf8')).match(/gateway is listening/g)
          ?.length ?? 0) >= count,
    );

  it('share the port; a worker that dies is replaced, with a short interruption at most', async () => {
    await start({ GATEWAY_WORKERS: '2' });
    await listening(2);
    const [victim = 0, other] = workers();
    signalProcess(victim, 'SIGKILL');
    await waitFor('there are two again', () => {
      const now = workers();
      return now.length === 2 && !now.includes(victim) && now.includes(other ?? 0);
    });
    const session = sessionOf();
    for (let i = 0; i < 20; i++) expect(await verify(session)).toBe(200);
  });

  it('a logout at one worker applies to all workers, even while the control plane is down', async () => {
    await start({ GATEWAY_WORKERS: '3' });
    await listening(3);
    await waitFor('all have the policy', async () =>
      (await Promise.all(Array.from({ length: 9 }, () => verify(sessionOf())))).every(
        (s) => s === 200,
      ),
    );
    await controlPlane.kill();
    const session = sessionOf();
    const out = await ask('/_oauth/logout', {
      Host: BASE,
      Cookie: `svc_fwd_session=${sessions.seal(session, 'sso')}`,
    });
    expect([200, 302, 303]).toContain(out.status);
    await waitFor(
      'it holds at all',
      async () =>
        (await Promise.all(Array.from({ length: 12 }, () => verify(session)))).every(
          (s) => s === 401,
        ),
      { deadlineMs: 5_000 },
    );
  });

  it('a device token works at each worker as soon as a program has it', async () => {
    await start({ GATEWAY_WORKERS: '3' });
    await listening(3);
    await waitFor('all have the policy', async () =>
      (await Promise.all(Array.from({ length: 9 }, () => verify(sessionOf())))).every(
        (s) => s === 200,
      ),
    );
    // The control plane tells the workers one after the other, in any order, so one token alone
    // could reach the slowest worker.
    const device_tokens: ReturnType<typeof policyOf>['device_tokens'] = [];
    for (const letter of 'abcdefgh') {
      const token = `berth_${letter.repeat(43)}`;
      const hash = createHash('sha256').update(token).digest('hex');
      device_tokens.push({
        id: letter,
        hash,
        identity: ANNA,
        expires_at: new Date(Date.now() + 3_600_000).toISOString(),
        scope: 'projects',
      });
      await waitFor('all workers hold a request for the policy', () => controlPlane.held() === 3);
      controlPlane.issue(token, policyOf({ device_tokens: [...device_tokens] }), 150);
      const issued = await fetch(`http://127.0.0.1:${port}/_oauth/device/token`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ device_code: 'd' }),
      });
      expect([issued.status, await issued.json()]).toEqual([
        200,
        expect.objectContaining({ access_token: token }),
      ]);
      const headers = {
        'X-Forwarded-Method': 'GET',
        'X-Forwarded-Host': `one.${BASE}`,
        'X-Forwarded-Uri': '/',
        Authorization: `Bearer ${token}`,
      };
      const answers = await Promise.all(
        Array.from({ length: 12 }, () => ask('/verify?project=p1', headers)),
      );
      expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200));
    }
  });

  it('have common metrics', async () => {
    await start({ GATEWAY_WORKERS: '2' });
    await listening(2);
    const total = async (): Promise<number> =>
      [
        ...(await ask('/metrics')).body.matchAll(/^berth_verify_total\{outcome="\w+"\} (\d+)$/gm),
      ].reduce((sum, m) => sum + Number(m[1]), 0);
    const before = await total();
    for (let i = 0; i < 10; i++) await verify(sessionOf());
    expect(await total()).toBe(before + 10);
  });

  it('SIGTERM drains all workers and exits with 0', async () => {
    const started = await start({ GATEWAY_WORKERS: '2' });
    await listening(2);
    const pids = workers();
    // Idle connections that stay open, like those of a proxy.
    const kept = new Agent({ keepAlive: true });
    for (let i = 0; i < 4; i++) expect((await ask('/healthz', {}, kept)).status).toBe(200);
    const from = performance.now();
    expect(await stopped()).toBe(0);
    expect(performance.now() - from).toBeLessThan(5_000);
    kept.destroy();
    expect(started.exit()).toEqual({ code: 0, signal: null });
    for (const pid of pids) expect(() => process.kill(pid, 0)).toThrow('ESRCH');
  });
});

it('names all wrong settings without secrets and exits with 2', async () => {
  const { code, stderr } = await run(
    [process.execPath, join(programsRoot(), 'bin', 'berth'), 'gateway'],
    {
      mayFail: true,
      env: environment({
        SESSION_SECRET: 'hunter2',
        OIDC_ISSUER: 'http://idp.example',
        GATEWAY_WORKERS: 'many',
      }),
    },
  );
  expect(code).toBe(2);
  for (const name of ['SESSION_SECRET', 'OIDC_ISSUER', 'GATEWAY_WORKERS'])
    expect(stderr).toContain(name);
  expect(stderr).not.toContain('hunter2');
});

it('exits with 1 if the port is in use, with or without workers', async () => {
  await start();
  for (const GATEWAY_WORKERS of ['1', '2']) {
    const { code } = await run(
      [process.execPath, join(programsRoot(), 'bin', 'berth'), 'gateway'],
      {
        mayFail: true,
        env: environment({ GATEWAY_WORKERS }),
      },
    );
    expect(code).toBe(1);
  }
});

async function stopped(): Promise<number | null> {
  await gateway?.stop(10_000);
  return gateway?.exit()?.code ?? null;
}

describe('the socket of systemd', () => {
  /**
   * As systemd does with Restart=always: starts the gateway again and again on one listening
   * socket, which is never closed.
   */
  const AGAIN = 'while :; do sh -c \'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"\' "$@"; done';
  let systemd: ChildProcess | undefined;
  afterEach(async () => {
    if (systemd?.pid === undefined || !isRunning(systemd.pid)) return;
    // The workers too: one that still writes its state would disturb the removal of the folder.
    const gateways = childrenOf(systemd.pid);
    const all = [systemd.pid, ...gateways, ...gateways.filter(isRunning).flatMap(childrenOf)];
    for (const pid of all) signalProcess(pid, 'SIGKILL');
    await waitFor('no process is left', () => !all.some(isRunning));
  });

  async function startOnSocket(
    more: Record<string, string> = {},
  ): Promise<{ gatewayPid(): number; log(): Promise<string> }> {
    const socket = createServer().listen(port, '127.0.0.1');
    await once(socket, 'listening');
    const logFile = await open(join(dir, 'gateway.log'), 'w');
    // Node has no public name for the descriptor of a server.
    const passed = (socket as unknown as { _handle: { fd: number } })._handle.fd;
    systemd = spawn(
      'sh',
      ['-c', AGAIN, 'sh', process.execPath, join(programsRoot(), 'bin', 'berth'), 'gateway'],
      {
        env: { PATH: process.env.PATH, ...environment(more) },
        stdio: ['ignore', logFile.fd, logFile.fd, passed],
      },
    );
    // From here on only the children hold the socket.
    await new Promise((resolve) => void socket.close(resolve));
    await logFile.close();
    await waitFor('it is ready', async () => (await ask('/readyz')).status === 200, {
      deadlineMs: 60_000,
    });
    return {
      gatewayPid: () => childrenOf(systemd?.pid ?? Number.NaN)[0] ?? Number.NaN,
      log: () => readFile(join(dir, 'gateway.log'), 'utf8'),
    };
  }

  it.each(['1', '2'])(
    'no request is refused while the gateway restarts (workers: %s)',
    async (count) => {
      const { gatewayPid } = await startOnSocket({ GATEWAY_WORKERS: count });
      const session = sessionOf();
      const answers: (number | string)[] = [];
      let done = false;
      const visitors = Array.from({ length: 4 }, async () => {
        while (!done) answers.push(await verify(session).catch(String));
      });
      for (let round = 0; round < 2; round++) {
        const old = gatewayPid();
        const before = answers.length;
        signalProcess(old, 'SIGTERM');
        await waitFor(
          'another gateway answers',
          () => gatewayPid() !== old && answers.length > before + 20,
          { deadlineMs: 60_000 },
        );
      }
      done = true;
      await Promise.all(visitors);
      expect(new Set(answers)).toEqual(new Set([200]));
    },
  );

  it('listens at LISTEN too where it is another address, and names both', async () => {
    const other = await freePort();
    const { log } = await startOnSocket({ LISTEN: `127.0.0.1:${other}` });
    expect((await fetch(`http://127.0.0.1:${other}/healthz`)).status).toBe(200);
    expect((await log()).match(/LISTEN is not the address of berth-gateway.socket/g)).toHaveLength(
      1,
    );
    expect(await log()).toContain(`"socket":"127.0.0.1:${port}"`);
  });
});
