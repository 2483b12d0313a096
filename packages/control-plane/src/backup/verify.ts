/**
 * Restores a backup into a scratch place, opens it as a control plane would, and decrypts its keys.
 * Makes no other change.
 */
import { tmpdir } from 'node:os';
import { messageOf } from '@berth/kit/message-of';
import type { BackupConfig } from '../config.ts';
import { inspect } from '../store/backup/inspect.ts';
import { corruptionOf, createScratchDatabase } from '../store/backup/place.ts';
import { openPlain } from '../store/backup/plain.ts';
import { BackupError } from './errors.ts';
import type { Manifest } from './manifest.ts';
import { restoreDump } from './postgres-tools.ts';
import { inScratch } from './scratch.ts';
import { findKeys, openRestored, read, type Source } from './use.ts';

export type Verified = { manifest: Manifest; has_keys: boolean; opened: number; key_from: string };

export function verifyBackup(source: Source, config: BackupConfig): Promise<Verified> {
  return inScratch(tmpdir(), 0, async (scratch) => {
    const { manifest, keys, database } = await read(source, null, scratch);
    const secretKeys = await findKeys(config, manifest, keys);
    const place = await placeFor(manifest, config, database);
    try {
      await compare(place.url, manifest, source.name);
      const opened = await openRestored(place.url, secretKeys, source.name);
      return { manifest, has_keys: keys !== null, opened, key_from: secretKeys.from };
    } finally {
      await place.drop();
    }
  });
}

async function placeFor(
  manifest: Manifest,
  { DATABASE_URL, searchPath }: BackupConfig,
  database: string,
) {
  if (manifest.engine === 'sqlite')
    return { url: `sqlite:${database}`, drop: () => Promise.resolve() };
  if (DATABASE_URL.startsWith('sqlite:'))
    throw new BackupError(
      'failed',
      'this is a backup of PostgreSQL: set DATABASE_URL to a server on which verify may create ' +
        'a scratch database',
    );
  const place = await createScratchDatabase(DATABASE_URL).catch((error: unknown) => {
    throw new BackupError(
      'failed',
      `no scratch database could be created on the server of DATABASE_URL: ${messageOf(error)}; ` +
        'give its user the right CREATEDB, or verify on another server',
      { cause: error },
    );
  });
  try {
    await restoreDump({ databaseUrl: place.url, searchPath }, database);
    return place;
  } catch (error) {
    await place.drop();
    throw error;
  }
}

/** Compares the row count of each table with the manifest, before the database is migrated. */
export async function compare(
  databaseUrl: string,
  manifest: Manifest,
  name: string,
): Promise<void> {
  const corruption = await corruptionOf(databaseUrl);
  if (corruption !== null)
    throw new BackupError(
      'damaged',
      `the database in the backup ${name} is corrupt: ${corruption}`,
    );
  const { db } = openPlain(databaseUrl);
  try {
    const { rows } = await inspect(db);
    const wrong = Object.entries(manifest.rows).filter(([table, n]) => rows[table] !== n);
    const [first] = wrong;
    if (first !== undefined)
      throw new BackupError(
        'damaged',
        `the backup ${name} restores to ${rows[first[0]] ?? 'no'} rows of ${first[0]} instead of ` +
          first[1],
      );
  } finally {
    await db.destroy();
  }
}
