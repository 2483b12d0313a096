/** Size limits of requests. */
import type { IncomingMessage } from 'node:http';
import { cookieRemedy, headersSize } from '@berth/kit/header-size';
import { type Answer, problem } from './answers.ts';

/**
 * Maximum size of the headers in bytes. Clients can send 128 KiB (docs/interfaces.md "Limits"); the
 * rest is for the request line and the headers that the proxy adds.
 */
const MAX_HEADERS = 160 * 1024;
export const isTooLarge = (request: IncomingMessage): boolean => headersSize(request) > MAX_HEADERS;

/** Answers 431 (RFC 6585 section 5). */
export function tooLarge(request: IncomingMessage): Answer {
  const headers = Object.entries(cookieRemedy(request, MAX_HEADERS)).flat();
  return {
    ...problem('bad_request', `the headers are larger than ${MAX_HEADERS / 1024} KiB`, { headers }),
    status: 431,
  };
}
