/**
 * Fetches submodules by the same rules as the clone: shallow, from an allowed host, and without the
 * repository's configuration. Does not use `git submodule`, because it executes addresses and
 * commands from the repository's files.
 */
import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import type { FailureCode } from '@berth/wire/errors';
import { TaskFailure } from '../failures.ts';
import { gitHost, isListed, submoduleUrl } from './git-hosts.ts';

/** Runs git in a folder and returns its standard output. Throws TaskFailure if it fails. */
export type Git = (args: readonly string[], cwd: string) => Promise<string>;
/** Fetches one commit into a new folder and checks it out. Returns the address after redirects. */
export type FetchCommit = (url: string, sha: string, dir: string) => Promise<string>;

export type SubmoduleOptions = {
  /**
   * Allowed hosts of submodules. Empty: any host. Undefined: the control plane does not send the
   * list, so only the project's host is allowed.
   */
  allowedHosts: readonly string[] | undefined;
  logLine: (text: string) => void;
};

const CREDENTIALS: readonly FailureCode[] = [
  'git_credentials',
  'git_key_refused',
  'git_token_refused',
];
const MAX_SUBMODULES = 100;
const MAX_DEPTH = 5;

/**
 * Returns the folders of all fetched submodules. Throws TaskFailure git_submodule_refused, git_…,
 * disk_full.
 */
export async function fetchSubmodules(
  git: Git,
  fetch: FetchCommit,
  dir: string,
  url: string,
  options: SubmoduleOptions,
): Promise<string[]> {
  const fetched: string[] = [];
  const ownHost = gitHost(url);
  async function below(
    parent: string,
    parentUrl: string,
    name: string,
    depth: number,
  ): Promise<void> {
    for (const { path, address, update, sha } of await listed(git, parent)) {
      const shown = `${name}${path}`;
      if (address === null) {
        options.logLine(`submodule ${shown} stays empty: .gitmodules has no address for it`);
        continue;
      }
      if (update === 'none') {
        options.logLine(`submodule ${shown} stays empty: .gitmodules says update = none`);
        continue;
      }
      if (depth > MAX_DEPTH)
        throw refused(shown, `it is nested more than ${MAX_DEPTH} levels deep`);
      if (fetched.length >= MAX_SUBMODULES)
        throw refused(shown, `the repository has more than ${MAX_SUBMODULES} submodules`);
      const from = submoduleUrl(parentUrl, address);
      const host = gitHost(from);
      if (host === null)
        throw refused(shown, `${from.slice(0, 300)} is not an https, http or ssh address`);
      const { allowedHosts } = options;
      if (
        allowedHosts === undefined
          ? host !== ownHost
          : allowedHosts.length > 0 && !isListed(host, allowedHosts)
      )
        throw refused(
          shown,
          `its host ${host} is not allowed for projects (ALLOWED_GIT_HOSTS of the control plane)`,
        );
      const target = join(parent, path);
      // The checkout of the parent created this folder. A symlink in its place would lead
      // elsewhere.
      if ((await realpath(target)) !== join(await realpath(parent), path))
        throw refused(shown, 'its path contains a symlink');
      options.logLine(`fetching submodule ${shown} from ${from}`);
      const at = await fetch(from, sha, target).catch((error: unknown) => {
        if (!(error instanceof TaskFailure)) throw error;
        const isPrivate = CREDENTIALS.includes(error.code);
        const only =
          isPrivate && host !== ownHost
            ? `. The deploy key and the git token of the project go to ${ownHost} only`
            : '';
        const code = isPrivate ? 'git_submodule_credentials' : error.code;
        const detail = `submodule ${shown} (${from.slice(0, 300)}): ${error.detail}${only}`;
        throw new TaskFailure(code, detail, { cause: error, report: error.report });
      });
      options.logLine(`submodule ${shown} at ${sha}`);
      fetched.push(target);
      await below(target, at, `${shown}/`, depth + 1);
    }
  }
  await below(dir, url, '', 1);
  return fetched;
}

/** Tells whether the commit in `dir` has submodules. */
export const hasSubmodules = async (git: Git, dir: string): Promise<boolean> =>
  (await listed(git, dir)).length > 0;

const refused = (path: string, why: string): TaskFailure =>
  new TaskFailure('git_submodule_refused', `submodule ${path.slice(0, 300)}: ${why}`);

type Submodule = { path: string; address: string | null; update: string | null; sha: string };

/** Lists the submodule commits of a checkout with their addresses in .gitmodules. */
async function listed(git: Git, dir: string): Promise<Submodule[]> {
  const entries = (await git(['ls-files', '--stage', '-z', '--', ':(top)'], dir)).split('\0');
  const commits = entries.flatMap((entry) => {
    const [, mode, sha, path] = /^(\d{6}) ([0-9a-f]{40,64}) 0\t(.*)$/s.exec(entry) ?? [];
    return mode === '160000' && sha !== undefined && path !== undefined ? [{ path, sha }] : [];
  });
  if (commits.length === 0) return [];
  // Ignore .gitmodules if it is a symlink (mode 120000).
  const hasFile = entries.some((entry) => /^100\d{3} \S+ 0\t\.gitmodules$/.test(entry));
  const modules = hasFile ? await readModules(git, dir) : new Map<string, Module>();
  return commits.map(({ path, sha }) => ({
    path,
    sha,
    address: modules.get(path)?.url ?? null,
    update: modules.get(path)?.update ?? null,
  }));
}

type Module = { path?: string; url?: string; update?: string };

/**
 * Returns the entries of .gitmodules by path. Reads the file from the commit, and parses it as data
 * only.
 */
async function readModules(git: Git, dir: string): Promise<Map<string, Module>> {
  const text = await git(['config', '-z', '--blob', 'HEAD:.gitmodules', '--list'], dir);
  const byName = new Map<string, Module>();
  for (const entry of text.split('\0')) {
    const [, name, field, value] = /^submodule\.(.+)\.(path|url|update)\n(.*)$/s.exec(entry) ?? [];
    if (name === undefined || field === undefined || value === undefined) continue;
    byName.set(name, { ...byName.get(name), [field]: value });
  }
  return new Map(
    [...byName.values()].flatMap((one) =>
      one.path === undefined ? [] : [[one.path.replace(/\/+$/, ''), one]],
    ),
  );
}
