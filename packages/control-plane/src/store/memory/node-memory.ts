/**
 * Keeps nodes in memory, so that 10,000 agents that repeat their last report do not cause a write
 * each.
 *
 * Marks: when a node was last seen and last polled, its free storage and its disk usage. They
 * change with every report.
 *   Entry: `mark`, for each report. Exit: `forget`. `flush` writes new marks with one statement; a
 *   loop calls it every second, so a crash loses at most the marks of one second. Invariant: a
 *   record from this file has, for each value, the newer one of its row and its mark (`newest`).
 * Heard: when an agent last sent any request to this process, by the uptime clock. With several
 * control planes it is also written as a mark (`heard_at`), so the others know it after one second.
 * Rows: the last written row of each node, to compare a report with.
 *   Entry: `put`, after a row was read or written. Exit: `forget`; `drop`, when another control
 *   plane wrote the row. Invariant with one control plane: a row here equals the row in the
 *   database, so decisions need not read 10,000 rows again. Invariant with several control planes:
 *   each row has a fingerprint. Each `flush` of a node's mark compares it and drops the row if
 *   another control plane has changed it. So a row here is outdated for at most about one second
 *   after the node's next report.
 */
import { defined } from '@berth/kit/defined';
import { BEAT, type NodeDisk } from '@berth/wire/node';
import type { NodeRole } from '@berth/wire/vocabulary';
import { sql } from 'kysely';
import type { HeardNode } from '../../domain/nodes/failover.ts';
import type { NodeRecord } from '../../domain/platform/records.ts';
import type { Database } from '../engine/database.ts';
import type { Db, Row } from '../engine/tables.ts';
import { nodeOf } from '../rows/node.ts';
import type { NodeQueryCache } from './node-query-cache.ts';

type NodeRow = Row<'nodes'>;
type Mark = Partial<
  Pick<
    NodeRow,
    | 'last_seen_at'
    | 'observed_at'
    | 'observed_since'
    | 'last_polled_at'
    | 'heard_at'
    | 'free_storage'
  >
> & {
  disk?: NodeDisk;
};

export type NodeMemory = {
  /**
   * Returns the row to compare a report with. With several control planes, the row can be outdated
   * since the last flush of the node's mark.
   */
  find(hostname: string, role: NodeRole): NodeRow | undefined;
  /** Same as `find`, but by node id. */
  peek(id: string): NodeRow | undefined;
  /** Returns the current row of the database; always undefined with several control planes. */
  get(id: string): NodeRow | undefined;
  /**
   * Stores a row that was just read or written. `fingerprint`: '' with one control plane. With
   * several, a row whose fingerprint is null is dropped instead.
   */
  put(row: NodeRow, fingerprint: string | null): void;
  /**
   * Clears the marks that the written row now contains: all except `last_polled_at` and `heard_at`.
   * `at`: by the uptime clock.
   */
  rowWritten(id: string, at: number): void;
  /**
   * Returns when the agent last sent a request to this process, by the uptime clock; null if it
   * never did.
   */
  heardAt(id: string): number | null;
  setHeardAt(id: string, at: number): void;
  forget(id: string): void;
  mark(id: string, mark: Mark): void;
  /** Returns the record of the row, with the node's newer marks. */
  recordOf(row: NodeRow): NodeRecord;
  /**
   * Returns all nodes, sorted by host name. With one control plane, they are read from the database
   * once. `db`: the caller's transaction.
   */
  all(db: Db): Promise<NodeRecord[]>;
  /** Returns when the agents of all deploy nodes were last heard, at any control plane. */
  heardNodes(db: Db): Promise<HeardNode[]>;
  /** Writes the marks that are not in the database yet. */
  flush(): Promise<void>;
};

const ROWS_A_STATEMENT = 5000;

