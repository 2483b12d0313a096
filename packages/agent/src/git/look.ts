/**
 * Reads the tip of a branch without its files: the commit, its message, and whether watched paths
 * differ from the commits in `bases`.
 */
import type { GitAccess } from '@berth/wire/git';
import { type LookResult, skipMarkOf } from '@berth/wire/look';
import { TaskFailure } from '../failures.ts';

export type LookSpec = {
  url: string;
  branch: string;
  /** Globs of watched paths. If empty, no commits are compared. */
  watchPaths: readonly string[];
  bases: readonly string[];
  access: GitAccess | null;
};
/**
 * Result of reading the tip of a branch. `message` and `author` are shortened for display; the skip
 * mark is read from the full message.
 */
export type Looked = {
  sha: string;
  message: string;
  author: string;
  skipMark: string | null;
  changes: LookResult['changes'];
};
/**
 * Reads the tip of a branch, using the folder `dir`, which must not exist. Throws TaskFailure
 * git_…, disk_full.
 */
export type Look = (spec: LookSpec, dir: string, signal: AbortSignal) => Promise<Looked>;

/**
 * Commands of git.ts: a local command, its exit code, and a fetch with the project's access. A
 * local command never contacts a server, even if an object is missing.
 */
export type LookGit = {
  must(args: readonly string[]): Promise<string>;
  code(args: readonly string[]): Promise<number | null>;
  fetch(args: (url: string) => readonly string[]): Promise<unknown>;
  /** Shortens a commit text: the author is in the first line, the message follows. */
  shown(text: string): { message: string; author: string };
};

const TIP = 'refs/berth/tip';

export async function look({ branch, watchPaths, bases }: LookSpec, git: LookGit): Promise<Looked> {
  // A server without support for filters sends all objects.
  const filter = watchPaths.length === 0 ? 'tree:0' : 'blob:none';
  const fetch = (what: string) => (url: string) => [
    'fetch',
    '--quiet',
    '--depth=1',
    '--no-tags',
    '--no-recurse-submodules',
    `--filter=${filter}`,
    '--',
    url,
    what,
  ];
  await git.must(['init', '--quiet', '--template=']);
  await git.fetch(fetch(`+refs/heads/${branch}:${TIP}`));
  const sha = (await git.must(['rev-parse', '--verify', `${TIP}^{commit}`])).trim();
  // Use `git log`: `git show` would need the tree, which was not fetched.
  const commit = await git.must([
    'log',
    '-1',
    '--no-show-signature',
    '--no-notes',
    '--encoding=UTF-8',
    '--format=%an%n%B',
    sha,
  ]);
  const changes: LookResult['changes'] = [];
  for (const base of watchPaths.length === 0 ? [] : bases) {
    const isHere = base === sha || (await fetched(() => git.fetch(fetch(base))));
    changes.push({ base, changed: isHere ? await differ(git, base, sha, watchPaths) : null });
  }
  return {
    sha,
    ...git.shown(commit),
    skipMark: skipMarkOf(commit.slice(commit.indexOf('\n') + 1)),
    changes,
  };
}

/**
 * Returns false if the server does not serve this commit. Throws on any other failure, because it
 * can be temporary.
 */
async function fetched(fetch: () => Promise<unknown>): Promise<boolean> {
  try {
    await fetch();
    return true;
  } catch (error) {
    if (
      error instanceof TaskFailure &&
      ['git_commit_refused', 'git_unknown_commit', 'git_failed'].includes(error.code)
    )
      return false;
    throw error;
  }
}

/** Compares trees by their ids, so that no file content is needed. */
async function differ(
  git: LookGit,
  base: string,
  tip: string,
  paths: readonly string[],
): Promise<boolean | null> {
  const specs = paths.map((path) => `:(top,glob)${path}`);
  const code = await git.code([
    'diff-tree',
    '-r',
    '--quiet',
    '--no-renames',
    base,
    tip,
    '--',
    ...specs,
  ]);
  if (code === 0) return false;
  return code === 1 ? true : null;
}
