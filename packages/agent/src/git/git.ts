/**
 * Clones and inspects repositories from untrusted servers: no prompts, no hooks, no configuration
 * of the machine, only https, http and ssh, no redirect to another host, only trusted ssh host
 * keys, and limits for stalls and for the total time.
 *
 *   git.ts ──> clone.ts, look.ts, repository.ts ──> transfer.ts (redirects) ──> run-git.ts
 *     └ git-session.ts: which key or token a server gets
 */
import type { RepositoryFound } from '@berth/wire/repository-look';
import { TaskFailure } from '../failures.ts';
import { type Clone, clone, type CloneSpec } from './clone.ts';
import { shownCommit } from './commit-text.ts';
import { gitFailure } from './git-failures.ts';
import { createGitSession, type GitSession } from './git-session.ts';
import { look, type Look, type Looked, type LookSpec } from './look.ts';
import { recordReader } from './nul-records.ts';
import { type LookAtRepository, lookAtRepository, type RepositorySpec } from './repository.ts';
import { ENOUGH, type GitOptions, type GitProgram, openGit } from './run-git.ts';
import { fetchPart, inWorkTree, mustRun, runLocal, transfer, type WorkTree } from './transfer.ts';

export type Git = { clone: Clone; look: Look; lookAtRepository: LookAtRepository };

export const createClone = (options: GitOptions): Clone => createGit(options).clone;

export function createGit(options: GitOptions): Git {
  const git = openGit(options);
  return {
    clone: (spec, dir, { onCommit, ...output }) =>
      withSession(git, spec, (session) =>
        withHostKeys(session, () =>
          inWorkTree({ git, session, request: spec, dir, output }, (tree) =>
            clone({ ...tree, spec, onCommit }),
          ),
        ),
      ),
    look: (spec, dir, signal) =>
      withSession(git, spec, (session) => lookIn(git, session, { spec, dir, signal })),
    lookAtRepository: (spec, dir, signal) =>
      withSession(git, spec, async (session) => ({
        found: await withHostKeys(session, () => repositoryIn(git, session, { spec, dir, signal })),
        hostKeys: session.presented(),
      })),
  };
}

const withSession = <T>(
  { options, hostKeys, sshAuthSock, legacyKnownHosts, stallSeconds }: GitProgram,
  { url, access }: Pick<CloneSpec, 'url' | 'access'>,
  work: (session: GitSession) => Promise<T>,
): Promise<T> =>
  options.keys.with((keysDir) =>
    work(
      createGitSession({
        url,
        access,
        dir: keysDir,
        hostKeys,
        sshKeyHosts: options.sshKeyHosts,
        sshAuthSock,
        legacyKnownHosts,
        stallSeconds,
      }),
    ),
  );

/**
 * Adds the host keys that servers presented to a failure, so that an admin can trust a key that
 * this connection was the first to see.
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

type InFolder<S> = { spec: S; dir: string; signal: AbortSignal };

const silentOutput = (signal: AbortSignal): WorkTree['output'] => ({
  signal,
  onLine: () => undefined,
  logLine: () => undefined,
});

const lookIn = (
  git: GitProgram,
  session: GitSession,
  { spec, dir, signal }: InFolder<LookSpec>,
): Promise<Looked> => {
  const request = { ...spec, commit: null, allowedHosts: undefined };
  return inWorkTree({ git, session, request, dir, output: silentOutput(signal) }, (tree) =>
    look(spec, { ...lookCommands(tree), shown: shownCommit }),
  );
};

const repositoryIn = (
  git: GitProgram,
  session: GitSession,
  { spec, dir, signal }: InFolder<RepositorySpec>,
): Promise<RepositoryFound> => {
  const branch = spec.branch ?? '(default)';
  const request = { ...spec, branch, commit: null, allowedHosts: undefined };
  return inWorkTree({ git, session, request, dir, output: silentOutput(signal) }, (tree) =>
    lookAtRepository(spec, {
      ...lookCommands(tree),
      lines: (args, onOut) => transfer(tree, request, { args, cwd: dir, onOut }),
      records: (args, limits, onRecord) => readRecords(tree, args, recordReader(limits, onRecord)),
    }),
  );
};

const lookCommands = (tree: WorkTree) => ({
  must: (args: readonly string[]) => mustRun(tree, args),
  code: async (args: readonly string[]) => (await runLocal(tree, args)).code,
  fetch: (args: (url: string) => readonly string[]) => fetchPart(tree, args),
});

async function readRecords(
  tree: WorkTree,
  args: readonly string[],
  take: (bytes: Buffer) => boolean,
): Promise<void> {
  try {
    const result = await runLocal(tree, args, { take });
    if (result.code !== 0) throw gitFailure(result.stderr, tree.request);
  } catch (error) {
    if (error !== ENOUGH) throw error;
  }
}
