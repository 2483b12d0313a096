/**
 * Datasets that people register. Scans are in dataset-scans.ts, versions and history in
 * dataset-versions.ts.
 */
import { defined } from '@berth/kit/defined';
import type { DatasetStore } from '../../domain/data/dataset-stores.ts';
import { canDataset } from '@berth/wire/can';
import { DomainError, taken } from '../../domain/platform/errors.ts';
import type { ShareIdentity } from '../../domain/platform/records.ts';
import { datasetFacts } from './dataset-facts.ts';
import { scanMethods } from './dataset-scans.ts';
import { versionMethods } from './dataset-versions.ts';
import { deleteHistory, deleteTrees, historyVersions } from './dataset-cleaning.ts';
import { datasetRow, lockDatasets, usersOf } from './dataset-rows.ts';
import type { Database } from '../engine/database.ts';
import type { Db, Tx } from '../engine/tables.ts';
import { idOf } from '../names.ts';
import { datasetEvent, writeEvents } from '../events.ts';
import type { NewId } from '../ids.ts';
import { refuseNestedPath } from './nested-writers.ts';
import { keyAfter, paged } from '../pages.ts';
import { datasetOf } from '../rows/dataset.ts';
import { requestedFlag } from './scan-flags.ts';
import type { Row } from '../engine/tables.ts';

/**
 * Returns a time that differs from the request of a running scan, so that the end of that scan does
 * not answer this request too.
 */
const nextRequestTime = (row: Row<'datasets'>, now: number): number =>
  Math.max(now, (row.scan_requested_at ?? 0) + 1);

/**
 * Throws wrong_state: what looks like a loss is a share that is away. The scan checks the share
 * again (monitor/child/run-scan.ts).
 */
function refuseLossOf({ name, status, problem }: Row<'datasets'>): void {
  if (canDataset('accept_loss', status)) return;
  throw new DomainError(
    'wrong_state',
    `cannot accept a loss of ${name}: Berth cannot see its files on the share. ` +
      `${problem ?? ''} When the share is there, request a scan without accept_loss`,
  );
}

/** A dataset whose share is not known yet takes any share. */
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
 * Refuses the id of another dataset as a name: ids are looked up before names, so that name would
 * never be found.
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
  /** Relies on the unique constraint, because two requests may arrive at the same time. */
  const unique = async <T>(run: () => Promise<T>): Promise<T> => {
    try {
      return await run();
    } catch (error) {
      if (db.capabilities.violatesUnique(error, 'datasets', 'name')) throw nameTaken();
      throw error;
    }
  };

  /** Returns the locked row. Throws not_found, being_deleted. */
  async function forChange(tx: Tx, id: string): Promise<Row<'datasets'>> {
    const row = await datasetRow(tx, id, db.capabilities.rowLocks);
    if (row.deleting_at !== null) throw new DomainError('being_deleted');
    return row;
  }

  return {
    ...scanMethods(db),
    ...versionMethods(db),

    create: ({ name, nfs_path }, now) =>
      unique(async () => {
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
          await writeEvents(db, tx, [
            datasetEvent(created, 'created', `dataset ${name} created`, now),
          ]);
          return datasetOf(created);
        });
      }),

    async get(id) {
      return datasetOf(await datasetRow(db.kysely, id, false));
    },

    idOf: (idOrName) => idOf(db.kysely, 'datasets', idOrName),

    async list(page, { name } = {}) {
      const after = keyAfter(page.cursor, ['string']);
      let query = db.kysely.selectFrom('datasets').selectAll();
      if (name !== undefined) query = query.where('name', '=', name);
      if (after !== null) query = query.where('name', '>', after[0]);
      const rows = await query
        .orderBy('name')
        .limit(page.limit + 1)
        .execute();
      return paged(rows, page, (row) => [row.name], datasetOf);
    },

    facts: () => datasetFacts(db.kysely, null),

    async ids() {
      return (await db.kysely.selectFrom('datasets').select('id').execute()).map((row) => row.id);
    },

    overview: () =>
      db.kysely
        .selectFrom('datasets')
        .select(['id', 'name', 'status', 'last_scanned_at'])
        .orderBy('name')
        .execute(),

    patch: (id, patch, now, guard, access) =>
      unique(() =>
        db.write(async (tx) => {
          const before = await forChange(tx, id);
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
              ...(moved ? { scan_requested_at: nextRequestTime(before, now), accept_loss: 0 } : {}),
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
      ),

    requestScan: (id, { full, acceptLoss, acceptShare = false }, now) =>
      db.write(async (tx) => {
        const before = await forChange(tx, id);
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
      }),

    markDeleting: (id, now, guard, access) =>
      db.write(async (tx) => {
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
      }),

    async listDeleting() {
      const rows = await db.kysely
        .selectFrom('datasets')
        .selectAll()
        .where('deleting_at', 'is not', null)
        .orderBy('deleting_at')
        .execute();
      return rows.map(datasetOf);
    },

    async remove(id) {
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
      // The delete cascades to the versions, about a hundred.
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
    },
  };
}
