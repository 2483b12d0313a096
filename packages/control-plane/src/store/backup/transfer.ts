/**
 * Exports a database as JSON lines, and imports them into an empty database of any engine: this
 * moves an installation between SQLite and PostgreSQL. The first line describes the export, then
 * comes one line for each row, and the last line has the number of rows.
 */
import { type Kysely, sql } from 'kysely';
import type { Database } from '../engine/database.ts';
import type { Tables, Tx } from '../engine/tables.ts';

const FORMAT = 1;
/** Number of rows held in memory at a time. */
const PAGE = 500;

/**
 * Every table, in the order of an import: a row comes after the rows that it refers to. `number`:
 * the auto-increment column, whose numbers are never reused. `left`: the rows are not exported
 * (sessions and codes end with a move).
 */
const TABLES = {
  meta: {},
  uptime: {},
  users: {},
  deleted_users: {},
  api_tokens: {},
  api_sessions: { left: true },
  device_codes: { left: true },
  device_tokens: {},
  revoked_sessions: {},
  used_codes: {},
  kept_answers: {},
  audit_log: { number: 'id' },
  nodes: {},
  join_tokens: {},
  node_admissions: {},
  git_host_keys: {},
  git_host_imports: {},
  datasets: {},
  dataset_trees: {},
  dataset_versions: {},
  dataset_history: {},
  projects: {},
  project_members: {},
  project_keys: {},
  platform_keys: {},
  project_secrets: {},
  volume_copies: {},
  unmanaged_containers: {},
  dataset_pins: {},
  device_leases: {},
  domain_claims: {},
  prefix_claims: {},
  deploy_keys: {},
  git_tokens: {},
  kept_settings: {},
  deployments: {},
  deployment_events: { number: 'id' },
  tasks: { number: 'seq' },
  instances: {},
  routes: {},
  idempotency_keys: {},
  hooks: {},
  deliveries: { number: 'seq' },
  commit_statuses: { number: 'seq' },
  usage_points: {},
  events: { number: 'seq' },
  backups: {},
  clean_ups: {},
  orphan_images: {},
  problems: {},
  problem_changes: { number: 'seq' },
  notifications: {},
  notices: { number: 'seq' },
  jobs: {},
  runs: {},
  run_log_heads: { log: true },
  run_log_marks: { log: true },
  run_log_lines: { log: true },
  log_heads: { log: true },
  log_marks: { log: true },
  log_lines: { log: true },
  container_exits: { log: true },
  log_wants: { left: true },
  exec_sessions: { left: true },
} satisfies Record<keyof Tables, { number?: string; left?: true; log?: true }>;

type Rule = { number?: string; left?: true; log?: true };
const ALL = Object.entries(TABLES) as [keyof Tables, Rule][];

/** The first line of an export. `counters`: the last number of each auto-increment column. */
type Head = {
  berth_export: number;
  berth: string;
  schema: string;
  logs: boolean;
  counters: Record<string, number>;
};
type Line = { table: string; row: Record<string, unknown> };

export class TransferError extends Error {
  override name = 'TransferError';
}

/** Yields one consistent state of the database as lines, without the line breaks. */
export async function* exportLines(
  db: Pick<Database, 'kysely' | 'capabilities'>,
  { berth, schema, logs }: { berth: string; schema: string; logs: boolean },
): AsyncGenerator<string> {
  const { kysely, capabilities } = db;
  const isSqlite = capabilities.engine === 'sqlite';
  const tx = await kysely
    .startTransaction()
    .setIsolationLevel('repeatable read')
    .setAccessMode('read only')
    .execute();
  try {
    const counters = await countersIn(tx, isSqlite);
    yield JSON.stringify({ berth_export: FORMAT, berth, schema, logs, counters } satisfies Head);
    const rows: Record<string, number> = {};
    for (const [table, rule] of ALL) {
      if (rule.left === true || (rule.log === true && !logs)) continue;
      rows[table] = 0;
      for await (const row of isSqlite ? rowsOfFile(tx, table) : rowsOfServer(tx, table)) {
        rows[table] += 1;
        yield JSON.stringify({ table, row: encoded(row) } satisfies Line);
      }
    }
    yield JSON.stringify({ end: true, rows });
  } finally {
    await tx.rollback().execute();
  }
}

async function* rowsOfFile(tx: Tx, table: string): AsyncGenerator<Record<string, unknown>> {
  for (let after = -1; ; ) {
    const { rows } = await sql<{ export_rowid: number }>`
      select rowid as export_rowid, * from ${sql.table(table)}
      where rowid > ${after} order by rowid limit ${PAGE}`.execute(tx);
    for (const { export_rowid, ...row } of rows) {
      after = export_rowid;
      yield row;
    }
    if (rows.length < PAGE) return;
  }
}

async function* rowsOfServer(tx: Tx, table: string): AsyncGenerator<Record<string, unknown>> {
  await sql`declare export_rows no scroll cursor for select * from ${sql.table(table)}`.execute(tx);
  for (;;) {
    const { rows } = await sql<
      Record<string, unknown>
    >`fetch ${sql.lit(PAGE)} from export_rows`.execute(tx);
    yield* rows;
    if (rows.length < PAGE) break;
  }
  await sql`close export_rows`.execute(tx);
}

