/**
 * Copies the database before a new version migrates it: a backup in the folder `snapshots`, which
 * `berth restore` can read. Only the control plane that holds the migration lock calls this.
 */
import { createHash } from 'node:crypto';
import { mkdir, readdir, rm, statfs } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { failPoint } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import { messageOf } from '@berth/kit/message-of';
import { type BackupConfig, dataFolder } from '../config.ts';
import { measure } from '../store/backup/measure.ts';
import { BackupError } from './errors.ts';
import { write } from './make.ts';
import { named } from './names.ts';
import { SPARE_BYTES } from './scratch.ts';
import { SCRATCH, targetOf } from './targets.ts';

/**
 * Values of UPGRADE_SNAPSHOT. If the snapshot fails, the upgrade stops (`required`) or continues
 * (`try`).
 */
type Rule = 'required' | 'try' | 'off';

/** Number of snapshots to keep. */
export const KEEP_SNAPSHOTS = 3;
/**
 * Space needed, as a multiple of the database: the copy and its archive exist at the same time, and
 * the archive is smaller than the copy.
 */
const ROOM = 2;

export const snapshotFolder = (config: Pick<BackupConfig, 'DATABASE_URL' | 'STATE_DIR'>): string =>
  join(resolve(dataFolder(config)), 'snapshots');

/** Returns the bytes that a snapshot needs while it is being made, and the free bytes. */
export async function snapshotRoom(
  config: BackupConfig,
): Promise<{ bytes: number; needed: number; free: number }> {
  const { bytes } = await measure(config.DATABASE_URL);
  const { bavail, bsize } = await statfs(resolve(dataFolder(config)));
  return { bytes, needed: ROOM * bytes + SPARE_BYTES, free: bavail * bsize };
}

/**
 * Returns the path of the snapshot, or null if none was taken. Throws BackupError if the migration
 * must not run.
 */
export async function takeSnapshot(
  config: BackupConfig,
  rule: Rule,
  log: Logger,
): Promise<string | null> {
  if (rule === 'off') {
    log.warn('the database is migrated without a snapshot (UPGRADE_SNAPSHOT=off)');
    return null;
  }
  try {
    await failPoint('snapshot.before');
    const path = await take(config, log);
    await failPoint('snapshot.after');
    return path;
  } catch (error) {
    if (rule === 'try') {
      log.warn(
        { err: error },
        'the snapshot before the upgrade failed; the upgrade continues (UPGRADE_SNAPSHOT=try)',
      );
      return null;
    }
    throw new BackupError(
      error instanceof BackupError ? error.code : 'failed',
      'the upgrade stopped, and the database is unchanged: its snapshot failed: ' +
        `${messageOf(error)}. Solve this, or start the control plane once ` +
        'with UPGRADE_SNAPSHOT=off when you have a backup',
      { cause: error },
    );
  }
}

async function take(config: BackupConfig, log: Logger): Promise<string> {
  const folder = snapshotFolder(config);
  const { state } = await measure(config.DATABASE_URL);
  const tag = createHash('sha256').update(state).digest('hex').slice(0, 6);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await removeUnfinished(folder);
  const target = await targetOf(folder, { endpoint: null });
  // Reuses the snapshot of a start that was killed, unless a control plane has used the database
  // since.
  const same = (await target.list()).find((snapshot) => snapshot.tag === tag);
  if (same !== undefined) return join(folder, same.name);
  const { needed, free } = await snapshotRoom(config);
  if (free < needed)
    throw new BackupError(
      'disk_full',
      `the disk of ${folder} has ${mebibytes(free)} free, and the snapshot needs ` +
        mebibytes(needed),
    );
  const startedAt = performance.now();
  // Not encrypted, because the database beside the folder is not encrypted either.
  const { name, bytes } = await write({
    config,
    target,
    withKeys: false,
    recipients: [],
    now: Date.now,
    tag,
  });
  const path = join(folder, name);
  log.info(
    { snapshot: path, bytes, ms: Math.round(performance.now() - startedAt) },
    'snapshot of the database taken before the upgrade',
  );
  const older = (await target.list())
    .toSorted((a, b) => b.at - a.at)
    .filter((snapshot) => snapshot.name !== name);
  for (const { name: old } of older.slice(KEEP_SNAPSHOTS - 1)) await target.remove(old);
  return path;
}

/** Removes unfinished files of a start that was killed. */
async function removeUnfinished(folder: string): Promise<void> {
  for (const name of await readdir(folder))
    if (
      name.startsWith(SCRATCH) ||
      (name.startsWith('.') && named(name.slice(1).replace(/\.partial$/, '')) !== null)
    )
      await rm(join(folder, name), { recursive: true, force: true });
}

const mebibytes = (bytes: number): string => `${Math.ceil(bytes / 1024 ** 2)} MiB`;
