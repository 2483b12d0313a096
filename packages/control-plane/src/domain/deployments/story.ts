/** Limits of the story of a deployment, and rules for its repeating lines. Pure. */

/** Maximum number of lines of one story, including the line that counts omitted lines. */
export const STORY_LINES = 200;
/** Number of first lines that are always kept, because they show how the deployment went live. */
export const STORY_HEAD = 40;
export const LEFT_OUT = 'left_out';

/**
 * Kinds of lines that can repeat without limit while a deployment runs. Berth counts a repeated
 * line instead of adding it. `words`: a line repeats if its text is equal; `kind`: if its kind is
 * equal, because the text always differs. All other kinds occur a bounded number of times.
 */
const REPEATS: ReadonlyMap<string, 'words' | 'kind'> = new Map([
  ['waiting', 'words'],
  ['health', 'words'],
  ['port_changed', 'kind'],
  ['dataset', 'words'],
  ['stopped_first', 'words'],
  ['started_again', 'words'],
  ['killed', 'words'],
  ['stopped', 'words'],
  ['retire_done', 'words'],
  ['retire_failed', 'words'],
  ['retire_lost', 'words'],
]);
export const repeats = (kind: string): 'words' | 'kind' | null => REPEATS.get(kind) ?? null;

export const leftOut = (lines: number): string =>
  `${lines} ${lines === 1 ? 'line is' : 'lines are'} omitted here`;
