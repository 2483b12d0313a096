/**
 * Runs commands in one folder, with a shared time limit and session: local commands, and transfers
 * from a server, which are repeated after each allowed redirect.
 */
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import type { ExecResult } from '@berth/kit/exec';
import type { GitAccess } from '@berth/wire/git';
import { TaskFailure } from '../failures.ts';
import { type FailedRequest, gitFailure, REMOTE_LINE, repeatsAnswers } from './git-failures.ts';
import { lateRedirectFailure, redirectTarget, tooManyRedirects } from './git-hosts.ts';
import { explainRefusal, type GitSession } from './git-session.ts';
import { lastRedirect } from './git-trace.ts';
import { sshServer } from './host-keys.ts';
import { type GitProgram, type Output, runGit } from './run-git.ts';

/** A transfer, as described in failure messages. */
export type Request = FailedRequest & {
  /** Allowed hosts of submodules. Empty: any host. Undefined: only the host of `url`. */
  allowedHosts: readonly string[] | undefined;
  /** Null if the control plane is an older version. */
  access: GitAccess | null;
};
/** The folder of one task. */
export type WorkTree = {
  git: GitProgram;
  session: GitSession;
  request: Request;
  dir: string;
  /** File for the trace of the requests. */
  trace: string;
  /** Deadline on the monotonic clock. */
  until: number;
  output: Output & { logLine: (line: string) => void };
};
export type TransferArgs = (url: string) => readonly string[];
type TransferOptions = {
  args: TransferArgs;
  cwd: string;
  onOut?: ((line: string) => void) | undefined;
};

const MAX_REDIRECTS = 5;
const HOST_KEY_REFUSED = /host key verification failed|remote host identification has changed/i;

/** Creates the folder and runs `work` in it, within the time limit of a clone. */
export async function inWorkTree<T>(
  { git, session, request, dir, output }: Omit<WorkTree, 'trace' | 'until'>,
  work: (tree: WorkTree) => Promise<T>,
): Promise<T> {
  const until = performance.now() + git.options.cloneTimeoutMs;
  const trace = `${dir}.trace`;
  await mkdir(git.options.homeDir, { recursive: true, mode: 0o700 });
  await mkdir(dir, { recursive: true, mode: 0o700 });
  try {
    return await work({ git, session, request, dir, trace, until, output });
  } finally {
    await rm(trace, { force: true });
  }
}

export const runLocal = (
  { git, dir, until, output }: WorkTree,
  args: readonly string[],
  { cwd = dir, take }: { cwd?: string; take?: (bytes: Buffer) => boolean } = {},
): Promise<ExecResult> =>
  runGit(git, args, {
    cwd,
    until,
    signal: output.signal,
    onLine: output.onLine,
    ...defined({ take }),
  });

/** Runs a local command and returns its output. Throws TaskFailure if it fails. */
export async function mustRun(
  tree: WorkTree,
  args: readonly string[],
  cwd = tree.dir,
): Promise<string> {
  const result = await runLocal(tree, args, { cwd });
  if (result.code !== 0) throw gitFailure(result.stderr, tree.request);
  return result.stdout;
}

/**
 * Runs a command that contacts a server, and repeats it after each allowed redirect. Returns the
 * final address.
 */
export async function transfer(
  tree: WorkTree,
  request: Request,
  options: TransferOptions,
): Promise<string> {
  let { url } = request;
  let isKeyRefused = false;
  for (let hops = 0; hops <= MAX_REDIRECTS; hops += 1) {
    const step = await transferOnce(tree, { ...request, url }, options, isKeyRefused);
    if (step === 'done') return url;
    isKeyRefused ||= step === 'host key refused';
    if (step === 'host key refused') continue;
    url = step.redirectedTo;
    tree.output.logLine(`redirected to ${url}`);
  }
  throw tooManyRedirects(tree.request.url);
}

type Step = 'done' | 'host key refused' | { redirectedTo: string };

async function transferOnce(
  { git, session, request: { access }, trace, until, output }: WorkTree,
  request: Request,
  { args, cwd, onOut }: TransferOptions,
  isKeyRefused: boolean,
): Promise<Step> {
  const { url } = request;
  await rm(trace, { force: true });
  const held = holdLines(request, output.onLine);
  const connection = await session.connect(url, isKeyRefused, output.signal);
  const result = await runGit(git, args(url), {
    cwd,
    until,
    signal: output.signal,
    onLine: held.onLine,
    connection,
    trace,
    onOut,
  });
  if (result.code === 0) {
    held.showAnswers();
    return 'done';
  }
  const redirect = await lastRedirect(trace);
  if (redirect !== null) {
    if (redirect.method !== 'GET' || !redirect.path.includes('/info/refs?'))
      throw lateRedirectFailure(url, redirect.location);
    return { redirectedTo: redirectTarget(url, redirect.location) };
  }
  held.showErrors();
  if (!session.checksHostKeys || !HOST_KEY_REFUSED.test(result.stderr))
    throw explainRefusal(gitFailure(result.stderr, request), connection.used, url, access);
  if (isKeyRefused)
    throw new TaskFailure(
      'git_host_changed',
      `${sshServer(url)?.name ?? url} presents another host key with each connection`,
    );
  return 'host key refused';
}

type HeldLines = { onLine(line: string): void; showErrors(): void; showAnswers(): void };

/**
 * Holds back lines until the result is known. Git reports a redirect that it does not follow as an
 * error, so its errors are shown only if there was no redirect.
 */
function holdLines(request: Request, show: (line: string) => void): HeldLines {
  const errors: string[] = [];
  const answers: string[] = [];
  const holdsAnswers = repeatsAnswers(request);
  return {
    onLine(line) {
      if (/^(fatal|error): /.test(line)) errors.push(line);
      else if (holdsAnswers && REMOTE_LINE.test(line)) answers.push(line);
      else show(line);
    },
    showErrors: () => errors.forEach(show),
    showAnswers() {
      errors.forEach(show);
      answers.forEach(show);
    },
  };
}

/**
 * Fetches a part of a repository, then removes the configuration that a filtered fetch leaves. With
 * that configuration, later commands would fetch missing objects by themselves: without the task's
 * credentials, and without the agent's checks of host keys and redirects.
 */
export async function fetchPart(tree: WorkTree, args: TransferArgs): Promise<void> {
  try {
    await transfer(tree, tree.request, { args, cwd: tree.dir });
  } finally {
    await rm(join(tree.dir, '.git', 'config'), { force: true });
  }
}
