/**
 * The uptime clock, stored in one row. If several control planes advance it at the same moment, the
 * larger value stays.
 */
import type { UptimeStore } from '../domain/platform/uptime.ts';
import type { Database } from './engine/database.ts';

const ROW = 1;

export function createUptimeStore(db: Database): UptimeStore {
  return {
    async read(initial) {
      const row = await db.writeOne((kysely) =>
        kysely
          .insertInto('uptime')
          .values({ id: ROW, clock: initial })
          .onConflict((oc) =>
            oc.column('id').doUpdateSet((eb) => ({ clock: eb.ref('uptime.clock') })),
          )
          .returning('clock')
          .executeTakeFirstOrThrow(),
      );
      await sinceUptime(db);
      return row.clock;
    },

    async raise(at) {
      // Does not wait for the disk, because the clock is written again in 1 s.
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
 * Clears observation times once: an older version wrote them by the machine's clock, which cannot
 * be compared with the uptime clock. Nodes report again within 30 s. If another control plane might
 * still run that version, the times stay, and a time in the future counts as unknown
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
    if (marked !== undefined)
      await tx.updateTable('nodes').set({ observed_at: null, observed_since: null }).execute();
  });
}
