import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { acmeCaServer, acmeEmail, LETS_ENCRYPT, traefikConfig } from '../src/lib/traefik-config.ts';

const shipped = readFileSync(
  join(import.meta.dirname, '../../../deploy/traefik/traefik.yml'),
  'utf8',
);
type Static = {
  certificatesResolvers: { letsencrypt: { acme: Record<string, unknown> } };
  providers: Record<string, Record<string, unknown>>;
};
const read = (text: string): Static => parse(text) as Static;
const acmeOf = (text: string): Record<string, unknown> =>
  read(text).certificatesResolvers.letsencrypt.acme;
const comments = (text: string): string[] =>
  text.split('\n').filter((line) => line.trim().startsWith('#'));

describe('Traefik’s static configuration', () => {
  test('without values, the shipped file stays as it is', () => {
    expect(read(traefikConfig(shipped, {}))).toEqual(read(shipped));
    expect(acmeOf(shipped)).toEqual({
      email: 'ops@example.org',
      caServer: LETS_ENCRYPT,
      storage: '/var/lib/berth-proxy/acme.json',
      tlsChallenge: {},
    });
  });
  test('values of an installation replace the examples, and all comments stay', () => {
    const text = traefikConfig(shipped, {
      acmeEmail: 'ada@berth.test',
      acmeCaServer: 'https://ca.berth.test/dir',
      acmeChallenge: 'http-01',
      stateDir: '/state',
      routesFrom: 'http://127.0.0.1:8082',
      dynamicDir: '/files',
      dockerEndpoint: 'tcp://socket:2375',
      listen: { web: '127.0.0.1:1080', websecure: '127.0.0.1:1443' },
    });
    expect(acmeOf(text)).toEqual({
      email: 'ada@berth.test',
      caServer: 'https://ca.berth.test/dir',
      storage: '/state/acme.json',
      httpChallenge: { entryPoint: 'web' },
    });
    expect(read(text).providers).toMatchObject({
      http: { endpoint: 'http://127.0.0.1:8082/api/traefik/config?wait=20' },
      file: { directory: '/files', watch: true },
      docker: {
        endpoint: 'tcp://socket:2375',
        exposedByDefault: false,
        constraints: '!LabelRegex(`berth.project`, `.+`)',
      },
    });
    expect(read(text)).toMatchObject({
      entryPoints: {
        web: { address: '127.0.0.1:1080', http: { aliasHeadersStrategy: 'delete' } },
        websecure: { address: '127.0.0.1:1443', http: { aliasHeadersStrategy: 'delete' } },
      },
    });
    expect(comments(text)).toEqual(comments(shipped));
  });
  test('a second run with the same values changes nothing, and another challenge replaces the first', () => {
    const values = {
      acmeEmail: 'ada@berth.test',
      acmeChallenge: 'http-01',
      dockerEndpoint: 'unix:///run/docker.sock',
    } as const;
    const once = traefikConfig(shipped, values);
    expect(traefikConfig(once, values)).toBe(once);
    expect(acmeOf(traefikConfig(once, { acmeChallenge: 'tls-alpn-01' }))).toMatchObject({
      tlsChallenge: {},
    });
    expect(acmeOf(traefikConfig(once, { acmeChallenge: 'tls-alpn-01' }))).not.toHaveProperty(
      'httpChallenge',
    );
  });
  test('what an operator wrote stays: a DNS challenge, entry points, plugins', () => {
    const own = shipped
      .replace('tlsChallenge: {}', 'dnsChallenge: { provider: hetzner }')
      .replace('providers:\n', 'log: { level: DEBUG }\nproviders:\n');
    const text = traefikConfig(own, { acmeEmail: 'ada@berth.test', acmeChallenge: 'dns-01' });
    expect(acmeOf(text)).toMatchObject({
      email: 'ada@berth.test',
      dnsChallenge: { provider: 'hetzner' },
    });
    expect(text).toContain('log: { level: DEBUG }');
    expect(() => traefikConfig(own, { acmeChallenge: 'http-01' })).toThrow(/another challenge/);
    expect(() => traefikConfig(shipped, { acmeChallenge: 'dns-01' })).toThrow(/docs\/https\.md/);
  });
  test('a broken file is refused with a sentence', () => {
    expect(() => traefikConfig('a: [', {})).toThrow(/not valid YAML/);
    expect(() => traefikConfig('providers: {}', {})).toThrow(
      /has no certificatesResolvers\.letsencrypt\.acme/,
    );
  });
});

describe('ACME settings', () => {
  test.each([
    '',
    'ops',
    'ops@',
    '@example.org',
    'ops@localhost',
    'a b@example.org',
    'a@b@example.org',
    'ops@exa_mple.org',
  ])('the e-mail address “%s” is refused', (text) =>
    expect(() => acmeEmail(text)).toThrow('must be an e-mail address'),
  );
  test('good values pass', () => {
    expect(acmeEmail(' ops@example.org ')).toBe('ops@example.org');
    expect(acmeCaServer(LETS_ENCRYPT)).toBe(LETS_ENCRYPT);
    expect(acmeCaServer('https://ca.internal:9000/acme/acme/directory')).toBe(
      'https://ca.internal:9000/acme/acme/directory',
    );
  });
  test.each([
    '',
    'letsencrypt',
    'http://acme.example.org/dir',
    'acme.example.org/dir',
    'https://u:p@acme.example.org/',
  ])('the certificate authority “%s” is refused', (text) =>
    expect(() => acmeCaServer(text)).toThrow('must be the https address of an ACME directory'),
  );
});
