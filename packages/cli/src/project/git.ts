/** Reads facts about the git repository of a folder. Never contacts a git server. */
import type { ExecResult } from '@berth/kit/exec';
import type { Io } from '../io.ts';
import { LINK_FILE } from '../session/choose.ts';

export type Remote = { name: string; url: string };
export type Repository = {
  remotes: Remote[];
  /** Null for a detached HEAD. */
  branch: string | null;
  /** Null before the first commit. */
  head: string | null;
  /** Number of files that differ from HEAD, including untracked files. */
  dirty: number;
};

const LIMIT_MS = 10_000;
const isOwnFile = (line: string): boolean =>
  line.endsWith(` ${LINK_FILE}`) || line.endsWith(`/${LINK_FILE}`);

/** Returns null if git could not be started. */
async function run(io: Io, args: readonly string[]): Promise<ExecResult | null> {
  // Disable core.fsmonitor: a repository can set it to a program that `git status` would run.
  const argv = ['git', '-c', 'core.fsmonitor=false', ...args];
  const { exec } = await import('@berth/kit/exec');
  return exec(argv, {
    cwd: io.cwd,
    env: { ...io.config.childEnv, GIT_OPTIONAL_LOCKS: '0', LC_ALL: 'C' },
    timeoutMs: LIMIT_MS,
  }).catch(() => null);
}

async function git(io: Io, args: readonly string[]): Promise<string | null> {
  const result = await run(io, args);
  return result === null || result.code !== 0 ? null : result.stdout.trimEnd();
}

/** Maximum number of remotes whose addresses are read. */
const MAX_REMOTES = 50;
/** Returns the addresses that git uses: `url.<base>.insteadOf` can replace the configured one. */
async function remotesOf(io: Io): Promise<Repository['remotes']> {
  const names = linesOf(await git(io, ['remote'])).slice(0, MAX_REMOTES);
  const remotes = await Promise.all(
    names.map(async (name) => ({
      name,
      urls: linesOf(await git(io, ['remote', 'get-url', '--all', '--', name])),
    })),
  );
  return remotes.flatMap(({ name, urls }) => urls.map((url) => ({ name, url })));
}

/** Returns null if the folder is not in a repository or if git is not installed. */
export async function readRepository(io: Io): Promise<Repository | null> {
  if ((await git(io, ['rev-parse', '--git-dir'])) === null) return null;
  const [remotes, branch, head, status] = await Promise.all([
    remotesOf(io),
    git(io, ['symbolic-ref', '--short', '-q', 'HEAD']),
    git(io, ['rev-parse', '--verify', '-q', 'HEAD^{commit}']),
    git(io, ['status', '--porcelain']),
  ]);
  return {
    remotes,
    branch: branch === '' ? null : branch,
    head,
    // Ignore `.berth.json`, because Berth writes it and it is not part of the application.
    dirty: linesOf(status).filter((line) => !isOwnFile(line)).length,
  };
}

/** Says why `readRepository` returned null, and what to do. */
export async function whyNoRepository(io: Io): Promise<{ said: string; next: string }> {
  const result = await run(io, ['rev-parse', '--git-dir']);
  if (result === null)
    return { said: 'git is not installed here', next: 'install git, or name the project' };
  const [, owned] = /dubious ownership in repository at '(.+)'/.exec(result.stderr) ?? [];
  if (owned !== undefined)
    return {
      said: 'git does not read this folder, because it belongs to another user',
      next: `if you trust what is in it: git config --global --add safe.directory ${owned}`,
    };
  return { said: 'this folder is not in a git repository', next: 'name the project, or: git init' };
}

const linesOf = (text: string | null): string[] =>
  (text ?? '').split('\n').filter((line) => line !== '');

/**
 * Returns an equal key for all addresses of one repository: `git@host:a/b.git`,
 * `ssh://git@host/a/b` and `https://host/a/b.git`.
 */
export function repositoryKey(url: string): string {
  const scp = /^(?:[^@/:]+@)?([^/:]+):(?!\/\/)(.+)$/.exec(url);
  const parsed = scp === null && URL.canParse(url) ? new URL(url) : null;
  const host = scp?.[1] ?? (parsed === null ? '' : hostOf(parsed));
  const path = scp?.[2] ?? parsed?.pathname ?? url;
  return `${host.toLowerCase()}/${path
    .replace(/^\/+/, '')
    .replace(/\/+$/, '')
    .replace(/\.git$/, '')}`;
}

/**
 * Returns the host. Ignores the port of an ssh address, because one repository has different ports
 * for ssh and https.
 */
const hostOf = ({ protocol, hostname, host }: URL): string =>
  protocol === 'ssh:' ? hostname : host;

/**
 * Removes the user and password from an address: Berth refuses a password in `git_url`, and remotes
 * in CI often contain a token.
 */
export function withoutPassword(url: string): string {
  if (!URL.canParse(url)) return url;
  const parsed = new URL(url);
  if (parsed.protocol !== 'http:' && parsed.protocol !== 'https:') return url;
  parsed.username = '';
  parsed.password = '';
  return parsed.href;
}

/**
 * Describes how the folder differs from the version that Berth will build: the remote branch, as of
 * the last `git fetch`.
 */
export async function differences(
  io: Io,
  repository: Repository,
  gitUrl: string,
  branch: string,
): Promise<string[]> {
  const remote = repository.remotes.find((r) => repositoryKey(r.url) === repositoryKey(gitUrl));
  if (remote === undefined)
    return [
      `this folder has no remote for ${gitUrl}; ` +
        `Berth builds the branch ${branch} from there, not this folder`,
    ];
  return [
    ...uncommittedText(repository.dirty),
    ...(await unpushedText(io, repository, remote.name, branch)),
  ];
}

function uncommittedText(files: number): string[] {
  if (files === 0) return [];
  const what = files === 1 ? 'one file is' : `${files} files are`;
  return [`${what} not committed; Berth builds what is pushed`];
}

async function unpushedText(
  io: Io,
  repository: Repository,
  remote: string,
  branch: string,
): Promise<string[]> {
  if (repository.head === null) return ['this repository has no commit yet'];
  const push = `git push ${remote} HEAD:${branch}`;
  const upstream = `${remote}/${branch}`;
  const fetched = await git(io, [
    'rev-parse',
    '--verify',
    '-q',
    `refs/remotes/${upstream}^{commit}`,
  ]);
  if (fetched === null)
    return [`the branch ${branch} was never fetched from or pushed to ${remote}; push it: ${push}`];
  if (fetched === repository.head) return [];
  const ahead = Number(await git(io, ['rev-list', '--count', `${fetched}..HEAD`]));
  const behind = Number(await git(io, ['rev-list', '--count', `HEAD..${fetched}`]));
  const head = headText(repository.branch, branch);
  if (ahead > 0)
    return [
      `${head} is ${commits(ahead)} ahead of ${upstream} as last fetched; push first: ${push}`,
    ];
  if (behind > 0)
    return [
      `${head} is ${commits(behind)} behind ${upstream} as last fetched; ` +
        'Berth builds the newer one',
    ];
  return [];
}

function headText(current: string | null, branch: string): string {
  if (current === null) return 'HEAD (detached)';
  return current === branch ? 'HEAD' : `HEAD (branch ${current})`;
}

const commits = (count: number): string => `${count} ${count === 1 ? 'commit' : 'commits'}`;
