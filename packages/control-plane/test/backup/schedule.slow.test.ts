/**
 * Scheduled backups: when one is due, what /readyz, /metrics and the log say, and that one control
 * plane at a time makes it.
 */
import { silentLogger } from '@berth/kit/log';
import { expect, onTestFinished, test } from 'vitest';
import {
  type BackupRecord,
  isLate,
  lastGood,
  nextBackupAt,
} from '../../src/domain/platform/backups.ts';
import { backups } from '../../src/loops/backups.ts';
import { type Api, createApi } from '../api/harness.ts';
import type { BackupSettings } from '../../src/domain/platform/backups.ts';

/** Each test opens databases on the disk, which takes long while others use it. */
const SLOW = { timeout: 60_000 };

const HOUR = 3_600_000;
const MINUTE = 60_000;
const NOW = Date.UTC(2026, 10, 23, 15);

const record = (given: Partial<BackupRecord>): BackupRecord => ({
  id: String(given.started_at),
  scheduled: true,
  target: '/mnt',
  name: null,
  bytes: null,
  error: null,
  started_at: NOW,
  finished_at: NOW,
  ...given,
});

test('a backup is due after the interval; after a failure, 5 minutes later; a backup by a person changes nothing', () => {
  expect(nextBackupAt([], HOUR)).toBe(Number.NEGATIVE_INFINITY);
  expect(nextBackupAt([record({ started_at: NOW })], HOUR)).toBe(NOW + HOUR);
  const failed = record({ started_at: NOW + HOUR, error: 'disk full' });
  expect(nextBackupAt([record({ started_at: NOW }), failed], HOUR)).toBe(NOW + HOUR + 5 * MINUTE);
  expect(nextBackupAt([record({ started_at: NOW }), failed], 2 * MINUTE)).toBe(
    NOW + HOUR + 2 * MINUTE,
  );
  expect(nextBackupAt([record({ started_at: NOW, scheduled: false })], HOUR)).toBe(
    Number.NEGATIVE_INFINITY,
  );
  // It runs, or its process died.
  expect(nextBackupAt([record({ started_at: NOW, finished_at: null })], HOUR)).toBe(
    NOW + 5 * MINUTE,
  );
});

test('the last good one counts, and it is late after two intervals', () => {
  const good = record({ started_at: NOW });
  expect(
    lastGood([
      record({ started_at: NOW + 1, error: 'x' }),
      good,
      record({ started_at: NOW + 2, finished_at: null }),
    ]),
  ).toBe(good);
  expect(isLate(good, HOUR, NOW + 2 * HOUR)).toBe(false);
  expect(isLate(good, HOUR, NOW + 2 * HOUR + 6 * MINUTE)).toBe(true);
  expect(isLate(null, HOUR, NOW)).toBe(true);
});

async function scheduled(): Promise<{
  api: Api;
  run: (result: string | null) => Promise<void>;
  runs: () => number;
  errors: object[];
}> {
  let now = Date.now();
  const api = await createApi({ env: { BACKUP_TO: '/mnt/backups', BACKUP_INTERVAL: '1h' } });
  onTestFinished(() => api.close());
  let runs = 0;
  const errors: object[] = [];
  const log = {
    ...silentLogger(),
    info: () => {},
    error: (fields: object) => void errors.push(fields),
  };
  return {
    api,
    runs: () => runs,
    errors,
    /** Runs the loop; the backup ends with this error, or null. */
    async run(result) {
      now += HOUR;
      api.pass(HOUR);
      const backupSchedule: BackupSettings = {
        intervalMs: HOUR,
        async run() {
          runs += 1;
          const id = `run ${runs}`;
          if (
            !(await api.stores.backups.begin(
              { id, scheduled: true, target: '/mnt/backups', started_at: now },
              true,
            ))
          )
            return null;
          await api.stores.backups.end(
            id,
            result === null ? { name: 'b', bytes: 1 } : { error: result },
            now,
          );
          if (result !== null) throw new Error(result);
          return { name: 'b', target: '/mnt/backups', bytes: 1, deleted: [] };
        },
      };
      await backups({
        backupSchedule,
        backups: api.stores.backups,
        now: () => now,
        log,
      })(new AbortController().signal);
    },
  };
}

const partOf = async (api: Api): Promise<unknown> =>
  (
    (await api.call('readyz')).json['parts'] as { name: string; ok: boolean; detail: string }[]
  ).find((part) => part.name === 'backups');
const metricOf = async (api: Api, name: string): Promise<number> =>
  Number(new RegExp(`^${name} (\\S+)$`, 'm').exec((await api.call('metrics')).text)?.[1]);

test(
  '/readyz and /metrics show the age of the last backup, and that backups fail',
  SLOW,
  async () => {
    const { api, run, runs, errors } = await scheduled();
    expect(await partOf(api)).toEqual({
      name: 'backups',
      required: false,
      ok: true,
      detail: 'there is no backup yet',
    });
    expect(await metricOf(api, 'berth_backup_last_success_timestamp_seconds')).toBe(0);
    expect(await metricOf(api, 'berth_backup_interval_seconds')).toBe(3600);
    await run(null);
    expect(await metricOf(api, 'berth_backup_last_success_timestamp_seconds')).toBeGreaterThan(1e9);
    for (let hour = 0; hour < 3; hour++) await run('the disk of /mnt/backups is full');
    expect(runs()).toBe(4);
    expect(errors).toHaveLength(3);
    expect(errors.at(-1)).toMatchObject({ late: true });
    // /readyz reads the record again after some seconds.
    await expect
      .poll(() => partOf(api), { timeout: 40_000, interval: 500 })
      .toEqual({
        name: 'backups',
        required: false,
        ok: false,
        detail: 'the last backup is 180 min old; the log has the error (backup failed)'.replace(
          '180 min',
          '3 h 0 min',
        ),
      });
  },
);

test('without BACKUP_TO, /readyz is silent until there is a backup', SLOW, async () => {
  const api = await createApi();
  onTestFinished(() => api.close());
  expect(await partOf(api)).toBeUndefined();
});

test(
  'one scheduled backup at a time; one whose process died blocks the next one for two hours at most',
  SLOW,
  async () => {
    const api = await createApi();
    onTestFinished(() => api.close());
    const { backups: store } = api.stores;
    const begin = (id: string, at: number, unlessRunning = true) =>
      store.begin({ id, scheduled: true, target: '/mnt', started_at: at }, unlessRunning);
    expect(await begin('a', NOW)).toBe(true);
    expect(await begin('b', NOW + 1)).toBe(false);
    expect(await begin('by a person', NOW + 2, false)).toBe(true);
    expect(await begin('c', NOW + 3 * HOUR)).toBe(true);
  },
);

test('the record keeps the last good backup however many fail', SLOW, async () => {
  const api = await createApi();
  onTestFinished(() => api.close());
  const { backups: store } = api.stores;
  for (let i = 0; i < 230; i++) {
    await store.begin(
      { id: String(i), scheduled: true, target: '/mnt', started_at: NOW + i },
      false,
    );
    await store.end(
      String(i),
      i === 5 ? { name: 'good', bytes: 1 } : { error: 'disk full' },
      NOW + i,
    );
  }
  const all = await store.list();
  expect(lastGood(all)?.name).toBe('good');
  expect(all.length).toBeLessThan(110);
});
