/** Turns the output of commands in a terminal into an SVG picture. */
export type Style = 'plain' | 'bold' | 'dim' | 'red' | 'green' | 'yellow' | 'cyan' | 'command';
type Cell = { char: string; style: Style };
export type Line = Cell[];

const ESCAPE = '\u001b';
/** Select Graphic Rendition; the codes that end one style (22, 39) end all. */
const STYLES: Readonly<Record<number, Style>> = {
  0: 'plain',
  1: 'bold',
  2: 'dim',
  22: 'plain',
  31: 'red',
  32: 'green',
  33: 'yellow',
  36: 'cyan',
  39: 'plain',
};

/**
 * Returns the lines that a terminal shows at the end. Knows only the sequences that `berth` and git
 * print.
 * @throws for any other sequence, because the picture would be wrong
 */
export function screenOf(output: string): Line[] {
  const lines: Line[] = [[]];
  let [row, column] = [0, 0];
  let style: Style = 'plain';
  for (let i = 0; i < output.length; i++) {
    const char = output[i] ?? '';
    if (char === ESCAPE) {
      const [whole = '', numbers = '', verb = ''] =
        /^\[([?0-9;]*)([A-Za-z])/.exec(output.slice(i + 1, i + 20)) ?? [];
      const count = Number(numbers || '1');
      if (verb === 'm') style = STYLES[Number(numbers || '0')] ?? 'plain';
      else if (verb === 'A') row = Math.max(0, row - count);
      else if (verb === 'J' && numbers === '') {
        lines.splice(row + 1);
        lines[row]?.splice(column);
      } else if (verb === 'K' && numbers === '') lines[row]?.splice(column);
      else if (!/^\?(25|2004|2026)$/.test(numbers))
        throw new Error(`the picture does not know ${JSON.stringify(output.slice(i, i + 12))}`);
      i += whole.length;
    } else if (char === '\r') column = 0;
    else if (char === '\n') {
      row += 1;
      lines[row] ??= [];
    } else {
      const line = (lines[row] ??= []);
      while (line.length < column) line.push({ char: ' ', style: 'plain' });
      line[column] = { char, style };
      column += 1;
    }
  }
  while (lines.at(-1)?.length === 0) lines.pop();
  return lines;
}

export const textLine = (text: string, style: Style = 'plain'): Line =>
  Array.from(text, (char) => ({ char, style }));

/**
 * Colours of a dark terminal, with a contrast of at least 4.5 to 1. The frame separates it from a
 * page that is dark, too.
 */
const BACKGROUND = '#10202f';
const FRAME = '#3a4d60';
const COLOURS: Readonly<Record<Style, string>> = {
  plain: '#d6e2ee',
  bold: '#ffffff',
  dim: '#8ba0b4',
  red: '#ff8a80',
  green: '#8fe3a2',
  yellow: '#ffd479',
  cyan: '#7fd7f0',
  command: '#ffd479',
};
const [SIZE, ROW, LEFT, TOP] = [12.5, 18, 16, 28] as const;
/** Width of a character of most monospaced fonts, as a part of their size. */
const CHARACTER = 0.602 * SIZE;

/** `columns`: longer lines are wrapped, as in a terminal. */
export function svgOf(title: string, unwrapped: readonly Line[], columns: number): string {
  const lines = unwrapped.flatMap((line) => wrapped(line, columns));
  const [width, height] = [
    Math.ceil(2 * LEFT + columns * CHARACTER),
    2 * LEFT + lines.length * ROW,
  ];
  const rows = lines.map((line, row) => {
    return `<text x="${LEFT}" y="${TOP + row * ROW}" xml:space="preserve">${runsOf(line)
      .map(({ text, style }) => span(text, style))
      .join('')}</text>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" ` +
      `font-family="ui-monospace, Menlo, Consolas, monospace" font-size="${SIZE}" ` +
      `fill="${COLOURS.plain}"><title>${escaped(title)}</title>`,
    `<rect x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8" ` +
      `fill="${BACKGROUND}" stroke="${FRAME}"/>`,
    ...rows,
    '</svg>',
    '',
  ].join('\n');
}

const wrapped = (line: Line, columns: number): Line[] =>
  line.length <= columns
    ? [line]
    : [line.slice(0, columns), ...wrapped(line.slice(columns), columns)];

/** Joins neighbours of one style. */
function runsOf(line: Line): { text: string; style: Style }[] {
  const runs: { text: string; style: Style }[] = [];
  for (const { char, style } of line) {
    const last = runs.at(-1);
    if (last?.style === style) last.text += char;
    else runs.push({ text: char, style });
  }
  return runs;
}

const span = (text: string, style: Style): string =>
  style === 'plain' ? escaped(text) : `<tspan fill="${COLOURS[style]}">${escaped(text)}</tspan>`;

const escaped = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
