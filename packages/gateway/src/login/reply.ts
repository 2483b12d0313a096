/** Sends HTML pages with their security headers. */
import type { FastifyReply } from 'fastify';
import { PAGE_HEADERS } from '../pages/layout.ts';

export function sendPage(reply: FastifyReply, status: number, page: string): FastifyReply {
  return reply.code(status).headers(PAGE_HEADERS).send(page);
}
