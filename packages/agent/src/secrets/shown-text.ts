/**
 * Makes text of a program safe to send and show: removes secrets and escape sequences, and limits
 * the length.
 */
import { cutLine } from '@berth/kit/lines';
import type { Redact } from './redaction.ts';
import { terminalText } from '../terminal-text.ts';

export type ShownText = (text: string, max: number, colours: boolean) => string;

export function createShownText(redact: Redact): ShownText {
  /**
   * Redact before the cut, so that no half of a secret stays at the end, and again after escape
   * sequences inside a secret are removed.
   */
  return (text, max, colours) => {
    const shown = redact(clean(redact(text), max, colours));
    if (!colours || !shown.includes('\u001b')) return shown;
    const plain = clean(text, max, false);
    const hidden = redact(plain);
    // If a secret contains colour sequences, only the text without colours reveals it.
    return hidden === plain || clean(shown, max, false) === hidden ? shown : hidden;
  };
}

/** Cuts a long line and removes escape sequences (terminal-text.ts). */
function clean(text: string, max: number, colours: boolean): string {
  // PostgreSQL cannot store NUL.
  return terminalText(cutLine(text, max).replaceAll('\0', '\u{FFFD}'), { colours }).toWellFormed();
}
