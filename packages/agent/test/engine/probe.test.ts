/** The HTTP probe of a new container. */
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { expect, it } from 'vitest';
import { probe } from '../../src/engine/probe.ts';

const never = new AbortController().signal;
async function serve(status: number, then: (port: number) => Promise<void>): Promise<void> {
  const server = createServer(
    (_, response) => void response.writeHead(status, { location: 'http://127.0.0.1:9/' }).end('x'),
  );
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
    const result = await probe(
      { host: '127.0.0.1', port, healthPath, visitorUrl: null },
      ok ? 10_000 : 1_000,
      never,
    );
    expect(result.ok).toBe(ok);
    if (!result.ok) expect(result.last).toEqual({ kind: 'status', status });
  }),
);
/** Answers like a framework with allowed hosts: 400 to another host or scheme. */
async function serveAllowed(
  host: string,
  proto: string,
  then: (port: number) => Promise<void>,
): Promise<void> {
  const server = createServer(({ headers }, response) => {
    const isAllowed =
      headers.host === host &&
      headers['x-forwarded-proto'] === proto &&
      headers['x-forwarded-host'] === host;
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
])(
  'sends the host of a visitor of %s, so an application that allows only that host answers',
  (visitorUrl, host, proto) =>
    serveAllowed(host, proto, async (port) => {
      expect(
        await probe({ host: '127.0.0.1', port, healthPath: '/h', visitorUrl }, 10_000, never),
      ).toMatchObject({ ok: true });
    }),
);
it('an answer whose body never ends is healthy, and its connection is closed', async () => {
  let closed = (): void => undefined;
  const isClosed = new Promise<void>((resolve) => (closed = resolve));
  const server = createServer((_, response) => {
    response.once('close', closed);
    response.writeHead(200).write('x');
  });
  await new Promise<void>((r) => server.listen(0, '127.0.0.1', r));
  const { port } = server.address() as AddressInfo;
  expect(
    await probe({ host: '127.0.0.1', port, healthPath: '/h', visitorUrl: null }, 5_000, never),
  ).toMatchObject({ ok: true });
  await isClosed;
  server.close();
});
it('uses the address as host if an older control plane sends none', () =>
  serve(200, async (port) => {
    expect(
      await probe({ host: '127.0.0.1', port, healthPath: '/h', visitorUrl: null }, 10_000, never),
    ).toMatchObject({ ok: true });
  }));
it.each([
  ['20 KB of headers', `200 OK\r\nLink: ${'a'.repeat(20_000)}\r\nContent-Length: 0\r\n\r\n`, 200],
  [
    'a body of two lengths',
    '200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n',
    200,
  ],
  ['lines that end with LF', '200 OK\nContent-Length: 2\n\nok', 200],
  [
    'an interim answer first',
    '103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n',
    200,
  ],
  [
    'a change of protocol',
    '101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n',
    101,
  ],
])('takes the answers that Traefik takes: %s', async (_, text, status) => {
  const server = createTcpServer(
    (socket) =>
      void socket.on('error', () => undefined).once('data', () => socket.end(`HTTP/1.1 ${text}`)),
  );
  await new Promise<void>((r) => server.listen(0, '127.0.0.1', r));
  const { port } = server.address() as AddressInfo;
  expect(
    await probe({ host: '127.0.0.1', port, healthPath: null, visitorUrl: null }, 9_000, never),
  ).toEqual({
    ok: true,
    status,
    tries: 1,
  });
  server.close();
});
it('ends at its deadline or when the signal aborts', async () => {
  expect(
    await probe({ host: '127.0.0.1', port: 9, healthPath: null, visitorUrl: null }, 100, never),
  ).toMatchObject({
    ok: false,
    last: { kind: 'refused' },
  });
  await expect(
    probe(
      { host: '127.0.0.1', port: 9, healthPath: null, visitorUrl: null },
      9_000,
      AbortSignal.timeout(50),
    ),
  ).rejects.toThrow(/timeout/);
});
it.each([86_400_000, -3_600_000])(
  'its deadline does not follow the clock of the machine, which jumps by %i ms',
  async (jump) => {
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
    const target = {
      host: '127.0.0.1',
      port: (server.address() as AddressInfo).port,
      healthPath: '/',
      visitorUrl: null,
    };
    try {
      expect(await probe(target, 30_000, never)).toMatchObject({ ok: true, tries: 2 });
    } finally {
      Date.now = real;
      server.close();
    }
  },
);
