/** Sends answers of the proxy itself. */
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Reply } from './middlewares.ts';

export function send(res: ServerResponse, req: IncomingMessage, reply: Reply): void {
  if (res.destroyed) return;
  const body = Buffer.from(reply.body);
  res.writeHead(reply.status, { ...reply.headers, 'content-length': body.length });
  res.end(body);
  // Read and discard the rest of the request, so that the connection can be reused.
  req.resume();
}

/** Answers on the socket of a request that asked for a WebSocket, and closes it. */
export function sendRaw(socket: Duplex, reply: Reply): void {
  const body = Buffer.from(reply.body);
  const lines = [
    `HTTP/1.1 ${reply.status} ${STATUS_CODES[reply.status] ?? ''}`,
    `content-length: ${body.length}`,
    'connection: close',
  ];
  for (const [name, values] of Object.entries(reply.headers))
    for (const value of [values].flat()) lines.push(`${name}: ${value}`);
  socket.end(Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), body]));
}
