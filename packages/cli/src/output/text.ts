/** Text for terminals: safe, in columns, with colours where they are allowed. */
import { stripVTControlCharacters } from 'node:util';

/** Control characters except tab and newline, and characters that reverse the direction of text. */
const UNSAFE = /[\u202a-\u202e\u2066-\u2069]|(?![\t\n])\p{Cc}/gu;

/** Removes control characters: names and logs come from others and must not move the cursor or change the title of the terminal. */
export const safe = (text: string): string => stripVTControlCharacters(text).replaceAll(UNSAFE, '');
/** Like `safe`, on one line. */
export const oneLine = (text: string): string => safe(text).replaceAll(/\s+/g, ' ').trim();

const CODES = { bold: [1, 22], dim: [2, 22], red: [31, 39], green: [32, 39], yellow: [33, 39], cyan: [36, 39] } as const;
export type Paint = (style: keyof typeof CODES, text: string) => string;
export const paintWith =
  (colours: boolean): Paint =>
  (style, text) =>
    colours ? `\u001b[${CODES[style][0]}m${text}\u001b[${CODES[style][1]}m` : text;

export function truncate(text: string, width: number): string {
  return text.length <= width ? text : `${text.slice(0, Math.max(0, width - 1))}…`;
}

export type Column<T> = { head: string; of: (item: T) => string };

/** Returns aligned columns with a heading. */
export function table<T>(items: readonly T[], columns: readonly Column<T>[]): string {
  const rows = [columns.map((c) => c.head), ...items.map((item) => columns.map((c) => oneLine(c.of(item))))];
  const widths = columns.map((_, i) => Math.max(...rows.map((row) => (row[i] ?? '').length)));
  return rows
    .map((row) =>
      row
        .map((cell, i) => (i === row.length - 1 ? cell : cell.padEnd(widths[i] ?? 0)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** Returns `name  value` lines. */
export function record(fields: readonly (readonly [name: string, value: string | null | undefined])[]): string {
  const shown = fields.filter((field): field is readonly [string, string] => field[1] !== null && field[1] !== undefined);
  const width = Math.max(0, ...shown.map(([name]) => name.length));
  return shown.map(([name, value]) => `${name.padEnd(width)}  ${oneLine(value)}`).join('\n');
}
