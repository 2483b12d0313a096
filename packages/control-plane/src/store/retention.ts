/**
 * Removes old history in small steps (domain/deployments/retention.ts), and returns freed space to
 * the file system.
 */
import type {
  Keep,
  Removed,
  RetentionPass,
  RetentionStore,
} from '../domain/deployments/retention.ts';
import type { Database } from './engine/database.ts';
import { forgetNodes } from './forgotten-nodes.ts';
import { limitLogs } from './log-limit.ts';
import { createFirstProtected } from './first-protected.ts';
import type { NodeMemory } from './memory/node-memory.ts';
import { isSync } from './task-row.ts';
import { removeExpired } from './sweep.ts';
import { thinOld } from './deployment-retention.ts';
import { removeUnreachableCopies } from './volumes.ts';

/**
 * How long to keep finished `sync` tasks: they are listed for 1 h, and an agent can send their
 * reports again.
 */
const SYNCS_KEPT_MS = 7 * 86_400_000;
const SYNCS_PER_STEP = 100;
/**
 * After every 500 steps of removal, up to 200 steps return free space to the file system, so that a
 * full disk gets space before the pass ends.
 */
const STEPS_PER_SHRINK = 500;
const SHRINK_STEPS = 200;
const CLAIM_KEY = 'retention_claim';

export function createRetentionStore(db: Database, memory: NodeMemory): RetentionStore {
  const { shrinkFile, sharedByControlPlanes, rowLocks } = db.capabilities;

  async function* shrink(most: number): AsyncGenerator<void, void, void> {
    if (shrinkFile === null) return;
    for (let done = 0; done < most && (await shrinkFile(db)); done++) yield;
  }

  async function* removeAll(keep: Keep, now: () => number): AsyncGenerator<void, Removed, void> {
    const firstProtected = createFirstProtected(db.kysely, keep.deployments);
    const before = now() - keep.ms;
    const thinned = yield* thinOld(db, { before, firstProtected, now });
    const logs = yield* limitLogs(db, { limit: keep.logBytes, firstProtected, now });
    yield* oldSyncs(db, now() - SYNCS_KEPT_MS);
    await removeUnreachableCopies(db, before);
    yield;
    const nodes = yield* forgetNodes(db, memory, { before, now: now() });
    while ((await removeExpired(db, 'idempotency_keys', now())) > 0) yield;
    return { thinned, logs, nodes };
  }

  async function* pass(keep: Keep, now: () => number): RetentionPass {
    const work = removeAll(keep, now);
    for (let steps = 1; ; steps++) {
      const { done, value } = await work.next();
      if (done === true) {
        yield* shrink(Number.POSITIVE_INFINITY);
        return value;
      }
      yield;
      if (steps % STEPS_PER_SHRINK === 0) yield* shrink(SHRINK_STEPS);
    }
  }

  return {
    begin: (keep, now) => Promise.resolve(pass(keep, now)),

    claim(by, now, until) {
      if (!sharedByControlPlanes) return Promise.resolve(true);
      return db.write(async (tx) => {
        const value = JSON.stringify({ by, until });
        const inserted = await tx
          .insertInto('meta')
          .values({ key: CLAIM_KEY, value })
          .onConflict((oc) => oc.column('key').doNothing())
          .returning('key')
          .executeTakeFirst();
        if (inserted !== undefined) return true;
        const row = await tx
          .selectFrom('meta')
          .select('value')
          .where('key', '=', CLAIM_KEY)
          .$if(rowLocks, (q) => q.forUpdate())
          .executeTakeFirstOrThrow();
        const held = JSON.parse(row.value) as { by: string; until: number };
        // An expiry later than that of a new claim means that the machine's clock was set back
        // since: the claim counts as expired.
        if (held.by !== by && held.until > now && held.until <= until) return false;
        await tx.updateTable('meta').set({ value }).where('key', '=', CLAIM_KEY).execute();
        return true;
      });
    },
  };
}

/**
 * Removes old `sync` tasks. Reads the index of all `sync` tasks page by page; they are few, because
 * old ones are removed.
 */
async function* oldSyncs(db: Database, before: number): AsyncGenerator<void, void, void> {
  for (let after: [string, number] = ['', 0]; ; ) {
    const page = await db.kysely
      .selectFrom('tasks')
      .select(['id', 'node_id', 'seq', 'finished_at'])
      .where(isSync)
      .where((eb) => eb(eb.refTuple('node_id', 'seq'), '>', eb.tuple(after[0], after[1])))
      .orderBy('node_id')
      .orderBy('seq')
      .limit(SYNCS_PER_STEP)
      .execute();
    const old = page.flatMap((task) =>
      task.finished_at !== null && task.finished_at < before ? [task.id] : [],
    );
    if (old.length > 0)
      await db.writeUnsynced((tx) => tx.deleteFrom('tasks').where('id', 'in', old).execute());
    const last = page.at(-1);
    yield;
    if (last === undefined || page.length < SYNCS_PER_STEP) return;
    after = [last.node_id, last.seq];
  }
}
