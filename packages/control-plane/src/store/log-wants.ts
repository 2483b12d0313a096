/**
 * Table `log_wants`: the container logs that people are reading now. Rows expire after seconds
 * unless their control plane renews them.
 */
import type { LogWantStore, WantRecord } from '../domain/deployments/runtime-logs.ts';
import type { Database } from './engine/database.ts';

/**
 * Maximum number of rows, far above the limits of the control planes (api/runtime-logs/readers.ts).
 */
const MOST = 1_000;

export const createLogWantStore = (db: Database): LogWantStore => ({
  async put(want, uptime) {
    await db.writeUnsynced(async (tx) => {
      await tx.deleteFrom('log_wants').where('expires_at', '<=', uptime).execute();
      await tx
        .insertInto('log_wants')
        .values(want)
        .onConflict((oc) => oc.columns(['key', 'owner']).doUpdateSet(want))
        .execute();
    });
  },
  async remove(key, owner) {
    await db.writeUnsynced((tx) =>
      tx.deleteFrom('log_wants').where('key', '=', key).where('owner', '=', owner).execute(),
    );
  },
  async removeOwner(owner) {
    await db.writeUnsynced((tx) => tx.deleteFrom('log_wants').where('owner', '=', owner).execute());
  },
  async list(uptime, node_id): Promise<WantRecord[]> {
    return db.kysely
      .selectFrom('log_wants')
      .selectAll()
      .where('expires_at', '>', uptime)
      .$if(node_id !== undefined, (q) => q.where('node_id', '=', node_id ?? ''))
      .orderBy('key')
      .limit(MOST)
      .execute();
  },
});
