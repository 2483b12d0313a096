/** The calls for a container, and pulls while the registry restarts. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { RunSpec } from '../../src/engine/docker.ts';
import { type EngineClient, EngineError } from '../../src/engine/engine-client.ts';
import { partsOf } from '../../src/engine/image-ref.ts';
import { pullImage } from '../../src/engine/pull-image.ts';
import { createBody } from '../../src/engine/run-container.ts';
import { never } from '../data/share.ts';
import { type HttpEngine, json, refuse, startHttpEngine } from '../http-engine.ts';

let site: HttpEngine | null = null;
afterEach(async () => {
  await site?.stop();
  site = null;
});

const SPEC: RunSpec = {
  name: 'svc-a',
  image: 'r/app:1',
  env: { PLAIN: 'x', BOTH: 'plain' },
  secretEnv: { BOTH: 'secret' },
  labels: { 'berth.node': 'n' },
  mounts: [],
  network: null,
  command: null,
  port: { publishIp: undefined, hostPort: 20_000, containerPort: 80 },
  pidsLimit: 7,
  memoryBytes: null,
  cpus: null,
  devices: [],
  logMaxSize: '1m',
  logMaxFiles: 2,
};
const ID = 'a'.repeat(64);

it.each([
  { source: '/svc/mounts/d/a', target: '/data/a', readonly: true },
  { source: '/mnt/a, b', target: '/data/"x"', readonly: false },
])('a mount reaches the engine with any character: %j', (mount) => {
  expect(createBody({ ...SPEC, mounts: [mount] }).HostConfig?.Mounts).toEqual([
    { Type: 'bind', Source: mount.source, Target: mount.target, ReadOnly: mount.readonly },
  ]);
});

it('devices reach the engine as CDI names', () => {
  expect(createBody(SPEC).HostConfig?.DeviceRequests).toBeUndefined();
  const devices = ['nvidia.com/gpu=0', 'vendor.com/nic=eth1'];
  expect(createBody({ ...SPEC, devices }).HostConfig?.DeviceRequests).toEqual([
    { Driver: 'cdi', DeviceIDs: devices },
  ]);
});

it.each([
  'HOSTALIASES',
  'GLIBC_TUNABLES',
  'GCONV_PATH',
  'RES_OPTIONS',
  'LD_PRELOAD',
  'DOCKER_HOST',
  'PATH',
])('an env secret named %s reaches the container, with line breaks too', async (name) => {
  site = await startHttpEngine({
    'POST /containers/create': json({ Id: ID, Warnings: [] }, 201),
    'POST /containers/*/start': (response) => void response.writeHead(204).end(),
  });
  const env = { [name]: 'of the\nproject', PLAIN: 'x' };
  const id = await site.docker.run({ ...SPEC, image: '--privileged', env, secretEnv: env }, never);
  expect(id).toBe(ID);
  expect(site.requests[0]).toMatchObject({
    call: 'POST /containers/create',
    // The name of an image is never an option.
    body: { Image: '--privileged', Env: [`${name}=of the\nproject`, 'PLAIN=x'] },
  });
  expect(site.requests[0]?.query.get('name')).toBe('svc-a');
});

it('a process without HTTP gets no port, and its command replaces that of the image', () => {
  const body = createBody({ ...SPEC, port: null, command: ['node', 'worker.js'] });
  expect([body.Entrypoint, body.Cmd]).toEqual([['node'], ['worker.js']]);
  expect([body.ExposedPorts, body.HostConfig?.PortBindings]).toEqual([undefined, undefined]);
});

