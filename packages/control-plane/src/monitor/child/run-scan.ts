/**
 * One scan, in the child process. It checks that the share is the same as before and compares the
 * listing with the last one. Every failure of the share is a ShareUnreachableError. Most scans find
 * an unchanged folder and end here; scan-state.ts is loaded only for a changed folder.
 */
import { closeSync } from 'node:fs';
import { join } from 'node:path';
import type { ShareIdentity } from '../../domain/platform/records.ts';
import type { ScanOutcome } from '../../domain/data/scan.ts';
import type { ScanJob } from '../scan-job.ts';
import { openCache } from './cache.ts';
import { sameBytes, writeListing } from './listing.ts';
import type { Listed, OnStep, ScanFolder } from './scan-folder.ts';
import { realFolder, seeShare, ShareUnreachableError } from './share.ts';

/** Runs a scan. Resolves with the outcome; rejects if the scanner itself failed. */
export async function runScan(job: ScanJob, onStep: OnStep): Promise<ScanOutcome> {
  const ends: (() => void)[] = [];
  try {
    const { share, same } = shareOf(job, job.share);
    // A scan counts only if the share at its end is the same as at its beginning.
    const checkShare = (): ShareIdentity => shareOf(job, share).share;
    const root = folderOf(job);
    // Accept a loss only on the known share: files that another share lacks are not lost.
    const seen = same ? job : { ...job, acceptLoss: false };
    return await scan(
      { job: seen, root, list: createLister(root, job, onStep, ends), checkShare, onStep },
      ends,
    );
  } catch (error) {
    if (error instanceof ShareUnreachableError)
      return { kind: 'unreachable', problem: error.message };
    throw error;
  } finally {
    for (const end of ends) end();
  }
}

/** `ends`: receives functions that close what the scan opened. */
async function scan(folder: ScanFolder, ends: (() => void)[]): Promise<ScanOutcome> {
  const { job, root } = folder;
  const startedAt = Date.now() / 1000;
  const first = await folder.list();
  const cache = openCache(job.cachePath, root);
  if (cache !== null) ends.push(cache.close);
  const lastFound = cache?.header.found ?? null;
  if (
    cache !== null &&
    lastFound !== null &&
    !job.full &&
    cache.header.unknown === 0 &&
    lastFound.manifestDigest === job.previous?.manifestDigest &&
    sameBytes(first.listing, cache.listing)
  ) {
    const { files, bytes, skipped } = lastFound;
    return { kind: 'unchanged', files, bytes, skipped, share: folder.checkShare() };
  }
  const { scanState } = await import('./scan-state.ts');
  return scanState(folder, first, cache, startedAt);
}

function shareOf({ basePath }: ScanJob, was: ShareIdentity | null): ReturnType<typeof seeShare> {
  return seeShare(realFolder(basePath, `The base path ${basePath}`), was);
}

function folderOf({ basePath, nfsPath }: ScanJob): string {
  const what = `The folder ${join(basePath, nfsPath)}`;
  const root = realFolder(join(basePath, nfsPath), what);
  const base = realFolder(basePath, `The base path ${basePath}`);
  if (!root.startsWith(base === '/' ? base : `${base}/`))
    throw new ShareUnreachableError(`${what} leads out of the base path, to ${root}.`);
  return root;
}

function createLister(
  root: string,
  { scratchDir, searchPath }: ScanJob,
  onStep: OnStep,
  ends: (() => void)[],
): () => Promise<Listed> {
  let number = 0;
  return async () => {
    const path = join(scratchDir, `listing-${number++}`);
    const onWritten = (files: number): void => onStep('listing', files);
    const listing = await writeListing(root, path, { env: { PATH: searchPath }, onWritten });
    ends.push(() => closeSync(listing.fd));
    return { listing, path };
  };
}
