/**
 * Splits the engine's multiplexed stream of a container's output. A frame is a header of 8 bytes
 * (stream, three zeros, length) and its payload. A container with a terminal sends no frames, and
 * all of its output is standard output. Pure.
 */
export type OnOutput = (chunk: Buffer, stream: 'stdout' | 'stderr') => void;
export type FrameReader = {
  add(chunk: Buffer): void;
  /** Returns the error that the engine sent in place of output, or null. */
  error(): string | null;
};

const HEADER = 8;
const STDERR = 2;
const ENGINE_ERROR = 3;
const MAX_ERROR = 4_096;

export function createFrameReader(onOutput: OnOutput): FrameReader {
  /** The part of an incomplete header that has arrived. */
  let head: Buffer = Buffer.alloc(0);
  let kind = 0;
  /** Bytes of the current frame that have not arrived yet. */
  let missing = 0;
  let error = '';
  /** Null until the first bytes arrive. */
  let hasFrames: boolean | null = null;

  function pass(bytes: Buffer): void {
    if (kind === ENGINE_ERROR) error = (error + bytes.toString('utf8')).slice(0, MAX_ERROR);
    else onOutput(bytes, kind === STDERR ? 'stderr' : 'stdout');
  }
  function addFrames(chunk: Buffer): void {
    let rest = head.length === 0 ? chunk : Buffer.concat([head, chunk]);
    head = Buffer.alloc(0);
    while (rest.length > 0) {
      if (missing === 0) {
        if (rest.length < HEADER) return void (head = Buffer.from(rest));
        if (!isHeader(rest)) throw new Error('the engine sent output without a frame');
        kind = rest.readUInt8(0);
        missing = rest.readUInt32BE(4);
        rest = rest.subarray(HEADER);
      }
      const part = rest.subarray(0, missing);
      missing -= part.length;
      rest = rest.subarray(part.length);
      if (part.length > 0) pass(part);
    }
  }
  return {
    add(chunk) {
      if (chunk.length === 0) return;
      hasFrames ??= chunk.readUInt8(0) <= ENGINE_ERROR;
      if (hasFrames) addFrames(chunk);
      else onOutput(chunk, 'stdout');
    },
    error: () => (error === '' ? null : error.trim()),
  };
}

const isHeader = (bytes: Buffer): boolean =>
  bytes.readUInt8(0) <= ENGINE_ERROR && bytes.readUIntBE(1, 3) === 0;
