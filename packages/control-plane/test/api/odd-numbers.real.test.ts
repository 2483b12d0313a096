/**
 * Invented numbers and cursors (correctness review 24) never get a 500, on PostgreSQL and on
 * SQLite.
 */
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { type Route } from '@berth/wire/route';
import { ROUTES, type RouteName } from '@berth/wire/routes';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Api, createApi, createProject, deploy, rulesOf } from './harness.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());

const cursorOf = (...key: unknown[]): string =>
  Buffer.from(JSON.stringify(key)).toString('base64url');

describe.each([
  ['SQLite', true],
  ['PostgreSQL', server !== undefined],
] as const)('%s', (engine, isThere) => {
  describe.skipIf(!isThere)(isThere ? 'answers' : `skipped: ${reason}`, () => {
    let api: Api;
    let deployment = '';
    beforeAll(async () => {
      const databaseUrl = engine === 'SQLite' ? undefined : await server?.createDatabase('odd');
      api = await createApi(databaseUrl === undefined ? {} : { databaseUrl });
      deployment = await deploy(api, await createProject(api));
    });
    afterAll(() => api?.close());

    test.each([2_147_483_648, 3_000_000_000, Number.MAX_SAFE_INTEGER])(
      'nothing follows log line %d',
      async (after) => {
        const reply = await api.call('deploymentLogs', {
          params: { id: deployment },
          query: { after },
        });
        expect([reply.status, reply.json]).toEqual([200, { lines: [], next: after }]);
      },
    );
    test('a line number beyond the safe integers gets 422', async () => {
      const reply = await api.call('deploymentLogs', {
        params: { id: deployment },
        query: { after: '9007199254740993' },
      });
      expect([reply.status, ...rulesOf(reply)]).toEqual([422, 'after:maximum']);
    });
    test('Last-Event-ID beyond the last line ends the stream of a settled deployment', async () => {
      await api.call('cancelDeployment', { params: { id: deployment } });
      const reply = await api.call('deploymentLogs', {
        params: { id: deployment },
        headers: { accept: 'text/event-stream', 'last-event-id': '999999999999999' },
      });
      expect([reply.status, reply.text.includes('event: end')]).toEqual([200, true]);
    });
    test.each([
      [1e300, 'x'],
      [1.5, 'x'],
      [-1, 'x'],
      [0, 'a\u0000b'],
      [0, '\ud800'],
      [Number.MAX_SAFE_INTEGER, 'x'],
    ])('a cursor of %d and %j is one that no page gave, or an empty page', async (number, text) => {
      for (const name of ['listDeployments', 'listTokens', 'listDeviceTokens'] as const) {
        const reply = await api.call(name, { query: { cursor: cursorOf(number, text) } });
        expect([name, reply.status]).toEqual([name, reply.status === 200 ? 200 : 422]);
      }
      for (const name of ['listProjects', 'listDatasets', 'listUsers'] as const) {
        const reply = await api.call(name, { query: { cursor: cursorOf(text) } });
        expect([name, reply.status]).toEqual([name, reply.status === 200 ? 200 : 422]);
      }
      expect(
        (await api.call('listNodes', { query: { cursor: cursorOf(text, text) } })).status,
      ).not.toBe(500);
      expect(
        (await api.call('audit', { query: { cursor: cursorOf(number, number) } })).status,
      ).not.toBe(500);
      expect((await api.call('audit', { query: { cursor: cursorOf(0, number) } })).status).not.toBe(
        500,
      );
    });
    test('a NUL in the query or the path of any route gets 404 or 422, never 500', async () => {
      for (const [name, row] of Object.entries(ROUTES) as [RouteName, Route][]) {
        if (row.method !== 'GET' || row.who !== 'viewer') continue;
        const fields = (schema: object = {}): string[] =>
          'properties' in schema ? Object.keys(schema.properties ?? {}) : [];
        const good = Object.fromEntries(fields(row.params).map((field) => [field, deployment]));
        for (const field of fields(row.query)) {
          const reply = await api.call(name, { params: good, query: { [field]: 'a\u0000b' } });
          expect([name, field, [404, 422]]).toEqual([
            name,
            field,
            expect.arrayContaining([reply.status]),
          ]);
        }
        for (const field of fields(row.params)) {
          const reply = await api.call(name, { params: { ...good, [field]: 'a\u0000b' } });
          expect([name, field, [404, 422]]).toEqual([
            name,
            field,
            expect.arrayContaining([reply.status]),
          ]);
        }
      }
      for (const [name, field] of [
        ['listProjects', 'find'],
        ['listProjects', 'name'],
        ['listDeployments', 'ids'],
      ] as const) {
        const reply = await api.call(name, { query: { [field]: 'a\u0000b' } });
        expect([name, reply.status, ...rulesOf(reply)]).toEqual([
          name,
          422,
          field === 'ids' ? 'ids:pattern' : `${field}:no_nul`,
        ]);
      }
    });
    test('a NUL in a filter gets no 500', async () => {
      for (const query of [{ user: 'a\u0000@b' }, { action: '\u0000' }])
        expect((await api.call('audit', { query })).status).toBeLessThan(500);
      expect(
        (await api.call('listDeviceTokens', { query: { email: 'a\u0000@b.c' } })).status,
      ).toBeLessThan(500);
    });
  });
});
