/** Finds Git LFS pointers in a checkout. Berth does not fetch LFS content, so the log warns that the build gets the pointers. */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import type { Git } from './submodules.ts';

const FIRST_LINE = 'version https://git-lfs.github.com/spec/v1\n';
/** Files that are checked in each repository; enough to report that there are pointers. */
const MAX_FILES = 1_000;

/** Returns a sentence that names some of the pointers; null if there are none. `name` is the prefix of a folder’s paths. */
export async function lfsPointers(git: Git, dirs: readonly { dir: string; name: string }[]): Promise<string | null> {
  const found: string[] = [];
  for (const { dir, name } of dirs) {
    const paths = (await git(['ls-files', '-z', '--', ':(top,attr:filter=lfs)'], dir)).split('\0').filter((path) => path !== '');
    for (const path of paths.slice(0, MAX_FILES)) if (await isPointer(join(dir, path))) found.push(`${name}${path}`);
  }
  if (found.length === 0) return null;
  const some = found.slice(0, 5).join(', ');
  const more = found.length > 5 ? ` and ${found.length - 5} more` : '';
  const what =
    found.length === 1 ? '1 file is a Git LFS pointer, not its content' : `${found.length} files are Git LFS pointers, not their content`;
  return `${what}: ${some}${more}. Berth does not fetch Git LFS content; the build gets the pointers`;
}

async function isPointer(path: string): Promise<boolean> {
  // Do not follow symlinks: they may lead out of the checkout.
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(() => null);
  if (file === null) return false;
  try {
    const { bytesRead, buffer } = await file.read(Buffer.alloc(FIRST_LINE.length), 0, FIRST_LINE.length, 0);
    return buffer.toString('latin1', 0, bytesRead) === FIRST_LINE;
  } finally {
    await file.close();
  }
}
