/** The first start of a new version as a process: several at once, no pg_dump, no room. */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { programsRoot } from '@berth/testbed/config';
import { freePort } from '@berth/testbed/ports';
import { startPostgres, whyNoPostgres } from '@berth/testbed/postgres';
import { run, type RunningProcess, startProcess } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { BERTH_VERSION } from '@berth/wire/version';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { openStores } from '../../src/store/open.ts';
import { ENV } from '../api/harness.ts';
import { makeOlder } from '../store/older.ts';
import { folders } from './support.ts';

const BERTH = [process.execPath, join(programsRoot(), 'bin', 'berth')] as const;
const DEADLINE = { deadlineMs: 60_000 };

async function olderDatabase(databaseUrl: string): Promise<void> {
  await (await openStores({ databaseUrl, log: { info: () => {}, warn: () => {} } })).close();
  await makeOlder(databaseUrl);
}

async function start(
  databaseUrl: string,
  dir: string,
  env: Record<string, string> = {},
): Promise<RunningProcess> {
  const listen = `127.0.0.1:${await freePort()}`;
  const settings = {
    ...ENV,
    DATABASE_URL: databaseUrl,
    STATE_DIR: dir,
    LISTEN: listen,
    LOG_FORMAT: 'json',
  };
  const started = await startProcess([...BERTH, 'control-plane'], {
    name: 'control-plane',
    env: { ...settings, ...env },
  });
  onTestFinished(() => started.stop());
  return started;
}
const isListening = (process: RunningProcess): boolean =>
  process.tail().includes('control plane is listening');
const ended = (process: RunningProcess): Promise<unknown> =>
  waitFor('it ends', () => process.exit(), DEADLINE);

test('SQLite: of two that start at once, one migrates and the other refuses clearly', async () => {
  const { dir, databaseUrl } = folders();
  await olderDatabase(databaseUrl);
  const slow = { BERTH_FAIL_POINTS: 'snapshot.before=delay:2s' };
  const both = [await start(databaseUrl, dir, slow), await start(databaseUrl, dir, slow)];
  const winner = await waitFor('one listens', () => both.find(isListening), DEADLINE);
  const loser = both.find((process) => process !== winner) ?? winner;
  await ended(loser);
  expect(loser.tail()).toContain(`is held by another control plane (pid ${winner.pid} on `);
  expect(readdirSync(join(dir, 'snapshots'))).toHaveLength(1);
});

test.skipIf(process.getuid?.() !== 0)(
  'without room for the snapshot, the start says so and changes nothing',
  async () => {
    const { dir } = folders();
    const state = join(dir, 'state');
    mkdirSync(state);
    await run(['mount', '-t', 'tmpfs', '-o', 'size=16m', 'tmpfs', state]);
    onTestFinished(async () => void (await run(['umount', '--lazy', state])));
    const databaseUrl = `sqlite:${join(state, 'berth.db')}`;
    await olderDatabase(databaseUrl);
    const refused = await start(databaseUrl, state);
    await ended(refused);
    expect(refused.exit()?.code).toBe(1);
    expect(refused.tail()).toMatch(
      /the upgrade stopped, and the database is unchanged: .* has \d+ MiB free, and the snapshot needs \d+ MiB/,
    );
    expect(readdirSync(join(state, 'snapshots'))).toEqual([]);
    const forced = await start(databaseUrl, state, { UPGRADE_SNAPSHOT: 'off' });
    await waitFor('it listens', () => isListening(forced), DEADLINE);
  },
);

