/**
 * Makes a SQLite file shrinkable: only a file with auto_vacuum = INCREMENTAL can return free space
 * in small steps (capabilities.ts, shrinkFile). New files have this setting. A file of an older
 * version of Berth gets it once, at a start, by VACUUM, which rewrites the whole file. VACUUM runs
 * only if it takes seconds and the disk has enough space. Otherwise retention reduces the file
 * first, and a later start runs VACUUM.
 */
import { statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import type Sqlite from 'better-sqlite3';

const INCREMENTAL = 2;
/**
 * Largest content for which VACUUM runs: it writes about 100 MB/s on a slow machine, so it takes at
 * most 20 s.
 */
const MOST_BYTES = 2 * 1024 ** 3;
/** Free space needed, as a multiple of the content: VACUUM writes a copy and the WAL. */
const ROOM = 2.2;

type LogLine = (fields: object, message: string) => void;

/** Call it first on a new connection. Never throws: a file that cannot shrink still works. */
export function makeShrinkable(
  database: Sqlite.Database,
  path: string,
  log: LogLine,
  most = MOST_BYTES,
): void {
  const read = (name: string): number => Number(database.pragma(name, { simple: true }));
  // Reads the setting first, because setting it writes to the file even if the value does not
  // change.
  if (read('auto_vacuum') === INCREMENTAL) return;
  // Takes effect at once in a file without tables, otherwise at the next VACUUM.
  database.pragma('auto_vacuum = INCREMENTAL');
  if (read('auto_vacuum') === INCREMENTAL) return;
  const bytes = read('page_size') * (read('page_count') - read('freelist_count'));
  const fields = { database: path, bytes };
  if (bytes > most) {
    log(
      fields,
      `the database file cannot shrink yet: it holds more than ${most} bytes. Retention ` +
        'reduces it; a later start makes it shrinkable',
    );
    return;
  }
  const { bavail, bsize } = statfsSync(dirname(path));
  if (bavail * bsize < ROOM * bytes) {
    log(
      { ...fields, free: bavail * bsize },
      'the database file cannot shrink yet: VACUUM needs more free disk space',
    );
    return;
  }
  try {
    const startedAt = performance.now();
    database.exec('VACUUM');
    log(
      { ...fields, ms: Math.round(performance.now() - startedAt) },
      'database file vacuumed once: from now on it returns free space to the disk',
    );
  } catch (error) {
    log(
      { ...fields, err: error },
      'the database file cannot shrink yet: VACUUM failed; the file is unchanged',
    );
  }
}
