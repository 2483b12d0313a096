/**
 * A shallow clone of one branch or one commit (contract "Agent behaviour on tasks"), from a server that is not trusted:
 * no prompts, no hooks, no configuration but ours, https, http and ssh only, no submodules, bounded in silence and in time.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { exec, type ExecResult } from '@berth/kit/exec';
import { classify, GIT_FAILURES, lastWords, TaskFailure } from './failures.ts';

export type GitOptions = {
  /** Private; holds known_hosts. Git's own HOME is an empty folder in it. */
  homeDir: string;
  inherit: NodeJS.ProcessEnv;
  cloneTimeoutMs: number;
  stallTimeoutMs: number;
};
export type CloneSpec = { url: string; branch: string; commit: string | null };
export type CloneOptions = { signal: AbortSignal; onLine: (line: string) => void };

/** Into `dir`, which must not exist. Gives the full commit id. TaskFailure git_…, disk_full. */
export type Clone = (spec: CloneSpec, dir: string, options: CloneOptions) => Promise<string>;

export function createClone(options: GitOptions): Clone {
  const stallSeconds = Math.max(1, Math.round(options.stallTimeoutMs / 1000));
  const ssh = [
    'ssh -oBatchMode=yes -oServerAliveCountMax=2',
    `-oConnectTimeout=${Math.min(15, stallSeconds)} -oServerAliveInterval=${Math.min(15, stallSeconds)}`,
    // Trusted at first sight and held to from then on: there is nobody to ask.
    `-oStrictHostKeyChecking=accept-new -oUserKnownHostsFile=${join(options.homeDir, 'known_hosts')}`,
  ].join(' ');
  const env: NodeJS.ProcessEnv = {
    ...options.inherit,
    HOME: options.homeDir,
    LC_ALL: 'C',
    GIT_TERMINAL_PROMPT: '0',
    // A program that says nothing: git then gives up instead of asking.
    GIT_ASKPASS: 'true',
    SSH_ASKPASS: 'true',
    GIT_ALLOW_PROTOCOL: 'https:http:ssh',
    GIT_SSH_COMMAND: ssh,
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
    'init.defaultBranch=main',
  ];
  const git = ['git', ...settings.flatMap((s) => ['-c', s])];

  async function run(args: readonly string[], cwd: string, until: number, { signal, onLine }: CloneOptions): Promise<ExecResult> {
    const result = await exec([...git, ...args], {
      cwd,
      env,
      signal,
      timeoutMs: Math.max(1, until - Date.now()),
      onLine: (line, stream) => stream === 'stderr' && onLine(line),
      dieWithParent: true,
    });
    if (result.ended === 'abort') signal.throwIfAborted();
    if (result.ended === 'timeout') throw new TaskFailure('git_timeout', `not done after ${Math.round(options.cloneTimeoutMs / 1000)} s`);
    return result;
  }

  return async (spec, dir, given) => {
    const until = Date.now() + options.cloneTimeoutMs;
    await mkdir(options.homeDir, { recursive: true, mode: 0o700 });
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const must = async (args: readonly string[]): Promise<ExecResult> => {
      const result = await run(args, dir, until, given);
      if (result.code !== 0) throw gitFailure(result.stderr, spec);
      return result;
    };
    if (spec.commit === null) {
      await must([
        'clone',
        '--depth=1',
        `--branch=${spec.branch}`,
        '--single-branch',
        '--no-tags',
        '--no-recurse-submodules',
        '--template=',
        '--',
        spec.url,
        '.',
      ]);
    } else {
      await must(['init', '--quiet', '--template=']);
      await must(['fetch', '--depth=1', '--no-tags', '--no-recurse-submodules', '--', spec.url, spec.commit]);
      await must(['checkout', '--quiet', '--detach', 'FETCH_HEAD']);
    }
    const sha = (await must(['rev-parse', '--verify', 'HEAD^{commit}'])).stdout.trim();
    // A server hands out what it likes; what is built must be what was asked for.
    if (spec.commit !== null && sha !== spec.commit) throw new TaskFailure('git_unknown_commit', `asked for ${spec.commit}, got ${sha}`);
    return sha;
  };
}

export function gitFailure(stderr: string, spec: CloneSpec): TaskFailure {
  // What the server says is kept: "remote: Repository not found." is worth more than the exit.
  const seen = lastWords(stderr.replace(/^(Cloning into .*|hint: .*)$/gm, ''));
  // Without the address and the branch, whose words ("timeout-service") are nobody's complaint.
  const code = classify(GIT_FAILURES, stderr.replaceAll(spec.url, '(url)').replaceAll(spec.branch, '(branch)'), 'git_failed');
  const about =
    code === 'git_unknown_branch'
      ? `${spec.branch} (${seen})`
      : code === 'git_unknown_commit' || code === 'git_commit_refused'
        ? `${spec.commit} (${seen})`
        : seen;
  return new TaskFailure(code, about);
}
