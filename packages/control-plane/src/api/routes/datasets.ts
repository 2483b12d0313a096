/** Routes of datasets: create, change, scan, read versions and history. */
import { defined } from '@berth/kit/defined';
import type { Dataset } from '@berth/wire/dataset';
import { decodeName, displayPath, encodeName, TreeFormatError } from '@berth/wire/tree';
import { LRUCache } from 'lru-cache';
import { createComparisons, type DiffTotals, diffPage, type InTurn } from '../dataset-diff.ts';
import type { HistoryFilter, DatasetStore } from '../../domain/data/dataset-stores.ts';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import { nfsPathProblem, sharePath } from '@berth/wire/path-rules';
import type { DatasetRecord, DatasetVersionRecord } from '../../domain/platform/records.ts';
import { datasetView, historyView, versionView } from '../dataset-views.ts';
import type { Define, SetEtag, Call } from '../define.ts';
import { checkIfMatch } from '../etag.ts';
import { growingTo } from '../lru.ts';
import { pageOf } from '../page.ts';
import { datasetEtag } from '../resource-etags.ts';
import type { CheckFolder } from '../../domain/data/folder-check.ts';
import type { ApiSettings } from '../settings.ts';
import type { Changes } from '../../domain/platform/changes.ts';

/** Maximum number of pairs of versions whose totals are cached. */
const TOTALS_KEPT = 200;

export type Deps = {
  checkFolder: CheckFolder;
  datasets: Pick<
    DatasetStore,
    | 'create'
    | 'get'
    | 'history'
    | 'list'
    | 'markDeleting'
    | 'patch'
    | 'requestScan'
    | 'trees'
    | 'versions'
    | 'versionsOf'
  >;
  settings: Pick<ApiSettings, 'hasShare'>;
  changes: Pick<Changes, 'notify'>;
  now: () => number;
};

/** State shared by all requests. */
type Context = Deps & {
  totals: LRUCache<string, DiffTotals>;
  inTurn: InTurn;
};

export function datasetRoutes(route: Define, deps: Deps): void {
  /** Versions do not change, so the totals of a pair stay valid. */
  const totals = new LRUCache<string, DiffTotals>(growingTo(TOTALS_KEPT));
  const inTurn = createComparisons();
  const context: Context = { ...deps, totals, inTurn };
  route('listDatasets', (call) => listDatasets(deps, call));
  route('createDataset', (call) => createDataset(deps, call));
  route('getDataset', async ({ params, setEtag }) =>
    view(await deps.datasets.get(params.id), setEtag),
  );
  route('patchDataset', (call) => patchDataset(deps, call));
  route('deleteDataset', (call) => deleteDataset(deps, call));
  route('datasetVersions', (call) => datasetVersions(deps, call));
  route('datasetHistory', (call) => datasetHistory(deps, call));
  route('datasetDiff', (call) => datasetDiff(context, call));
  route('scanDataset', (call) => scanDataset(deps, call));
}

/** Converts a dataset and sets its ETag. */
function view(dataset: DatasetRecord, setEtag: SetEtag): Dataset {
  setEtag(datasetEtag(dataset));
  return datasetView(dataset);
}

/** Returns the check of If-Match, which the store calls inside the transaction. */
function unchanged(ifMatch: string | undefined) {
  return (present: DatasetRecord): void => checkIfMatch(ifMatch, datasetEtag(present));
}

/** Checks a path on the shared storage and returns its stored form. Throws validation. */
async function checkedPath(deps: Deps, given: string): Promise<string> {
  const problem = nfsPathProblem(given, 'nfs_path');
  if (problem !== null) throw invalid(problem.field, problem.rule, problem.message);
  const path = sharePath(given);
  const refusal = await deps.checkFolder(path);
  if (refusal !== null) throw invalid('nfs_path', refusal.rule, refusal.message);
  return path;
}

async function listDatasets(deps: Deps, { query }: Call<'listDatasets'>) {
  const { items, next } = await deps.datasets.list(pageOf(query), query);
  return { items: items.map(datasetView), next_cursor: next };
}

