/**
 * Allows one control plane for each SQLite file. The lock is an exclusive transaction on a separate
 * database file, `<db>.lock`, so it does not block readers of the real file (backups, the sqlite3
 * shell). The operating system releases it when the process ends for any reason. `<db>.lock.json`
 * names the holder, for the error message of the refused process.
 *
 * This process must not open `<db>.lock` a second time: if it closes any descriptor of a file, it
 * loses its POSIX locks on the file.
 */
import { readFileSync, rmSync } from 'node:fs';
import { hostname } from 'node:os';
import { writeFileWholeSync } from '@berth/kit/write-file';
import Sqlite from 'better-sqlite3';
import { StoreError } from './errors.ts';

/**
 * Two processes that start at the same moment block each other; one of them gets the lock within
 * this time.
 */
const LOCK_TIMEOUT_MS = 250;

type Holder = { pid: number; host: string; since: string };

/** Returns the function that releases the lock. Throws StoreError `held`. */
export function takeFileLock(databasePath: string, now: number): () => void {
  const lockPath = `${databasePath}.lock`;
  const holderPath = `${databasePath}.lock.json`;
  const lock = new Sqlite(lockPath, { timeout: LOCK_TIMEOUT_MS });
  try {
    lock.exec('begin exclusive');
  } catch (error) {
    lock.close();
    if (!(error instanceof Sqlite.SqliteError) || !error.code.startsWith('SQLITE_BUSY'))
      throw error;
    throw new StoreError(
      'held',
      `the database ${databasePath} is held by another control plane ` +
        `(${describe(readHolder(holderPath))}). ` +
        'A SQLite file serves one control plane: stop that one first, or use PostgreSQL for ' +
        'several',
    );
  }
  const holder: Holder = { pid: process.pid, host: hostname(), since: new Date(now).toISOString() };
  writeFileWholeSync(holderPath, `${JSON.stringify(holder)}\n`);
  return () => {
    if (!lock.open) return;
    // Removes the file before it releases the lock: after the release, the file could belong to the
    // next holder.
    rmSync(holderPath, { force: true });
    lock.exec('rollback');
    lock.close();
  };
}

function readHolder(path: string): Holder | null {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Holder;
  } catch {
    // The holder writes the file just after it takes the lock, so the file might not exist yet.
    return null;
  }
}

const describe = (holder: Holder | null): string =>
  holder === null
    ? 'its pid is unknown'
    : `pid ${holder.pid} on ${holder.host}, since ${holder.since}`;
