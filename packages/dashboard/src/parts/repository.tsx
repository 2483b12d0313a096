/** Proposes form values, which a builder finds in a repository. Forms work without them. */
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
  /** Resolves with the findings; null if there are none, on an error, or after a newer call. */
  ask: (url: string, branch: string | null, again?: boolean) => Promise<RepositoryFound | null>;
};

/**
 * Completes an address that people copied without a scheme: `github.com/acme/x` gets `https://`.
 */
export const completed = (text: string): string => {
  const trimmed = text.trim();
  return /^[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?\/[^\s@]+$/i.test(trimmed)
    ? `https://${trimmed}`
    : trimmed;
};

/** Returns whether the text looks like a complete address. The server makes the real check. */
const isAddress = (text: string): boolean =>
  /^(?:https?:\/\/|ssh:\/\/)[^/\s]+\/[^\s]+$|^[^\s@/]+@[^\s:]+:[^\s]+$/.test(text);

/**
 * Reads the repository of the last call. The repository of `project` is read with the project's git
 * access. `found` is null until the builder has answered.
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
 * Returns the Dockerfile that the form proposes: the file named Dockerfile that is nearest to the
 * root, otherwise the first one.
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
 * Shows the result of the look, and announces each change to screen readers. It always renders a
 * line: if the line appeared when the address field lost the focus, it would move the button below
 * while somebody presses it, and the press would be lost.
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
