/**
 * `berth rotate` under load: control plane, a gateway of two workers, Traefik and contract-only
 * agents, with requests at projects and at the API, and deployments all the time. No request fails,
 * and nobody is signed out before --finish.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { request as httpsRequest, Agent } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startHandAgent } from '@berth/testbed/hand-agent';
import { type IdentityProvider, startIdentityProvider } from '@berth/testbed/identity-provider';
import { PlainBrowser } from '@berth/testbed/plain-browser';
import { type Platform, startPlatform } from '@berth/testbed/platform';
import { repositoryRoot } from '@berth/testbed/config';
import { type Finished, run } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startEcho } from './echo.ts';
import { ADA, deviceToken, whyNoSignIn } from './signed-in-world.ts';

const skipped = whyNoSignIn('traefik');
const stops: (() => Promise<unknown>)[] = [];
let berth: Platform;
let idp: IdentityProvider;
let etc: string;
/** The value that the contract-only agents send. */
let agentSecret: string;
const browser = new PlainBrowser();
let device: string;
let apiToken: string;
let projects: { id: string }[] = [];

const secretFile = (process: string, setting: string): string =>
  join(etc, 'secrets', process, setting);
const valuesOf = async (process: string, setting: string): Promise<string[]> =>
  (await readFile(secretFile(process, setting), 'utf8')).trim().split(',');
const pids = (): number[] => [berth.controlPlane.process().pid, berth.gateway?.process().pid ?? 0];

function rotate(...args: string[]): Promise<Finished> {
  const signals = pids().flatMap((pid) => ['--pid', String(pid)]);
  return run(
    [
      process.execPath,
      join(repositoryRoot, 'bin', 'berth'),
      'rotate',
      ...args,
      '--etc',
      etc,
      ...signals,
    ],
    {
      mayFail: true,
      deadlineMs: 90_000,
    },
  );
}
/** One request through the proxy. */
function ask(
  host: string,
  path: string,
  headers: Record<string, string>,
  agent: Agent,
): Promise<{ status: number; body: string }> {
  return new Promise((resolve, reject) => {
    const { port } = berth.entry;
    const options = {
      host: '127.0.0.1',
      port,
      path,
      agent,
      servername: host,
      rejectUnauthorized: false,
      timeout: 15_000,
    };
    const request = httpsRequest(
      { ...options, headers: { host: `${host}:${port}`, ...headers } },
      (response) => {
        let body = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => (body += chunk));
        response.on('end', () => resolve({ status: response.statusCode ?? 0, body }));
        response.on('error', reject);
      },
    );
    request.on('timeout', () => request.destroy(new Error('no answer within 15 s')));
    request.on('error', reject);
    request.end();
  });
}

type Load = { stop(): Promise<{ sent: Record<string, number>; failures: string[] }> };
/**
 * Sends requests of each kind at its rate, whatever the answers are. Each kind has its own
 * connections.
 */
function startLoad(
  kinds: Record<
    string,
    { perSecond: number; send: (agent: Agent) => Promise<{ status: number; body: string }> }
  >,
): Load {
  const failures: string[] = [];
  const sent: Record<string, number> = {};
  const open = new Set<Promise<void>>();
  const timers = Object.entries(kinds).map(([kind, { perSecond, send }]) => {
    const agent = new Agent({ keepAlive: true, maxSockets: 20 });
    sent[kind] = 0;
    return setInterval(() => {
      sent[kind] = (sent[kind] ?? 0) + 1;
      const one = send(agent).then(
        ({ status, body }) =>
          void (status === 200 || failures.push(`${kind}: ${status} ${body.slice(0, 100)}`)),
        (error: unknown) => void failures.push(`${kind}: ${String(error)}`),
      );
      open.add(one);
      void one.finally(() => open.delete(one));
    }, 1000 / perSecond);
  });
  return {
    async stop() {
      for (const timer of timers) clearInterval(timer);
      await Promise.all(open);
      return { sent, failures };
    },
  };
}

const alphaCookies = (): string =>
  browser
    .cookies(`alpha.${berth.baseDomain}`)
    .map(({ name, value }) => `${name}=${value}`)
    .join('; ');

