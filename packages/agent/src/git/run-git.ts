/**
 * Runs git without prompts, hooks and the machine's configuration, with limits for stalls and for
 * the total time.
 */
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import { exec, type ExecResult } from '@berth/kit/exec';
import { TaskFailure } from '../failures.ts';
import type { PrivateFolder } from '../state/private-folder.ts';
import type { Connection } from './git-session.ts';
import { createHostKeys, type HostKeys } from './host-keys.ts';

export type GitOptions = {
  /** Private folder. It is git’s HOME and contains the host keys of previous connections. */
  homeDir: string;
  inherit: NodeJS.ProcessEnv;
  cloneTimeoutMs: number;
  stallTimeoutMs: number;
  /** Hosts to which ssh can offer the keys of this machine. */
  sshKeyHosts: readonly string[];
  /** Folder in memory for keys. */
  keys: PrivateFolder;
};
/** The git program of this machine, shared by all tasks. */
export type GitProgram = {
  options: GitOptions;
  env: NodeJS.ProcessEnv;
  sshAuthSock: string | undefined;
  stallSeconds: number;
  hostKeys: HostKeys;
  legacyKnownHosts: string;
};
export type Output = {
  signal: AbortSignal;
  /** Receives the output of git. */
  onLine: (line: string) => void;
};
export type RunOptions = Output & {
  cwd: string;
  /** Deadline on the monotonic clock. */
  until: number;
  /** Access to a server; absent for a local command. */
  connection?: Connection;
  /** File to which git writes the trace of its requests. */
  trace?: string;
  /** Receives the lines of standard output, which can then have any length. */
  onOut?: ((line: string) => void) | undefined;
  /**
   * Receives standard output instead, and returns false once it has enough. `runGit` then ends the
   * command and throws ENOUGH.
   */
  take?: (bytes: Buffer) => boolean;
};

/** File with host keys that this builder accepted before the control plane managed them. */
export const KNOWN_HOSTS = 'known_hosts';
/** Thrown to end a command whose remaining output is not needed. */
export const ENOUGH = new Error('enough output');

const SETTINGS = [
  'core.hooksPath=/dev/null',
  'credential.helper=',
  'advice.detachedHead=false',
  'gc.auto=0',
  'submodule.recurse=false',
  'core.fsmonitor=false',
  // Disables redirects in git: the agent checks each target and follows it. This option also
  // disables alternates of dumb servers.
  'http.followRedirects=false',
  'init.defaultBranch=main',
];
const GIT = ['git', ...SETTINGS.flatMap((setting) => ['-c', setting])];

/** Size limit in bytes for local output, such as lists of files, which are parsed completely. */
const MAX_LOCAL_OUTPUT = 64 * 1024 * 1024;
/** Size limit in bytes for a server’s messages, of which only the end is needed. */
const MAX_SERVER_OUTPUT = 64 * 1024;

export function openGit(options: GitOptions): GitProgram {
  const { SSH_AUTH_SOCK, ...inherit } = options.inherit;
  const stallSeconds = Math.max(1, Math.round(options.stallTimeoutMs / 1000));
  const legacyKnownHosts = join(options.homeDir, KNOWN_HOSTS);
  return {
    options,
    stallSeconds,
    legacyKnownHosts,
    sshAuthSock: SSH_AUTH_SOCK,
    env: gitEnv(inherit, options.homeDir, stallSeconds),
    hostKeys: createHostKeys({
      env: { ...inherit, LC_ALL: 'C' },
      timeoutMs: Math.min(10_000, options.stallTimeoutMs),
      cachePath: join(options.homeDir, 'host_keys'),
      alsoRead: [legacyKnownHosts, '/etc/ssh/ssh_known_hosts'],
    }),
  };
}

const gitEnv = (
  inherit: NodeJS.ProcessEnv,
  homeDir: string,
  stallSeconds: number,
): NodeJS.ProcessEnv => ({
  ...inherit,
  HOME: homeDir,
  LC_ALL: 'C',
  GIT_TERMINAL_PROMPT: '0',
  // `true` prints no password, so git gives up instead of prompting.
  GIT_ASKPASS: 'true',
  SSH_ASKPASS: 'true',
  GIT_ALLOW_PROTOCOL: 'https:http:ssh',
  GIT_HTTP_LOW_SPEED_LIMIT: '1000',
  GIT_HTTP_LOW_SPEED_TIME: String(stallSeconds),
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_ATTR_NOSYSTEM: '1',
  GIT_OPTIONAL_LOCKS: '0',
});

/** Runs one command. Throws TaskFailure git_timeout, git_failed. */
export async function runGit(
  git: GitProgram,
  args: readonly string[],
  options: RunOptions,
): Promise<ExecResult> {
  const { cwd, until, signal, onLine, connection, onOut, take } = options;
  const result = await exec([...GIT, ...args], {
    cwd,
    env: { ...git.env, ...accessEnv(options) },
    signal,
    timeoutMs: Math.max(1, Math.ceil(until - performance.now())),
    onLine: (line, stream) => (stream === 'stderr' ? onLine(line) : onOut?.(line)),
    ...defined({
      onOutput: take === undefined ? undefined : untilEnough(take),
      redact: connection?.redact,
    }),
    maxOutput: connection === undefined ? MAX_LOCAL_OUTPUT : MAX_SERVER_OUTPUT,
    dieWithParent: true,
  });
  if (result.ended === 'abort') signal.throwIfAborted();
  if (result.ended === 'timeout')
    throw new TaskFailure(
      'git_timeout',
      `the clone did not finish within ${Math.round(git.options.cloneTimeoutMs / 1000)} s ` +
        '(CLONE_TIMEOUT)',
    );
  if (result.stdoutCut && onOut === undefined)
    throw new TaskFailure('git_failed', `git ${args[0]} printed more than 64 MiB`);
  return result;
}

const accessEnv = ({ connection, trace }: RunOptions): NodeJS.ProcessEnv => ({
  // Supported since git 2.44. For older versions, `fetchPart` (transfer.ts) removes the
  // configuration.
  ...(connection?.env ?? { GIT_NO_LAZY_FETCH: '1' }),
  ...defined({
    GIT_TRACE_CURL: trace,
    GIT_TRACE_CURL_NO_DATA: trace === undefined ? undefined : '1',
  }),
});

const untilEnough =
  (take: (bytes: Buffer) => boolean) =>
  async (bytes: Buffer): Promise<void> => {
    if (!take(bytes)) throw ENOUGH;
  };
