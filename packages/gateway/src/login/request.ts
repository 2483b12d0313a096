/** Reads parameters, address and user agent of a request. */
import { trimOws } from '@berth/kit/ows';
import type { FastifyRequest } from 'fastify';

/** Returns a parameter, or undefined if it is missing, empty or repeated (RFC 6749 section 3.1). */
export function parameter(values: unknown, name: string): string | undefined {
  if (typeof values !== 'object' || values === null || !Object.hasOwn(values, name))
    return undefined;
  const value = (values as Record<string, unknown>)[name];
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** Returns the client address, truncated to the limit of the control plane's schemas. */
export const addressOf = (request: FastifyRequest): string => request.ip.slice(0, 100);
/**
 * Returns the user agent without control characters, so that it cannot break a log line or a page.
 */
export const userAgentOf = (request: FastifyRequest): string =>
  trimOws((request.headers['user-agent'] ?? '').replace(/\p{Cc}+/gu, ' ')).slice(0, 500);
