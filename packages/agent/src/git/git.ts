/**
 * Makes a shallow clone of one branch or one commit with its submodules, from servers that are not
 * trusted: no prompts, no hooks, no configuration of the machine, only https, http and ssh, no
 * redirect to another host, only trusted ssh host keys, limits for stalls and for the total time.
 * git-session.ts says which key or token a server gets.
 */
import { mkdir, rm } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { exec, type ExecResult } from '@berth/kit/exec';
import type { GitAccess, SeenHostKey } from '@berth/wire/git';
import { MAX_COMMIT_AUTHOR, MAX_COMMIT_MESSAGE } from '@berth/wire/task';
import { classify, GIT_FAILURES, outputTail, TaskFailure } from '../failures.ts';
import { lateRedirectFailure, redirectTarget, tooManyRedirects } from './git-hosts.ts';
import {
  type Connection,
  createGitSession,
  explainRefusal,
  type GitSession,
} from './git-session.ts';
import { lastRedirect } from './git-trace.ts';
import { createHostKeys, sshServer } from './host-keys.ts';
import { type Checkout, fetchPointers, findPointers, pointersText, readLfsUrl } from './lfs.ts';
import { look, type Look, type Looked, type LookSpec } from './look.ts';
import type { PrivateFolder } from '../state/private-folder.ts';
import { recordReader } from './nul-records.ts';
import {
  type Heads,
  type LookAtRepository,
  lookAtRepository,
  readHeads,
  type RepositorySpec,
} from './repository.ts';
import { fetchSubmodules, hasSubmodules } from './submodules.ts';

export type GitOptions = {
  /** Private folder. It holds the host keys of earlier connections and is git’s HOME. */
  homeDir: string;
  inherit: NodeJS.ProcessEnv;
  cloneTimeoutMs: number;
  stallTimeoutMs: number;
  /** Hosts to which ssh may offer the keys of this machine. */
  sshKeyHosts: readonly string[];
  /** Folder in memory for keys. */
  keys: PrivateFolder;
};
export type CloneSpec = {
  url: string;
  branch: string;
  commit: string | null;
  /** Allowed hosts of submodules. Empty: any host. Undefined: only the host of `url`. */
  allowedHosts: readonly string[] | undefined;
  /** Whether submodules are fetched. */
  submodules: boolean;
  /** Whether Git LFS files are fetched. Default false. */
  lfs?: boolean;
  /**
   * Deploy key, git token and trusted host keys; null: the control plane is of an earlier version.
   */
  access: GitAccess | null;
};
export type CloneOptions = {
  signal: AbortSignal;
  /** Output of git. */
  onLine: (line: string) => void;
  /** Messages of the agent. */
  logLine: (line: string) => void;
  /** Called with the commit as soon as it is checked out: submodules may still fail. */
  onCommit?: (commit: Pick<Cloned, 'sha' | 'message' | 'author'>) => void;
};
export type Cloned = {
  /** Full commit id. */
  sha: string;
  message: string;
  author: string;
  /** ssh host keys that servers presented. */
  hostKeys: SeenHostKey[];
  /** A sentence about files that stay Git LFS pointers; null if there are none. */
  lfs: string | null;
};

/**
 * Clones into `dir`, which must not exist; also writes `dir`.trace. Throws TaskFailure git_…,
 * disk_full.
 */
export type Clone = (spec: CloneSpec, dir: string, options: CloneOptions) => Promise<Cloned>;

/** Host keys that this builder accepted before the control plane kept them. */
export const KNOWN_HOSTS = 'known_hosts';
const MAX_REDIRECTS = 5;
/** Ends a command whose further output is not needed. */
const ENOUGH = new Error('enough output');
const HOST_KEY_REFUSED = /host key verification failed|remote host identification has changed/i;

export const createClone = (options: GitOptions): Clone => createGit(options).clone;

