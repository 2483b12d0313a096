/**
 * A SQLite file gives space back in small steps (capabilities.ts, giveBack) only if it was made with auto_vacuum = INCREMENTAL. New files
 * are. A file of an earlier version of Berth gets it once, at a start, by VACUUM, which writes all that the file holds anew: it is done
 * where that takes seconds and the disk has room for it. A larger file is first reduced by retention; a later start finds it small enough.
 */
import { statfsSync } from 'node:fs';
import { dirname } from 'node:path';
import type Sqlite from 'better-sqlite3';

const INCREMENTAL = 2;
/** Of what the file holds. Measured: some 100 MB a second on a slow machine, so 20 s at most. */
const MOST_BYTES = 2 * 1024 ** 3;
/** The copy, and the write-ahead log through which it comes back. */
const ROOM = 2.2;

type Say = (fields: object, message: string) => void;

/** Before anything else is done with the connection. Never throws: a file that cannot shrink works as well as before. */
export function makeShrinkable(database: Sqlite.Database, path: string, say: Say, most = MOST_BYTES): void {
  const read = (name: string): number => Number(database.pragma(name, { simple: true }));
  // Asked first: to set it writes to the file, also where it is so already.
  if (read('auto_vacuum') === INCREMENTAL) return;
  // Decides for a file without tables, and for VACUUM.
  database.pragma('auto_vacuum = INCREMENTAL');
  if (read('auto_vacuum') === INCREMENTAL) return;
  const bytes = read('page_size') * (read('page_count') - read('freelist_count'));
  const fields = { database: path, bytes };
  if (bytes > most) {
    say(
      fields,
      `the database file cannot shrink yet: it holds more than ${most} bytes. Retention reduces it; a later start makes it shrinkable`,
    );
    return;
  }
  const { bavail, bsize } = statfsSync(dirname(path));
  if (bavail * bsize < ROOM * bytes) {
    say({ ...fields, free: bavail * bsize }, 'the database file cannot shrink yet: too little of the disk is free to write it anew');
    return;
  }
  try {
    const began = performance.now();
    database.exec('VACUUM');
    say(
      { ...fields, ms: Math.round(performance.now() - began) },
      'the database file was written anew, once: from now on it gives free space back',
    );
  } catch (error) {
    say({ ...fields, err: error }, 'the database file cannot shrink yet: it could not be written anew; it is as it was');
  }
}
