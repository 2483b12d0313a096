/** The HTTP probe of a new container. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { probe } from '../src/probe.ts';

const never = new AbortController().signal;
async function serve(status: number, then: (port: number) => Promise<void>): Promise<void> {
  const server = createServer((_, response) => void response.writeHead(status, { location: 'http://127.0.0.1:9/' }).end('x'));
  await new Promise<void>((r) => server.listen(0, '127.0.0.1', r));
  await then((server.address() as AddressInfo).port);
  server.closeAllConnections();
  server.close();
}
it.each([
  [200, null, true],
  [500, null, true],
  [302, '/h', true],
  [404, '/h', false],
  [500, '/h', false],
])('status %d with health path %s is healthy: %s', (status, healthPath, ok) =>
  serve(status, async (port) => {
    const result = await probe({ host: '127.0.0.1', port, healthPath, visitorUrl: null }, 200, never);
    expect(result.ok).toBe(ok);
    if (!result.ok) expect(result.last).toEqual({ kind: 'status', status });
  }),
);
/** Answers like a framework with allowed hosts: 400 to another host or scheme. */
async function serveAllowed(host: string, proto: string, then: (port: number) => Promise<void>): Promise<void> {
  const server = createServer(({ headers }, response) => {
    const isAllowed = headers.host === host && headers['x-forwarded-proto'] === proto && headers['x-forwarded-host'] === host;
    response.writeHead(isAllowed ? 200 : 400).end();
  });
  await new Promise<void>((r) => server.listen(0, '127.0.0.1', r));
  await then((server.address() as AddressInfo).port);
  server.closeAllConnections();
  server.close();
}
it.each([
  ['https://shop.example.com', 'shop.example.com', 'https'],
  ['http://shop.berth.localhost:8000', 'shop.berth.localhost:8000', 'http'],
])('sends the host of a visitor of %s, so an application that allows only that host answers', (visitorUrl, host, proto) =>
  serveAllowed(host, proto, async (port) => {
    expect(await probe({ host: '127.0.0.1', port, healthPath: '/h', visitorUrl }, 200, never)).toMatchObject({ ok: true });
  }),
);
it('uses the address as host if an older control plane sends none', () =>
  serve(200, async (port) => {
    expect(await probe({ host: '127.0.0.1', port, healthPath: '/h', visitorUrl: null }, 200, never)).toMatchObject({ ok: true });
  }));
it('ends at its deadline or when the signal aborts', async () => {
  expect(await probe({ host: '127.0.0.1', port: 9, healthPath: null, visitorUrl: null }, 100, never)).toMatchObject({
    ok: false,
    last: { kind: 'refused' },
  });
  await expect(probe({ host: '127.0.0.1', port: 9, healthPath: null, visitorUrl: null }, 9_000, AbortSignal.timeout(50))).rejects.toThrow(
    /timeout/,
  );
});
it.each([86_400_000, -3_600_000])('its deadline does not follow the clock of the machine, which jumps by %i ms', async (jump) => {
  const real = Date.now;
  let asked = 0;
  // The clock jumps after the first request; the second one answers.
  const server = createServer((_, res) => {
    asked += 1;
    Date.now = () => real() + jump;
    if (asked === 1) res.destroy();
    else res.end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const target = { host: '127.0.0.1', port: (server.address() as AddressInfo).port, healthPath: '/', visitorUrl: null };
  try {
    expect(await probe(target, 30_000, never)).toMatchObject({ ok: true, tries: 2 });
  } finally {
    Date.now = real;
    server.close();
  }
});
