import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { closeFrame, ProtocolError, opcodes, readFrame, writeFrame } from './frames.ts';

export interface Socket {
  send(text: string): void;
  /** 1001: going away (the server stops), 1000: done. */
  close(code: number): void;
}

export interface Handlers {
  readonly onText: (text: string, socket: Socket) => void;
  readonly onClose: (socket: Socket) => void;
}

// RFC 6455, section 1.3.
const acceptGuid = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const longestMessage = 64 * 1024;
const pingEveryMs = 20_000;

/**
 * Answers an upgrade request and speaks WebSocket on its stream; returns undefined when it is not a
 * WebSocket request.
 */
export function acceptSocket(
  request: IncomingMessage,
  stream: Duplex,
  head: Buffer,
  handlers: Handlers,
): Socket | undefined {
  const key = request.headers['sec-websocket-key'];
  if (
    request.headers.upgrade?.toLowerCase() !== 'websocket' ||
    key === undefined ||
    request.headers['sec-websocket-version'] !== '13'
  ) {
    stream.end(
      'HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nSec-WebSocket-Version: ' +
        '13\r\nConnection: close\r\n\r\n',
    );
    return undefined;
  }
  const accept = createHash('sha1')
    .update(key + acceptGuid)
    .digest('base64');
  stream.write(
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: ` +
      `Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
  );

  let pending = head;
  let parts: Buffer[] = [];
  let answered = true;
  const socket: Socket = {
    send: (text) => void stream.write(writeFrame(opcodes.text, text)),
    close: (code) => void stream.end(closeFrame(code)),
  };
  // Proxies cut connections that are silent for 60 s, and a vanished client must not stay in the
  // room.
  const heartbeat = setInterval(() => {
    if (!answered) return stream.destroy();
    answered = false;
    stream.write(writeFrame(opcodes.ping, ''));
  }, pingEveryMs);

  const read = (chunk: Buffer) => {
    pending = Buffer.concat([pending, chunk]);
    try {
      for (let next = readFrame(pending); next !== undefined; next = readFrame(pending)) {
        pending = next.rest;
        const { frame } = next;
        answered = true;
        if (frame.opcode === opcodes.close) return stream.end(closeFrame(1000));
        if (frame.opcode === opcodes.ping) stream.write(writeFrame(opcodes.pong, frame.payload));
        if (frame.opcode > opcodes.binary) continue;
        parts.push(frame.payload);
        if (parts.reduce((sum, part) => sum + part.length, 0) > longestMessage)
          throw new ProtocolError(1009, 'message too big');
        if (!frame.final) continue;
        const text = Buffer.concat(parts).toString('utf8');
        parts = [];
        handlers.onText(text, socket);
      }
    } catch (error) {
      stream.end(closeFrame(error instanceof ProtocolError ? error.code : 1011));
    }
  };
  stream.on('data', read);
  stream.on('error', () => stream.destroy());
  stream.once('close', () => {
    clearInterval(heartbeat);
    handlers.onClose(socket);
  });
  if (head.length > 0) read(Buffer.alloc(0));
  return socket;
}
