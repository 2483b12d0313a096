// A network namespace for a browser. Chromium aborts its requests when the machine's addresses
// change (net::ERR_NETWORK_CHANGED), and every engine that starts or ends changes them. In a
// namespace of its own it sees one address that stays, so other tests can run beside it.
//
//   browser's namespace                     main namespace
//   Chromium ── eth1 10.99.x.2 ── cable ── 10.99.x.1 SOCKS server of this process ── 127.0.0.1:*
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { layCable, runs } from './cable.ts';
import { type Argv, run, startProcess } from './process.ts';
import { waitFor } from './wait.ts';

export interface BrowserNetwork {
  /** A program that starts the browser inside. */
  readonly executablePath: string;
  /** Flags with which the browser reaches this machine's servers as 127.0.0.1 and by every name. */
  readonly flags: readonly string[];
  stop(): Promise<void>;
}

/** @throws when the kernel refuses (needs root) */
export async function startBrowserNetwork(browser: string): Promise<BrowserNetwork> {
  const undo: (() => Promise<unknown>)[] = [];
  const stop = async (): Promise<void> => {
    for (const step of undo.splice(0).toReversed()) await step();
  };
  try {
    const holder = await startProcess(['unshare', '--net', 'sleep', 'infinity'], {
      name: 'network of the browser',
    });
    undo.push(() => holder.stop(0));
    await waitFor('the browser has its namespace', () => runs(holder.pid, 'sleep'), {
      deadlineMs: 5_000,
      intervalMs: 5,
    });
    const within = (...args: string[]) =>
      run(['nsenter', '--target', String(holder.pid), '--net', '--', ...args] as unknown as Argv);
    const cable = await layCable(holder.pid, { preferredNetwork: holder.pid % 250 });
    undo.push(() => cable.remove());
    await within('ip', 'link', 'set', 'lo', 'up');
    await within('ip', 'address', 'add', `${cable.hostIp}/24`, 'dev', 'eth1');
    // The kernel would give it an IPv6 address a second later: a change, too.
    await within('ip', 'link', 'set', 'eth1', 'addrgenmode', 'none');
    await within('ip', 'link', 'set', 'eth1', 'up');
    const socks = await startSocks(cable.gatewayIp);
    undo.push(() => socks.stop());
    const dir = await mkdtemp(join(tmpdir(), 'berth-browser-'));
    undo.push(() => rm(dir, { recursive: true, force: true }));
    const executablePath = join(dir, 'browser');
    await writeFile(
      executablePath,
      `#!/bin/sh\nexec nsenter --target ${holder.pid} --net -- '${browser}' "$@"\n`,
    );
    await chmod(executablePath, 0o755);
    return {
      executablePath,
      // By itself Chromium uses no proxy for 127.0.0.1 and localhost.
      flags: [
        `--proxy-server=socks5://${cable.gatewayIp}:${socks.port}`,
        '--proxy-bypass-list=<-loopback>',
      ],
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Serves SOCKS 5 (RFC 1928) without a login. Every name is this machine. */
async function startSocks(address: string): Promise<{ port: number; stop(): Promise<void> }> {
  const sockets = new Set<Socket>();
  const track = (socket: Socket): Socket => {
    sockets.add(socket);
    // An aborted connection of a page is no error of the test.
    return socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
  };
  const server = createServer((client) => {
    track(client);
    let received: Buffer = Buffer.alloc(0);
    let isGreeted = false;
    const read = (chunk: Buffer): void => {
      received = Buffer.concat([received, chunk]);
      if (!isGreeted) {
        const length = 2 + (received[1] ?? Number.POSITIVE_INFINITY);
        if (received.length < length) return;
        isGreeted = true;
        received = received.subarray(length);
        client.write(Buffer.from([5, 0]));
      }
      const target = targetOf(received);
      if (target === undefined) return;
      client.off('data', read);
      client.pause();
      const upstream = track(connect({ host: target.host, port: target.port, noDelay: true }));
      const answer = (status: number): boolean =>
        client.write(Buffer.from([5, status, 0, 1, 0, 0, 0, 0, 0, 0]));
      upstream.once('connect', () => {
        answer(0);
        client.pipe(upstream).pipe(client);
        client.once('close', () => upstream.destroy());
        upstream.once('close', () => client.destroy());
      });
      upstream.once('error', () => {
        if (upstream.connecting || upstream.bytesRead === 0) answer(REFUSED);
        client.end();
      });
    };
    client.setNoDelay(true).on('data', read);
  });
  await new Promise<void>((resolve, reject) =>
    server.once('error', reject).listen(0, address, resolve),
  );
  const bound = server.address();
  return {
    port: typeof bound === 'object' && bound !== null ? bound.port : 0,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

/** "Connection refused". */
const REFUSED = 5;
const IPV4 = 1;
const NAME = 3;
/** Bytes of a request before the address: version, command, reserved, kind of the address. */
const HEAD = 4;

/** Reads where a request leads; undefined while it is not complete. */
function targetOf(request: Buffer): { host: string; port: number } | undefined {
  const kind = request[HEAD - 1];
  if (kind === undefined) return undefined;
  const nameLength = request[HEAD];
  if (kind === NAME && nameLength === undefined) return undefined;
  const portAt = kind === NAME ? HEAD + 1 + (nameLength ?? 0) : HEAD + (kind === IPV4 ? 4 : 16);
  if (request.length < portAt + 2) return undefined;
  const host = kind === IPV4 ? [...request.subarray(HEAD, HEAD + 4)].join('.') : '127.0.0.1';
  return { host, port: request.readUInt16BE(portAt) };
}