async function createDataset(deps: Deps, { body, setEtag }: Call<'createDataset'>) {
  const dataset = await deps.datasets.create(
    { ...body, nfs_path: await checkedPath(deps, body.nfs_path) },
    deps.now(),
  );
  deps.changes.notify('datasets', 'events');
  return view(dataset, setEtag);
}

async function patchDataset(
  deps: Deps,
  { params, body, setEtag, ifMatch, access }: Call<'patchDataset'>,
) {
  // Check that the dataset exists before the folder is checked. Throws not_found.
  await deps.datasets.get(params.id);
  const patch =
    body.nfs_path === undefined
      ? body
      : { ...body, nfs_path: await checkedPath(deps, body.nfs_path) };
  const dataset = await deps.datasets.patch(
    params.id,
    patch,
    deps.now(),
    unchanged(ifMatch),
    access,
  );
  deps.changes.notify('datasets', 'events');
  return view(dataset, setEtag);
}

async function deleteDataset(
  deps: Deps,
  { params, setEtag, ifMatch, access }: Call<'deleteDataset'>,
) {
  const dataset = await deps.datasets.markDeleting(
    params.id,
    deps.now(),
    unchanged(ifMatch),
    access,
  );
  deps.changes.notify('datasets', 'events');
  return view(dataset, setEtag);
}

async function datasetVersions(deps: Deps, { params, query }: Call<'datasetVersions'>) {
  const { items, next } = await deps.datasets.versions(params.id, pageOf(query));
  return { items: items.map(versionView), next_cursor: next };
}

async function datasetHistory(deps: Deps, { params, query }: Call<'datasetHistory'>) {
  const filter: HistoryFilter = {
    ...pathFilter(query.path),
    ...defined({
      version: query.version,
      since: query.since === undefined ? undefined : Date.parse(query.since),
      until: query.until === undefined ? undefined : Date.parse(query.until),
    }),
  };
  const { items, next } = await deps.datasets.history(params.id, filter, pageOf(query));
  return { items: items.map(historyView), next_cursor: next };
}

async function datasetDiff(context: Context, { params, query, user, reply }: Call<'datasetDiff'>) {
  const { limit, cursor } = pageOf(query);
  if (cursor !== null && !/^\d{1,6}$/.test(cursor))
    throw invalid('cursor', 'format', 'must be the next_cursor of an earlier page');
  const dataset = await context.datasets.get(params.id);
  const versions = await context.datasets.versionsOf(dataset.id, [query.from, query.to]);
  const versionAt = (version: number): DatasetVersionRecord => {
    const row = versions.find((one) => one.version === version);
    if (row === undefined) throw noVersion(dataset, version);
    return row;
  };
  const [from, to] = [versionAt(query.from), versionAt(query.to)];
  const load = async (digest: string): Promise<string> => {
    const text = (await context.datasets.trees(dataset.id, [digest])).get(digest);
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
  const page = await context.inTurn(user.id, gone.signal, () =>
    diffPage(roots, load, {
      offset,
      limit,
      known: context.totals.get(key) ?? null,
      signal: gone.signal,
    }),
  );
  if (page.isFinal) context.totals.set(key, page.totals);
  return {
    from: versionView(from),
    to: versionView(to),
    totals: page.totals,
    items: page.items.map((item) => ({ ...item, path: displayPath(item.path) })),
    next_cursor: page.hasMore ? String(offset + page.items.length) : null,
  };
}

async function scanDataset(deps: Deps, { params, body, setEtag }: Call<'scanDataset'>) {
  if (!deps.settings.hasShare) {
    const { name } = await deps.datasets.get(params.id);
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
  const dataset = await deps.datasets.requestScan(params.id, options, deps.now());
  deps.changes.notify('datasets', 'events');
  return view(dataset, setEtag);
}

/** Returns an error that says whether the version never existed or was removed. */
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
 * Returns the filter for a path from the API, which shows a path as text, or encoded if it is not
 * UTF-8. So the filter tries both forms. A final `/` means a folder.
 */
function pathFilter(shown: string | undefined): Pick<HistoryFilter, 'folders' | 'paths'> {
  if (shown === undefined) return {};
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
