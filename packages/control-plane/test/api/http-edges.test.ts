/**
 * Requests at the limits of HTTP (API review, defects 5 and 7): each gets the status of its RFC and
 * a problem document.
 */
import { connect } from 'node:net';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createLogger } from '@berth/kit/log';
import {
  type Api,
  checkProblem,
  createApi,
  createProject,
  PASSWORD,
  PROJECT,
  rulesOf,
} from './harness.ts';

let api: Api;
let port = 0;
beforeAll(async () => {
  api = await createApi();
  port = Number(new URL(await api.listen()).port);
});
afterAll(() => api.close());

type Answer = { status: number; headers: string; body: string };

/** Sends bytes on a new connection and returns the answers until it closes. */
function exchange(...chunks: (string | Buffer)[]): Promise<Answer[]> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => {
      for (const chunk of chunks) socket.write(chunk);
    });
    let all = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => (all += chunk));
    socket.on('error', reject).on('close', () => resolve(answersIn(all)));
  });
}

function answersIn(text: string): Answer[] {
  return text
    .split(/(?=HTTP\/1\.1 \d{3})/)
    .filter((part) => part.startsWith('HTTP/1.1'))
    .map((part) => {
      const end = part.indexOf('\r\n\r\n');
      return {
        status: Number(part.slice(9, 12)),
        headers: part.slice(0, end).toLowerCase(),
        body: part.slice(end + 4),
      };
    });
}

const post = (path: string, body: string | Buffer, headers: Record<string, string> = {}): Buffer =>
  Buffer.concat([
    Buffer.from(
      `POST ${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${api.token('admin')}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n${Object.entries(
        headers,
      )
        .map(([name, value]) => `${name}: ${value}\r\n`)
        .join('')}\r\n`,
    ),
    Buffer.from(body),
  ]);

const codeOf = (answer: Answer | undefined): [number | undefined, unknown] => [
  answer?.status,
  answer === undefined || answer.body === ''
    ? 'an empty answer'
    : (JSON.parse(answer.body) as { code: string }).code,
];

describe('bytes that are not UTF-8', () => {
  test('are refused: a password that was sent as Latin-1 does not become another password', async () => {
    const body = Buffer.from(
      JSON.stringify({
        email: 'latin@example.com',
        role: 'viewer',
        password: `gr\u00fc\u00dfe-${PASSWORD}`,
      }),
      'latin1',
    );
    const reply = await api.server.inject({
      method: 'POST',
      url: '/api/users',
      headers: {
        'content-type': 'application/json',
        authorization: `Bearer ${api.token('admin')}`,
      },
      payload: body,
    });
    expect([reply.statusCode, reply.json<{ code: string }>().code]).toEqual([400, 'invalid_json']);
    expect(reply.json<{ detail: string }>().detail).toContain('UTF-8');
  });
  test('a byte order mark before JSON is refused (RFC 8259 section 8.1)', async () => {
    const reply = await api.call('createProject', {
      raw: `\ufeff${JSON.stringify({ ...PROJECT, name: 'bom', domain_prefix: 'bom' })}`,
    });
    expect([reply.status, reply.json['code']]).toEqual([400, 'invalid_json']);
  });
});

describe('valid JSON with a forbidden field name', () => {
  test.each([
    ['__proto__', '{"__proto__": {"x": 1}}'],
    ['constructor.prototype', '{"constructor": {"prototype": {"x": 1}}}'],
    ['deep inside', '{"env": {"__proto__": "x"}}'],
  ])('a forbidden name is a 422 that says so: %s', async (_what, raw) => {
    const reply = await api.call('createProject', { raw });
    expect([reply.status, reply.json['code']]).toEqual([422, 'validation']);
    expect(rulesOf(reply)).toEqual(['body:forbidden_name']);
  });
});

describe('content codings (RFC 9110 section 8.4)', () => {
  test('gzip gets 415, with the accepted coding', async () => {
    const [answer] = await exchange(
      post('/api/projects', gzipSync('{}'), { 'content-encoding': 'gzip', connection: 'close' }),
    );
    expect(codeOf(answer)).toEqual([415, 'unsupported_media_type']);
    expect(answer?.headers).toContain('accept-encoding: identity');
  });
  test('identity is accepted', async () => {
    const reply = await api.call('createProject', {
      body: { ...PROJECT, name: 'plain', domain_prefix: 'plain' },
      headers: { 'content-encoding': 'identity' },
    });
    expect(reply.status).toBe(201);
  });
});

