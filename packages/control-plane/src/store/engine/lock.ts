/**
 * One control plane a file. The lock is an exclusive transaction on a database file of its own, `<db>.lock`, so that
 * readers of the real one (backups, the sqlite3 shell) are left alone, and the operating system lets go of it when the
 * process ends, however it ends. Beside it `<db>.lock.json` says who holds it, for the message to the one that is refused.
 *
 * Our own process must never open `<db>.lock` by other means: closing any descriptor of a file drops its POSIX locks.
 */
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import Sqlite from 'better-sqlite3';
import { StoreError } from './errors.ts';

/** Two that start at the same moment get in each other's way; after so long one of them has it. */
const PATIENCE_MS = 250;

type Holder = { pid: number; host: string; since: string };

/** Throws StoreError `held`. Returns what lets go. */
export function holdLock(databasePath: string, now: number): () => void {
  const lockPath = `${databasePath}.lock`;
  const holderPath = `${databasePath}.lock.json`;
  const lock = new Sqlite(lockPath, { timeout: PATIENCE_MS });
  try {
    lock.exec('begin exclusive');
  } catch (error) {
    lock.close();
    if (!(error instanceof Sqlite.SqliteError) || !error.code.startsWith('SQLITE_BUSY')) throw error;
    throw new StoreError(
      'held',
      `the database ${databasePath} is held by another control plane (${describe(readHolder(holderPath))}). ` +
        'A SQLite file serves one; stop that one first, or use PostgreSQL for several',
    );
  }
  const holder: Holder = { pid: process.pid, host: hostname(), since: new Date(now).toISOString() };
  writeFileSync(`${holderPath}.new`, `${JSON.stringify(holder)}\n`, { mode: 0o600 });
  renameSync(`${holderPath}.new`, holderPath);
  return () => {
    if (!lock.open) return;
    // First the note, then the lock: the other way round it could be the next holder's note.
    rmSync(holderPath, { force: true });
    lock.exec('rollback');
    lock.close();
  };
}

function readHolder(path: string): Holder | null {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Holder;
  } catch {
    // Written just after the lock was taken: for that moment nobody can say who it is.
    return null;
  }
}

const describe = (holder: Holder | null): string =>
  holder === null ? 'it did not say who it is' : `pid ${holder.pid} on ${holder.host}, since ${holder.since}`;
