/**
 * The log of a deployment or a run: numbered lines. A batch that is sent twice is stored once. A log that
 * exceeds its limits loses its middle: the beginning shows the executed steps, and the end shows
 * why they failed.
 */
import { failPoint } from '@berth/kit/fail-point';
import type { LogLineIn } from '@berth/wire/task';
import type { LogStore } from '../domain/deployments/log-store.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { LogLineRecord } from '../domain/platform/records.ts';
import type { Database } from './engine/database.ts';
import type { NewRow, Tx } from './engine/tables.ts';

/**
 * The first `first` lines are always kept. When the log exceeds `lines` or `bytes`, the rest is cut
 * to its newest half.
 */
export type LogBounds = { first: number; lines: number; bytes: number };
export const LOG_BOUNDS: LogBounds = { first: 200, lines: 50_000, bytes: 16 * 1024 * 1024 };
const MOST_LINES_READ = 5000;
/** Largest value of the column `seq` (32 bits). PostgreSQL answers a larger one with an error. */
const MAX_SEQ = 2_147_483_647;

type Source = Parameters<LogStore['append']>[1];

/**
 * Names of the tables of a log and of their key. The tables of all logs have the same columns, so
 * the types are those of deployments.
 */
export type LogTables = {
  lines: 'log_lines';
  heads: 'log_heads';
  marks: 'log_marks';
  owner: 'deployment_id';
};
const DEPLOYMENT_LOGS: LogTables = {
  lines: 'log_lines',
  heads: 'log_heads',
  marks: 'log_marks',
  owner: 'deployment_id',
};

export const createLogStore = (db: Database, bounds: LogBounds = LOG_BOUNDS): LogStore => ({
  async append(deploymentId, source, lines, now) {
    if (lines.length === 0) return 0;
    return db.write(async (tx) => {
      const deployment = await tx
        .selectFrom('deployments')
        .select('log_removed_at')
        .where('id', '=', deploymentId)
        .executeTakeFirst();
      if (deployment === undefined)
        throw new DomainError('not_found', 'the deployment does not exist');
      // Refuses a batch that arrives after the log was removed: it would start a new log that
      // reuses old line numbers.
      if (deployment.log_removed_at !== null) return 0;
      const batch = { source, lines, now };
      const stored = await appendLines(tx, DEPLOYMENT_LOGS, deploymentId, batch, bounds);
      const until = source.keepsTime === true ? lastOutputTime(stored) : undefined;
      if (until !== undefined)
        await tx
          .updateTable('log_marks')
          .set({ logged_until: until })
          .where('task_id', '=', source.task_id)
          .where('attempt', '=', source.attempt)
          .execute();
      return stored.length;
    });
  },
  async loggedUntil(deploymentId) {
    // The engine writes all times in UTC and with the same length.
    const row = await db.kysely
      .selectFrom('log_marks')
      .select((eb) => eb.fn.max('logged_until').as('until'))
      .where('deployment_id', '=', deploymentId)
      .executeTakeFirst();
    return row?.until ?? null;
  },
  read: (deploymentId, after, limit) => readLines(db, DEPLOYMENT_LOGS, deploymentId, after, limit),
});

/** Returns the engine's time of the last line that a command printed. */
export const lastOutputTime = (lines: readonly LogLineIn[]): string | undefined =>
  lines.findLast(({ stream, at }) => stream !== 'system' && at !== undefined)?.at;

/** Appends the lines that this attempt has not sent before, and returns them. */
export async function appendLines(
  tx: Tx,
  tables: LogTables,
  owner: string,
  { source, lines, now }: { source: Source; lines: readonly LogLineIn[]; now: number },
  bounds: LogBounds = LOG_BOUNDS,
): Promise<readonly LogLineIn[]> {
  const head = await lockHead(tx, tables, owner);
  const fresh = await unseen(tx, tables, owner, source, lines);
  if (fresh.length === 0) return [];
  let { last_seq: seq } = head;
  const rows = fresh.map((line) => ({ seq: ++seq, ...lineOf(line, now) }));
  await tx
    .insertInto(tables.lines)
    .values(rows.map((row) => ({ [tables.owner]: owner, ...row })))
    .execute();
  const bytes = head.bytes + rows.reduce((sum, row) => sum + weight(row), 0);
  const headAfter = { last_seq: seq, bytes, left_out: head.left_out };
  const full = seq - head.left_out > bounds.lines || bytes > bounds.bytes;
  await tx
    .updateTable(tables.heads)
    .set(full ? await leaveOutMiddle(tx, tables, owner, bounds, headAfter, now) : headAfter)
    .where(tables.owner, '=', owner)
    .execute();
  await failPoint('logs.before');
  return fresh;
}

/** Reads lines with seq > after, in order. */
export async function readLines(
  { kysely }: Pick<Database, 'kysely'>,
  tables: LogTables,
  owner: string,
  after: number,
  limit: number,
): Promise<LogLineRecord[]> {
  const rows = await kysely
    .selectFrom(tables.lines)
    .select(['seq', 'at', 'stream', 'step', 'text'])
    .where(tables.owner, '=', owner)
    .where('seq', '>', Math.min(after, MAX_SEQ))
    .orderBy('seq')
    .limit(Math.min(limit, MOST_LINES_READ))
    .execute();
  const lines = rows as LogLineRecord[];
  const [first] = lines;
  // Line numbers have a gap only where the middle was removed.
  if (first === undefined || first.seq === after + 1) return lines;
  return [gapNotice(after, first), ...lines].slice(0, limit);
}

