/**
 * Answers requests that never reach a route: bytes that are not HTTP, CONNECT, unknown
 * expectations, and requests that do not arrive completely in time. Each gets a problem document,
 * and its connection ends even if the client does not close it.
 */
import {
  type IncomingMessage,
  type Server as HttpServer,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import type { Duplex } from 'node:stream';
import { ERRORS, type ErrorCode } from '@berth/wire/errors';
import { PROBLEM_TYPE, problemOf } from '../problem.ts';

type ParserError = Error & { code?: string };
type Exchange = { request: IncomingMessage; response: ServerResponse };

/** How long a client can read the answer before its connection is destroyed. */
const LINGER_MS = 1_000;

export function answerBrokenRequests(server: HttpServer): void {
  const exchanges = new WeakMap<Duplex, Exchange>();
  server.prependListener('request', (request, response) =>
    exchanges.set(request.socket, { request, response }),
  );

  server.on('clientError', (error: ParserError, socket) => {
    if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
    const end = (): void => write(socket, ...describe(error));
    const exchange = exchanges.get(socket);
    if (exchange === undefined || exchange.response.writableFinished) return end();
    const { request, response } = exchange;
    // The handler still waits for the rest of this request and would never answer.
    if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT' && !request.complete)
      return response.headersSent ? void socket.destroy() : end();
    // Broken bytes can follow a valid request. The answer to the valid request is sent first.
    response.once('finish', end).once('close', () => socket.destroy());
  });
  // Refuse CONNECT, because this server does not tunnel (RFC 9110 section 9.3.6).
  server.on('connect', (request: IncomingMessage, socket: Duplex) =>
    write(
      socket,
      'method_not_allowed',
      `${request.method} is not supported`,
      'allow: GET, HEAD, POST, PUT, PATCH, DELETE\r\n',
    ),
  );
  // Refuse unknown expectations (RFC 9110 section 10.1.1).
  server.on('checkExpectation', (request: IncomingMessage) =>
    write(request.socket, 'expectation_failed', 'only the expectation 100-continue is supported'),
  );
}

export function refuseHeaders(response: ServerResponse, remedy: Record<string, string>): void {
  const [code, detail] = describe(HEADER_OVERFLOW);
  const body = JSON.stringify(problemOf({ code, detail }, null));
  const headers = {
    'content-type': PROBLEM_TYPE,
    'content-length': Buffer.byteLength(body),
    connection: 'close',
    ...remedy,
  };
  response.writeHead(ERRORS[code].status, headers).end(body);
}
const HEADER_OVERFLOW = { code: 'HPE_HEADER_OVERFLOW' };

function describe(error: Pick<ParserError, 'code'>): [code: ErrorCode, detail: string] {
  if (error.code === 'HPE_HEADER_OVERFLOW')
    return ['headers_too_large', 'the headers are larger than 128 KiB'];
  if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return ['request_timeout', 'the request did not arrive completely in time'];
  return ['bad_request', 'the bytes are not a valid HTTP request'];
}

function write(socket: Duplex, code: ErrorCode, detail: string, headers = ''): void {
  if (!socket.writable) return void socket.destroy();
  const { status } = ERRORS[code];
  const body = JSON.stringify(problemOf({ code, detail }, null));
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\ncontent-type: ` +
      `${PROBLEM_TYPE}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n${headers}connection: ` +
      `close\r\n\r\n${body}`,
  );
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}
