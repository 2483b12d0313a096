/**
 * `bin/berth backup`, `verify` and `restore` as an operator runs them, on both engines, and the
 * process of the schedule.
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { programsRoot } from '@berth/testbed/config';
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { run } from '@berth/testbed/process';
import { afterAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { runScheduled } from '../../src/backup/process.ts';
import { ENV } from '../api/harness.ts';
import { controlPlane, everything, fill, folders } from './support.ts';

const reason = whyNoPostgres();
const server = reason === undefined ? await startPostgres() : undefined;
afterAll(() => server?.stop());

const env = (databaseUrl: string, more: Record<string, string> = {}) => ({
  PATH: process.env['PATH'] ?? '',
  DATABASE_URL: databaseUrl,
  BASE_DOMAIN: ENV.BASE_DOMAIN,
  SECRETS_KEY: ENV.SECRETS_KEY,
  ...more,
});
async function berth(args: string[], databaseUrl: string, more: Record<string, string> = {}) {
  const argv = [process.execPath, join(programsRoot(), 'bin', 'berth'), ...args] as const;
  return run(argv, { env: env(databaseUrl, more), mayFail: true });
}

let databases = 0;
const ENGINES: [string, (dir: string) => string | Promise<string>][] = [
  ['SQLite', (dir) => `sqlite:${join(dir, 'berth.db')}`],
  ...(server === undefined
    ? []
    : ([['PostgreSQL', () => server.createDatabase(`backup${databases++}`)]] as [
        string,
        () => Promise<string>,
      ][])),
];

describe.each(ENGINES)('on %s', (engine, urlIn) => {
  test('a backup of a running control plane restores to the same answers of every route', async () => {
    const { dir, backups } = folders();
    const state = { STATE_DIR: join(dir, 'state') };
    const databaseUrl = await urlIn(dir);
    const api = await controlPlane(databaseUrl);
    await fill(api);
    const before = await everything(api);
    const made = await berth(['backup', '--to', backups], databaseUrl, state);
    expect([made.code, made.stderr]).toEqual([0, '']);
    const at = made.stdout.split('\n')[0] ?? '';
    expect(readdirSync(backups).map((name) => join(backups, name))).toEqual([at]);

    const good = await berth(['backup', 'verify', at], databaseUrl, state);
    expect([good.code, good.stderr]).toEqual([0, '']);
    expect(good.stdout).toContain(
      'good: the key from SECRETS_KEY opens the secrets (project keys: 2)',
    );
    const wrong = await berth(['backup', 'verify', at], databaseUrl, {
      ...state,
      SECRETS_KEY: Buffer.alloc(32, 9).toString('base64'),
    });
    expect([wrong.code, wrong.stdout]).toEqual([1, '']);
    expect(wrong.stderr).toMatch(
      /^berth backup: the secrets of the backup need the key with the id [0-9a-f]{16}/,
    );
    expect(await scratchDatabases()).toBe('0');

    const refused = await berth(['restore', at], databaseUrl, state);
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringContaining('restore works only into an empty place'),
    ]);
    await api.close();
    const place = folders();
    const placeUrl = await urlIn(place.dir);
    const restored = await berth(['restore', at], placeUrl, {
      STATE_DIR: join(place.dir, 'state'),
    });
    expect([restored.code, restored.stderr]).toEqual([0, '']);
    const after = await controlPlane(placeUrl);
    expect(await everything(after)).toEqual(before);
  });

  test('the process of the schedule writes a backup and the record; it deletes only what the rule does not keep', async () => {
    const { dir, backups } = folders();
    const databaseUrl = await urlIn(dir);
    const api = await controlPlane(databaseUrl);
    const more = { BACKUP_TO: backups, BACKUP_KEEP: '1h', STATE_DIR: join(dir, 'state') };
    const never = new AbortController().signal;
    const first = await runScheduled(env(databaseUrl, more), never);
    // Names tell backups apart by seconds.
    const after = Math.floor(Date.now() / 1000);
    await vi.waitFor(() => expect(Math.floor(Date.now() / 1000)).toBeGreaterThan(after), {
      timeout: 5_000,
    });
    const second = await runScheduled(env(databaseUrl, more), never);
    expect(second?.deleted).toEqual([first?.name]);
    expect(readdirSync(backups)).toEqual([second?.name]);
    expect(
      (await api.stores.backups.list()).map(({ name, error, scheduled }) => [
        name,
        error,
        scheduled,
      ]),
    ).toEqual([
      [second?.name, null, true],
      [first?.name, null, true],
    ]);
    await expect(
      runScheduled(env(databaseUrl, { ...more, BACKUP_TO: join(dir, 'gone') }), never),
    ).rejects.toThrow('mount its disk');
    expect((await api.stores.backups.list())[0]?.error).toContain('mount its disk');
  });

  const scratchDatabases = async (): Promise<string> =>
    engine === 'SQLite' || server === undefined
      ? '0'
      : server.query("select count(*) from pg_database where datname like 'berth_verify_%'");
});

test.skipIf(process.getuid?.() !== 0)(
  'on a full disk, no half backup stays, and the database is untouched',
  async () => {
    const dir = mkdtempSync(join(tmpdir(), 'berth-full-'));
    const small = join(dir, 'small');
    mkdirSync(small);
    const mounted = await run(['mount', '-t', 'tmpfs', '-o', 'size=66m', 'tmpfs', small], {
      mayFail: true,
    });
    onTestFinished(async () => {
      await run(['umount', small], { mayFail: true });
      rmSync(dir, { recursive: true, force: true });
    });
    expect(mounted.code).toBe(0);
    const databaseUrl = `sqlite:${join(dir, 'berth.db')}`;
    const api = await controlPlane(databaseUrl);
    // The file of SQLite does not tell the size of its WAL, so the check of the free space passes.
    for (let i = 0; i < 4; i++)
      await api.stores.meta.set(`filler ${i}`, 'x'.repeat(20 * 1024 ** 2));
    const failed = await berth(['backup', '--to', small], databaseUrl);
    expect([failed.code, failed.stdout]).toEqual([1, '']);
    expect(failed.stderr).toMatch(/^berth backup: the disk of .* (is full|has \d+ MiB free)/);
    expect(readdirSync(small)).toEqual([]);
    expect((await api.call('listProjects', { as: 'admin' })).status).toBe(200);
    expect((await api.stores.backups.list())[0]?.error).toContain('the disk of');
  },
);

test.each([
  [['backup'], 'give --to, or set BACKUP_TO'],
  [['backup', '--to', '/tmp', '--recipient', 'age1wrong'], 'is no age recipient'],
])('%j is wrong usage: exit code 2', async (args, says) => {
  const done = await berth(args, 'sqlite:none.db');
  expect([done.code, done.stdout]).toEqual([2, '']);
  expect(done.stderr).toContain(says);
});
