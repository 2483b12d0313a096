/** Answers requests that never reach a route: bytes that are not HTTP, CONNECT, unknown expectations. Each gets a problem document. */
import { type IncomingMessage, type Server as HttpServer, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { ERRORS, type ErrorCode } from '@berth/wire/errors';
import { PROBLEM_TYPE, problemOf } from '../problem.ts';

type ParserError = Error & { code?: string };

export function answerBrokenRequests(server: HttpServer): void {
  const answering = new WeakMap<Duplex, ServerResponse>();
  server.prependListener('request', (request, response) => answering.set(request.socket, response));

  server.on('clientError', (error: ParserError, socket) => {
    if (error.code === 'ECONNRESET' || !socket.writable) return void socket.destroy();
    const end = (): void => write(socket, ...describe(error));
    // Broken bytes may follow a valid request. The answer to the valid request is sent first.
    const response = answering.get(socket);
    if (response === undefined || response.writableFinished) return end();
    response.once('finish', end).once('close', () => socket.destroy());
  });
  // RFC 9110 section 9.3.6: an origin server that does not tunnel refuses CONNECT.
  server.on('connect', (request: IncomingMessage, socket: Duplex) =>
    write(socket, 'method_not_allowed', `${request.method} is not supported`, 'allow: GET, HEAD, POST, PUT, PATCH, DELETE\r\n'),
  );
  // RFC 9110 section 10.1.1
  server.on('checkExpectation', (request: IncomingMessage) =>
    write(request.socket, 'expectation_failed', 'only the expectation 100-continue is supported'),
  );
}

function describe(error: ParserError): [code: ErrorCode, detail: string] {
  if (error.code === 'HPE_HEADER_OVERFLOW') return ['headers_too_large', 'the headers are larger than 128 KiB'];
  if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') return ['request_timeout', 'the request did not arrive completely in time'];
  return ['bad_request', 'the bytes are not a valid HTTP request'];
}

function write(socket: Duplex, code: ErrorCode, detail: string, headers = ''): void {
  if (!socket.writable) return void socket.destroy();
  const { status } = ERRORS[code];
  const body = JSON.stringify(problemOf(code, detail, null));
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\ncontent-type: ${PROBLEM_TYPE}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n${headers}connection: close\r\n\r\n${body}`,
  );
}