describe('content negotiation (RFC 9110 section 12.5.1)', () => {
  test.each([
    ['application/json, text/event-stream;q=0.1', 'application/json'],
    ['text/event-stream;q=0, application/json', 'application/json'],
    ['*/*', 'application/json'],
    ['text/event-stream', 'text/event-stream'],
    ['text/event-stream, application/json;q=0.5', 'text/event-stream'],
    ['TEXT/EVENT-STREAM', 'text/event-stream'],
  ])('%s gets %s', async (accept, type) => {
    const project = await createProject(api, {
      name: `a${Math.random().toString(36).slice(2)}`,
      domain_prefix: `a${Math.random().toString(36).slice(2)}`,
    });
    const { json } = await api.call('createDeployment', { params: { id: project }, body: {} });
    const gone = new AbortController();
    const answer = await fetch(
      `http://127.0.0.1:${port}/api/deployments/${String(json['id'])}/logs`,
      {
        headers: { accept, authorization: `Bearer ${api.token('viewer')}` },
        signal: gone.signal,
      },
    );
    expect(answer.headers.get('content-type')).toContain(type);
    gone.abort();
  });
});

describe('requests that HTTP does not allow get a problem document', () => {
  test('HTTP/1.1 without Host: 400 (RFC 9112 section 3.2)', async () => {
    const [answer] = await exchange('GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n');
    expect(codeOf(answer)).toEqual([400, 'bad_request']);
    expect(answer?.body).toContain('Host');
  });
  test('HTTP/1.0 needs no Host', async () => {
    const [answer] = await exchange('GET /healthz HTTP/1.0\r\n\r\n');
    expect(answer?.status).toBe(200);
  });
  test('CONNECT: 405 (RFC 9110 section 9.3.6)', async () => {
    const [answer] = await exchange(
      'CONNECT example.com:443 HTTP/1.1\r\nhost: example.com:443\r\n\r\n',
    );
    expect(codeOf(answer)).toEqual([405, 'method_not_allowed']);
  });
  test('an unknown expectation: 417 (RFC 9110 section 10.1.1)', async () => {
    const [answer] = await exchange(
      post('/api/projects', '{}', { expect: 'a miracle', connection: 'close' }),
    );
    expect(codeOf(answer)).toEqual([417, 'expectation_failed']);
  });
  test('100-continue still works', async () => {
    const body = JSON.stringify({ ...PROJECT, name: 'patient', domain_prefix: 'patient' });
    const answers = await exchange(
      post('/api/projects', body, { expect: '100-continue', connection: 'close' }),
    );
    expect(answers.map((a) => a.status)).toEqual([100, 201]);
  });
  test('a method that the path does not support, also QUERY: 405 with Allow', async () => {
    for (const method of ['QUERY', 'PUT', 'TRACE', 'PROPFIND']) {
      const [answer] = await exchange(
        `${method} /api/projects HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`,
      );
      expect([method, ...codeOf(answer)]).toEqual([method, 405, 'method_not_allowed']);
      expect(answer?.headers).toContain('allow: get, head, post');
    }
  });
  test('headers that are too large: 431, with their own code', async () => {
    const [answer] = await exchange(
      `GET /healthz HTTP/1.1\r\nhost: x\r\nx: ${'a'.repeat(200_000)}\r\n\r\n`,
    );
    expect(codeOf(answer)).toEqual([431, 'headers_too_large']);
    expect(answer?.headers).not.toContain('clear-site-data');
    const [long] = await exchange(`GET /${'a'.repeat(200_000)} HTTP/1.1\r\nhost: x\r\n\r\n`);
    expect(codeOf(long)).toEqual([431, 'headers_too_large']);
    expect(long?.headers).not.toContain('clear-site-data');
  });
  test('cookies that are too large, which any project can set: 431, and the browser deletes them', async () => {
    const [answer] = await exchange(
      `GET / HTTP/1.1\r\nhost: x\r\ncookie: a=${'a'.repeat(200_000)}\r\n\r\n`,
    );
    expect(codeOf(answer)).toEqual([431, 'headers_too_large']);
    expect(answer?.headers).toContain('clear-site-data: "cookies"');
  });
});

describe('bytes after a request', () => {
  test('do not hide the answer to the request itself', async () => {
    const body = JSON.stringify({ ...PROJECT, name: 'trailing', domain_prefix: 'trailing' });
    const answers = await exchange(
      Buffer.concat([post('/api/projects', body), Buffer.from('garbage!\r\n\r\n')]),
    );
    expect(answers.map((a) => a.status)).toEqual([201, 400]);
    expect((await api.call('listProjects', {})).text).toContain('"trailing"');
  });
});

