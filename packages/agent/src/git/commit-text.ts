/** Reads the author and message of a commit, shortened for display. */
import { MAX_COMMIT_AUTHOR, MAX_COMMIT_MESSAGE } from '@berth/wire/task';

export type ShownCommit = { message: string; author: string };

/** Reads the author and the message of the checked-out commit. */
export async function readHead(
  git: (args: readonly string[]) => Promise<string>,
): Promise<ShownCommit> {
  return shownCommit(
    await git([
      'show',
      '--no-patch',
      '--no-show-signature',
      '--no-notes',
      '--encoding=UTF-8',
      '--format=%an%n%B',
      'HEAD',
    ]),
  );
}
/** Shortens a commit text: the author is in the first line, the message follows. */
export function shownCommit(text: string): ShownCommit {
  const [author = '', ...message] = text.split('\n');
  return {
    author: displayText(author, MAX_COMMIT_AUTHOR),
    message: displayText(message.join('\n'), MAX_COMMIT_MESSAGE),
  };
}
const displayText = (text: string, limit: number): string =>
  text
    .replaceAll('\t', ' ')
    .replaceAll(/[^\P{Cc}\n]/gu, '')
    .trim()
    .slice(0, limit)
    .toWellFormed();
