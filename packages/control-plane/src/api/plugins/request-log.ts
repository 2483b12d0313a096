/** One line a request, with its id. Polls and reads are for `debug`; what changes something or fails is for `info`. */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Server } from '../define.ts';

/** The caller's id where it is one that can stand in a log line, else a new one. */
export function requestId(request: IncomingMessage): string {
  const given = request.headers['x-request-id'];
  return typeof given === 'string' && /^[\w.:-]{1,100}$/.test(given) ? given : randomUUID();
}

export function installRequestLog(server: Server): void {
  server.addHook('onRequest', async (request, reply) => {
    void reply.header('x-request-id', request.id);
  });
  server.addHook('onResponse', async (request, reply) => {
    const quiet =
      reply.statusCode < 400 && (request.method === 'GET' || request.method === 'HEAD' || request.url.startsWith('/api/agent/'));
    const line = {
      method: request.method,
      // Without the query: it is nobody's credential today, and must not become one in the log.
      path: request.url.split('?', 1)[0],
      status: reply.statusCode,
      ms: Math.round(reply.elapsedTime),
      ip: request.ip,
      ...(request.caller === null || request.caller === undefined ? {} : { user: request.caller.email }),
    };
    request.log[quiet ? 'debug' : 'info'](line, 'request');
  });
}
