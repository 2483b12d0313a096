/**
 * The results of a check, one for each part that it checks. `not_checked` is a separate state,
 * because a check that could not run says nothing about the machine.
 */
export type Finding = {
  problem: string;
  /** The effect of the problem. */
  consequence: string;
  /** The next step; a command where possible. */
  remedy: string;
};
/** `note`: information that needs no action. */
export type Result =
  | { state: 'ok' | 'note' | 'not_checked'; text: string }
  | ({ state: 'finding' } & Finding);

export const ok = (text: string): Result => ({ state: 'ok', text });
export const note = (text: string): Result => ({ state: 'note', text });
export const notChecked = (text: string): Result => ({ state: 'not_checked', text });
export const finding = (problem: string, consequence: string, remedy: string): Result => ({
  state: 'finding',
  problem,
  consequence,
  remedy,
});
