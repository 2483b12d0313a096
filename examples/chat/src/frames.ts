// WebSocket frames (RFC 6455, section 5), as far as a chat needs them.
export const opcodes = {
  continuation: 0,
  text: 1,
  binary: 2,
  close: 8,
  ping: 9,
  pong: 10,
} as const;

export interface Frame {
  readonly final: boolean;
  readonly opcode: number;
  readonly payload: Buffer;
}

/** The client broke the protocol; `code` is the close code of the answer (section 7.4.1). */
export class ProtocolError extends Error {
  readonly code: number;
  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

const longestPayload = 64 * 1024;

/** Reads the first frame of `bytes`; undefined when it is not complete yet. */
export function readFrame(bytes: Buffer): { frame: Frame; rest: Buffer } | undefined {
  if (bytes.length < 2) return undefined;
  const first = bytes.readUInt8(0);
  const second = bytes.readUInt8(1);
  // Section 5.1: a client must mask its frames.
  if ((second & 0x80) === 0) throw new ProtocolError(1002, 'frame without a mask');
  let length = second & 0x7f;
  let offset = 2;
  if (length === 126) {
    if (bytes.length < 4) return undefined;
    length = bytes.readUInt16BE(2);
    offset = 4;
  } else if (length === 127) {
    if (bytes.length < 10) return undefined;
    length = Number(bytes.readBigUInt64BE(2));
    offset = 10;
  }
  if (length > longestPayload) throw new ProtocolError(1009, 'message too big');
  if (bytes.length < offset + 4 + length) return undefined;
  const mask = bytes.subarray(offset, offset + 4);
  const payload = Buffer.from(bytes.subarray(offset + 4, offset + 4 + length));
  for (const [i, byte] of payload.entries()) payload[i] = byte ^ mask.readUInt8(i % 4);
  return {
    frame: { final: (first & 0x80) !== 0, opcode: first & 0x0f, payload },
    rest: bytes.subarray(offset + 4 + length),
  };
}

/** Returns one unmasked, final frame, as a server sends it. */
export function writeFrame(opcode: number, payload: string | Buffer): Buffer {
  const body = typeof payload === 'string' ? Buffer.from(payload) : payload;
  const head =
    body.length < 126
      ? Buffer.from([0x80 | opcode, body.length])
      : body.length < 65_536
        ? Buffer.from([0x80 | opcode, 126, body.length >> 8, body.length & 0xff])
        : Buffer.concat([Buffer.from([0x80 | opcode, 127]), bigLength(body.length)]);
  return Buffer.concat([head, body]);
}

export function closeFrame(code: number): Buffer {
  return writeFrame(opcodes.close, Buffer.from([code >> 8, code & 0xff]));
}

function bigLength(length: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(length));
  return bytes;
}
