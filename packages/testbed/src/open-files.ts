import { readdirSync, readlinkSync } from 'node:fs';

/** Linux: returns the paths below `folder` that this process has open. */
export const openFilesBelow = (folder: string): string[] =>
  readdirSync('/proc/self/fd')
    .map(pathOf)
    .filter((path) => path.startsWith(`${folder}/`));

function pathOf(fd: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    // It was the folder of this listing, or it has just been closed.
    return '';
  }
}
