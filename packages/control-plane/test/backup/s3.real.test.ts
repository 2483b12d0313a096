/** Backups in a real object storage, by the programs as an operator runs them. */
import { randomBytes } from 'node:crypto';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { programsRoot } from '@berth/testbed/config';
import { startObjectStorage, whyNoObjectStorage } from '@berth/testbed/object-storage';
import { run } from '@berth/testbed/process';
import { afterAll, expect, test } from 'vitest';
import { runScheduled } from '../../src/backup/process.ts';
import { ENV } from '../api/harness.ts';
import { controlPlane, everything, fill, folders } from './support.ts';

const reason = whyNoObjectStorage();
const storage = reason === undefined ? await startObjectStorage() : undefined;
afterAll(() => storage?.stop());

async function berth(args: string[], env: Record<string, string>) {
  return run([process.execPath, join(programsRoot(), 'bin', 'berth'), ...args], {
    env,
    mayFail: true,
  });
}
const envOf = (databaseUrl: string, more: Record<string, string> = {}): Record<string, string> => ({
  PATH: process.env['PATH'] ?? '',
  DATABASE_URL: databaseUrl,
  SECRETS_KEY: ENV.SECRETS_KEY,
  ...storage?.env,
  ...more,
});
const filesIn = (folder: string): string[] =>
  readdirSync(folder, { recursive: true })
    .map(String)
    .filter((name) => name.endsWith('.tar.gz'));

test.skipIf(reason !== undefined)(
  `a backup in a bucket is listed, verified and restored; the rule deletes old ones (${reason ?? 'versitygw'})`,
  async () => {
    const { databaseUrl } = folders();
    const bucket = await storage?.createBucket('backups');
    const api = await controlPlane(databaseUrl);
    await fill(api);
    // More than two parts of an upload, and nothing that compresses.
    for (let i = 0; i < 3; i++)
      await api.stores.meta.set(`filler ${i}`, randomBytes(6 * 1024 ** 2).toString('base64'));
    const before = await everything(api);
    const to = 's3://backups/of/berth';
    const env = envOf(databaseUrl, { BACKUP_TO: to, BACKUP_KEEP: '1h' });
    const made = await berth(['backup'], env);
    expect([made.code, made.stderr]).toEqual([0, '']);
    const [at = ''] = made.stdout.split('\n');
    expect(at).toMatch(/^s3:\/\/backups\/of\/berth\/berth-.*\.tar\.gz$/);
    expect(filesIn(bucket ?? '')).toEqual([at.slice('s3://backups/'.length)]);
    expect((await berth(['backup', 'list'], env)).stdout).toBe(`${at}\n`);
    const good = await berth(['backup', 'verify', at], env);
    expect([good.code, good.stderr]).toEqual([0, '']);
    await api.close();

    const place = folders();
    const restored = await berth(['restore', at], envOf(place.databaseUrl));
    expect([restored.code, restored.stderr]).toEqual([0, '']);
    expect(await everything(await controlPlane(place.databaseUrl))).toEqual(before);

    const next = await runScheduled(env, new AbortController().signal);
    expect(next?.deleted).toEqual([at.split('/').at(-1)]);
    expect(filesIn(bucket ?? '')).toEqual([`of/berth/${next?.name}`]);
  },
);

test.skipIf(reason !== undefined)(
  'a wrong bucket, wrong credentials and a storage that does not answer are named; no credential is shown',
  async () => {
    const { databaseUrl } = folders();
    await controlPlane(databaseUrl);
    const wrong: [Record<string, string>, RegExp][] = [
      [
        { BACKUP_TO: 's3://nothing-here' },
        /^berth backup: s3:\/\/nothing-here at http:\S+: the backup \S+ was not written: .*bucket/i,
      ],
      [
        { BACKUP_TO: 's3://backups', AWS_SECRET_ACCESS_KEY: 'wrong-secret' },
        /was not written: .*signature/i,
      ],
      [
        { BACKUP_TO: 's3://backups', AWS_ENDPOINT_URL_S3: 'http://127.0.0.1:9' },
        /was not written: .*ECONNREFUSED/,
      ],
    ];
    for (const [more, says] of wrong) {
      const failed = await berth(['backup'], envOf(databaseUrl, more));
      expect([failed.code, failed.stdout]).toEqual([1, '']);
      expect(failed.stderr).toMatch(says);
      expect(failed.stderr).not.toMatch(/wrong-secret|secret-of-the-tests/);
    }
    expect(existsSync('nothing-here')).toBe(false);
  },
);
