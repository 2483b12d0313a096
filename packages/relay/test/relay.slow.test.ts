/**
 * The relay's server and store with a fake control plane: what the proxy gets, when, and after a
 * restart.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, get, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { silentLogger } from '@berth/kit/log';
import { openConfigStore } from '../src/config-store.ts';
import { createRelayServer } from '../src/server.ts';
import { followUpstream } from '../src/upstream.ts';

const configuration = (n: number): string =>
  JSON.stringify({ http: { routers: { [`r${n}`]: { rule: 'Host(`a`)' } } } });
const ends: (() => Promise<unknown>)[] = [];
let dir = '';
let answer: { status: number; body: string };
let controlPlane: Server;
let upstreamUrl = '';

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'berth-relay-'));
  ends.push(() => rm(dir, { recursive: true, force: true }));
  answer = { status: 200, body: configuration(1) };
  controlPlane = createServer(
    (_, response) =>
      void response.writeHead(answer.status, { connection: 'close' }).end(answer.body),
  );
  await new Promise<void>((resolve) => controlPlane.listen(0, '127.0.0.1', resolve));
  upstreamUrl = `http://127.0.0.1:${(controlPlane.address() as AddressInfo).port}`;
  ends.push(() => new Promise((resolve) => controlPlane.close(resolve)));
});
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

async function startRelay(at = upstreamUrl): Promise<{ url: string; stop(): Promise<void> }> {
  const store = await openConfigStore(dir, silentLogger());
  const upstream = followUpstream(at, store, silentLogger());
  const server = createRelayServer(store, upstream);
  const { port } = await server.listen({ host: '127.0.0.1', port: 0 });
  let stopped: Promise<void> | undefined;
  const stop = (): Promise<void> => (stopped ??= server.close().then(() => upstream.stop()));
  ends.push(stop);
  return { url: `http://127.0.0.1:${port}`, stop };
}
const ask = async (url: string, headers: Record<string, string> = {}, wait = 0) => {
  const response = await fetch(`${url}/api/traefik/config?wait=${wait}`, {
    headers: { connection: 'close', ...headers },
  });
  return {
    status: response.status,
    body: await response.text(),
    etag: response.headers.get('etag') ?? '',
    age: response.headers.get('x-berth-config-age'),
  };
};

test.each(['//[', 'http://[', '*'])(
  'an address that is none (%s) is refused, and the relay goes on',
  async (path) => {
    const { url } = await startRelay();
    const status = await new Promise<number | undefined>((resolve, reject) => {
      get(url, { path, agent: false }, (response) => {
        response.resume();
        resolve(response.statusCode);
      }).on('error', reject);
    });
    expect(status).toBe(404);
    await vi.waitFor(async () => expect(await ask(url)).toMatchObject({ status: 200 }));
  },
);

test('serves the control plane’s bytes, and holds a request with the current ETag until they change', async () => {
  const { url } = await startRelay();
  await vi.waitFor(async () =>
    expect(await ask(url)).toMatchObject({ status: 200, body: configuration(1), age: '0' }),
  );
  const { etag } = await ask(url);
  let answered = false;
  const held = ask(url, { 'if-none-match': etag }, 20).finally(() => (answered = true));
  expect(await ask(url, { 'if-none-match': etag })).toMatchObject({ status: 304, body: '' });
  expect(answered).toBe(false);
  answer = { status: 200, body: configuration(2) };
  expect(await held).toMatchObject({ status: 200, body: configuration(2) });
});

test('without a stored configuration it answers 503, and the proxy keeps its own', async () => {
  answer = { status: 503, body: '' };
  const { url } = await startRelay();
  expect(await ask(url, {}, 20)).toMatchObject({ status: 503 });
  expect((await fetch(`${url}/readyz`)).status).toBe(503);
});

test('started while the control plane is away, it serves the stored configuration with its age', async () => {
  const first = await startRelay();
  await vi.waitFor(async () => expect(await ask(first.url)).toMatchObject({ status: 200 }));
  await first.stop();
  const second = await startRelay('http://127.0.0.1:1');
  const answered = await ask(second.url);
  expect(answered).toMatchObject({ status: 200, body: configuration(1) });
  expect(Number(answered.age)).toBeGreaterThanOrEqual(0);
  const ready = await fetch(`${second.url}/readyz`);
  expect(ready.status).toBe(200);
  expect(await ready.json()).toMatchObject({
    status: 'ready',
    config_age_seconds: expect.any(Number),
  });
});

test.each([
  ['an error', { status: 503, body: 'away' }],
  ['an empty configuration, which would drop every route', { status: 200, body: '{}' }],
  ['an incomplete answer', { status: 200, body: '{"http":{"rou' }],
])('%s does not replace the good configuration', async (_, bad) => {
  const { url } = await startRelay();
  const controlPlaneOf = async (): Promise<unknown> =>
    ((await (await fetch(`${url}/readyz`)).json()) as Record<string, unknown>)['control_plane'];
  // The relay serves the configuration from memory a moment before it has saved it.
  await vi.waitFor(async () => expect(await controlPlaneOf()).toBe('answers'));
  answer = bad;
  await vi.waitFor(async () => expect(await controlPlaneOf()).not.toBe('answers'), {
    timeout: 5_000,
  });
  expect(await ask(url)).toMatchObject({ status: 200, body: configuration(1) });
  expect(await readFile(join(dir, 'traefik-config.json'), 'utf8')).toBe(configuration(1));
});

test('an incomplete file on disk is not served', async () => {
  await writeFile(join(dir, 'traefik-config.json'), '{"http":');
  const { url } = await startRelay('http://127.0.0.1:1');
  expect(await ask(url)).toMatchObject({ status: 503 });
});

test('/metrics has the age of the configuration and whether control plane and proxy are there; docs/metrics.md names each', async () => {
  const { url } = await startRelay();
  await vi.waitFor(async () => expect(await ask(url)).toMatchObject({ status: 200 }));
  const scrape = async (): Promise<string> =>
    (await fetch(`${url}/metrics`, { headers: { connection: 'close' } })).text();
  // The relay has the configuration a moment before it knows that the request succeeded.
  await vi.waitFor(async () => expect(await scrape()).toMatch(/^berth_relay_control_plane_ok 1$/m));
  const text = await scrape();
  expect(text).toMatch(/^berth_relay_config_age_seconds 0/m);
  const { etag } = await ask(url);
  const held = ask(url, { 'if-none-match': etag }, 1);
  await vi.waitFor(async () =>
    expect(await scrape()).toMatch(/^berth_relay_proxy_fetch_age_seconds 0$/m),
  );
  await held;
  answer = { status: 503, body: '' };
  await vi.waitFor(
    async () => expect(await scrape()).toMatch(/^berth_relay_control_plane_ok 0$/m),
    { timeout: 8_000 },
  );
  const docs = await readFile(join(import.meta.dirname, '../../../docs/metrics.md'), 'utf8');
  const table = /^\| metric of the relay .*\n(?:\|.*\n?)+/m.exec(docs)?.[0] ?? '';
  const named = [...table.matchAll(/berth_\w+/g)].map((m) => m[0]);
  expect(named.toSorted()).toEqual(
    [...text.matchAll(/^# TYPE (berth_\S+) /gm)].map((m) => m[1] ?? '').toSorted(),
  );
});
