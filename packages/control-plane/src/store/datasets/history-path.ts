/**
 * Shortens paths for the key of dataset_history. An index entry holds 2,704 bytes at most. A path
 * can have 4,096 bytes, and encoding makes three characters of one byte. A longer path is cut and
 * gets a digest; the column `long_path` has the whole path.
 */
import { createHash } from 'node:crypto';

const LONGEST_KEY = 2000;
const CUT_AT = 1900;

/**
 * Returns a unique key for each path. Keys have the order of the paths, except paths that differ
 * only after CUT_AT characters.
 */
export const pathKey = (path: string): string =>
  path.length <= LONGEST_KEY
    ? path
    : `${path.slice(0, CUT_AT)} ${createHash('sha256').update(path).digest('hex')}`;

export const pathColumns = (path: string): { path: string; long_path: string | null } => ({
  path: pathKey(path),
  long_path: path.length <= LONGEST_KEY ? null : path,
});

/** A half-open range: `to` is excluded. */
export type Span = { from: string; to: string };

/**
 * Returns the range of paths below a folder (which ends with `/`), and the range of their keys if
 * the folder's own path can be cut.
 */
export function below(folder: string): { whole: Span; key: Span | null } {
  const cut = `${folder.slice(0, CUT_AT)} `;
  return {
    // `0` is the character after `/`. `!` is the character after a space, and encoded paths contain
    // no space.
    whole: { from: folder, to: folder.replace(/\/$/, '0') },
    key: folder.length <= CUT_AT ? null : { from: cut, to: cut.replace(/ $/, '!') },
  };
}