async function countersIn(tx: Tx, isSqlite: boolean): Promise<Record<string, number>> {
  const counters: Record<string, number> = {};
  for (const [table, { number }] of ALL) {
    if (number === undefined) continue;
    const { rows } = isSqlite
      ? await sql<{
          last: number;
        }>`select seq as last from sqlite_sequence where name = ${table}`.execute(tx)
      : await sql<{
          last: number;
        }>`
          select coalesce(
            pg_sequence_last_value(pg_get_serial_sequence(${table}, ${number})::regclass), 0
          ) as last`.execute(tx);
    counters[table] = rows[0]?.last ?? 0;
  }
  return counters;
}

const encoded = (row: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(row).map(([column, value]) => [
      column,
      Buffer.isBuffer(value) ? { base64: value.toString('base64') } : value,
    ]),
  );
const decoded = (row: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(row).map(([column, value]) => [
      column,
      value !== null && typeof value === 'object' && 'base64' in value
        ? Buffer.from(String(value.base64), 'base64')
        : value,
    ]),
  );

/**
 * Imports all lines into an empty database in one transaction. Returns the row count of each table.
 */
export async function importLines(
  db: Pick<Database, 'kysely' | 'capabilities'>,
  schema: string,
  lines: AsyncIterable<string>,
): Promise<Record<string, number>> {
  const isSqlite = db.capabilities.engine === 'sqlite';
  return db.kysely.transaction().execute(async (tx) => {
    await refuseUsed(tx);
    for (const [table] of ALL.toReversed()) await sql`delete from ${sql.table(table)}`.execute(tx);
    const rows: Record<string, number> = {};
    let head: Head | null = null;
    let isWhole = false;
    let batch: { table: string; rows: Record<string, unknown>[] } = { table: '', rows: [] };
    const flush = async (): Promise<void> => {
      if (batch.rows.length > 0) await insert(tx, batch.table, batch.rows);
      batch = { table: '', rows: [] };
    };
    for await (const text of lines) {
      if (text === '') continue;
      const line = parse(text);
      if (head === null) {
        head = headIn(line, schema);
        continue;
      }
      if (isWhole) throw new TransferError('the export has lines after its end');
      if ('end' in line) {
        await flush();
        if (
          JSON.stringify(sorted(line['rows'])) !==
          JSON.stringify(sorted({ ...emptyOf(line['rows']), ...rows }))
        )
          throw new TransferError(
            'the export does not have the number of rows that its end says: it was changed',
          );
        isWhole = true;
        continue;
      }
      const { table, row } = line as unknown as Line;
      if (!Object.hasOwn(TABLES, table) || typeof row !== 'object')
        throw new TransferError(`the export has a line of an unknown kind: ${text.slice(0, 80)}`);
      if (batch.table !== table || batch.rows.length >= (isSqlite ? 100 : PAGE)) await flush();
      batch.table = table;
      batch.rows.push(decoded(row));
      rows[table] = (rows[table] ?? 0) + 1;
    }
    if (head === null) throw new TransferError('the input is empty');
    if (!isWhole)
      throw new TransferError(
        'the export is truncated: its last line is missing; nothing was imported',
      );
    await setCounters(tx, isSqlite, head.counters);
    return rows;
  });
}

/** Tables with rows that people or agents created: a database in use has rows here. */
const USED = ['users', 'projects', 'nodes', 'datasets'] as const;
/** A database without such rows can have tables, from a start or an import that failed. */
async function refuseUsed(tx: Tx): Promise<void> {
  for (const table of USED) {
    const { rows } = await sql<{
      n: number;
    }>`select count(*) as n from ${sql.table(table)}`.execute(tx);
    const n = rows[0]?.n ?? 0;
    if (n > 0)
      throw new TransferError(
        `the database has ${n} rows of ${table}: import works only into an empty database. Set ` +
          'DATABASE_URL to another one',
      );
  }
}

const emptyOf = (rows: unknown): Record<string, number> =>
  Object.fromEntries(Object.keys(rows as object).map((table) => [table, 0]));
const sorted = (rows: unknown): [string, unknown][] =>
  Object.entries(rows as object).sort(([a], [b]) => (a < b ? -1 : 1));

function parse(text: string): Record<string, unknown> {
  try {
    const line: unknown = JSON.parse(text);
    if (line !== null && typeof line === 'object') return line as Record<string, unknown>;
  } catch {
    // The error is thrown below.
  }
  throw new TransferError(`the export has a line that is no JSON object: ${text.slice(0, 80)}`);
}

function headIn(line: Record<string, unknown>, schema: string): Head {
  const head = line as Head;
  if (typeof head.berth_export !== 'number')
    throw new TransferError('the input is not an export of Berth');
  if (head.berth_export !== FORMAT || head.schema !== schema)
    throw new TransferError(
      `the export is of Berth ${head.berth} with the schema ${head.schema}, and this version ` +
        `has ${schema}: export and import with the same version`,
    );
  return head;
}

const insert = (tx: Tx, table: string, rows: Record<string, unknown>[]): Promise<unknown> =>
  (tx as unknown as Kysely<Record<string, Record<string, unknown>>>)
    .insertInto(table)
    .values(rows)
    .execute();

/**
 * Continues the auto-increment numbers: agents and readers remember old numbers, so none is reused.
 */
async function setCounters(
  tx: Tx,
  isSqlite: boolean,
  counters: Record<string, number>,
): Promise<void> {
  for (const [table, { number }] of ALL) {
    const last = counters[table] ?? 0;
    if (number === undefined || last === 0) continue;
    if (isSqlite) {
      await sql`delete from sqlite_sequence where name = ${table}`.execute(tx);
      await sql`insert into sqlite_sequence (name, seq) values (${table}, ${last})`.execute(tx);
    } else
      await sql`select setval(pg_get_serial_sequence(${table}, ${number}), ${last})`.execute(tx);
  }
}
