/**
 * Shortens paths for the key of dataset_history. An index entry holds at most 2,704 bytes. A path
 * can have 4,096 bytes, and encoding can turn one byte into three characters. A longer path is cut
 * and gets a digest; the column `long_path` has the whole path.
 */
import { createHash } from 'node:crypto';

const LONGEST_KEY = 2000;
const CUT_AT = 1900;

/**
 * Returns a unique key for each path. Keys sort like the paths, except for paths that differ only
 * after CUT_AT characters.
 */
export const pathKey = (path: string): string =>
  path.length <= LONGEST_KEY
    ? path
    : `${path.slice(0, CUT_AT)} ${createHash('sha256').update(path).digest('hex')}`;

export const pathColumns = (path: string): { path: string; long_path: string | null } => ({
  path: pathKey(path),
  long_path: path.length <= LONGEST_KEY ? null : path,
});

/** A half-open range of texts, without `to`. */
export type Span = { from: string; to: string };

/**
 * Returns the range of paths below a folder (which ends with `/`). If the folder's path is too long
 * and is cut, also returns the range of their keys.
 */
export function below(folder: string): { whole: Span; key: Span | null } {
  const cut = `${folder.slice(0, CUT_AT)} `;
  return {
    // In byte order `0` follows `/`, and `!` follows the space. Encoded paths contain no space.
    whole: { from: folder, to: folder.replace(/\/$/, '0') },
    key: folder.length <= CUT_AT ? null : { from: cut, to: cut.replace(/ $/, '!') },
  };
}
