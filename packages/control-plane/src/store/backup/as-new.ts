/**
 * Marks a database as restored, and removes the rows that a control plane on another machine must
 * not take over.
 */
import { randomUUID } from 'node:crypto';
import { sql } from 'kysely';
import { RESTORED, type Restored } from '../../domain/platform/backups.ts';
import { openPlain } from './plain.ts';

/** Tables with sessions, codes and one-time answers of the old machine. */
const OF_OLD_MACHINE = [
  'api_sessions',
  'device_codes',
  'used_codes',
  'kept_answers',
  'idempotency_keys',
];

/** Marks a migrated database as restored. */
export async function markRestored(databaseUrl: string, restored: Restored): Promise<void> {
  const { db } = openPlain(databaseUrl);
  try {
    await db.transaction().execute(async (tx) => {
      // The processes of these backups no longer exist, and their rows would block the schedule.
      await sql`delete from backups where finished_at is null`.execute(tx);
      // Volume copies that were identical at backup time might differ now: forget their digests. A
      // copy that was being received might be the project's newest data by now: Berth does not use
      // it, and only an admin can delete it.
      await sql`update volume_copies set digest = null, seen = null`.execute(tx);
      await sql`update volume_copies set state = 'left' where state = 'incoming'`.execute(tx);
      // Renews the claims of hosts: since the backup, another project might have had the host and
      // seen the cookies of its visitors.
      const claim = `restored-${randomUUID()}`;
      for (const table of ['prefix_claims', 'domain_claims'])
        await sql`update ${sql.table(table)} set id = ${claim}`.execute(tx);
      await sql`delete from meta where key = ${RESTORED}`.execute(tx);
      await sql`
        insert into meta (key, value) values (${RESTORED}, ${JSON.stringify(restored)})`.execute(
        tx,
      );
      if (!restored.as_new) return;
      for (const table of OF_OLD_MACHINE) await sql`delete from ${sql.table(table)}`.execute(tx);
      // Forgets the installation id: the old machine might still write backups into the same place,
      // and a machine deletes only the backups with its own id.
      await sql`delete from meta where key = 'installation'`.execute(tx);
    });
  } finally {
    await db.destroy();
  }
}
