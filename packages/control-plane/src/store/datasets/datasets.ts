/**
 * Datasets that people register. Their scans are in dataset-scans.ts, versions and history in
 * dataset-versions.ts.
 */
import { defined } from '@berth/kit/defined';
import { canDataset } from '@berth/wire/can';
import type { DatasetCreate, DatasetPatch, DatasetState } from '@berth/wire/dataset';
import type { DatasetStore } from '../../domain/data/dataset-stores.ts';
import type { ProjectAccess } from '../../domain/identity/access.ts';
import { DomainError, taken } from '../../domain/platform/errors.ts';
import type { RecordGuard } from '../../domain/platform/record-change.ts';
import type { NameFilter, Page, Paged } from '../../domain/platform/page.ts';
import type { DatasetRecord, ShareIdentity } from '../../domain/platform/records.ts';
import type { Database } from '../engine/database.ts';
import type { Db, Row, Tx } from '../engine/tables.ts';
import { datasetEvent, writeEvents } from '../events.ts';
import type { NewId } from '../ids.ts';
import { idOf } from '../names.ts';
import { keyAfter, paged } from '../pages.ts';
import { datasetOf } from '../rows/dataset.ts';
import { deleteHistory, deleteTrees, historyVersions } from './dataset-cleaning.ts';
import { datasetFacts } from './dataset-facts.ts';
import { datasetRow, lockDatasets, usersOf } from './dataset-rows.ts';
import { scanMethods } from './dataset-scans.ts';
import { versionMethods } from './dataset-versions.ts';
import { refuseNestedPath } from './nested-writers.ts';
import { requestedFlag } from './scan-flags.ts';

/**
 * Returns a time that differs from the request time of a running scan, so that the end of this scan
 * does not clear the new request.
 */
const nextRequestTime = (row: Row<'datasets'>, now: number): number =>
  Math.max(now, (row.scan_requested_at ?? 0) + 1);

/**
 * Throws wrong_state if the apparent loss of files is a share that is not mounted. The scan checks
 * the share again (monitor/child/run-scan.ts).
 */
function refuseLossOf({ name, status, problem }: Row<'datasets'>): void {
  if (canDataset('accept_loss', status)) return;
  throw new DomainError(
    'wrong_state',
    `cannot accept a loss of ${name}: Berth cannot see its files on the share. ` +
      `${problem ?? ''} Mount the share, then request a scan without accept_loss`,
  );
}

/** Null accepts any share: the share of the dataset is not known yet. */
function acceptedShare(share: string | null): string | null {
  return share === null
    ? null
    : JSON.stringify({
        ...(JSON.parse(share) as ShareIdentity),
        accepted: true,
      } satisfies ShareIdentity);
}

const NOTHING_SKIPPED = JSON.stringify({ count: 0, first: [] });

const nameTaken = (): DomainError =>
  taken('name', 'dataset_name_taken', 'another dataset already has this name');

/**
 * Refuses a name that is the id of another dataset: ids are looked up before names, so a dataset
 * with this name could never be found.
 */
async function refuseIdAsName(db: Db, name: string): Promise<void> {
  const other = await db
    .selectFrom('datasets')
    .select('id')
    .where('id', '=', name)
    .executeTakeFirst();
  if (other !== undefined)
    throw taken('name', 'dataset_name_taken', 'it is the id of another dataset');
}

export function createDatasetStore(db: Database, newId: NewId, clock: () => number): DatasetStore {
  return {
    ...scanMethods(db),
    ...versionMethods(db),
    create: (input, now) => createDataset(db, newId, input, now),
    get: (id) => getDataset(db, id),
    idOf: (idOrName) => idOf(db.kysely, 'datasets', idOrName),
    list: (page, filter) => listDatasets(db, page, filter),
    facts: () => datasetFacts(db.kysely, null),
    ids: () => datasetIds(db),
    overview: () => datasetOverview(db),
    patch: (id, patch, now, guard, access) => patchDataset(db, id, patch, now, guard, access),
    requestScan: (id, asked, now) => requestScan(db, id, asked, now),
    markDeleting: (id, now, guard, access) => markDatasetDeleting(db, id, now, guard, access),
    listDeleting: () => listDeletingDatasets(db),
    remove: (id) => removeDataset(db, clock, id),
  };
}

/**
 * Turns a violation of the unique constraint into an error: two requests can arrive at the same
 * time.
 */
async function refuseTakenName<T>(db: Database, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    if (db.capabilities.violatesUnique(error, 'datasets', 'name')) throw nameTaken();
    throw error;
  }
}

/** Returns the locked row. Throws not_found, being_deleted. */
async function lockedDataset(db: Database, tx: Tx, id: string): Promise<Row<'datasets'>> {
  const row = await datasetRow(tx, id, db.capabilities.rowLocks);
  if (row.deleting_at !== null) throw new DomainError('being_deleted');
  return row;
}

function createDataset(
  db: Database,
  newId: NewId,
  { name, nfs_path }: DatasetCreate,
  now: number,
): Promise<DatasetRecord> {
  return refuseTakenName(db, async () => {
    await refuseIdAsName(db.kysely, name);
    const row = {
      id: newId(),
      name,
      nfs_path,
      status: 'new' as const,
      files: 0,
      bytes: 0,
      skipped: NOTHING_SKIPPED,
      scan_requested_at: now,
      scan_full: 0,
      accept_loss: 0,
      next_scan_at: now,
      created_at: now,
      updated_at: now,
    };
    return db.write(async (tx) => {
      const created = await tx
        .insertInto('datasets')
        .values(row)
        .returningAll()
        .executeTakeFirstOrThrow();
      await writeEvents(db, tx, [datasetEvent(created, 'created', `dataset ${name} created`, now)]);
      return datasetOf(created);
    });
  });
}

