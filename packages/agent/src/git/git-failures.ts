/** Maps failures of git to codes, and explains what a developer can do. */
import { classify, GIT_FAILURES, outputTail, TaskFailure } from '../failures.ts';
import type { Heads } from './repository.ts';

/**
 * Matches messages of the server. Over http, git also prints the body of a refusal with this
 * prefix.
 */
export const REMOTE_LINE = /^remote: ?/;
/**
 * Tells whether git would print the text of any server at the address, so that a developer could
 * read internal services. With ALLOWED_GIT_HOSTS, the operator has chosen the hosts, and their
 * messages help.
 */
export const repeatsAnswers = ({
  url,
  allowedHosts = [],
}: Pick<FailedRequest, 'url' | 'allowedHosts'>): boolean =>
  /^https?:/i.test(url) && allowedHosts.length === 0;

/** The part of a request that a failure message names. */
export type FailedRequest = {
  url: string;
  branch: string;
  commit: string | null;
  allowedHosts?: readonly string[] | undefined;
};
export function gitFailure(stderr: string, spec: FailedRequest): TaskFailure {
  const noise = repeatsAnswers(spec)
    ? /^(Cloning into .*|hint: .*|remote:.*)$/gm
    : /^(Cloning into .*|hint: .*)$/gm;
  const tail = outputTail(stderr.replace(noise, ''));
  // Classify the text without the address and the branch: their words ("timeout-service") are not
  // part of the error.
  const code = classify(
    GIT_FAILURES,
    stderr.replaceAll(spec.url, '(url)').replaceAll(spec.branch, '(branch)'),
    'git_failed',
  );
  return new TaskFailure(code, detailOf(code, stderr, tail, spec));
}

function detailOf(
  code: string,
  stderr: string,
  tail: string,
  { branch, commit }: FailedRequest,
): string {
  switch (code) {
    case 'git_unknown_branch':
      return `${branch} (${tail})`;
    case 'git_unknown_commit':
    case 'git_commit_refused':
      return `${commit} (${tail})`;
    case 'git_key_readable':
      return (
        `${/Permissions \d+ for .* are too open/.exec(stderr)?.[0] ?? tail}. Let only the user ` +
        'of the agent read the file: chmod 600'
      );
    default:
      return tail;
  }
}

const SHOWN_BRANCHES = 10;
/**
 * Lists the existing branches: similar names first, then the default branch, then all remaining
 * branches.
 */
export function unknownBranch(branch: string, heads: Heads): string {
  if (heads.names.size === 0)
    return `${branch}. The repository has no branches; push a commit first`;
  const lowerCase = branch.toLowerCase();
  const isAlike = (name: string): boolean =>
    name.toLowerCase() === lowerCase ||
    name.toLowerCase().endsWith(`/${lowerCase}`) ||
    lowerCase.endsWith(`/${name.toLowerCase()}`);
  const rank = (name: string): number => {
    if (isAlike(name)) return 0;
    return name === heads.default ? 1 : 2;
  };
  const ordered = [...heads.names].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  const named = ordered
    .slice(0, SHOWN_BRANCHES)
    .map((name) => (name === heads.default ? `${name} (default)` : name));
  const more =
    ordered.length > SHOWN_BRANCHES ? ` and ${ordered.length - SHOWN_BRANCHES} more` : '';
  return `${branch}. The repository has ${named.join(', ')}${more}; set branch to one of them`;
}
