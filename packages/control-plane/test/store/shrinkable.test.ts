/**
 * A SQLite file returns free space: a new file from the beginning, a file of an earlier version
 * after one VACUUM at a start.
 */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { expect, onTestFinished, test } from 'vitest';
import { openDatabase } from '../../src/store/engine/database.ts';
import { makeShrinkable } from '../../src/store/engine/shrinkable.ts';
import { NOW, quiet, tempDir } from './fixtures.ts';

const modeOf = (path: string): unknown => {
  const db = new Sqlite(path, { readonly: true });
  try {
    return db.pragma('auto_vacuum', { simple: true });
  } finally {
    db.close();
  }
};

/** Makes a file as an earlier version did. */
function oldFile(rows: number): { path: string; db: Sqlite.Database } {
  const path = join(tempDir(), 'berth.db');
  const db = new Sqlite(path);
  db.pragma('journal_mode = WAL');
  db.exec('create table kept (id integer primary key, text text)');
  const insert = db.prepare('insert into kept (text) values (?)');
  db.transaction(() => {
    for (let i = 0; i < rows; i++) insert.run('x'.repeat(1000));
  })();
  return { path, db };
}

test('a new file returns free space in small steps', async () => {
  const path = join(tempDir(), 'berth.db');
  const db = await openDatabase(`sqlite:${path}`, quiet, () => NOW);
  onTestFinished(() => db.close());
  expect(modeOf(path)).toBe(2);
  const fill = new Sqlite(path);
  fill.exec('create table filler (id integer primary key, text text)');
  const insert = fill.prepare('insert into filler (text) values (?)');
  fill.transaction(() => {
    for (let i = 0; i < 20_000; i++) insert.run('x'.repeat(1000));
  })();
  fill.exec('delete from filler');
  fill.close();
  const before = await db.capabilities.size(db.kysely);
  expect(before.free).toBeGreaterThan(15e6);
  let steps = 0;
  while (await db.capabilities.shrinkFile?.(db)) steps++;
  const after = await db.capabilities.size(db.kysely);
  expect(steps).toBeGreaterThan(50);
  expect(before.bytes - after.bytes).toBeGreaterThan(10e6);
  // Some free pages stay for the next writes.
  expect(after.free).toBeGreaterThan(1e6);
});

test('a file of an earlier version is vacuumed once and keeps its content', async () => {
  const { path, db: old } = oldFile(5_000);
  old.exec('delete from kept where id > 100');
  old.close();
  const size = statSync(path).size;
  expect(modeOf(path)).toBe(0);
  const said: string[] = [];
  const log = { ...quiet, info: (_fields: object, message: string) => void said.push(message) };
  await (await openDatabase(`sqlite:${path}`, log, () => NOW)).close();
  expect(modeOf(path)).toBe(2);
  expect(statSync(path).size).toBeLessThan(size / 4);
  expect(said.filter((line) => line.includes('file vacuumed once'))).toHaveLength(1);
  const read = new Sqlite(path, { readonly: true });
  onTestFinished(() => void read.close());
  expect(read.prepare('select count(*) from kept').pluck().get()).toBe(100);
  await (await openDatabase(`sqlite:${path}`, log, () => NOW)).close();
  expect(said.filter((line) => line.includes('file vacuumed once'))).toHaveLength(1);
});

test('a file with too much content stays unchanged, and the log says so', () => {
  const { path, db } = oldFile(5_000);
  onTestFinished(() => void db.close());
  const said: string[] = [];
  const say = (_fields: object, message: string): void => void said.push(message);
  makeShrinkable(db, path, say, 1_000_000);
  expect(said).toEqual([
    expect.stringMatching(/cannot shrink yet: it holds more than 1000000 bytes/),
  ]);
  expect(modeOf(path)).toBe(0);
  // After retention reduced the file, the next start vacuums it.
  db.exec('delete from kept where id > 100');
  makeShrinkable(db, path, say, 1_000_000);
  expect(modeOf(path)).toBe(2);
});
