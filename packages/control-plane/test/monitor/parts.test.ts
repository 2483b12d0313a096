/** Parts of a scan against naive models, and the mount table as the kernel writes it. */
import { hash } from 'node:crypto';
import { closeSync, mkdtempSync, openSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { hashRound } from '../../src/monitor/child/hash-round.ts';
import { createLookup } from '../../src/monitor/child/known-sums.ts';
import { eachRecord, type Listing, parseFile, sameBytes } from '../../src/monitor/child/listing.ts';
import { mountOf } from '../../src/monitor/child/share.ts';

async function withListing<T>(
  records: readonly string[],
  use: (listing: Listing) => Promise<T>,
): Promise<T> {
  const dir = mkdtempSync(join(tmpdir(), 'berth-listing-'));
  const content = Buffer.from(records.join(''), 'latin1');
  writeFileSync(join(dir, 'listing'), content);
  const fd = openSync(join(dir, 'listing'), 'r');
  try {
    return await use({ fd, length: content.length });
  } finally {
    closeSync(fd);
    rmSync(dir, { recursive: true });
  }
}

const name = fc.stringMatching(/^[a-c \n\xff-]{1,4}$/);
const record = fc.oneof(
  fc.tuple(fc.nat(9), name).map(([n, path]) => `f644 ${n} 1.5 2.5 ${n} ${path}\0`),
  name.map((path) => `d${path}\0`),
  fc.tuple(name, name).map(([path, target]) => `l${path}\0${target}\0`),
);
/** Without duplicates, as a folder has no two files of one name. */
const listing = fc.uniqueArray(record, { maxLength: 40 });

describe('listings', () => {
  test('give their records one by one, with or without targets', async () => {
    await fc.assert(
      fc.asyncProperty(listing, (records) =>
        withListing(records, async (whole) => {
          const seen: string[] = [];
          await eachRecord(whole, (buffer, from, to, index) => {
            expect(index).toBe(seen.length);
            seen.push(buffer.toString('latin1', from, to));
          });
          expect(seen).toEqual(records);
        }),
      ),
      { numRuns: 50 },
    );
  });

  test('longer than a buffer, with records longer than one, too', async () => {
    const records = ['a', 'b', 'c'].flatMap((x) => [
      `d${x.repeat(700_000)}\0`,
      ...Array.from({ length: 9000 }, (_, i) => `f644 1 1.5 2.5 7 ${x}${i}\0`),
    ]);
    await withListing(records, async (whole) => {
      let index = 0;
      await eachRecord(whole, (buffer, from, to) =>
        expect(buffer.toString('latin1', from, to) === records[index++]).toBe(true),
      );
      expect(index).toBe(records.length);
      expect(sameBytes(whole, whole)).toBe(true);
      await withListing([...records.slice(0, -1), 'f644 1 1.5 2.5 7 c899x\0'], async (other) =>
        expect(sameBytes(whole, other)).toBe(false),
      );
    });
  });

  test('of files are read field by field', () => {
    const of = (text: string) => parseFile(Buffer.from(text), 0);
    expect(of('f644 12 1700000000.5 -3.2500000000 99 a b\0')).toEqual({
      executable: false,
      size: 12,
      mtime: 1_700_000_000.5,
      ctime: -3.25,
      path: 38,
    });
    expect(
      ['f755', 'f4755', 'f100', 'f677', 'f77', 'f0', 'f20744'].map(
        (mode) => of(`${mode} 1 1 1 1 x\0`).executable,
      ),
    ).toEqual([true, true, true, false, false, false, true]);
  });

  test('are found in one another: by the whole record, in whatever order', async () => {
    const pair = listing.chain((old) =>
      fc
        .tuple(fc.constant(old), fc.shuffledSubarray(old), listing, fc.boolean())
        .map(([old, kept, fresh, inOrder]) => ({
          old,
          // As most of the time: the old order, some gone, some new.
          now: [
            ...new Set(
              inOrder ? [...old.filter((r) => kept.includes(r)), ...fresh] : [...kept, ...fresh],
            ),
          ],
        })),
    );
    await fc.assert(
      fc.asyncProperty(pair, ({ old, now }) =>
        withListing(old, async (oldListing) => {
          const lookup = createLookup(oldListing);
          for (const text of now) {
            const padded = Buffer.from(`before${text}after`, 'latin1');
            expect(lookup(padded, 6, padded.length - 5)).toBe(old.indexOf(text));
          }
        }),
      ),
      { numRuns: 200 },
    );
  });
});

describe('a round of hashing', () => {
  test('takes nothing for the file that was listed which has another size', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'berth-round-'));
    for (const file of ['same', 'other']) writeFileSync(join(dir, file), 'four');
    const records = ['f644 4 1.5 2.5 1 same\0', 'f644 9 1.5 2.5 2 other\0'];
    try {
      const round = await withListing(records, (listed) =>
        hashRound(listed, 2, {
          root: dir,
          old: null,
          trustSums: true,
          workers: 1,
          onHashed: () => undefined,
          keep: { everyMs: 60_000, sums: async () => undefined },
        }),
      );
      expect([round.unknown, round.sums.subarray(32).every((byte) => byte === 0)]).toEqual([
        1,
        true,
      ]);
      expect(round.sums.toString('hex', 0, 32)).toBe(hash('sha256', 'four', 'hex'));
    } finally {
      rmSync(dir, { recursive: true });
    }
  });
});

describe('the mount that holds a path', () => {
  const table = `22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:5 / /proc rw - proc proc rw
40 22 0:40 / /mnt/nas rw - autofs systemd-1 rw
41 40 0:41 /export /mnt/nas rw shared:7 - nfs4 nas:/export rw,vers=4.2
42 41 0:42 / /mnt/nas/inner rw - tmpfs tmpfs rw
43 22 8:1 / /srv/with\\040space rw - xfs /dev/sdb1 rw
`;
  test.each([
    ['/mnt/nas', { type: 'nfs4', source: 'nas:/export', root: '/export' }],
    ['/mnt/nas/data', { type: 'nfs4', source: 'nas:/export', root: '/export' }],
    ['/mnt/nas/inner/x', { type: 'tmpfs', source: 'tmpfs', root: '/' }],
    ['/srv/with space/x', { type: 'xfs', source: '/dev/sdb1', root: '/' }],
    ['/mnt/nasty', null],
    ['/srv/data', null],
    ['/', null],
  ])('%s', (path, mount) => expect(mountOf(path, table)).toEqual(mount));
});