beforeAll(async () => {
  if (skipped !== undefined) return;
  const dir = await mkdtemp(join(tmpdir(), 'berth-rotate-'));
  stops.push(() => rm(dir, { recursive: true, force: true }));
  etc = join(dir, 'etc');
  const apps = { alpha: await startEcho('alpha'), open: await startEcho('open') };
  for (const app of Object.values(apps)) stops.push(() => app.stop());
  idp = await startIdentityProvider({ accounts: [ADA] });
  stops.push(() => idp.stop());
  berth = await startPlatform({
    dir,
    etc,
    registry: { address: '127.0.0.1:5000', user: '', password: '' },
    proxy: 'traefik',
    agents: [],
    gateway: {
      env: (publicUrl) => {
        idp.allowRedirect(`${publicUrl}/_oauth/callback/oidc`);
        return {
          OIDC_ISSUER: idp.issuer,
          OIDC_CLIENT_ID: idp.clientId,
          OIDC_CLIENT_SECRET: idp.clientSecret,
          GATEWAY_WORKERS: '2',
        };
      },
    },
    env: { DEFAULT_ROLE: 'developer' },
  });
  stops.push(() => berth.stop());
  agentSecret = berth.agentSecret;
  const ports = { alpha: apps.alpha.port, open: apps.open.port };
  const agent = await startHandAgent({
    url: berth.url,
    secret: () => agentSecret,
    ports,
    registerMs: 1_000,
  });
  stops.push(() => agent.stop());
  for (const [name, auth_required] of [
    ['alpha', true],
    ['open', false],
  ] as const) {
    const project = await berth.createProject({
      name,
      git_url: 'https://git.example.org/app.git',
      domain_prefix: name,
      auth_required,
    });
    const done = await berth.settled(await berth.deploy(project), 30_000);
    expect(done.status).toBe('running');
    projects.push(project);
  }
  await berth.api.call('putSecret', {
    params: { id: 'open', name: 'PASSWORD' },
    body: { value: 'of the database' },
  });
  const form = await browser.open(berth.address('alpha'));
  expect((await idp.signIn(browser, form, ADA)).status).toBe(200);
  device = (
    await deviceToken(browser, {
      berth,
      idp,
      dir,
      projectId: () => '',
      stop: () => Promise.resolve(),
    })
  ).access_token;
  apiToken = (
    await berth.api.call('createToken', {
      body: {
        name: 'ci',
        role: 'viewer',
        expires_at: new Date(Date.now() + 86_400_000).toISOString(),
      },
    })
  ).token;
}, 120_000);

afterAll(async () => {
  for (const stop of stops.splice(0).toReversed()) await stop();
}, 60_000);

