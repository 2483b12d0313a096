/** The requests that set a commit status, in the form of each forge, and where they may go. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { STATUS_LIFETIME_MS, statusOf, statusPause } from '../../src/domain/git/commit-statuses.ts';
import { isSetAlready, statusRequest, statusTarget } from '../../src/domain/git/forge-api.ts';
import { createSendToForge, isLocalAddress } from '../../src/forges/send-status.ts';

const COMMIT = 'c'.repeat(40);
const MESSAGE = {
  state: 'failure',
  commit: COMMIT,
  context: 'berth/shop',
  description: 'deployment 2 failed',
  targetUrl: 'https://berth.example.com/deployments/d2',
} as const;

/** Method is POST everywhere. Returns address, credential and body. */
function requestOf(
  gitUrl: string,
  forge: Parameters<typeof statusTarget>[1],
  apiUrl: string | null = null,
  username: string | null = null,
) {
  const target = statusTarget(gitUrl, forge, apiUrl);
  if (target === null) return null;
  const { url, headers, body } = statusRequest(target, MESSAGE, { username, token: 'TOKEN' });
  return {
    url: url.href,
    authorization: headers['authorization'],
    body: JSON.parse(body) as Record<string, unknown>,
  };
}
const GITHUB_BODY = {
  state: 'failure',
  context: 'berth/shop',
  description: 'deployment 2 failed',
  target_url: 'https://berth.example.com/deployments/d2',
};

describe('a commit status', () => {
  it.each([
    [
      'GitHub over https',
      'https://github.com/team/shop.git',
      null,
      'https://api.github.com/repos/team/shop/statuses/',
    ],
    [
      'GitHub over ssh',
      'git@github.com:team/shop.git',
      null,
      'https://api.github.com/repos/team/shop/statuses/',
    ],
    [
      'GitHub Enterprise',
      'https://git.example.com/team/shop',
      'github',
      'https://git.example.com/api/v3/repos/team/shop/statuses/',
    ],
    [
      'Gitea',
      'https://git.example.com:3000/team/shop.git',
      'gitea',
      'https://git.example.com:3000/api/v1/repos/team/shop/statuses/',
    ],
    [
      'a path with a percent sign alone',
      'https://github.com/te%zzam/shop',
      null,
      'https://api.github.com/repos/te%25zzam/shop/statuses/',
    ],
    [
      'a path with half a character',
      'git@github.com:te\ud800am/shop',
      null,
      'https://api.github.com/repos/te%EF%BF%BDam/shop/statuses/',
    ],
    [
      'Codeberg',
      'ssh://git@codeberg.org/team/shop.git',
      'generic',
      'https://codeberg.org/api/v1/repos/team/shop/statuses/',
    ],
  ] as const)('goes to %s', (_, gitUrl, forge, address) => {
    expect(requestOf(gitUrl, forge)).toMatchObject({ url: address + COMMIT, body: GITHUB_BODY });
  });
  it('goes to the API that the token names when the repository is fetched over ssh', () => {
    const ssh = 'ssh://git@git.example.com:2222/team/shop.git';
    expect(requestOf(ssh, 'gitea')).toBeNull();
    expect(requestOf(ssh, 'gitea', 'https://git.example.com')?.url).toBe(
      `https://git.example.com/api/v1/repos/team/shop/statuses/${COMMIT}`,
    );
    expect(requestOf(ssh, 'forgejo', 'https://x.example/forge/api/v1/')?.url).toBe(
      `https://x.example/forge/api/v1/repos/team/shop/statuses/${COMMIT}`,
    );
    // The origin of an https address takes precedence.
    expect(requestOf('https://a.example/t/s.git', 'gitea', 'https://b.example')?.url).toContain(
      'https://a.example/',
    );
  });
  it('has the words of GitLab, and the whole path of a project in groups', () => {
    expect(requestOf('https://gitlab.com/group/sub/shop.git', null)).toEqual({
      url: `https://gitlab.com/api/v4/projects/group%2Fsub%2Fshop/statuses/${COMMIT}`,
      authorization: 'Bearer TOKEN',
      body: {
        state: 'failed',
        name: 'berth/shop',
        description: GITHUB_BODY.description,
        target_url: GITHUB_BODY.target_url,
      },
    });
  });
  it('has the words of Bitbucket, with an access token or with an app password', () => {
    const cloud = requestOf('https://bitbucket.org/team/shop.git', null, null, 'x-token-auth');
    expect(cloud).toEqual({
      url: `https://api.bitbucket.org/2.0/repositories/team/shop/commit/${COMMIT}/statuses/build`,
      authorization: 'Bearer TOKEN',
      body: {
        key: 'berth/shop',
        name: 'berth/shop',
        state: 'FAILED',
        description: GITHUB_BODY.description,
        url: GITHUB_BODY.target_url,
      },
    });
    expect(requestOf('https://bitbucket.org/team/shop.git', null, null, 'jo')?.authorization).toBe(
      `Basic ${Buffer.from('jo:TOKEN').toString('base64')}`,
    );
    expect(requestOf('https://bb.example/scm/team/shop.git', 'bitbucket')?.url).toBe(
      `https://bb.example/rest/build-status/1.0/commits/${COMMIT}`,
    );
  });
  it.each([
    ['the forge is not known', 'https://git.example.com/team/shop.git', null],
    [
      'the host has a name that every JavaScript object has',
      'https://constructor/team/shop.git',
      null,
    ],
    ['the hook is generic', 'https://git.example.com/team/shop.git', 'generic'],
    ['an http address would show the token', 'http://git.example.com/team/shop.git', 'gitea'],
  ] as const)('goes nowhere if %s', (_, gitUrl, forge) => {
    expect(statusTarget(gitUrl, forge, null)).toBeNull();
  });
  it('that GitLab has already counts as sent', () => {
    expect(
      isSetAlready(
        'gitlab',
        400,
        '{"message":"Cannot transition status via :enqueue from :pending"}',
      ),
    ).toBe(true);
    expect(isSetAlready('gitlab', 400, '{"message":"ref is invalid"}')).toBe(false);
    expect(isSetAlready('github', 400, 'Cannot transition status')).toBe(false);
  });
});

