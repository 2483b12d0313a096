/**
 * Splits the engine's multiplexed stream of a container's output: frames of an 8 byte header
 * (stream, three zeros, length) and their bytes. The output of a container with a terminal has no
 * frames: then all of it is standard output. Pure.
 */
export type OnOutput = (chunk: Buffer, stream: 'stdout' | 'stderr') => void;
export type FrameReader = {
  add(chunk: Buffer): void;
  /** The engine's own error, which it sends in place of output; null without one. */
  error(): string | null;
};

const HEADER = 8;
const STDERR = 2;
const ENGINE_ERROR = 3;
const MAX_ERROR = 4_096;

export function createFrameReader(onOutput: OnOutput): FrameReader {
  /** The beginning of a header. */
  let head: Buffer = Buffer.alloc(0);
  let kind = 0;
  /** Bytes of the open frame that have not arrived. */
  let missing = 0;
  let error = '';
  /** Null: nothing has arrived yet. */
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
