/**
 * Proposals for forms: the things that a builder finds in a repository. A form works without them.
 */
import { type LookCalls, lookAt } from '@berth/wire/look-client';
import type { DockerfileFound, RepositoryFound, RepositoryLook } from '@berth/wire/repository-look';
import type { Project } from '@berth/wire/project';
import { useCallback, useEffect, useRef, useState } from 'react';
import { call, exchange } from '../api/client.ts';
import { Button } from '../ui/controls.tsx';
import { Row } from '../ui/layout.tsx';
import { Text } from '../ui/text.tsx';
import { labelOf } from './field-words.ts';
import { problemText } from './problem.tsx';
import { countText } from './time-text.ts';

const CALLS: LookCalls = {
  create: (input) => call('createRepositoryLook', input),
  get: (input) => exchange('getRepositoryLook', input),
  sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
};

type State = { url: string; branch: string | null } & (
  | { kind: 'waiting' }
  | { kind: 'look'; look: RepositoryLook }
  | { kind: 'error'; error: unknown }
);
export type Look = {
  state: State | null;
  found: RepositoryFound | null;
  /** Resolves with what was found; null: nothing, an error, or a newer question came. */
  ask: (url: string, branch: string | null, again?: boolean) => Promise<RepositoryFound | null>;
};

/** `github.com/acme/x`, as people copy it, is an address of https. */
export const completed = (text: string): string => {
  const trimmed = text.trim();
  return /^[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?\/[^\s@]+$/i.test(trimmed)
    ? `https://${trimmed}`
    : trimmed;
};

/** Returns whether it can be a complete address. The server checks it. */
const isAddress = (text: string): boolean =>
  /^(?:https?:\/\/|ssh:\/\/)[^/\s]+\/[^\s]+$|^[^\s@/]+@[^\s:]+:[^\s]+$/.test(text);

/**
 * Looks at the repository of the last call; the one of `project` is read with the git access of the
 * project. `found` is null until it has answered; a found branch stays if another branch has an
 * error.
 */
export function useRepositoryLook(project?: Pick<Project, 'id' | 'git_url'>): Look {
  const [state, setState] = useState<State | null>(null);
  const last = useRef<{
    key: string;
    stop: AbortController;
    done: Promise<RepositoryFound | null>;
  } | null>(null);
  useEffect(() => () => last.current?.stop.abort(), []);
  const { id, git_url } = project ?? { id: null, git_url: null };
  const ask = useCallback(
    (url: string, branch: string | null, again = false): Promise<RepositoryFound | null> => {
      const key = `${url} ${branch ?? ''}`;
      const projectId = url === git_url ? id : null;
      if (projectId === null && !isAddress(url)) return Promise.resolve(null);
      if (last.current?.key === key && !again) return last.current.done;
      last.current?.stop.abort();
      const stop = new AbortController();
      setState({ url, branch, kind: 'waiting' });
      const done = lookAt(
        CALLS,
        projectId === null
          ? { git_url: url, branch }
          : { project_id: projectId, git_url: url, branch },
        stop.signal,
      ).then(
        (look) => {
          if (stop.signal.aborted) return null;
          setState({ url, branch, kind: 'look', look });
          return look.found;
        },
        (error: unknown) => {
          if (!stop.signal.aborted) setState({ url, branch, kind: 'error', error });
          return null;
        },
      );
      last.current = { key, stop, done };
      return done;
    },
    [id, git_url],
  );
  return { state, found: state?.kind === 'look' ? state.look.found : null, ask };
}

/**
 * The Dockerfile that the form proposes: one named Dockerfile, the nearest to the root; otherwise
 * the first.
 */
export const proposedDockerfile = ({ dockerfiles }: RepositoryFound): DockerfileFound | undefined =>
  dockerfiles.find(({ path }) => /(?:^|\/)Dockerfile$/.test(path)) ?? dockerfiles[0];

export function lookText(state: State): string {
  if (state.kind === 'waiting') return 'A builder reads the repository …';
  if (state.kind === 'error')
    return `Nobody could look into the repository: ${problemText(state.error)}`;
  const { found, error, unavailable, branch } = state.look;
  if (unavailable !== undefined)
    return `What the repository has is not known: ${unavailable}. Fill in the form yourself.`;
  if (error !== null) return `The builder could not read the repository. ${error.message}`;
  if (found === null) return 'The builder has not answered. Fill in the form yourself.';
  if (found.branches.length === 0) return 'The repository is empty: it has no branch.';
  if (found.branch === null) return `The repository has no branch ${branch ?? ''}.`;
  const count = found.dockerfiles.length + found.dockerfiles_left_out;
  return [
    `Found ${countText(found.branches.length + found.branches_left_out, 'branch', 'branches')}`,
    ` and, on ${found.branch}, ${count === 0 ? 'no Dockerfile' : countText(count, 'Dockerfile')}.`,
    found.submodules ? ' It has submodules.' : '',
    found.lfs
      ? ' It uses Git LFS: the build gets pointers instead of those files, unless the settings ' +
        `have “${labelOf('git_lfs')}”.`
      : '',
  ].join('');
}

/**
 * Says what the look found. Screen readers hear each change. It always has a line: a line that
 * appears when the field of the address loses the focus would move the button below, on which
 * somebody is just pressing, and the press would be lost.
 */
export function LookStatus({ look, url }: { look: Look; url: string }) {
  const { state, ask } = look;
  const current = state !== null && state.url === url ? state : null;
  const isBad =
    current !== null &&
    (current.kind === 'error' || (current.kind === 'look' && current.look.found === null));
  return (
    <Row>
      <div role="status">
        <Text size="sm" tone="quiet">
          {current === null
            ? 'A builder looks for branches and Dockerfiles when the address is complete.'
            : lookText(current)}
        </Text>
      </div>
      {isBad && (
        <Button size="xs" look="quiet" onClick={() => void ask(url, current.branch, true)}>
          Look again
        </Button>
      )}
    </Row>
  );
}