/**
 * Returns a notice in place of the removed lines after `after`. It has the number of the last
 * removed line, so the reader continues after it.
 */
const gapNotice = (after: number, next: LogLineRecord): LogLineRecord => ({
  seq: next.seq - 1,
  at: next.at,
  stream: 'system',
  step: null,
  text:
    `… lines ${after + 1} to ${next.seq - 1} were removed before they were read: the log ` +
    'exceeded its limit …',
});

const weight = (row: { text: string; step?: string | null }): number =>
  Buffer.byteLength(row.text) + Buffer.byteLength(row.step ?? '');

type Head = { last_seq: number; bytes: number; left_out: number };

/**
 * Deletes the lines between the first lines and the newest half, and writes one notice in their
 * place.
 */
async function leaveOutMiddle(
  tx: Tx,
  tables: LogTables,
  owner: string,
  bounds: LogBounds,
  head: Head,
  now: number,
): Promise<Head> {
  const newest = await tx
    .selectFrom(tables.lines)
    .select(['seq', 'text', 'step'])
    .where(tables.owner, '=', owner)
    .where('seq', '>', bounds.first)
    .orderBy('seq', 'desc')
    .limit(Math.ceil(bounds.lines / 2))
    .execute();
  let bytes = 0;
  let from = head.last_seq + 1;
  for (const row of newest) {
    bytes += weight(row);
    // Keeps the last line, even if it is larger than the limit.
    if (bytes > bounds.bytes / 2 && from <= head.last_seq) break;
    from = row.seq;
  }
  const notice = bounds.first + 1;
  const left_out = from - notice;
  await tx
    .deleteFrom(tables.lines)
    .where(tables.owner, '=', owner)
    .where('seq', '>=', notice)
    .where('seq', '<', from)
    .execute();
  if (left_out > 0) {
    const text =
      `… ${left_out} lines were removed here: ` +
      `a log keeps its first ${bounds.first} lines, and of ` +
      `the rest the newest ${bounds.lines} lines or ${Math.floor(bounds.bytes / 1024)} KiB …`;
    const line = { seq: notice, at: now, stream: 'system', step: null, text };
    await tx
      .insertInto(tables.lines)
      .values({ [tables.owner]: owner, ...line })
      .execute();
  }
  const remaining = await tx
    .selectFrom(tables.lines)
    .select(['text', 'step'])
    .where(tables.owner, '=', owner)
    .execute();
  return {
    last_seq: head.last_seq,
    bytes: remaining.reduce((sum, row) => sum + weight(row), 0),
    left_out,
  };
}

/**
 * Creates or updates the row. Both lock it, so only this transaction assigns line numbers of the
 * log.
 */
const lockHead = (tx: Tx, tables: LogTables, owner: string): Promise<Head> =>
  tx
    .insertInto(tables.heads)
    .values({ [tables.owner]: owner, last_seq: 0, bytes: 0, left_out: 0 } as NewRow<'log_heads'>)
    .onConflict((oc) => oc.column(tables.owner).doUpdateSet({ [tables.owner]: owner }))
    .returning(['last_seq', 'bytes', 'left_out'])
    .executeTakeFirstOrThrow();

/**
 * Returns the lines that this attempt has not sent before. An agent sends its lines in order, so
 * one high-water mark is enough.
 */
async function unseen(
  tx: Tx,
  tables: LogTables,
  owner: string,
  source: Source,
  lines: readonly LogLineIn[],
): Promise<readonly LogLineIn[]> {
  const { task_id, attempt, first } = source;
  if (first === null) return lines;
  const mark = await tx
    .selectFrom(tables.marks)
    .select('next_line')
    .where('task_id', '=', task_id)
    .where('attempt', '=', attempt)
    .executeTakeFirst();
  const next = mark?.next_line ?? 0;
  const end = first + lines.length;
  if (end <= next) return [];
  await tx
    .insertInto(tables.marks)
    .values({ task_id, attempt, [tables.owner]: owner, next_line: end })
    .onConflict((oc) => oc.columns(['task_id', 'attempt']).doUpdateSet({ next_line: end }))
    .execute();
  return lines.slice(Math.max(0, next - first));
}

function lineOf(line: LogLineIn, now: number): Omit<LogLineRecord, 'seq'> {
  const at = line.at === undefined ? Number.NaN : Date.parse(line.at);
  return {
    at: Number.isNaN(at) ? now : at,
    stream: line.stream,
    step: line.step === undefined || line.step === null ? null : plain(line.step),
    text: plain(line.text),
  };
}

/**
 * Replaces NUL and lone surrogates, which programs can print and which a database refuses or
 * garbles.
 */
const plain = (text: string): string => text.toWellFormed().replaceAll('\0', '\uFFFD');
