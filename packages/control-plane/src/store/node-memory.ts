/**
 * What this process keeps of nodes in memory, so that ten thousand agents that say the same as before cost no write each.
 *
 * Marks: when a node was last seen and polled, and its free storage, which changes with every look. Written by one statement
 * for all (`flush`, a loop calls it every second); a crash loses that much and no more. Whoever reads a node here gets the
 * newest of both (`newest`).
 * Rows: as last written, where no other control plane can write them; an agent's report is compared with its row, and a
 * decision does not read ten thousand of them anew.
 */
import type { NodeRole } from '@berth/wire/vocabulary';
import { sql } from 'kysely';
import type { NodeRecord } from '../domain/records.ts';
import type { Database, Db } from './database.ts';
import { nodeOf } from './rows/node.ts';
import type { Row } from './tables.ts';

type NodeRow = Row<'nodes'>;
type Mark = Partial<Pick<NodeRow, 'last_seen_at' | 'observed_at' | 'last_polled_at' | 'free_storage'>>;

export type NodeMemory = {
  find(hostname: string, role: NodeRole): NodeRow | undefined;
  get(id: string): NodeRow | undefined;
  keep(row: NodeRow): void;
  /** All that was heard is in its row now, but for its last poll. */
  written(id: string): void;
  forget(id: string): void;
  mark(id: string, mark: Mark): void;
  /** The row with what was heard of its node since it was written. */
  newest<T extends NodeRow | NodeRecord>(row: T): T;
  /** All nodes as they now are, by host name; read once, then kept. `db`: where the caller reads. */
  all(db: Db): Promise<NodeRecord[]>;
  flush(): Promise<void>;
};

const ROWS_A_STATEMENT = 5000;

export function createNodeMemory(db: Database): NodeMemory {
  const rows = new Map<string, NodeRow>();
  const ids = new Map<string, string>();
  /** All that was heard, and which of it is not written yet. */
  const heard = new Map<string, Mark>();
  let unwritten = new Map<string, Mark>();
  /** Of every row there is, in order; null: to be made anew. Records are values: nobody changes one. */
  let records: Map<string, NodeRecord> | null = null;
  let flushing: Promise<void> = Promise.resolve();
  const nameOf = (hostname: string, role: NodeRole): string => `${role} ${hostname}`;

  function forget(id: string): void {
    const row = rows.get(id);
    if (row !== undefined) ids.delete(nameOf(row.hostname, row.role));
    rows.delete(id);
    records?.delete(id);
    heard.delete(id);
    unwritten.delete(id);
  }

  function newest<T extends NodeRow | NodeRecord>(row: T): T {
    const mark = heard.get(row.id);
    if (mark === undefined) return row;
    const later = (a: number | null | undefined, b: number | null | undefined): number | null => Math.max(a ?? 0, b ?? 0) || null;
    // What another control plane has written since is newer than what was heard here.
    const here = (mark.last_seen_at ?? 0) >= (row.last_seen_at ?? 0);
    return {
      ...row,
      last_seen_at: later(row.last_seen_at, mark.last_seen_at),
      observed_at: later(row.observed_at, mark.observed_at),
      last_polled_at: later(row.last_polled_at, mark.last_polled_at),
      free_storage: here && mark.free_storage !== undefined ? mark.free_storage : (row.free_storage ?? null),
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
        const there = await db.writeOne((kysely) => statement(part).execute(kysely));
        all.splice(0, part.length);
        const known = new Set(there.rows.map((row) => row.id));
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
    get: (id) => rows.get(id),
    keep(row) {
      if (db.capabilities.sharedByControlPlanes) return;
      // A new one has its place among the others.
      if (records?.has(row.id) === true) records.set(row.id, nodeOf(row));
      else records = null;
      rows.set(row.id, row);
      ids.set(nameOf(row.hostname, row.role), row.id);
    },
    written(id) {
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
    newest,
    async all(from) {
      if (records === null) {
        const read = await from.selectFrom('nodes').selectAll().orderBy('hostname').orderBy('role').execute();
        const fresh = new Map(read.map((row) => [row.id, nodeOf(row)]));
        if (db.capabilities.sharedByControlPlanes) return [...fresh.values()].map(newest);
        for (const row of read) {
          rows.set(row.id, row);
          ids.set(nameOf(row.hostname, row.role), row.id);
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

/**
 * The values stand in the text: as thousands of parameters they would cost ten times as much. Ids are our own (store/ids.ts),
 * and anything else is refused; the rest are numbers. The casts tell PostgreSQL the type of a column that may be all null.
 */
function statement(part: readonly (readonly [string, Mark])[]) {
  const number = (value: number | null | undefined, type: string): string =>
    `cast(${typeof value === 'number' && Number.isFinite(value) ? String(value) : 'null'} as ${type})`;
  const values = part.map(([id, m]) => {
    if (!/^[\w-]+$/.test(id)) throw new Error(`${JSON.stringify(id)} is not the id of a node`);
    return `('${id}', ${number(m.last_seen_at, 'bigint')}, ${number(m.observed_at, 'bigint')}, ${number(m.last_polled_at, 'bigint')}, ${number(m.free_storage, 'double precision')})`;
  });
  return sql<{ id: string }>`
    with marks(id, seen, observed, polled, free) as (values ${sql.raw(values.join(', '))})
    update nodes set
      last_seen_at = ${later('nodes.last_seen_at', 'marks.seen')},
      observed_at = ${later('nodes.observed_at', 'marks.observed')},
      last_polled_at = ${later('nodes.last_polled_at', 'marks.polled')},
      free_storage = case when marks.seen >= nodes.last_seen_at and marks.free is not null then marks.free else nodes.free_storage end
    from marks where nodes.id = marks.id
    returning nodes.id`;
}
