/** Moves the focus to the heading of a page, which might still be loading. */

/** Wait this long in ms, because a closing dialog returns the focus a moment later. */
const AFTER_DIALOG_MS = 60;
/** After this delay in ms, do not move the focus: the person has begun to do something else. */
const LONGEST_MS = 5_000;
const STEP_MS = 50;

/** Moves the focus and calls `say` with the title. Returns the function that cancels it. */
export function focusTitle(say: (title: string) => void): () => void {
  const began = Date.now();
  const timer = setInterval(() => {
    const title = document.querySelector<HTMLElement>('[data-page-title]');
    if (Date.now() - began > LONGEST_MS) clearInterval(timer);
    if (title === null || Date.now() - began < AFTER_DIALOG_MS) return;
    clearInterval(timer);
    title.focus();
    say(title.textContent);
  }, STEP_MS);
  return () => clearInterval(timer);
}
