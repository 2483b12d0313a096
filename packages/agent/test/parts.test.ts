/** Small parts of the agent, each on its own. */
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../src/config.ts';
import { findDockerfile } from '../src/dockerfile.ts';
import { startHealthServer } from '../src/health.ts';
import { createHostIp, localAddressTo } from '../src/host-ip.ts';
import { createImages, repositoryOf, removableRefs } from '../src/images.ts';
import { createLocks } from '../src/locks.ts';
import { toObserved, watchContainers } from '../src/observe.ts';
import { probe } from '../src/probe.ts';
import { neverStarted } from '../src/reconcile.ts';
import { createStorage } from '../src/storage.ts';
import type { Container, Docker } from '../src/tools/docker.ts';
import { createWorkspaces } from '../src/workspace.ts';
import { deployTask, until } from './fake-control-plane.ts';
import { container } from './fake-engine.ts';

let dir: string;
beforeAll(async () => void (dir = await mkdtemp(join(tmpdir(), 'agent-parts-'))));
afterAll(() => rm(dir, { recursive: true }));

describe('readConfig', () => {
  const good = { NODE_ROLE: 'builder', CONTROL_PLANE_URL: 'http://10.0.0.1:8080/' };
  it('has the documented defaults', () => {
    expect(readConfig(good)).toMatchObject({
      NODE_ROLE: 'builder',
      CONTROL_PLANE_URL: 'http://10.0.0.1:8080',
      STATE_DIR: '/var/lib/berth-agent',
      SVC_ROOT: '/svc/data',
      MAX_BUILDS: 2,
      KEEP_RELEASES: 3,
      BUILD_TIMEOUT: 1_800_000,
    });
  });
  it('names all wrong variables at once', () => {
    expect(() =>
      readConfig({ NODE_ROLE: 'cook', MAX_BUILDS: '0', LISTEN: 'x', STATE_DIR: 'here', BUILD_TIMEOUT: '3', PUBLISH_IP: 'host' }),
    ).toThrow(/NODE_ROLE[^]*CONTROL_PLANE_URL[^]*PUBLISH_IP[^]*STATE_DIR[^]*LISTEN[^]*MAX_BUILDS[^]*BUILD_TIMEOUT/);
  });
  it('refuses a low watermark above the high one', () => {
    expect(readConfig(good)).toMatchObject({
      CACHE_HIGH: 90,
      CACHE_LOW: 80,
      COPY_TIMEOUT: 21_600_000,
      COPY_STALL: 60_000,
      COPIES_AT_ONCE: 2,
      KEEP_VERSIONS: 3,
    });
    expect(() => readConfig({ ...good, CACHE_HIGH: '70' })).toThrow(/CACHE_LOW: must not exceed CACHE_HIGH, which is 70/);
    expect(() => readConfig({ ...good, COPY_BANDWIDTH: '10 m' })).toThrow(/COPY_BANDWIDTH/);
    expect(readConfig({ ...good, COPY_BANDWIDTH: '1.5m' }).COPY_BANDWIDTH).toBe('1.5m');
  });
  it('uses the first of several secrets, and inherits few variables', () => {
    const config = readConfig({ ...good, AGENT_SECRET: 'new, old', PATH: '/bin', EVIL: 'x' });
    expect(config.AGENT_SECRET).toBe('new');
    expect(config.inherit).toEqual({ PATH: '/bin' });
  });
});

describe('findDockerfile', () => {
  it('accepts a file inside the clone, also through symlinks, and refuses one outside', async () => {
    const root = join(dir, 'clone');
    await mkdir(join(root, 'sub'), { recursive: true });
    await writeFile(join(root, 'Dockerfile'), 'x');
    await writeFile(join(dir, 'secret'), 'x');
    await symlink('../Dockerfile', join(root, 'sub', 'inside'));
    await symlink('../../secret', join(root, 'sub', 'outside'));
    await symlink('/etc/passwd', join(root, 'absolute'));
    await symlink('/no/such/place', join(root, 'nowhere'));
    await symlink('..', join(root, 'up'));
    await symlink('loop', join(root, 'loop'));
    expect(await findDockerfile(root, 'Dockerfile')).toMatch(/clone\/Dockerfile$/);
    expect(await findDockerfile(root, './sub/../Dockerfile')).toMatch(/clone\/Dockerfile$/);
    expect(await findDockerfile(root, 'sub/inside')).toMatch(/clone\/Dockerfile$/);
    for (const path of ['sub/outside', 'absolute', '../secret', '/etc/passwd', 'up/secret', 'nowhere', 'loop'])
      await expect(findDockerfile(root, path), path).rejects.toMatchObject({ code: 'dockerfile_outside' });
    for (const path of ['missing', 'sub', 'Dockerfile/x', 'x'.repeat(300)])
      await expect(findDockerfile(root, path), path).rejects.toMatchObject({ code: 'dockerfile_missing' });
  });
});

