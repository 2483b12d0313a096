/**
 * Reads versions and history of a dataset. Only versions with a row are visible; partly written and
 * partly removed versions have none.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type {
  DatasetStore,
  HistoryFilter,
  HistoryRecord,
} from '../../domain/data/dataset-stores.ts';
import type { Database } from '../engine/database.ts';
import type { Db } from '../engine/tables.ts';
import { datasetRow } from './dataset-rows.ts';
import { below, pathKey, type Span } from './history-path.ts';
import { keyAfter, paged } from '../pages.ts';

type VersionMethods = Pick<DatasetStore, 'versions' | 'versionsOf' | 'history'>;

/** Number of versions read between two yields to the event loop. */
const VERSIONS_A_TURN = 50;

export const versionMethods = ({ kysely }: Database): VersionMethods => ({
  async versions(id, page) {
    await datasetRow(kysely, id, false);
    const before = keyAfter(page.cursor, ['number']);
    let query = kysely.selectFrom('dataset_versions').selectAll().where('dataset_id', '=', id);
    if (before !== null) query = query.where('version', '<', before[0]);
    const rows = await query
      .orderBy('version', 'desc')
      .limit(page.limit + 1)
      .execute();
    return paged(
      rows,
      page,
      (row) => [row.version],
      (row) => row,
    );
  },

  async versionsOf(id, versions) {
    await datasetRow(kysely, id, false);
    return kysely
      .selectFrom('dataset_versions')
      .selectAll()
      .where('dataset_id', '=', id)
      .where('version', 'in', [...versions])
      .execute();
  },

  async history(id, filter, page) {
    await datasetRow(kysely, id, false);
    const after = keyAfter(page.cursor, ['number', 'string']);
    const changes: (HistoryRecord & { long_path: string | null })[] = [];
    // Reads version by version: each needs only a few index lookups, however long the history is.
    for (const [i, { version, created_at }] of (
      await versionsFor(kysely, id, filter, after?.[0] ?? null)
    ).entries()) {
      if (i % VERSIONS_A_TURN === VERSIONS_A_TURN - 1) await nextTurn();
      const from = version === after?.[0] ? after[1] : null;
      const rows = await changesOf(
        kysely,
        id,
        version,
        filter,
        from,
        page.limit + 1 - changes.length,
      );
      changes.push(...rows.map((row) => ({ ...row, at: created_at })));
      if (changes.length > page.limit) break;
    }
    return paged(
      changes,
      page,
      (row) => [row.version, row.path],
      ({ long_path, ...row }) => ({ ...row, path: long_path ?? row.path }),
    );
  },
});

/**
 * Returns the versions that match the filter, newest first. `upTo`: the version at which the
 * previous page ended.
 */
function versionsFor(
  db: Db,
  id: string,
  { version, since, until }: HistoryFilter,
  upTo: number | null,
) {
  let query = db
    .selectFrom('dataset_versions')
    .select(['version', 'created_at'])
    .where('dataset_id', '=', id);
  if (version !== undefined) query = query.where('version', '=', version);
  if (since !== undefined) query = query.where('created_at', '>=', since);
  if (until !== undefined) query = query.where('created_at', '<', until);
  if (upTo !== null) query = query.where('version', '<=', upTo);
  return query.orderBy('version', 'desc').execute();
}

function changesOf(
  db: Db,
  id: string,
  version: number,
  { paths, folders }: HistoryFilter,
  after: string | null,
  limit: number,
) {
  let query = db
    .selectFrom('dataset_history')
    .select(['version', 'path', 'long_path', 'change', 'size', 'checksum', 'previous_checksum'])
    .where('dataset_id', '=', id)
    .where('version', '=', version);
  if (paths !== undefined) query = query.where('path', 'in', paths.map(pathKey));
  if (folders !== undefined)
    query = query.where((eb) => {
      const within = (column: 'path' | 'long_path', { from, to }: Span) =>
        eb.and([eb(column, '>=', from), eb(column, '<', to)]);
      return eb.or(
        folders
          .map(below)
          .map(({ whole, key }) =>
            key === null
              ? within('path', whole)
              : eb.or([
                  within('path', whole),
                  eb.and([within('path', key), within('long_path', whole)]),
                ]),
          ),
      );
    });
  if (after !== null) query = query.where('path', '>', after);
  return query.orderBy('path').limit(limit).execute();
}
