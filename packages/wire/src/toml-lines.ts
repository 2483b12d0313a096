/** Finds the line of each key in a TOML document that a parser has accepted. */

/** Further parts of a key have no line of their own. A key of 64 KiB can have 30,000 parts. */
const MAX_PARTS = 10;

/** A key as JSON text of its parts, so that a dot in a quoted part is no separator. */
const textOf = (path: readonly string[]): string => JSON.stringify(path);

/** Returns the line of a key, or null. */
export type FindLine = (path: readonly string[]) => number | null;

/**
 * Reads a document once. A key inside an inline table has the line of that table, and a key that is
 * not there has null.
 */
export function linesIn(text: string): FindLine {
  const lines = keyLines(text);
  return (path) => {
    for (let end = path.length; end > 0; end -= 1) {
      const line = lines.get(textOf(path.slice(0, end)));
      if (line !== undefined) return line;
    }
    return null;
  };
}

function keyLines(text: string): Map<string, number> {
  const lines = new Map<string, number>();
  const add = (path: readonly string[], line: number): void => {
    const key = textOf(path);
    if (!lines.has(key)) lines.set(key, line);
  };
  let table: string[] = [];
  let open: Open = { quote: null, depth: 0 };
  for (const [i, line] of text.split('\n').entries()) {
    if (open.quote !== null || open.depth > 0) {
      open = scanValue(line, open);
      continue;
    }
    const header = /^\s*\[\[?/.exec(line);
    const { parts, rest } = keyParts(line.slice(header?.[0].length ?? 0));
    if (parts.length === 0) continue;
    if (header !== null) table = parts;
    else open = scanValue(rest.replace(/^\s*=/, ''), open);
    const path = header === null ? [...table, ...parts] : parts;
    for (let end = 1; end <= path.length; end += 1) add(path.slice(0, end), i + 1);
  }
  return lines;
}

const PART = /^\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*/;

/** Reads a dotted key at the beginning of the text. */
function keyParts(text: string): { parts: string[]; rest: string } {
  const parts: string[] = [];
  for (let rest = text; ; ) {
    const match = PART.exec(rest);
    if (match === null) return { parts, rest };
    if (parts.length < MAX_PARTS) parts.push(match[1] ?? match[2] ?? match[3] ?? '');
    rest = rest.slice(match[0].length);
    if (!rest.startsWith('.')) return { parts, rest };
    rest = rest.slice(1);
  }
}

/** The quotes and brackets that a value leaves open at the end of its line. */
type Open = { quote: '"""' | "'''" | null; depth: number };

/** A comment, a string of one line, the quotes of a string of several lines, or a bracket. */
const TOKEN = /#.*|"""|'''|"(?:[^"\\]|\\.)*"|'[^']*'|[[\]{}]/g;

function scanValue(line: string, before: Open): Open {
  let { quote, depth } = before;
  for (let rest = line; ; ) {
    if (quote !== null) {
      const end = endOf(rest, quote);
      if (end === null) return { quote, depth };
      quote = null;
      rest = rest.slice(end);
    }
    TOKEN.lastIndex = 0;
    for (let token = TOKEN.exec(rest); token !== null; token = TOKEN.exec(rest)) {
      const [found] = token;
      if (found === '[' || found === '{') depth += 1;
      else if (found === ']' || found === '}') depth -= 1;
      else if (found === '"""' || found === "'''") {
        quote = found;
        rest = rest.slice(TOKEN.lastIndex);
        break;
      }
    }
    if (quote === null) return { quote, depth };
  }
}

/** Returns the place after the closing quotes, or null. Up to two quotes can precede them. */
function endOf(text: string, quote: '"""' | "'''"): number | null {
  const pattern = quote === '"""' ? /^(?:[^"\\]|\\.|"(?!""))*"{3,5}/ : /^(?:[^']|'(?!''))*'{3,5}/;
  return pattern.exec(text)?.[0].length ?? null;
}
