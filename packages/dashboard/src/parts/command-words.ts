/** Commands of runs and jobs as text: words with the quotes of a shell, which does not run. */

const PLAIN = /^[\w./:@=+,%-]+$/;
const quoted = (word: string): string =>
  PLAIN.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
export const commandText = (words: readonly string[]): string => words.map(quoted).join(' ');

/** A part of a word: in single quotes, in double quotes, a character after a backslash, or plain. */
const PART = /'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)|([^\s'"\\]+)|(\s+)/gsy;

/** Splits a text into the words of a command. Returns null for a quote without its end. */
export function wordsOfCommand(text: string): string[] | null {
  const words: string[] = [];
  let word: string | null = null;
  let end = 0;
  for (const [all, single, double, escaped, plain, space] of text.matchAll(PART)) {
    end += all.length;
    if (space === undefined)
      word =
        (word ?? '') +
        (single ?? double?.replaceAll(/\\(["\\$`])/g, '$1') ?? escaped ?? plain ?? '');
    else if (word !== null) {
      words.push(word);
      word = null;
    }
  }
  if (end < text.length) return null;
  return word === null ? words : [...words, word];
}
