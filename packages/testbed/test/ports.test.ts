import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { freePort, freePorts, isFree } from '../src/ports.ts';

const RANGE = '/proc/sys/net/ipv4/ip_local_port_range';
const [given = 0] = existsSync(RANGE) ? readFileSync(RANGE, 'utf8').split(/\s+/).map(Number) : [];
/** What Linux comes with; where somebody widened the range, there may be no port that is left out of it. */
const USUAL = 32_768;

it.skipIf(given < USUAL)('a free port is none that a connection may be given before its server listens', async () => {
  expect(Math.max(...(await freePorts(50)))).toBeLessThan(given);
});

it('each can be listened on, and none is given twice', async () => {
  const ports = [...(await freePorts(50)), await freePort()];
  expect(new Set(ports).size).toBe(51);
  expect(await Promise.all(ports.map((port) => isFree(port)))).toEqual(ports.map(() => true));
});

it('a port on which somebody listens is not free', async () => {
  const server = createServer();
  onTestFinished(() => void server.close());
  const port = await freePort();
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  expect(await isFree(port)).toBe(false);
});

it('an address that this machine has not is said, not tried again', async () => {
  await expect(freePort('192.0.2.1')).rejects.toThrow('EADDRNOTAVAIL');
});
