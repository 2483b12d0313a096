import { expect, test } from 'vitest';
import { createCipher } from '../../src/secrets/cipher.ts';

const SEALED = 'v1.b1c5302d99636c92.73IagJXkuFfsf7mkLigu_hgODq36_taEgievxIdO07-mB1Y';

test('a value that version 0.1.0 sealed opens, for its own data only', () => {
  const cipher = createCipher(Buffer.alloc(32, 7), 'seal');
  expect(cipher.open(['p1', 'NAME'], SEALED).toString()).toBe('a value');
  expect(() => cipher.open(['p1', 'OTHER'], SEALED)).toThrow();
  expect(() => cipher.open(['p1', 'NAME'], SEALED.slice(0, 40))).toThrow('another key or format');
});
