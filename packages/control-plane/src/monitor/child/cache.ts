/**
 * The cache that a scan leaves for the next one: the listing, the checksum of each record and the
 * result. It is one file, replaced by rename. If the file is lost, damaged or of another version,
 * the next scan hashes every file again.
 *
 *   listing | 32 bytes for each record (zeros: unknown) | header, JSON | SHA-256 of the header |
 *   its length, 4 bytes | magic
 */
import { hash } from 'node:crypto';
import { closeSync, fstatSync, ftruncateSync, openSync, writeSync } from 'node:fs';
import { replaceFileSync } from '@berth/kit/write-file';
import type { Skipped } from '@berth/wire/dataset';
import { type Listing, readFully } from './listing.ts';

const MAGIC = Buffer.from('berth-scan 1\n', 'latin1');
const FOOTER = 32 + 4 + MAGIC.length;
const MOST_HEADER = 4 * 1024 * 1024;

export type CacheHeader = {
  /** The real path of the folder that was listed. */
  root: string;
  listingBytes: number;
  records: number;
  sumsDigest: string;
  /**
   * Number of files without a checksum, including files that must be hashed again because they were
   * written around the time of the scan.
   */
  unknown: number;
  /** Result of the scan; null if the files kept changing. */
  found: { manifestDigest: string; files: number; bytes: number; skipped: Skipped } | null;
};
export type Cache = { header: CacheHeader; listing: Listing; sums(): Buffer | null; close(): void };

/** Opens a cache. Returns null if it is not usable. */
export function openCache(path: string, root: string): Cache | null {
  let fd: number;
  try {
    fd = openSync(path, 'r');
  } catch {
    return null;
  }
  const header = readHeader(fd);
  if (header === null || header.root !== root) {
    closeSync(fd);
    return null;
  }
  return {
    header,
    listing: { fd, length: header.listingBytes },
    sums() {
      const sums = Buffer.allocUnsafe(32 * header.records);
      readFully(fd, sums, sums.length, header.listingBytes);
      return hash('sha256', sums, 'hex') === header.sumsDigest ? sums : null;
    },
    close: () => closeSync(fd),
  };
}

function readHeader(fd: number): CacheHeader | null {
  const { size } = fstatSync(fd);
  if (size < FOOTER) return null;
  const footer = Buffer.alloc(FOOTER);
  readFully(fd, footer, FOOTER, size - FOOTER);
  const length = footer.readUInt32LE(32);
  if (!footer.subarray(36).equals(MAGIC) || length > Math.min(MOST_HEADER, size - FOOTER))
    return null;
  const text = Buffer.alloc(length);
  readFully(fd, text, length, size - FOOTER - length);
  if (!hash('sha256', text, 'buffer').equals(footer.subarray(0, 32))) return null;
  const header = JSON.parse(text.toString('utf8')) as CacheHeader;
  return header.listingBytes + 32 * header.records + length + FOOTER === size ? header : null;
}

/**
 * Saves a cache: appends to the file of the listing (`listingPath`, on the same file system) and
 * renames it to `path`.
 */
export function saveCache(
  path: string,
  listingPath: string,
  listing: Listing,
  sums: Buffer,
  rest: Pick<CacheHeader, 'root' | 'unknown' | 'found'>,
): void {
  const header: CacheHeader = {
    ...rest,
    listingBytes: listing.length,
    records: sums.length / 32,
    sumsDigest: hash('sha256', sums, 'hex'),
  };
  const text = Buffer.from(JSON.stringify(header), 'utf8');
  const length = Buffer.alloc(4);
  length.writeUInt32LE(text.length);
  ftruncateSync(listing.fd, listing.length);
  let position = listing.length;
  for (const part of [sums, text, hash('sha256', text, 'buffer'), length, MAGIC]) {
    for (let done = 0; done < part.length; )
      done += writeSync(listing.fd, part, done, part.length - done, position + done);
    position += part.length;
  }
  replaceFileSync(listingPath, path);
}
