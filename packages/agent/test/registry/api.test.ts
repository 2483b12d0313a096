/**
 * The registry's API as a clean-up uses it: answers that a real registry gives rarely, and none at
 * all.
 */
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createRegistryApi, type RegistryApi } from '../../src/registry/api.ts';

/** null: no answer ever comes. */
type Reply = { status: number; headers?: Record<string, string>; body?: unknown } | null;
const signal = new AbortController().signal;
const digest = (n: number): string => `sha256:${String(n).padStart(64, '0')}`;

async function registry(
  reply: (what: string, request: IncomingMessage, url: string) => Reply,
): Promise<{ url: string; asked: string[] }> {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    const what = `${request.method} ${request.url}`;
    asked.push(what);
    const answer = reply(what, request, `http://${request.headers.host}`);
    if (answer === null) return;
    response
      .writeHead(answer.status, answer.headers)
      .end(answer.body === undefined ? '' : JSON.stringify(answer.body));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}
const apiOf = (url: string | undefined, address = 'only.the.engine.test:5000'): RegistryApi =>
  createRegistryApi({
    settings: () =>
      ({ registry_addr: address, registry_user: 'berth', registry_password: 'sesame' }) as never,
    isInsecure: async () => true,
    url,
    answerMs: 200,
  });

describe('the mode of the registry', () => {
  const upload = {
    status: 202,
    headers: { location: '/v2/berth-clean-up/blobs/uploads/u1?_state=x' },
  };
  it.each<[string, Reply, string]>([
    ['an upload that may begin', upload, 'writable'],
    ['405', { status: 405 }, 'read-only'],
    ['503', { status: 503 }, 'down'],
    ['a redirect', { status: 307, headers: { location: 'https://elsewhere.test/' } }, 'down'],
    ['no answer', null, 'down'],
  ])('%s', async (_, reply, mode) => {
    const { url, asked } = await registry((what) =>
      what.startsWith('POST') ? reply : { status: 204 },
    );
    expect(await apiOf(url).mode(signal)).toBe(mode);
    expect(asked.slice(1)).toEqual(
      mode === 'writable' ? ['DELETE /v2/berth-clean-up/blobs/uploads/u1?_state=x'] : [],
    );
  });
  it('nobody listens', async () => {
    const { url } = await registry(() => null);
    expect(await apiOf(url.replace(/\d+$/, '1')).mode(signal)).toBe('down');
  });
});

it('a registry without an answer is unreachable, and so is its token server', async () => {
  const silent = await registry(() => null);
  await expect(apiOf(silent.url).digestOf('shop', 'v1', signal)).rejects.toMatchObject({
    code: 'registry_unreachable',
  });
  const challenge = (url: string): Reply => ({
    status: 401,
    headers: { 'www-authenticate': `Bearer realm="${url}/token",service="r"` },
  });
  const withTokens = await registry((what, _, url) =>
    what.startsWith('GET /token') ? null : challenge(url),
  );
  await expect(apiOf(withTokens.url).digestOf('shop', 'v1', signal)).rejects.toMatchObject({
    code: 'registry_unreachable',
  });
  expect(withTokens.asked.at(-1)).toContain('GET /token');
});

it('a tag that does not exist has no digest, and an image that does not exist is no error', async () => {
  const { url, asked } = await registry(() => ({ status: 404 }));
  const api = apiOf(url);
  expect(await api.digestOf('shop', 'gone', signal)).toBeNull();
  expect(await api.has('shop', digest(1), signal)).toBe(false);
  expect(await api.remove('shop', digest(1), new Set(), signal)).toBe(false);
  expect(asked).not.toContain(`DELETE /v2/shop/manifests/${digest(1)}`);
});

it('a tag whose image is not named could be an image that must stay, so it is an error', async () => {
  for (const reply of [{ status: 200 }, { status: 429 }]) {
    const { url } = await registry(() => reply);
    await expect(apiOf(url).digestOf('shop', 'v1', signal)).rejects.toMatchObject({
      code: 'registry_refused',
    });
  }
});

it('deletes an index before its parts, and no part or image that stays', async () => {
  const index = {
    status: 200,
    headers: { 'content-type': 'application/vnd.oci.image.index.v1+json' },
  };
  const body = { manifests: [{ digest: digest(2) }, { digest: digest(3) }] };
  const { url, asked } = await registry((what) =>
    what.startsWith('GET') ? { ...index, body } : { status: 202 },
  );
  const api = apiOf(url);
  expect(await api.remove('shop', digest(1), new Set([digest(3)]), signal)).toBe(true);
  expect(await api.remove('shop', digest(3), new Set([digest(3)]), signal)).toBe(false);
  expect(asked).toEqual([
    `GET /v2/shop/manifests/${digest(1)}`,
    `DELETE /v2/shop/manifests/${digest(1)}`,
    `DELETE /v2/shop/manifests/${digest(2)}`,
  ]);
});

it('asks at REGISTRY_URL, else at REGISTRY_ADDR, with the login', async () => {
  const logins: (string | undefined)[] = [];
  const { url, asked } = await registry((_, request) => {
    logins.push(request.headers.authorization);
    return { status: 404 };
  });
  await apiOf(url).has('team/shop', digest(1), signal);
  await apiOf(undefined, `${url.replace('http://', '')}/team`).has('team/shop', digest(1), signal);
  expect(asked).toEqual([
    `HEAD /v2/team/shop/manifests/${digest(1)}`,
    `HEAD /v2/team/shop/manifests/${digest(1)}`,
  ]);
  expect(new Set(logins)).toEqual(
    new Set([`Basic ${Buffer.from('berth:sesame').toString('base64')}`]),
  );
});

it('tells the layers of an image, and of an index those for this machine', async () => {
  const architecture = process.arch === 'x64' ? 'amd64' : process.arch;
  const layers = [{ digest: digest(8), size: 3_000 }];
  const index = {
    manifests: [
      { digest: digest(3), platform: { os: 'linux', architecture: 's390x' } },
      { digest: digest(2), platform: { os: 'linux', architecture } },
      { digest: digest(4), platform: { os: 'unknown', architecture: 'unknown' } },
    ],
  };
  const bodies: Record<string, unknown> = {
    v1: index,
    [digest(2)]: { layers },
    v2: { manifests: index.manifests.slice(0, 1) },
  };
  const { url } = await registry((what) => {
    const body = bodies[what.split('/').at(-1) ?? ''];
    return body === undefined ? { status: 404 } : { status: 200, body };
  });
  const api = apiOf(url);
  expect(await api.layersOf('shop', digest(2), signal)).toEqual(layers);
  expect(await api.layersOf('shop', 'v1', signal)).toEqual(layers);
  expect(await api.layersOf('shop', 'v2', signal)).toBeNull();
  expect(await api.layersOf('shop', 'gone', signal)).toBeNull();
});
