/**
 * The configuration of the proxy on real connections: exact bytes, held by ETag or by connection,
 * 503 when in doubt.
 */
import { createHash } from 'node:crypto';
import { Agent, type IncomingMessage, request } from 'node:http';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { PublishedRoute } from '../../src/domain/routes/route-stores.ts';
import { type Api, createApi, rulesOf } from './harness.ts';

let api: Api;
let base = '';
let routes: PublishedRoute[] = [];
let broken = false;
beforeAll(async () => {
  api = await createApi({
    stores: (real) => ({
      ...real,
      routes: {
        all: () => (broken ? Promise.reject(new Error('no database')) : Promise.resolve(routes)),
      },
    }),
  });
  base = await api.listen();
});
afterAll(() => api.close());

let proxy: Agent;
beforeEach(async () => {
  proxy = new Agent({ keepAlive: true, maxSockets: 1 });
  routes = [];
  await api.source.refresh();
});
afterEach(() => proxy.destroy());

const route = (name: string): PublishedRoute => ({
  project_id: `p-${name}`,
  deployment_id: `d-${name}`,
  node_id: 'n',
  domain_prefix: name,
  host_ip: '10.0.0.7',
  host_port: 40_000,
  published_at: 0,
  project_name: name,
  auth_required: false,
});

type Got = { status: number; headers: IncomingMessage['headers']; text: string; ms: number };
function get(query = '', headers: Record<string, string> = {}, agent: Agent = proxy): Promise<Got> {
  const started = performance.now();
  return new Promise((resolve, reject) => {
    const r = request(`${base}/api/traefik/config${query}`, { agent, headers }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          text,
          ms: performance.now() - started,
        }),
      );
    });
    r.on('error', reject).end();
  });
}
async function publish(...names: string[]): Promise<void> {
  routes = names.map(route);
  await api.source.refresh();
}

test('the answer has exactly the hashed bytes, as JSON', async () => {
  await publish('shop');
  const got = await get();
  const { bytes, hash } = api.source.current();
  expect([got.status, got.text, got.headers['etag'], got.headers['content-type']]).toEqual([
    200,
    bytes,
    `"${hash}"`,
    'application/json; charset=utf-8',
  ]);
  expect(Number(got.headers['content-length'])).toBe(Buffer.byteLength(bytes));
  expect(JSON.parse(got.text)).toHaveProperty('http.routers.shop');
  expect(
    createHash('sha256')
      .update((await get()).text)
      .digest('hex'),
  ).toBe(createHash('sha256').update(bytes).digest('hex'));
});

test('without `wait` every request is answered at once, also a repeated one', async () => {
  expect((await get()).status).toBe(200);
  expect((await get()).status).toBe(200);
});

// A request that is held without reason lasts for 50 s: longer than the time limit of a test.
describe('held by the connection (Traefik sends no ETag)', () => {
  test('the first request is answered immediately; a later one is held until the bytes change', async () => {
    const first = await get('?wait=50');
    const held = get('?wait=50');
    await expect
      .poll(async () => (await api.call('metrics')).text)
      .toContain('berth_http_requests_held{kind="config"} 1');
    await publish('shop');
    const second = await held;
    expect(second.text).not.toBe(first.text);
    await expect
      .poll(async () => (await api.call('metrics')).text)
      .toContain('berth_http_requests_held{kind="config"} 0');
    expect(second.text).toBe(api.source.current().bytes);
  });
  test('a change between two requests is answered at once', async () => {
    await get('?wait=50');
    await publish('shop');
    expect((await get('?wait=50')).text).toBe(api.source.current().bytes);
  });
  test('after the wait time the same bytes are sent again', async () => {
    const first = await get('?wait=0.4');
    const second = await get('?wait=0.4');
    expect([second.status, second.text]).toEqual([200, first.text]);
    expect(second.ms).toBeGreaterThan(380);
  });
  test('the first request on another connection is answered at once, as for a proxy that has just started', async () => {
    await get('?wait=50');
    const other = new Agent({ keepAlive: true });
    expect((await get('?wait=50', {}, other)).text).toBe(api.source.current().bytes);
    other.destroy();
  });
  test('a HEAD request does not count as a fetch by the proxy', async () => {
    await publish('headed');
    const head = await api.server.inject({ method: 'HEAD', url: '/api/traefik/config' });
    expect([head.statusCode, head.body, api.source.servedAt()]).toEqual([200, '', null]);
  });
});

describe('held by the ETag', () => {
  test('gets 304 after the wait time, 200 after a change, and an immediate answer to another ETag', async () => {
    const { etag } = (await get()).headers as { etag: string };
    expect((await get('?wait=30', { 'if-none-match': '"other"' })).status).toBe(200);
    const still = await get('?wait=0.3', { 'if-none-match': etag }, new Agent());
    expect([still.status, still.text, still.ms > 280]).toEqual([304, '', true]);
    expect((await get('', { 'if-none-match': etag })).status).toBe(304);
    const held = get('?wait=30', { 'if-none-match': etag });
    await expect
      .poll(async () => (await api.call('metrics')).text)
      .toContain('berth_http_requests_held{kind="config"} 1');
    await publish('shop');
    expect((await held).status).toBe(200);
  });
});

test('the time at which the proxy fetched the configuration is recorded', async () => {
  await publish('served');
  expect(api.source.servedAt()).toBeNull();
  await get();
  await expect.poll(() => api.source.servedAt()).not.toBeNull();
});

test('unknown routes get 503, so the proxy keeps its configuration; /readyz fails too', async () => {
  await publish('shop');
  broken = true;
  await expect(api.source.refresh()).rejects.toThrow('no database');
  expect((await get()).status).toBe(200);
  api.pass(11_000);
  const got = await get();
  expect([got.status, JSON.parse(got.text)]).toMatchObject([503, { code: 'routes_unknown' }]);
  const ready = await api.call('readyz');
  expect([ready.status, ready.json['status']]).toEqual([503, 'not_ready']);
  broken = false;
  await api.source.refresh();
  expect((await get()).status).toBe(200);
  expect((await api.call('readyz')).status).toBe(200);
});

test.each([
  ['?wait=61', 'wait:maximum'],
  ['?wait=x', 'wait:type'],
  ['?wait=-1', 'wait:minimum'],
])('%s is 422', async (query, rule) => {
  const got = await get(query);
  expect([
    got.status,
    rulesOf({
      status: got.status,
      headers: {},
      text: got.text,
      json: JSON.parse(got.text) as Record<string, unknown>,
    }),
  ]).toEqual([422, [rule]]);
});

test('closing the server answers held requests at once and refuses new ones', async () => {
  const other = await createApi();
  const address = await other.listen();
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const ask = (): Promise<number> =>
    new Promise((resolve, reject) => {
      request(`${address}/api/traefik/config?wait=50`, { agent }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode ?? 0));
      })
        .on('error', reject)
        .end();
    });
  expect(await ask()).toBe(200);
  const held = ask();
  await expect
    .poll(async () => (await other.call('metrics')).text)
    .toContain('berth_http_requests_held{kind="config"} 1');
  await other.close();
  expect(await held).toBe(200);
  agent.destroy();
});
