/** One line a request, with its id. Polls and reads are for `debug`; what changes something or fails is for `info`. */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { FastifyBaseLogger } from 'fastify';
import type { Server } from '../define.ts';

/** The caller's id where it is one that can stand in a log line, else a new one. */
export function requestId(request: IncomingMessage): string {
  const given = request.headers['x-request-id'];
  return typeof given === 'string' && /^[\w.:-]{1,100}$/.test(given) ? given : randomUUID();
}

/** Most requests log nothing: the logger of one, with its id in every line, is made at its first line. */
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
  // Hooks of every request call back: a promise for each costs more than what they do.
  server.addHook('onRequest', (request, reply, done) => {
    void reply.header('x-request-id', request.id);
    done();
  });
  server.addHook('onResponse', (request, reply, done) => {
    done();
    const quiet =
      reply.statusCode < 400 && (request.method === 'GET' || request.method === 'HEAD' || request.url.startsWith('/api/agent/'));
    if (quiet && !all) return;
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
