/** The field `scope` of the route table agrees with the path and the query of each route. */
import { expect, test } from 'vitest';
import { Type } from 'typebox';
import type { Route, RouteScope } from '../src/route.ts';
import { ROUTES } from '../src/routes.ts';
import { ROLES } from '../src/vocabulary.ts';

const rows: Route[] = Object.values(ROUTES);
const isPersons = ({ who }: Route): boolean => (ROLES as readonly string[]).includes(who);
const named = (scopes: RouteScope[], wanted: (row: Route) => boolean): string[] =>
  rows
    .filter((row) => isPersons(row) && scopes.includes(row.scope) !== wanted(row))
    .map((row) => `${row.method} ${row.path}: ${row.scope}`);
const filters = ({ query }: Route): boolean =>
  query !== undefined && Type.IsObject(query) && Object.hasOwn(query.properties, 'project_id');

test('a route without a role has the scope none', () => {
  expect(
    rows.filter((row) => !isPersons(row) && row.scope !== 'none').map(({ path }) => path),
  ).toEqual([]);
});

test('a route below a project has the scope project, and no other route has it', () => {
  expect(named(['project'], ({ path }) => path.startsWith('/api/projects/:id'))).toEqual([]);
});

test('a route below a deployment has the scope deployment, and no other route has it', () => {
  expect(named(['deployment'], ({ path }) => path.startsWith('/api/deployments/:id'))).toEqual([]);
});

test('a route with the filter project_id has the scope query or list', () => {
  expect(
    rows
      .filter((row) => filters(row) && !['query', 'list'].includes(row.scope))
      .map(({ path }) => path),
  ).toEqual([]);
  expect(
    rows.filter((row) => row.scope === 'query' && !filters(row)).map(({ path }) => path),
  ).toEqual([]);
});
