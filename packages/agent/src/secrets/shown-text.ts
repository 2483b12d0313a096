/**
 * Makes text of a program safe to send and to show: without secrets, without escape sequences, and
 * not too long.
 */
import { cutLine } from '@berth/kit/lines';
import type { Redact } from './redaction.ts';
import { terminalText } from '../terminal-text.ts';

export type ShownText = (text: string, max: number, colours: boolean) => string;

export function createShownText(redact: Redact): ShownText {
  /**
   * Before the cut, so that no half of a secret stays at the end, and after escape sequences inside
   * a secret are gone.
   */
  return (text, max, colours) => {
    const shown = redact(clean(redact(text), max, colours));
    if (!colours || !shown.includes('\u001b')) return shown;
    const plain = clean(text, max, false);
    const hidden = redact(plain);
    // Colours inside a secret: only the text without colours shows it.
    return hidden === plain || clean(shown, max, false) === hidden ? shown : hidden;
  };
}

/** Cuts a long line and removes escape sequences (terminal-text.ts). */
function clean(text: string, max: number, colours: boolean): string {
  // PostgreSQL cannot store NUL.
  return terminalText(cutLine(text, max).replaceAll('\0', '\u{FFFD}'), { colours }).toWellFormed();
}