describe('images', () => {
  const image = (id: string, created: number): { id: string; created: number; refs: string[] } => ({ id, created, refs: [`r/app:${id}`] });
  it('repositoryOf removes the tag or digest and keeps the port', () => {
    expect(repositoryOf('10.0.0.1:5000/app:abc')).toBe('10.0.0.1:5000/app');
    expect(repositoryOf('10.0.0.1:5000/app@sha256:abc')).toBe('10.0.0.1:5000/app');
    expect(repositoryOf('10.0.0.1:5000/app')).toBe('10.0.0.1:5000/app');
  });
  it('removableRefs returns the oldest first, without the newest few and images in use', () => {
    const images = [image('a', 1), image('d', 4), image('b', 2), image('c', 3)];
    expect(removableRefs(images, { keepNewest: 1, inUse: new Set(['b']), maxRefs: 9 })).toEqual(['r/app:a', 'r/app:c']);
    expect(removableRefs(images, { keepNewest: 9, inUse: new Set(), maxRefs: 9 })).toEqual([]);
    expect(removableRefs(images, { keepNewest: 1, inUse: new Set(), maxRefs: 1 })).toEqual(['r/app:a']);
  });
  it('keeps an image that a task holds, and removes it after the release', async () => {
    const removed: string[] = [];
    const docker = {
      images: async () => [image('a', Date.now() / 1000 - 2), image('b', Date.now() / 1000 - 1)],
      imagesInUse: async () => new Set(),
      removeImageRef: async (ref: string) => (removed.push(ref), true),
    } as unknown as Docker;
    const images = createImages({ docker, keepNewest: 1, log: silentLogger() });
    const release = images.hold('r/app:a');
    images.cleanLater('r/app');
    await images.settle();
    expect(removed).toEqual([]);
    release();
    images.cleanLater('r/app');
    await images.settle();
    expect(removed).toEqual(['r/app:a']);
  });
});

describe('images of a project without containers on the node', () => {
  const DAY_S = 86_400;
  const image = (id: string, created: number, repository = 'r/app') => ({ id, created, refs: [`${repository}:${id}`] });
  function engine(all: ReturnType<typeof image>[], inUse: string[] = []) {
    const removed: string[] = [];
    const docker = {
      images: async (pattern: string) => all.filter((i) => pattern === 'r/*' || i.refs[0]?.startsWith(`${pattern}:`)),
      imagesInUse: async () => new Set(inUse),
      removeImageRef: async (ref: string) => (removed.push(ref), true),
    } as unknown as Docker;
    return { docker, removed };
  }
  it('are removed when the project was deleted, except images in use or held', async () => {
    const { docker, removed } = engine([image('a', 1), image('b', 2), image('c', 3), image('d', 4)], ['b']);
    const images = createImages({ docker, keepNewest: 10, log: silentLogger() });
    images.hold('r/app:c');
    images.forgetLater('r/app');
    await images.settle();
    expect(removed.sort()).toEqual(['r/app:a', 'r/app:d']);
  });
  it('are removed a week after the newest was built', async () => {
    const now = Date.now() / 1000;
    const [old, fresh] = [now - 8 * DAY_S, now - DAY_S];
    const all = [image('a', old, 'r/gone'), image('b', old, 'r/runs'), image('c', fresh, 'r/new'), image('d', old, 'r/new')];
    const { docker, removed } = engine(all, ['b']);
    const images = createImages({ docker, keepNewest: 10, log: silentLogger() });
    images.sweepLater('r');
    await images.settle();
    expect(removed).toEqual(['r/gone:a']);
  });
});

