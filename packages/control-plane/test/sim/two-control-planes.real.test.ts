/** Seeded runs with two control planes on a real PostgreSQL, checked like those on SQLite. More: `npm run sim -- --postgres`. */
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { afterAll, describe, expect, it } from 'vitest';
import { onPostgres } from './on-postgres.ts';
import { keepHistory, report } from './report.ts';
import { run } from './run.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());
const SEEDS = [1, 2, 3, 4, 5, 6];
const AT_ONCE = 3;

describe.skipIf(server === undefined)(`on PostgreSQL${reason === undefined ? '' : ` (skipped: ${reason})`}`, async () => {
  if (server === undefined) return;
  const database = await onPostgres(server);
  const broken = async (seeds: readonly number[]): Promise<string[]> => {
    const results = await Promise.all(seeds.map((seed) => run({ seed, database })));
    return results
      .filter((result) => result.violations.length > 0)
      .map((result) => `${report(result, ' --postgres')}\n  its history: ${keepHistory(result)}`);
  };

  it('no seed breaks an invariant with two control planes', { timeout: 300_000 }, async () => {
    for (let i = 0; i < SEEDS.length; i += AT_ONCE) expect(await broken(SEEDS.slice(i, i + AT_ONCE))).toEqual([]);
  });
});
