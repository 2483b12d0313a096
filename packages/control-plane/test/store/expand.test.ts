/** Every step after the last one that all versions need only adds, or says that it contracts. */
import { CompiledQuery, Kysely } from 'kysely';
import { expect, test } from 'vitest';
import { SQLITE } from '../../src/store/engine/capabilities.ts';
import { isRequired, migrate, type Steps } from '../../src/store/engine/migrate.ts';
import { allMigrations } from '../../src/store/engine/migrations/all.ts';
import { openSqlite } from '../../src/store/engine/sqlite.ts';
import { NOW } from './fixtures.ts';

/**
 * Changes that an earlier version does not expect. A new column is fine if it may be null or has a
 * default.
 */
const BREAKS = [
  /\bdrop (table|column|index|trigger)\b/,
  /\brename\b/,
  /\balter column\b/,
  /\bcreate unique index\b/,
  /\bcreate trigger\b/,
];
const breaks = (sql: string): boolean =>
  BREAKS.some((pattern) => pattern.test(sql)) ||
  (/\badd column\b/.test(sql) && /\bnot null\b/.test(sql) && !/\bdefault\b/.test(sql));

async function breakingSteps(steps: Steps): Promise<string[]> {
  const found: string[] = [];
  let current = '';
  const { dialect } = openSqlite(':memory:', NOW);
  const db = new Kysely<unknown>({
    dialect,
    log: ({ query }) => void (breaks(query.sql) && current !== '' && found.push(current)),
  });
  const watched = Object.entries(steps).map(([name, step]) => [
    name,
    {
      ...step,
      async up(tx: Kysely<never>) {
        current = isRequired(name, step) ? '' : name;
        await step.up(tx);
        current = '';
      },
    },
  ]);
  await migrate(db, Object.fromEntries(watched) as Steps);
  await db.destroy();
  return [...new Set(found)];
}

test('steps that break an earlier version say so', async () => {
  expect(await breakingSteps(allMigrations(SQLITE))).toEqual([]);
});

test('the check finds a step that drops, renames or demands something', async () => {
  const step = (sql: string) => ({
    up: async (db: Kysely<unknown>) => void (await db.executeQuery(CompiledQuery.raw(sql))),
  });
  const more = {
    '9990_drops': step('alter table projects drop column watch_paths'),
    '9991_renames': step('alter table backups rename to copies'),
    '9992_demands': step('create unique index one_hook on hooks (forge)'),
    '9993_adds': step('alter table hooks add column note text'),
    '9994_contracts': { ...step('drop table deliveries'), contracts: true as const },
  };
  expect(await breakingSteps({ ...allMigrations(SQLITE), ...more })).toEqual([
    '9990_drops',
    '9991_renames',
    '9992_demands',
  ]);
});
