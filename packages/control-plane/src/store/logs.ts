/** The log of a deployment: numbered lines up to a bound, a batch that is sent again stored once. */
import type { LogLineIn } from '@berth/wire/task';
import { DomainError } from '../domain/errors.ts';
import type { LogLineRecord } from '../domain/records.ts';
import type { LogStore } from '../domain/stores.ts';
import type { Database, Tx } from './database.ts';
import type { NewRow } from './tables.ts';

export type LogBounds = { lines: number; bytes: number };
export const LOG_BOUNDS: LogBounds = { lines: 50_000, bytes: 16 * 1024 * 1024 };
const MOST_LINES_READ = 5000;

type Source = Parameters<LogStore['append']>[1];

export function createLogStore(db: Database, bounds: LogBounds = LOG_BOUNDS): LogStore {
  return {
    async append(deploymentId, source, lines, now) {
      if (lines.length === 0) return 0;
      // A build that babbles on past the bound must not cost a disk write for each batch.
      const full = await db.kysely.selectFrom('log_heads').select('truncated').where('deployment_id', '=', deploymentId).executeTakeFirst();
      if (full?.truncated === 1) return 0;
      return db.write(async (tx) => {
        const known = await tx.selectFrom('deployments').select('id').where('id', '=', deploymentId).executeTakeFirst();
        if (known === undefined) throw new DomainError('not_found', 'There is no such deployment');
        const head = await lockHead(tx, deploymentId);
        const fresh = head.truncated === 1 ? [] : await unseen(tx, deploymentId, source, lines);
        if (fresh.length === 0) return 0;

        const rows: NewRow<'log_lines'>[] = [];
        let { last_seq: seq, bytes } = head;
        let truncated = 0;
        const keep = (row: Omit<LogLineRecord, 'seq'>): void => void rows.push({ deployment_id: deploymentId, seq: ++seq, ...row });
        for (const line of fresh) {
          const row = lineOf(line, now);
          bytes += Buffer.byteLength(row.text) + Buffer.byteLength(row.step ?? '');
          if (seq >= bounds.lines || bytes > bounds.bytes) {
            truncated = 1;
            break;
          }
          keep(row);
        }
        const stored = rows.length;
        if (truncated === 1) keep({ at: now, stream: 'system', step: null, text: boundReached(bounds) });
        await tx.insertInto('log_lines').values(rows).execute();
        await tx.updateTable('log_heads').set({ last_seq: seq, bytes, truncated }).where('deployment_id', '=', deploymentId).execute();
        return stored;
      });
    },

    async read(deploymentId, after, limit) {
      const rows = await db.kysely
        .selectFrom('log_lines')
        .select(['seq', 'at', 'stream', 'step', 'text'])
        .where('deployment_id', '=', deploymentId)
        .where('seq', '>', after)
        .orderBy('seq')
        .limit(Math.min(limit, MOST_LINES_READ))
        .execute();
      return rows as LogLineRecord[];
    },
  };
}

const boundReached = (bounds: LogBounds): string =>
  `The log ends here: a deployment keeps ${bounds.lines} lines or ${Math.floor(bounds.bytes / 1024)} KiB, whichever is first; what came after was dropped.`;

/** Makes the row or touches it: either way nobody else numbers lines of this deployment until the transaction ends. */
const lockHead = (tx: Tx, deploymentId: string): Promise<{ last_seq: number; bytes: number; truncated: number }> =>
  tx
    .insertInto('log_heads')
    .values({ deployment_id: deploymentId, last_seq: 0, bytes: 0, truncated: 0 })
    .onConflict((oc) => oc.column('deployment_id').doUpdateSet({ deployment_id: deploymentId }))
    .returning(['last_seq', 'bytes', 'truncated'])
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
