/**
 * Bounds the open connections of an HTTP server.
 * - One address gets at most a quarter of the limit, and the last tenth is only for known clients:
 *   trusted proxies, and addresses that sent a valid secret (`vouch`). So a stranger cannot use up
 *   the connections that agents, gateways and proxies need.
 * - When the limit is reached, the server closes a connection without a request to make room for
 *   the new one. If it finds none quickly, it refuses the new one.
 */
import { readFileSync } from 'node:fs';
import type { Server, ServerResponse } from 'node:http';
import { BlockList, isIP, type Socket } from 'node:net';
import type { Logger } from './log.ts';

export const CONNECTION_EVENTS = ['refused: limit', 'refused: client', 'closed: idle'] as const;
export type ConnectionEvent = (typeof CONNECTION_EVENTS)[number];
export type Connections = {
  open(): number;
  limit: number;
  counts(): Readonly<Record<ConnectionEvent, number>>;
  /** Call for each request. Without it, a connection counts as idle. */
  requested(socket: Socket, response: ServerResponse): void;
  /** Closes connections that never had a request. `server.close()` waits for them. */
  closeUnused(): void;
  /** Marks the client at this address as known for ten minutes, because it sent a valid secret. */
  vouch(address: string): void;
};
export type ConnectionOptions = {
  max: number;
  /** Addresses, networks, or the names loopback, linklocal and uniquelocal. */
  trusted: readonly string[];
  log: Pick<Logger, 'warn'>;
  now?: () => number;
};

const OF_ONE_CLIENT = 1 / 4;
const OF_STRANGERS = 9 / 10;
/** Maximum number of open connections that are checked to make room for a new one. */
const CHECKED = 32;
const KNOWN_MS = 10 * 60_000;
const MAX_KNOWN = 20_000;
const WARN_EVERY_MS = 60_000;
/** File descriptors for the process itself: database, logs, requests to other parts. */
const OWN_FILES = 256;

export function limitConnections(server: Server, options: ConnectionOptions): Connections {
  const { trusted, log, now = () => performance.now() } = options;
  const limit = Math.min(options.max, openFiles() - OWN_FILES);
  const isTrusted = networksOf(trusted);
  /** Open connections, the oldest first. A busy connection that was checked moves to the end. */
  const open = new Map<Socket, { address: string; response: ServerResponse | null }>();
  const byAddress = new Map<string, number>();
  /** Time in ms at which each known client was last confirmed, by address. */
  const lastKnownAt = new Map<string, number>();
  const counts: Record<ConnectionEvent, number> = {
    'refused: limit': 0,
    'refused: client': 0,
    'closed: idle': 0,
  };
  let warnedAt = Number.NEGATIVE_INFINITY;

  const isKnown = (address: string): boolean =>
    isTrusted(address) || now() - (lastKnownAt.get(address) ?? Number.NEGATIVE_INFINITY) < KNOWN_MS;

  function note(event: ConnectionEvent, address: string): void {
    counts[event]++;
    if (now() - warnedAt < WARN_EVERY_MS) return;
    warnedAt = now();
    log.warn({ event, address, open: open.size, limit, ...counts }, 'too many connections');
  }

  /** Closes an idle connection. Returns false if it found none. */
  function closeIdle(): boolean {
    let checked = 0;
    for (const [socket, connection] of open) {
      if (++checked > CHECKED) return false;
      const isIdle =
        connection.response === null ||
        connection.response.writableFinished ||
        connection.response.destroyed;
      if (isIdle && !isTrusted(connection.address)) {
        forget(socket);
        socket.destroy();
        note('closed: idle', connection.address);
        return true;
      }
      open.delete(socket);
      open.set(socket, connection);
    }
    return false;
  }

  function forget(socket: Socket): void {
    const connection = open.get(socket);
    if (connection === undefined) return;
    open.delete(socket);
    const openOfAddress = (byAddress.get(connection.address) ?? 1) - 1;
    if (openOfAddress > 0) byAddress.set(connection.address, openOfAddress);
    else byAddress.delete(connection.address);
  }

  function refusalOf(
    stranger: boolean,
    ofClient: number,
  ): 'refused: client' | 'refused: limit' | null {
    if (stranger && ofClient >= limit * OF_ONE_CLIENT) return 'refused: client';
    const isFull = open.size >= limit * (stranger ? OF_STRANGERS : 1);
    return isFull && !closeIdle() ? 'refused: limit' : null;
  }

  server.on('connection', (socket: Socket) => {
    const address = plain(socket.remoteAddress);
    const stranger = !isKnown(address);
    const count = byAddress.get(address) ?? 0;
    const refusal = refusalOf(stranger, count);
    if (refusal !== null) {
      note(refusal, address);
      socket.destroy();
      return;
    }
    byAddress.set(address, count + 1);
    open.set(socket, { address, response: null });
    socket.once('close', () => forget(socket));
  });

  return {
    open: () => open.size,
    limit,
    counts: () => counts,
    requested(socket, response) {
      const connection = open.get(socket);
      if (connection !== undefined) connection.response = response;
    },
    closeUnused() {
      for (const [socket, { response }] of open) if (response === null) socket.destroy();
    },
    vouch(given) {
      const address = plain(given);
      lastKnownAt.delete(address);
      lastKnownAt.set(address, now());
      if (lastKnownAt.size > MAX_KNOWN) lastKnownAt.delete(lastKnownAt.keys().next().value ?? '');
    },
  };
}

/**
 * Returns the address of an IPv4 client as IPv4. A server that listens on `::` sees an address like
 * `::ffff:10.0.0.1`.
 */
const plain = (address = ''): string =>
  address.startsWith('::ffff:') ? address.slice(7) : address;

/** Networks of the names that TRUSTED_PROXIES accepts. */
const NAMED: Readonly<Record<string, readonly string[]>> = {
  loopback: ['127.0.0.0/8', '::1/128'],
  linklocal: ['169.254.0.0/16', 'fe80::/10'],
  uniquelocal: ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7'],
};

function networksOf(entries: readonly string[]): (address: string) => boolean {
  const networks = new BlockList();
  for (const network of entries.flatMap((entry) => NAMED[entry] ?? [entry])) {
    const [address = '', bits] = network.split('/');
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
    if (bits === undefined) networks.addAddress(address, family);
    else networks.addSubnet(address, Number(bits), family);
  }
  return (address) =>
    isIP(address) !== 0 && networks.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
}

/**
 * Returns the limit of open files of this process. Node.js raises it to the hard limit at its
 * start.
 */
function openFiles(): number {
  try {
    const soft = /^Max open files\s+(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    return soft === undefined || soft === 'unlimited' ? Number.POSITIVE_INFINITY : Number(soft);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

/** Returns the options of the prom-client counter that shows `connections.counts()`. */
export const refusedConnections = (connections: Pick<Connections, 'counts'>) => ({
  name: 'berth_http_connections_refused_total',
  help: 'Connections that were refused or, without a request, closed, because too many were open',
  labelNames: ['event'] as const,
  registers: [],
  collect(this: { reset(): void; inc(labels: { event: string }, value: number): void }) {
    this.reset();
    for (const [event, count] of Object.entries(connections.counts())) this.inc({ event }, count);
  },
});
