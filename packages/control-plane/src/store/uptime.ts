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
