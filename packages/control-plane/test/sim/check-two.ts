/** Checks seeded runs with two control planes on a real PostgreSQL like those on SQLite. */
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { afterAll, describe, expect, it } from 'vitest';
import { onPostgres } from './on-postgres.ts';
import { keepHistory, report } from './report.ts';
import { run } from './run.ts';

const AT_ONCE = 3;

export async function checkTwo(seeds: readonly number[]): Promise<void> {
  const reason = whyNoPostgres();
  const server = reason === undefined ? await startPostgres() : undefined;
  afterAll(() => server?.stop());

  describe.skipIf(server === undefined)(
    `on PostgreSQL${reason === undefined ? '' : ` (skipped: ${reason})`}`,
    async () => {
      if (server === undefined) return;
      const database = await onPostgres(server);
      const broken = async (some: readonly number[]): Promise<string[]> => {
        const results = await Promise.all(some.map((seed) => run({ seed, database })));
        return results
          .filter((result) => result.violations.length > 0)
          .map(
            (result) => `${report(result, ' --postgres')}\n  its history: ${keepHistory(result)}`,
          );
      };

      it(`none of the seeds ${seeds.join(', ')} breaks an invariant with two control planes`, {
        timeout: 300_000,
      }, async () => {
        for (let i = 0; i < seeds.length; i += AT_ONCE)
          expect(await broken(seeds.slice(i, i + AT_ONCE))).toEqual([]);
      });
    },
  );
}
