/** How long the story of a deployment may become, and which of its lines repeat. Pure. */

/** Lines of one story, with the line that says how many were left out. */
export const STORY_LINES = 200;
/** How it came to run: the beginning is kept. What is left out follows it. */
export const STORY_HEAD = 40;
export const LEFT_OUT = 'left_out';

/**
 * What may happen again and again while a deployment runs. Such a line is counted, not written again: by its words, or by its kind
 * alone where the words never are the same. The other kinds belong to steps that a deployment takes a bounded number of times.
 */
const REPEATS: Readonly<Record<string, 'words' | 'kind'>> = {
  waiting: 'words',
  health: 'words',
  port_changed: 'kind',
  dataset: 'words',
  stopped_first: 'words',
  started_again: 'words',
  retire_done: 'words',
  retire_failed: 'words',
  retire_lost: 'words',
};
export const repeats = (kind: string): 'words' | 'kind' | null => REPEATS[kind] ?? null;

export const leftOut = (lines: number): string => `${lines} ${lines === 1 ? 'line is' : 'lines are'} left out here`;
