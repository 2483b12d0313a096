/**
 * Splits a stream with one JSON value per line, the format of the engine's events and progress.
 * Pure.
 */
const LF = 10;
/** Maximum size of one value in bytes. A longer value is an error of the engine. */
const MAX_VALUE = 1024 * 1024;

/**
 * Calls `onValue` for each line. `end` passes on a last line without a line end. Throws if a line
 * is not JSON.
 */
export function createJsonLines(onValue: (value: never) => void): {
  add(chunk: Buffer): void;
  end(): void;
} {
  let open: Buffer[] = [];
  let size = 0;
  function take(): void {
    const line = Buffer.concat(open).toString('utf8').trim();
    open = [];
    size = 0;
    if (line !== '') onValue(JSON.parse(line) as never);
  }
  function keep(bytes: Buffer): void {
    size += bytes.length;
    if (size > MAX_VALUE) throw new Error(`a line of the engine exceeds ${MAX_VALUE} bytes`);
    open.push(bytes);
  }
  return {
    add(chunk) {
      let from = 0;
      for (let to = chunk.indexOf(LF); to !== -1; to = chunk.indexOf(LF, from)) {
        keep(chunk.subarray(from, to));
        take();
        from = to + 1;
      }
      if (from < chunk.length) keep(chunk.subarray(from));
    },
    end: take,
  };
}
