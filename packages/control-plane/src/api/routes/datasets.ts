/** Datasets as people register, look at and scan them. */
import type { Dataset } from '@berth/wire/dataset';
import { decodeName, encodeName, TreeFormatError } from '@berth/wire/tree';
import type { HistoryFilter } from '../../domain/dataset-stores.ts';
import { DomainError, invalid } from '../../domain/errors.ts';
import { nfsPathProblem, sharePath } from '../../domain/paths.ts';
import type { DatasetRecord } from '../../domain/records.ts';
import { datasetView, historyView, versionView } from '../dataset-views.ts';
import type { Define, Tag } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import { checkIfMatch } from '../etag.ts';
import { pageOf } from '../page.ts';
import { datasetTag } from '../tags.ts';

export function datasetRoutes(route: Define, deps: Pick<ApiDeps, 'stores' | 'changes' | 'lookAtFolder' | 'settings' | 'now'>): void {
  const { stores, changes, lookAtFolder, settings, now } = deps;

  /** One dataset and its ETag. */
  const view = (dataset: DatasetRecord, tag: Tag): Dataset => {
    tag(datasetTag(dataset));
    return datasetView(dataset);
  };
  /** The check of If-Match, for where the dataset cannot change meanwhile. */
  const unchanged =
    (ifMatch: string | undefined) =>
    (present: DatasetRecord): void =>
      checkIfMatch(ifMatch, datasetTag(present));

  /** Gives it in the one way it is kept. Throws validation. */
  async function checkedPath(given: string): Promise<string> {
    const problem = nfsPathProblem(given, 'nfs_path');
    if (problem !== null) throw invalid(problem.field, problem.rule, problem.message);
    const path = sharePath(given);
    const seen = await lookAtFolder(path);
    if (seen !== null) throw invalid('nfs_path', seen.rule, seen.message);
    return path;
  }

  route('listDatasets', async ({ query }) => {
    const { items, next } = await stores.datasets.list(pageOf(query), query);
    return { items: items.map(datasetView), next_cursor: next };
  });

  route('createDataset', async ({ body, tag }) => {
    const dataset = await stores.datasets.create({ ...body, nfs_path: await checkedPath(body.nfs_path) }, now());
    changes.notify('datasets', 'events');
    return view(dataset, tag);
  });

  route('getDataset', async ({ params, tag }) => view(await stores.datasets.get(params.id), tag));

  route('patchDataset', async ({ params, body, tag, ifMatch }) => {
    // First: whether there is one to change.
    await stores.datasets.get(params.id);
    const patch = body.nfs_path === undefined ? body : { ...body, nfs_path: await checkedPath(body.nfs_path) };
    const dataset = await stores.datasets.patch(params.id, patch, now(), unchanged(ifMatch));
    changes.notify('datasets', 'events');
    return view(dataset, tag);
  });

  route('deleteDataset', async ({ params, tag, ifMatch }) => {
    const dataset = await stores.datasets.markDeleting(params.id, now(), unchanged(ifMatch));
    changes.notify('datasets', 'events');
    return view(dataset, tag);
  });

  route('datasetVersions', async ({ params, query }) => {
    const { items, next } = await stores.datasets.versions(params.id, pageOf(query));
    return { items: items.map(versionView), next_cursor: next };
  });

  route('datasetHistory', async ({ params, query }) => {
    const filter: HistoryFilter = {
      ...(query.path === undefined ? {} : pathFilter(query.path)),
      ...(query.version === undefined ? {} : { version: query.version }),
      ...(query.since === undefined ? {} : { since: Date.parse(query.since) }),
      ...(query.until === undefined ? {} : { until: Date.parse(query.until) }),
    };
    const { items, next } = await stores.datasets.history(params.id, filter, pageOf(query));
    return { items: items.map(historyView), next_cursor: next };
  });

  route('scanDataset', async ({ params, body, tag }) => {
    if (!settings.hasShare) {
      const { name } = await stores.datasets.get(params.id);
      throw new DomainError('wrong_state', `${name} cannot be scanned: DATASET_NFS_BASE_PATH of the control plane is not set`);
    }
    const asked = { full: body.full ?? false, acceptLoss: body.accept_loss ?? false };
    const dataset = await stores.datasets.requestScan(params.id, asked, now());
    changes.notify('datasets', 'events');
    return view(dataset, tag);
  });
}

/** A path is shown as text where it is text, else encoded: what comes back may be either. With `/` at its end it is a folder. */
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
