/**
 * The script that installs Berth on a fresh machine (deploy/install.sh). It comes with the program, so
 * its version and the address of its release are those of this control plane.
 */
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DomainError } from '../domain/platform/errors.ts';
import { createStaticAnswer, type StaticAnswer } from './static-answer.ts';

/** @throws {DomainError} `not_found`: the script is not beside the program. */
export const createInstallScript = (folder = import.meta.dirname): StaticAnswer =>
  createStaticAnswer('text/x-shellscript; charset=utf-8', () => {
    const file = located(folder);
    if (file === null)
      throw new DomainError('not_found', 'this control plane has no deploy/install.sh');
    return readFileSync(file, 'utf8');
  });

/** Searches deploy/ beside the program: in the artefact, or in the repository. */
function located(from: string): string | null {
  for (let folder = from; folder !== '/'; folder = dirname(folder)) {
    const file = join(folder, 'deploy/install.sh');
    if (existsSync(file)) return file;
  }
  return null;
}
