/**
 * Restores a backup into an empty place. After a failure the place is empty again. With PostgreSQL,
 * pg_restore runs in one transaction.
 */
import { mkdir, stat } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { replaceFile, writeFileWhole } from '@berth/kit/write-file';
import { JWT_SECRET_FILE } from '../api/auth/jwt-secret.ts';
import { type BackupConfig, dataFolder } from '../config.ts';
import { SECRETS_KEY_FILE } from '../secrets/open.ts';
import { rewrapAll } from '../secrets/vault.ts';
import { markRestored } from '../store/backup/as-new.ts';
import { contentOf } from '../store/backup/place.ts';
import { isSqlite, pathIn } from '../store/backup/plain.ts';
import { BackupError } from './errors.ts';
import { type EtcSecrets, writeEtc } from './etc.ts';
import type { Keys, Manifest } from './manifest.ts';
import { restoreDump } from './postgres-tools.ts';
import { inScratch } from './scratch.ts';
import { findKeys, openRestored, read, type Source } from './use.ts';
import { compare } from './verify.ts';

const SETTINGS_FILE = 'restored-settings.env';
/** Name of the folder beside the database that receives the files of /etc/berth. */
export const ETC_BESIDE = 'restored-etc';

export type RestoredReport = {
  manifest: Manifest;
  /** Paths of the files that were written beside the database. */
  written: string[];
};

export async function restoreBackup(
  source: Source,
  { config, asNew, now }: { config: BackupConfig; asNew: boolean; now: () => number },
): Promise<RestoredReport> {
  const { DATABASE_URL: databaseUrl, searchPath } = config;
  const content = await contentOf(databaseUrl);
  if (content !== null)
    throw new BackupError(
      'not_empty',
      `${content}: restore works only into an empty place. Move it away, or set DATABASE_URL to ` +
        'another place',
    );
  const folder = resolve(dataFolder(config));
  await mkdir(folder, { recursive: true, mode: 0o700 });
  return inScratch(folder, 0, async (scratch) => {
    const { manifest, keys, etcSecrets, database } = await read(source, databaseUrl, scratch);
    const secretKeys = await findKeys(config, manifest, keys);
    const restored = {
      name: source.name,
      backup_at: manifest.created_at,
      restored_at: new Date(now()).toISOString(),
      as_new: asNew,
    };
    const prepare = async (url: string): Promise<void> => {
      await compare(url, manifest, source.name);
      await openRestored(url, secretKeys, source.name, async (stores, ring) => {
        // Wraps all project keys with one key, because the file of a generated key holds only one.
        if (ring !== null) await rewrapAll(stores.projectKeys, ring);
      });
      await markRestored(url, restored);
    };
    if (isSqlite(databaseUrl)) {
      await prepare(`sqlite:${database}`);
      // Checks again: another process might have created a database here meanwhile.
      const taken = await contentOf(databaseUrl);
      if (taken !== null)
        throw new BackupError('not_empty', `${taken}: it was created during the restore`);
      const written = await writeFiles(config, { manifest, keys, etcSecrets }, folder, asNew);
      await replaceFile(database, resolve(pathIn(databaseUrl)));
      return { manifest, written };
    }
    await restoreDump({ databaseUrl, searchPath }, database);
    await prepare(databaseUrl);
    return {
      manifest,
      written: await writeFiles(config, { manifest, keys, etcSecrets }, folder, asNew),
    };
  });
}

/**
 * Writes the settings of the backup as a file for people to read, and the keys of the backup where
 * this machine has none.
 */
async function writeFiles(
  config: BackupConfig,
  { manifest, keys, etcSecrets }: { manifest: Manifest; keys: Keys | null; etcSecrets: EtcSecrets },
  folder: string,
  asNew: boolean,
): Promise<string[]> {
  const written: string[] = [];
  const write = async (name: string, text: string): Promise<void> => {
    const path = join(folder, name);
    if ((await stat(path).catch(() => null)) !== null) return;
    await writeFileWhole(path, text, { exclusive: true });
    written.push(path);
  };
  const [firstKey] = (keys?.['SECRETS_KEY'] ?? '').split(',');
  if (config.SECRETS_KEY === undefined && firstKey !== undefined && firstKey !== '')
    await write(SECRETS_KEY_FILE, `${firstKey.trim()}\n`);
  // With `asNew`, the machine signs with its own secret, so tokens of the old machine become
  // invalid.
  const [jwt] = (keys?.['JWT_SECRET'] ?? '').split(',');
  if (!asNew && jwt !== undefined && jwt !== '') await write(JWT_SECRET_FILE, `${jwt.trim()}\n`);
  const settings = { ...manifest.settings, ...keys };
  if (Object.keys(settings).length > 0)
    await write(
      SETTINGS_FILE,
      Object.entries(settings)
        .map(([name, value]) => `${name}=${quoted(value)}\n`)
        .join(''),
    );
  const secrets = etcSecrets.filter(({ path }) => !asNew || basename(path) !== 'JWT_SECRET');
  const etc = await writeEtc(manifest.etc, secrets, join(folder, ETC_BESIDE));
  return etc === null ? written : [...written, etc];
}

/** Quotes a value in the syntax that both systemd and a shell read. */
const quoted = (value: string): string =>
  /^[\w@%+=:,./-]*$/.test(value) ? value : `'${value.replaceAll("'", `'\\''`)}'`;
