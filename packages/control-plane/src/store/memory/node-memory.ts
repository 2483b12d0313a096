/**
 * Nodes in memory, so that 10,000 agents that repeat their last report cost no write each.
 *
 * Marks: when a node was last seen and last polled, its free storage and its disk. They change with
 * every report.
 *   Entry: `mark`, for each report. Exit: `forget`. `flush` writes the new ones with one statement;
 *   a loop calls it every second, so a crash loses at most the marks of one second. Invariant: a
 *   record from this file has the newer of row and mark (`newest`).
 * Rows: the last written row of each node, to compare a report with.
 *   Entry: `put`, after a row was read or written. Exit: `forget`; `drop`, when another control
 *   plane wrote the row. Invariant, one control plane: a row here equals the row in the database,
 *   so decisions need not read 10,000 rows again. Invariant, several control planes: each row has a
 *   fingerprint. Each `flush` of a node's mark compares it and drops the row if another control
 *   plane changed it, so a row here is outdated for about one second at most after the node's next
 *   report.
 */
import type { NodeDisk } from '@berth/wire/node';
import type { NodeRole } from '@berth/wire/vocabulary';
import { sql } from 'kysely';
import type { NodeRecord } from '../../domain/platform/records.ts';
import type { Database } from '../engine/database.ts';
import type { Db } from '../engine/tables.ts';
import { nodeOf } from '../rows/node.ts';
import type { NodeQueryCache } from './node-query-cache.ts';
import type { Row } from '../engine/tables.ts';

type NodeRow = Row<'nodes'>;
type Mark = Partial<
  Pick<
    NodeRow,
    'last_seen_at' | 'observed_at' | 'observed_since' | 'last_polled_at' | 'free_storage'
  >
> & {
  disk?: NodeDisk;
};

export type NodeMemory = {
  /**
   * Returns the row to compare a report with. With several control planes it may be as old as the
   * node's last flushed mark.
   */
  find(hostname: string, role: NodeRole): NodeRow | undefined;
  /** Same as `find`, by id. */
  peek(id: string): NodeRow | undefined;
  /** Returns the row as it is in the database; always undefined with several control planes. */
  get(id: string): NodeRow | undefined;
  /**
   * Stores a row that was just read or written. `fingerprint`: '' with one control plane. With
   * several, a row whose fingerprint is null is dropped instead.
   */
  put(row: NodeRow, fingerprint: string | null): void;
  /**
   * Clears the marks that the row now contains: all but `last_polled_at`. `at`: by the uptime
   * clock.
   */
  rowWritten(id: string, at: number): void;
  /** Returns when the agent last registered at this process, by the uptime clock; null: never. */
  heardAt(id: string): number | null;
  setHeardAt(id: string, at: number): void;
  forget(id: string): void;
  mark(id: string, mark: Mark): void;
  /** Returns the record of the row, with the node's newer marks. */
  recordOf(row: NodeRow): NodeRecord;
  /**
   * Returns all present nodes, by host name. With one control plane they are read once. `db`: the
   * caller's transaction.
   */
  all(db: Db): Promise<NodeRecord[]>;
  /** Writes the marks that are not in the database yet. */
  flush(): Promise<void>;
};

const ROWS_A_STATEMENT = 5000;

/** Columns that another control plane may change, except those of marks. */
const FINGERPRINT_COLUMNS = [
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
  'shared_secret',
  'boots',
  'schedulable',
  'deleting_at',
  'cached',
  'copy_rate',
  'drain',
  'containers',
  'earlier_nodes',
] as const satisfies readonly (keyof NodeRow)[];
export const fingerprintOf = (db: Database) =>
  db.capabilities.digest(FINGERPRINT_COLUMNS.map((column) => `nodes.${column}`)).as('fingerprint');

