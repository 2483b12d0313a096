/** Push checks: what registries answer to a login that may push, and to one that may not. */
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished, test } from 'vitest';
import { listsInsecure } from '../../src/engine/insecure-registries.ts';
import { createPushAccess, untilRefused } from '../../src/build/push-access.ts';
import { tokenUrl } from '../../src/registry/token-url.ts';

type Reply = { status: number; headers?: Record<string, string>; body?: unknown };
async function registry(reply: (request: IncomingMessage, at: string) => Reply) {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    const { status, headers, body } = reply(request, `http://${request.headers.host}`);
    request.resume();
    response
      .writeHead(status, { 'content-type': 'application/json', ...headers })
      .end(typeof body === 'string' ? body : JSON.stringify(body));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}
const DENIED = {
  errors: [{ code: 'DENIED', message: 'requested access to the resource is denied' }],
};
const never = new AbortController().signal;
const login = (): { registry_user: string; registry_password: string } => ({
  registry_user: 'berth',
  registry_password: 'sesame',
});
/** The fake registries use plain http, like registries that the engine lists as insecure. */
const access = createPushAccess(login, async () => true);
const BASIC = `Basic ${Buffer.from('berth:sesame').toString('base64')}`;
const upload = { status: 202, headers: { location: '/v2/app/blobs/uploads/u1' } };

it.each<[string, (r: IncomingMessage) => Reply, RegExp | null]>([
  [
    'an accepted upload is no refusal',
    ({ method }) => (method === 'POST' || method === 'PATCH' ? upload : { status: 204 }),
    null,
  ],
  [
    'a refused upload is a refusal',
    () => ({ status: 403, body: DENIED }),
    /status 403 \(DENIED requested access/,
  ],
  [
    'wrong credentials are a refusal',
    () => ({ status: 401, headers: { 'www-authenticate': 'Basic realm="r"' }, body: 'no' }),
    /status 401 \(no\)/,
  ],
  [
    'refused content is a refusal',
    ({ method }) => (method === 'POST' ? upload : { status: 403, body: DENIED }),
    /status 403/,
  ],
  ['a server error is no refusal', () => ({ status: 503 }), null],
])('%s', async (_, reply, expected) => {
  const { address } = await registry(reply);
  const said = await access(`${address}/app`, never);
  if (expected === null) expect(said).toBeNull();
  else expect(said).toMatch(expected);
});

it('sends the login, and cancels the upload', async () => {
  const logins: (string | undefined)[] = [];
  const { address, asked } = await registry((request) => {
    logins.push(request.headers.authorization);
    return request.method === 'DELETE' ? { status: 204 } : upload;
  });
  await access(`${address}/app`, never);
  expect(asked).toEqual([
    'POST /v2/app/blobs/uploads/',
    'PATCH /v2/app/blobs/uploads/u1',
    'DELETE /v2/app/blobs/uploads/u1',
  ]);
  expect(new Set(logins)).toEqual(new Set([BASIC]));
});

it.each([
  ['returns a valid token', 'good', null],
  ['returns an invalid token', 'bad', /status 401/],
  ['refuses a token', '', /status 403/],
])('a token server that %s', async (_, token, expected) => {
  const { address, asked } = await registry((request, at) => {
    if (request.url?.startsWith('/token') === true)
      return token === '' ? { status: 403 } : { status: 200, body: { token } };
    if (request.headers.authorization === 'Bearer good')
      return request.method === 'DELETE' ? { status: 204 } : upload;
    return {
      status: 401,
      headers: { 'www-authenticate': `Bearer realm="${at}/token",service="reg"` },
    };
  });
  const said = await access(`${address}/app`, never);
  if (expected === null) expect(said).toBeNull();
  else expect(said).toMatch(expected);
  expect(asked).toContain('GET /token?service=reg&scope=repository%3Aapp%3Apull%2Cpush');
});

it('the answer is unknown for an unreachable registry and for Docker Hub', async () => {
  expect(await access('127.0.0.1:9/app', never)).toBeNull();
  expect(await access('somebody/app', never)).toBeNull();
});

test('two refusals in a row count as refused, one does not', async () => {
  const answers = ['no', null, 'no', 'never'];
  let asked = 0;
  const ask = async (): Promise<string | null> => answers[asked++] ?? null;
  const ended = new AbortController();
  const first = untilRefused(ask, ended.signal, 1);
  await expect.poll(() => asked).toBe(2);
  ended.abort(new Error('the push has ended'));
  await expect(first).rejects.toThrow('the push has ended');
  expect(await untilRefused(ask, never, 1)).toBe('never');
});

test('a registry that the engine does not list as insecure gets no request over plain http', async () => {
  const { address, asked } = await registry(() => ({ status: 403, body: DENIED }));
  const strict = createPushAccess(login, async () => false);
  expect(await strict(`${address}/app`, never)).toBeNull();
  expect(asked).toEqual([]);
});

test('a registry over https cannot redirect the login to a token server over plain http', async () => {
  expect(() =>
    tokenUrl('Bearer realm="http://tokens.example/t"', 'app', 'https://registry.example'),
  ).toThrow('plain http');
  expect(
    tokenUrl('Bearer realm="http://127.0.0.1:5000/t"', 'app', 'http://127.0.0.1:5000'),
  ).toContain('http://127.0.0.1:5000/t');
});

test.each([
  ['10.1.2.3:5000', true],
  ['127.0.0.1:5000', true],
  ['localhost:5000', true],
  ['[::1]:5000', true],
  ['10.2.2.3:5000', false],
  ['plain.example:5000', true],
  ['plain.example', false],
  ['secure.example:5000', false],
])('listsInsecure(%s) is %s', async (host, expected) => {
  const config = {
    InsecureRegistryCIDRs: ['127.0.0.0/8', '::1/128', '10.1.0.0/16'],
    IndexConfigs: {
      'plain.example:5000': { Secure: false },
      'docker.io': { Secure: true },
      'secure.example:5000': { Secure: true },
    },
  };
  expect(
    await listsInsecure(config, host, async (name) => (name === 'localhost' ? ['127.0.0.1'] : [])),
  ).toBe(expected);
});