describe('the state of a deployment', () => {
  const of = (status: Parameters<typeof statusOf>[0]['status'], why: string | null = null) =>
    statusOf({
      generation: 4,
      status,
      code: status === 'failed' ? 'build_step_failed' : null,
      why,
    });
  it('is a status with its own text, without details of a failure', () => {
    expect(of('pending')).toEqual({ state: 'pending', description: 'deployment 4 is in progress' });
    expect(of('running')).toEqual({ state: 'success', description: 'deployment 4 is live' });
    expect(of('failed', 'step 3: password=hunter2')).toEqual({
      state: 'failure',
      description: 'deployment 4 failed: A step of the Dockerfile failed',
    });
    expect(of('superseded', 'deployment 5 was requested')?.description).toBe(
      'deployment 4 was superseded: deployment 5 was requested',
    );
    expect(of('cancelled', 'cancelled on request')).toMatchObject({
      state: 'failure',
      description: expect.stringContaining('cancelled'),
    });
    expect(of('cancelled', 'x'.repeat(500))?.description).toHaveLength(140);
    for (const status of ['building', 'deploying', 'retired'] as const)
      expect(of(status)).toBeNull();
  });
  it('is sent again after growing pauses for an hour', () => {
    let [at, tries] = [0, 0];
    while (at < STATUS_LIFETIME_MS) at += statusPause(tries++);
    expect(tries).toBeGreaterThan(8);
    expect(tries).toBeLessThan(20);
    expect(statusPause(0, 60_000)).toBe(60_000);
    expect(statusPause(0, 86_400_000)).toBe(600_000);
  });
});

