/** Moves the focus to the heading of a page that might still be loading. */

/** A dialog that closes gives the focus back a moment later. */
const AFTER_DIALOG_MS = 60;
/** A person who waited this long has begun something else. */
const LONGEST_MS = 5_000;
const STEP_MS = 50;

/** Calls `say` with the title. Returns the function that gives up. */
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