/** Columns that another control plane can change, without the columns of marks. */
const FINGERPRINT_COLUMNS = [
  'hostname',
  'host_ip',
  'max_storage',
  'max_builds',
  'agent_version',
  'boot_id',
  'arch',
  'cpus',
  'memory_bytes',
  'labels',
  'admin_labels',
  'devices',
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

/**
 * The state of the store (see the top of this file). Each map is by node id unless its comment says
 * otherwise.
 */
type Memory = {
  readonly db: Database;
  readonly queryCache: NodeQueryCache;
  /** Whether other control planes use the same database. */
  readonly shared: boolean;
  /** The last written row of each node. */
  readonly rows: Map<string, NodeRow>;
  readonly fingerprints: Map<string, string>;
  /** One record for each row, so that reported lists can be compared by identity. */
  readonly recordsByRow: WeakMap<NodeRow, NodeRecord>;
  /** Maps role and host name (`nameOf`) to the node id. */
  readonly ids: Map<string, string>;
  /** The newest mark of each node, written or not. */
  readonly marks: Map<string, Mark>;
  /** Marks that are not in the database yet. */
  unwritten: Map<string, Mark>;
  /** When the agent last sent a request to this process, by the uptime clock. */
  readonly heardAt: Map<string, number>;
  /**
   * Records of all rows, in order; null if the next `all` must read them. Records are immutable.
   */
  records: Map<string, NodeRecord> | null;
  /** The running flush, or the last one. */
  flushing: Promise<void>;
};

export function createNodeMemory(db: Database, queryCache: NodeQueryCache): NodeMemory {
  const memory: Memory = {
    db,
    queryCache,
    shared: db.capabilities.sharedByControlPlanes,
    rows: new Map(),
    fingerprints: new Map(),
    recordsByRow: new WeakMap(),
    ids: new Map(),
    marks: new Map(),
    unwritten: new Map(),
    heardAt: new Map(),
    records: null,
    flushing: Promise.resolve(),
  };
  return {
    find: (hostname, role) => memory.rows.get(memory.ids.get(nameOf(hostname, role)) ?? ''),
    peek: (id) => memory.rows.get(id),
    get: (id) => (memory.shared ? undefined : memory.rows.get(id)),
    put: (row, fingerprint) => putRow(memory, row, fingerprint),
    heardAt: (id) => memory.heardAt.get(id) ?? null,
    setHeardAt: (id, at) => setHeardAt(memory, id, at),
    rowWritten: (id, at) => clearWrittenMarks(memory, id, at),
    forget: (id) => forgetNode(memory, id),
    mark: (id, mark) => addMark(memory, id, mark),
    recordOf: (row) => withMarks(memory, writtenRecord(memory, row)),
    all: (db) => allRecords(memory, db),
    heardNodes: (db) => heardNodes(memory, db),
    flush: () => flushMarks(memory),
  };
}

function nameOf(hostname: string, role: NodeRole): string {
  return `${role} ${hostname}`;
}

function dropRow(memory: Memory, id: string): void {
  const row = memory.rows.get(id);
  if (row !== undefined) memory.ids.delete(nameOf(row.hostname, row.role));
  memory.rows.delete(id);
  memory.fingerprints.delete(id);
  memory.records?.delete(id);
  memory.queryCache.forget(id);
}

function forgetNode(memory: Memory, id: string): void {
  dropRow(memory, id);
  memory.marks.delete(id);
  memory.heardAt.delete(id);
  memory.unwritten.delete(id);
}

function writtenRecord(memory: Memory, row: NodeRow): NodeRecord {
  const record = memory.recordsByRow.get(row) ?? nodeOf(row);
  memory.recordsByRow.set(row, record);
  return record;
}

const latest = (a: number | null | undefined, b: number | null | undefined): number | null =>
  Math.max(a ?? 0, b ?? 0) || null;

/** Returns the record with the node's newer marks. */
function withMarks(memory: Memory, row: NodeRecord): NodeRecord {
  const mark = memory.marks.get(row.id);
  if (mark === undefined) return row;
  // Another control plane might have written the row after this process made the mark.
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

async function writeMarks(memory: Memory): Promise<void> {
  const batch = memory.unwritten;
  if (batch.size === 0) return;
  memory.unwritten = new Map();
  const all = [...batch];
  try {
    while (all.length > 0) {
      const part = all.slice(0, ROWS_A_STATEMENT);
      const updated = await memory.db.writeOne((kysely) =>
        memory.db.capabilities.unsynced(kysely, (one) => statement(memory.db, part).execute(one)),
      );
      all.splice(0, part.length);
      const existing = new Set(updated.rows.map((row) => row.id));
      for (const { id, fingerprint } of updated.rows)
        if (
          memory.shared &&
          memory.fingerprints.has(id) &&
          memory.fingerprints.get(id) !== fingerprint
        )
          dropRow(memory, id);
      // Another control plane deleted the node. At its next poll, the agent is told to register
      // again.
      for (const [id] of part) if (!existing.has(id)) forgetNode(memory, id);
    }
  } catch (error) {
    for (const [id, mark] of all)
      memory.unwritten.set(id, { ...mark, ...memory.unwritten.get(id) });
    throw error;
  }
}

function putRow(memory: Memory, row: NodeRow, fingerprint: string | null): void {
  if (memory.shared && fingerprint === null) return dropRow(memory, row.id);
  memory.queryCache.forget(row.id);
  const before = memory.rows.get(row.id);
  const renamed =
    before !== undefined && nameOf(before.hostname, before.role) !== nameOf(row.hostname, row.role);
  if (renamed) memory.ids.delete(nameOf(before.hostname, before.role));
  // A new node or a new name changes the order of the records, so the next `all` reads them again.
  if (!renamed && memory.records?.has(row.id) === true)
    memory.records.set(row.id, writtenRecord(memory, row));
  else memory.records = null;
  if (fingerprint !== null) memory.fingerprints.set(row.id, fingerprint);
  memory.rows.set(row.id, row);
  memory.ids.set(nameOf(row.hostname, row.role), row.id);
}

function clearWrittenMarks(memory: Memory, id: string, at: number): void {
  const { last_polled_at, heard_at } = memory.marks.get(id) ?? {};
  const rest = defined({ last_polled_at, heard_at });
  memory.marks.set(id, rest);
  if (memory.unwritten.has(id)) memory.unwritten.set(id, rest);
  setHeardAt(memory, id, at);
}

function setHeardAt(memory: Memory, id: string, at: number): void {
  memory.heardAt.set(id, at);
  if (memory.shared) addMark(memory, id, { heard_at: at });
}

function addMark(memory: Memory, id: string, mark: Mark): void {
  memory.marks.set(id, { ...memory.marks.get(id), ...mark });
  memory.unwritten.set(id, { ...memory.unwritten.get(id), ...mark });
}

async function allRecords(memory: Memory, from: Db): Promise<NodeRecord[]> {
  if (memory.records === null) {
    const read = await from
      .selectFrom('nodes')
      .selectAll()
      .orderBy('hostname')
      .orderBy('role')
      .execute();
    if (memory.shared) return read.map((row) => withMarks(memory, nodeOf(row)));
    const fresh = new Map<string, NodeRecord>();
    for (const row of read) {
      // Keeps a row that is already in memory, because reports are compared by identity with the
      // lists of its record.
      const current = memory.rows.get(row.id) ?? row;
      memory.rows.set(row.id, current);
      memory.ids.set(nameOf(row.hostname, row.role), row.id);
      fresh.set(row.id, writtenRecord(memory, current));
    }
    memory.records = fresh;
  }
  return [...memory.records.values()].map((row) => withMarks(memory, row));
}

/**
 * Returns one small object for each deploy node. Does not copy the records, because a loop calls it
 * every second.
 */
async function heardNodes(memory: Memory, from: Db): Promise<HeardNode[]> {
  if (memory.shared) return sharedHeardNodes(memory, from);
  if (memory.records === null) await allRecords(memory, from);
  const nodes: HeardNode[] = [];
  for (const {
    id,
    role,
    hostname,
    host_ip,
    capabilities,
    observed_at,
    last_seen_at,
  } of memory.records?.values() ?? [])
    if (role === 'deploy') {
      const mark = memory.marks.get(id);
      nodes.push({
        id,
        hostname,
        host_ip,
        addressed_at: memory.rows.get(id)?.addressed_at ?? null,
        beats: capabilities?.includes(BEAT) === true,
        heard_at: memory.heardAt.get(id) ?? null,
        observed_at: mark?.observed_at ?? observed_at,
        last_seen_at: Math.max(last_seen_at, mark?.last_seen_at ?? 0),
      });
    }
  return nodes;
}

/** The time between the write of `observed_at` and that of `heard_at`, in ms. */
const FLUSH_MS = 2_000;

async function sharedHeardNodes(memory: Memory, from: Db): Promise<HeardNode[]> {
  const rows = await from
    .selectFrom('nodes')
    .select(['id', 'hostname', 'host_ip', 'capabilities'])
    .select(['heard_at', 'observed_at', 'last_seen_at', 'addressed_at'])
    .where('role', '=', 'deploy')
    .execute();
  return rows.map(({ capabilities, ...row }) => {
    const mark = memory.marks.get(row.id);
    const heard_at = latest(row.heard_at, mark?.heard_at);
    const observed_at = latest(row.observed_at, mark?.observed_at);
    // A control plane of an earlier version takes registrations, but no beats.
    const isHeard = heard_at !== null && heard_at >= (observed_at ?? 0) - FLUSH_MS;
    return {
      id: row.id,
      hostname: row.hostname,
      host_ip: row.host_ip,
      addressed_at: row.addressed_at,
      beats: isHeard && capabilities?.includes(`"${BEAT}"`) === true,
      heard_at,
      observed_at,
      last_seen_at: Math.max(row.last_seen_at, mark?.last_seen_at ?? 0),
    };
  });
}

function flushMarks(memory: Memory): Promise<void> {
  // Flushes run one after the other. A caller waits for a flush that begins after its call.
  const next = memory.flushing.then(
    () => writeMarks(memory),
    () => writeMarks(memory),
  );
  memory.flushing = next.catch(() => undefined);
  return next;
}

/**
 * Keeps the later time: a control plane that was paused for an hour must not overwrite newer times
 * of another control plane.
 */
const laterOf = (column: string, mark: string) =>
  sql`case when ${sql.ref(column)} is null or ${sql.ref(mark)} > ${sql.ref(column)}
    then ${sql.ref(mark)} else ${sql.ref(column)} end`;

/**
 * Returns the statement that writes the marks. The casts tell PostgreSQL the type of a column in
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
    m.heard_at,
  ]);
  return sql<{ id: string; fingerprint: string }>`
    with marks(id, seen, observed, polled, free, since, disk, heard) as (
      select value ->> 0, cast(value ->> 1 as bigint), cast(value ->> 2 as bigint),
        cast(value ->> 3 as bigint), cast(value ->> 4 as double precision),
        cast(value ->> 5 as bigint), value ->> 6, cast(value ->> 7 as bigint)
      from ${db.capabilities.jsonElements(JSON.stringify(marks))})
    update nodes set
      last_seen_at = ${laterOf('nodes.last_seen_at', 'marks.seen')},
      observed_at = ${laterOf('nodes.observed_at', 'marks.observed')},
      observed_since = ${laterOf('nodes.observed_since', 'marks.since')},
      last_polled_at = ${laterOf('nodes.last_polled_at', 'marks.polled')},
      heard_at = ${laterOf('nodes.heard_at', 'marks.heard')},
      free_storage = case when marks.seen >= nodes.last_seen_at and marks.free is not null
        then marks.free else nodes.free_storage end,
      disk = case when marks.seen >= nodes.last_seen_at and marks.disk is not null
        then marks.disk else nodes.disk end
    from marks where nodes.id = marks.id
    returning nodes.id, ${fingerprintOf(db)}`;
}
