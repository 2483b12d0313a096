import { cutLine } from '@berth/kit/lines';
import { expect, test } from 'vitest';
import { createBudget } from '../../src/logs/budget.ts';
import { createLineReader, type RawLine } from '../../src/logs/line-reader.ts';

const AT = '2026-11-24T01:00:00.000000000Z';

function reader(mayTake: (bytes: number) => boolean = () => true) {
  const lines: RawLine[] = [];
  const counts = { dropped: 0, most: 0 };
  const created = createLineReader({
    mayTake: (bytes) => {
      counts.most = Math.max(counts.most, bytes);
      if (mayTake(bytes)) return true;
      counts.dropped += 1;
      return false;
    },
    onLine: (line) => void lines.push(line),
    onMessage: () => undefined,
  });
  return { ...created, lines, counts };
}

test('100 MB at once: each line is taken or counted, and the budget bounds what is kept', () => {
  let now = 0;
  const budget = createBudget({ lines: 6_000, bytes: 1_500_000 }, 1.5, () => now);
  const read = reader((bytes) => budget.has(bytes) && (budget.spend(bytes), true));
  const line = `${AT} ${'x'.repeat(70)}\n`;
  const chunk = Buffer.from(line.repeat(1_000));
  const chunks = Math.ceil(100_000_000 / chunk.length);
  for (let i = 0; i < chunks; i++) {
    now += 1_000 / chunks;
    read.chunk(chunk, 'stdout');
  }
  expect(read.lines.length + read.counts.dropped).toBe(chunks * 1_000);
  // A second of the rate, and the burst.
  expect(read.lines.length).toBeLessThanOrEqual(6_000 * 2.5);
  expect(read.lines.length).toBeGreaterThan(6_000);
});

test('100 MB without a line end: one line that says how much is missing', () => {
  const read = reader();
  read.chunk(Buffer.from(`${AT} `), 'stdout');
  const chunk = Buffer.alloc(1_000_000, 0xfe);
  for (let i = 0; i < 100; i++) read.chunk(chunk, 'stdout');
  read.chunk(Buffer.from(`\n${AT} next\n`), 'stdout');
  expect(read.lines).toHaveLength(2);
  expect(read.counts.most).toBeLessThanOrEqual(64 * 1024 + 64);
  expect(read.lines[0]?.text.slice(-60)).toMatch(/… \(line cut: 99984050 more characters\)$/);
  expect(read.lines[1]?.text).toBe('next');
});

test('lines in any parts, both streams at once, an empty line, no line end at the end', () => {
  const whole = `${AT} one\r\n${AT} \n${AT} two \u00e9\n${AT} last`;
  for (let size = 1; size < 40; size += 3) {
    const read = reader();
    const bytes = Buffer.from(whole);
    for (let from = 0; from < bytes.length; from += size) {
      read.chunk(bytes.subarray(from, from + size), 'stdout');
      read.chunk(bytes.subarray(from, from + size), 'stderr');
    }
    read.end();
    for (const stream of ['stdout', 'stderr'])
      expect(read.lines.filter((line) => line.stream === stream).map((line) => line.text)).toEqual([
        'one',
        '',
        'two \u00e9',
        'last',
      ]);
  }
});

const PIECE = 16_384;
/**
 * Output of the engine for a line: pieces with its time. `stored` is what its log driver makes of a
 * piece.
 */
function asEngine(line: Buffer, stored: (piece: Buffer) => Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let from = 0; from < line.length || from === 0; from += PIECE)
    parts.push(Buffer.from(`${AT} `), stored(line.subarray(from, from + PIECE)));
  // A piece that fills the engine's buffer is followed by another one, which may be empty.
  if (line.length > 0 && line.length % PIECE === 0) parts.push(Buffer.from(`${AT} `));
  return Buffer.concat([...parts, Buffer.from('\n')]);
}
/** json-file stores each invalid byte as U+FFFD. */
const jsonFile = (piece: Buffer): Buffer => {
  const parts: string[] = [];
  for (let at = 0; at < piece.length; ) {
    const size = [1, 2, 3, 4].find(
      (n) =>
        at + n <= piece.length &&
        !piece
          .subarray(at, at + n)
          .toString('utf8')
          .includes('\u{FFFD}'),
    );
    const isReplacement = piece.subarray(at, at + 3).equals(Buffer.from('\u{FFFD}'));
    parts.push(size === undefined ? '\u{FFFD}' : piece.subarray(at, at + size).toString('utf8'));
    at += size ?? (isReplacement ? 3 : 1);
  }
  return Buffer.from(parts.join(''));
};
const raw = (piece: Buffer): Buffer => piece;

test.each<[string, string]>([
  ['ASCII, one byte less than a piece', 'x'.repeat(PIECE - 1)],
  ['ASCII, a whole piece', 'x'.repeat(PIECE)],
  ['ASCII, two pieces', 'x'.repeat(PIECE + 1)],
  ['three bytes each', `{"msg":"${'あ'.repeat(9_000)}"}`],
  ['two bytes each', `a${'é'.repeat(12_000)}`],
  ['four bytes each', `abc${'🚀'.repeat(7_000)}`],
  ['the time of the line inside it', `${AT} x ${'y'.repeat(PIECE - 40)}${AT} z${'あ'.repeat(100)}`],
  ['U+FFFD that the program printed', `${'\u{FFFD}'.repeat(3)}${'x'.repeat(PIECE)}\u{FFFD}y`],
])('a long line is as it was printed: %s', (_, text) => {
  for (const [driver, stored] of [
    ['json-file', jsonFile],
    ['local', raw],
  ] as const)
    for (const size of [1_000_000, 16_000, 5_000]) {
      const read = reader();
      const bytes = Buffer.concat([
        asEngine(Buffer.from(text), stored),
        Buffer.from(`${AT} next\n`),
      ]);
      for (let from = 0; from < bytes.length; from += size)
        read.chunk(bytes.subarray(from, from + size), 'stdout');
      read.end();
      const whole = cutLine(text);
      // json-file loses a character that a piece cuts in two.
      const shown =
        driver === 'json-file'
          ? Array.from(read.lines[0]?.text ?? '', (c, i) =>
              c === '\u{FFFD}' ? Array.from(whole)[i] : c,
            ).join('')
          : read.lines[0]?.text;
      expect(`${driver} ${size}: ${shown}`).toBe(`${driver} ${size}: ${whole}`);
      expect(read.lines.map((line) => line.text).slice(1)).toEqual(['next']);
    }
});

test('a progress bar leaves its last state, also if it prints more than a piece', () => {
  const bar = Array.from({ length: 5_000 }, (_, i) => `${i} %\r`).join('');
  const read = reader();
  read.chunk(asEngine(Buffer.from(`${bar}done`), jsonFile), 'stdout');
  expect(read.lines).toEqual([{ at: AT, stream: 'stdout', text: 'done' }]);
});
