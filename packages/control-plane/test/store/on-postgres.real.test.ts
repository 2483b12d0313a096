/**
 * Runs the tests of the stores and the random lifecycles on a real PostgreSQL: the same files with
 * another engine. Tests of SQLite files (open.slow.test.ts, lock, query plans) are left out; tests of
 * PostgreSQL only are in postgres.real.test.ts.
 */
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { Client } from 'pg';
import { afterAll, describe, onTestFinished } from 'vitest';
import { emptiedDatabases } from './emptied-databases.ts';
import { type TestEngine, useEngine } from './fixtures.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());

/** Lends a migrated database to each path. */
async function databases(pg: NonNullable<typeof server>): Promise<TestEngine> {
  const emptied = await emptiedDatabases(pg);
  const urls = new Map<string, string>();
  let made = 0;
  const query = async (path: string, sql: string): Promise<unknown[][]> => {
    const client = new Client({ connectionString: urls.get(path) });
    await client.connect();
    try {
      return (await client.query<unknown[]>({ text: sql, rowMode: 'array' })).rows;
    } finally {
      await client.end();
    }
  };
  return {
    async emptyUrl(path) {
      const url = await pg.createDatabase(`t${made++}`);
      urls.set(path, url);
      return url;
    },
    async url(path) {
      const known = urls.get(path);
      if (known !== undefined) return known;
      const url = await emptied.borrow();
      if (path !== ':memory:') urls.set(path, url);
      // Runs after the stores are closed, which `open` registers later.
      onTestFinished(() => emptied.giveBack(url));
      return url;
    },
    runs: (many) => Math.ceil(many / 5),
    run: query,
    async rows(path, table) {
      const [[rows = []] = []] = await query(
        path,
        `select coalesce(json_agg(t), '[]') from (select * from ${table} order by 1, 2) t`,
      );
      return rows as Record<string, unknown>[];
    },
  };
}

describe.skipIf(server === undefined)(
  `on PostgreSQL${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  async () => {
    if (server === undefined) return;
    useEngine(await databases(server));
    await import('./api-access.test.ts');
    await import('./clean-ups.test.ts');
    await import('./commit-plan.test.ts');
    await import('./commit-statuses.test.ts');
    await import('./data-copies.test.ts');
    await import('./dataset-history.slow.test.ts');
    await import('./dataset-pruning.slow.test.ts');
    await import('./dataset-scans.slow.test.ts');
    await import('./datasets.slow.test.ts');
    await import('./deployments.test.ts');
    await import('./device-flow.test.ts');
    await import('./domains.test.ts');
    await import('./ended-work.test.ts');
    await import('./events.test.ts');
    await import('./git-hosts.slow.test.ts');
    await import('./invariants.slow.test.ts');
    await import('./idempotency-answers.slow.test.ts');
    await import('./logs.slow.test.ts');
    await import('./migration-data.test.ts');
    await import('./migration-record.test.ts');
    await import('./nested-writers.test.ts');
    await import('./nodes.slow.test.ts');
    await import('./projects.test.ts');
    await import('./renamed-machine.test.ts');
    await import('./repository-looks.test.ts');
    await import('./retention.slow.test.ts');
    await import('./room.test.ts');
    await import('./run-devices.test.ts');
    await import('./syncs.test.ts');
    await import('./tasks.test.ts');
    await import('./users.test.ts');
    await import('../flow/lifecycle.property.slow.test.ts');
  },
);
