/** Writes private files: only the owner can read them, and every write is atomic. */
import { mkdirSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { writeFileWholeSync } from '@berth/kit/write-file';
import { CliError, EXIT } from '../problem.ts';

export function readJson(path: string): unknown {
  let content: string;
  try {
    content = readFileSync(path, 'utf8');
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
  try {
    return JSON.parse(content);
  } catch {
    throw new CliError(EXIT.usage, 'usage', `${path} is not valid JSON`, {
      next: `correct it or remove it: rm ${path}`,
    });
  }
}

/** Writes a file atomically with mode 0600, and creates its folder. */
export function writePrivate(path: string, content: string): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  writeFileWholeSync(path, content);
}

export const isMissing = (error: unknown): boolean =>
  (error as NodeJS.ErrnoException).code === 'ENOENT';
