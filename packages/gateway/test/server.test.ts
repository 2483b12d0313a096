/** Properties that all answers of the gateway share. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { BASE, type Running, startGateway } from './core-support.ts';

let berth: Running;
beforeAll(async () => {
  berth = await startGateway();
});
afterAll(() => berth.stop());

it.each([
  ['/nothing', 404, 'not_found'],
  ['/_oauth/nothing', 404, 'not_found'],
  ['/%zz', 400, 'bad_request'],
  [`/${'x'.repeat(200_000)}`, 431, 'bad_request'],
])('%.20s is a problem document', async (path, status, code) => {
  const reply = await berth.get(path);
  expect(reply.status).toBe(status);
  expect(reply.headers['content-type']).toMatch(/^application\/problem\+json/);
  expect(JSON.parse(reply.body)).toMatchObject({ code });
});

it('headers above the limit get 431 on every path', async () => {
  for (const path of ['/healthz', '/_oauth/userinfo', '/verify?project=p1'])
    expect((await berth.get(path, { 'X-Big': 'x'.repeat(300_000) })).status, path).toBe(431);
});

it('431 for too many cookies deletes them; a link to a long path does not', async () => {
  for (const path of ['/_oauth/login', '/_oauth/logout', '/verify?project=p1']) {
    expect(
      (await berth.get(path, { Cookie: `a=${'x'.repeat(300_000)}` })).headers['clear-site-data'],
      path,
    ).toBe('"cookies"');
    expect(
      (await berth.get(path, { 'X-Big': 'x'.repeat(300_000) })).headers,
      path,
    ).not.toHaveProperty('clear-site-data');
  }
  expect((await berth.get(`/${'x'.repeat(200_000)}`)).headers).not.toHaveProperty(
    'clear-site-data',
  );
});

it('sends Strict-Transport-Security over https, but not over http', async () => {
  const plain = await startGateway({ env: { PUBLIC_URL: `http://${BASE}:8000` } });
  for (const path of ['/healthz', '/_oauth/login', '/nothing']) {
    expect((await berth.get(path)).headers['strict-transport-security'], path).toBe(
      'max-age=31536000',
    );
    expect((await plain.get(path)).headers, path).not.toHaveProperty('strict-transport-security');
  }
  await plain.stop();
});

it('answers forbid framing, content sniffing and caching', async () => {
  for (const path of ['/healthz', '/nothing', '/_oauth/userinfo', '/_oauth/login']) {
    const { headers } = await berth.get(path);
    expect(headers, path).toMatchObject({
      'x-frame-options': 'DENY',
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
    });
  }
});

it.each([
  ['/stopped', 'This application is stopped'],
  ['/stopped?zero', 'This application has no web server now'],
])('%s says why nothing runs, and sets nothing for the host of the project', async (path, says) => {
  const reply = await berth.get(path);
  expect(reply.status).toBe(503);
  expect(reply.body).toContain(says);
  expect(reply.headers).not.toHaveProperty('strict-transport-security');
});
