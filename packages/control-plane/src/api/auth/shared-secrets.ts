import { timingSafeEqual } from 'node:crypto';

/**
 * All are compared, each as its length and its bytes in a space for the longest there is: the time tells neither how much was
 * right nor which one it was. (Digests would do the same at ten times the cost, and ten thousand agents ask all the time.)
 */
export function matchesAny(secrets: readonly string[]): (given: string | string[] | undefined) => boolean {
  const size = Math.max(0, ...secrets.map((s) => Buffer.byteLength(s)));
  const known = secrets.map((s) => spread(s, Buffer.alloc(LENGTH_BYTES + size)));
  const shown = Buffer.alloc(LENGTH_BYTES + size);
  return (given) => {
    spread(typeof given === 'string' ? given : '', shown);
    return known.filter((k) => timingSafeEqual(k, shown)).length > 0;
  };
}

const LENGTH_BYTES = 4;
/** What is longer than the space is cut: its length says that it is no secret of ours. */
function spread(text: string, into: Buffer): Buffer {
  into.fill(0);
  into.writeUInt32LE(Buffer.byteLength(text));
  into.write(text, LENGTH_BYTES);
  return into;
}
