/**
 * Open redirects in all forms (RFC 9700 section 4.11): every redirect leads only to hosts of the
 * platform.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createRedirects, localPath } from '../src/redirect.ts';

const redirects = createRedirects('https://berth.example', 'berth.example', (host) =>
  host === 'www.shop.test' ? 'claim' : undefined,
);

const REFUSED = [
  'https://evil.example/',
  'http://evil.example/',
  '//evil.example',
  '///evil.example',
  '////evil.example/x',
  '/\\evil.example',
  '\\\\evil.example',
  '\\/evil.example',
  '/\\/evil.example',
  '/\t/evil.example',
  '/\n/evil.example',
  '\t//evil.example',
  ' //evil.example',
  ' https://evil.example',
  'https:evil.example',
  'https:/evil.example',
  'https:///evil.example',
  'https:\\\\evil.example',
  'https://evil.example\\@berth.example/',
  'https://berth.example@evil.example/',
  'https://berth.example:443@evil.example/',
  'https://user:password@app.berth.example/',
  'https://berth.example.evil.example/',
  'https://evilberth.example/',
  'https://evil-berth.example/',
  'https://berth.example.',
  'https://app.berth.example./',
  'https://berth.example:8443/',
  'http://berth.example/',
  'http://app.berth.example/',
  'ftp://berth.example/',
  'wss://app.berth.example/',
  'javascript:alert(1)',
  'JaVaScRiPt:alert(1)//https://berth.example/',
  'data:text/html,<script>alert(1)</script>',
  'vbscript:x',
  'file:///etc/passwd',
  'about:blank',
  'evil.example',
  'page',
  '?x=1',
  '#x',
  '',
  '/.//evil.example',
  '/..//evil.example',
  '/x/..//evil.example',
  '/%2e%2e//evil.example',
  '/.%2e//evil.example',
  'https://ｅvil.example/',
  'https://app。berth.example/',
  'https://[::1]/',
  'https://berth.example%2eevil.example/',
  'https://app.berth.example%00.evil.example/',
  'https://evil.example#.berth.example',
  'https://evil.example?.berth.example',
  'https://evil.example/.berth.example',
  '/\u0000/x',
  '/\u2028x',
  '/x\r\nSet-Cookie: a=b',
  '/_oauth/logout',
  '/_oauth',
  '/_oauth/',
  '/%5foauth/login',
  '/x/../_oauth/login',
  '/./_oauth/login',
  '/_oauth%2Flogin',
  'https://app.berth.example/_oauth/session?code=x',
  'https://app.berth.example//_oauth/session',
  `/${'x'.repeat(5000)}`,
];
const TAKEN: [string, string][] = [
  ['/', '/'],
  ['/page?x=1&y=2#z', '/page?x=1&y=2#z'],
  ['/a/../b', '/b'],
  ['/?next=https://evil.example', '/?next=https://evil.example'],
  ['/@evil.example', '/@evil.example'],
  ['/ü', '/%C3%BC'],
  ['https://berth.example', 'https://berth.example/'],
  ['https://BERTH.example/x', 'https://berth.example/x'],
  ['https://app.berth.example/x?y=1#z', 'https://app.berth.example/x?y=1#z'],
  ['https://app.berth.example:443/', 'https://app.berth.example/'],
  ['HTTPS://a.b.berth.example?q', 'https://a.b.berth.example/?q'],
];

describe('a redirect target', () => {
  it.each(REFUSED)('%j leads to /', (raw) => {
    expect(redirects.target(raw)).toBe('/');
  });
  it('that is missing becomes /', () => {
    expect(redirects.target(undefined)).toBe('/');
  });
  it.each(TAKEN)('%j becomes %j', (raw, target) => {
    expect(redirects.target(raw)).toBe(target);
  });

  it('is allowed only with the port and scheme of PUBLIC_URL', () => {
    const demo = createRedirects('http://berth.localhost:8000', 'berth.localhost', () => undefined);
    expect(demo.target('http://app.berth.localhost:8000/x')).toBe(
      'http://app.berth.localhost:8000/x',
    );
    for (const raw of [
      'http://app.berth.localhost/x',
      'https://app.berth.localhost:8000/',
      'http://app.berth.localhost:80/',
    ])
      expect(demo.target(raw)).toBe('/');
  });

  it('otherHost returns the other host of a target, or null', () => {
    expect(redirects.otherHost('https://app.berth.example/x')).toBe('app.berth.example');
    expect(redirects.otherHost('https://berth.example/x')).toBeNull();
    expect(redirects.otherHost('/x')).toBeNull();
  });

  it('a browser that follows any target stays on the platform', () => {
    const piece = fc.oneof(
      fc.constantFrom(
        '/',
        '\\',
        '//',
        '@',
        ':',
        '?',
        '#',
        '.',
        '..',
        '%2e',
        '%2f',
        '%5c',
        '\t',
        '\r',
        ' ',
        'https:',
        'http:',
        'evil.example',
        'berth.example',
        '.berth.example',
        '_oauth',
        ';',
      ),
      fc.string({ maxLength: 4 }),
    );
    const host = (target: string): string => new URL(target, 'https://berth.example/').hostname;
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 8 }).map((p) => p.join('')),
        (raw) => {
          const target = redirects.target(raw);
          expect(host(target) === 'berth.example' || host(target).endsWith('.berth.example')).toBe(
            true,
          );
          expect(target).toMatch(/^(\/(?![/\\])|https:\/\/)/);
          // A normalised target is accepted again unchanged.
          expect(redirects.target(target)).toBe(target);
          const path = localPath(raw);
          expect(new URL(path, 'https://app.berth.example/').hostname).toBe('app.berth.example');
        },
      ),
      { numRuns: 3000 },
    );
  });
});
