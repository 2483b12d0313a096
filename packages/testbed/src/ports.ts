import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

/**
 * Range below the ephemeral ports of Linux and other systems (ip_local_port_range), and above the
 * ports that agents give to containers (PUBLISH_PORTS). An outgoing connection or a container could
 * take such a port before the server that needs it listens.
 */
const [FIRST, END] = [30_000, 32_768];
const MOST_TRIES = 1_000;
const usedPorts = new Set<number>();

/**
 * Returns a port of `address` that was free a moment ago. Another program can take it first, so a
 * caller that starts a server should be ready to try again.
 */
export async function freePort(address = '127.0.0.1'): Promise<number> {
  for (let i = 0; i < MOST_TRIES; i++) {
    const port = randomInt(FIRST, END);
    if (usedPorts.has(port) || !(await canListen(port, address))) continue;
    usedPorts.add(port);
    return port;
  }
  throw new Error(
    `no port of ${address} between ${FIRST} and ${END} was free in ${MOST_TRIES} tries`,
  );
}

/** Returns `count` different free ports. One process never returns a port twice. */
export async function freePorts(count: number, address = '127.0.0.1'): Promise<number[]> {
  const ports: number[] = [];
  while (ports.length < count) ports.push(await freePort(address));
  return ports;
}

/**
 * Rejects when the port is not the cause, for example an address that this machine does not have.
 */
function canListen(port: number, address: string): Promise<boolean> {
  const server = createServer();
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) =>
      error.code === 'EADDRINUSE' ? resolve(false) : reject(error),
    );
    server.listen(port, address, () => server.close(() => resolve(true)));
  });
}

/** Whether a server could listen on this port of `address` right now. */
export function isFree(port: number, address = '127.0.0.1'): Promise<boolean> {
  return canListen(port, address).catch(() => false);
}
