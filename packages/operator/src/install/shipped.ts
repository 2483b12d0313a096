/** Files that come with Berth: deploy/ of the artefact, or of the repository. */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Problem } from '../lib/command.ts';

/** Returns the text of a file below deploy/. */
export function shipped(path: string): string {
  for (let folder = import.meta.dirname; folder !== '/'; folder = dirname(folder)) {
    const file = join(folder, 'deploy', path);
    if (existsSync(file)) return readFileSync(file, 'utf8');
  }
  throw new Problem(`deploy/${path} is missing: install the package of Berth again`);
}
