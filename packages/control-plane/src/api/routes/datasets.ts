/** Routes of datasets: create, change, scan, read versions and history. */
import { defined } from '@berth/kit/defined';
import type { Dataset } from '@berth/wire/dataset';
import { decodeName, displayPath, encodeName, TreeFormatError } from '@berth/wire/tree';
import { LRUCache } from 'lru-cache';
import { createComparisons, type DiffTotals, diffPage } from '../dataset-diff.ts';
import type { HistoryFilter } from '../../domain/data/dataset-stores.ts';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import { nfsPathProblem, sharePath } from '../../domain/projects/paths.ts';
import type { DatasetRecord, DatasetVersionRecord } from '../../domain/platform/records.ts';
import { datasetView, historyView, versionView } from '../dataset-views.ts';
import type { Define, SetEtag } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { checkIfMatch } from '../etag.ts';
import { growingTo } from '../lru.ts';
import { pageOf } from '../page.ts';
import { datasetEtag } from '../resource-etags.ts';

/** Pairs of versions whose totals are kept. */
const TOTALS_KEPT = 200;

export function datasetRoutes(
  route: Define,
  deps: Pick<ApiDeps, 'stores' | 'changes' | 'checkFolder' | 'settings' | 'now'>,
): void {
  const { stores, changes, checkFolder, settings, now } = deps;

  /** Converts a dataset and sets its ETag. */
  const view = (dataset: DatasetRecord, setEtag: SetEtag): Dataset => {
    setEtag(datasetEtag(dataset));
    return datasetView(dataset);
  };
  /** Returns the check of If-Match. The store calls it inside the transaction. */
  const unchanged =
    (ifMatch: string | undefined) =>
    (present: DatasetRecord): void =>
      checkIfMatch(ifMatch, datasetEtag(present));

  /** Checks a path on the shared storage and returns its stored form. Throws validation. */
  async function checkedPath(given: string): Promise<string> {
    const problem = nfsPathProblem(given, 'nfs_path');
    if (problem !== null) throw invalid(problem.field, problem.rule, problem.message);
    const path = sharePath(given);
    const refusal = await checkFolder(path);
    if (refusal !== null) throw invalid('nfs_path', refusal.rule, refusal.message);
    return path;
  }

  route('listDatasets', async ({ query }) => {
    const { items, next } = await stores.datasets.list(pageOf(query), query);
    return { items: items.map(datasetView), next_cursor: next };
  });

  route('createDataset', async ({ body, setEtag }) => {
    const dataset = await stores.datasets.create(
      { ...body, nfs_path: await checkedPath(body.nfs_path) },
      now(),
    );
    changes.notify('datasets', 'events');
    return view(dataset, setEtag);
  });

  route('getDataset', async ({ params, setEtag }) =>
    view(await stores.datasets.get(params.id), setEtag),
  );

  route('patchDataset', async ({ params, body, setEtag, ifMatch, access }) => {
    // Throws not_found before the folder is checked.
    await stores.datasets.get(params.id);
    const patch =
      body.nfs_path === undefined ? body : { ...body, nfs_path: await checkedPath(body.nfs_path) };
    const dataset = await stores.datasets.patch(
      params.id,
      patch,
      now(),
      unchanged(ifMatch),
      access,
    );
    changes.notify('datasets', 'events');
    return view(dataset, setEtag);
  });

  route('deleteDataset', async ({ params, setEtag, ifMatch, access }) => {
    const dataset = await stores.datasets.markDeleting(
      params.id,
      now(),
      unchanged(ifMatch),
      access,
    );
    changes.notify('datasets', 'events');
    return view(dataset, setEtag);
  });

  route('datasetVersions', async ({ params, query }) => {
    const { items, next } = await stores.datasets.versions(params.id, pageOf(query));
    return { items: items.map(versionView), next_cursor: next };
  });

  route('datasetHistory', async ({ params, query }) => {
    const filter: HistoryFilter = {
      ...(query.path === undefined ? {} : pathFilter(query.path)),
      ...defined({
        version: query.version,
        since: query.since === undefined ? undefined : Date.parse(query.since),
        until: query.until === undefined ? undefined : Date.parse(query.until),
      }),
    };
    const { items, next } = await stores.datasets.history(params.id, filter, pageOf(query));
    return { items: items.map(historyView), next_cursor: next };
  });

  /** Versions do not change, so the totals of two stay right. */
  const totals = new LRUCache<string, DiffTotals>(growingTo(TOTALS_KEPT));

  const inTurn = createComparisons();

  route('datasetDiff', async ({ params, query, user, reply }) => {
    const { limit, cursor } = pageOf(query);
    if (cursor !== null && !/^\d{1,6}$/.test(cursor))
      throw invalid('cursor', 'format', 'must be the next_cursor of an earlier page');
    const dataset = await stores.datasets.get(params.id);
    const found = await stores.datasets.versionsOf(dataset.id, [query.from, query.to]);
    const versionAt = (version: number): DatasetVersionRecord => {
      const row = found.find((one) => one.version === version);
      if (row === undefined) throw noVersion(dataset, version);
      return row;
    };
    const [from, to] = [versionAt(query.from), versionAt(query.to)];
    const load = async (digest: string): Promise<string> => {
      const text = (await stores.datasets.trees(dataset.id, [digest])).get(digest);
      if (text === undefined)
        throw new DomainError(
          'not_found',
          `a version of ${dataset.name} was removed during the comparison`,
        );
      return text;
    };
    const offset = Number(cursor ?? 0);
    const key = `${dataset.id} ${from.manifest_digest} ${to.manifest_digest}`;
    const roots = { from: from.manifest_digest, to: to.manifest_digest };
    const gone = new AbortController();
    reply.raw.on('close', () => gone.abort());
    const page = await inTurn(user.id, gone.signal, () =>
      diffPage(roots, load, { offset, limit, known: totals.get(key) ?? null, signal: gone.signal }),
    );
    if (page.isFinal) totals.set(key, page.totals);
    return {
      from: versionView(from),
      to: versionView(to),
      totals: page.totals,
      items: page.items.map((item) => ({ ...item, path: displayPath(item.path) })),
      next_cursor: page.hasMore ? String(offset + page.items.length) : null,
    };
  });

  route('scanDataset', async ({ params, body, setEtag }) => {
    if (!settings.hasShare) {
      const { name } = await stores.datasets.get(params.id);
      throw new DomainError(
        'wrong_state',
        `cannot scan ${name}: the control plane has no shared storage; set DATASET_NFS_BASE_PATH`,
      );
    }
    const options = {
      full: body.full ?? false,
      acceptLoss: body.accept_loss ?? false,
      acceptShare: body.accept_share ?? false,
    };
    const dataset = await stores.datasets.requestScan(params.id, options, now());
    changes.notify('datasets', 'events');
    return view(dataset, setEtag);
  });
}

/** Says whether the version never existed or was removed. */
function noVersion({ name, version: newest }: DatasetRecord, version: number): DomainError {
  if (newest === null) return new DomainError('not_found', `${name} has no version yet`);
  if (version > newest)
    return new DomainError(
      'not_found',
      `${name} has no version ${version}; its newest is ${newest}`,
    );
  return new DomainError(
    'not_found',
    `version ${version} of ${name} was removed: Berth keeps the newest versions and those in use`,
  );
}

/**
 * The API shows a path as text, or encoded if it is not UTF-8. So a filter may have either form. A
 * final `/` means a folder.
 */
function pathFilter(shown: string): HistoryFilter {
  const asText = encodeName(Buffer.from(shown));
  const both = isEncoded(shown) ? [...new Set([asText, shown])] : [asText];
  return shown.endsWith('/') ? { folders: both } : { paths: both };
}

function isEncoded(path: string): boolean {
  try {
    decodeName(path);
    return true;
  } catch (error) {
    if (error instanceof TreeFormatError) return false;
    throw error;
  }
}