export function createGit(options: GitOptions): {
  clone: Clone;
  look: Look;
  lookAtRepository: LookAtRepository;
} {
  const stallSeconds = Math.max(1, Math.round(options.stallTimeoutMs / 1000));
  const { SSH_AUTH_SOCK, ...inherit } = options.inherit;
  const env: NodeJS.ProcessEnv = {
    ...inherit,
    HOME: options.homeDir,
    LC_ALL: 'C',
    GIT_TERMINAL_PROMPT: '0',
    // A program without output: git gives up instead of asking for a password.
    GIT_ASKPASS: 'true',
    SSH_ASKPASS: 'true',
    GIT_ALLOW_PROTOCOL: 'https:http:ssh',
    GIT_HTTP_LOW_SPEED_LIMIT: '1000',
    GIT_HTTP_LOW_SPEED_TIME: String(stallSeconds),
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_ATTR_NOSYSTEM: '1',
    GIT_OPTIONAL_LOCKS: '0',
  };
  const settings = [
    'core.hooksPath=/dev/null',
    'credential.helper=',
    'advice.detachedHead=false',
    'gc.auto=0',
    'submodule.recurse=false',
    'core.fsmonitor=false',
    // The agent follows redirects itself, after a check of each target. The option also disables
    // alternates of dumb servers.
    'http.followRedirects=false',
    'init.defaultBranch=main',
  ];
  const git = ['git', ...settings.flatMap((s) => ['-c', s])];
  const legacyKnownHosts = join(options.homeDir, KNOWN_HOSTS);
  const hostKeys = createHostKeys({
    env: { ...inherit, LC_ALL: 'C' },
    timeoutMs: Math.min(10_000, options.stallTimeoutMs),
    cachePath: join(options.homeDir, 'host_keys'),
    alsoRead: [legacyKnownHosts, '/etc/ssh/ssh_known_hosts'],
  });

  /** `onOut` gets the lines of standard output, which may then be of any length. */
  type Run = {
    connection?: Connection;
    trace?: string;
    onOut?: ((line: string) => void) | undefined;
    /**
     * Gets standard output instead, and returns whether it takes more. If not, `run` ends the
     * command and throws ENOUGH.
     */
    take?: (bytes: Buffer) => boolean;
  };
  async function run(
    args: readonly string[],
    cwd: string,
    until: number,
    { signal, onLine }: Pick<CloneOptions, 'signal' | 'onLine'>,
    { connection, trace, onOut, take }: Run = {},
  ): Promise<ExecResult> {
    const result = await exec([...git, ...args], {
      cwd,
      env: {
        ...env,
        // Since git 2.44. transfersIn removes the configuration for earlier versions.
        ...(connection === undefined ? { GIT_NO_LAZY_FETCH: '1' } : connection.env),
        ...(trace === undefined ? {} : { GIT_TRACE_CURL: trace, GIT_TRACE_CURL_NO_DATA: '1' }),
      },
      signal,
      timeoutMs: Math.max(1, Math.ceil(until - performance.now())),
      onLine: (line, stream) => (stream === 'stderr' ? onLine(line) : onOut?.(line)),
      ...(take === undefined
        ? {}
        : {
            onOutput: async (bytes: Buffer) => (take(bytes) ? undefined : Promise.reject(ENOUGH)),
          }),
      // Only the end of a server’s messages is needed; lists of a repository’s files are parsed
      // completely.
      ...(connection === undefined ? {} : { redact: connection.redact }),
      maxOutput: connection === undefined ? 64 * 1024 * 1024 : 64 * 1024,
      dieWithParent: true,
    });
    if (result.ended === 'abort') signal.throwIfAborted();
    if (result.ended === 'timeout')
      throw new TaskFailure(
        'git_timeout',
        `the clone did not end within ${Math.round(options.cloneTimeoutMs / 1000)} s ` +
          '(CLONE_TIMEOUT)',
      );
    if (result.stdoutCut && onOut === undefined)
      throw new TaskFailure('git_failed', `git ${args[0]} printed more than 64 MiB`);
    return result;
  }

  const withSession = <T>(
    spec: Pick<CloneSpec, 'url' | 'access'>,
    work: (session: GitSession) => Promise<T>,
  ): Promise<T> =>
    options.keys.with((keysDir) => {
      const session = createGitSession({
        url: spec.url,
        access: spec.access,
        dir: keysDir,
        hostKeys,
        sshKeyHosts: options.sshKeyHosts,
        sshAuthSock: SSH_AUTH_SOCK,
        legacyKnownHosts,
        stallSeconds,
      });
      return work(session);
    });
  return {
    clone: (spec, dir, cloneOptions) =>
      withSession(spec, (session) =>
        withHostKeys(session, () => clone(spec, dir, cloneOptions, session)),
      ),
    look: (spec, dir, signal) => withSession(spec, (session) => lookIn(spec, dir, signal, session)),
    lookAtRepository: (spec, dir, signal) =>
      withSession(spec, async (session) => {
        const found = await withHostKeys(session, () => repositoryIn(spec, dir, signal, session));
        return { found, hostKeys: session.presented() };
      }),
  };

  /**
   * A failure has the host keys that servers presented: an admin can trust a key that this
   * connection was the first to see.
   */
  async function withHostKeys<T>(session: GitSession, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof TaskFailure)) throw error;
      const all = [...session.presented(), ...(error.report.host_keys ?? [])];
      const host_keys = [
        ...new Map(all.map((key) => [`${key.host} ${key.fingerprint}`, key])).values(),
      ];
      if (host_keys.length === 0) throw error;
      throw new TaskFailure(error.code, error.detail, { cause: error, report: { host_keys } });
    }
  }

  async function repositoryIn(
    given: RepositorySpec,
    dir: string,
    signal: AbortSignal,
    session: GitSession,
  ) {
    const spec: CloneSpec = {
      ...given,
      branch: given.branch ?? '(default)',
      commit: null,
      allowedHosts: undefined,
      submodules: false,
    };
    const silent: CloneOptions = { signal, onLine: () => undefined, logLine: () => undefined };
    const { until, trace, must, transfer, fetchPart } = await transfersIn(
      dir,
      spec,
      silent,
      session,
    );
    try {
      return await lookAtRepository(given, {
        must,
        code: async (args) => (await run(args, dir, until, silent)).code,
        fetch: fetchPart,
        lines: (args, onLine) => transfer(spec, dir, args, onLine),
        records: async (args, limits, onRecord) => {
          try {
            const result = await run(args, dir, until, silent, {
              take: recordReader(limits, onRecord),
            });
            if (result.code !== 0) throw gitFailure(result.stderr, spec);
          } catch (error) {
            if (error !== ENOUGH) throw error;
          }
        },
      });
    } finally {
      await rm(trace, { force: true });
    }
  }

  async function lookIn(
    given: LookSpec,
    dir: string,
    signal: AbortSignal,
    session: GitSession,
  ): Promise<Looked> {
    const spec: CloneSpec = { ...given, commit: null, allowedHosts: undefined, submodules: false };
    const silent: CloneOptions = { signal, onLine: () => undefined, logLine: () => undefined };
    const { until, trace, must, fetchPart } = await transfersIn(dir, spec, silent, session);
    try {
      return await look(given, {
        must,
        code: async (args) => (await run(args, dir, until, silent)).code,
        fetch: fetchPart,
        shown: shownCommit,
      });
    } finally {
      await rm(trace, { force: true });
    }
  }

  /** Makes the folder, and returns commands in it that share one time limit. */
  async function transfersIn(
    dir: string,
    spec: CloneSpec,
    cloneOptions: CloneOptions,
    session: GitSession,
  ) {
    const until = performance.now() + options.cloneTimeoutMs;
    const trace = `${dir}.trace`;
    await mkdir(options.homeDir, { recursive: true, mode: 0o700 });
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const must = async (args: readonly string[], cwd = dir): Promise<string> => {
      const result = await run(args, cwd, until, cloneOptions);
      if (result.code !== 0) throw gitFailure(result.stderr, spec);
      return result.stdout;
    };
    /**
     * Runs a command that talks to a server, again after each allowed redirect. Returns the final
     * address.
     */
    const transfer = async (
      of: CloneSpec,
      cwd: string,
      args: (url: string) => readonly string[],
      onOut?: (line: string) => void,
    ): Promise<string> => {
      let { url } = of;
      let again = false;
      for (let hops = 0; hops <= MAX_REDIRECTS; hops += 1) {
        await rm(trace, { force: true });
        // Git reports a redirect that it does not follow as a failure: show its errors only if
        // there is no redirect.
        const failed: string[] = [];
        const answered: string[] = [];
        const isHeld = repeatsAnswers({ ...of, url });
        const onLine = (line: string): void => {
          if (/^(fatal|error): /.test(line)) failed.push(line);
          else if (isHeld && REMOTE_LINE.test(line)) answered.push(line);
          else cloneOptions.onLine(line);
        };
        const connection = await session.connect(url, again, cloneOptions.signal);
        const result = await run(
          args(url),
          cwd,
          until,
          { signal: cloneOptions.signal, onLine },
          { connection, trace, onOut },
        );
        const redirect = result.code === 0 ? null : await lastRedirect(trace);
        if (redirect === null) for (const line of failed) cloneOptions.onLine(line);
        if (result.code === 0) for (const line of answered) cloneOptions.onLine(line);
        if (result.code === 0) return url;
        if (redirect === null && session.checksHostKeys && HOST_KEY_REFUSED.test(result.stderr)) {
          if (again)
            throw new TaskFailure(
              'git_host_changed',
              `${sshServer(url)?.name ?? url} presents another host key with each connection`,
            );
          again = true;
          continue;
        }
        if (redirect === null)
          throw explainRefusal(
            gitFailure(result.stderr, { ...of, url }),
            connection.used,
            url,
            spec.access,
          );
        if (redirect.method !== 'GET' || !redirect.path.includes('/info/refs?'))
          throw lateRedirectFailure(url, redirect.location);
        url = redirectTarget(url, redirect.location);
        cloneOptions.logLine(`redirected to ${url}`);
      }
      throw tooManyRedirects(spec.url);
    };
    /**
     * Fetches a part of a repository. Then it removes the configuration that a fetch with a filter
     * leaves: with it, each later command would fetch a missing object by itself, without the
     * access of the task and without the agent's checks of host keys and redirects.
     */
    const fetchPart = async (args: (url: string) => readonly string[]): Promise<void> => {
      try {
        await transfer(spec, dir, args);
      } finally {
        await rm(join(dir, '.git', 'config'), { force: true });
      }
    };
    return { until, trace, must, transfer, fetchPart };
  }

  async function clone(
    spec: CloneSpec,
    dir: string,
    cloneOptions: CloneOptions,
    session: GitSession,
  ): Promise<Cloned> {
    const { until, trace, must, transfer } = await transfersIn(dir, spec, cloneOptions, session);
    const fetchCommit = async (
      of: CloneSpec & { commit: string },
      into: string,
    ): Promise<string> => {
      await must(['init', '--quiet', '--template='], into);
      const fetch = (url: string): string[] => [
        'fetch',
        '--depth=1',
        '--no-tags',
        '--no-recurse-submodules',
        '--',
        url,
        of.commit,
      ];
      const from = await transfer(of, into, fetch);
      await must(['checkout', '--quiet', '--detach', 'FETCH_HEAD'], into);
      return from;
    };
    /** Addresses of the fetched submodules, by folder. */
    const addresses = new Map<string, string>();
    const fetchSubmodule = async (url: string, sha: string, into: string): Promise<string> => {
      const at = await fetchSubmoduleFrom(url, sha, into);
      addresses.set(into, at);
      return at;
    };
    /** Like fetchCommit. If the server does not serve single commits, it fetches all branches. */
    const fetchSubmoduleFrom = async (url: string, sha: string, into: string): Promise<string> => {
      const of = { ...spec, url, branch: '(none)', commit: sha };
      try {
        return await fetchCommit(of, into);
      } catch (error) {
        if (
          !(
            error instanceof TaskFailure && /^git_(commit_refused|unknown_commit)$/.test(error.code)
          )
        )
          throw error;
      }
      const branches = '+refs/heads/*:refs/remotes/origin/*';
      const from = await transfer(of, into, (at) => [
        'fetch',
        '--no-tags',
        '--no-recurse-submodules',
        '--',
        at,
        branches,
      ]);
      const found = await run(['cat-file', '-e', `${sha}^{commit}`], into, until, cloneOptions);
      if (found.code !== 0) throw new TaskFailure('git_unknown_commit', sha);
      await must(['checkout', '--quiet', '--detach', sha], into);
      return from;
    };

    try {
      const { commit } = spec;
      const from =
        commit === null
          ? await transfer(spec, dir, (url) => [
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
            ]).catch(async (error: unknown) => {
              if (!(error instanceof TaskFailure) || error.code !== 'git_unknown_branch')
                throw error;
              const heads = await readHeads({
                lines: (args, onLine) => transfer(spec, dirname(dir), args, onLine),
              });
              throw new TaskFailure(error.code, unknownBranch(spec.branch, heads), {
                cause: error,
                report: error.report,
              });
            })
          : await fetchCommit({ ...spec, commit }, dir);
      const sha = (await must(['rev-parse', '--verify', 'HEAD^{commit}'])).trim();
      // The server is not trusted: check that the checked-out commit is the requested one.
      if (commit !== null && sha !== commit)
        throw new TaskFailure('git_unknown_commit', `requested ${commit}, received ${sha}`);
      const shown = { sha, ...(await readCommit(must)) };
      cloneOptions.onCommit?.(shown);
      const { logLine } = cloneOptions;
      if (!spec.submodules && (await hasSubmodules(must, dir)))
        logLine('submodules stay empty: the project has submodules=false');
      const submodules = spec.submodules
        ? await fetchSubmodules(must, fetchSubmodule, dir, from, {
            allowedHosts: spec.allowedHosts,
            logLine,
          })
        : [];
      const all: Checkout[] = [
        { dir, name: '', url: from },
        ...submodules.map((path) => ({
          dir: path,
          name: `${relative(dir, path)}/`,
          url: addresses.get(path) ?? '',
        })),
      ];
      const wanted = spec.lfs === true;
      const found = await findPointers(must, all, wanted);
      const lfsOptions = {
        ownUrl: spec.url,
        allowedHosts: spec.allowedHosts,
        authorization: session.authorization,
        until,
        signal: cloneOptions.signal,
        logLine,
      };
      const withServers = async (): Promise<Checkout[]> =>
        Promise.all(all.map(async (one) => ({ ...one, lfsUrl: await readLfsUrl(must, one.dir) })));
      const left =
        wanted && found.length > 0
          ? await fetchPointers(found, await withServers(), lfsOptions)
          : found;
      const pointers = pointersText(
        left,
        wanted
          ? 'Berth fetches Git LFS files over https and http only; use the https address and a ' +
              'git token'
          : 'set git_lfs=true to fetch the files',
      );
      if (pointers !== null) logLine(pointers);
      return { ...shown, hostKeys: session.presented(), lfs: pointers };
    } finally {
      await rm(trace, { force: true });
    }
  }
}

