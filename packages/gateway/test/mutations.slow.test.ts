/** Changed cookies, tokens and codes never let a request pass and never cause a server error. */
import { createHash, randomBytes } from 'node:crypto';
import { waitFor } from '@berth/testbed/wait';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { challengeOf } from '../src/codes.ts';
import { BASE, BROWSER, policyOf, type Running, sessionOf, startGateway } from './core-support.ts';

const token = `berth_${randomBytes(32).toString('base64url')}`;
const NONCE = 'n'.repeat(43);
let berth: Running;
beforeAll(async () => {
  berth = await startGateway();
  const hash = createHash('sha256').update(token).digest('hex');
  const identity = { email: 'dora@example.com', name: null, avatar_url: null, provider: 'oidc' };
  berth.controlPlane.publish(
    policyOf({
      device_tokens: [
        { id: 't1', hash, identity, expires_at: new Date(Date.now() + 3_600_000).toISOString() },
      ],
    }),
  );
  await waitFor(
    'the policy holds',
    () => berth.gateway.deps.policy.view().deviceToken(token) !== undefined,
  );
});
afterAll(() => berth.stop());

/** Text that a header can contain: bytes that are not control characters. */
const byte = fc
  .integer({ min: 0x20, max: 0xff })
  .filter((n) => n !== 0x7f)
  .map((n) => String.fromCharCode(n));
const junk = fc.array(byte, { minLength: 1, maxLength: 30 }).map((b) => b.join(''));
const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';

/** Changes a text in one of many ways; never returns the same text. */
const mutated = (text: string): fc.Arbitrary<string> => {
  const at = fc.nat({ max: text.length - 1 });
  return fc
    .oneof(
      fc
        .tuple(
          at,
          fc.nat({ max: 63 }).map((n) => ALPHABET[n] ?? ''),
        )
        .map(([i, c]) => text.slice(0, i) + c + text.slice(i + 1)),
      fc.tuple(at, byte).map(([i, c]) => text.slice(0, i) + c + text.slice(i + 1)),
      at.map((i) => text.slice(0, i)),
      at.map((i) => text.slice(i + 1)),
      fc.tuple(at, junk).map(([i, j]) => text.slice(0, i) + j + text.slice(i)),
      fc
        .tuple(at, at)
        .map(([i, j]) => text.slice(0, Math.min(i, j)) + text.slice(Math.max(i, j) + 1)),
      at.map((i) => text.slice(i) + text.slice(0, i)),
      fc.constantFrom(
        `${text}=`,
        `${text}.`,
        `"${text}"`,
        `${text}${text}`,
        text.replaceAll('-', '+').replaceAll('_', '/').concat('=='),
        text.toUpperCase(),
        `.${text}`,
        encodeURIComponent(`${text}%`),
      ),
      junk,
    )
    .filter((other) => other.trim() !== text && !other.includes(`svc_fwd_session=${text}`));
};

describe('a session cookie', () => {
  it('that was changed, cut, padded, doubled or invented is refused', async () => {
    const value = berth.cookie(sessionOf()).slice('svc_fwd_session='.length);
    expect((await berth.verify({ Cookie: `svc_fwd_session=${value}` })).status).toBe(200);
    await fc.assert(
      // A semicolon ends the value, and the part before it may be the complete, unchanged value.
      fc.asyncProperty(
        mutated(value).filter((v) => v.split(';', 1)[0]?.trim() !== value),
        async (other) => {
          expect((await berth.verify({ Cookie: `svc_fwd_session=${other}` })).status).toBe(401);
        },
      ),
      { numRuns: 800 },
    );
  });

  it('with another payload under the same signature is refused', async () => {
    const value = berth.gateway.deps.sessions.seal(sessionOf(), 'project:p1');
    const [payload = '', mac = ''] = value.split('.');
    const fields = JSON.parse(Buffer.from(payload, 'base64url').toString()) as unknown[];
    for (const change of [{ 1: 'boss@example.com' }, { 5: 9_999_999_999 }, { 0: 'other' }]) {
      const forged = Buffer.from(JSON.stringify(Object.assign([...fields], change))).toString(
        'base64url',
      );
      expect((await berth.verify({ Cookie: `svc_fwd_session=${forged}.${mac}` })).status).toBe(401);
    }
  });

  it('header with any bytes gives 401 or, in a browser, the login', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.oneof(
            junk,
            fc.constantFrom(
              ';',
              '=',
              'svc_fwd_session',
              'berth_nonce',
              '__Host-berth_nonce=',
              ',',
              '"',
            ),
          ),
          {
            maxLength: 12,
          },
        ),
        fc.boolean(),
        async (parts, browser) => {
          const reply = await berth.verify({ Cookie: parts.join(''), ...(browser ? BROWSER : {}) });
          expect(reply.status).toBe(browser ? 302 : 401);
        },
      ),
      { numRuns: 300 },
    );
  });
});

describe('a device token', () => {
  it('that was changed in any way is refused', async () => {
    expect((await berth.verify({ Authorization: `Bearer ${token}` })).status).toBe(200);
    await fc.assert(
      fc.asyncProperty(mutated(token), async (other) => {
        expect((await berth.verify({ Authorization: `Bearer ${other}` })).status).toBe(401);
      }),
      { numRuns: 300 },
    );
  });
});

describe('a one-time code', () => {
  it('that was changed in any way gives an error page and no session', async () => {
    const code = berth.gateway.deps.codes.mint(sessionOf(), `one.${BASE}`, challengeOf(NONCE));
    await fc.assert(
      fc.asyncProperty(mutated(code), async (other) => {
        const query = new URLSearchParams({ code: other, redirect: '/' });
        const reply = await berth.verify({
          ...BROWSER,
          Cookie: `__Host-berth_nonce=${NONCE}`,
          'X-Forwarded-Uri': `/_oauth/session?${query.toString()}`,
        });
        expect(reply.status).toBe(400);
        expect(reply.headers['set-cookie']).toBeUndefined();
      }),
      { numRuns: 300 },
    );
    expect(berth.controlPlane.calls).toEqual([]);
  });
});

describe('the forwarded headers', () => {
  it('with any bytes never let a request pass that correct headers would not', async () => {
    const Cookie = berth.cookie(sessionOf());
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(
          'X-Forwarded-Host',
          'X-Forwarded-Uri',
          'X-Forwarded-Method',
          'X-Forwarded-Proto',
          'Accept',
        ),
        junk.filter((text) => text.trim() !== ''),
        async (name, value) => {
          const { status } = await berth.verify({ Cookie, [name]: value });
          if (name === 'X-Forwarded-Host') expect(status).toBe(403);
          else expect([200, 404]).toContain(status);
          expect([401, 403, 404, 302]).toContain(
            (await berth.verify({ ...BROWSER, [name]: value })).status,
          );
        },
      ),
      { numRuns: 300 },
    );
  });

  it('with any unknown project give 403', async () => {
    const Cookie = berth.cookie(sessionOf());
    await fc.assert(
      fc.asyncProperty(
        fc.string({ maxLength: 80 }).filter((id) => id !== 'p1'),
        async (id) => {
          expect(
            (
              await berth.verify(
                { Cookie },
                `/verify?project=${encodeURIComponent(id.toWellFormed())}`,
              )
            ).status,
          ).toBe(403);
        },
      ),
      { numRuns: 300 },
    );
  });
});
