/** What is no good as a request at all, and how every error looks. */
import { connect } from 'node:net';
import { ERRORS } from '@berth/wire/errors';
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
    ['no text at all', '', 400, 'invalid_json'],
    ['two documents', '{}{}', 400, 'invalid_json'],
    ['NaN', '{"container_port": NaN}', 400, 'invalid_json'],
    ['a poisoned prototype', '{"__proto__": {"x": 1}}', 422, 'validation'],
    ['a list', '[]', 422, 'validation'],
    ['null', 'null', 422, 'validation'],
    ['text', '"shop"', 422, 'validation'],
    ['a number', '7', 422, 'validation'],
    ['one byte more than a MiB', `{"name":"${'a'.repeat(1_048_577 - 11)}"}`, 413, 'body_too_large'],
    ['a MiB', `{"name":"${'a'.repeat(1_048_576 - 11)}"}`, 422, 'validation'],
  ])('%s', async (_what, raw, status, code) => {
    const reply = await api.call('createProject', { raw });
    expect([reply.status, reply.json['code']]).toEqual([status, code]);
  });
  test('a body of another kind is 415', async () => {
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'nonsense']) {
      const reply = await api.call('createProject', { raw: JSON.stringify(PROJECT), headers: { 'content-type': type } });
      expect([reply.status, reply.json['code']]).toEqual([415, 'unsupported_media_type']);
    }
  });
  test('JSON with a charset is JSON', async () => {
    const reply = await api.call('createProject', {
      raw: JSON.stringify(PROJECT),
      headers: { 'content-type': 'application/json; charset=utf-8' },
    });
    expect(reply.status).toBe(201);
  });
  test('hundreds of errors are answered with the first hundred', async () => {
    const reply = await api.call('createProject', { body: Object.fromEntries(Array.from({ length: 500 }, (_, i) => [`x${i}`, 1])) });
    expect(rulesOf(reply)).toHaveLength(100);
  });
  test('where a body may be left out, an empty one is none', async () => {
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
  test.each(['/api/projects/%zz', '/%'])('%s cannot be decoded', async (url) => {
    const reply = await api.server.inject({ url });
    expect([reply.statusCode, reply.json<{ code: string }>().code]).toEqual([400, 'bad_request']);
  });
  test.each(['a b', 'ü', '..', 'x'.repeat(65), 'x'.repeat(300), "'; drop table projects"])(
    'an id that cannot be one is not there: %s',
    async (id) => {
      const reply = await api.server.inject({
        url: `/api/projects/${encodeURIComponent(id)}`,
        headers: { authorization: `Bearer ${api.token('viewer')}` },
      });
      expect([reply.statusCode, reply.json<{ code: string }>().code]).toEqual([404, 'not_found']);
    },
  );
  test('the request id is the caller’s where it is sane, and stands in the error', async () => {
    const mine = await api.call('getProject', { params: { id: 'x' }, headers: { 'x-request-id': 'abc-1.2' } });
    expect([mine.headers['x-request-id'], mine.json['request_id']]).toEqual(['abc-1.2', 'abc-1.2']);
    for (const bad of ['a b', 'x'.repeat(101), '"', '']) {
      const reply = await api.call('getProject', { params: { id: 'x' }, headers: { 'x-request-id': bad } });
      expect(reply.headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/);
    }
  });
  test('128 KiB of headers are read; bytes that are no HTTP are told so', async () => {
    const big = await fetch(`http://127.0.0.1:${port}/healthz`, {
      headers: Object.fromEntries(Array.from({ length: 16 }, (_, i) => [`x-big-${i}`, 'a'.repeat(8_150)])),
    });
    expect(big.status).toBe(200);
    expect(await raw(port, `GET / HTTP/1.1\r\nx: ${'a'.repeat(200_000)}\r\n\r\n`)).toMatch(/^HTTP\/1.1 431 [^]*problem\+json[^]*128 KiB/);
    expect(await raw(port, 'HELLO\r\n\r\n')).toMatch(/^HTTP\/1.1 400 [^]*problem\+json/);
  });
});

test('what is unknown is internal: logged, and nothing of it told', async () => {
  const other = await createApi({
    stores: (real) => ({ ...real, projects: { ...real.projects, list: () => Promise.reject(new Error('password=hunter2 in /etc/db')) } }),
  });
  const reply = await other.call('listProjects');
  expect([reply.status, reply.json['code']]).toEqual([500, 'internal']);
  expect(reply.text).not.toMatch(/hunter2|\/etc\/db|at .*\.ts/);
  expect(reply.json['detail']).toContain(reply.headers['x-request-id']);
  await other.close();
});

test('the type of every problem resolves to the page that explains it', async () => {
  const page = await api.server.inject({ url: '/docs/errors' });
  expect([page.statusCode, page.headers['content-type']]).toEqual([200, 'text/html; charset=utf-8']);
  for (const code of Object.keys(ERRORS)) expect(page.body).toContain(`id="${code}"`);
  const { type } = (await api.call('getProject', { params: { id: 'x' } })).json;
  expect(new URL(String(type), 'http://host/api/projects/x').href).toBe('http://host/docs/errors#not_found');
});

test('every problem has the shape of RFC 9457', async () => {
  const reply = await api.server.inject({ url: '/nothing' });
  checkProblem({ status: reply.statusCode, headers: reply.headers, text: reply.body, json: reply.json() });
  expect(reply.json()).toEqual({
    type: '/docs/errors#not_found',
    title: 'The resource does not exist',
    status: 404,
    detail: 'the path /nothing does not exist',
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
