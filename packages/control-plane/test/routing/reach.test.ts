/** How the check of the proxy's way to a node reads answers. */
import { type AddressInfo, createServer } from 'node:net';
import { expect, it } from 'vitest';
import { createReach } from '../../src/routing/reach.ts';

async function throughProxy(answer: string): Promise<unknown> {
  const server = createServer(
    (socket) =>
      void socket.on('error', () => undefined).once('data', () => socket.end(`HTTP/1.1 ${answer}`)),
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const probeUrls = [`http://127.0.0.1:${(server.address() as AddressInfo).port}`];
  const reach = createReach({ probeUrls, gatewaySecrets: () => [], now: Date.now });
  const target = {
    project_id: 'p',
    host: 'shop.example.com',
    path: '/',
    auth_required: false,
    host_ip: '10.0.0.9',
    host_port: 20_000,
  };
  try {
    return await reach(target, new AbortController().signal);
  } finally {
    server.close();
  }
}

it.each([
  ['20 KB of headers', `200 OK\r\nLink: ${'a'.repeat(20_000)}\r\nContent-Length: 0\r\n\r\n`],
  ['lines that end with LF', '200 OK\nContent-Length: 2\n\nok'],
  ['a change of protocol', '101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n'],
])('an answer that visitors get proves the node: %s', async (_, answer) => {
  expect(await throughProxy(answer)).toEqual({ kind: 'reached' });
});
it('a proxy that closes the connection proves nothing', async () => {
  expect(await throughProxy('')).toMatchObject({ kind: 'unreachable', saw: 'no answer' });
});
