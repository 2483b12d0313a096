/**
 * What this process keeps of nodes in memory, so that ten thousand agents that say the same as before cost no write each.
 *
 * Marks: when a node was last seen and polled, and its free storage and disk, which change with every look. Written by one statement
 * for all (`flush`, a loop calls it every second); a crash loses that much and no more. Whoever reads a node here gets the
 * newest of both (`newest`).
 * Rows: as last written; an agent's report is compared with its row. Where no other control plane can write them they are all
 * here, and a decision does not read ten thousand of them anew. Where others can, each is kept with its `print`, which every write
 * of the node's marks compares: a row that somebody else wrote is dropped within a second, and the next report meets the new one.
 */
import type { NodeDisk } from '@berth/wire/node';
import type { NodeRole } from '@berth/wire/vocabulary';
import { sql } from 'kysely';
import type { NodeRecord } from '../../domain/records.ts';
import type { Database } from '../engine/database.ts';
import type { Db } from '../engine/tables.ts';
import { nodeOf } from '../rows/node.ts';
import type { Calm } from './calm.ts';
import type { Row } from '../engine/tables.ts';

type NodeRow = Row<'nodes'>;
type Mark = Partial<Pick<NodeRow, 'last_seen_at' | 'observed_at' | 'observed_since' | 'last_polled_at' | 'free_storage'>> & {
  disk?: NodeDisk;
};

export type NodeMemory = {
  /** For a report that may be the same as before; where there are other control planes it is as of the node's last mark. */
  find(hostname: string, role: NodeRole): NodeRow | undefined;
  /** As `find`, by its id. */
  last(id: string): NodeRow | undefined;
  /** Exact, so only where there are no others. */
  get(id: string): NodeRow | undefined;
  /** A row that was just read or written. `print`: '' where nobody else writes; without one, it is only kept there. */
  keep(row: NodeRow, print: string | null): void;
  /** All that was heard is in its row now, but for its last poll. `at`: the uptime clock. */
  written(id: string, at: number): void;
  /** When its agent registered here last, by the uptime clock; null: not since this process began. */
  heardAt(id: string): number | null;
  hear(id: string, at: number): void;
  forget(id: string): void;
  mark(id: string, mark: Mark): void;
  /** The row with what was heard of its node since it was written. */
  present(row: NodeRow): NodeRecord;
  /** All nodes as they now are, by host name; read once, then kept. `db`: where the caller reads. */
  all(db: Db): Promise<NodeRecord[]>;
  flush(): Promise<void>;
};

const ROWS_A_STATEMENT = 5000;

/** What of a row others may change, beside the marks. */
const WRITTEN = [
  'hostname',
  'host_ip',
  'max_storage',
  'max_builds',
  'agent_version',
  'boot_id',
  'arch',
  'engine',
  'capabilities',
  'secret_hash',
  'secret_used',
  'boots',
  'schedulable',
  'deleting_at',
  'cached',
  'copy_rate',
  'drain',
  'containers',
] as const satisfies readonly (keyof NodeRow)[];
export const printOf = (db: Database) => db.capabilities.digest(WRITTEN.map((column) => `nodes.${column}`)).as('print');

