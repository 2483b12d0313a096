/**
 * The feed of events, for the dashboard, the command line and webhooks.
 *
 * A reader requests the events after the last `seq` that it received, so events must become visible
 * in the order of `seq`. SQLite has one writer at a time. On PostgreSQL a transaction takes a lock
 * before it gets its numbers and holds the lock until it ends.
 */
import type { EventStore, FeedEvent } from '../domain/platform/event-store.ts';
import { sql } from 'kysely';
import type { Database } from './engine/database.ts';
import type { Tx } from './engine/tables.ts';
import type { Connection } from './engine/connection.ts';
import { visible } from './project-access.ts';
import { contains } from './search.ts';

/** Number of events to keep, and number of new events after which older ones are removed. */
const KEPT = 10_000;
const TRIM_EVERY = 200;

export type NewEvent = Pick<FeedEvent, 'at' | 'kind' | 'message'> &
  Partial<Pick<FeedEvent, 'project_id' | 'deployment_id' | 'node_id' | 'dataset_id' | 'user_id'>>;

/**
 * Writes events. Call it last in a transaction: it takes a lock that other writers wait for, so the
 * transaction must not wait after this call.
 */
export async function writeEvents(
  { capabilities }: Pick<Connection, 'capabilities'>,
  tx: Tx,
  events: readonly NewEvent[],
): Promise<void> {
  if (events.length === 0) return;
  await capabilities.lockName(tx, 'events');
  const rows = events.map(
    ({
      project_id = null,
      deployment_id = null,
      node_id = null,
      dataset_id = null,
      user_id = null,
      ...event
    }) => ({
      ...event,
      project_id,
      deployment_id,
      node_id,
      dataset_id,
      user_id,
    }),
  );
  const written = await tx.insertInto('events').values(rows).returning('seq').execute();
  const [first, last] = [written[0]?.seq ?? 0, written.at(-1)?.seq ?? 0];
  if (Math.floor(last / TRIM_EVERY) === Math.floor((first - 1) / TRIM_EVERY)) return;
  await tx
    .deleteFrom('events')
    .where('seq', '<=', last - KEPT)
    .execute();
}

export const createEventStore = (db: Database): EventStore => ({
  read: (after, limit, access, { before, find, reader } = {}) =>
    db.snapshot(async (tx) => {
      const end = async (order: 'asc' | 'desc'): Promise<number | null> =>
        (
          await tx
            .selectFrom('events')
            .select('seq')
            .orderBy('seq', order)
            .limit(1)
            .executeTakeFirst()
        )?.seq ?? null;
      const [oldest, newest] = [await end('asc'), await end('desc')];
      const seen = visible(access, 'events.project_id');
      const events = tx
        .selectFrom('events')
        .selectAll()
        .$if(seen !== null, (q) =>
          q.where((eb) => eb.or([eb('project_id', 'is', null), seen ?? sql<boolean>`1 = 1`])),
        )
        .$if(before !== undefined, (q) => q.where('seq', '<', before ?? 0))
        .$if(reader !== undefined, (q) =>
          q.where((eb) => eb.or([eb('user_id', 'is', null), eb('user_id', '=', reader ?? '')])),
        )
        .$if(find !== undefined, (q) => q.where(contains(['kind', 'message'], find ?? '')));
      if (after === null) {
        const items = await events.orderBy('seq', 'desc').limit(limit).execute();
        return { items: items.toReversed(), oldest, newest: newest ?? 0, gap: false };
      }
      // True if `after` is older than the kept events, or newer than all events of a database that
      // was restored from a backup.
      const gap = (oldest !== null && after < oldest - 1) || after > (newest ?? 0);
      const items = await events
        .where('seq', '>', gap ? 0 : after)
        .orderBy('seq')
        .limit(limit)
        .execute();
      return { items, oldest, newest: newest ?? 0, gap };
    }),
});

export const datasetEvent = (
  dataset: { id: string },
  what: string,
  message: string,
  at: number,
): NewEvent => ({
  at,
  kind: `dataset.${what}`,
  dataset_id: dataset.id,
  message,
});
