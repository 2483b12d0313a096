/**
 * Every path that the sources of the dashboard request reaches its process through the shipped
 * proxy files.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROUTES } from '@berth/wire/routes';
import { shippedRules } from './shipped-rules.ts';

const SRC = join(import.meta.dirname, '../packages/dashboard/src');
const SOURCES = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((file) => /\.tsx?$/.test(file))
  .map((file) => [file, readFileSync(join(SRC, file), 'utf8')] as const);
const filled = (path: string): string =>
  path.replaceAll(/[:$]\w+/g, 'x').replaceAll(/\$\{[^}]*\}/g, 'x');

/** Names of the routes that the sources request. */
const REQUESTS =
  /\b(?:useApiQuery|useApiQueryWithTag|useApiList|useApiMutation|call|exchange|apiQuery)(?:<\w+>)?\(\s*'(\w+)'/g;
const routes = new Set(
  SOURCES.flatMap(([, text]) => [...text.matchAll(REQUESTS)].map(([, name = '']) => name)),
);
/**
 * Literal paths: of requests, links and pages. A path of the dashboard itself is a page, and must
 * reach the control plane too.
 */
const literals = new Set(
  SOURCES.flatMap(([, text]) =>
    [...text.matchAll(/(?:fetch|useLogStream|href=|to=|to:|at|path)[({ ]*['"`](\/[^'"`?#]*)/g)].map(
      ([, path = '']) => path,
    ),
  ),
);

describe('paths that the dashboard requests', async () => {
  const rules = await shippedRules();

  it('the list has the routes, the streams and the pages', () => {
    expect(routes.size).toBeGreaterThan(50);
    expect([...literals]).toEqual(
      expect.arrayContaining(['/api/events', '/projects/$name/$tab', '/system']),
    );
  });

  it.each(rules)('$file leads each of them to the control plane', ({ toControlPlane }) => {
    const paths = [
      ...[...routes].map((name) => ROUTES[name as keyof typeof ROUTES].path),
      ...literals,
    ].map(filled);
    const lost = paths.filter((path) => !path.startsWith('/_oauth/') && !toControlPlane(path));
    expect(lost).toEqual([]);
  });

  it.each(rules)(
    '$file leads the login to the gateway, and internal pages nowhere',
    ({ serviceOf }) => {
      expect(['/_oauth/login', '/_oauth/devices'].map(serviceOf)).toEqual(['gateway', 'gateway']);
      const internal = [
        '/readyz',
        '/healthz',
        '/metrics',
        '/verify',
        '/api/agent/tasks',
        '/api/internal/policy',
        '/api/traefik/config',
      ];
      expect(internal.filter((path) => serviceOf(path) !== null)).toEqual([]);
      // Traefik passes paths on as they are, so none may reach a service in another spelling.
      const spelled = internal.flatMap((path) => [
        `/${path}`,
        `/.${path}`,
        `/x/..${path}`,
        `/docs/..${path}`,
        path.replace(/(?<=.)\//, '//'),
      ]);
      expect(
        spelled.filter((path) => !internal.includes(path) && serviceOf(path) !== null),
      ).toEqual([]);
    },
  );
});
