/** Texts that other people wrote: commit messages, errors of builds, names of branches. */
import { Children, type ReactNode } from 'react';

/**
 * Control characters, and those that change the direction of the text after them (Unicode Annex 9).
 */
const HIDDEN = new RegExp(
  String.raw`[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069]`,
  'g',
);

/**
 * Without these characters, no text can turn the words of the page around. Text in a language from
 * right to left stays readable.
 */
export const clean = (text: string): string => text.replace(HIDDEN, '');

/** A usual name or state stays on one line; a long host name, a sentence or an error can break. */
export const isShort = (node: ReactNode): boolean => {
  const parts = Array.isArray(node) ? (node as ReactNode[]) : [node];
  return (
    parts.every((part) => typeof part === 'string' || typeof part === 'number') &&
    parts.join('').length <= 24
  );
};

/** Cleans a text or a list of texts; elements clean their own. */
export function cleanNode(node: ReactNode): ReactNode {
  if (typeof node === 'string') return clean(node);
  if (!Array.isArray(node)) return node;
  return Children.map(node as ReactNode[], (part) =>
    typeof part === 'string' ? clean(part) : part,
  );
}