export function createNodeMemory(db: Database, queryCache: NodeQueryCache): NodeMemory {
  const shared = db.capabilities.sharedByControlPlanes;
  const rows = new Map<string, NodeRow>();
  const fingerprints = new Map<string, string>();
  /** One record for each row, so that reported lists can be compared by identity. */
  const recordsByRow = new WeakMap<NodeRow, NodeRecord>();
  const ids = new Map<string, string>();
  const marks = new Map<string, Mark>();
  /** Marks that are not in the database yet. */
  let unwritten = new Map<string, Mark>();
  const heardAt = new Map<string, number>();
  /** Records of all rows, in order; null: the next `all` reads them. Records are immutable. */
  let records: Map<string, NodeRecord> | null = null;
  let flushing: Promise<void> = Promise.resolve();
  const nameOf = (hostname: string, role: NodeRole): string => `${role} ${hostname}`;

  function drop(id: string): void {
    const row = rows.get(id);
    if (row !== undefined) ids.delete(nameOf(row.hostname, row.role));
    rows.delete(id);
    fingerprints.delete(id);
    records?.delete(id);
    queryCache.forget(id);
  }

  function forget(id: string): void {
    drop(id);
    marks.delete(id);
    heardAt.delete(id);
    unwritten.delete(id);
  }

  function writtenRecord(row: NodeRow): NodeRecord {
    const record = recordsByRow.get(row) ?? nodeOf(row);
    recordsByRow.set(row, record);
    return record;
  }

  /** Returns the record with the node's newer marks. */
  function newest(row: NodeRecord): NodeRecord {
    const mark = marks.get(row.id);
    if (mark === undefined) return row;
    const latest = (a: number | null | undefined, b: number | null | undefined): number | null =>
      Math.max(a ?? 0, b ?? 0) || null;
    // Another control plane may have written the row after the mark was made here.
    const isMarkNewer = (mark.last_seen_at ?? 0) >= (row.last_seen_at ?? 0);
    return {
      ...row,
      last_seen_at: Math.max(row.last_seen_at, mark.last_seen_at ?? 0),
      observed_at: latest(row.observed_at, mark.observed_at),
      observed_since: latest(row.observed_since, mark.observed_since),
      last_polled_at: latest(row.last_polled_at, mark.last_polled_at),
      free_storage:
        isMarkNewer && mark.free_storage !== undefined
          ? mark.free_storage
          : (row.free_storage ?? null),
      disk: isMarkNewer && mark.disk !== undefined ? mark.disk : row.disk,
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
        const updated = await db.writeOne((kysely) =>
          db.capabilities.unsynced(kysely, (one) => statement(db, part).execute(one)),
        );
        all.splice(0, part.length);
        const existing = new Set(updated.rows.map((row) => row.id));
        for (const { id, fingerprint } of updated.rows)
          if (shared && fingerprints.has(id) && fingerprints.get(id) !== fingerprint) drop(id);
        // Another control plane deleted the node. The next poll tells its agent to register again.
        for (const [id] of part) if (!existing.has(id)) forget(id);
      }
    } catch (error) {
      for (const [id, mark] of all) unwritten.set(id, { ...mark, ...unwritten.get(id) });
      throw error;
    }
  }

  return {
    find: (hostname, role) => rows.get(ids.get(nameOf(hostname, role)) ?? ''),
    peek: (id) => rows.get(id),
    get: (id) => (shared ? undefined : rows.get(id)),
    put(row, fingerprint) {
      if (shared && fingerprint === null) return drop(row.id);
      queryCache.forget(row.id);
      const before = rows.get(row.id);
      const renamed =
        before !== undefined &&
        nameOf(before.hostname, before.role) !== nameOf(row.hostname, row.role);
      if (renamed) ids.delete(nameOf(before.hostname, before.role));
      // A new node or a new name changes the order of the records, so they are read again.
      if (!renamed && records?.has(row.id) === true) records.set(row.id, writtenRecord(row));
      else records = null;
      if (fingerprint !== null) fingerprints.set(row.id, fingerprint);
      rows.set(row.id, row);
      ids.set(nameOf(row.hostname, row.role), row.id);
    },
    heardAt: (id) => heardAt.get(id) ?? null,
    setHeardAt: (id, at) => void heardAt.set(id, at),
    rowWritten(id, at) {
      heardAt.set(id, at);
      const { last_polled_at } = marks.get(id) ?? {};
      const rest = last_polled_at === undefined ? {} : { last_polled_at };
      marks.set(id, rest);
      if (unwritten.has(id)) unwritten.set(id, rest);
    },
    forget,
    mark(id, mark) {
      marks.set(id, { ...marks.get(id), ...mark });
      unwritten.set(id, { ...unwritten.get(id), ...mark });
    },
    recordOf: (row) => newest(writtenRecord(row)),
    async all(from) {
      if (records === null) {
        const read = await from
          .selectFrom('nodes')
          .selectAll()
          .orderBy('hostname')
          .orderBy('role')
          .execute();
        if (shared) return read.map((row) => newest(nodeOf(row)));
        const fresh = new Map<string, NodeRecord>();
        for (const row of read) {
          // A row that is in memory already stays, because reports are compared with the lists of
          // its record by identity.
          const current = rows.get(row.id) ?? row;
          rows.set(row.id, current);
          ids.set(nameOf(row.hostname, row.role), row.id);
          fresh.set(row.id, writtenRecord(current));
        }
        records = fresh;
      }
      return [...records.values()].map(newest);
    },
    flush() {
      // Flushes run one after the other. A caller waits for a flush that began after its call.
      const next = flushing.then(write, write);
      flushing = next.catch(() => undefined);
      return next;
    },
  };
}

/**
 * Keeps the later time: a control plane that was paused for an hour must not overwrite newer times
 * of another one.
 */
const laterOf = (column: string, mark: string) =>
  sql`case when ${sql.ref(column)} is null or ${sql.ref(mark)} > ${sql.ref(column)} then ${sql.ref(mark)} else ${sql.ref(column)} end`;

/**
 * Returns the statement that writes the marks. The casts give PostgreSQL the type of a column in
 * which every value is null.
 */
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
  return sql<{ id: string; fingerprint: string }>`
    with marks(id, seen, observed, polled, free, since, disk) as (
      select value ->> 0, cast(value ->> 1 as bigint), cast(value ->> 2 as bigint), cast(value ->> 3 as bigint), cast(value ->> 4 as double precision), cast(value ->> 5 as bigint), value ->> 6
      from ${db.capabilities.jsonElements(JSON.stringify(marks))})
    update nodes set
      last_seen_at = ${laterOf('nodes.last_seen_at', 'marks.seen')},
      observed_at = ${laterOf('nodes.observed_at', 'marks.observed')},
      observed_since = ${laterOf('nodes.observed_since', 'marks.since')},
      last_polled_at = ${laterOf('nodes.last_polled_at', 'marks.polled')},
      free_storage = case when marks.seen >= nodes.last_seen_at and marks.free is not null then marks.free else nodes.free_storage end,
      disk = case when marks.seen >= nodes.last_seen_at and marks.disk is not null then marks.disk else nodes.disk end
    from marks where nodes.id = marks.id
    returning nodes.id, ${fingerprintOf(db)}`;
}
