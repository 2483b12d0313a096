/**
 * Runs the tests of the stores and the random lifecycles on a real PostgreSQL: the same files with another engine. Tests of SQLite files
 * (open.test.ts, lock, query plans) are left out; tests of PostgreSQL only are in postgres.real.test.ts.
 */
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { afterAll, describe } from 'vitest';
import { openStores } from '../../src/store/open.ts';
import { quiet, type TestEngine, useEngine } from './fixtures.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());

/** Makes a database for each path, as a copy of a migrated one. */
async function databases(pg: NonNullable<typeof server>): Promise<TestEngine> {
  await (await openStores({ databaseUrl: await pg.createDatabase('ready'), log: quiet })).close();
  const names = new Map<string, string>();
  let made = 0;
  return {
    emptyUrl(path) {
      names.set(path, `t${made}`);
      return pg.createDatabase(`t${made++}`);
    },
    async url(path) {
      const known = names.get(path);
      if (known !== undefined) return pg.url(known);
      const name = `t${made++}`;
      if (path !== ':memory:') names.set(path, name);
      return pg.createDatabase(name, 'ready');
    },
    runs: (many) => Math.ceil(many / 5),
    run: (path, sql) => pg.query(sql, names.get(path)),
    async rows(path, table) {
      const text = await pg.query(`select coalesce(json_agg(t), '[]') from (select * from ${table} order by 1, 2) t`, names.get(path));
      return JSON.parse(text) as Record<string, unknown>[];
    },
  };
}

describe.skipIf(server === undefined)(`on PostgreSQL${reason === undefined ? '' : ` (skipped: ${reason})`}`, async () => {
  if (server === undefined) return;
  useEngine(await databases(server));
  await import('./api-access.test.ts');
  await import('./commit-plan.test.ts');
  await import('./dataset-history.test.ts');
  await import('./dataset-pruning.test.ts');
  await import('./dataset-scans.test.ts');
  await import('./datasets.test.ts');
  await import('./deployments.test.ts');
  await import('./device-flow.test.ts');
  await import('./ended-work.test.ts');
  await import('./events.test.ts');
  await import('./git-hosts.test.ts');
  await import('./invariants.test.ts');
  await import('./idempotency-answers.test.ts');
  await import('./logs.test.ts');
  await import('./migration-data.test.ts');
  await import('./migration-record.test.ts');
  await import('./nested-writers.test.ts');
  await import('./nodes.test.ts');
  await import('./projects.test.ts');
  await import('./renamed-machine.test.ts');
  await import('./retention.test.ts');
  await import('./syncs.test.ts');
  await import('./tasks.test.ts');
  await import('./users.test.ts');
  await import('../flow/lifecycle.property.test.ts');
});
