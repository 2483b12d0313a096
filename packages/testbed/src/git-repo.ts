// Creates bare repositories without a work tree, a global git configuration or a committer on the
// machine.
import { readFile, readdir, stat } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { defined } from '@berth/kit/defined';
import type { Environment } from './config.ts';
import { type Argv, type Finished, run } from './process.ts';

/**
 * Contents by path, or a folder to read them from. null removes a file; `submodule` is the commit
 * of a submodule at this path.
 */
export type Files = Readonly<
  Record<string, string | Uint8Array | FileSpec | { readonly submodule: string } | null>
>;
export interface FileSpec {
  readonly content: string | Uint8Array;
  readonly executable: boolean;
}

/** Ignores the configuration of the machine and the user, and accepts any owner of the folder. */
export const hermeticGit: Environment = {
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_TERMINAL_PROMPT: '0',
  GIT_CONFIG_COUNT: '2',
  // git refuses a folder with another owner (a checkout made by another user) as "dubious".
  GIT_CONFIG_KEY_0: 'safe.directory',
  GIT_CONFIG_VALUE_0: '*',
  GIT_CONFIG_KEY_1: 'gc.auto',
  GIT_CONFIG_VALUE_1: '0',
};

export function git(
  repository: string,
  args: readonly string[],
  input?: Uint8Array,
): Promise<Finished> {
  const argv: Argv = ['git', '--git-dir', repository, ...args];
  return run(argv, { env: hermeticGit, ...defined({ input }) });
}

/** Creates an empty bare repository whose HEAD is `branch`. */
export async function initRepository(repository: string, branch: string): Promise<void> {
  await run(['git', 'init', '--quiet', '--bare', `--initial-branch=${branch}`, repository], {
    env: hermeticGit,
  });
}

/** Sets whether the server serves any commit by its id, or only the tips of branches and tags. */
export async function allowAnySha(repository: string, allowed: boolean): Promise<void> {
  await git(repository, ['config', 'uploadpack.allowAnySHA1InWant', String(allowed)]);
  await git(repository, ['config', 'uploadpack.allowReachableSHA1InWant', String(allowed)]);
}

/**
 * Adds one commit to a branch and returns its full id. A branch that does not exist is created from
 * `from`, or without a parent. Files that are not named stay as they are; `replaceAll` empties the
 * tree first.
 */
export async function commitFiles(
  repository: string,
  files: Files,
  options: { branch: string; message: string; from?: string; replaceAll?: boolean },
): Promise<string> {
  const ref = `refs/heads/${options.branch}`;
  const branchExists =
    (await git(repository, ['for-each-ref', '--format=%(refname)', ref])).stdout.trim() !== '';
  const parent = branchExists ? `${ref}^0` : options.from;
  const parts: Uint8Array[] = [
    text(`commit ${ref}\ncommitter Berth Testbed <testbed@berth.invalid> now\n`),
    data(options.message),
    ...(parent === undefined ? [] : [text(`from ${parent}\n`)]),
    ...(options.replaceAll === true ? [text('deleteall\n')] : []),
  ];
  for (const [path, file] of Object.entries(files)) {
    if (/["\n\\]/.test(path)) throw new Error(`path not supported: ${path}`);
    if (file === null) {
      parts.push(text(`D ${path}\n`));
      continue;
    }
    if (!(file instanceof Uint8Array) && typeof file === 'object' && 'submodule' in file) {
      parts.push(text(`M 160000 ${file.submodule} ${path}\n`));
      continue;
    }
    const { content, executable } =
      typeof file === 'string' || file instanceof Uint8Array
        ? { content: file, executable: false }
        : file;
    parts.push(text(`M ${executable ? '100755' : '100644'} inline ${path}\n`), data(content));
  }
  await git(repository, ['fast-import', '--quiet', '--date-format=now'], Buffer.concat(parts));
  return (await git(repository, ['rev-parse', ref])).stdout.trim();
}

const text = (value: string): Uint8Array => Buffer.from(value);

function data(content: string | Uint8Array): Uint8Array {
  const bytes = typeof content === 'string' ? Buffer.from(content) : content;
  return Buffer.concat([text(`data ${bytes.length}\n`), bytes, text('\n')]);
}

/** Reads every regular file below `dir`, without `.git` and `node_modules`. */
export async function readFolder(dir: string): Promise<Files> {
  const files: Record<string, FileSpec> = {};
  for (const entry of await readdir(dir, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const name = relative(dir, path);
    if (name.split('/').some((part) => part === '.git' || part === 'node_modules')) continue;
    const executable = ((await stat(path)).mode & 0o111) !== 0;
    files[name] = { content: await readFile(path), executable };
  }
  return files;
}
