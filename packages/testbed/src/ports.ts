import { randomInt } from 'node:crypto';
import { createServer } from 'node:net';

/**
 * Below what Linux and others give to connections and to what asks for any port (ip_local_port_range): such a port would be taken
 * by whoever connects next, before the server that it was meant for has begun.
 */
const [FIRST, END] = [20_000, 32_000];
const MOST_TRIES = 1_000;
const given = new Set<number>();

/**
 * A port that was free a moment ago on `address`. Another program may take it before it is used, so a
 * caller that starts a server with it should be ready to try again.
 */
export async function freePort(address = '127.0.0.1'): Promise<number> {
  for (let i = 0; i < MOST_TRIES; i++) {
    const port = randomInt(FIRST, END);
    if (given.has(port) || !(await canListen(port, address))) continue;
    given.add(port);
    return port;
  }
  throw new Error(`no port of ${address} between ${FIRST} and ${END} was free in ${MOST_TRIES} tries`);
}

/** `count` different free ports; none is given twice by one process. */
export async function freePorts(count: number, address = '127.0.0.1'): Promise<number[]> {
  const ports: number[] = [];
  while (ports.length < count) ports.push(await freePort(address));
  return ports;
}

/** Rejects where it is not the port's fault, such as an address that this machine has not. */
function canListen(port: number, address: string): Promise<boolean> {
  const server = createServer();
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => (error.code === 'EADDRINUSE' ? resolve(false) : reject(error)));
    server.listen(port, address, () => server.close(() => resolve(true)));
  });
}

/** Whether a server could listen on this port of `address` right now. */
export function isFree(port: number, address = '127.0.0.1'): Promise<boolean> {
  return canListen(port, address).catch(() => false);
}
