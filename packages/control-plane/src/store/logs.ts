/**
 * The log of a deployment: numbered lines, a batch that is sent again stored once. Beyond its bound the middle is left out:
 * the beginning says what was done, and the end is what a person needs to see why it failed.
 */
import { failPoint } from '@berth/kit/fail-point';
import type { LogLineIn } from '@berth/wire/task';
import { DomainError } from '../domain/errors.ts';
import type { LogLineRecord } from '../domain/records.ts';
import type { LogStore } from '../domain/stores.ts';
import type { Database } from './engine/database.ts';
import type { Tx } from './engine/tables.ts';
import type { NewRow } from './engine/tables.ts';

/** `first` lines are always kept; the rest may grow to `lines` and `bytes`, and is then cut to its newest half. */
export type LogBounds = { first: number; lines: number; bytes: number };
export const LOG_BOUNDS: LogBounds = { first: 200, lines: 50_000, bytes: 16 * 1024 * 1024 };
const MOST_LINES_READ = 5000;
/** Largest number that the column `seq` takes (32 bits); PostgreSQL answers a larger one with an error. */
const MAX_SEQ = 2_147_483_647;

type Source = Parameters<LogStore['append']>[1];

export function createLogStore(db: Database, bounds: LogBounds = LOG_BOUNDS): LogStore {
  return {
    async append(deploymentId, source, lines, now) {
      if (lines.length === 0) return 0;
      return db.write(async (tx) => {
        const known = await tx.selectFrom('deployments').select('log_removed_at').where('id', '=', deploymentId).executeTakeFirst();
        if (known === undefined) throw new DomainError('not_found', 'the deployment does not exist');
        // A batch that comes this late would begin a log of its own, with numbers that were given out before.
        if (known.log_removed_at !== null) return 0;
        const head = await lockHead(tx, deploymentId);
        const fresh = await unseen(tx, deploymentId, source, lines);
        if (fresh.length === 0) return 0;

        let { last_seq: seq } = head;
        const rows: NewRow<'log_lines'>[] = fresh.map((line) => ({ deployment_id: deploymentId, seq: ++seq, ...lineOf(line, now) }));
        await tx.insertInto('log_lines').values(rows).execute();
        const bytes = head.bytes + rows.reduce((sum, row) => sum + weight(row), 0);
        const left = { last_seq: seq, bytes, left_out: head.left_out };
        const full = seq - head.left_out > bounds.lines || bytes > bounds.bytes;
        await tx
          .updateTable('log_heads')
          .set(full ? await leaveOutMiddle(tx, deploymentId, bounds, left, now) : left)
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
      // Numbers have no holes, except where the middle was left out.
      if (first === undefined || first.seq === after + 1) return lines;
      return [gapNotice(after, first), ...lines].slice(0, limit);
    },
  };
}

/** Stands in the place of the lines that a reader at `after` can no longer get. It has the number of the last of them, so reading goes on behind it. */
const gapNotice = (after: number, next: LogLineRecord): LogLineRecord => ({
  seq: next.seq - 1,
  at: next.at,
  stream: 'system',
  step: null,
  text: `… lines ${after + 1} to ${next.seq - 1} are left out here: the log outgrew its bound before they were read …`,
});

const weight = (row: { text: string; step?: string | null }): number => Buffer.byteLength(row.text) + Buffer.byteLength(row.step ?? '');

type Head = { last_seq: number; bytes: number; left_out: number };

/** Deletes what lies between the first lines and the newest half, and leaves one line that says so in its place. */
async function leaveOutMiddle(tx: Tx, deploymentId: string, bounds: LogBounds, head: Head, now: number): Promise<Head> {
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
    // The very last line stays whatever it weighs.
    if (bytes > bounds.bytes / 2 && from <= head.last_seq) break;
    from = row.seq;
  }
  const notice = bounds.first + 1;
  const left_out = from - notice;
  await tx.deleteFrom('log_lines').where('deployment_id', '=', deploymentId).where('seq', '>=', notice).where('seq', '<', from).execute();
  if (left_out > 0) {
    const text = `… ${left_out} lines are left out here: a deployment keeps its first ${bounds.first} lines and of the rest the newest ${bounds.lines} lines or ${Math.floor(bounds.bytes / 1024)} KiB …`;
    await tx
      .insertInto('log_lines')
      .values({ deployment_id: deploymentId, seq: notice, at: now, stream: 'system', step: null, text })
      .execute();
  }
  const kept = await tx.selectFrom('log_lines').select(['text', 'step']).where('deployment_id', '=', deploymentId).execute();
  return { last_seq: head.last_seq, bytes: kept.reduce((sum, row) => sum + weight(row), 0), left_out };
}

/** Makes the row or touches it: either way nobody else numbers lines of this deployment until the transaction ends. */
const lockHead = (tx: Tx, deploymentId: string): Promise<Head> =>
  tx
    .insertInto('log_heads')
    .values({ deployment_id: deploymentId, last_seq: 0, bytes: 0, left_out: 0 })
    .onConflict((oc) => oc.column('deployment_id').doUpdateSet({ deployment_id: deploymentId }))
    .returning(['last_seq', 'bytes', 'left_out'])
    .executeTakeFirstOrThrow();

/** What this attempt has not sent yet. An agent sends its lines in order, so a high-water mark is enough. */
async function unseen(tx: Tx, deploymentId: string, source: Source, lines: readonly LogLineIn[]): Promise<readonly LogLineIn[]> {
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

/** Programs print anything; NUL and half surrogates are what a database refuses or garbles. */
const plain = (text: string): string => text.toWellFormed().replaceAll('\0', '\uFFFD');
