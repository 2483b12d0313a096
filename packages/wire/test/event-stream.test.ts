/** Event streams in any pieces. */
import { expect, test } from 'vitest';
import { createFrameReader, type Frame } from '../src/event-stream.ts';

const read = (text: string, size: number): Frame[] => {
  const reader = createFrameReader();
  const found: Frame[] = [];
  for (let from = 0; from < text.length; from += size)
    found.push(...reader.add(text.slice(from, from + size)));
  return found;
};

test.each<[string, string, Frame[]]>([
  [
    'an event',
    'event: line\nid: 7\ndata: {"a":1}\n\n',
    [{ event: 'line', id: '7', data: '{"a":1}' }],
  ],
  [
    'separators of lines in Unicode are data',
    'data: "a\u2028b\u2029c\u0085d"\n\n',
    [{ event: 'message', id: null, data: '"a\u2028b\u2029c\u0085d"' }],
  ],
  [
    'comments and unknown fields',
    ': ping\n\nretry: 5\ndata: 1\n\n',
    [{ event: 'message', id: null, data: '1' }],
  ],
  [
    'data in several lines, colons, no blank',
    'data:a: b\ndata:\ndata: c\n\n',
    [{ event: 'message', id: null, data: 'a: b\n\nc' }],
  ],
  [
    'CR LF and CR end lines',
    'data: 1\r\n\r\ndata: 2\r\rdata: 3\n\n',
    ['1', '2', '3'].map((data) => ({ event: 'message', id: null, data })),
  ],
  ['an id without data', 'id: 9\n\n', [{ event: 'message', id: '9', data: '' }]],
  ['an unfinished event', 'data: 1\n', []],
])('%s', (_, text, expected) => {
  for (const size of [1, 2, 3, 7, 1_000]) expect(read(text, size)).toEqual(expected);
});

test('an event that never ends is refused', () => {
  const reader = createFrameReader(100);
  expect(reader.add('data: 1\n\n'.repeat(50))).toHaveLength(50);
  expect(() => {
    for (let i = 0; i < 20; i += 1) reader.add('data: xxxxxxxx\n');
  }).toThrow('too long');
});
