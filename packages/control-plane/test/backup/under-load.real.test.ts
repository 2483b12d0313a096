/**
 * Two backups of a real control plane under load, restored and compared. `npm run test:backup`
 * makes 100 on each engine.
 */
import { expect, test } from 'vitest';
import { backupRounds } from './load/rounds.ts';

test('backups under load restore to one moment each', { timeout: 300_000 }, async () => {
  const { problems, failures, writes, unchanged } = await backupRounds({
    rounds: 2,
    postgres: null,
  });
  expect({ problems, failures }).toEqual({ problems: [], failures: [] });
  expect(Math.min(writes, unchanged)).toBeGreaterThan(20);
});
