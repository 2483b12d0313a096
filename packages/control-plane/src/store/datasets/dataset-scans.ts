/**
 * Claims datasets for scans and records the outcome. A claim is a token in the dataset's row. Every
 * write of a scan checks the token in the same transaction, so a paused scan whose claim has
 * expired cannot mix its rows with the rows of its successor.
 *
 * due -> claimed (claimDue) -> recorded (finishScan) | released (giveBack) | expired (claimDue of
 * another scan)
 *
 * `scan_full` and `accept_loss` apply to one scan and stay set until a scan ends (scan-flags.ts),
 * even if another scan is requested meanwhile.
 *
 * Tree objects and history are written before their version is visible (record-version.ts):
 * finishScan inserts the row in dataset_versions.
 */
import { defined } from '@berth/kit/defined';
import { type ExpressionBuilder, sql } from 'kysely';
import type {
  DatasetStore,
  ScanClaim,
  ScanPlan,
  VersionContent,
} from '../../domain/data/dataset-stores.ts';
import type { Database } from '../engine/database.ts';
import type { Db, Row, Tables, Tx } from '../engine/tables.ts';
import { datasetEvent, type NewEvent, writeEvents } from '../events.ts';
import { datasetOf } from '../rows/dataset.ts';
import { jsonColumn } from '../rows/json.ts';
import { claimedRow, isClaimed } from './dataset-claims.ts';
import { pruneVersions } from './dataset-pruning.ts';
import { readTrees } from './dataset-trees.ts';
import { MAIN_THREAD, recordVersion } from './record-version.ts';
import { claimedFlag, remainingFlag } from './scan-flags.ts';

type ScanMethods = Pick<
  DatasetStore,
  'claimDue' | 'renewClaim' | 'giveBack' | 'record' | 'trees' | 'finishScan' | 'prune'
>;

/**
 * Number of attempts to claim a due dataset: other control planes can claim the first ones at the
 * same moment.
 */
const CLAIM_ATTEMPTS = 10;
const LONGEST_CLAIM_MS = 10 * 60_000;

export function scanMethods(db: Database): ScanMethods {
  return {
    claimDue: (token, now, until, uptime) => claimDueScan(db, token, now, until, uptime),
    renewClaim: (claim, until) => renewScanClaim(db, claim, until),
    giveBack: (claim) => giveBackScan(db, claim),
    record: (claim, content, objects, signal) => recordScan(db, claim, content, objects, signal),
    trees: (datasetId, digests) => readTrees(db.kysely, datasetId, digests),
    finishScan: (claim, plan, now) => finishScan(db, claim, plan, now),
    prune: (claim, keep) => pruneVersions(db, claim, keep, (tx) => isClaimed(db, tx, claim)),
  };
}

async function claimDueScan(
  db: Database,
  token: string,
  now: number,
  until: number,
  uptime: number = now,
): Promise<ScanClaim | null> {
  for (let attempt = 0; attempt < CLAIM_ATTEMPTS; attempt++) {
    const due = await dueAt(db.kysely, now, uptime);
    if (due === undefined) return null;
    const claimed = await db.writeOne((kysely) =>
      kysely
        .updateTable('datasets')
        .set({
          scanning_by: token,
          scanning_until: until,
          scan_full: claimedFlag('scan_full'),
          accept_loss: claimedFlag('accept_loss'),
        })
        .where('id', '=', due.id)
        .where('deleting_at', 'is', null)
        .where(isFree(uptime))
        .where(isDue(now))
        .returningAll()
        .executeTakeFirst(),
    );
    if (claimed !== undefined) return { token, dataset: datasetOf(claimed) };
  }
  return null;
}

async function renewScanClaim(
  db: Database,
  { token, dataset }: ScanClaim,
  until: number,
): Promise<boolean> {
  const renewed = await db.writeOne((kysely) =>
    kysely
      .updateTable('datasets')
      .set({ scanning_until: until })
      .where('id', '=', dataset.id)
      .where('scanning_by', '=', token)
      .where('deleting_at', 'is', null)
      .returning('id')
      .executeTakeFirst(),
  );
  return renewed !== undefined;
}

async function giveBackScan(db: Database, { token, dataset }: ScanClaim): Promise<void> {
  await db.writeOne((kysely) =>
    kysely
      .updateTable('datasets')
      .set({ scanning_by: null, scanning_until: null })
      .where('id', '=', dataset.id)
      .where('scanning_by', '=', token)
      .execute(),
  );
}

