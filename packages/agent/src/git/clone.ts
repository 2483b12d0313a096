/**
 * Makes a shallow clone of one branch or commit, with its submodules and Git LFS files if the
 * project requests them.
 */
import { dirname, relative } from 'node:path';
import type { GitAccess, SeenHostKey } from '@berth/wire/git';
import { TaskFailure } from '../failures.ts';
import { readHead } from './commit-text.ts';
import { unknownBranch } from './git-failures.ts';
import { type Checkout, fetchPointers, findPointers, pointersText, readLfsUrl } from './lfs.ts';
import { readHeads } from './repository.ts';
import { fetchSubmodules, hasSubmodules } from './submodules.ts';
import { mustRun, type Request, runLocal, transfer, type WorkTree } from './transfer.ts';

export type CloneSpec = {
  url: string;
  branch: string;
  commit: string | null;
  /** Allowed hosts of submodules. Empty: any host. Undefined: only the host of `url`. */
  allowedHosts: readonly string[] | undefined;
  /** True if submodules are fetched. */
  submodules: boolean;
  /** True if Git LFS files are fetched. Default false. */
  lfs?: boolean;
  /** Deploy key, git token and trusted host keys; null if the control plane is an older version. */
  access: GitAccess | null;
};
export type CloneOptions = {
  signal: AbortSignal;
  /** Receives the output of git. */
  onLine: (line: string) => void;
  /** Receives messages of the agent. */
  logLine: (line: string) => void;
  /**
   * Called with the commit as soon as it is checked out. The clone can still fail later, for
   * example at a submodule.
   */
  onCommit?: (commit: Pick<Cloned, 'sha' | 'message' | 'author'>) => void;
};
export type Cloned = {
  /** Full commit id. */
  sha: string;
  message: string;
  author: string;
  /** The ssh host keys that servers presented. */
  hostKeys: SeenHostKey[];
  /** A sentence about Git LFS files that stay pointers; null if there are none. */
  lfs: string | null;
};

/**
 * Clones into `dir`, which must not exist; also writes `dir`.trace. Throws TaskFailure git_…,
 * disk_full.
 */
export type Clone = (spec: CloneSpec, dir: string, options: CloneOptions) => Promise<Cloned>;

type CloneTree = WorkTree & { spec: CloneSpec; onCommit: CloneOptions['onCommit'] };

export async function clone(tree: CloneTree): Promise<Cloned> {
  const { spec, dir, session } = tree;
  const { commit } = spec;
  const from =
    commit === null
      ? await cloneBranch(tree)
      : await fetchCommit(tree, { ...tree.request, commit }, dir);
  const sha = (await mustRun(tree, ['rev-parse', '--verify', 'HEAD^{commit}'])).trim();
  // The server is not trusted: check that the checked-out commit is the requested one.
  if (commit !== null && sha !== commit)
    throw new TaskFailure('git_unknown_commit', `requested ${commit}, received ${sha}`);
  const head = { sha, ...(await readHead((args) => mustRun(tree, args))) };
  tree.onCommit?.(head);
  const submodules = await cloneSubmodules(tree, from);
  const lfs = await fetchLfsFiles(tree, [{ dir, name: '', url: from }, ...submodules]);
  return { ...head, hostKeys: session.presented(), lfs };
}

/** Clones the tip of the branch. Returns the address after redirects. */
async function cloneBranch(tree: CloneTree): Promise<string> {
  const { spec, request, dir } = tree;
  const args = (url: string): string[] => [
    'clone',
    '--depth=1',
    `--branch=${spec.branch}`,
    '--single-branch',
    '--no-tags',
    '--no-recurse-submodules',
    '--template=',
    '--',
    url,
    '.',
  ];
  try {
    return await transfer(tree, request, { args, cwd: dir });
  } catch (error) {
    if (!(error instanceof TaskFailure) || error.code !== 'git_unknown_branch') throw error;
    const heads = await readHeads({
      lines: (list, onOut) => transfer(tree, request, { args: list, cwd: dirname(dir), onOut }),
    });
    throw new TaskFailure(error.code, unknownBranch(spec.branch, heads), {
      cause: error,
      report: error.report,
    });
  }
}

