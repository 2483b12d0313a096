/**
 * Started by check-folder.ts with two arguments: the base path and the dataset's path. Prints a
 * FolderProblem as JSON, or `null` if the folder can be a dataset.
 */
import { realpathSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { FolderProblem } from '../../domain/data/folder-check.ts';
import { reasonOf } from './share.ts';

const [, , basePath = '', nfsPath = ''] = process.argv;
process.stdout.write(JSON.stringify(checkFolder(basePath, nfsPath)));

function checkFolder(base: string, path: string): FolderProblem {
  const root = real(base);
  if (typeof root !== 'string')
    return { rule: 'unreachable', message: `the shared storage ${base} ${reasonOf(root.code)}` };
  const folder = real(join(root, path));
  if (typeof folder !== 'string') {
    if (folder.code === 'ENOENT')
      return { rule: 'missing', message: `there is no folder “${path}” on the shared storage` };
    if (folder.code === 'ENOTDIR')
      return { rule: 'not_a_folder', message: `a part of “${path}” is not a folder` };
    if (folder.code === 'ELOOP')
      return { rule: 'outside', message: `“${path}” is a circular symlink` };
    if (folder.code === 'ENAMETOOLONG')
      return { rule: 'missing', message: `“${path}” is longer than the file system allows` };
    return { rule: 'unreachable', message: `“${path}” ${reasonOf(folder.code)}` };
  }
  if (!folder.startsWith(root === '/' ? '/' : `${root}/`))
    return { rule: 'outside', message: `“${path}” leads out of the shared storage` };
  // Check again: the path was resolved, but a share can become stale at any time.
  const isFolder = resultOrCode(() => statSync(folder).isDirectory());
  if (typeof isFolder !== 'boolean')
    return { rule: 'unreachable', message: `“${path}” ${reasonOf(isFolder.code)}` };
  return isFolder ? null : { rule: 'not_a_folder', message: `“${path}” is not a folder` };
}

function real(path: string): string | { code: string } {
  return resultOrCode(() => realpathSync.native(path));
}

function resultOrCode<T>(call: () => T): T | { code: string } {
  try {
    return call();
  } catch (error) {
    return { code: (error as NodeJS.ErrnoException).code ?? 'unknown' };
  }
}
