/** Finds the project's Dockerfile and build context, and checks that they lie inside the clone. */
import { lstat, realpath, stat } from 'node:fs/promises';
import { isAbsolute, join, relative, sep } from 'node:path';
import { TaskFailure } from './tools/failures.ts';

/** Returns the path for the builder, without symlinks. Throws TaskFailure dockerfile_missing, dockerfile_outside. */
export async function findDockerfile(workspace: string, path: string): Promise<string> {
  const root = await realpath(workspace);
  const wanted = join(root, path);
  if (isAbsolute(path) || isOutside(root, wanted)) throw new TaskFailure('dockerfile_outside', path);
  let found: string;
  try {
    found = await realpath(wanted);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    // A dangling link may lead out of the repository on another machine, so the failure names the link.
    const link = await lstat(wanted).then(
      (s) => s.isSymbolicLink(),
      () => false,
    );
    if (code === 'ELOOP' || link)
      throw new TaskFailure('dockerfile_outside', `${path} is a symlink without a target inside the repository`, { cause: error });
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ENAMETOOLONG')
      throw new TaskFailure('dockerfile_missing', path, { cause: error });
    throw error;
  }
  if (isOutside(root, found)) throw new TaskFailure('dockerfile_outside', `${path} is a symlink to a file outside the repository`);
  if (!(await stat(found)).isFile()) throw new TaskFailure('dockerfile_missing', `${path} is not a file`);
  return found;
}

/** Returns the folder for the builder, without symlinks. Throws TaskFailure build_context_missing, build_context_outside. */
export async function findContext(workspace: string, path: string): Promise<string> {
  const root = await realpath(workspace);
  const wanted = join(root, path);
  if (isAbsolute(path) || isOutside(root, wanted)) throw new TaskFailure('build_context_outside', path);
  let found: string;
  try {
    found = await realpath(wanted);
  } catch (error) {
    if (!['ENOENT', 'ENOTDIR', 'ENAMETOOLONG', 'ELOOP'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    throw new TaskFailure('build_context_missing', path, { cause: error });
  }
  if (isOutside(root, found)) throw new TaskFailure('build_context_outside', `${path} is a symlink to a folder outside the repository`);
  if (!(await stat(found)).isDirectory()) throw new TaskFailure('build_context_missing', `${path} is not a folder`);
  return found;
}

function isOutside(root: string, path: string): boolean {
  const fromRoot = relative(root, path);
  return fromRoot === '..' || fromRoot.startsWith(`..${sep}`) || isAbsolute(fromRoot);
}
