/** Texts that the pages compute: times, sizes, colors of log lines, searches. */
import { describe, expect, test } from 'vitest';
import { piecesOf, plainText } from '../src/parts/ansi.ts';
import { matcherOf } from '../src/parts/match.ts';
import { clean } from '../src/ui/foreign.ts';
import { durationText, exactTime, relativeTime } from '../src/parts/time-text.ts';
import { readSse } from '../src/api/sse.ts';
import { routesOf } from '../src/api/routes-of.ts';
import { score } from '../src/app/score.ts';

describe('times', () => {
  const NOW = Date.parse('2026-11-24T12:00:00Z');
  test.each([
    ['2026-11-24T11:59:55Z', 'just now'],
    ['2026-11-24T12:00:05Z', 'just now'],
    ['2026-11-24T11:59:15Z', '45 sec. ago'],
    ['2026-11-24T11:01:00Z', '59 min. ago'],
    ['2026-11-23T12:00:00Z', 'yesterday'],
    ['2026-11-24T15:00:00Z', 'in 3 hr.'],
  ])('%s is “%s”', (at, text) => expect(relativeTime(at, NOW)).toBe(text));

  test.each(['2026-11-24T05:01:02Z', '2026-07-04T22:31:09Z', '2026-11-24T23:59:59Z'])(
    'the exact time of %s is local',
    (at) => {
      const zone = new Intl.DateTimeFormat('en-CA', { timeZoneName: 'short' }).formatToParts(
        new Date(at),
      );
      expect(exactTime(at)).toBe(
        `${new Date(at).toLocaleString('sv-SE')} ` +
          (zone.find(({ type }) => type === 'timeZoneName')?.value ?? ''),
      );
    },
  );

  test.each([
    [850, '850 ms'],
    [4_200, '4.2 s'],
    [59_700, '60 s'],
    [185_000, '3 min 05 s'],
    [180_000, '3 min'],
    [7_800_000, '2 h 10 min'],
    [86_400_000, '24 h'],
    [273_600_000, '3 d 4 h'],
  ])('%d ms are “%s”', (ms, text) => expect(durationText(ms)).toBe(text));
});

describe('log lines', () => {
  test('colors apply, and end', () =>
    expect(piecesOf('a \u001B[31;1mred\u001B[0m b')).toEqual([
      { text: 'a ', color: null, bold: false },
      { text: 'red', color: 'red', bold: true },
      { text: ' b', color: null, bold: false },
    ]));
  test.each([
    ['a title of the terminal', '\u001B]0;evil\u0007text', 'text'],
    ['a link', '\u001B]8;;https://evil.example\u001B\\text', 'text'],
    ['a movement of the cursor', '\u001B[2J\u001B[1;1Htext', 'text'],
    ['a sequence without an end', 'text\u001B[31', 'text'],
    ['an override of the direction', 'te\u202Ext', 'text'],
    ['markup, which stays text', '<script>alert(1)</script>', '<script>alert(1)</script>'],
  ])('%s', (_what, line, text) => expect(plainText(line)).toBe(text));
});

test.each([
  ['an override of the direction', 'Fix \u202Eevil\u202C', 'Fix evil'],
  ['an isolate that does not end', '\u2067abc', 'abc'],
  ['a control character', 'a\u0007b\u001B[31mc', 'ab[31mc'],
  ['lines and tabs, which stay', 'a\n\tb', 'a\n\tb'],
  ['Hebrew, which stays', 'תיקון', 'תיקון'],
])('a text of somebody else: %s', (_what, text, cleaned) => expect(clean(text)).toBe(cleaned));

describe('search', () => {
  const finds = (typed: string, text: string): boolean => {
    const matcher = matcherOf(typed);
    return typeof matcher !== 'string' && matcher(text);
  };
  test('text matches in any case', () => expect(finds('ERR', 'an error')).toBe(true));
  test('slashes make a regular expression', () =>
    expect(finds('/^an e.r/', 'an error')).toBe(true));
  test('a wrong expression gives its error, and no exception', () =>
    expect(matcherOf('/(/')).toMatch(/group/i));
});

describe('the palette', () => {
  test('letters in order match, others do not', () => {
    expect(score('weather-report', 'wr')).not.toBeNull();
    expect(score('weather-report', 'rw')).toBeNull();
  });
  test('the start of words counts more', () =>
    expect(score('weather-report', 'wr') ?? 0).toBeGreaterThan(score('slower', 'wr') ?? 0));
});

describe('events', () => {
  test('a deployment changes its page and the lists', () =>
    expect(routesOf('deployment.running')).toContain('getDeployment'));
  test('an unknown kind may change everything', () => expect(routesOf('comet.seen')).toBeNull());

  test('frames may arrive in any pieces; comments are no events', async () => {
    const text =
      ': hello\n\nid: 7\nevent: event\ndata: {"kind":"ä"}\n\nid: 8\ndata: 1\ndata: 2\n\n';
    const bytes = new TextEncoder().encode(text);
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
        controller.close();
      },
    });
    const frames = [];
    for await (const frame of readSse(body, 1_000)) frames.push(frame);
    expect(frames).toEqual([
      { event: 'event', data: '{"kind":"ä"}', id: '7' },
      { event: 'message', data: '1\n2', id: '8' },
    ]);
  });
});