it('a container has its limits, one published port and few rights', () => {
  const { Env, HostConfig, ExposedPorts } = createBody({
    ...SPEC,
    memoryBytes: 1e8,
    cpus: 0.5,
    port: { publishIp: '::1', hostPort: 20_000, containerPort: 80 },
    network: 'net-1',
  });
  expect(Env).toEqual(['PLAIN=x', 'BOTH=secret']);
  expect(ExposedPorts).toEqual({ '80/tcp': {} });
  expect(HostConfig).toEqual({
    NetworkMode: 'net-1',
    PortBindings: { '80/tcp': [{ HostIp: '::1', HostPort: '20000' }] },
    Mounts: [],
    SecurityOpt: ['no-new-privileges'],
    CapDrop: ['NET_RAW'],
    PidsLimit: 7,
    Memory: 1e8,
    MemorySwap: 1e8,
    NanoCpus: 5e8,
    RestartPolicy: { Name: 'no' },
    LogConfig: { Type: 'json-file', Config: { 'max-size': '1m', 'max-file': '2' } },
  });
});

it('a variable that Linux does not take is refused before the engine is asked', async () => {
  site = await startHttpEngine({});
  const run = site.docker.run({ ...SPEC, env: { LONG: 'x'.repeat(131_072) } }, never);
  await expect(run).rejects.toMatchObject({
    code: 'container_start_failed',
    detail: expect.stringContaining('the variable LONG with its value exceeds 131072 bytes'),
  });
  expect(site.requests).toEqual([]);
});

it('a container that does not start has the engine’s reason and the next step', async () => {
  site = await startHttpEngine({
    'POST /containers/create': json({ Id: ID, Warnings: [] }, 201),
    'POST /containers/*/start': refuse(400, 'exec: "serve": executable file not found in $PATH'),
  });
  await expect(site.docker.run(SPEC, never)).rejects.toMatchObject({
    code: 'container_start_failed',
    detail: expect.stringMatching(/^exec: "serve": executable file not found .*; the image does/),
  });
});

it('a user by name in an image without /etc/passwd is the fault of the image, not of the agent', async () => {
  const reason = 'Could not find the file /etc/passwd in container c1';
  site = await startHttpEngine({
    'POST /containers/create': json({ Id: 'c1', Warnings: [] }, 201),
    'GET /containers/*/archive': refuse(404, reason),
    'DELETE /containers/*': (response) => void response.writeHead(204).end(),
  });
  await expect(site.docker.userOf('r/app', 'app', {}, never)).rejects.toMatchObject({
    code: 'container_start_failed',
    detail: expect.stringContaining('the image sets USER app, but has no such user'),
  });
  expect(site.requests.at(-1)?.call).toBe('DELETE /containers/c1');
});

it('a user by name is read from the file to which /etc/passwd leads', async () => {
  const stat = (mode: number, linkTarget: string): string =>
    Buffer.from(JSON.stringify({ mode, linkTarget })).toString('base64');
  site = await startHttpEngine({
    'POST /containers/create': json({ Id: 'c1', Warnings: [] }, 201),
    'GET /containers/*/archive': (response, { query }) => {
      const isLink = query.get('path') === '/etc/passwd';
      const target = isLink ? stat(2 ** 27, '../usr/passwd') : stat(0, '');
      response.setHeader('x-docker-container-path-stat', target);
      response.end(isLink ? '' : 'passwd\0\0root:x:0:0\napp:x:1001:1001\n\0\0');
    },
    'DELETE /containers/*': (response) => void response.writeHead(204).end(),
  });
  expect(await site.docker.userOf('r/app', 'app', {}, never)).toBe(1001);
  expect(site.requests[2]?.query.get('path')).toBe('/usr/passwd');
});

it.each([
  ['r:5000/shop@sha256:1', { name: 'r:5000/shop', tag: 'sha256:1' }],
  ['r:5000/shop:v1@sha256:1', { name: 'r:5000/shop', tag: 'sha256:1' }],
  ['r:5000/shop:v1', { name: 'r:5000/shop', tag: 'v1' }],
  ['r:5000/shop', { name: 'r:5000/shop', tag: 'latest' }],
  ['busybox', { name: 'busybox', tag: 'latest' }],
])('%s is pulled by one tag or digest', (ref, parts) => expect(partsOf(ref)).toEqual(parts));

