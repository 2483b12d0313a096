/** How much of a request is looked at. */
import type { IncomingMessage } from 'node:http';
import { type Answer, problem } from './answers.ts';

/** INTERFACES: 128 KiB of headers are answered as any other; what the proxy adds and the request line come on top. */
const MAX_HEADERS = 160 * 1024;
/** Above what Traefik takes (1 MiB): it would make a 500 of node:http's own answer, which ends the connection. */
export const MAX_READ = 1280 * 1024;

export function isTooLarge({ rawHeaders, url = '' }: IncomingMessage): boolean {
  let size = url.length;
  for (const text of rawHeaders) size += text.length;
  return size > MAX_HEADERS;
}

/** RFC 6585 section 5. */
export const tooLarge = (): Answer => ({ ...problem('bad_request', `the headers are larger than ${MAX_HEADERS / 1024} KiB`), status: 431 });
