/** What a request says, read once and carefully. */
import type { FastifyRequest } from 'fastify';

/** RFC 6749 section 3.1: a parameter stands once or not at all; twice is as good as never. */
export function parameter(values: unknown, name: string): string | undefined {
  if (typeof values !== 'object' || values === null || !Object.hasOwn(values, name)) return undefined;
  const value = (values as Record<string, unknown>)[name];
  return typeof value === 'string' && value !== '' ? value : undefined;
}

/** As the schemas between gateway and control plane bound it. */
export const addressOf = (request: FastifyRequest): string => request.ip.slice(0, 100);
/** Nothing in it can break a line of a log or a page. */
export const userAgentOf = (request: FastifyRequest): string =>
  (request.headers['user-agent'] ?? '')
    .replace(/\p{Cc}+/gu, ' ')
    .trim()
    .slice(0, 500);