it('a pull has the credentials of its own registry, its progress, and the error in its stream', async () => {
  site = await startHttpEngine({
    'POST /images/create': (response) => {
      response.write('{"status":"Pulling from shop","id":"v1"}\n{"status":"Down');
      response.write('loading","id":"ab","progressDetail":{"current":1,"total":2}}\n');
      response.end('{"errorDetail":{"message":"no space left on device"},"error":"no space"}\n');
    },
  });
  const { docker, credentials } = site;
  await credentials.use({ address: 'r:5000', user: 'berth', password: 'secret' });
  const printed: string[] = [];
  const options = {
    signal: never,
    timeoutMs: 60_000,
    onLine: (line: string) => void printed.push(line),
  };
  await expect(docker.pull('r:5000/shop:v1', options)).rejects.toMatchObject({ code: 'disk_full' });
  await expect(docker.pull('other:5000/shop:v1', options)).rejects.toThrow();
  const auths = site.requests.map(
    ({ headers }) =>
      JSON.parse(
        Buffer.from(String(headers['x-registry-auth']), 'base64url').toString(),
      ) as unknown,
  );
  expect(auths).toEqual([{ username: 'berth', password: 'secret', serveraddress: 'r:5000' }, {}]);
  expect(printed).toEqual(['v1: Pulling from shop', 'v1: Pulling from shop']);
});

describe('a pull', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());
  const REFUSED =
    'Get "http://10.0.0.1:5000/v2/": dial tcp 10.0.0.1:5000: connect: connection refused';
  const NO_ROUTE =
    'error parsing HTTP 404 response body: invalid character: "404 page not found\\n"';
  const UNKNOWN = 'manifest for r:5000/shop@sha256:1 not found: manifest unknown';

  /**
   * Pulls with an engine that answers with these errors, then with success. Returns how often it
   * was asked, and how it ended.
   */
  async function pull(
    errors: string[],
    signal = new AbortController().signal,
  ): Promise<{ asked: number; ended: string; said: string[] }> {
    let asked = 0;
    const said: string[] = [];
    const engine = {
      async stream() {
        const reason = errors[asked++];
        if (reason !== undefined) throw new EngineError('POST /images/create', 500, reason);
      },
    } as unknown as EngineClient;
    const credentials = { headerFor: () => '', secrets: () => [] };
    const ended = pullImage(engine, credentials, 'r:5000/shop@sha256:1', {
      signal,
      timeoutMs: 60_000,
      onLine: (line) => said.push(line),
    }).then(
      () => 'pulled',
      (error: { code?: string; message: string }) => error.code ?? error.message,
    );
    await vi.advanceTimersByTimeAsync(20_000);
    return { asked, ended: await ended, said };
  }

  it('waits while the registry restarts, directly and behind Traefik', async () => {
    expect(await pull([REFUSED, NO_ROUTE])).toEqual({
      asked: 3,
      ended: 'pulled',
      said: [
        'the registry does not answer; next attempt in 1 s',
        'the registry does not answer; next attempt in 2 s',
      ],
    });
  });
  it('ends when the registry stays away', async () => {
    expect(await pull(Array.from({ length: 9 }, () => REFUSED))).toMatchObject({
      asked: 4,
      ended: 'registry_unreachable',
    });
  });
  it('is not repeated for an image that is not there', async () => {
    expect(await pull([UNKNOWN])).toEqual({ asked: 1, ended: 'image_pull_failed', said: [] });
  });
  it('ends at once when the task is taken away', async () => {
    const stop = new AbortController();
    setTimeout(() => stop.abort(new Error('taken away')), 500);
    expect(await pull([REFUSED, REFUSED], stop.signal)).toMatchObject({
      asked: 1,
      ended: 'taken away',
    });
  });
});
