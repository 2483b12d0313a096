/**
 * Finds the records of one listing in another. Byte-identical records of a file mean that its known
 * checksum is still valid.
 */
import { type Listing, readFully, recordEnd } from './listing.ts';
import { breathe } from './scan-pace.ts';

/** Returns the number of the identical record in the old listing, or -1. */
export type Lookup = (buffer: Buffer, from: number, to: number) => number;

/**
 * Creates a lookup. It holds the old listing in memory (about 110 bytes for each file) and, once
 * the orders differ, a table of 12 bytes for each record.
 */
export function createLookup(old: Listing): Lookup {
  const listing = Buffer.allocUnsafe(old.length);
  readFully(old.fd, listing, old.length, 0);
  // Try the next record first: both listings usually have the same order.
  let position = 0;
  let index = 0;
  let table: Table | null = null;

  const isAt = (at: number, buffer: Buffer, from: number, to: number): boolean =>
    at + to - from <= listing.length && listing.compare(buffer, from, to, at, at + to - from) === 0;
  return (buffer, from, to) => {
    if (!isAt(position, buffer, from, to)) {
      table ??= createTable(listing);
      const entry = table.find(hashOf(buffer, from, to), (at) => isAt(at, buffer, from, to));
      if (entry === -1) return -1;
      index = entry;
      position = table.offset(entry);
    }
    position += to - from;
    return index++;
  };
}

type Table = {
  find(hash: number, isIt: (offset: number) => boolean): number;
  offset(index: number): number;
};

/**
 * Creates a hash table with open addressing in typed arrays: a million objects would need ten times
 * the memory of the listing.
 */
function createTable(listing: Buffer): Table {
  let count = 0;
  for (let at = 0; at < listing.length; at = recordEnd(listing, at, listing.length)) count++;
  let slots = 16;
  while (slots < 2 * count) slots *= 2;
  const offsets = new Float64Array(count);
  const taken = new Uint32Array(slots);
  for (let at = 0, index = 0; at < listing.length; index++) {
    const to = recordEnd(listing, at, listing.length);
    offsets[index] = at;
    let slot = hashOf(listing, at, to) & (slots - 1);
    while (taken[slot] !== 0) slot = (slot + 1) & (slots - 1);
    taken[slot] = index + 1;
    at = to;
    breathe();
  }
  return {
    find(hash, isIt) {
      for (let slot = hash & (slots - 1); taken[slot] !== 0; slot = (slot + 1) & (slots - 1)) {
        const index = (taken[slot] ?? 0) - 1;
        if (isIt(offsets[index] ?? 0)) return index;
      }
      return -1;
    },
    offset: (index) => offsets[index] ?? 0,
  };
}

function hashOf(buffer: Buffer, from: number, to: number): number {
  let h = 0x811c9dc5;
  for (let i = from; i < to; i++) h = Math.imul(h ^ (buffer[i] ?? 0), 0x01000193);
  return (h ^ (h >>> 15)) >>> 0;
}
