/** The rules of output: any split of the bytes into pieces gives the same lines. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  type CarriageReturns,
  createLines,
  cutAt,
  cutLine,
  lastState,
  MAX_LINE,
} from '../src/lines.ts';

function linesIn(
  pieces: readonly Buffer[],
  carriageReturns: CarriageReturns = 'rewrite',
  most = MAX_LINE,
): string[] {
  const found: string[] = [];
  const lines = createLines({
    carriageReturns,
    most,
    onLine(line) {
      const { text, missing } = line.read();
      found.push(cutLine(text, most, missing));
    },
  });
  for (const piece of pieces) {
    const given = Buffer.from(piece);
    lines.add(given);
    // A reader may not keep bytes of the piece.
    given.fill(0x3f);
  }
  lines.end();
  return found;
}
const whole = (text: string | Buffer, ...rest: [CarriageReturns?, number?]): string[] =>
  linesIn([Buffer.from(text as string)], ...rest);

const EURO = Buffer.from('€');
test.each<[string, string | Buffer, string[]]>([
  ['LF and CR LF end a line', 'a\nb\r\n\nc\n', ['a', 'b', '', 'c']],
  ['a last line without an end counts', 'a\nb', ['a', 'b']],
  ['an end at the end begins no line', 'a\n', ['a']],
  ['nothing is no line', '', []],
  [
    'a carriage return starts the line again',
    '10 %\r20 %\r100 %\ndone\r\r\nend\r',
    ['100 %', 'done', 'end'],
  ],
  ['characters of several bytes', 'grüße 日本 🚀\n', ['grüße 日本 🚀']],
  ['invalid bytes become U+FFFD', Buffer.of(0x61, 0xff, 0x62, 10), ['a\u{FFFD}b']],
  [
    'half a character at the end of a line',
    Buffer.concat([EURO.subarray(0, 2), Buffer.from('\nx')]),
    ['\u{FFFD}', 'x'],
  ],
  ['NUL and escape sequences stay for the reader', 'a\0\u001b[31mb\n', ['a\0\u001b[31mb']],
])('%s', (_, text, expected) => {
  expect(whole(text)).toEqual(expected);
  expect(linesIn([...Buffer.from(text as string)].map((byte) => Buffer.of(byte)))).toEqual(
    expected,
  );
});

describe('any split into pieces gives the same lines', () => {
  const bytes = fc.array(
    fc.oneof(
      fc
        .constantFrom('\n', '\r', '\r\n', '\r\r\n', '\0', '\u001b[2K', '€', '🚀', 'ü', '\u{FFFD}')
        .map((text) => Buffer.from(text)),
      fc.string({ unit: 'binary', maxLength: 6 }).map((text) => Buffer.from(text)),
      fc.uint8Array({ maxLength: 4 }).map((array) => Buffer.from(array)),
      fc.integer({ min: 1, max: 60 }).map((count) => Buffer.from('x🚀'.repeat(count))),
    ),
    { maxLength: 30 },
  );
  test.each(['rewrite', 'end', 'keep'] as const)('%s', (mode) => {
    fc.assert(
      fc.property(
        bytes,
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 8 }),
        (parts, sizes) => {
          const all = Buffer.concat(parts);
          const pieces: Buffer[] = [];
          for (let from = 0, i = 0; from < all.length; i += 1) {
            const size = sizes[i % sizes.length] ?? 1;
            pieces.push(all.subarray(from, from + size));
            from += size;
          }
          for (const most of [70, MAX_LINE]) {
            const expected = linesIn([all], mode, most);
            expect(linesIn(pieces, mode, most)).toEqual(expected);
            for (const line of expected) {
              expect(line.length).toBeLessThanOrEqual(most);
              expect(line.isWellFormed()).toBe(true);
            }
          }
        },
      ),
      { numRuns: 300 },
    );
  });
});

test('the end of a long line says how many characters are missing', () => {
  expect(whole('x'.repeat(MAX_LINE))).toEqual(['x'.repeat(MAX_LINE)]);
  expect(whole('x'.repeat(MAX_LINE + 1))).toEqual([
    `${'x'.repeat(MAX_LINE - 50)}… (line cut: 51 more characters)`,
  ]);
  for (const unit of ['あ', '🚀', 'é', 'x']) {
    for (const length of [MAX_LINE - 2, MAX_LINE, MAX_LINE + 4, 100_000]) {
      const [line = ''] = whole(`${unit.repeat(length / unit.length)}\nnext`);
      const at = cutAt(line);
      if (length <= MAX_LINE) expect(line.length).toBe(length);
      else expect(at === null ? 0 : at + Number(/cut: (\d+) more/.exec(line)?.[1])).toBe(length);
      expect(line.isWellFormed()).toBe(true);
    }
  }
});

test('a line that is cut twice says the same as a line that is cut once', () => {
  const text = 'a🚀'.repeat(400);
  for (const first of [1_000, 700, 333])
    for (const second of [200, 100, 70])
      expect(cutLine(cutLine(text, first), second)).toBe(cutLine(text, second));
  expect(cutLine(cutLine(text, 300), 400)).toBe(cutLine(text, 300));
});

test('an endless line and an endless progress bar keep a bounded part', () => {
  const sizes: number[] = [];
  const lines = createLines({ onLine: (line) => sizes.push(line.read().text.length) });
  const chunk = Buffer.alloc(1 << 20, 0x78);
  for (let i = 0; i < 50; i += 1) lines.add(chunk);
  lines.add(Buffer.from('\n'));
  for (let i = 0; i < 50_000; i += 1) lines.add(Buffer.from(`\r${i} %`));
  lines.end();
  expect(sizes).toEqual([3 * MAX_LINE + 3, 7]);
});

test('lastState', () => {
  expect(['', 'a', 'a\rb', 'a\rb\r', '\r\r'].map(lastState)).toEqual(['', 'a', 'b', 'b', '']);
});
