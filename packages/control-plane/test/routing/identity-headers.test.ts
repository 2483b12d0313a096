/**
 * The proxy removes each spelling of an identity header (open projects) or replaces it (protected
 * projects).
 */
import {
  COMMONLY_FORGED_HEADERS,
  FORGED_HEADERS,
  isIdentityHeader,
} from '@berth/testbed/forged-headers';
import { CLIENT_HEADERS } from '@berth/wire/vocabulary';
import { describe, expect, it } from 'vitest';
import { dynamicConfig } from '../../src/routing/traefik.ts';

type Middlewares = Record<
  string,
  {
    headers?: { customRequestHeaders: Record<string, string> };
    forwardAuth?: { authResponseHeaders: string[]; authResponseHeadersRegex: string };
  }
>;
const route = {
  deployment_id: 'd',
  node_id: 'n',
  published_at: 0,
  host_ip: '10.0.0.1',
  host_port: 32_768,
};
const ROUTES = [
  { ...route, project_id: 'a', project_name: 'a', domain_prefix: 'a', auth_required: true },
  { ...route, project_id: 'b', project_name: 'b', domain_prefix: 'b', auth_required: false },
];
const SETTINGS = {
  baseDomain: 'berth.example',
  authServiceUrl: 'http://gateway',
  acmeResolver: 'x',
};
const built = dynamicConfig(ROUTES, SETTINGS);
const { middlewares } = (JSON.parse(built.bytes) as { http: { middlewares: Middlewares } }).http;
const auth = middlewares['a-auth']?.forwardAuth;
/** Converts Go’s prefix (?i) to JavaScript. */
const regex = new RegExp((auth?.authResponseHeadersRegex ?? '').replace('(?i)', ''), 'i');
/** The proxy ignores case: it compares canonical names of Go. */
const stripped = new Map(
  Object.entries(middlewares['berth-strip-identity']?.headers?.customRequestHeaders ?? {}).map(
    ([name, value]) => [name.toLowerCase(), value],
  ),
);

describe('identity headers', () => {
  it.each(FORGED_HEADERS)('%s is replaced on a protected project', (name) => {
    expect(regex.test(name)).toBe(true);
  });

  it.each(COMMONLY_FORGED_HEADERS)('%s is removed on an open project', (name) => {
    expect(stripped.get(name.toLowerCase())).toBe('');
  });

  it('no other header except Cookie and Authorization is removed from requests', () => {
    const others = new Set<string>(CLIENT_HEADERS.map((name) => name.toLowerCase()));
    for (const [name] of stripped)
      expect(isIdentityHeader(name) || others.has(name), name).toBe(true);
    for (const name of ['Cookie', 'Authorization', 'cookie']) expect(regex.test(name)).toBe(true);
    for (const name of [
      'X-Forwarded-For',
      'X-Forwarded-Host',
      'X-Forwarded-Username',
      'X-Forwarded-User-Id',
      'Set-Cookie',
      'Cookie2',
      'Proxy-Authorization',
      'X-User',
      'Content-Type',
    ])
      expect(regex.test(name), name).toBe(false);
  });

  it.each(CLIENT_HEADERS)(
    '%s of a client is removed on both, and kept with KEEP_CLIENT_HEADERS',
    (name) => {
      expect(regex.test(name)).toBe(true);
      expect(stripped.get(name.toLowerCase())).toBe('');
      const kept = dynamicConfig(ROUTES, {
        ...SETTINGS,
        keptHeaders: [name.toLowerCase()],
      }).bytes.toLowerCase();
      expect(kept).not.toContain(`"${name.toLowerCase()}":""`);
      expect(kept).not.toMatch(new RegExp(`[|(]${name.toLowerCase()}[|)]`));
    },
  );

  it('authResponseHeaders is exactly the list of the contract', () => {
    expect(auth?.authResponseHeaders).toEqual(['X-Forwarded-User']);
  });
});