it('locks have one holder at a time, in order, and an aborted waiter blocks no other', async () => {
  const locks = createLocks();
  const never = new AbortController().signal;
  const order: number[] = [];
  const release = await locks.hold('k', never);
  const second = locks.hold('k', AbortSignal.timeout(20));
  const third = locks.hold('k', never).then((r) => (order.push(3), r));
  await expect(second).rejects.toThrow();
  expect(order).toEqual([]);
  release();
  (await third)();
  (await locks.hold('other', never))();
  expect(order).toEqual([3]);
});

describe('probe', () => {
  const never = new AbortController().signal;
  async function serve(status: number, then: (port: number) => Promise<void>): Promise<void> {
    const server = createServer((_, response) => void response.writeHead(status, { location: 'http://127.0.0.1:9/' }).end('x'));
    await new Promise<void>((r) => server.listen(0, '127.0.0.1', r));
    await then((server.address() as AddressInfo).port);
    server.closeAllConnections();
    server.close();
  }
  it.each([
    [200, null, true],
    [500, null, true],
    [302, '/h', true],
    [404, '/h', false],
    [500, '/h', false],
  ])('status %d with health path %s is healthy: %s', (status, healthPath, ok) =>
    serve(status, async (port) => {
      const result = await probe({ host: '127.0.0.1', port, healthPath, visitorUrl: null }, 200, never);
      expect(result.ok).toBe(ok);
      if (!result.ok) expect(result.last).toEqual({ kind: 'status', status });
    }),
  );
  /** Answers like a framework with allowed hosts: 400 to another host or scheme. */
  async function serveAllowed(host: string, proto: string, then: (port: number) => Promise<void>): Promise<void> {
    const server = createServer(({ headers }, response) => {
      const isAllowed = headers.host === host && headers['x-forwarded-proto'] === proto && headers['x-forwarded-host'] === host;
      response.writeHead(isAllowed ? 200 : 400).end();
    });
    await new Promise<void>((r) => server.listen(0, '127.0.0.1', r));
    await then((server.address() as AddressInfo).port);
    server.closeAllConnections();
    server.close();
  }
  it.each([
    ['https://shop.example.com', 'shop.example.com', 'https'],
    ['http://shop.berth.localhost:8000', 'shop.berth.localhost:8000', 'http'],
  ])('sends the host of a visitor of %s, so an application that allows only that host answers', (visitorUrl, host, proto) =>
    serveAllowed(host, proto, async (port) => {
      expect(await probe({ host: '127.0.0.1', port, healthPath: '/h', visitorUrl }, 200, never)).toMatchObject({ ok: true });
    }),
  );
  it('uses the address as host if an older control plane sends none', () =>
    serve(200, async (port) => {
      expect(await probe({ host: '127.0.0.1', port, healthPath: '/h', visitorUrl: null }, 200, never)).toMatchObject({ ok: true });
    }));
  it('ends at its deadline or when the signal aborts', async () => {
    expect(await probe({ host: '127.0.0.1', port: 9, healthPath: null, visitorUrl: null }, 100, never)).toMatchObject({
      ok: false,
      last: { kind: 'refused' },
    });
    await expect(probe({ host: '127.0.0.1', port: 9, healthPath: null, visitorUrl: null }, 9_000, AbortSignal.timeout(50))).rejects.toThrow(
      /timeout/,
    );
  });
});

it('toObserved keeps only the labels of Berth, and no port of a stopped container', () => {
  const labels = { 'berth.project': 'p', 'org.opencontainers.image.source': 'x' };
  expect(toObserved(container({ labels }))).toMatchObject({ labels: { 'berth.project': 'p' }, host_port: 1234 });
  expect(toObserved(container({ state: 'exited' })).host_port).toBeNull();
});

it('watchContainers debounces events and reopens the stream', async () => {
  let opened = 0;
  let changes = 0;
  let broken = 0;
  const ending = new AbortController();
  const docker = {
    events: async (_: unknown, onEvent: (action: string) => void) => {
      opened += 1;
      for (const action of ['exec_create: ls', 'start', 'die', 'destroy']) onEvent(action);
      throw new Error('the engine went away');
    },
  } as unknown as Docker;
  const watching = watchContainers(
    docker,
    { onChange: () => void (changes += 1), onBroken: () => void (broken += 1) },
    ending.signal,
    silentLogger(),
  );
  await until('opened twice', () => opened >= 2, 5_000);
  ending.abort();
  await watching;
  // Each end of the stream is reported, because the engine may have been restarted.
  expect(broken).toBeGreaterThanOrEqual(1);
  // One change for the events, one for the time without a stream.
  expect(changes).toBeGreaterThanOrEqual(2);
  expect(changes).toBeLessThanOrEqual(opened * 2);
});

