import { expect, test } from 'vitest';
import { decimalSizeText, sizeText } from '@berth/wire/size-text';

test.each([
  [0, '0 B'],
  [1023, '1023 B'],
  [1536, '1.5 KiB'],
  [20 * 2 ** 30, '20.0 GiB'],
  [2 ** 60, '1024 PiB'],
])('%d bytes are “%s” in binary units', (bytes, text) => expect(sizeText(bytes)).toBe(text));

test.each([
  [0, '0 B'],
  [999, '999 B'],
  [1_000, '1.0 kB'],
  [-1_500, '-1.5 kB'],
  [85_400_000, '85.4 MB'],
  [123_400_000, '123 MB'],
  [999_600_000, '1.0 GB'],
  [1_234_567_890_123, '1.2 TB'],
])('%d bytes are “%s” in decimal units', (bytes, text) =>
  expect(decimalSizeText(bytes)).toBe(text),
);
