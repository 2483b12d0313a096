/**
 * Common steps of `backup verify` and `restore`: read a backup, check it, and find the keys of its
 * secrets.
 */
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { messageOf } from '@berth/kit/message-of';
import { type BackupConfig, dataFolder } from '../config.ts';
import { openAll } from '../secrets/canary.ts';
import { keyIdOf } from '../secrets/cipher.ts';
import { createKeyRing, type KeyRing } from '../secrets/key-ring.ts';
import { SECRETS_KEY_FILE } from '../secrets/open.ts';
import { migrationNames } from '../store/backup/copy.ts';
import { isSqlite } from '../store/backup/plain.ts';
import { openStores } from '../store/open.ts';
import { type Contents, unpack } from './archive.ts';
import { BackupError } from './errors.ts';
import type { Keys, Manifest } from './manifest.ts';
import type { Target } from './target.ts';

export type Source = { target: Target; name: string; identities: readonly string[] };

/**
 * Checks every byte, and checks that this version can use the backup with the engine of
 * `databaseUrl`.
 */
export async function read(
  { target, name, identities }: Source,
  databaseUrl: string | null,
  into: string,
): Promise<Contents> {
  const shown = `${target.shown}/${name}`;
  return unpack(await target.get(name), {
    name: shown,
    identities,
    into,
    accept(manifest) {
      const ownMigrations = migrationNames(manifest.engine);
      const newer = manifest.migrations.filter((migration) => !ownMigrations.includes(migration));
      if (newer.length > 0)
        throw new BackupError(
          'newer_backup',
          `Berth ${manifest.berth} made the backup ${shown} with a newer database ` +
            `(${newer.join(', ')}; this version knows migrations up to ` +
            `${ownMigrations.at(-1)}): use that version or a newer one`,
        );
      if (databaseUrl !== null && isSqlite(databaseUrl) !== (manifest.engine === 'sqlite'))
        throw new BackupError(
          'failed',
          `the backup ${shown} is of ${manifest.engine}, and DATABASE_URL names another ` +
            `engine: restore it to ${manifest.engine}, then move it ` +
            'with berth export and berth import',
        );
    },
  });
}

/** Keys; the first one wraps. `from`: where the keys were found, for messages. */
export type FoundKeys = { keys: Buffer[]; from: string };

/**
 * Combines the keys of SECRETS_KEY or its file with the keys in the backup, own keys first. Throws
 * missing_key.
 */
export async function findKeys(
  config: BackupConfig,
  manifest: Manifest,
  contained: Keys | null,
): Promise<FoundKeys> {
  const path = join(resolve(dataFolder(config)), SECRETS_KEY_FILE);
  const ownKeys = config.SECRETS_KEY ?? keysIn(await readFile(path, 'utf8').catch(() => ''));
  const inBackup = keysIn(contained?.['SECRETS_KEY'] ?? '');
  const keys = [...ownKeys, ...inBackup];
  const ids = new Set(keys.map(keyIdOf));
  const missing = manifest.key_ids.filter((id) => !ids.has(id));
  if (missing.length > 0) {
    const had = keys.length === 0 ? 'no key was given' : `given: ${[...ids].join(', ')}`;
    throw new BackupError(
      'missing_key',
      `the secrets of the backup need the key with the id ${missing.join(', ')}, and the ` +
        `backup does not contain it (${had}). Set SECRETS_KEY to the ` +
        `key that the control plane had, or put its file at ${path}. Without it, nobody can ` +
        'read the secrets again (docs/disasters.md "The key is gone")',
    );
  }
  const ownPlace = ownKeys.length > 0 ? path : 'the backup';
  return {
    keys,
    from: config.SECRETS_KEY === undefined ? ownPlace : 'SECRETS_KEY',
  };
}

/** Parses the keys in a text with the format of SECRETS_KEY. */
const keysIn = (text: string): Buffer[] =>
  text
    .split(',')
    .map((entry) => Buffer.from(entry.trim(), 'base64'))
    .filter((key) => key.length === 32);

/**
 * Opens and migrates the restored database, and decrypts with `keys` the same values as a control
 * plane at its start. Returns the number of decrypted project keys.
 */
export async function openRestored(
  databaseUrl: string,
  { keys }: FoundKeys,
  name: string,
  then: (
    stores: Awaited<ReturnType<typeof openStores>>,
    ring: KeyRing | null,
  ) => Promise<void> = async () => {},
): Promise<number> {
  const stores = await openStores({ databaseUrl, log: { info: () => {}, warn: () => {} } });
  try {
    const ring = keys.length === 0 ? null : createKeyRing(keys);
    let opened = 0;
    if (ring !== null) {
      try {
        opened = await openAll(ring, { keys: stores.projectKeys, meta: stores.meta });
      } catch (error) {
        throw new BackupError(
          'missing_key',
          `the secrets of the backup ${name} cannot be decrypted: ${messageOf(error)}`,
          { cause: error },
        );
      }
    }
    await then(stores, ring);
    return opened;
  } finally {
    await stores.close();
  }
}
