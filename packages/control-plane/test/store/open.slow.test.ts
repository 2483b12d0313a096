import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join, relative } from 'node:path';
import Sqlite from 'better-sqlite3';
import { type Kysely, sql } from 'kysely';
import { expect, onTestFinished, test } from 'vitest';
import { SQLITE } from '../../src/store/engine/capabilities.ts';
import { openDatabase } from '../../src/store/engine/database.ts';
import { StoreError } from '../../src/store/engine/errors.ts';
import { migrate } from '../../src/store/engine/migrate.ts';
import { allMigrations } from '../../src/store/engine/migrations/all.ts';
import { openStores } from '../../src/store/open.ts';
import { assertSqliteVersion, openSqlite } from '../../src/store/engine/sqlite.ts';
import { NOW, nodeIn, open, planFor, projectIn, quiet, tempDir } from './fixtures.ts';

async function refusal(run: () => unknown): Promise<StoreError> {
  try {
    await run();
  } catch (error) {
    if (error instanceof StoreError) return error;
    throw error;
  }
  throw new Error('it was not refused');
}

test('creates a private folder and file, with settings that make commits durable', async () => {
  const path = join(tempDir(), 'a', 'b', 'berth.db');
  await open(path);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(statSync(`${path}-wal`).mode & 0o777).toBe(0o600);
  const db = await openDatabase(`sqlite:${join(tempDir(), 'x.db')}`, quiet, () => NOW);
  onTestFinished(() => db.close());
  const pragma = async (name: string): Promise<unknown> =>
    Object.values(
      (await sql.raw<Record<string, unknown>>(`pragma ${name}`).execute(db.kysely)).rows[0] ?? {},
    )[0];
  expect(await pragma('journal_mode')).toBe('wal');
  expect(await pragma('synchronous')).toBe(2);
  expect(await pragma('foreign_keys')).toBe(1);
  expect(await pragma('integrity_check')).toBe('ok');
});

test('data survives a restart, and a path may be relative, a symlink or memory', async () => {
  const dir = tempDir();
  const path = join(dir, 'berth.db');
  const first = await open(path);
  const project = await projectIn(first);
  await first.close();
  const second = await openStores({
    databaseUrl: `sqlite:${relative(process.cwd(), path)}`,
    log: quiet,
  });
  onTestFinished(() => second.close());
  expect(await second.projects.get(project.id)).toEqual(project);
  symlinkSync(path, join(dir, 'link.db'));
  expect((await refusal(() => open(join(dir, 'link.db')))).code).toBe('held');
  const [one, two] = [
    await openStores({ databaseUrl: 'sqlite::memory:', log: quiet }),
    await openStores({ databaseUrl: 'sqlite::memory:', log: quiet }),
  ];
  await projectIn(one);
  expect((await two.projects.list({ limit: 1, cursor: null })).items).toEqual([]);
  await one.close();
  await two.close();
});

test.each([
  ['postgres://u:secret@h:port/db', /not a URL; use postgres:/],
  ['postgresql://u:secret@[h/db', /not a URL; use postgres:/],
  ['mysql://u:secret@h/db', /"mysql:…" is not known/],
  ['sqlite:', /"sqlite:…" is not known/],
  ['data/berth.db', /is not known/],
])('the error for %s contains no password', async (databaseUrl, message) => {
  const error = await refusal(() => openStores({ databaseUrl, log: quiet }));
  expect(error.code).toBe('unsupported_url');
  expect(error.message).toMatch(message);
  expect(error.message).not.toContain('secret');
});

test('a SQLite version that can corrupt a WAL is refused before WAL is enabled', async () => {
  for (const version of ['3.51.3', '3.51.10', '3.52.0', '4.0.0']) assertSqliteVersion(version);
  for (const version of ['3.51.2', '3.50.99', '3.9.9', '2.99.99', '3.51', 'x'])
    expect(() => assertSqliteVersion(version)).toThrow(StoreError);
  const path = join(tempDir(), 'berth.db');
  const error = await refusal(() => openSqlite(path, NOW, { versionOf: () => '3.45.1' }));
  expect(error).toMatchObject({
    code: 'engine_too_old',
    message: expect.stringContaining('SQLite 3.45.1'),
  });
  expect(statSync(path).size).toBe(0);
  // The lock was released.
  await open(path);
});

test('a file that is not a database, a folder that is a file and a read-only folder fail with cannot_open', async () => {
  const dir = tempDir();
  writeFileSync(
    join(dir, 'text.db'),
    'this is no database, but long enough to look like something that could be one',
  );
  writeFileSync(join(dir, 'file'), '');
  mkdirSync(join(dir, 'folder.db'));
  for (const path of [
    join(dir, 'text.db'),
    join(dir, 'file', 'berth.db'),
    join(dir, 'folder.db'),
  ]) {
    const error = await refusal(() => open(path));
    expect(error.code).toBe('cannot_open');
    expect(error.message).toContain(path);
  }
  if (process.getuid?.() !== 0) {
    mkdirSync(join(dir, 'locked'));
    chmodSync(join(dir, 'locked'), 0o500);
    expect((await refusal(() => open(join(dir, 'locked', 'berth.db')))).code).toBe('cannot_open');
  }
});

