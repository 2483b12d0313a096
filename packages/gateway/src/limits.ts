/** Size limits of requests. */
import type { IncomingMessage } from 'node:http';
import { type Answer, problem } from './answers.ts';

/** Clients may send 128 KiB of headers (docs/interfaces.md "Limits"). The request line and headers that the proxy adds come on top. */
const MAX_HEADERS = 160 * 1024;
/**
 * Above Traefik's own limit of 1 MiB. Otherwise node:http would answer itself and end the connection, and Traefik would answer 500.
 */
export const MAX_READ = 1280 * 1024;

export function isTooLarge({ rawHeaders, url = '' }: IncomingMessage): boolean {
  let size = url.length;
  for (const text of rawHeaders) size += text.length;
  return size > MAX_HEADERS;
}

/** RFC 6585 section 5. */
export const tooLarge = (): Answer => ({ ...problem('bad_request', `the headers are larger than ${MAX_HEADERS / 1024} KiB`), status: 431 });
