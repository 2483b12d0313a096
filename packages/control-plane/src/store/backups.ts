import { sql } from 'kysely';
import {
  type BackupRecord,
  type BackupStore,
  LONGEST_BACKUP_MS,
} from '../domain/platform/backups.ts';
import type { Database } from './engine/database.ts';
import type { Row, Tx } from './engine/tables.ts';

/**
 * Number of rows kept, separately for successful backups and for all others: many failures must not
 * remove the last successful backup.
 */
const KEPT = 100;
const LONGEST_ERROR = 500;

export function createBackupStore(db: Database): BackupStore {
  return {
    begin: ({ scheduled, ...backup }, unlessRunning) =>
      db.write(async (tx) => {
        await db.capabilities.lockName(tx, 'backups');
        const running = await tx
          .selectFrom('backups')
          .select('id')
          .where('finished_at', 'is', null)
          .where('started_at', '>', backup.started_at - LONGEST_BACKUP_MS)
          .limit(1)
          .executeTakeFirst();
        if (unlessRunning && running !== undefined) return false;
        await tx
          .insertInto('backups')
          .values({
            ...backup,
            scheduled: scheduled ? 1 : 0,
            name: null,
            bytes: null,
            error: null,
            finished_at: null,
          })
          .execute();
        await trim(tx, true);
        await trim(tx, false);
        return true;
      }),

    async end(id, result, now) {
      const set = 'error' in result ? { error: result.error.slice(0, LONGEST_ERROR) } : result;
      await db.writeOne((kysely) =>
        kysely
          .updateTable('backups')
          .set({ ...set, finished_at: now })
          .where('id', '=', id)
          .execute(),
      );
    },

    async list() {
      const rows = await db.kysely
        .selectFrom('backups')
        .selectAll()
        .orderBy('started_at', 'desc')
        .execute();
      return rows.map(recordOf);
    },
  };
}

async function trim(tx: Tx, good: boolean): Promise<void> {
  const isGood = sql<boolean>`(finished_at is not null and error is null)`;
  const which = good ? isGood : sql<boolean>`not ${isGood}`;
  const last = await tx
    .selectFrom('backups')
    .select('started_at')
    .where(which)
    .orderBy('started_at', 'desc')
    .offset(KEPT)
    .limit(1)
    .executeTakeFirst();
  if (last !== undefined)
    await tx
      .deleteFrom('backups')
      .where(which)
      .where('started_at', '<=', last.started_at)
      .execute();
}

const recordOf = ({ scheduled, ...row }: Row<'backups'>): BackupRecord => ({
  ...row,
  scheduled: scheduled === 1,
});