async function getDataset(db: Database, id: string): Promise<DatasetRecord> {
  return datasetOf(await datasetRow(db.kysely, id, false));
}

async function listDatasets(
  db: Database,
  page: Page,
  { name }: NameFilter = {},
): Promise<Paged<DatasetRecord>> {
  const after = keyAfter(page.cursor, ['string']);
  let query = db.kysely.selectFrom('datasets').selectAll();
  if (name !== undefined) query = query.where('name', '=', name);
  if (after !== null) query = query.where('name', '>', after[0]);
  const rows = await query
    .orderBy('name')
    .limit(page.limit + 1)
    .execute();
  return paged(rows, page, (row) => [row.name], datasetOf);
}

async function datasetIds(db: Database): Promise<string[]> {
  return (await db.kysely.selectFrom('datasets').select('id').execute()).map((row) => row.id);
}

function datasetOverview(
  db: Database,
): Promise<{ id: string; name: string; status: DatasetState; last_scanned_at: number | null }[]> {
  return db.kysely
    .selectFrom('datasets')
    .select(['id', 'name', 'status', 'last_scanned_at'])
    .orderBy('name')
    .execute();
}

function patchDataset(
  db: Database,
  id: string,
  patch: DatasetPatch,
  now: number,
  guard: RecordGuard<DatasetRecord> | undefined,
  access: ProjectAccess | undefined,
): Promise<DatasetRecord> {
  return refuseTakenName(db, () =>
    db.write(async (tx) => {
      const before = await lockedDataset(db, tx, id);
      guard?.(datasetOf(before));
      if (patch.name !== undefined && patch.name !== before.name)
        await refuseIdAsName(tx, patch.name);
      const moved = patch.nfs_path !== undefined && patch.nfs_path !== before.nfs_path;
      if (patch.nfs_path !== undefined && moved)
        await refuseNestedPath(db, tx, before, patch.nfs_path, access);
      const row = await tx
        .updateTable('datasets')
        .set({
          ...patch,
          updated_at: now,
          ...defined({
            scan_requested_at: moved ? nextRequestTime(before, now) : undefined,
            accept_loss: moved ? 0 : undefined,
          }),
        })
        .where('id', '=', id)
        .returningAll()
        .executeTakeFirstOrThrow();
      await writeEvents(db, tx, [
        datasetEvent(
          row,
          'changed',
          `dataset ${row.name} changed: ${Object.keys(patch).sort().join(', ')}`,
          now,
        ),
      ]);
      return datasetOf(row);
    }),
  );
}

function requestScan(
  db: Database,
  id: string,
  {
    full,
    acceptLoss,
    acceptShare = false,
  }: { full: boolean; acceptLoss: boolean; acceptShare?: boolean },
  now: number,
): Promise<DatasetRecord> {
  return db.write(async (tx) => {
    const before = await lockedDataset(db, tx, id);
    if (acceptLoss) refuseLossOf(before);
    const scanning = before.scanning_by !== null;
    const row = await tx
      .updateTable('datasets')
      .set({
        scan_requested_at: nextRequestTime(before, now),
        scan_full: requestedFlag(before.scan_full, full, scanning),
        accept_loss: requestedFlag(before.accept_loss, acceptLoss, scanning),
        ...defined({ share: acceptShare ? acceptedShare(before.share) : undefined }),
      })
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirstOrThrow();
    return datasetOf(row);
  });
}

function markDatasetDeleting(
  db: Database,
  id: string,
  now: number,
  guard: RecordGuard<DatasetRecord> | undefined,
  access: ProjectAccess | undefined,
): Promise<DatasetRecord> {
  return db.write(async (tx) => {
    await lockDatasets(db, tx, [id]);
    const row = await datasetRow(tx, id, db.capabilities.rowLocks);
    guard?.(datasetOf(row));
    if (row.deleting_at !== null) return datasetOf(row);
    const users = await usersOf(tx, id, access);
    if (users.length > 0)
      throw new DomainError('dataset_in_use', `${row.name} is in use: ${users.join(', ')}`);
    const marked = await tx
      .updateTable('datasets')
      .set({ deleting_at: now, updated_at: now })
      .where('id', '=', id)
      .returningAll()
      .executeTakeFirstOrThrow();
    await writeEvents(db, tx, [
      datasetEvent(marked, 'deleting', `dataset ${marked.name} is being deleted`, now),
    ]);
    return datasetOf(marked);
  });
}

async function listDeletingDatasets(db: Database): Promise<DatasetRecord[]> {
  const rows = await db.kysely
    .selectFrom('datasets')
    .selectAll()
    .where('deleting_at', 'is not', null)
    .orderBy('deleting_at')
    .execute();
  return rows.map(datasetOf);
}

async function removeDataset(db: Database, clock: () => number, id: string): Promise<void> {
  const isMarked = async (tx: Tx): Promise<boolean> =>
    (
      await tx
        .selectFrom('datasets')
        .select('id')
        .where('id', '=', id)
        .where('deleting_at', 'is not', null)
        .execute()
    ).length > 0;
  for (const version of await historyVersions(db, id))
    await deleteHistory(db, id, version, isMarked);
  await deleteTrees(db, id, () => true, isMarked);
  // The delete cascades to the dataset's versions (about a hundred).
  await db.write(async (tx) => {
    const removed = await tx
      .deleteFrom('datasets')
      .where('id', '=', id)
      .where('deleting_at', 'is not', null)
      .returning(['id', 'name'])
      .executeTakeFirst();
    if (removed !== undefined)
      await writeEvents(db, tx, [
        datasetEvent(removed, 'deleted', `dataset ${removed.name} deleted`, clock()),
      ]);
  });
}