/** Reads the author and the message of the commit. */
async function readCommit(
  git: (args: readonly string[]) => Promise<string>,
): Promise<Pick<Cloned, 'message' | 'author'>> {
  return shownCommit(
    await git([
      'show',
      '--no-patch',
      '--no-show-signature',
      '--no-notes',
      '--encoding=UTF-8',
      '--format=%an%n%B',
      'HEAD',
    ]),
  );
}
/** Shortens a text of the author in the first line and the message after it. */
function shownCommit(text: string): Pick<Cloned, 'message' | 'author'> {
  const [author = '', ...message] = text.split('\n');
  return {
    author: displayText(author, MAX_COMMIT_AUTHOR),
    message: displayText(message.join('\n'), MAX_COMMIT_MESSAGE),
  };
}
const displayText = (text: string, limit: number): string =>
  text
    .replaceAll('\t', ' ')
    .replaceAll(/[^\P{Cc}\n]/gu, '')
    .trim()
    .slice(0, limit)
    .toWellFormed();

/**
 * Messages of the server. Over http, git also prints the text of an answer that refuses the
 * request.
 */
const REMOTE_LINE = /^remote: ?/;
/**
 * Whether git would repeat the text of whatever answers at the address: a developer could read
 * internal services that way. An operator who sets ALLOWED_GIT_HOSTS has chosen the hosts, and
 * their messages help.
 */
