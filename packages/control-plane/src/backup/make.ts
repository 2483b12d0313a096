/**
 * Makes one backup: copies the database, writes the archive to the target, records the backup, then
 * deletes the backups that the retention rule does not keep.
 */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, readFile, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { Transform } from 'node:stream';
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import { messageOf } from '@berth/kit/message-of';
import { BERTH_VERSION } from '@berth/wire/version';
import { JWT_SECRET_FILE } from '../api/auth/jwt-secret.ts';
import { type BackupConfig, dataFolder } from '../config.ts';
import type { BackupStore } from '../domain/platform/backups.ts';
import { SECRETS_KEY_FILE } from '../secrets/open.ts';
import { copyDatabase } from '../store/backup/copy.ts';
import { isSqlite, pathIn } from '../store/backup/plain.ts';
import { packed } from './archive.ts';
import { BackupError, isDiskFull } from './errors.ts';
import { type EtcFiles, readEtc } from './etc.ts';
import { type Keep, notKept } from './keep.ts';
import { type Keys, newManifest } from './manifest.ts';
import { newName } from './names.ts';
import { dump } from './postgres-tools.ts';
import { inScratch } from './scratch.ts';
import type { Target } from './target.ts';

export type Make = {
  config: BackupConfig;
  target: Target;
  withKeys: boolean;
  recipients: readonly string[];
  /**
   * Null if the backup cannot be recorded, because this version has not migrated the database yet.
   */
  record: BackupStore | null;
  /**
   * Set for a backup by BACKUP_INTERVAL: applies the retention rule, and does nothing while another
   * backup runs.
   */
  scheduled: Keep | null;
  now: () => number;
};

export type Made = {
  name: string;
  target: string;
  bytes: number;
  sha256: string;
  rows: Record<string, number>;
  /** Settings files of the machine that are not in the backup, and the reason for each. */
  left_out: EtcFiles['left_out'];
  deleted: string[];
};

/** Returns null if another backup is already running. Throws BackupError or StoreError. */
export async function makeBackup(make: Make): Promise<Made | null> {
  const { record, target, scheduled, now } = make;
  const id = randomUUID();
  const begun = await record?.begin(
    { id, scheduled: scheduled !== null, target: target.shown, started_at: now() },
    scheduled !== null,
  );
  if (begun === false) return null;
  let made: Omit<Made, 'deleted'>;
  try {
    made = await write(make);
  } catch (error) {
    await record?.end(id, { error: messageOf(error) }, now());
    throw error;
  }
  await record?.end(id, { name: made.name, bytes: made.bytes }, now());
  return { ...made, deleted: scheduled === null ? [] : await clean(target, scheduled, made.name) };
}

type Write = Pick<Make, 'config' | 'target' | 'withKeys' | 'recipients' | 'now'> & {
  /** Last part of the backup's name; random by default. */
  tag?: string;
};

/** Writes one backup, without a record. Throws BackupError or StoreError. */
export async function write({
  config,
  target,
  withKeys,
  recipients,
  now,
  tag,
}: Write): Promise<Omit<Made, 'deleted'>> {
  const { DATABASE_URL: databaseUrl, searchPath } = config;
  const folder = resolve(dataFolder(config));
  if (target.folder === null && !isSqlite(databaseUrl))
    await mkdir(folder, { recursive: true, mode: 0o700 });
  // Puts the scratch folder beside the backup, so that the copy does not fill the disk of the
  // database.
  return inScratch(target.folder ?? folder, await bytesOf(databaseUrl), async (scratch) => {
    const database = join(scratch, 'copy');
    const startedAt = now();
    const copied = await copyDatabase(databaseUrl, database, (snapshot) =>
      dump({ databaseUrl, searchPath }, database, snapshot),
    ).catch((error: unknown) => {
      if (isDiskFull(error) && !(error instanceof BackupError))
        throw new BackupError(
          'disk_full',
          `the disk of ${scratch} is full; no backup was written`,
          { cause: error },
        );
      throw error;
    });
    await failPoint('backup.copied');
    const machine = await readEtc(config.BERTH_ETC, withKeys);
    const etcSecrets = machine?.secrets ?? [];
    const content = {
      berth: BERTH_VERSION,
      created_at: new Date(startedAt).toISOString(),
      installation: copied.installation,
      migrations: copied.migrations,
      rows: copied.rows,
      key_ids: copied.keyIds,
      settings: config.plain,
      ...defined({
        volumes: copied.volumes.length === 0 ? undefined : copied.volumes,
        etc: machine === null ? undefined : machine.etc,
      }),
    };
    const manifest = newManifest(
      { ...content, engine: isSqlite(databaseUrl) ? 'sqlite' : 'postgres' },
      { hasEtcSecrets: etcSecrets.length > 0 },
    );
    const keys = withKeys ? await keysOf(config, folder) : null;
    const name = newName(copied.installation, startedAt, recipients.length > 0, tag);
    const stream = await packed({ manifest, keys, etcSecrets, database }, recipients);
    const count = counting();
    stream.on('error', (error) => count.stream.destroy(error));
    try {
      await target.put(name, stream.pipe(count.stream));
    } finally {
      // Closes the copy if the target failed before it had read everything.
      stream.destroy();
    }
    return {
      name,
      target: target.shown,
      rows: copied.rows,
      left_out: machine?.etc.left_out ?? [],
      ...count.result(),
    };
  });
}

function counting(): { stream: Transform; result: () => { bytes: number; sha256: string } } {
  const hash = createHash('sha256');
  let bytes = 0;
  const stream = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      hash.update(chunk);
      done(null, chunk);
    },
  });
  return { stream, result: () => ({ bytes, sha256: hash.digest('hex') }) };
}

/** Returns the size of the copy: the size of the SQLite file, or 0 if the size is unknown. */
async function bytesOf(databaseUrl: string): Promise<number> {
  if (!isSqlite(databaseUrl)) return 0;
  return (await stat(pathIn(databaseUrl)).catch(() => ({ size: 0 }))).size;
}

/** Returns the secret settings, and the generated secrets of the state folder. */
async function keysOf(config: BackupConfig, folder: string): Promise<Keys> {
  const keys: Keys = { ...config.secret };
  for (const [name, file] of [
    ['SECRETS_KEY', SECRETS_KEY_FILE],
    ['JWT_SECRET', JWT_SECRET_FILE],
  ] as const) {
    const text =
      keys[name] === undefined
        ? await readFile(join(folder, file), 'utf8').catch(() => null)
        : null;
    if (text !== null) keys[name] = text.trim();
  }
  if (keys['SECRETS_KEY'] === undefined)
    throw new BackupError(
      'missing_key',
      '--with-keys: there is no key of the secrets: set SECRETS_KEY as the control plane has ' +
        `it, or let this user read ${join(folder, SECRETS_KEY_FILE)}`,
    );
  return keys;
}

/** Deletes the backups of this installation that the retention rule does not keep. */
async function clean(target: Target, rule: Keep, newest: string): Promise<string[]> {
  const installation = newest.split('-')[1];
  const own = (await target.list()).filter((backup) => backup.installation === installation);
  const gone = notKept(own, rule).filter(({ name }) => name !== newest);
  for (const { name } of gone) await target.remove(name);
  return gone.map(({ name }) => name);
}
