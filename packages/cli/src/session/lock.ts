/**
 * A lock between processes: a SQLite transaction on an empty database. The kernel releases the lock
 * when its process ends, even by `kill -9`, so a lock is never left behind.
 */
import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CliError, EXIT } from '../problem.ts';

const BETWEEN_MS = 40;
/** Maximum wait for the lock in ms; longer than a token refresh, whose request ends after 15 s. */
const DEADLINE_MS = 40_000;
const BUSY = 5;

/** Runs `work` while holding the lock `path`. */
export async function withLock<T>(path: string, work: () => Promise<T>): Promise<T> {
  const { DatabaseSync } = await import('node:sqlite');
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const database = new DatabaseSync(path);
  try {
    const until = performance.now() + DEADLINE_MS;
    for (;;) {
      try {
        database.exec('BEGIN EXCLUSIVE');
        break;
      } catch (error) {
        if ((error as { errcode?: number }).errcode !== BUSY) throw error;
        if (performance.now() > until)
          throw new CliError(
            EXIT.refused,
            'locked',
            `another berth command has locked ${path} for ${DEADLINE_MS / 1000} s`,
            {
              cause: error,
            },
          );
        await sleep(BETWEEN_MS);
      }
    }
    return await work();
  } finally {
    database.close();
  }
}
