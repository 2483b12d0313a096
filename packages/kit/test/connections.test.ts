/** Limit of open connections: what is refused, what is closed, and who keeps a place. */
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { type Connections, limitConnections } from '../src/connections.ts';

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

type World = {
  server: Server;
  connections: Connections;
  warnings: object[];
  open(address: string, count: number): Promise<Socket[]>;
  clock: { ms: number };
  /** Requests that the server holds. */
  seen: { held: number };
};

async function start(max: number, trusted: string[] = []): Promise<World> {
  const warnings: object[] = [];
  const clock = { ms: 1_000_000 };
  const seen = { held: 0 };
  const server = createServer((request, response) => {
    connections.requested(request.socket, response);
    // Held until the client leaves.
    if (request.url === '/held') seen.held++;
    else response.end('ok');
  });
  const log = { warn: (fields: object) => void warnings.push(fields) } as unknown as Parameters<
    typeof limitConnections
  >[1]['log'];
  const connections = limitConnections(server, { max, trusted, log, now: () => clock.ms });
  await new Promise<void>((resolve) => server.listen(0, '0.0.0.0', resolve));
  ends.push(() => new Promise((resolve) => server.close(resolve)));
  const { port } = server.address() as AddressInfo;
  const open = async (address: string, count: number): Promise<Socket[]> => {
    const sockets = Array.from({ length: count }, () =>
      connect({ host: '127.0.0.1', port, localAddress: address }),
    );
    for (const socket of sockets) {
      socket.on('error', () => undefined);
      socket.resume(); // Otherwise it does not see that the server closed it.
      ends.push(() => socket.destroy());
    }
    await Promise.all(
      sockets.map((socket) => new Promise((resolve) => socket.once('connect', resolve))),
    );
    return sockets;
  };
  return { server, connections, warnings, open, clock, seen };
}
const until = async (condition: () => boolean): Promise<void> => {
  for (const deadline = Date.now() + 8_000; !condition(); await sleep(5))
    if (Date.now() > deadline) throw new Error('not in time');
};
const request = (socket: Socket, path: string): boolean =>
  socket.write(`GET ${path} HTTP/1.1\r\nhost: a\r\n\r\n`);

test('one address gets a quarter; another one still gets in', async () => {
  const { connections, open, warnings } = await start(100);
  await open('127.0.0.2', 40);
  await until(() => connections.counts()['refused: client'] === 15);
  expect(connections.open()).toBe(25);
  const [other] = await open('127.0.0.3', 1);
  await until(() => connections.open() === 26);
  expect(other?.destroyed).toBe(false);
  // One line a minute, however many are refused.
  expect(warnings).toHaveLength(1);
  expect(warnings[0]).toMatchObject({ event: 'refused: client', address: '127.0.0.2', limit: 100 });
});

test('strangers leave a tenth to known clients; an idle connection makes room for a new one', async () => {
  const { connections, open } = await start(100, ['127.0.0.9']);
  for (let i = 2; i < 8; i++) await open(`127.0.0.${i}`, 20);
  await until(() => connections.open() + connections.counts()['closed: idle'] === 120);
  expect(connections.open()).toBe(90);
  await open('127.0.0.9', 10);
  await until(() => connections.open() === 100);
  const before = connections.counts()['closed: idle'];
  await open('127.0.0.9', 5);
  await until(() => connections.counts()['closed: idle'] === before + 5);
  expect(connections.open()).toBe(100);
});

test('connections with a request are not closed; without an idle one, the new one is refused', async () => {
  const { connections, open, seen } = await start(100);
  const all = (
    await Promise.all(Array.from({ length: 4 }, (_, i) => open(`127.0.0.${i + 2}`, 23)))
  ).flat();
  await until(
    () => connections.open() === 90 && all.filter((socket) => socket.destroyed).length === 2,
  );
  const busy = all.filter((socket) => !socket.destroyed);
  for (const socket of busy) request(socket, '/held');
  await until(() => seen.held === 90);
  await open('127.0.0.200', 3);
  await until(() => connections.counts()['refused: limit'] === 3);
  expect(busy.filter((socket) => socket.destroyed)).toHaveLength(0);
});

test('an address that sent a valid secret has no limit of its own, for ten minutes', async () => {
  const { connections, open, clock } = await start(100);
  connections.vouch('::ffff:127.0.0.2');
  await open('127.0.0.2', 40);
  await until(() => connections.open() === 40);
  clock.ms += 11 * 60_000;
  await open('127.0.0.2', 1);
  await until(() => connections.counts()['refused: client'] === 1);
});

test('a connection that ends makes room, and an answered one counts as idle', async () => {
  const { connections, open } = await start(100);
  const sockets = await open('127.0.0.2', 25);
  await until(() => connections.open() === 25);
  for (const socket of sockets.slice(0, 5)) socket.destroy();
  await until(() => connections.open() === 20);
  const [keptAlive] = await open('127.0.0.3', 1);
  keptAlive?.resume();
  request(keptAlive as Socket, '/');
  await open('127.0.0.4', 25);
  await open('127.0.0.5', 25);
  await open('127.0.0.6', 19);
  await until(() => connections.open() === 90);
  await open('127.0.0.7', 22);
  await until(() => connections.counts()['closed: idle'] === 22);
  expect(connections.open()).toBe(90);
});