test('upgrade --check says what the first start would do, and changes nothing', async () => {
  const { dir, databaseUrl } = folders();
  await olderDatabase(databaseUrl);
  const check = async (...args: string[]) =>
    run([...BERTH, 'upgrade', '--check', ...args], {
      env: { DATABASE_URL: databaseUrl, STATE_DIR: dir },
      mayFail: true,
    });
  const before = readFileSync(join(dir, 'berth.db'));
  const { code, stdout } = await check('--json');
  expect(code).toBe(0);
  expect(JSON.parse(stdout)).toMatchObject({
    next: BERTH_VERSION,
    schema: expect.arrayContaining([{ name: '0019_backups', kind: 'contracts', seconds: 1 }]),
    snapshot: { taken: true, folder: join(dir, 'snapshots') },
    agents: { total: 0, work: 0, stop: [] },
    open_deployments: 0,
    problems: [],
  });
  expect((await check()).stdout).toContain(`snapshot    in ${join(dir, 'snapshots')}, about `);
  expect(readFileSync(join(dir, 'berth.db')).equals(before)).toBe(true);
  expect(readdirSync(dir).sort()).toEqual(['backups', 'berth.db', 'berth.db.lock']);

  // An artefact whose schema ends before that of the database.
  const artefact = join(dir, 'backups');
  const build = {
    version: '0.0.9',
    arch: 'mips',
    schema: [{ name: '0001_main_job', needed: true }],
    oldest_agent: '0.0.1',
  };
  writeFileSync(join(artefact, 'berth-build.json'), JSON.stringify(build));
  const back = await check(artefact);
  expect(back.code).toBe(1);
  expect(back.stdout).toMatch(
    /^problem {5}the database has steps that 0\.0\.9 does not know \(0002_identity, /m,
  );
  expect(back.stdout).toMatch(/^problem {5}the package is for mips/m);
});

const reason = whyNoPostgres();
describe.skipIf(reason !== undefined)(
  `PostgreSQL${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  async () => {
    const server = reason === undefined ? await startPostgres() : undefined;
    afterAll(() => server?.stop());
    const database = (name: string): Promise<string> =>
      server?.createDatabase(name) ?? Promise.resolve('');

    test('of two that start at once, one migrates while the other waits; the snapshot restores', async () => {
      const { dir } = folders();
      const databaseUrl = await database('upgraded');
      await olderDatabase(databaseUrl);
      const slow = { BERTH_FAIL_POINTS: 'snapshot.before=delay:2s' };
      const both = [await start(databaseUrl, dir, slow), await start(databaseUrl, dir, slow)];
      await waitFor('both listen', () => both.every(isListening), DEADLINE);
      expect(both.filter((process) => process.tail().includes('database migrated'))).toHaveLength(
        1,
      );
      const [name = '', ...more] = readdirSync(join(dir, 'snapshots'));
      expect(more).toEqual([]);
      const env = {
        ...ENV,
        PATH: process.env['PATH'] ?? '',
        DATABASE_URL: await database('restored'),
        STATE_DIR: join(dir, 'other'),
      };
      expect(
        (await run([...BERTH, 'restore', join(dir, 'snapshots', name)], { env })).stdout,
      ).toContain('restored the state of');
    });

    test('the one that waits continues when the other one is killed in its migration', async () => {
      const { dir } = folders();
      const databaseUrl = await database('killed');
      await olderDatabase(databaseUrl);
      const killed = await start(databaseUrl, dir, {
        BERTH_FAIL_POINTS: 'snapshot.before=delay:2s,migrate.step=kill',
      });
      await waitFor(
        'it has the lock',
        () => killed.tail().includes('"fail_point":"snapshot.before"'),
        DEADLINE,
      );
      const waits = await start(databaseUrl, dir);
      await ended(killed);
      await waitFor('the other one listens', () => isListening(waits), DEADLINE);
      expect(readdirSync(join(dir, 'snapshots'))).toHaveLength(1);
    });

    test('without pg_dump, the start says what to install, and follows the setting', async () => {
      const { dir } = folders();
      const databaseUrl = await database('without_tool');
      await olderDatabase(databaseUrl);
      const env = { PATH: dirname(process.execPath) };
      const refused = await start(databaseUrl, dir, env);
      await ended(refused);
      expect(refused.tail()).toMatch(
        /the upgrade stopped, and the database is unchanged: .*pg_dump.*install the client programs of PostgreSQL/,
      );
      const tried = await start(databaseUrl, dir, { ...env, UPGRADE_SNAPSHOT: 'try' });
      await waitFor('it listens', () => isListening(tried), DEADLINE);
      expect(tried.tail()).toContain(
        'the snapshot before the upgrade failed; the upgrade continues',
      );
    });
  },
);
