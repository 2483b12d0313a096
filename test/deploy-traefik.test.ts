/**
 * Compares deploy/traefik, which operators copy, with what the control plane generates and with the
 * contract.
 */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { FILES, readFileProvider } from '../packages/testbed/src/file-provider.ts';
import { CLIENT_HEADERS } from '../packages/wire/src/vocabulary.ts';
import { dynamicConfig } from '../packages/control-plane/src/routing/traefik.ts';

const ROOT = path.resolve(import.meta.dirname, '..');
const TRAEFIK = path.join(ROOT, 'deploy', 'traefik');
const env = {
  BASE_DOMAIN: 'berth.test',
  AUTH_SERVICE_URL: 'http://10.0.0.1:4180',
  CONTROL_PLANE_URL: 'http://10.0.0.1:8080',
  REGISTRY_URL: 'http://10.0.0.1:5000',
};
const [middlewares, authHost, dashboard, registry] = await Promise.all(
  FILES.map((file) => readFileProvider(file, env)),
);
const staticText = readFileSync(path.join(TRAEFIK, 'traefik.yml'), 'utf8');
/** The lines without comments. */
const staticLines = staticText
  .split('\n')
  .map((line) => line.replace(/(^|\s)#.*$/, ''))
  .filter((line) => line.trim() !== '');

/** The configuration that the control plane generates for one open and one protected project. */
const generated = JSON.parse(
  dynamicConfig(
    ['open', 'protected'].map((name, i) => ({
      project_id: `p-${name}`,
      project_name: name,
      domain_prefix: name,
      auth_required: name === 'protected',
      deployment_id: `d-${name}`,
      node_id: 'n',
      published_at: 0,
      host_ip: '10.0.0.2',
      host_port: 30_000 + i,
    })),
    {
      baseDomain: env.BASE_DOMAIN,
      authServiceUrl: env.AUTH_SERVICE_URL,
      acmeResolver: 'letsencrypt',
    },
  ).bytes,
) as {
  http: {
    middlewares: Record<string, Record<string, Record<string, unknown>>>;
    routers: Record<string, { middlewares?: string[] }>;
  };
};

test('this test reads every file of the folder', () => {
  expect(globSync('*', { cwd: path.join(TRAEFIK, 'dynamic') }).toSorted()).toEqual(
    [...FILES].toSorted(),
  );
});

describe('middlewares', () => {
  const parts = middlewares?.http['middlewares'] ?? {};
  test('the three middlewares of the contract exist, and one that strips identity headers', () => {
    expect(Object.keys(parts).toSorted()).toEqual([
      'redirect-to-https',
      'svc-forward-auth',
      'svc-forward-auth-admin',
      'svc-strip-identity',
    ]);
    expect(parts['redirect-to-https']).toEqual({
      redirectScheme: { scheme: 'https', permanent: true },
    });
  });
  test('both logins equal the login of a project, except their addresses', () => {
    const project = generated.http.middlewares['protected-auth']?.['forwardAuth'];
    for (const [name, address] of [
      ['svc-forward-auth', 'http://10.0.0.1:4180/verify'],
      ['svc-forward-auth-admin', 'http://10.0.0.1:4180/verify/admin'],
    ] as const)
      expect(parts[name]).toEqual({ forwardAuth: { ...project, address } });
  });
  test('the stripped headers are those that the control plane strips', () => {
    const strip = generated.http.middlewares['berth-strip-identity'];
    expect(Object.keys(strip?.['headers']?.['customRequestHeaders'] ?? {})).toHaveLength(
      117 + CLIENT_HEADERS.length,
    );
    expect(parts['svc-strip-identity']).toEqual(strip);
  });
  test('the file provider has everything that generated routers name', () => {
    const named = Object.values(generated.http.routers).flatMap(
      (router) => router.middlewares ?? [],
    );
    const fromFiles = named.filter((name) => name.endsWith('@file'));
    expect(fromFiles.length).toBeGreaterThan(0);
    expect(fromFiles.filter((name) => !(name.replace('@file', '') in parts))).toEqual([]);
  });
});

describe('routers', () => {
  type Router = { rule: string; entryPoints: string[]; middlewares: string[]; service: string };
  const routers = {
    ...authHost?.http['routers'],
    ...dashboard?.http['routers'],
    ...registry?.http['routers'],
  } as unknown as Record<string, Router>;
  test('each router requires a login or strips forged identities; plain http only redirects', () => {
    const guards = ['svc-forward-auth', 'svc-forward-auth-admin', 'svc-strip-identity'];
    for (const [name, router] of Object.entries(routers)) {
      const open = router.entryPoints.includes('web');
      expect(router.middlewares, name).toHaveLength(1);
      expect(open ? ['redirect-to-https'] : guards, name).toContain(router.middlewares[0]);
      expect(router.entryPoints, name).toEqual([open ? 'web' : 'websecure']);
    }
  });
  test('no router of the own host but the exchange takes a path that another program could read as another path', () => {
    for (const name of ['berth-gateway', 'berth-api', 'berth-pages'])
      expect(routers[name]?.rule, name).toMatch(/ && !PathRegexp\(`\/\/\|\/\[\.\]\[\.\]\?\/`\)$/);
    expect(routers['berth-exchange']?.rule).toBe(
      'Host(`berth.test`) && Path(`/api/auth/exchange`)',
    );
  });
  test('the dashboard has its own host behind the admins’ login, and no other router leads to it', () => {
    expect(routers['berth-dashboard']).toMatchObject({
      rule: 'Host(`traefik.berth.test`)',
      middlewares: ['svc-forward-auth-admin'],
    });
    expect(
      Object.entries(routers).flatMap(([name, r]) => (r.service === 'api@internal' ? [name] : [])),
    ).toEqual(['berth-dashboard']);
  });
});

describe('static configuration', () => {
  test('the entry points are 80 and 443; 8081 and the insecure API are closed', () => {
    // The third one is for Prometheus on this machine.
    const addresses = staticLines
      .filter((line) => /\baddress:/.test(line))
      .map((line) => line.trim());
    expect(addresses).toEqual(['address: ":80"', 'address: ":443"', 'address: "127.0.0.1:8084"']);
    expect(staticLines.filter((line) => /insecure|forwardedHeaders/.test(line))).toEqual([]);
    expect(staticText).not.toContain('8081');
  });
  test('both entry points delete headers whose names alias other headers', () => {
    const lines = staticLines.map((line) => line.trim());
    const addresses = lines.flatMap((line, at) => (line.startsWith('address: ":') ? [at] : []));
    expect(addresses.map((at) => lines.slice(at + 4, at + 6))).toEqual([
      ['http:', 'aliasHeadersStrategy: delete'],
      ['http:', 'aliasHeadersStrategy: delete'],
    ]);
  });
  test('both entry points pass paths and queries on, and idle connections end before those of applications', () => {
    const lines = staticLines.map((line) => line.trim());
    for (const line of ['sanitizePath: false', 'encodeQuerySemicolons: true'])
      expect(
        lines.filter((one) => one === line),
        line,
      ).toHaveLength(2);
    expect(lines[lines.indexOf('serversTransport:') + 2]).toBe('idleConnTimeout: 50ms');
  });
});
