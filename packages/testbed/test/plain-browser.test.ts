import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PlainBrowser } from '../src/plain-browser.ts';

let server: Server;
let at = (_host: string, _path: string): string => '';
beforeAll(async () => {
  server = createServer((req, res) => {
    const url = new URL(req.url ?? '/', 'http://x');
    const cookie = url.searchParams.getAll('set');
    let body = '';
    req.on('data', (chunk: Buffer) => (body += chunk.toString()));
    req.on('end', () => {
      const status = Number(
        url.searchParams.get('status') ?? (url.pathname === '/for-ever' ? 302 : 200),
      );
      const to = url.pathname === '/for-ever' ? '/for-ever' : url.searchParams.get('to');
      res.writeHead(status, {
        'set-cookie': cookie,
        ...(to === null ? {} : { location: to }),
        'content-type': 'text/html',
      });
      res.end(
        url.pathname === '/form'
          ? '<form method="post" action="/sent?x=1"><input type="hidden" name="csrf" ' +
              'value="a&amp;b"><input name="who"><button name="do" value="no">No</button><button ' +
              'name="do" value="yes">Yes</button></form>'
          : JSON.stringify({
              host: req.headers.host,
              method: req.method,
              path: url.pathname,
              cookie: req.headers.cookie ?? null,
              body,
            }),
      );
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  at = (host, path) => `http://${host}.localhost:${port}${path}`;
});
afterAll(() => new Promise<void>((resolve) => server.close(() => resolve())));

const setting = (cookie: string): string => `/?set=${encodeURIComponent(cookie)}`;
const sent = async (browser: PlainBrowser, host: string, path = '/'): Promise<string | null> =>
  (JSON.parse((await browser.open(at(host, path))).body) as { cookie: string | null }).cookie;

describe('cookies', () => {
  test('are sent only to the host that set them, below their path', async () => {
    const browser = new PlainBrowser();
    await browser.open(at('a', setting('one=1; Path=/')));
    await browser.open(at('a', setting('two=2; Path=/in/')));
    expect(await sent(browser, 'a')).toBe('one=1');
    expect(await sent(browser, 'a', '/in/side')).toBe('one=1; two=2');
    expect(await sent(browser, 'a', '/inside')).toBe('one=1');
    expect(await sent(browser, 'b')).toBeNull();
    expect(await sent(browser, 'b.a')).toBeNull();
  });
  test('with Secure are not sent over plain http; Max-Age=0 or a past date removes a cookie', async () => {
    const browser = new PlainBrowser();
    await browser.open(at('a', setting('s=1; Path=/; Secure')));
    expect(await sent(browser, 'a')).toBeNull();
    await browser.open(at('a', setting('x=1; Path=/')));
    await browser.open(at('a', setting('y=1; Path=/')));
    await browser.open(at('a', setting('x=; Path=/; Max-Age=0')));
    await browser.open(at('a', setting('y=; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT')));
    expect(await sent(browser, 'a')).toBeNull();
    expect([...browser.cookieValues]).toEqual(['1']);
  });
});

test('redirects are followed across hosts; one without a Location is an answer, and more than 20 are an error', async () => {
  const browser = new PlainBrowser();
  const page = await browser.open(
    at('a', `/?status=302&to=${encodeURIComponent(at('b', '/there'))}`),
  );
  expect([page.url.href, page.hops.map((hop) => hop.status)]).toEqual([
    at('b', '/there'),
    [302, 200],
  ]);
  await expect(
    browser.open(at('a', '/loop?status=302&to=%2Floop%3Fstatus%3D302')),
  ).resolves.toMatchObject({ status: 302 });
  await expect(browser.open(at('a', '/for-ever'))).rejects.toThrow('more than 20 redirects');
});

test('forms are sent with the values of their fields and of the pressed button', async () => {
  const browser = new PlainBrowser();
  const page = await browser.open(at('a', '/form'));
  const answer = JSON.parse((await browser.submit(page, { who: 'ada' }, 'Yes')).body) as {
    method: string;
    body: string;
  };
  expect(answer).toMatchObject({ method: 'POST', body: 'csrf=a%26b&who=ada&do=yes' });
  expect(() => browser.submit(page, { other: 'x' })).toThrow('no form');
});
