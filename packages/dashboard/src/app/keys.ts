/** Keyboard shortcuts: `g` and a letter open a page. Shortcuts do not work while somebody types. */
import { useEffect } from 'react';

export type Shortcut = { keys: string; label: string; run: () => void };

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement &&
  (target.isContentEditable || /^(?:INPUT|TEXTAREA|SELECT)$/.test(target.tagName));

/** Maximum time in ms between the keys of a sequence such as `g p`. */
const SEQUENCE_MS = 1_200;

export function useShortcuts(shortcuts: readonly Shortcut[]): void {
  useEffect(() => {
    let before: { key: string; at: number } | null = null;
    const press = (event: KeyboardEvent): void => {
      const command = event.metaKey || event.ctrlKey;
      const key = event.key.toLowerCase();
      const shortcutOf = (keys: string): Shortcut | undefined =>
        shortcuts.find((one) => one.keys === keys);
      const typing = isTyping(event.target);
      let hit: Shortcut | undefined;
      if (command && !event.altKey && !event.shiftKey) hit = shortcutOf(`mod+${key}`);
      else if (
        !typing &&
        !event.altKey &&
        !command &&
        document.querySelector('[role="dialog"]') === null
      ) {
        hit =
          before !== null && Date.now() - before.at < SEQUENCE_MS
            ? shortcutOf(`${before.key} ${key}`)
            : undefined;
        hit ??= shortcutOf(event.key);
        before = { key, at: Date.now() };
      }
      if (hit === undefined) return;
      event.preventDefault();
      before = null;
      hit.run();
    };
    addEventListener('keydown', press);
    return () => removeEventListener('keydown', press);
  }, [shortcuts]);
}