test('a second control plane is refused with the name of the holder; readers are not blocked', async () => {
  const path = join(tempDir(), 'berth.db');
  const stores = await open(path);
  const project = await projectIn(stores);
  const error = await refusal(() => open(path));
  expect(error.code).toBe('held');
  expect(error.message).toContain(`pid ${process.pid} on `);
  expect(error.message).toContain(`since ${new Date(NOW).toISOString()}`);
  // The refused process removed nothing.
  expect((await refusal(() => open(path))).code).toBe('held');
  await stores.projects.patch(project.id, { branch: 'next' }, NOW);

  const reader = new Sqlite(path, { readonly: true });
  onTestFinished(() => void reader.close());
  expect(reader.prepare('select branch from projects').pluck().all()).toEqual(['next']);
  await reader.backup(`${path}.copy`);
  await stores.projects.patch(project.id, { branch: 'later' }, NOW);
  await stores.close();
  expect(existsSync(`${path}.lock.json`)).toBe(false);
  const next = await open(path);
  expect((await next.projects.get(project.id)).branch).toBe('later');
  const copy = await open(`${path}.copy`);
  expect((await copy.projects.get(project.id)).branch).toBe('next');
});

test('a second control plane is refused even if the holder is unknown', async () => {
  const path = join(tempDir(), 'berth.db');
  await open(path);
  writeFileSync(`${path}.lock.json`, '{"pid":');
  expect((await refusal(() => open(path))).message).toContain('its pid is unknown');
});

test('a write waits for another program’s lock, and reads continue meanwhile', async () => {
  const path = join(tempDir(), 'berth.db');
  const stores = await open(path);
  const project = await projectIn(stores);
  const shell = new Sqlite(path);
  onTestFinished(() => void shell.close());
  shell.exec('begin immediate');
  let done = false;
  const write = stores.projects
    .patch(project.id, { branch: 'next' }, NOW)
    .finally(() => (done = true));
  const one = stores.tasks
    .claim('nobody', { token: 'x', expires_at: 1 }, NOW, 1)
    .catch((e: unknown) => e);
  const node = nodeIn(stores);
  const began = Date.now();
  let reads = 0;
  while (Date.now() - began < 300) {
    expect((await stores.flow.facts(project.id)).project.branch).toBe('main');
    expect(await stores.routes.all()).toEqual([]);
    reads++;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  expect(done).toBe(false);
  expect(reads).toBeGreaterThan(3);
  shell.exec('rollback');
  expect((await write).branch).toBe('next');
  expect((await node).hostname).toBe('b1');
  expect(await one).toMatchObject({ code: 'not_found' });
});

test('migrations run on an empty database, are not repeated, and a newer database is refused', async () => {
  const path = join(tempDir(), 'berth.db');
  const said: unknown[] = [];
  const log = { ...quiet, info: (fields: object) => void said.push(fields) };
  for (let i = 0; i < 2; i++)
    await (await openStores({ databaseUrl: `sqlite:${path}`, log })).close();
  expect(said).toEqual([{ database: path, migrations: Object.keys(allMigrations(SQLITE)) }]);

  const raw = new Sqlite(path);
  raw.prepare("insert into berth_migrations (name, timestamp) values ('9999_tomorrow', '')").run();
  raw.close();
  const before = readFileSync(path);
  const error = await refusal(() => open(path));
  expect(error.code).toBe('newer_database');
  expect(error.message).toContain('9999_tomorrow');
  expect(readFileSync(path).equals(before)).toBe(true);
  // The lock was released, so the newer version can start.
  expect((await refusal(() => open(path))).code).toBe('newer_database');
});

test('a failed migration leaves the tables unchanged', async () => {
  const db = await openDatabase('sqlite::memory:', quiet, () => NOW);
  onTestFinished(() => db.close());
  const kysely = db.kysely as Kysely<unknown>;
  const tables = async (): Promise<string[]> =>
    (await kysely.introspection.getTables()).map((t) => t.name);
  const before = await tables();
  const half = {
    ...allMigrations(SQLITE),
    '0998_fine': {
      up: (tx: Kysely<unknown>) => tx.schema.createTable('fine').addColumn('id', 'text').execute(),
    },
    '0999_half': {
      async up(tx: Kysely<unknown>) {
        await tx.schema.createTable('half').addColumn('id', 'text').execute();
        throw new Error('power cut');
      },
    },
  };
  const error = await refusal(() => migrate(kysely, half));
  expect(error).toMatchObject({
    code: 'migration_failed',
    message: expect.stringMatching(/0999_half.*power cut/),
  });
  expect(await tables()).toEqual(before);
  expect(await migrate(kysely, allMigrations(SQLITE))).toEqual([]);
});

test('a closed database stays closed', async () => {
  const stores = await open();
  await stores.close();
  await stores.close();
  await expect(stores.ping()).rejects.toThrow();
  await expect(stores.flow.commit(planFor({ id: 'x', flow_version: 0 }))).rejects.toThrow();
});
