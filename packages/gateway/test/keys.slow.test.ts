/** Keys derived from SESSION_SECRET: rotation, separate uses, and wrong keys. */
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

  it('a session signed with an earlier secret is valid; with a dropped secret it is not', () => {
    const value = sessions('first').seal(session, 'sso');
    expect(sessions('second', 'first').open(value, 'sso')).toEqual(session);
    expect(sessions('third', 'second').open(value, 'sso')).toBeNull();
  });

  it('new values use the current secret', () => {
    const value = sessions('second', 'first').seal(session, 'sso');
    expect(sessions('second').open(value, 'sso')).toEqual(session);
    expect(sessions('first').open(value, 'sso')).toBeNull();
  });

  it('the same applies to sealed values', () => {
    const text = sealer('first').seal('x', { a: 1 }, 1000);
    expect(sealer('second', 'first').open('x', text)).toEqual({ a: 1 });
    expect(sealer('second').open('x', text)).toBeNull();
  });

  it('the public assertion keys of all secrets are published, the current one first, without private parts', () => {
    const both = jwks(deriveKeys(['second', 'first'])).keys;
    expect(both.map((k) => k['kid'])).toEqual(
      [...jwks(deriveKeys(['second'])).keys, ...jwks(deriveKeys(['first'])).keys].map(
        (k) => k['kid'],
      ),
    );
    expect(Object.keys(both[0] ?? {}).toSorted()).toEqual(['alg', 'crv', 'kid', 'kty', 'use', 'x']);
  });
});

describe('sealed values', () => {
  it('open only for their purpose, and expire', () => {
    const text = sealer('s').seal('one', 'value', 1000);
    expect(sealer('s').open('one', text)).toBe('value');
    expect(sealer('s').open('two', text)).toBeNull();
    expect(createSealer(deriveKeys(['s']), () => now() + 1001).open('one', text)).toBeNull();
  });

  it('of version 0.1.0 open', () => {
    const text = 'yr6uGJyQvQuMto8pyvfOGBWoioVwfdFQkI1rUSiPUO71hTwWmW_RlwBW5-3g_pUJi9hJnQPTeD0PFQ';
    expect(sealer('s'.repeat(32)).open('login', text)).toEqual({ to: '/x' });
  });

  it('do not open if any part was changed', () => {
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
    for (const other of [`${text}=`, `${text}A`, ` ${text}`, text.slice(0, -2), ''])
      expect(sealer('s').open('one', other)).toBeNull();
  });
});

describe('session values', () => {
  it('preserve any name and address', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'grapheme', maxLength: 100 }),
        fc.webUrl(),
        fc.emailAddress(),
        (name, avatar_url, email) => {
          const session = sessionOf({ name, avatar_url, email, provider: 'oidc' });
          expect(sessions('s').open(sessions('s').seal(session, 'project:x'), 'project:x')).toEqual(
            session,
          );
        },
      ),
    );
  });

  it('are valid only for their audience', () => {
    const value = sessions('s').seal(sessionOf(), 'project:x');
    for (const audience of ['project:y', 'project:', 'sso', 'host:x', 'project:xx'] as const)
      expect(sessions('s').open(value, audience)).toBeNull();
  });
});
