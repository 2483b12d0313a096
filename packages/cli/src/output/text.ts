/** Formats text for terminals: safe, in columns, and with colours if the terminal allows them. */
import { stripVTControlCharacters } from 'node:util';

/** Matches control characters (not tab and newline) and characters that reverse text. */
const UNSAFE = /[\u202a-\u202e\u2066-\u2069]|(?![\t\n])\p{Cc}/gu;

/**
 * Removes control characters: names and logs come from other people and must not move the cursor or
 * change the terminal's title.
 */
export const safe = (text: string): string => stripVTControlCharacters(text).replaceAll(UNSAFE, '');
/** Like `safe`, but puts the text on one line. */
export const oneLine = (text: string): string => safe(text).replaceAll(/\s+/g, ' ').trim();

/** Matches characters that take two columns: East Asian wide characters and emoji. */
const WIDE = new RegExp(
  String.raw`[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f` +
    String.raw`\uff00-\uff60\uffe0-\uffe6\u{20000}-\u{3fffd}]|\p{Emoji_Presentation}`,
  'u',
);
const graphemes = new Intl.Segmenter();
function columnsOf(grapheme: string): 0 | 1 | 2 {
  if (/^[\p{M}\u200b-\u200d]/u.test(grapheme)) return 0;
  return WIDE.test(grapheme) ? 2 : 1;
}

/**
 * Returns the width of a text in terminal columns. The text must not contain control characters.
 */
export function widthOf(text: string): number {
  // Fast path: nearly all texts are ASCII, and a table measures thousands of them.
  if (/^[ -~]*$/.test(text)) return text.length;
  return [...graphemes.segment(text)].reduce((sum, { segment }) => sum + columnsOf(segment), 0);
}
const padded = (text: string, width: number): string =>
  text + ' '.repeat(Math.max(0, width - widthOf(text)));

const CODES = {
  bold: [1, 22],
  dim: [2, 22],
  red: [31, 39],
  green: [32, 39],
  yellow: [33, 39],
  blue: [34, 39],
  magenta: [35, 39],
  cyan: [36, 39],
} as const;
export type Paint = (style: keyof typeof CODES, text: string) => string;
export const paintWith =
  (colours: boolean): Paint =>
  (style, text) =>
    colours ? `\u001b[${CODES[style][0]}m${text}\u001b[${CODES[style][1]}m` : text;

const ESCAPE = '\u001b';
const PAINTED = new RegExp(String.raw`(${ESCAPE}\[(?:${Object.values(CODES).flat().join('|')})m)`);
/** Like `safe`, but keeps the colours that `paintWith` adds. */
export const safePainted = (text: string): string =>
  text
    .split(PAINTED)
    .map((part, index) => (index % 2 === 1 ? part : safe(part)))
    .join('');

/**
 * Formats JSON on one line. Escapes further control characters, because a terminal obeys some that
 * JSON leaves as they are, such as U+009B.
 */
export const jsonLine = (data: unknown): string =>
  JSON.stringify(data).replaceAll(
    /[\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g,
    (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );

export function truncate(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  let kept = '';
  let used = 1;
  for (const { segment } of graphemes.segment(text)) {
    used += columnsOf(segment);
    if (used > width) break;
    kept += segment;
  }
  return `${kept}…`;
}

export type Column<T> = { head: string; of: (item: T) => string };

/** Returns aligned columns with a header row. */
export function table<T>(items: readonly T[], columns: readonly Column<T>[]): string {
  const rows = [
    columns.map((c) => c.head),
    ...items.map((item) => columns.map((c) => oneLine(c.of(item)))),
  ];
  const widths = columns.map((_, i) =>
    rows.reduce((widest, row) => Math.max(widest, widthOf(row[i] ?? '')), 0),
  );
  return rows
    .map((row) =>
      row
        .map((cell, i) => (i === row.length - 1 ? cell : padded(cell, widths[i] ?? 0)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** Returns one aligned line `name  value` for each field. */
export function record(
  fields: readonly (readonly [name: string, value: string | null | undefined])[],
): string {
  const shown = fields.filter(
    (field): field is readonly [string, string] => field[1] !== null && field[1] !== undefined,
  );
  const width = Math.max(0, ...shown.map(([name]) => name.length));
  return shown.map(([name, value]) => `${name.padEnd(width)}  ${oneLine(value)}`).join('\n');
}
