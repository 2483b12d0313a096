/** Cleans texts that other people wrote: commit messages, build errors, branch names. */
import { Children, type ReactNode } from 'react';

/**
 * Matches control characters, and characters that change the direction of the text after them
 * (Unicode Annex 9).
 */
const HIDDEN = new RegExp(
  String.raw`[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069]`,
  'g',
);

/**
 * Removes these characters, so that a text cannot reverse the page's own words. Right-to-left
 * languages stay readable.
 */
export const clean = (text: string): string => text.replace(HIDDEN, '');

/**
 * Returns whether a text is short, like a usual name or state. A short text stays on one line; a
 * longer one can wrap.
 */
export const isShort = (node: ReactNode): boolean => {
  const parts = Array.isArray(node) ? (node as ReactNode[]) : [node];
  return (
    parts.every((part) => typeof part === 'string' || typeof part === 'number') &&
    parts.join('').length <= 24
  );
};

/**
 * Cleans a text or a list of texts. Elements are not changed, because they clean their own texts.
 */
export function cleanNode(node: ReactNode): ReactNode {
  if (typeof node === 'string') return clean(node);
  if (!Array.isArray(node)) return node;
  return Children.map(node as ReactNode[], (part) =>
    typeof part === 'string' ? clean(part) : part,
  );
}
