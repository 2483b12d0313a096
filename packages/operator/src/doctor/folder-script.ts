/**
 * Inspects one folder in a child process, because a hung share blocks every call and the process
 * that made it. The script is a string because an artefact has no file for it.
 */

export type Folder = {
  /** Error code such as ESTALE, or null if the folder is readable. */
  error: string | null;
  device: number;
  isEmpty: boolean;
  /**
   * Size of the file system in bytes and inodes. `free` is the space for users other than root.
   * `inodes` is 0 if the file system has no inode limit.
   */
  total: number;
  free: number;
  inodes: number;
  freeInodes: number;
  /** The id in `.berth-share`; '' if the content is not an id; null if the file does not exist. */
  marker: string | null;
};

export const FOLDER_SCRIPT = `
const { lstatSync, opendirSync, readFileSync, statfsSync, statSync } = require('node:fs');
const path = process.argv[1];
const found = { error: null, device: 0, isEmpty: true, total: 0, free: 0, inodes: 0, freeInodes: 0, marker: null };
try {
  const facts = statSync(path);
  if (!facts.isDirectory()) throw Object.assign(new Error(), { code: 'ENOTDIR' });
  found.device = facts.dev;
  const space = statfsSync(path);
  Object.assign(found, { total: space.blocks * space.bsize, free: space.bavail * space.bsize, inodes: space.files, freeInodes: space.ffree });
  const folder = opendirSync(path);
  for (let entry = folder.readSync(); entry !== null; entry = folder.readSync())
    if (entry.name !== '.berth-share' && entry.name !== 'lost+found') { found.isEmpty = false; break; }
  folder.closeSync();
  const marker = path + '/.berth-share';
  try {
    // Read only a regular file, because a FIFO would block.
    if (lstatSync(marker).isFile()) found.marker = /^berth-share ([0-9a-f-]{36})\\n$/.exec(readFileSync(marker, 'latin1').slice(0, 100))?.[1] ?? '';
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
  }
} catch (error) {
  found.error = error.code ?? String(error);
}
process.stdout.write(JSON.stringify(found));
`;
