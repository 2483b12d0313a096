/**
 * Posts to an address that a developer chose. The request must not reach hosts that only this
 * machine or its network can reach, so loopback, link-local, private and reserved addresses are
 * refused unless ALLOWED_NOTIFY_HOSTS names the host. The check uses the resolved address of the
 * connection itself, so a DNS change cannot bypass it. Redirects are not followed. Duration and
 * size of the answer are limited.
 */
import type { LookupAddress } from 'node:dns';
import { lookup as systemLookup } from 'node:dns';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import { defined } from '@berth/kit/defined';
import { addressScope } from '@berth/kit/address-scope';
import { hostOf, isNamed } from '../domain/notifications/notice-target.ts';

/** `status` 0: no answer; `text` says why. */
export type PostAnswer = { status: number; text: string; retryAfterMs: number };
export type Post = (
  url: URL,
  headers: Record<string, string>,
  body: string,
  signal: AbortSignal,
) => Promise<PostAnswer>;

const TIMEOUT_MS = 10_000;
const MAX_ANSWER = 16_384;

/** Returns whether an address is outside the public internet. */
export const isPrivateAddress = (address: string): boolean => addressScope(address) !== 'public';

const privateProblem = (address: string): string =>
  `the address ${address} belongs to this machine or to a private network; an operator can ` +
  'allow the host in ALLOWED_NOTIFY_HOSTS';

type Lookup = (
  hostname: string,
  options: { all: true },
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

/** Resolves a name like the default lookup, but fails if any of its addresses is private. */
function publicLookup(lookup: Lookup): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      const [first] = addresses ?? [];
      if (error !== null || first === undefined)
        return callback(error ?? new Error(`${hostname} has no address`), '');
      const local = addresses.find(({ address }) => isPrivateAddress(address));
      if (local !== undefined) return callback(new Error(privateProblem(local.address)), '');
      if (options.all === true) return callback(null, addresses);
      callback(null, first.address, first.family);
    });
  };
}

/** Creates the function that posts, which never rejects. `lookup`, `timeoutMs`: for tests. */
export function createPost({
  allowedHosts,
  lookup = systemLookup,
  timeoutMs = TIMEOUT_MS,
}: {
  allowedHosts: readonly string[];
  lookup?: Lookup;
  timeoutMs?: number;
}): Post {
  return (url, headers, body, signal) =>
    new Promise((resolve) => {
      const refuse = (text: string): void => resolve({ status: 0, text, retryAfterMs: 0 });
      const host = hostOf(url);
      const named = isNamed(host, allowedHosts);
      // Check again: an operator might have removed the host from the allowed hosts since the
      // target was stored.
      if (url.protocol !== 'https:' && !(named && url.protocol === 'http:'))
        return refuse('the target is not an https address');
      if (!named && isIP(host) !== 0 && isPrivateAddress(host)) return refuse(privateProblem(host));
      const limit = AbortSignal.timeout(timeoutMs);
      const outgoing = (url.protocol === 'https:' ? httpsRequest : httpRequest)(
        url,
        {
          method: 'POST',
          headers: { ...headers, 'content-length': String(Buffer.byteLength(body)) },
          signal: AbortSignal.any([signal, limit]),
          agent: false,
          ...defined({ lookup: named ? undefined : publicLookup(lookup) }),
        },
        (answer) => {
          const parts: Buffer[] = [];
          let size = 0;
          answer.on('data', (part: Buffer) => {
            if (size < MAX_ANSWER) parts.push(part);
            size += part.length;
            if (size >= MAX_ANSWER) answer.destroy();
          });
          answer.on('error', () => undefined);
          answer.on('close', () => {
            // The status is the decision of the target, even if the body was not complete in time.
            const text = Buffer.concat(parts).subarray(0, MAX_ANSWER).toString();
            resolve({
              status: answer.statusCode ?? 0,
              text,
              retryAfterMs: retryAfter(answer.headers['retry-after']),
            });
          });
        },
      );
      outgoing.on('error', (error) =>
        refuse(limit.aborted ? `no answer within ${timeoutMs / 1000} s` : reasonOf(error)),
      );
      outgoing.end(body);
    });
}

/** Parses Retry-After, a number of seconds or a date, into ms. */
function retryAfter(value = ''): number {
  const ms = /^\d+$/.test(value) ? 1000 * Number(value) : Date.parse(value) - Date.now();
  return Math.max(0, ms || 0);
}
const reasonOf = (error: Error): string =>
  error.message === '' ? ((error as NodeJS.ErrnoException).code ?? error.name) : error.message;
