/** Where the project's Dockerfile is, once it is sure that it lies inside the clone. */
import { lstat, realpath, stat } from 'node:fs/promises';
import { isAbsolute, join, relative, sep } from 'node:path';
import { TaskFailure } from './tools/failures.ts';

/** Gives the path to hand to the builder, with no link left in it. TaskFailure dockerfile_missing, dockerfile_outside. */
export async function findDockerfile(workspace: string, path: string): Promise<string> {
  const root = await realpath(workspace);
  const wanted = join(root, path);
  if (isAbsolute(path) || isOutside(root, wanted)) throw new TaskFailure('dockerfile_outside', path);
  let found: string;
  try {
    found = await realpath(wanted);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    // A link that leads nowhere on this machine may well lead out of the repository on another: say what it is.
    const link = await lstat(wanted).then(
      (s) => s.isSymbolicLink(),
      () => false,
    );
    if (code === 'ELOOP' || link)
      throw new TaskFailure('dockerfile_outside', `${path} is a link that leads nowhere inside the repository`, { cause: error });
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ENAMETOOLONG')
      throw new TaskFailure('dockerfile_missing', path, { cause: error });
    throw error;
  }
  if (isOutside(root, found)) throw new TaskFailure('dockerfile_outside', `${path} is a link to a place outside`);
  if (!(await stat(found)).isFile()) throw new TaskFailure('dockerfile_missing', `${path} is not a file`);
  return found;
}

function isOutside(root: string, path: string): boolean {
  const way = relative(root, path);
  return way === '..' || way.startsWith(`..${sep}`) || isAbsolute(way);
}
