/** Decides whether an arriving delivery needs a check of the branch. Pure. */
import type { ProjectRecord } from '../domain/platform/records.ts';

/**
 * Content of a verified delivery. `refs` is null if the delivery does not name the pushed branches;
 * Berth then checks the branch.
 */
export type Received = {
  event: 'push' | 'tag' | 'ping' | 'merge request' | (string & {});
  refs: readonly PushedRef[] | null;
};
export type PushedRef = {
  kind: 'branch' | 'tag';
  name: string;
  commit: string | null;
  deleted: boolean;
};

export type Judged = {
  event: string;
  branch: string | null;
  commit: string | null;
  /** Why the delivery is skipped; null if the branch must be checked. */
  skip: string | null;
};

type Settings = Pick<ProjectRecord, 'branch' | 'deploy_on_push'>;

export function judge({ event, refs }: Received, { branch, deploy_on_push }: Settings): Judged {
  if (event !== 'push')
    return { event, branch: null, commit: null, skip: `the event is ${nounOf(event)}, not a push` };
  const own = refs?.find((ref) => ref.kind === 'branch' && ref.name === branch);
  const first = refs?.[0];
  const pushed = own ?? first;
  const named = {
    branch: pushed?.kind === 'branch' ? pushed.name : null,
    commit: own?.commit ?? null,
  };
  const skip = (reason: string, as = event): Judged => ({ event: as, ...named, skip: reason });
  if (refs !== null && first === undefined) return skip('the push changed no branch');
  if (first !== undefined && own === undefined)
    return refs?.every((ref) => ref.kind === 'tag') === true
      ? skip('the event is a tag, not a push to a branch', 'tag')
      : skip(otherBranch(first.name, branch));
  if (own?.deleted === true) return skip(`the push deleted the branch ${branch}`);
  if (!deploy_on_push) return skip('deploy_on_push is off');
  return { event, ...named, skip: null };
}

/**
 * Checks a waiting delivery against the present settings of its project. Returns why it is skipped,
 * or null if it still waits.
 */
export function judgeAgain(
  waiting: { branch: string | null },
  { branch, deploy_on_push }: Settings,
): string | null {
  if (!deploy_on_push) return 'deploy_on_push is off';
  return waiting.branch === null || waiting.branch === branch
    ? null
    : otherBranch(waiting.branch, branch);
}

const otherBranch = (pushed: string, deployed: string): string =>
  `the push is to ${pushed}; the project deploys ${deployed}`;

/** Returns the name of an event with its article, for use in a sentence. */
const nounOf = (event: string): string =>
  ['tag', 'ping', 'merge request'].includes(event) ? `a ${event}` : `“${event}”`;
