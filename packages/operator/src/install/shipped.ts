/** Reads files that come with Berth, from deploy/ of the artefact or of the repository. */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { Problem } from '../lib/command.ts';

/** Returns the text of a file below deploy/. */
export const shipped = (path: string): string => readFileSync(located(path), 'utf8');

/** Expands folders below deploy/ into the paths of all their files. */
export function shippedFiles(names: readonly string[]): string[] {
  return names.flatMap((name) => {
    const at = located(name);
    if (!statSync(at).isDirectory()) return [name];
    const files = readdirSync(at, { recursive: true, withFileTypes: true }).filter((entry) =>
      entry.isFile(),
    );
    return files
      .map((entry) => join(name, relative(at, join(entry.parentPath, entry.name))))
      .toSorted();
  });
}

function located(path: string): string {
  for (let folder = import.meta.dirname; folder !== '/'; folder = dirname(folder)) {
    const file = join(folder, 'deploy', path);
    if (existsSync(file)) return file;
  }
  throw new Problem(`deploy/${path} is missing: install the package of Berth again`);
}
