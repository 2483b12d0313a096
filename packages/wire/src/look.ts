/**
 * `look` tasks: an agent reads the tip of a branch from the git server, so that Berth decides from
 * the real branch and not from the payload of a hook.
 */
import { type Static, Type } from 'typebox';
import { Value } from 'typebox/value';
import { CommitId, Id, orNull } from './vocabulary.ts';

/** Agents with this capability accept `look` tasks. */
export const LOOK_CAPABILITY = 'look';

/**
 * Payload of a `look` task: read the tip of `branch`, and compare it with each commit of `bases`
 * under `watch_paths`.
 */
export const LookPayload = Type.Object({
  project_id: Id,
  project: Type.String({ description: 'the project’s name' }),
  git_url: Type.String(),
  branch: Type.String(),
  watch_paths: Type.Array(Type.String(), { description: 'globs; empty: no comparison is needed' }),
  bases: Type.Array(CommitId, {
    description: 'commits of the deployments that run or are in progress',
  }),
});
export type LookPayload = Static<typeof LookPayload>;

/**
 * `result` of a completed look. `commit`, `commit_message` and `commit_author` of the report
 * describe the tip.
 */
export const LookResult = Type.Object({
  skip_mark: orNull(
    Type.String({ maxLength: 40, description: 'the skip mark in the message of the tip' }),
  ),
  changes: Type.Array(
    Type.Object({
      base: CommitId,
      changed: orNull(
        Type.Boolean({
          description:
            'whether a path under `watch_paths` differs; null: the server does not have the commit',
        }),
      ),
    }),
    { maxItems: 20 },
  ),
});
export type LookResult = Static<typeof LookResult>;
export const isLookResult = (value: unknown): value is LookResult => Value.Check(LookResult, value);

const SKIP_MARKS = ['[skip ci]', '[ci skip]', '[no ci]', '[skip deploy]'];

/** Returns the first skip mark in a commit message, in any capitalization. */
export function skipMarkOf(message: string): string | null {
  const text = message.toLowerCase();
  return SKIP_MARKS.find((mark) => text.includes(mark)) ?? null;
}
