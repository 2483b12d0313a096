/**
 * Scans a folder whose listing has changed: hashes the new files and builds the tree. A state is
 * recorded only if the listings before and after the hashing are equal, because then every file had
 * the hashed content at one moment.
 */
import { closeSync, constants, copyFileSync, openSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import type { ScanOutcome } from '../../domain/data/scan.ts';
import { buildTree } from './build-tree.ts';
import { type Cache, type CacheHeader, saveCache } from './cache.ts';
import { hashRound, type KnownSums, type Round } from './hash-round.ts';
import { eachRecord, FILE, LINK, type Listing, parseFile, sameBytes } from './listing.ts';
import type { Listed, ScanFolder } from './scan-folder.ts';
import type { ScanJob } from '../scan-job.ts';
import { createTreeFiles } from '../scratch.ts';

/**
 * Maximum number of retries if the folder was written during the hashing. The pause doubles each
 * time.
 */
const MAX_RETRIES = 5;
const PAUSE_MS = 100;
/**
 * Coarsest timestamp resolution of a file system. A file written this close to the scan is hashed
 * again in the next one.
 */
const GRAIN_SECONDS = 5;
/**
 * Maximum time in seconds by which the file server's clock is ahead. A later modification time was
 * set by hand, so a new write would change it.
 */
const AHEAD_SECONDS = 86_400;

/** A listing and the checksum of each of its files. */
type HashedListing = Listed & { sums: Buffer };

/**
 * Scans a changed folder. `cache`: of the last scan, or null. `startedAt`: seconds since the epoch,
 * before the first listing.
 */
export async function scanState(
  folder: ScanFolder,
  first: Listed,
  cache: Cache | null,
  startedAt: number,
): Promise<ScanOutcome> {
  const { job, root, onStep } = folder;
  const counted = await count(first.listing);
  const lossInListing = lossOf(folder, counted.leaves, counted.bytes);
  if (lossInListing !== null) return lossInListing;

  const save = async (
    { listing, path, sums }: HashedListing,
    found: CacheHeader['found'],
  ): Promise<void> => {
    const unknown = await forgetRacy(listing, sums, startedAt);
    saveCache(job.cachePath, path, listing, sums, { root, unknown, found });
  };
  // Save progress, so that a first scan of many hours continues where it was killed.
  const saveProgress = async ({ listing, path, sums }: HashedListing): Promise<void> => {
    const copy = `${path}-kept`;
    copyFileSync(path, copy, constants.COPYFILE_FICLONE);
    const fd = openSync(copy, 'r+');
    try {
      await save(
        { listing: { fd, length: listing.length }, path: copy, sums: Buffer.from(sums) },
        null,
      );
    } finally {
      closeSync(fd);
    }
  };
  const hashed = await hashUntilStable(folder, first, counted.records, cache, saveProgress);
  if (hashed.problem !== null) {
    await save(hashed, null);
    return { kind: 'changing', problem: hashed.problem };
  }

  const trees = createTreeFiles(job.scratchDir);
  const tree = await buildTree(hashed.listing, {
    root,
    sums: hashed.sums,
    writer: trees,
    onRecord: (records) => onStep('building', records),
  });
  trees.finish();
  const lossInTree = lossOf(folder, tree.files, tree.bytes);
  if (lossInTree !== null) return lossInTree;
  const share = folder.checkShare();

  const { digest, files, bytes, skipped } = tree;
  await save(hashed, { manifestDigest: digest, files, bytes, skipped });
  if (digest === job.previous?.manifestDigest)
    return { kind: 'unchanged', files, bytes, skipped, share };
  return { kind: 'changed', manifestDigest: digest, files, bytes, skipped, share };
}

async function count(
  listing: Listing,
): Promise<{ records: number; leaves: number; bytes: number }> {
  const counted = { records: 0, leaves: 0, bytes: 0 };
  await eachRecord(listing, (buffer, from) => {
    counted.records++;
    if (buffer[from] === FILE || buffer[from] === LINK) counted.leaves++;
    if (buffer[from] === FILE) counted.bytes += parseFile(buffer, from).size;
  });
  return counted;
}

const ACCEPT_LOSS =
  'If the files were removed on purpose, send POST /api/datasets/ID/scan {"accept_loss": true}.';

/**
 * Returns the outcome of a loss, or null. A loss means that more than half of the newest version's
 * files or bytes are gone. Emptied files are a loss too.
 */
function lossOf({ job, checkShare }: ScanFolder, files: number, bytes: number): ScanOutcome | null {
  const { previous, acceptLoss, nfsPath }: ScanJob = job;
  if (acceptLoss || previous === null) return null;
  const lossText =
    filesLost(nfsPath, previous.files, files) ?? bytesLost(nfsPath, previous.bytes, bytes);
  if (lossText === null) return null;
  // Check the share again: if it became unreachable meanwhile, no file is lost.
  const share = checkShare();
  return {
    kind: 'suspicious',
    problem: `${lossText} No version was made. ${ACCEPT_LOSS}`,
    files,
    bytes,
    share,
  };
}

function filesLost(nfsPath: string, before: number, files: number): string | null {
  if (files * 2 >= before) return null;
  if (files === 0) return `The folder ${nfsPath} is empty; the newest version has ${before} files.`;
  return `More than half of the files in ${nfsPath} are gone: ${files} are left of ${before}.`;
}

function bytesLost(nfsPath: string, before: number, bytes: number): string | null {
  if (bytes * 2 >= before) return null;
  return (
    `More than half of the content of ${nfsPath} is gone: ${bytes} bytes are left of ${before} ` +
    'bytes.'
  );
}

/** Repeats listing and hashing until two listings are equal and every checksum is known. */
async function hashUntilStable(
  { job, root, list, onStep }: ScanFolder,
  first: Listed,
  records: number,
  cache: Cache | null,
  saveProgress: (state: HashedListing) => Promise<void>,
): Promise<HashedListing & { problem: string | null }> {
  let previous = knownOf(cache);
  let current = { ...first, records };
  for (let retry = 0; ; retry++) {
    const { listing, path } = current;
    const trustSums = retry > 0 || !job.full;
    const round = await hashRound(listing, current.records, {
      root,
      old: previous?.known ?? null,
      trustSums,
      workers: job.workers,
      onHashed: (files, bytes) => onStep('hashing', files, bytes),
      keep: { everyMs: job.keepMs, sums: (sums) => saveProgress({ listing, path, sums }) },
    });
    const state = { listing, path, sums: round.sums };
    // If no record is new and the count is equal, nothing changed: keep the state. The previous
    // listing has the same records, sorted differently, each with its checksum.
    if (
      previous?.complete === true &&
      trustSums &&
      round.fresh.count === 0 &&
      current.records === previous.records
    )
      return { ...state, problem: null };
    if (retry === MAX_RETRIES) return { ...state, problem: instabilityText(round) };
    if (retry > 0) await setTimeout(PAUSE_MS * 2 ** retry);
    const relisted = await list();
    if (round.unknown === 0 && sameBytes(listing, relisted.listing))
      return { ...state, problem: null };
    previous = { known: state, records: current.records, complete: round.unknown === 0 };
    current = { ...relisted, records: (await count(relisted.listing)).records };
  }
}

type Previous = { known: KnownSums; records: number; complete: boolean };

function knownOf(cache: Cache | null): Previous | null {
  const sums = cache?.sums() ?? null;
  if (cache === null || sums === null) return null;
  return {
    known: { listing: cache.listing, sums },
    records: cache.header.records,
    complete: cache.header.unknown === 0,
  };
}

function instabilityText({ fresh }: Round): string {
  const named = fresh.first.length === 0 ? 'files were removed' : `last ${fresh.first.join(', ')}`;
  const more =
    fresh.count > fresh.first.length ? ` and ${fresh.count - fresh.first.length} more` : '';
  return (
    `The folder was written while it was hashed, ${MAX_RETRIES + 1} times in a row ` +
    `(${named}${more}); no version was made.`
  );
}

/**
 * Removes checksums of files written so late that another write could get the same timestamp.
 * Returns the number of files without a checksum.
 */
async function forgetRacy(listing: Listing, sums: Buffer, startedAt: number): Promise<number> {
  const [late, ahead] = [startedAt - GRAIN_SECONDS, startedAt + AHEAD_SECONDS];
  let unknown = 0;
  await eachRecord(listing, (buffer, from, _to, index) => {
    if (buffer[from] !== FILE) return;
    const { mtime, ctime } = parseFile(buffer, from);
    const sum = sums.subarray(32 * index, 32 * index + 32);
    if (ctime >= late || (mtime >= late && mtime <= ahead)) sum.fill(0);
    if (sum.equals(ZEROS)) unknown++;
  });
  return unknown;
}

const ZEROS = Buffer.alloc(32);
