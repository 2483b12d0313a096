/**
 * Parses the colors of log lines: only SGR sequences (ECMA-48 section 8.3.117). Removes all other
 * control sequences.
 */

export type Piece = { text: string; color: string | null; bold: boolean };

const NAMES = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];
/** Matches CSI, OSC and other escapes. A sequence without a final byte extends to the end. */
// biome-ignore lint: control characters are the subject here.
const SEQUENCE = new RegExp(
  String.raw`\u001B(?:\[([0-?]*)[ -/]*([@-~])?|\][^\u0007\u001B]*(?:\u0007|\u001B\\)?|[@-_]?)`,
  'g',
);
const CONTROL = new RegExp(
  String.raw`[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u202A-\u202E\u2066-\u2069]`,
  'g',
);

export function piecesOf(line: string): Piece[] {
  const pieces: Piece[] = [];
  let color: string | null = null;
  let bold = false;
  let from = 0;
  const push = (text: string): void => {
    const clean = text.replace(CONTROL, '');
    if (clean !== '') pieces.push({ text: clean, color, bold });
  };
  for (const match of line.matchAll(SEQUENCE)) {
    push(line.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] !== 'm') continue;
    for (const code of (match[1] ?? '').split(';').map(Number)) {
      if (code === 0) [color, bold] = [null, false];
      else if (code === 1) bold = true;
      else if (code === 22) bold = false;
      else if (code === 39) color = null;
      else if (code >= 30 && code <= 37) color = NAMES[code - 30] ?? null;
      else if (code >= 90 && code <= 97) color = NAMES[code - 90] ?? null;
    }
  }
  push(line.slice(from));
  return pieces;
}
export const plainText = (line: string): string =>
  piecesOf(line)
    .map(({ text }) => text)
    .join('');
