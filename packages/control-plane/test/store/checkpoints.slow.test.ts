import { existsSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { waitFor } from '@berth/testbed/wait';
import Sqlite from 'better-sqlite3';
import { sql } from 'kysely';
import { expect, onTestFinished, test, vi } from 'vitest';
import { createCheckpoints } from '../../src/store/engine/checkpoints.ts';
import { openDatabase } from '../../src/store/engine/database.ts';
import { freshPath, NOW, quiet } from './fixtures.ts';

type Lengths = { busy: number; log: number; checkpointed: number };

test('checkpoints copy commits from the WAL into the database, and the WAL stays bounded', async () => {
  const path = freshPath();
  const db = await openDatabase(`sqlite:${path}`, quiet, () => NOW);
  const reader = new Sqlite(path, { readonly: true });
  const lengths = (): Lengths => (reader.pragma('wal_checkpoint(NOOP)') as [Lengths])[0];
  // 5 MB: too little for an automatic checkpoint by SQLite itself.
  const write = (key: string): Promise<unknown> =>
    db.writeOne((kysely) =>
      sql`insert into meta (key, value) values (${key}, hex(zeroblob(1000000)))`.execute(kysely),
    );
  for (let i = 0; i < 5; i++) await write(`first ${i}`);
  const { log } = lengths();
  expect(log).toBeGreaterThan(2_000);
  await waitFor('the WAL is checkpointed', async () => {
    await write(`more ${performance.now()}`);
    return lengths().checkpointed >= log || lengths().log < log;
  });
  reader.close();
  await db.close();
  // The last connection removes the WAL: the thread closed its own before.
  expect(existsSync(`${path}-wal`)).toBe(false);
});

test('the WAL starts again under a writer without a pause, before a commit has to checkpoint', async () => {
  const path = freshPath();
  const db = await openDatabase(`sqlite:${path}`, quiet, () => NOW);
  const reader = new Sqlite(path, { readonly: true });
  onTestFinished(async () => {
    reader.close();
    await db.close();
  });
  const pages = (): number => (reader.pragma('wal_checkpoint(NOOP)') as [Lengths])[0].log;
  let longest = 0;
  // Each commit is on the disk before the next one begins, so the writer cannot outrun the thread
  // by far.
  for (let written = 0, log = 0; log >= longest; written++) {
    longest = log;
    await db.writeOne((kysely) =>
      sql`insert into meta (key, value) values (${`line ${written}`}, hex(zeroblob(25000)))`.execute(
        kysely,
      ),
    );
    await setImmediate();
    log = pages();
  }
  // AUTOCHECKPOINT_PAGES of checkpoints.ts: at this length a commit copies the WAL into the
  // database and blocks the process.
  expect(longest).toBeLessThan(16_000);
}, 60_000);

test('a reader that needs the WAL does not make writers wait at each checkpoint', async () => {
  const path = freshPath();
  const [database, reader] = [new Sqlite(path), new Sqlite(path)];
  database.pragma('journal_mode = WAL');
  database.exec('create table lines (text)');
  const checkpoints = createCheckpoints(database, path, (problem) => expect.unreachable(problem));
  let now = performance.now();
  const clock = vi.spyOn(performance, 'now');
  onTestFinished(async () => {
    clock.mockRestore();
    await checkpoints.close();
    reader.close();
    database.close();
  });
  const waits = async (seconds: number): Promise<boolean> => {
    clock.mockReturnValue((now += seconds * 1_000));
    const wait = checkpoints.startIfDue();
    await wait;
    await setImmediate();
    return wait !== null;
  };
  /** The checkpoint before may still run. */
  const untilWriterWaits = async (seconds: number): Promise<void> => {
    while (!(await waits(seconds))) await setImmediate();
  };
  reader.exec('begin');
  reader.prepare('select count(*) from lines').get();
  database.prepare('insert into lines values (zeroblob(36000000))').run();
  expect(await waits(1)).toBe(true);
  expect([await waits(1), await waits(1), await waits(1)]).toEqual([false, false, false]);
  await untilWriterWaits(5);
  reader.exec('commit');
  await untilWriterWaits(6);
  // The next write starts the WAL again, and nobody waits any more.
  database.prepare('insert into lines values (zeroblob(1))').run();
  expect([await waits(1), await waits(6)]).toEqual([false, false]);
});

test('a failed checkpoint is reported and stops nothing', async () => {
  const path = freshPath();
  const database = new Sqlite(path);
  onTestFinished(() => void database.close());
  database.pragma('journal_mode = WAL');
  database.exec('create table lines (text)');
  const problems: string[] = [];
  // The file that the thread opens does not exist.
  const checkpoints = createCheckpoints(database, `${path}-elsewhere`, (problem) =>
    problems.push(problem),
  );
  database.prepare('insert into lines values (zeroblob(5000000))').run();
  void checkpoints.startIfDue();
  await waitFor('the failure is reported', () => problems.length > 0);
  expect(problems).toEqual([expect.stringContaining('unable to open database file')]);
  database.prepare('insert into lines values (zeroblob(1))').run();
  void checkpoints.startIfDue();
  await checkpoints.close();
  expect(problems).toHaveLength(1);
});
