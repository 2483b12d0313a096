import { describe, expect, test } from 'vitest';
import { seal, SEAL_BYTES, type SealFormat, unseal, unsealWithAny } from '../src/seal.ts';

const key = Buffer.alloc(32, 1);
const other = Buffer.alloc(32, 2);
const content = Buffer.from('content');
const about = Buffer.from('deployment 1');

describe.each<SealFormat>([
  { tag: 'first' },
  { tag: 'last' },
  { tag: 'first', about },
  { tag: 'last', about },
])('sealed with %o', (format) => {
  test('opens with its key, and each time has other bytes', () => {
    const sealed = seal(key, content, format);
    expect(unseal(key, sealed, format)).toEqual(content);
    expect(sealed).toHaveLength(content.length + SEAL_BYTES);
    expect(seal(key, content, format)).not.toEqual(sealed);
  });

  test('does not open with another key, for other data, or after a change of any byte', () => {
    const sealed = seal(key, content, format);
    expect(() => unseal(other, sealed, format)).toThrow();
    expect(() => unseal(key, sealed, { ...format, about: Buffer.from('other') })).toThrow();
    for (const at of sealed.keys()) {
      const changed = Buffer.from(sealed);
      changed[at] = (changed[at] ?? 0) ^ 1;
      expect(() => unseal(key, changed, format)).toThrow();
      expect(() => unseal(key, sealed.subarray(0, at), format)).toThrow();
    }
  });

  test('opens with any of several keys; with none, the answer is null', () => {
    const sealed = seal(key, content, format);
    expect(unsealWithAny([other, key], sealed, format)).toEqual(content);
    expect(unsealWithAny([other], sealed, format)).toBeNull();
    expect(unsealWithAny([], sealed, format)).toBeNull();
  });
});

test('an empty value can be sealed', () => {
  expect(unseal(key, seal(key, Buffer.alloc(0), { tag: 'last' }), { tag: 'last' })).toHaveLength(0);
});
