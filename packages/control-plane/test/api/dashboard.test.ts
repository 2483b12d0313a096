/**
 * The dashboard: the page for navigations outside the API, its policy, and files that browsers
 * keep.
 */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Api, createApi } from './harness.ts';

const PAGE =
  '<!doctype html><title>Berth</title><script type="module" src="/assets/index-3f2a.js"></script>';
const BROWSER = {
  accept: 'text/html,application/xhtml+xml,*/*;q=0.8',
  'sec-fetch-mode': 'navigate',
};

let folder: string;
let api: Api;
let bare: Api;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'berth-dashboard-'));
  await mkdir(join(folder, 'assets'));
  await writeFile(join(folder, 'index.html'), PAGE);
  await writeFile(join(folder, 'assets/index-3f2a.js'), 'export {};');
  await writeFile(join(folder, 'secret.txt'), 'not served');
  api = await createApi({ env: { DASHBOARD_DIR: folder } });
  bare = await createApi();
});
afterAll(async () => {
  await api.close();
  await bare.close();
  await rm(folder, { recursive: true });
});

/** Not `fetch`, which always sends `Sec-Fetch-Mode: cors`. */
async function get(
  path: string,
  headers: Record<string, string> = BROWSER,
  method: 'GET' | 'HEAD' | 'POST' = 'GET',
  of: Api = api,
) {
  const {
    statusCode,
    headers: answered,
    body,
  } = await of.server.inject({ method, url: path, headers });
  return { status: statusCode, headers: answered, body };
}

describe('the page', () => {
  test.each([
    '/',
    '/projects',
    '/projects/shop?tab=logs',
    '/deployments/some-id',
    '/apiary',
    '/no/such/page',
  ])('a navigation to %s gets it without credentials', async (path) => {
    const answer = await get(path);
    expect(answer.status).toBe(200);
    expect(answer.body).toBe(PAGE);
    expect(answer.headers['content-type']).toBe('text/html; charset=utf-8');
  });

  test('no inline script may run in it, and no other site may frame it', async () => {
    const { headers } = await get('/');
    expect(headers['cross-origin-opener-policy']).toBe('same-origin');
    const policy = headers['content-security-policy'];
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("script-src 'self';");
    expect(policy).toContain("frame-ancestors 'none'");
  });

  test('no cache keeps it, so that an upgrade shows at once', async () => {
    expect((await get('/')).headers['cache-control']).toBe('no-store');
  });

  test('a browser without Fetch Metadata gets it', async () => {
    expect((await get('/projects', { accept: 'text/html' })).status).toBe(200);
  });

  test.each([
    '/api',
    '/api/no-such-thing',
    '/docs/no-such-thing',
    '/_oauth/start',
    '/.well-known/openid-configuration',
    '/assets/old-1b2c.js',
  ])('%s is not an address of the dashboard: 404', async (path) => {
    const answer = await get(path);
    expect(answer.status).toBe(404);
    expect(answer.headers['content-type']).toContain('application/problem+json');
  });

  test('a program gets a problem document and not the page', async () => {
    for (const headers of [
      { accept: 'application/json' },
      { accept: '*/*' },
      { ...BROWSER, 'sec-fetch-mode': 'cors' },
    ])
      expect((await get('/projects', headers)).status).toBe(404);
  });

  test('only GET and HEAD get it', async () => {
    expect((await get('/projects', BROWSER, 'HEAD')).status).toBe(200);
    expect((await get('/projects', BROWSER, 'POST')).status).toBe(404);
  });
});

describe('files', () => {
  test('have an immutable name', async () => {
    const answer = await get('/assets/index-3f2a.js', {});
    expect(answer.status).toBe(200);
    expect(answer.headers['content-type']).toContain('javascript');
    expect(answer.headers['cache-control']).toBe('public, max-age=31536000, immutable');
    expect(answer.headers['x-content-type-options']).toBe('nosniff');
  });

  test.each(['/assets/..%2fsecret.txt', '/assets/%2e%2e/secret.txt', '/assets/', '/secret.txt'])(
    '%s serves nothing',
    async (path) => {
      expect((await get(path, {})).status).toBe(404);
    },
  );
});

test('without DASHBOARD_DIR a navigation gets the problem document, as before', async () => {
  expect((await get('/', BROWSER, 'GET', bare)).status).toBe(404);
});

test('a folder without the page stops the start and names the file', async () => {
  await expect(createApi({ env: { DASHBOARD_DIR: join(folder, 'assets') } })).rejects.toThrow(
    /^DASHBOARD_DIR: .*index\.html does not exist/,
  );
});
