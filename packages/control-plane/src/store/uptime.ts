/** The uptime clock in its one row. Control planes that raise it at the same moment leave the larger value. */
import type { UptimeStore } from '../domain/uptime.ts';
import type { Database } from './engine/database.ts';

const ROW = 1;

export function createUptimeStore(db: Database): UptimeStore {
  return {
    async read(initial) {
      const row = await db.writeOne((kysely) =>
        kysely
          .insertInto('uptime')
          .values({ id: ROW, clock: initial })
          .onConflict((oc) => oc.column('id').doUpdateSet((eb) => ({ clock: eb.ref('uptime.clock') })))
          .returning('clock')
          .executeTakeFirstOrThrow(),
      );
      await sinceUptime(db);
      return row.clock;
    },

    async raise(at) {
      // The clock is written again in a second: it does not wait for the disk.
      const row = await db.writeOne((kysely) =>
        db.capabilities.unsynced(kysely, (one) =>
          one
            .insertInto('uptime')
            .values({ id: ROW, clock: at })
            .onConflict((oc) =>
              oc.column('id').doUpdateSet((eb) => ({
                clock: eb
                  .case()
                  .when('excluded.clock', '>', eb.ref('uptime.clock'))
                  .then(eb.ref('excluded.clock'))
                  .else(eb.ref('uptime.clock'))
                  .end(),
              })),
            )
            .returning('clock')
            .executeTakeFirstOrThrow(),
        ),
      );
      return row.clock;
    },
  };
}

const OBSERVED_BY = 'nodes.observed_by';

/**
 * Once: an earlier version wrote by the machine's clock when nodes were observed, which cannot be compared. Nodes report within half a
 * minute. Where another control plane may still be of that version nothing is changed: what lies in the future counts as not known
 * (flow/single-writer.ts).
 */
async function sinceUptime(db: Database): Promise<void> {
  if (db.capabilities.sharedByControlPlanes) return;
  await db.write(async (tx) => {
    const marked = await tx
      .insertInto('meta')
      .values({ key: OBSERVED_BY, value: 'uptime' })
      .onConflict((oc) => oc.column('key').doNothing())
      .returning('key')
      .executeTakeFirst();
    if (marked !== undefined) await tx.updateTable('nodes').set({ observed_at: null, observed_since: null }).execute();
  });
}
