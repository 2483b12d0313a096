/** Keys from SESSION_SECRET: rotation, what each is good for, and what a wrong one opens (nothing). */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { deriveKeys, jwks } from '../src/keys.ts';
import { createSealer } from '../src/sealer.ts';
import { createSessions } from '../src/session.ts';
import { sessionOf } from './core-support.ts';

const now = (): number => Date.now();
const sessions = (...secrets: string[]) => createSessions(deriveKeys(secrets), now);
const sealer = (...secrets: string[]) => createSealer(deriveKeys(secrets), now);

describe('rotation of SESSION_SECRET', () => {
  const session = sessionOf();

  it('a session under an earlier secret still opens; under one that was dropped it does not', () => {
    const value = sessions('first').seal(session, 'sso');
    expect(sessions('second', 'first').open(value, 'sso')).toEqual(session);
    expect(sessions('third', 'second').open(value, 'sso')).toBeNull();
  });

  it('what is made is under the current one', () => {
    const value = sessions('second', 'first').seal(session, 'sso');
    expect(sessions('second').open(value, 'sso')).toEqual(session);
    expect(sessions('first').open(value, 'sso')).toBeNull();
  });

  it('sealed values alike', () => {
    const text = sealer('first').seal('x', { a: 1 }, 1000);
    expect(sealer('second', 'first').open('x', text)).toEqual({ a: 1 });
    expect(sealer('second').open('x', text)).toBeNull();
  });

  it('the keys for assertions are published for all of them, the current one first, no private part', () => {
    const both = jwks(deriveKeys(['second', 'first'])).keys;
    expect(both.map((k) => k['kid'])).toEqual(
      [...jwks(deriveKeys(['second'])).keys, ...jwks(deriveKeys(['first'])).keys].map((k) => k['kid']),
    );
    expect(Object.keys(both[0] ?? {}).toSorted()).toEqual(['alg', 'crv', 'kid', 'kty', 'use', 'x']);
  });
});

describe('sealed values', () => {
  it('open for their purpose alone, and not for ever', () => {
    const text = sealer('s').seal('one', 'value', 1000);
    expect(sealer('s').open('one', text)).toBe('value');
    expect(sealer('s').open('two', text)).toBeNull();
    expect(createSealer(deriveKeys(['s']), () => now() + 1001).open('one', text)).toBeNull();
  });

  it('changed in any place they do not open', () => {
    const text = sealer('s').seal('one', { secret: 'a value' }, 60_000);
    expect(Buffer.from(text, 'base64url').toString('latin1')).not.toContain('a value');
    const bytes = Buffer.from(text, 'base64url');
    fc.assert(
      fc.property(fc.nat({ max: bytes.length - 1 }), fc.integer({ min: 1, max: 255 }), (i, x) => {
        const other = Buffer.from(bytes);
        other[i] = (other[i] ?? 0) ^ x;
        expect(sealer('s').open('one', other.toString('base64url'))).toBeNull();
      }),
    );
    fc.assert(
      fc.property(fc.string(), (junk) => {
        expect(sealer('s').open('one', junk)).toBeNull();
      }),
    );
    for (const other of [`${text}=`, `${text}A`, ` ${text}`, text.slice(0, -2), '']) expect(sealer('s').open('one', other)).toBeNull();
  });
});

describe('session values', () => {
  it('carry any name and address there and back', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 100 }), fc.webUrl(), fc.emailAddress(), (name, avatar_url, email) => {
        const session = sessionOf({ name, avatar_url, email, provider: 'oidc' });
        expect(sessions('s').open(sessions('s').seal(session, 'project:x'), 'project:x')).toEqual(session);
      }),
    );
  });

  it('open for exactly their audience', () => {
    const value = sessions('s').seal(sessionOf(), 'project:x');
    for (const audience of ['project:y', 'project:', 'sso', 'host:x', 'project:xx'] as const)
      expect(sessions('s').open(value, audience)).toBeNull();
  });
});
