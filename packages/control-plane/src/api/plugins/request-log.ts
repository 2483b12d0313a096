/**
 * Logs one line for each request, with its id. Successful reads and agent requests are logged at
 * `debug`, all others at `info`.
 */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { FastifyBaseLogger } from 'fastify';
import { defined } from '@berth/kit/defined';
import type { Server } from '../define.ts';
import { addressOf } from '../problem.ts';

/** Returns the X-Request-Id of the caller if it is valid, else a new id. */
export function requestId(request: IncomingMessage): string {
  const header = request.headers['x-request-id'];
  return typeof header === 'string' && /^[\w.:-]{1,100}$/.test(header) ? header : randomUUID();
}

/**
 * The logger of a request, which adds the request id to each line. It is created at the first line,
 * because most requests log nothing.
 */
export class RequestLog {
  readonly #make: () => FastifyBaseLogger;
  #made: FastifyBaseLogger | null = null;
  readonly level: string;
  constructor(level: string, make: () => FastifyBaseLogger) {
    this.level = level;
    this.#make = make;
  }
  get #log(): FastifyBaseLogger {
    return (this.#made ??= this.#make());
  }
  readonly silent = (): void => {};
  fatal(...line: Line): void {
    this.#log.fatal(...line);
  }
  error(...line: Line): void {
    this.#log.error(...line);
  }
  warn(...line: Line): void {
    this.#log.warn(...line);
  }
  info(...line: Line): void {
    this.#log.info(...line);
  }
  debug(...line: Line): void {
    this.#log.debug(...line);
  }
  trace(...line: Line): void {
    this.#log.trace(...line);
  }
  child(...args: Parameters<FastifyBaseLogger['child']>): FastifyBaseLogger {
    return this.#log.child(...args);
  }
}
type Line = [fields: object, message?: string];

export function installRequestLog(server: Server): void {
  const all = server.log.level === 'debug' || server.log.level === 'trace';
  // Use callbacks in these hooks: a promise for each request would cost more than the hooks
  // themselves.
  server.addHook('onRequest', (request, reply, done) => {
    void reply.header('x-request-id', request.id);
    done();
  });
  server.addHook('onResponse', (request, reply, done) => {
    done();
    const quiet =
      reply.statusCode < 400 &&
      (request.method === 'GET' ||
        request.method === 'HEAD' ||
        request.url.startsWith('/api/agent/'));
    if (quiet && !all) return;
    const line = {
      method: request.method,
      // Log the path without its query, which can contain a credential.
      path: addressOf(request.url),
      status: reply.statusCode,
      ms: Math.round(reply.elapsedTime),
      ip: request.ip,
      ...defined({
        user:
          request.caller === null || request.caller === undefined
            ? undefined
            : request.caller.email,
      }),
    };
    request.log[quiet ? 'debug' : 'info'](line, 'request');
  });
}
