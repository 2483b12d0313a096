/** Rows of the log viewer: shown lines, context around matches, folded stack traces. */

type LogText = { key: string; text: string };
export type LogRow<L> =
  | { kind: 'line'; id: string; line: L; match: boolean }
  /** A folded part of a stack trace. `open`: its lines follow this row. */
  | { kind: 'fold'; id: string; count: number; open: boolean }
  /** Hidden lines between two matches. */
  | { kind: 'gap'; id: string; count: number };

/** Minimum number of lines of a stack trace that is folded. */
const FOLD_FROM = 6;
/**
 * Number of lines of a folded stack trace that stay visible: they show where the error happened.
 */
const SHOWN = 2;

/**
 * Returns whether a line belongs to a stack trace: Java and JavaScript (`at …`), Python (`File "…",
 * line …`), Ruby (`from …:in`), PHP (`#0 …`), Rust (`3: …`), Go (a tab and `….go:12`). `before`:
 * whether the previous line belongs to one.
 */
function isFrame(text: string, before: boolean): boolean {
  // BuildKit puts the number and time of its step before each line: "#8 1.902     at …".
  const step = text[0] === '#' ? /^#\d+ \d+\.\d+ (?=\s)/.exec(text)?.[0] : undefined;
  if (step !== undefined) return isFrame(text.slice(step.length), before);
  const first = text[0];
  if (first === '#') return /^#\d+ (?:.+\(\d+\): |\{main\}|\[internal function\]: )/.test(text);
  if (first !== ' ' && first !== '\t') return false;
  if (
    /^\s+(?:at |from .+:\d+:in |File ".+", line \d+|\.\.\. \d+ more|\d+: \S)/.test(text) ||
    /^\t.+\.go:\d+/.test(text)
  )
    return true;
  // In Python traces, a line of source code follows each frame.
  return before && /^ {4,}\S/.test(text);
}

type Options<L> = {
  /** Matches the search. Null: no search, so all lines are shown and traces are folded. */
  keep: ((line: L) => boolean) | null;
  /** Number of lines to show before and after each match. */
  context: number;
  /** Ids of open folds. */
  open: ReadonlySet<string>;
  /** Key of the linked line, which is always shown. */
  linked: string | null;
};

export const rowsOf = <L extends LogText>(lines: readonly L[], options: Options<L>): LogRow<L>[] =>
  options.keep === null ? foldedRows(lines, options) : matchingRows(lines, options.keep, options);

function foldedRows<L extends LogText>(
  lines: readonly L[],
  { open, linked }: Options<L>,
): LogRow<L>[] {
  const rows: LogRow<L>[] = [];
  const push = (line: L | undefined): void => {
    if (line !== undefined) rows.push({ kind: 'line', id: line.key, line, match: false });
  };
  let from = 0;
  while (from < lines.length) {
    let to = from;
    while (to < lines.length && isFrame(lines[to]?.text ?? '', to > from)) to += 1;
    if (to - from < FOLD_FROM) {
      to = Math.max(to, from + 1);
      for (let i = from; i < to; i++) push(lines[i]);
    } else {
      for (let i = from; i < from + SHOWN; i++) push(lines[i]);
      const rest = lines.slice(from + SHOWN, to);
      const id = `fold ${rest[0]?.key ?? ''}`;
      const isOpen = open.has(id) || rest.some(({ key }) => key === linked);
      rows.push({ kind: 'fold', id, count: rest.length, open: isOpen });
      if (isOpen) rest.forEach(push);
    }
    from = to;
  }
  return rows;
}

function matchingRows<L extends LogText>(
  lines: readonly L[],
  keep: (line: L) => boolean,
  { context, linked }: Pick<Options<L>, 'context' | 'linked'>,
): LogRow<L>[] {
  const matches = lines.flatMap((line, index) =>
    keep(line) || line.key === linked ? [index] : [],
  );
  const rows: LogRow<L>[] = [];
  let next = 0;
  for (const [position, index] of matches.entries()) {
    const from = Math.max(next, index - context);
    if (context > 0 && from > next)
      rows.push({ kind: 'gap', id: `gap ${next}`, count: from - next });
    const following = matches[position + 1] ?? lines.length;
    const to = Math.min(lines.length, index + context + 1, following);
    for (let i = from; i < to; i++) {
      const line = lines[i];
      if (line !== undefined) rows.push({ kind: 'line', id: line.key, line, match: i === index });
    }
    next = to;
  }
  if (context > 0 && matches.length > 0 && next < lines.length)
    rows.push({ kind: 'gap', id: `gap ${next}`, count: lines.length - next });
  return rows;
}
