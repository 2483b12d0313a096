/**
 * A proxy in front of a certificate authority, which can be made to fail: by a rate limit as Let's
 * Encrypt answers it, or by silence.
 */
import { EventEmitter } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, request } from 'node:https';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** `held`: requests wait until the next mode. */
export type AcmeMode = 'pass' | 'rate_limited' | 'down' | 'held';
export interface AcmeFront {
  /** The ACME_CA_SERVER of a client. */
  readonly directoryUrl: string;
  become(mode: AcmeMode): void;
  /** Returns how many orders clients began in this mode. */
  orders(mode: AcmeMode): number;
  stop(): Promise<void>;
}

/**
 * Uses the certificate of the authority itself, so a client that trusts the one trusts the other.
 */
export async function startAcmeFront(authority: {
  directoryUrl: string;
  caFile: string;
  keyFile: string;
}): Promise<AcmeFront> {
  const behind = new URL(authority.directoryUrl);
  const [cert, key] = await Promise.all([readFile(authority.caFile), readFile(authority.keyFile)]);
  let mode: AcmeMode = 'pass';
  const orders: Record<AcmeMode, number> = { pass: 0, rate_limited: 0, down: 0, held: 0 };
  const changed = new EventEmitter().setMaxListeners(0);
  const answer = (req: IncomingMessage, res: ServerResponse): void => {
    if (mode === 'held') return void changed.once('mode', () => answer(req, res));
    const isOrder = req.url?.startsWith('/order-plz') === true;
    if (isOrder) orders[mode]++;
    if (mode === 'down') res.destroy();
    else if (mode === 'rate_limited' && isOrder) limit(req, res);
    else forward(behind, cert, req, res);
  };
  const server = createServer({ cert, key }, answer);
  // A client is down for us when it does not like the certificate, or stops.
  server.on('tlsClientError', () => undefined);
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  return {
    directoryUrl: `https://127.0.0.1:${(server.address() as AddressInfo).port}${behind.pathname}`,
    become(next) {
      mode = next;
      changed.emit('mode');
      if (next === 'down') server.closeAllConnections();
    },
    orders: (of) => orders[of],
    stop: () =>
      new Promise((closed) => {
        changed.emit('mode');
        server.close(() => closed());
        server.closeAllConnections();
      }),
  };
}

function limit(req: IncomingMessage, res: ServerResponse): void {
  req.resume();
  const detail =
    'too many certificates (50) already issued for "berth.test" in the last 168h0m0s, retry ' +
    'after 2026-11-30 00:00:00 UTC: see https://letsencrypt.org/docs/rate-limits/';
  res.writeHead(429, { 'content-type': 'application/problem+json', 'retry-after': '86400' });
  res.end(JSON.stringify({ type: 'urn:ietf:params:acme:error:rateLimited', detail, status: 429 }));
}

/** The authority makes its addresses from the Host header, so they lead here. */
function forward(behind: URL, ca: Buffer, req: IncomingMessage, res: ServerResponse): void {
  const { method, url, headers } = req;
  const passing = request(
    { host: behind.hostname, port: behind.port, method, path: url, headers, ca, agent: false },
    (answer) => {
      res.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(res);
    },
  );
  passing.on('error', () => res.destroy());
  req.pipe(passing);
}
