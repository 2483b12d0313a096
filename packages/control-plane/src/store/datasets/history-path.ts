/**
 * How a path stands in the key of dataset_history. An engine takes 2,704 bytes in an index, and a path may be 4,096, three
 * letters each where they are encoded: what is longer is cut, told apart by a digest, and kept whole beside it.
 */
import { createHash } from 'node:crypto';

const MOST = 2000;
const KEPT = 1900;

/** One for each path, and in their order but for the ends of those that are cut. */
export const pathKey = (path: string): string =>
  path.length <= MOST ? path : `${path.slice(0, KEPT)} ${createHash('sha256').update(path).digest('hex')}`;

export const pathColumns = (path: string): { path: string; long_path: string | null } => ({
  path: pathKey(path),
  long_path: path.length <= MOST ? null : path,
});

/** `to` itself is outside. */
export type Span = { from: string; to: string };

/** What lies below a folder (`/` at its end): as whole paths, and, where those may be cut within its name, as keys. */
export function below(folder: string): { whole: Span; key: Span | null } {
  const cut = `${folder.slice(0, KEPT)} `;
  return {
    // `0` is the character after `/`, `!` the one after a space, which no encoded path has.
    whole: { from: folder, to: folder.replace(/\/$/, '0') },
    key: folder.length <= KEPT ? null : { from: cut, to: cut.replace(/ $/, '!') },
  };
}