/** Fetches one commit into the folder. Returns the address after redirects. */
async function fetchCommit(
  tree: WorkTree,
  request: Request & { commit: string },
  cwd: string,
): Promise<string> {
  await mustRun(tree, ['init', '--quiet', '--template='], cwd);
  const args = (url: string): string[] => [
    'fetch',
    '--depth=1',
    '--no-tags',
    '--no-recurse-submodules',
    '--',
    url,
    request.commit,
  ];
  const from = await transfer(tree, request, { args, cwd });
  await mustRun(tree, ['checkout', '--quiet', '--detach', 'FETCH_HEAD'], cwd);
  return from;
}

/** Fetches the submodules if the project's settings require them. */
async function cloneSubmodules(tree: CloneTree, from: string): Promise<Checkout[]> {
  const { spec, dir, output } = tree;
  const git = (args: readonly string[], cwd?: string): Promise<string> => mustRun(tree, args, cwd);
  if (!spec.submodules) {
    if (await hasSubmodules(git, dir))
      output.logLine('submodules stay empty: the project has submodules=false');
    return [];
  }
  /** Addresses of the fetched submodules, by folder. */
  const addresses = new Map<string, string>();
  const fetchSubmodule = async (url: string, sha: string, folder: string): Promise<string> => {
    const address = await fetchSubmoduleFrom(tree, url, sha, folder);
    addresses.set(folder, address);
    return address;
  };
  const folders = await fetchSubmodules(git, fetchSubmodule, dir, from, {
    allowedHosts: spec.allowedHosts,
    logLine: output.logLine,
  });
  return folders.map((folder) => ({
    dir: folder,
    name: `${relative(dir, folder)}/`,
    url: addresses.get(folder) ?? '',
  }));
}

/** Like fetchCommit, but fetches all branches if the server does not serve single commits. */
async function fetchSubmoduleFrom(
  tree: WorkTree,
  url: string,
  sha: string,
  cwd: string,
): Promise<string> {
  const request = { ...tree.request, url, branch: '(none)', commit: sha };
  try {
    return await fetchCommit(tree, request, cwd);
  } catch (error) {
    if (!isCommitRefused(error)) throw error;
  }
  const branches = '+refs/heads/*:refs/remotes/origin/*';
  const args = (address: string): string[] => [
    'fetch',
    '--no-tags',
    '--no-recurse-submodules',
    '--',
    address,
    branches,
  ];
  const from = await transfer(tree, request, { args, cwd });
  const exists = await runLocal(tree, ['cat-file', '-e', `${sha}^{commit}`], { cwd });
  if (exists.code !== 0) throw new TaskFailure('git_unknown_commit', sha);
  await mustRun(tree, ['checkout', '--quiet', '--detach', sha], cwd);
  return from;
}

const isCommitRefused = (error: unknown): boolean =>
  error instanceof TaskFailure && /^git_(commit_refused|unknown_commit)$/.test(error.code);

/** Returns a sentence about Git LFS files that stay pointers; null if there are none. */
async function fetchLfsFiles(
  tree: CloneTree,
  checkouts: readonly Checkout[],
): Promise<string | null> {
  const { spec, session, until, output } = tree;
  const git = (args: readonly string[], cwd?: string): Promise<string> => mustRun(tree, args, cwd);
  const isFetched = spec.lfs === true;
  const pointers = await findPointers(git, checkouts, isFetched);
  const withServers = (): Promise<Checkout[]> =>
    Promise.all(checkouts.map(async (one) => ({ ...one, lfsUrl: await readLfsUrl(git, one.dir) })));
  const remaining =
    isFetched && pointers.length > 0
      ? await fetchPointers(pointers, await withServers(), {
          ownUrl: spec.url,
          allowedHosts: spec.allowedHosts,
          authorization: session.authorization,
          until,
          signal: output.signal,
          logLine: output.logLine,
        })
      : pointers;
  const text = pointersText(
    remaining,
    isFetched
      ? 'Berth fetches Git LFS files over https and http only; use the https address and a ' +
          'git token'
      : 'set git_lfs=true to fetch the files',
  );
  if (text !== null) output.logLine(text);
  return text;
}