describe('numbers and flags in a query', () => {
  test.each(['0x10', '1e2', ' 5', '5 ', '+5', '5.0', '', '٥', '1_0'])(
    'limit=%j is refused: not a whole number',
    async (limit) => {
      const reply = await api.call('listProjects', { query: { limit } });
      expect([reply.status, ...rulesOf(reply)]).toEqual([422, 'limit:type']);
    },
  );
  test.each(['1', '0', 'TRUE', 'yes', ''])(
    'all=%j is refused: neither true nor false',
    async (all) => {
      const reply = await api.call('listDeviceTokens', { query: { all } });
      expect([reply.status, ...rulesOf(reply)]).toEqual([422, 'all:type']);
    },
  );
  test('a parameter that is given twice is refused', async () => {
    const reply = await api.server.inject({
      url: '/api/projects?limit=1&limit=2',
      headers: { authorization: `Bearer ${api.token('viewer')}` },
    });
    expect(reply.statusCode).toBe(422);
  });
  test('usual values are accepted', async () => {
    expect((await api.call('listProjects', { query: { limit: '5' } })).status).toBe(200);
    expect((await api.call('listDeviceTokens', { query: { all: 'false' } })).status).toBe(200);
  });
});

test.each([
  'https://git.example.com/shop.git?token=swordfish',
  'https://git.example.com/shop.git?',
  'ssh://git@git.example.com/shop.git?x=1',
])('a git_url with a query is refused, since it could carry a token: %s', async (git_url) => {
  const reply = await api.call('createProject', {
    body: { ...PROJECT, name: 'query', domain_prefix: 'query', git_url },
  });
  expect([reply.status, ...rulesOf(reply)]).toEqual([422, 'git_url:no_query']);
  expect(reply.text).not.toContain('swordfish'); // no hexadecimal word: a request id is hexadecimal
});

test('an answer to a broken request has the shape of RFC 9457', async () => {
  const [answer] = await exchange('HELLO\r\n\r\n');
  checkProblem({
    status: answer?.status ?? 0,
    headers: { 'content-type': /content-type: (.*)/.exec(answer?.headers ?? '')?.[1] },
    text: answer?.body ?? '',
    json: JSON.parse(answer?.body ?? '{}') as Record<string, unknown>,
  });
});

test('a NUL in a field that a route ignores is no error', async () => {
  const id = '0'.repeat(32);
  const body = { id, expires_at: new Date(Date.now() + 60_000).toISOString() };
  const read = await api.call('redeemCode', { body: { ...body, id: 'a\u0000' } });
  expect([read.status, read.json['code']]).toEqual([422, 'validation']);
  expect((await api.call('redeemCode', { body: { ...body, later: 'a\u0000' } })).status).toBe(204);
});

test('a stranger cannot fill the log or an answer with a long path or header', async () => {
  const lines: string[] = [];
  const log = createLogger({
    name: 'cp',
    level: 'info',
    format: 'json',
    destination: { write: (line) => void lines.push(line) },
  });
  const own = await createApi({ overrides: { log } });
  try {
    const path = `/${'a'.repeat(100_000)}`;
    const missing = await own.server.inject({ method: 'GET', url: path });
    expect(missing.statusCode).toBe(404);
    expect(missing.body.length).toBeLessThan(1_000);
    // A long path of a route finds its methods all the same.
    const wrong = await own.server.inject({
      method: 'PUT',
      url: `/api/projects/${'a'.repeat(90)}/deployments?token=x`,
    });
    expect([wrong.statusCode, wrong.headers['allow']]).toEqual([405, 'GET, HEAD, POST']);
    const odd = { 'content-type': `x/${'y'.repeat(10_000)}` };
    const typed = await own.server.inject({
      method: 'POST',
      url: '/api/auth/login',
      headers: odd,
      payload: 'x',
    });
    expect([typed.statusCode, typed.body.length < 1_000]).toEqual([415, true]);
    await expect.poll(() => lines.filter((line) => line.includes('"path"')).length).toBe(3);
    for (const line of lines) expect(line.length).toBeLessThan(1_000);
    expect(lines.join('')).toContain(`/${'a'.repeat(299)}… (100001 characters)`);
    expect(lines.join('')).not.toContain('token=x');
  } finally {
    await own.close();
  }
});

test.each(['/api/openapi.json', '/docs/json', '/docs/yaml'])(
  '%s has a tag and is compressed, and a known tag is 304 without a body',
  async (url) => {
    const get = (headers: Record<string, string>) =>
      api.server.inject({ method: 'GET', url, headers });
    const plain = await get({});
    expect([
      plain.statusCode,
      plain.headers['content-encoding'],
      plain.body.includes('/api/projects'),
    ]).toEqual([200, undefined, true]);
    const zipped = await get({ 'accept-encoding': 'br, gzip;q=0.8' });
    expect(zipped.headers).toMatchObject({
      'content-encoding': 'gzip',
      vary: 'accept-encoding',
      etag: plain.headers.etag,
    });
    expect(gunzipSync(zipped.rawPayload).toString()).toBe(plain.body);
    expect(zipped.rawPayload.length * 4).toBeLessThan(plain.rawPayload.length);
    expect(
      (await get({ 'accept-encoding': 'gzip;q=0, br' })).headers['content-encoding'],
    ).toBeUndefined();
    const known = await get({ 'if-none-match': String(plain.headers.etag) });
    expect([known.statusCode, known.body]).toEqual([304, '']);
  },
);
