/** Malformed requests, and the form of every error. */
import { connect } from 'node:net';
import { ERRORS, NEXT_STEPS } from '@berth/wire/errors';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Api, checkProblem, createApi, PROJECT, rulesOf } from './harness.ts';

let api: Api;
let port = 0;
beforeAll(async () => {
  api = await createApi();
  port = Number(new URL(await api.listen()).port);
});
afterAll(() => api.close());

describe('bodies', () => {
  test.each([
    ['not JSON', '{"name": ', 400, 'invalid_json'],
    ['an empty body', '', 400, 'invalid_json'],
    ['two documents', '{}{}', 400, 'invalid_json'],
    ['NaN', '{"container_port": NaN}', 400, 'invalid_json'],
    ['a field named __proto__', '{"__proto__": {"x": 1}}', 422, 'validation'],
    ['a list', '[]', 422, 'validation'],
    ['null', 'null', 422, 'validation'],
    ['text', '"shop"', 422, 'validation'],
    ['a number', '7', 422, 'validation'],
    ['one byte more than 1 MiB', `{"name":"${'a'.repeat(1_048_577 - 11)}"}`, 413, 'body_too_large'],
    ['1 MiB', `{"name":"${'a'.repeat(1_048_576 - 11)}"}`, 422, 'validation'],
  ])('%s', async (_what, raw, status, code) => {
    const reply = await api.call('createProject', { raw });
    expect([reply.status, reply.json['code']]).toEqual([status, code]);
  });
  test('a body that is not JSON gets 415', async () => {
    for (const type of [
      'text/plain',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'nonsense',
    ]) {
      const reply = await api.call('createProject', {
        raw: JSON.stringify(PROJECT),
        headers: { 'content-type': type },
      });
      expect([reply.status, reply.json['code']]).toEqual([415, 'unsupported_media_type']);
    }
  });
  test('JSON with a charset is accepted', async () => {
    const reply = await api.call('createProject', {
      raw: JSON.stringify(PROJECT),
      headers: { 'content-type': 'application/json; charset=utf-8' },
    });
    expect(reply.status).toBe(201);
  });
  test('of several hundred errors the first 100 are returned', async () => {
    const reply = await api.call('createProject', {
      body: Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`x${i}`, 1])),
    });
    expect(rulesOf(reply)).toHaveLength(100);
  });
  test('if a body is optional, an empty body counts as absent', async () => {
    for (const headers of [{}, { 'content-type': 'application/json' }]) {
      const reply = await api.call('createDeployment', { params: { id: 'nobody' }, headers });
      expect(reply.json['code']).toBe('not_found');
    }
    for (const headers of [{}, { 'content-type': 'application/json' }]) {
      const reply = await api.call('cancelDeployment', { params: { id: 'nobody' }, headers });
      expect(reply.json['code']).toBe('not_found');
    }
  });
});

describe('requests', () => {
  test.each(['/api/projects/%zz', '/%'])('the path %s cannot be decoded', async (url) => {
    const reply = await api.server.inject({ url });
    expect([reply.statusCode, reply.json<{ code: string }>().code]).toEqual([400, 'bad_request']);
  });
  test.each(['a b', 'ü', '..', 'x'.repeat(65), 'x'.repeat(300), "'; drop table projects"])(
    'an invalid id gets 404: %s',
    async (id) => {
      const reply = await api.server.inject({
        url: `/api/projects/${encodeURIComponent(id)}`,
        headers: { authorization: `Bearer ${api.token('viewer')}` },
      });
      expect([reply.statusCode, reply.json<{ code: string }>().code]).toEqual([404, 'not_found']);
    },
  );
  test('the error has the request id, which is the one of the caller if it is valid', async () => {
    const mine = await api.call('getProject', {
      params: { id: 'x' },
      headers: { 'x-request-id': 'abc-1.2' },
    });
    expect([mine.headers['x-request-id'], mine.json['request_id']]).toEqual(['abc-1.2', 'abc-1.2']);
    for (const bad of ['a b', 'x'.repeat(101), '"', '']) {
      const reply = await api.call('getProject', {
        params: { id: 'x' },
        headers: { 'x-request-id': bad },
      });
      expect(reply.headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
    }
  });
  test('headers of 128 KiB are accepted; bytes that are not HTTP get 400', async () => {
    const big = await fetch(`http://127.0.0.1:${port}/healthz`, {
      headers: Object.fromEntries(
        Array.from({ length: 16 }, (_, i) => [`x-big-${i}`, 'a'.repeat(8_150)]),
      ),
    });
    expect(big.status).toBe(200);
    expect(await raw(port, `GET / HTTP/1.1\r\nx: ${'a'.repeat(200_000)}\r\n\r\n`)).toMatch(
      /^HTTP\/1.1 431 [^]*problem\+json[^]*128 KiB/,
    );
    expect(await raw(port, 'HELLO\r\n\r\n')).toMatch(/^HTTP\/1.1 400 [^]*problem\+json/);
  });
});

test('an unknown error is logged and answered as internal, without its message', async () => {
  const other = await createApi({
    stores: (real) => ({
      ...real,
      projects: {
        ...real.projects,
        list: () => Promise.reject(new Error('password=hunter2 in /etc/db')),
      },
    }),
  });
  const reply = await other.call('listProjects');
  expect([reply.status, reply.json['code']]).toEqual([500, 'internal']);
  expect(reply.text).not.toMatch(/hunter2|\/etc\/db|at .*\.ts/);
  expect(reply.json['detail']).toContain(reply.headers['x-request-id']);
  await other.close();
});

test('the type of every problem refers to the page that explains it', async () => {
  const page = await api.server.inject({ url: '/docs/errors' });
  expect([page.statusCode, page.headers['content-type']]).toEqual([
    200,
    'text/html; charset=utf-8',
  ]);
  for (const code of Object.keys(ERRORS)) expect(page.body).toContain(`id="${code}"`);
  // The dashboard leads here from a failed deployment.
  const rows = page.body.split('<tr');
  for (const [code, step] of Object.entries(NEXT_STEPS))
    expect(
      rows.filter((row) => row.includes(`id="failure-${code}"`) && row.includes(step)),
    ).toHaveLength(1);
  const { type } = (await api.call('getProject', { params: { id: 'x' } })).json;
  expect(new URL(String(type), 'http://host/api/projects/x').href).toBe(
    'http://host/docs/errors#not_found',
  );
});

test('every problem has the shape of RFC 9457', async () => {
  const reply = await api.server.inject({ url: '/nothing' });
  checkProblem({
    status: reply.statusCode,
    headers: reply.headers,
    text: reply.body,
    json: reply.json(),
  });
  expect(reply.json()).toEqual({
    type: '/docs/errors#not_found',
    title: 'The resource does not exist',
    status: 404,
    detail: 'the path /nothing does not exist',
    unknown_path: true,
    code: 'not_found',
    request_id: reply.headers['x-request-id'],
  });
});

const raw = (to: number, text: string): Promise<string> =>
  new Promise((resolve, reject) => {
    const socket = connect(to, '127.0.0.1', () => socket.write(text));
    let all = '';
    socket.setEncoding('utf8').on('data', (chunk: string) => (all += chunk));
    socket.on('error', reject).on('close', () => resolve(all));
  });
