/**
 * The log of a deployment: numbered lines. A batch that is sent twice is stored once. A log that
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

export function createLogStore(db: Database, bounds: LogBounds = LOG_BOUNDS): LogStore {
  return {
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
        const head = await lockHead(tx, deploymentId);
        const fresh = await unseen(tx, deploymentId, source, lines);
        if (fresh.length === 0) return 0;

        let { last_seq: seq } = head;
        const rows: NewRow<'log_lines'>[] = fresh.map((line) => ({
          deployment_id: deploymentId,
          seq: ++seq,
          ...lineOf(line, now),
        }));
        await tx.insertInto('log_lines').values(rows).execute();
        const bytes = head.bytes + rows.reduce((sum, row) => sum + weight(row), 0);
        const headAfter = { last_seq: seq, bytes, left_out: head.left_out };
        const full = seq - head.left_out > bounds.lines || bytes > bounds.bytes;
        await tx
          .updateTable('log_heads')
          .set(full ? await leaveOutMiddle(tx, deploymentId, bounds, headAfter, now) : headAfter)
          .where('deployment_id', '=', deploymentId)
          .execute();
        await failPoint('logs.before');
        return rows.length;
      });
    },

    async read(deploymentId, after, limit) {
      const rows = await db.kysely
        .selectFrom('log_lines')
        .select(['seq', 'at', 'stream', 'step', 'text'])
        .where('deployment_id', '=', deploymentId)
        .where('seq', '>', Math.min(after, MAX_SEQ))
        .orderBy('seq')
        .limit(Math.min(limit, MOST_LINES_READ))
        .execute();
      const lines = rows as LogLineRecord[];
      const [first] = lines;
      // Line numbers have a gap only where the middle was removed.
      if (first === undefined || first.seq === after + 1) return lines;
      return [gapNotice(after, first), ...lines].slice(0, limit);
    },
  };
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
  deploymentId: string,
  bounds: LogBounds,
  head: Head,
  now: number,
): Promise<Head> {
  const newest = await tx
    .selectFrom('log_lines')
    .select(['seq', 'text', 'step'])
    .where('deployment_id', '=', deploymentId)
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
    .deleteFrom('log_lines')
    .where('deployment_id', '=', deploymentId)
    .where('seq', '>=', notice)
    .where('seq', '<', from)
    .execute();
  if (left_out > 0) {
    const text =
      `… ${left_out} lines were removed here: ` +
      `a log keeps its first ${bounds.first} lines, and of ` +
      `the rest the newest ${bounds.lines} lines or ${Math.floor(bounds.bytes / 1024)} KiB …`;
    await tx
      .insertInto('log_lines')
      .values({
        deployment_id: deploymentId,
        seq: notice,
        at: now,
        stream: 'system',
        step: null,
        text,
      })
      .execute();
  }
  const remaining = await tx
    .selectFrom('log_lines')
    .select(['text', 'step'])
    .where('deployment_id', '=', deploymentId)
    .execute();
  return {
    last_seq: head.last_seq,
    bytes: remaining.reduce((sum, row) => sum + weight(row), 0),
    left_out,
  };
}

/**
 * Creates or updates the row. Both lock it, so only this transaction assigns line numbers of the
 * deployment.
 */
const lockHead = (tx: Tx, deploymentId: string): Promise<Head> =>
  tx
    .insertInto('log_heads')
    .values({ deployment_id: deploymentId, last_seq: 0, bytes: 0, left_out: 0 })
    .onConflict((oc) => oc.column('deployment_id').doUpdateSet({ deployment_id: deploymentId }))
    .returning(['last_seq', 'bytes', 'left_out'])
    .executeTakeFirstOrThrow();

/**
 * Returns the lines that this attempt has not sent before. An agent sends its lines in order, so
 * one high-water mark is enough.
 */
async function unseen(
  tx: Tx,
  deploymentId: string,
  source: Source,
  lines: readonly LogLineIn[],
): Promise<readonly LogLineIn[]> {
  const { task_id, attempt, first } = source;
  if (first === null) return lines;
  const mark = await tx
    .selectFrom('log_marks')
    .select('next_line')
    .where('task_id', '=', task_id)
    .where('attempt', '=', attempt)
    .executeTakeFirst();
  const next = mark?.next_line ?? 0;
  const end = first + lines.length;
  if (end <= next) return [];
  await tx
    .insertInto('log_marks')
    .values({ task_id, attempt, deployment_id: deploymentId, next_line: end })
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