const repeatsAnswers = ({
  url,
  allowedHosts = [],
}: Pick<CloneSpec, 'url'> & Partial<Pick<CloneSpec, 'allowedHosts'>>): boolean =>
  /^https?:/i.test(url) && allowedHosts.length === 0;

type Failed = Pick<CloneSpec, 'url' | 'branch' | 'commit'> &
  Partial<Pick<CloneSpec, 'allowedHosts'>>;
export function gitFailure(stderr: string, spec: Failed): TaskFailure {
  const noise = repeatsAnswers(spec)
    ? /^(Cloning into .*|hint: .*|remote:.*)$/gm
    : /^(Cloning into .*|hint: .*)$/gm;
  const tail = outputTail(stderr.replace(noise, ''));
  // Classify without the address and the branch: their words ("timeout-service") are not part of
  // the error.
  const code = classify(
    GIT_FAILURES,
    stderr.replaceAll(spec.url, '(url)').replaceAll(spec.branch, '(branch)'),
    'git_failed',
  );
  const detail =
    code === 'git_unknown_branch'
      ? `${spec.branch} (${tail})`
      : code === 'git_unknown_commit' || code === 'git_commit_refused'
        ? `${spec.commit} (${tail})`
        : code === 'git_key_readable'
          ? `${/Permissions \d+ for .* are too open/.exec(stderr)?.[0] ?? tail}. Let only the ` +
            'user of the agent read the file: chmod 600'
          : tail;
  return new TaskFailure(code, detail);
}

const SHOWN_BRANCHES = 10;
/** Names the branches that exist: similar ones first, then the default branch, then the others. */
export function unknownBranch(branch: string, heads: Heads): string {
  if (heads.names.size === 0)
    return `${branch}. The repository has no branches; push a commit first`;
  const wanted = branch.toLowerCase();
  const isAlike = (name: string): boolean =>
    name.toLowerCase() === wanted ||
    name.toLowerCase().endsWith(`/${wanted}`) ||
    wanted.endsWith(`/${name.toLowerCase()}`);
  const rank = (name: string): number => (isAlike(name) ? 0 : name === heads.default ? 1 : 2);
  const ordered = [...heads.names].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  const shown = ordered
    .slice(0, SHOWN_BRANCHES)
    .map((name) => (name === heads.default ? `${name} (default)` : name));
  const more =
    ordered.length > SHOWN_BRANCHES ? ` and ${ordered.length - SHOWN_BRANCHES} more` : '';
  return `${branch}. The repository has ${shown.join(', ')}${more}; set branch to one of them`;
}
