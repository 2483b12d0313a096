/** Limit of request headers, and the remedy for browsers whose cookies exceed it. */
import type { IncomingMessage } from 'node:http';

/**
 * Limit of node:http in bytes. It is above the limit of each server and above Traefik's 1 MiB, so
 * that the server can answer; node:http would answer by itself and end the connection.
 */
export const MAX_HEADERS_READ = 1280 * 1024;

export function headersSize({ rawHeaders, url = '' }: IncomingMessage): number {
  let size = url.length;
  for (const text of rawHeaders) size += text.length;
  return size;
}

/**
 * Returns the header that makes a browser delete its cookies (Clear Site Data, section 3.1). Any
 * project can set so many cookies for the whole domain that every other host refuses the requests
 * of its visitors. A long path alone does not cause the header, because any link can have one.
 */
export const cookieRemedy = ({ headers }: IncomingMessage, max: number): Record<string, string> =>
  (headers.cookie?.length ?? 0) > max / 2 ? { 'clear-site-data': '"cookies"' } : {};