function recordScan(
  db: Database,
  claim: ScanClaim,
  content: VersionContent,
  objects: (digest: string) => Promise<string>,
  signal: AbortSignal,
): Promise<boolean> {
  return db.recorder === null
    ? recordVersion(db, { claim, content }, objects, signal, MAIN_THREAD)
    : db.recorder.record(claim, content, objects, signal);
}

function finishScan(db: Database, claim: ScanClaim, plan: ScanPlan, now: number): Promise<boolean> {
  return db.write(async (tx) => {
    const row = await claimedRow(db, tx, claim);
    if (row === undefined) return false;
    const { id } = row;
    const free = { scanning_by: null, scanning_until: null };
    // The folder of the dataset changed during the scan, so the scan read the wrong folder. The
    // change has requested a new scan.
    if (row.nfs_path !== claim.dataset.nfs_path) {
      await tx.updateTable('datasets').set(free).where('id', '=', id).execute();
      return false;
    }
    const { newVersion } = plan;
    if (newVersion !== null) await showVersion(tx, row, newVersion, now);
    const { skipped, share, ...plain } = plan.set;
    const changed = newVersion !== null || row.status !== plan.set.status;
    // False if a scan was requested while this one ran: that request stays open.
    const answered = row.scan_requested_at === claim.dataset.scan_requested_at;
    await tx
      .updateTable('datasets')
      .set({
        ...free,
        ...plain,
        ...newVersion,
        ...defined({
          skipped: jsonColumn(skipped),
          share: jsonColumn(share),
        }),
        scan_full: remainingFlag(row.scan_full),
        accept_loss: remainingFlag(row.accept_loss),
        ...defined({
          scan_requested_at: answered ? null : undefined,
          updated_at: changed ? now : undefined,
        }),
      })
      .where('id', '=', id)
      .execute();
    await writeEvents(db, tx, scanEvents(row, plan, now));
    return true;
  });
}

function scanEvents(row: Row<'datasets'>, { newVersion, set }: ScanPlan, now: number): NewEvent[] {
  const problem = set.problem === null ? '' : `: ${set.problem}`;
  return [
    ...(newVersion === null
      ? []
      : [
          datasetEvent(
            row,
            'version',
            `dataset ${row.name} has version ${newVersion.version}`,
            now,
          ),
        ]),
    ...(row.status === set.status
      ? []
      : [datasetEvent(row, 'status', `dataset ${row.name} is ${set.status}${problem}`, now)]),
  ];
}

type Where = ExpressionBuilder<Tables, 'datasets'>;
/**
 * Matches datasets without a valid claim. An expiry beyond LONGEST_CLAIM_MS was written by an older
 * version, by the machine's clock.
 */
const isFree = (uptime: number) => (eb: Where) =>
  eb.or([
    eb('scanning_by', 'is', null),
    eb('scanning_until', '<=', uptime),
    eb('scanning_until', '>', uptime + LONGEST_CLAIM_MS),
  ]);
/**
 * Matches datasets that are due by the machine's clock. A last scan in the future means that the
 * clock was set back since then.
 */
const isDue = (now: number) => (eb: Where) =>
  eb.or([
    eb('scan_requested_at', 'is not', null),
    eb('next_scan_at', '<=', now),
    eb('last_scanned_at', '>', now),
  ]);

const dueAt = (db: Db, now: number, uptime: number): Promise<{ id: string } | undefined> =>
  db
    .selectFrom('datasets')
    .select('id')
    .where('deleting_at', 'is', null)
    .where(isFree(uptime))
    .where(isDue(now))
    .orderBy(sql`coalesce(scan_requested_at, next_scan_at)`)
    .limit(1)
    .executeTakeFirst();

async function showVersion(
  tx: Tx,
  row: Row<'datasets'>,
  shown: VersionContent,
  now: number,
): Promise<void> {
  if (shown.version !== (row.version ?? 0) + 1)
    throw new Error(`version ${shown.version} of ${row.id} does not follow ${row.version}`);
  const last = await tx
    .selectFrom('dataset_versions')
    .select('created_at')
    .where('dataset_id', '=', row.id)
    .orderBy('version', 'desc')
    .limit(1)
    .executeTakeFirst();
  // Keeps the times of versions in ascending order, even if the clock was set back.
  const created_at = Math.max(now, last?.created_at ?? 0);
  await tx
    .insertInto('dataset_versions')
    .values({ dataset_id: row.id, created_at, ...shown })
    .execute();
}
