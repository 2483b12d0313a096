/** Searches files for a text. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Returns the files below a folder that contain the text. */
export async function filesWith(folder: string, text: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const paths = entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
  const found: string[] = [];
  for (const path of paths) {
    // Null: removed meanwhile.
    const bytes = await readFile(path).catch(() => null);
    if (bytes?.includes(text) === true) found.push(path);
  }
  return found;
}
