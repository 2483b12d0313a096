/**
 * The snapshot before a new version migrates the database. upgrade.real.test.ts does the same with
 * processes and with PostgreSQL.
 */
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Logger } from '@berth/kit/log';
import { expect, onTestFinished, test, vi } from 'vitest';
import { snapshotFolder, takeSnapshot } from '../../src/backup/snapshot.ts';
import { openStores } from '../../src/store/open.ts';
import { configOf, controlPlane, everything, fill, folders, restore } from './support.ts';
import { makeOlder, withLaterStep } from '../store/older.ts';

/** Each test opens databases on the disk, which takes long while others use it. */
const SLOW = { timeout: 60_000 };

/** Opens the database as a control plane of this version does. Returns its lines. */
async function upgrade(
  databaseUrl: string,
  rule: 'required' | 'try' | 'off' = 'required',
): Promise<string[]> {
  const lines: string[] = [];
  const note = (a: unknown, b?: string): void => void lines.push(b ?? String(a));
  const log = { info: note, warn: note } as unknown as Logger;
  const stores = await openStores({
    databaseUrl,
    log,
    before: () => takeSnapshot(configOf(databaseUrl), rule, log),
  });
  await stores.close();
  return lines;
}

test(
  'a new database gets no snapshot; an older one gets one, and a restore of it brings every answer back',
  SLOW,
  async () => {
    const { databaseUrl } = folders();
    const folder = snapshotFolder(configOf(databaseUrl));
    await upgrade(databaseUrl);
    expect(() => readdirSync(folder)).toThrow(/ENOENT/);
    const api = await controlPlane(databaseUrl);
    await fill(api);
    const before = await everything(api);
    await api.close();
    await makeOlder(databaseUrl);

    expect(await upgrade(databaseUrl)).toEqual([
      'snapshot of the database taken before the upgrade',
      'database migrated',
    ]);
    const [name = '', ...more] = readdirSync(folder);
    expect(more).toEqual([]);
    expect([statSync(folder).mode & 0o777, statSync(join(folder, name)).mode & 0o777]).toEqual([
      0o700, 0o600,
    ]);
    expect(await upgrade(databaseUrl)).toEqual([]);

    const place = folders();
    await restore(join(folder, name), place.databaseUrl);
    const restored = await controlPlane(place.databaseUrl);
    expect(await everything(restored)).toEqual(before);
  },
);

test(
  'an upgrade that begins again uses its snapshot, removes what a killed one left, and keeps three snapshots',
  SLOW,
  async () => {
    const { databaseUrl } = folders();
    const folder = snapshotFolder(configOf(databaseUrl));
    await upgrade(databaseUrl);
    // The name of a snapshot has its second: on a fast machine, all of them would have the same
    // one.
    vi.useFakeTimers({ toFake: ['Date'] });
    onTestFinished(() => void vi.useRealTimers());
    const run = async (): Promise<string> => {
      vi.setSystemTime(Date.now() + 1_000);
      const api = await controlPlane(databaseUrl);
      // Only a control plane that runs raises this clock.
      await api.stores.uptime.raise((await api.stores.uptime.read(0)) + 1000);
      await api.close();
      await makeOlder(databaseUrl);
      await upgrade(databaseUrl);
      return readdirSync(folder).sort().join(' ');
    };
    const first = await run();
    const half = join(folder, `.${first}.partial`);
    writeFileSync(half, 'half');
    mkdirSync(join(folder, '.berth-scratch-abcdef'));
    writeFileSync(join(folder, 'notes.txt'), 'of a person');
    await makeOlder(databaseUrl);
    expect(await upgrade(databaseUrl)).toEqual(['database migrated']);
    expect(readdirSync(folder).sort()).toEqual([first, 'notes.txt'].sort());
    for (let i = 0; i < 4; i++) await run();
    const names = readdirSync(folder).filter((name) => name.startsWith('berth-'));
    expect(names).toHaveLength(3);
    expect(names).not.toContain(first);
    expect(readdirSync(folder)).toContain('notes.txt');
  },
);

test(
  'without a snapshot the upgrade stops and the database is unchanged, unless the setting says otherwise',
  SLOW,
  async () => {
    const { dir, databaseUrl } = folders();
    await upgrade(databaseUrl);
    await makeOlder(databaseUrl);
    writeFileSync(join(dir, 'snapshots'), 'no folder');
    const before = readFileSync(join(dir, 'berth.db'));
    await expect(upgrade(databaseUrl)).rejects.toThrow(
      /^the upgrade stopped, and the database is unchanged: .*UPGRADE_SNAPSHOT=off/,
    );
    expect(readFileSync(join(dir, 'berth.db')).equals(before)).toBe(true);
    const [failed] = await upgrade(databaseUrl, 'try');
    expect(failed).toBe(
      'the snapshot before the upgrade failed; the upgrade continues (UPGRADE_SNAPSHOT=try)',
    );
    await makeOlder(databaseUrl);
    expect(await upgrade(databaseUrl, 'off')).toEqual([
      'the database is migrated without a snapshot (UPGRADE_SNAPSHOT=off)',
      'database migrated',
    ]);
  },
);

test(
  'a version starts on a database that a newer one expanded, and refuses one that it contracted',
  SLOW,
  async () => {
    const { databaseUrl } = folders();
    await upgrade(databaseUrl);
    const expanded = { berth: '9.8.7', snapshot: '/var/lib/berth/snapshots/berth-1.tar.gz' };
    await withLaterStep(databaseUrl, '9998_expands', { ...expanded, contracts: false });
    expect(await upgrade(databaseUrl)).toEqual([
      'a newer version of Berth expanded the database; this version works with it',
    ]);
    await withLaterStep(databaseUrl, '9999_contracts', { ...expanded, contracts: true });
    await expect(upgrade(databaseUrl)).rejects.toMatchObject({
      code: 'newer_database',
      message: expect.stringMatching(
        /^Berth 9\.8\.7 migrated the database to 9999_contracts, and this is Berth .*: start Berth 9\.8\.7 or newer, or go back with berth restore \/var\/lib\/berth\/snapshots\/berth-1\.tar\.gz/,
      ),
    });
  },
);
