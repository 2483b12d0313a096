import { existsSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { freePort, freePorts, isFree } from '../src/ports.ts';

const RANGE = '/proc/sys/net/ipv4/ip_local_port_range';
const [given = 0] = existsSync(RANGE) ? readFileSync(RANGE, 'utf8').split(/\s+/).map(Number) : [];
/** Default of Linux. Where an administrator widened the range, perhaps no port is outside it. */
const USUAL = 32_768;

it.skipIf(given < USUAL)(
  'a free port is outside the range of ephemeral ports, so no connection takes it before its server listens',
  async () => {
    expect(Math.max(...(await freePorts(50)))).toBeLessThan(given);
  },
);

it('each port can be listened on, and no port is returned twice', async () => {
  const ports = [...(await freePorts(50)), await freePort()];
  expect(new Set(ports).size).toBe(51);
  expect(await Promise.all(ports.map((port) => isFree(port)))).toEqual(ports.map(() => true));
});

it('a port on which a server listens is not free', async () => {
  const server = createServer();
  onTestFinished(() => void server.close());
  const port = await freePort();
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  expect(await isFree(port)).toBe(false);
});

it('an address that this machine does not have is an error, without further tries', async () => {
  await expect(freePort('192.0.2.1')).rejects.toThrow('EADDRNOTAVAIL');
});