describe.skipIf(skipped !== undefined)('under load', () => {
  test('each of the five secrets is replaced and finished without a failed request', {
    timeout: 240_000,
  }, async () => {
    const before = {
      agent: await valuesOf('control-plane', 'AGENT_SECRET'),
      gateway: await valuesOf('gateway', 'GATEWAY_SECRET'),
      session: await valuesOf('gateway', 'SESSION_SECRET'),
      jwt: await valuesOf('control-plane', 'JWT_SECRET'),
    };
    const jwt = (await berth.api.call('login', { body: berth.admin })).token;
    const cookie = alphaCookies();
    const oldCookieAlone = cookie;
    const api = (token: string) => async () => {
      const response = await fetch(`${berth.url}/api/projects`, {
        headers: { authorization: `Bearer ${token}` },
      });
      return { status: response.status, body: await response.text() };
    };
    const load = startLoad({
      public: { perSecond: 25, send: (agent) => ask(`open.${berth.baseDomain}`, '/', {}, agent) },
      'session cookie': {
        perSecond: 25,
        send: (agent) =>
          ask(`alpha.${berth.baseDomain}`, '/', { cookie, accept: 'text/html' }, agent),
      },
      'device token': {
        perSecond: 5,
        send: (agent) =>
          ask(`alpha.${berth.baseDomain}`, '/', { authorization: `Bearer ${device}` }, agent),
      },
      'API token': { perSecond: 5, send: api(apiToken) },
      JWT: { perSecond: 5, send: api(jwt) },
    });
    let deploying = true;
    const states: string[] = [];
    const deployments = (async () => {
      while (deploying)
        for (const project of projects)
          states.push((await berth.settled(await berth.deploy(project))).status);
    })();

    for (const name of ['agent', 'gateway', 'session', 'jwt', 'secrets']) {
      const done = await rotate(name);
      expect([name, done.code, done.stderr], done.stdout).toEqual([name, 0, '']);
    }
    // A storm of signals, under the same load.
    for (let i = 0; i < 100; i++) for (const pid of pids()) process.kill(pid, 'SIGHUP');

    // Contract-only agents still send the old value, and they are named.
    const early = await rotate('agent', '--finish');
    expect([early.code, early.stderr]).toEqual([
      1,
      expect.stringMatching(/node by-hand-builder \(builder, contract-only agent\): last used/),
    ]);
    [agentSecret = ''] = await valuesOf('control-plane', 'AGENT_SECRET');
    await waitFor(
      'the agents use the new value',
      async () => (await rotate('agent', '--finish')).code === 0,
      { deadlineMs: 30_000 },
    );
    const finished = [await rotate('gateway', '--finish'), await rotate('secrets', '--finish')];
    expect(finished.map(({ code, stderr }) => [code, stderr])).toEqual([
      [0, ''],
      [0, ''],
    ]);
    const sessions = await rotate('session', '--finish');
    expect([sessions.code, sessions.stderr]).toEqual([
      1,
      expect.stringMatching(/sessions of people that the earlier value signed: until 2/),
    ]);
    const tokens = await rotate('jwt', '--finish');
    expect([tokens.code, tokens.stderr]).toEqual([
      1,
      expect.stringMatching(/API tokens of sessions that the earlier value signed: until 2/),
    ]);

    deploying = false;
    await deployments;
    const { sent, failures } = await load.stop();
    expect(failures).toEqual([]);
    expect(new Set(states)).toEqual(new Set(['running']));
    console.log(`requests: ${JSON.stringify(sent)}, deployments: ${states.length}`);
    const agent = new Agent();

    // So far everybody is signed in. Now the earlier values go.
    expect((await api(jwt)()).status).toBe(200);
    for (const name of ['session', 'jwt'])
      expect([name, (await rotate(name, '--finish', '--force')).code]).toEqual([name, 0]);
    expect(
      (
        await ask(
          `alpha.${berth.baseDomain}`,
          '/',
          { cookie: oldCookieAlone, accept: 'text/html' },
          agent,
        )
      ).status,
    ).toBe(302);
    expect((await api(jwt)()).status).toBe(401);
    expect((await api(apiToken)()).status).toBe(200);
    expect(
      (await ask(`alpha.${berth.baseDomain}`, '/', { authorization: `Bearer ${device}` }, agent))
        .status,
    ).toBe(200);
    const internal = (
      header: string,
      secret: string | undefined,
      path: string,
    ): Promise<Response> => fetch(`${berth.url}${path}`, { headers: { [header]: secret ?? '' } });
    expect(
      (await internal('x-gateway-secret', before.gateway[0], '/api/internal/policy')).status,
    ).toBe(401);
    expect((await internal('x-agent-secret', before.agent[0], '/api/agent/config')).status).toBe(
      401,
    );
    expect((await internal('x-agent-secret', agentSecret, '/api/agent/config')).status).toBe(200);
    for (const [process, setting, old] of [
      ['control-plane', 'AGENT_SECRET', before.agent],
      ['gateway', 'GATEWAY_SECRET', before.gateway],
      ['gateway', 'SESSION_SECRET', before.session],
      ['control-plane', 'JWT_SECRET', before.jwt],
    ] as const) {
      const now = await valuesOf(process, setting);
      expect([now.length, now.includes(old[0] ?? '')]).toEqual([1, false]);
    }
    // A new sign-in works.
    const again = new PlainBrowser();
    expect((await idp.signIn(again, await again.open(berth.address('alpha')), ADA)).status).toBe(
      200,
    );
    agent.destroy();
  });

  test('a bad file keeps the value, and the log names the setting and the rule', {
    timeout: 60_000,
  }, async () => {
    const path = secretFile('gateway', 'SESSION_SECRET');
    const good = await readFile(path, 'utf8');
    for (const [bad, rule] of [
      ['too-short-to-be-a-secret', 'must have 32 characters or more'],
      ['', 'is empty'],
      [',\n', 'must have at least one secret'],
    ] as const) {
      await writeFile(path, bad);
      process.kill(berth.gateway?.process().pid ?? 0, 'SIGHUP');
      await waitFor(
        `the log says that a value ${rule}`,
        async () => (await readFile(berth.gateway?.logFile ?? '', 'utf8')).includes(rule),
        { deadlineMs: 10_000 },
      );
    }
    await writeFile(path, good);
    const again = new PlainBrowser();
    expect((await idp.signIn(again, await again.open(berth.address('alpha')), ADA)).status).toBe(
      200,
    );
    expect(await readFile(berth.gateway?.logFile ?? '', 'utf8')).not.toContain('too-short-to-be');
  });
});