it('neverStarted returns unstarted containers without an open task', () => {
  const of = (state: string, deployment: string): Container =>
    container({ state, name: `${state}-${deployment}`, labels: { 'berth.deployment': deployment } });
  const all = [of('created', 'old'), of('created', 'open'), of('running', 'old'), of('exited', 'old')];
  expect(neverStarted(all, [deployTask('open', {})]).map((c) => c.name)).toEqual(['created-old']);
});

it('workspaces are fresh, private and removed after every outcome; leftovers are removed at start', async () => {
  const root = join(dir, 'work');
  const workspaces = createWorkspaces(root, silentLogger());
  await mkdir(join(root, 'killed-1', 'source'), { recursive: true });
  await workspaces.removeLeftovers();
  expect(await readdir(root)).toEqual([]);
  await expect(
    workspaces.with('t-1', async (path) => {
      await writeFile(join(path, 'x'), 'y');
      throw new Error('no');
    }),
  ).rejects.toThrow('no');
  expect(await workspaces.with('t-1', async (path) => readdir(path))).toEqual([]);
  expect(await readdir(root)).toEqual([]);
});

it('HOST_IP is the setting, else the local address of a connection to the control plane', async () => {
  const server = createServer();
  await new Promise<void>((r) => server.listen(0, '127.0.0.1', r));
  expect(await localAddressTo(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)).toBe('127.0.0.1');
  const hostIp = createHostIp(undefined, `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  expect(await hostIp()).toBe('127.0.0.1');
  await new Promise((r) => server.close(r));
  expect(await hostIp()).toBe('127.0.0.1');
  expect(await createHostIp('10.1.1.1', 'http://127.0.0.1:9')()).toBe('10.1.1.1');
  await expect(createHostIp(undefined, 'http://127.0.0.1:9')()).rejects.toThrow(/detecting HOST_IP failed/);
  await expect(localAddressTo('http://127.0.0.1:9')).rejects.toThrow(/ECONNREFUSED/);
});

it('free storage is the size of the disk or MAX_STORAGE, less the used bytes', async () => {
  const root = join(dir, 'svc');
  await mkdir(root);
  await writeFile(join(root, 'x'), Buffer.alloc(1_000_000));
  const inherit = { PATH: '/usr/bin:/bin' };
  const set = await createStorage({ root, maxStorage: 5_000_000, inherit, log: silentLogger() }).read(AbortSignal.timeout(9_000));
  expect(set.max).toBe(5_000_000);
  expect(set.free).toBeGreaterThan(3_900_000);
  expect(set.free).toBeLessThan(4_010_000);
  const none = await createStorage({ root: join(root, 'not', 'there'), maxStorage: undefined, inherit, log: silentLogger() }).read(
    AbortSignal.timeout(9_000),
  );
  expect(none.max).toBeGreaterThan(1e9);
  expect(none.free).not.toBeNull();
});

it('the health server answers /healthz, /readyz and /metrics', async () => {
  let reasons = ['not yet'];
  let broken = false;
  const server = await startHealthServer(
    { host: '127.0.0.1', port: 0 },
    {
      readiness: () => Promise.resolve({ ready: reasons.length === 0, reasons }),
      metrics: () =>
        broken ? Promise.reject(new Error('out of order')) : Promise.resolve({ type: 'text/plain; version=0.0.4', text: 'a 1\n' }),
    },
  );
  const get = async (path: string): Promise<number> => (await fetch(`http://127.0.0.1:${server.port}${path}`)).status;
  expect([await get('/healthz'), await get('/readyz'), await get('/x')]).toEqual([200, 503, 404]);
  reasons = [];
  expect(await get('/readyz')).toBe(200);
  const metrics = await fetch(`http://127.0.0.1:${server.port}/metrics`);
  expect([metrics.status, metrics.headers.get('content-type'), await metrics.text()]).toEqual([200, 'text/plain; version=0.0.4', 'a 1\n']);
  expect((await fetch(`http://127.0.0.1:${server.port}/metrics`, { method: 'POST' })).status).toBe(405);
  broken = true;
  expect([await get('/metrics'), await get('/healthz')]).toEqual([500, 200]);
  await server.close();
});
