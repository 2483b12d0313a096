/**
 * Connections of clients that never complete a request, or never close: each ends, whatever the
 * client does.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { answerBrokenRequests } from '../../src/api/plugins/broken-requests.ts';

let server: Server;
afterEach(() => {
  server.closeAllConnections();
  server.close();
});

const TIMEOUT_MS = 300;
type Handle = (request: IncomingMessage, response: ServerResponse) => unknown;

async function start(handle: Handle): Promise<number> {
  const options = {
    requestTimeout: TIMEOUT_MS,
    headersTimeout: TIMEOUT_MS,
    connectionsCheckingInterval: 50,
  };
  server = createServer(
    options,
    (request, response) =>
      void Promise.resolve(handle(request, response)).catch(() => response.destroy()),
  );
  answerBrokenRequests(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}
const afterBody: Handle = async (request, response) => {
  await request.resume().toArray();
  response.end('whole');
};

/**
 * Sends the text, then a byte every 20 ms. Never closes its side. Returns what it got when the
 * server closes the connection.
 */
function stubborn(port: number, text: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }, () =>
      socket.write(text),
    );
    const dripping = setInterval(() => socket.destroyed || socket.write(' '), 20);
    let all = '';
    // A byte for a closed connection is answered with a reset.
    socket.on('error', () => undefined);
    socket.setEncoding('utf8').on('data', (chunk: string) => (all += chunk));
    socket.on('close', () => {
      clearInterval(dripping);
      resolve(all);
    });
  });
}
const statuses = (text: string): string[] => text.match(/(?<=HTTP\/1\.1 )\d{3}/g) ?? [];
const POST = 'POST / HTTP/1.1\r\nhost: x\r\n';

describe('a client', () => {
  it('whose body never ends gets 408, and its connection ends', async () => {
    const all = await stubborn(await start(afterBody), `${POST}content-length: 1000000\r\n\r\nx`);
    expect(statuses(all)).toEqual(['408']);
    expect(all).toContain('"code":"request_timeout"');
  });
  it('whose headers never end gets 408, and its connection ends', async () => {
    expect(statuses(await stubborn(await start(afterBody), `${POST}x-odd: `))).toEqual(['408']);
  });
  it('whose second body never ends gets the first answer, then 408', async () => {
    const first = `${POST}content-length: 1\r\n\r\nx`;
    expect(
      statuses(
        await stubborn(await start(afterBody), `${first}${POST}content-length: 1000\r\n\r\nx`),
      ),
    ).toEqual(['200', '408']);
  });
  it('whose body never ends is cut off in the middle of an answer', async () => {
    const port = await start((_, response) =>
      response.writeHead(200, { 'content-length': '1000' }).write('the beginning'),
    );
    expect(await stubborn(port, `${POST}content-length: 1000\r\n\r\nx`)).toMatch(/the beginning$/);
  });
  it('that sends broken bytes and never closes is disconnected', async () => {
    expect(statuses(await stubborn(await start(afterBody), 'this is not HTTP\r\n\r\n'))).toEqual([
      '400',
    ]);
  });
  it('that only waits for a held answer gets it, however long that takes', async () => {
    const port = await start((_, response) =>
      setTimeout(() => response.end('held'), 3 * TIMEOUT_MS),
    );
    expect(await (await fetch(`http://127.0.0.1:${port}/`)).text()).toBe('held');
  });
});
