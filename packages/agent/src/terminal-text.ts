/**
 * Makes terminal output safe to show: keeps colours (SGR), and removes all other escape sequences
 * and control characters. In a log, they could move the cursor over other lines, set a title, or
 * write to the reader's clipboard.
 */

const ESC = '\u001B';
/**
 * Characters that end a sequence with a string (OSC, DCS, SOS, PM, APC): BEL, ST, or ESC, which
 * starts ST or the next sequence.
 */
const STRING_END = new Set(['\u0007', '\u009C', ESC]);
const SGR = /^[\d;:]*$/;

/**
 * Returns the safe text. One pass is enough: no lone ESC is kept, so a removed sequence cannot form
 * a new one with its neighbours.
 */
export function terminalText(text: string, { colours }: { colours: boolean }): string {
  if (!/[\p{Cc}]/u.test(text)) return text;
  let safe = '';
  let at = 0;
  /** Skips the parameters and the final character of a control sequence (ECMA-48 5.4). */
  const control = (mayColour: boolean): void => {
    const from = at;
    while (at < text.length && inRange(text, at, 0x20, 0x3f)) at += 1;
    const parameters = text.slice(from, at);
    if (!inRange(text, at, 0x40, 0x7e)) return;
    if (mayColour && text[at] === 'm' && SGR.test(parameters)) safe += `${ESC}[${parameters}m`;
    at += 1;
  };
  const string = (): void => {
    while (at < text.length && !STRING_END.has(text[at] ?? '')) at += 1;
    // Do not skip ESC: it starts ST or the next sequence.
    if (text[at] !== ESC) at += 1;
  };
  while (at < text.length) {
    const char = text[at] ?? '';
    at += 1;
    if (char === ESC) {
      const kind = text[at] ?? '';
      if (kind === '[') {
        at += 1;
        control(colours);
      } else if (/[\]PX^_]/.test(kind)) {
        at += 1;
        string();
      } else {
        // Skip intermediate characters and one final character (ECMA-35 13.2), for example ESC ( 0.
        while (inRange(text, at, 0x20, 0x2f)) at += 1;
        if (inRange(text, at, 0x30, 0x7e)) at += 1;
      }
    } else if (char === '\u009B') control(false);
    else if (/[\u0090\u0098\u009D\u009E\u009F]/.test(char)) string();
    else if (char === '\t' || !/\p{Cc}/u.test(char)) safe += char;
  }
  return safe;
}

const inRange = (text: string, at: number, first: number, last: number): boolean => {
  const code = text.charCodeAt(at);
  return code >= first && code <= last;
};
