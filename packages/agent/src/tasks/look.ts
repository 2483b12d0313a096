/**
 * Task `look`: reads the tip of a branch for the decision about a push, or inspects a repository
 * for a new project. It builds no image.
 */
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import type { LookResult } from '@berth/wire/look';
import type { Look } from '../git/look.ts';
import type { LookAtRepository } from '../git/repository.ts';
import type { Workspaces } from '../state/workspace.ts';
import { type Handler, nothingToDiscard } from './task.ts';

type Parts = { look: Look; lookAtRepository: LookAtRepository; workspaces: Workspaces };

export function createLookHandler({ look, lookAtRepository, workspaces }: Parts): Handler<'look'> {
  return (task, { attempt, signal, git = null }) =>
    workspaces.with(`${task.id}-${attempt}`, async (dir) => {
      if ('repository' in task.payload) {
        const { git_url, branch } = task.payload;
        const { found, hostKeys } = await lookAtRepository(
          { url: git_url, branch, access: git },
          join(dir, 'source'),
          signal,
        );
        const report = { status: 'completed' as const, result: found as Record<string, unknown> };
        return {
          report: {
            ...report,
            ...defined({ host_keys: hostKeys.length === 0 ? undefined : hostKeys }),
          },
          discard: nothingToDiscard,
        };
      }
      const { git_url, branch, watch_paths, bases } = task.payload;
      const { sha, message, author, skipMark, changes } = await look(
        { url: git_url, branch, watchPaths: watch_paths, bases, access: git },
        join(dir, 'source'),
        signal,
      );
      const result = { skip_mark: skipMark, changes } satisfies LookResult as Record<
        string,
        unknown
      >;
      return {
        report: {
          status: 'completed',
          result,
          commit: sha,
          commit_message: message,
          commit_author: author,
        },
        discard: nothingToDiscard,
      };
    });
}
