/** Finds the project's Dockerfile and build context, and checks that they lie inside the clone. */
import { lstat, readdir, realpath, stat } from 'node:fs/promises';
import { isAbsolute, join, relative, sep } from 'node:path';
import { TaskFailure } from '../failures.ts';
import { isDockerfilePath } from './dockerfile-facts.ts';

/**
 * Returns the Dockerfile's path for the builder, without symlinks. Throws TaskFailure
 * dockerfile_missing, dockerfile_outside.
 */
export async function findDockerfile(workspace: string, path: string): Promise<string> {
  const root = await realpath(workspace);
  const wanted = join(root, path);
  if (isAbsolute(path) || isOutside(root, wanted))
    throw new TaskFailure('dockerfile_outside', path);
  let realPath: string;
  try {
    realPath = await realpath(wanted);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    // The failure names a dangling symlink, because its target might exist on the developer's
    // machine, outside the repository.
    const link = await lstat(wanted).then(
      (s) => s.isSymbolicLink(),
      () => false,
    );
    if (code === 'ELOOP' || link)
      throw new TaskFailure(
        'dockerfile_outside',
        `${path} is a symlink without a target inside the repository`,
        { cause: error },
      );
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ENAMETOOLONG')
      throw new TaskFailure('dockerfile_missing', `${path}. ${await otherDockerfiles(root)}`, {
        cause: error,
      });
    throw error;
  }
  if (isOutside(root, realPath))
    throw new TaskFailure(
      'dockerfile_outside',
      `${path} is a symlink to a file outside the repository`,
    );
  if (!(await stat(realPath)).isFile())
    throw new TaskFailure(
      'dockerfile_missing',
      `${path} is not a file. ${await otherDockerfiles(root)}`,
    );
  return realPath;
}

/**
 * Returns the build context for the builder, without symlinks. Throws TaskFailure
 * build_context_missing, build_context_outside.
 */
export async function findContext(workspace: string, path: string): Promise<string> {
  const root = await realpath(workspace);
  const wanted = join(root, path);
  if (isAbsolute(path) || isOutside(root, wanted))
    throw new TaskFailure('build_context_outside', path);
  let realPath: string;
  try {
    realPath = await realpath(wanted);
  } catch (error) {
    if (
      !['ENOENT', 'ENOTDIR', 'ENAMETOOLONG', 'ELOOP'].includes(
        (error as NodeJS.ErrnoException).code ?? '',
      )
    )
      throw error;
    throw new TaskFailure(
      'build_context_missing',
      `${path}. Set build_context to a folder of the repository; "." is its root`,
      {
        cause: error,
      },
    );
  }
  if (isOutside(root, realPath))
    throw new TaskFailure(
      'build_context_outside',
      `${path} is a symlink to a folder outside the repository`,
    );
  if (!(await stat(realPath)).isDirectory())
    throw new TaskFailure(
      'build_context_missing',
      `${path} is not a folder. Set build_context to a folder of the repository; "." is its root`,
    );
  return realPath;
}

function isOutside(root: string, path: string): boolean {
  const fromRoot = relative(root, path);
  return fromRoot === '..' || fromRoot.startsWith(`..${sep}`) || isAbsolute(fromRoot);
}

/** Limits of the search for Dockerfiles, because the repository is not trusted. */
const MAX_FOLDERS = 500;
const MAX_DEPTH = 5;
const SHOWN = 5;

/** Lists the repository's Dockerfiles, nearest to the root first, and says what to do. */
async function otherDockerfiles(root: string): Promise<string> {
  const dockerfiles: string[] = [];
  let folders = [''];
  let seen = 0;
  for (let depth = 0; depth < MAX_DEPTH && folders.length > 0; depth += 1) {
    const below: string[] = [];
    for (const folder of folders) {
      if ((seen += 1) > MAX_FOLDERS || dockerfiles.length > SHOWN) break;
      const entries = await readdir(join(root, folder), { withFileTypes: true }).catch(() => []);
      for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
        const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
        if (entry.isFile() && isDockerfilePath(path)) dockerfiles.push(path);
        // A symlink does not count as a folder.
        else if (entry.isDirectory() && !['.git', 'node_modules', 'vendor'].includes(entry.name))
          below.push(path);
      }
    }
    folders = below;
  }
  if (dockerfiles.length === 0)
    return 'The repository has no Dockerfile; add one, or set dockerfile_path to its path';
  const shown = dockerfiles.slice(0, SHOWN).join(', ');
  const more = dockerfiles.length > SHOWN ? ', and others' : '';
  return `The repository has ${shown}${more}; set dockerfile_path to the right one`;
}
