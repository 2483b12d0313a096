/** One pass over a listing: reuses known checksums and hashes all other files. */
import { createSha256Pool, type HashResult } from '@berth/kit/sha256-files';
import { encodeName } from '@berth/wire/tree';
import { eachRecord, FILE, type Listing, parseFile, pathStart } from './listing.ts';
import { createLookup } from './known-sums.ts';
import { pace } from './scan-pace.ts';
import { unreachable } from './share.ts';

const NAMED = 5;
const ZEROS = Buffer.alloc(32);

export type Round = {
  /**
   * Checksums, 32 bytes for each record; zeros if the record is no file or its checksum is unknown.
   */
  sums: Buffer;
  /**
   * Records that the old listing does not have; all records if there is no old listing. `first`:
   * encoded paths of the first five or fewer.
   */
  fresh: { count: number; first: string[] };
  /** Number of files that changed while they were hashed. */
  unknown: number;
};
export type KnownSums = { listing: Listing; sums: Buffer };

export type RoundOptions = {
  root: string;
  old: KnownSums | null;
  /** If false, hash all files; `old` then only tells which records are new. */
  trustSums: boolean;
  workers: number;
  onHashed: (files: number, bytes: () => number) => void;
  /** Saves the known checksums at this interval. */
  keep: { everyMs: number; sums: (sums: Buffer) => Promise<void> };
};

/**
 * Hashes the files of a listing. `records`: number of records in the listing. Throws
 * ShareUnreachableError for the first file that cannot be read.
 */
export async function hashRound(
  listing: Listing,
  records: number,
  { root, old, trustSums, workers, onHashed, keep }: RoundOptions,
): Promise<Round> {
  const round: Round = {
    sums: Buffer.alloc(32 * records),
    fresh: { count: 0, first: [] },
    unknown: 0,
  };
  const lookup = old === null ? null : createLookup(old.listing);
  const rootBytes = Buffer.from(`${root}/`);
  let failed: Error | null = null;
  let files = 0;
  const take = (file: { path: Buffer; size: number; index: number }, result: HashResult): void => {
    // If the size differs, the name led to another file during the hashing, and the next listing
    // might not show that.
    if (result.kind === 'ok' && result.size === file.size)
      round.sums.set(result.sha256, 32 * file.index);
    else if (result.kind !== 'error') round.unknown++;
    else failed ??= unreachable(`The file ${encodeName(file.path)}`, result.code);
    onHashed(++files, pool.bytesRead);
  };
  const pool = createSha256Pool<{ path: Buffer; size: number; index: number }>(
    { workers, pace },
    take,
  );
  onHashed(0, pool.bytesRead);

  const takeOver = (buffer: Buffer, from: number, to: number, index: number): void => {
    const was = lookup?.(buffer, from, to) ?? -1;
    if (was === -1) {
      round.fresh.count++;
      const start = pathStart(buffer, from);
      if (round.fresh.first.length < NAMED)
        round.fresh.first.push(encodeName(buffer.subarray(start, buffer.indexOf(0, start))));
    } else if (old !== null && trustSums && buffer[from] === FILE)
      old.sums.copy(round.sums, 32 * index, 32 * was, 32 * was + 32);
  };
  let full: Promise<void>[] = [];
  const hashUnknown = (buffer: Buffer, from: number, to: number, index: number): void => {
    if (
      buffer[from] !== FILE ||
      round.sums.compare(ZEROS, 0, 32, 32 * index, 32 * index + 32) !== 0
    )
      return;
    const { size, path } = parseFile(buffer, from);
    const waiting = pool.add({
      path: Buffer.concat([rootBytes, buffer.subarray(path, to - 1)]),
      size,
      index,
    });
    if (waiting !== null) full.push(waiting);
  };
  // Take over known checksums first: a scan that is killed during the hashing must not save fewer
  // checksums than it started with.
  await eachRecord(listing, takeOver);
  const keeper = startKeeper(keep.everyMs, () => keep.sums(round.sums));
  try {
    await eachRecord(listing, hashUnknown, async () => {
      if (failed !== null) throw failed;
      await Promise.all(full);
      full = [];
    });
    await pool.drain();
    if (failed !== null) throw failed as Error;
    return round;
  } finally {
    pool.close();
    await keeper.stop();
  }
}

/**
 * Saves checksums at an interval, never twice at a time. `stop` waits for a running save and
 * rejects with the first error.
 */
function startKeeper(everyMs: number, keep: () => Promise<void>): { stop(): Promise<void> } {
  let last: Promise<void> = Promise.resolve();
  let busy = false;
  let failed: { error: unknown } | null = null;
  const timer = setInterval(() => {
    if (busy || failed !== null) return;
    busy = true;
    last = keep()
      .catch((error: unknown) => {
        failed = { error };
      })
      .finally(() => {
        busy = false;
      });
  }, everyMs);
  return {
    async stop() {
      clearInterval(timer);
      await last;
      if (failed !== null) throw failed.error;
    },
  };
}
