/**
 * Sends a commit status to a forge over HTTPS. A developer chose the address, so the request must
 * not reach hosts that only this machine can reach: loopback and link-local addresses are refused
 * unless ALLOWED_GIT_HOSTS names the host, redirects are not followed, and the duration and the
 * size of the answer are limited. The check uses the resolved address of the connection itself, so
 * a DNS change cannot bypass it.
 */
import type { LookupAddress } from 'node:dns';
import { lookup } from 'node:dns';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { defined } from '@berth/kit/defined';
import { addressScope } from '@berth/kit/address-scope';
import type { ForgeAnswer, ForgeRequest } from '../domain/git/forge-api.ts';

type SendToForge = (request: ForgeRequest, signal: AbortSignal) => Promise<ForgeAnswer>;

const TIMEOUT_MS = 10_000;
const MAX_ANSWER = 16_384;

/**
 * Returns whether the address belongs to this machine or is link-local. Private networks are
 * allowed, because they can contain forges.
 */
export const isLocalAddress = (address: string): boolean => addressScope(address) === 'local';

export function createSendToForge({
  allowedHosts,
}: {
  allowedHosts: readonly string[];
}): SendToForge {
  /**
   * Returns whether the list names exactly this host. A wildcard does not count, so that it never
   * allows services of this machine.
   */
  const isNamed = (host: string): boolean =>
    allowedHosts.some((name) => name.toLowerCase() === host);

  return (request, signal) =>
    new Promise((resolve) => {
      const host = request.url.hostname.toLowerCase().replace(/^\[|\]$/g, '');
      const refuse = (text: string): void => resolve({ status: 0, text, retryAfterMs: 0 });
      const named = isNamed(host);
      if (request.url.protocol !== 'https:' && !(named && request.url.protocol === 'http:'))
        return refuse('the address of the API is not an https address');
      if (!named && isIP(host) !== 0 && isLocalAddress(host)) return refuse(localProblem(host));
      const send = request.url.protocol === 'https:' ? httpsRequest : httpRequest;
      const outgoing = send(
        request.url,
        {
          method: 'POST',
          headers: {
            ...request.headers,
            'content-length': String(Buffer.byteLength(request.body)),
          },
          signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
          agent: false,
          ...defined({ lookup: named ? undefined : publicLookup }),
        },
        (answer) => {
          let text = '';
          const isInternal = !named && addressScope(answer.socket.remoteAddress ?? '') !== 'public';
          answer.setEncoding('utf8');
          answer.on('data', (chunk: string) => {
            text += chunk;
            if (text.length > MAX_ANSWER) answer.destroy();
          });
          answer.on('error', () => undefined);
          answer.on('close', () =>
            resolve({
              status: answer.statusCode ?? 0,
              text: text.slice(0, MAX_ANSWER),
              ...defined({ isInternal: isInternal ? isInternal : undefined }),
              retryAfterMs: 1000 * (Number(answer.headers['retry-after']) || 0),
            }),
          );
        },
      );
      outgoing.on('error', (error) =>
        refuse(outgoing.reusedSocket ? 'the connection ended' : reasonOf(error)),
      );
      outgoing.end(request.body);
    });
}

const localProblem = (address: string): string =>
  `the address ${address} belongs to this machine; an operator can allow the host in ` +
  'ALLOWED_GIT_HOSTS';

/** Resolves a name like the default lookup, but fails if any of its addresses is local. */
const publicLookup: LookupFunction = (hostname, options, callback) => {
  lookup(hostname, { ...options, all: true }, (error, addresses: LookupAddress[]) => {
    const [first] = addresses ?? [];
    if (error !== null || first === undefined)
      return callback(error ?? new Error(`${hostname} has no address`), '');
    const local = addresses.find(({ address }) => isLocalAddress(address));
    if (local !== undefined) return callback(new Error(localProblem(local.address)), '');
    if (options.all === true) return callback(null, addresses);
    callback(null, first.address, first.family);
  });
};

function reasonOf(error: Error): string {
  if (error.name === 'AbortError' || error.name === 'TimeoutError')
    return `no answer within ${TIMEOUT_MS / 1000} s`;
  return error.message === ''
    ? ((error as NodeJS.ErrnoException).code ?? error.name)
    : error.message;
}
