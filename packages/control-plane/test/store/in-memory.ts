/** Stores on a SQLite database in memory that is migrated already. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { openStores } from '../../src/store/open.ts';
import type { AllStores } from '../../src/store/open.ts';

const quiet = { info: () => {}, warn: () => {} };
let image: Promise<Buffer> | null = null;

async function migrated(): Promise<Buffer> {
  const dir = mkdtempSync(join(tmpdir(), 'berth-store-'));
  try {
    const path = join(dir, 'migrated.db');
    await (await openStores({ databaseUrl: `sqlite:${path}`, log: quiet })).close();
    const db = new Sqlite(path);
    // A database in memory has no WAL.
    db.pragma('journal_mode = DELETE');
    const bytes = db.serialize();
    db.close();
    return bytes;
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

export async function storesInMemory(
  now: () => number = Date.now,
  domainQuarantineMs?: number,
): Promise<AllStores> {
  image ??= migrated();
  return openStores({
    databaseUrl: 'sqlite::memory:',
    log: quiet,
    now,
    image: await image,
    ...(domainQuarantineMs === undefined ? {} : { domainQuarantineMs }),
  });
}