export function createNodeMemory(db: Database, calm: Calm): NodeMemory {
  const shared = db.capabilities.sharedByControlPlanes;
  const rows = new Map<string, NodeRow>();
  const prints = new Map<string, string>();
  /** Made once for each row: whoever compares what a node has reported may compare identities. */
  const made = new WeakMap<NodeRow, NodeRecord>();
  const ids = new Map<string, string>();
  /** All that was heard, and which of it is not written yet. */
  const heard = new Map<string, Mark>();
  let unwritten = new Map<string, Mark>();
  const heardAt = new Map<string, number>();
  /** Of every row there is, in order; null: to be made anew. Records are values: nobody changes one. */
  let records: Map<string, NodeRecord> | null = null;
  let flushing: Promise<void> = Promise.resolve();
  const nameOf = (hostname: string, role: NodeRole): string => `${role} ${hostname}`;

  function drop(id: string): void {
    const row = rows.get(id);
    if (row !== undefined) ids.delete(nameOf(row.hostname, row.role));
    rows.delete(id);
    prints.delete(id);
    records?.delete(id);
    calm.forget(id);
  }

  function forget(id: string): void {
    drop(id);
    heard.delete(id);
    heardAt.delete(id);
    unwritten.delete(id);
  }

  function recordOf(row: NodeRow): NodeRecord {
    const known = made.get(row) ?? nodeOf(row);
    made.set(row, known);
    return known;
  }

  /** With what was heard of its node since it was written. */
  function newest(row: NodeRecord): NodeRecord {
    const mark = heard.get(row.id);
    if (mark === undefined) return row;
    const later = (a: number | null | undefined, b: number | null | undefined): number | null => Math.max(a ?? 0, b ?? 0) || null;
    // What another control plane has written since is newer than what was heard here.
    const here = (mark.last_seen_at ?? 0) >= (row.last_seen_at ?? 0);
    return {
      ...row,
      last_seen_at: Math.max(row.last_seen_at, mark.last_seen_at ?? 0),
      observed_at: later(row.observed_at, mark.observed_at),
      last_polled_at: later(row.last_polled_at, mark.last_polled_at),
      free_storage: here && mark.free_storage !== undefined ? mark.free_storage : (row.free_storage ?? null),
      disk: here && mark.disk !== undefined ? mark.disk : row.disk,
    };
  }

  async function write(): Promise<void> {
    const batch = unwritten;
    if (batch.size === 0) return;
    unwritten = new Map();
    const all = [...batch];
    try {
      while (all.length > 0) {
        const part = all.slice(0, ROWS_A_STATEMENT);
        const there = await db.writeOne((kysely) => db.capabilities.unsynced(kysely, (one) => statement(db, part).execute(one)));
        all.splice(0, part.length);
        const known = new Set(there.rows.map((row) => row.id));
        for (const { id, print } of there.rows) if (shared && prints.has(id) && prints.get(id) !== print) drop(id);
        // Deleted by another control plane: its agent is told to register anew by its next poll.
        for (const [id] of part) if (!known.has(id)) forget(id);
      }
    } catch (error) {
      for (const [id, mark] of all) unwritten.set(id, { ...mark, ...unwritten.get(id) });
      throw error;
    }
  }

  return {
    find: (hostname, role) => rows.get(ids.get(nameOf(hostname, role)) ?? ''),
    last: (id) => rows.get(id),
    get: (id) => (shared ? undefined : rows.get(id)),
    keep(row, print) {
      if (shared && print === null) return drop(row.id);
      calm.forget(row.id);
      const before = rows.get(row.id);
      const renamed = before !== undefined && nameOf(before.hostname, before.role) !== nameOf(row.hostname, row.role);
      if (renamed) ids.delete(nameOf(before.hostname, before.role));
      // A new one has its place among the others, and so has a new name.
      if (!renamed && records?.has(row.id) === true) records.set(row.id, recordOf(row));
      else records = null;
      if (print !== null) prints.set(row.id, print);
      rows.set(row.id, row);
      ids.set(nameOf(row.hostname, row.role), row.id);
    },
    heardAt: (id) => heardAt.get(id) ?? null,
    hear: (id, at) => void heardAt.set(id, at),
    written(id, at) {
      heardAt.set(id, at);
      const { last_polled_at } = heard.get(id) ?? {};
      const rest = last_polled_at === undefined ? {} : { last_polled_at };
      heard.set(id, rest);
      if (unwritten.has(id)) unwritten.set(id, rest);
    },
    forget,
    mark(id, mark) {
      heard.set(id, { ...heard.get(id), ...mark });
      unwritten.set(id, { ...unwritten.get(id), ...mark });
    },
    present: (row) => newest(recordOf(row)),
    async all(from) {
      if (records === null) {
        const read = await from.selectFrom('nodes').selectAll().orderBy('hostname').orderBy('role').execute();
        if (shared) return read.map((row) => newest(nodeOf(row)));
        const fresh = new Map<string, NodeRecord>();
        for (const row of read) {
          // The row that is kept already says the same; reports are compared with its record's very lists.
          const kept = rows.get(row.id) ?? row;
          rows.set(row.id, kept);
          ids.set(nameOf(row.hostname, row.role), row.id);
          fresh.set(row.id, recordOf(kept));
        }
        records = fresh;
      }
      return [...records.values()].map(newest);
    },
    flush() {
      // One after the other, and whoever asks during a run waits for one that began after the question.
      const next = flushing.then(write, write);
      flushing = next.catch(() => undefined);
      return next;
    },
  };
}

/** What another control plane wrote meanwhile is not taken back by one that was stopped for an hour and goes on. */
const later = (there: string, heard: string) =>
  sql`case when ${sql.ref(there)} is null or ${sql.ref(heard)} > ${sql.ref(there)} then ${sql.ref(heard)} else ${sql.ref(there)} end`;

/** The casts tell PostgreSQL the type of a column that may be all null. */
function statement(db: Database, part: readonly (readonly [string, Mark])[]) {
  const marks = part.map(([id, m]) => [
    id,
    m.last_seen_at,
    m.observed_at,
    m.last_polled_at,
    m.free_storage,
    m.observed_since,
    m.disk && JSON.stringify(m.disk),
  ]);
  return sql<{ id: string; print: string }>`
    with marks(id, seen, observed, polled, free, since, disk) as (
      select value ->> 0, cast(value ->> 1 as bigint), cast(value ->> 2 as bigint), cast(value ->> 3 as bigint), cast(value ->> 4 as double precision), cast(value ->> 5 as bigint), value ->> 6
      from ${db.capabilities.elements(JSON.stringify(marks))})
    update nodes set
      last_seen_at = ${later('nodes.last_seen_at', 'marks.seen')},
      observed_at = ${later('nodes.observed_at', 'marks.observed')},
      observed_since = ${later('nodes.observed_since', 'marks.since')},
      last_polled_at = ${later('nodes.last_polled_at', 'marks.polled')},
      free_storage = case when marks.seen >= nodes.last_seen_at and marks.free is not null then marks.free else nodes.free_storage end,
      disk = case when marks.seen >= nodes.last_seen_at and marks.disk is not null then marks.disk else nodes.disk end
    from marks where nodes.id = marks.id
    returning nodes.id, ${printOf(db)}`;
}