describe('an address of this machine', () => {
  it.each([
    '127.0.0.1',
    '127.8.8.8',
    '0.0.0.0',
    '169.254.169.254',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    'fe80::1',
    '::ffff:127.0.0.1',
    '::ffff:7f00:1',
    // An IPv4 address of this machine inside an IPv6 one: compatible, translated, NAT64, 6to4,
    // Teredo, ISATAP.
    '::127.0.0.1',
    '::ffff:0:127.0.0.1',
    '64:ff9b::7f00:1',
    '64:ff9b::a9fe:a9fe',
    '64:ff9b:1::7f00:1',
    '2002:7f00:1::',
    '2001:0:7f00:1::',
    '2001:db8::5efe:127.0.0.1',
    'fe80::1%eth0',
    'ff02::1',
    'not an address',
  ])('%s is local', (address) => expect(isLocalAddress(address)).toBe(true));
  it.each([
    '10.0.0.4',
    '192.168.1.9',
    '172.16.0.1',
    '140.82.121.4',
    '2606:50c0::1',
    'fd00::1',
    '64:ff9b::8c52:7904',
    '100.64.0.1',
  ])('%s is not', (address) => expect(isLocalAddress(address)).toBe(false));
});

describe('a request to a forge', () => {
  let server: Server;
  let port: number;
  const seen: string[] = [];
  beforeEach(async () => {
    seen.length = 0;
    server = createServer((request, response) => {
      seen.push(`${request.method} ${request.url} ${request.headers.authorization}`);
      if (request.url === '/redirect') response.writeHead(302, { location: '/elsewhere' }).end();
      else if (request.url === '/large') response.writeHead(500).end('x'.repeat(1_000_000));
      else if (request.url === '/wait')
        response.writeHead(429, { 'retry-after': '7' }).end('slow down');
      else response.writeHead(201).end('{}');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    ({ port } = server.address() as AddressInfo);
  });
  afterEach(() => void server.close());
  const send = (url: string, allowedHosts: string[] = []) =>
    createSendToForge({ allowedHosts })(
      { url: new URL(url), headers: { authorization: 'token T' }, body: '{}' },
      new AbortController().signal,
    );

  it('does not reach a service of this machine, by address or by name', async () => {
    for (const url of [
      `https://127.0.0.1:${port}/`,
      `https://localhost:${port}/`,
      `https://[::1]:${port}/`,
      'https://169.254.169.254/',
    ])
      expect(await send(url), url).toMatchObject({
        status: 0,
        text: expect.stringContaining('ALLOWED_GIT_HOSTS'),
      });
    // A pattern names no host in particular.
    expect(await send(`https://localhost:${port}/`, ['*.localhost', '*'])).toMatchObject({
      status: 0,
    });
    expect(seen).toEqual([]);
  });
  it('is not sent over http, unless an operator names the host', async () => {
    expect(await send(`http://127.0.0.1:${port}/`)).toMatchObject({
      status: 0,
      text: expect.stringContaining('https'),
    });
    expect(await send(`http://127.0.0.1:${port}/ok`, ['127.0.0.1'])).toMatchObject({ status: 201 });
    expect(seen).toEqual(['POST /ok token T']);
  });
  it('does not follow a redirect, and reads only the beginning of a large answer', async () => {
    expect(await send(`http://127.0.0.1:${port}/redirect`, ['127.0.0.1'])).toMatchObject({
      status: 302,
    });
    const large = await send(`http://127.0.0.1:${port}/large`, ['127.0.0.1']);
    expect(large.status).toBe(500);
    expect(large.text.length).toBeLessThanOrEqual(16_384);
    expect(seen).toHaveLength(2);
  });
  it('tells how long the forge wants to rest', async () => {
    expect(await send(`http://127.0.0.1:${port}/wait`, ['127.0.0.1'])).toEqual({
      status: 429,
      text: 'slow down',
      retryAfterMs: 7_000,
    });
  });
  it('that cannot connect says why', async () => {
    server.close();
    expect(await send(`http://127.0.0.1:${port}/`, ['127.0.0.1'])).toMatchObject({
      status: 0,
      text: expect.stringContaining('ECONNREFUSED'),
    });
  });
});
