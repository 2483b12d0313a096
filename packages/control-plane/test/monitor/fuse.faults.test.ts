/**
 * Scans of a real mount that hangs, dies and comes back (@berth/testbed/fuse-share): cases that a
 * stand-in for `find` cannot show.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { execOk } from '@berth/kit/exec';
import {
  type FuseShare,
  type FuseShareOptions,
  type Hang,
  missingForFuse,
  startFuseShare,
  waitsForAnswer,
} from '@berth/testbed/fuse-share';
import { isRunning, processesOf } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createCheckFolder } from '../../src/monitor/check-folder.ts';
import type { ScanResult } from '../../src/domain/data/scan.ts';
import type { ScannerOptions } from '../../src/monitor/scanner.ts';
import {
  leavesOf,
  type Monitored,
  monitored,
  scanOnce,
  scratchFolder,
  SYSTEM_PATH,
  standInForFind,
} from './support.ts';

const missing = await missingForFuse();
/**
 * Longer than a low-priority scan needs to begin on a busy machine: until then it makes no progress
 * either.
 */
const STALL_MS = 5_000;
/** Limit for steps that end immediately on an idle machine. */
const SOON_MS = 4_000;
const STALLED = {
  kind: 'unreachable',
  problem: expect.stringContaining(`made no progress for ${STALL_MS / 1000} s`),
};
const STUCK = {
  kind: 'unreachable',
  problem: expect.stringContaining('The previous scan still hangs'),
};

type Shared = Monitored & { share: FuseShare };

/** Returns a dataset with one file whose base path is the mount. */
async function shared(
  options: Partial<ScannerOptions> = {},
  how: Partial<FuseShareOptions> = {},
): Promise<Shared> {
  const ds = monitored({ stallMs: STALL_MS, workers: 1, ...options });
  const [server, behind] = [scratchFolder(), scratchFolder()];
  // The mount point must be empty.
  rmdirSync(ds.folder);
  mkdirSync(join(server, 'ds'));
  writeFileSync(join(server, 'ds/f'), 'content');
  const share = await startFuseShare({ server, behind, at: ds.base, ...how });
  // The mount ends before other clean-up, which would hang on it.
  onTestFinished(() => share.end());
  return { ...ds, share };
}

/**
 * Returns the running processes of a scan: the child has the state folder in its arguments, `find`
 * the dataset's folder.
 */
const scanningFor = async ({ stateDir, base }: Monitored): Promise<number[]> =>
  (
    await processesOf(
      ([program, ...args]) =>
        program !== 'bindfs' && args.some((arg) => arg === stateDir || arg.startsWith(base)),
    )
  ).filter(isRunning);
const nothingLeft = (ds: Monitored): Promise<boolean> =>
  waitFor('no process of the scan is left', async () => (await scanningFor(ds)).length === 0);

/** Scans until the scanner has noticed that the hung process ended. */
const scannedAgain = (ds: Monitored): Promise<ScanResult> =>
  waitFor(
    'it is scanned again',
    async () => {
      const result = await ds.scan();
      return 'problem' in result && /still hangs/.test(result.problem) ? null : result;
    },
    { deadlineMs: 45_000 },
  );

/** A file that takes longer to read than `stallMs`: slow is not hung. */
const BIG = Buffer.alloc(56_000_000, 'x');
const SLOW = { readRate: 10_000_000 };
const sha256 = (data: Buffer): string => createHash('sha256').update(data).digest('hex');
/** Waits for the scan that has just begun: an earlier scan may have reported the same step. */
function isHashing({ seen }: Monitored): Promise<unknown> {
  const before = seen.length;
  const hashes = (): boolean =>
    seen.slice(before).some(({ step, bytes }) => step === 'hashing' && bytes > 0);
  return waitFor('it is hashing', hashes, { intervalMs: 10 });
}

async function timed<T>(work: Promise<T>): Promise<{ result: T; ms: number }> {
  const begun = performance.now();
  return { result: await work, ms: performance.now() - begun };
}

describe.skipIf(missing !== undefined)(
  `a share on a mount of its own${missing === undefined ? '' : ` (skipped: ${missing})`}`,
  () => {
    test('is scanned, and known by its mount', async () => {
      const ds = await shared();
      expect(await ds.scan()).toMatchObject({
        kind: 'changed',
        files: 1,
        share: { mount: { type: expect.stringMatching(/^fuse/), source: ds.share.source } },
      });
      expect(ds.request.share?.marker).toMatch(/^[0-9a-f-]{36}$/);
      expect(await ds.scan()).toMatchObject({ kind: 'unchanged', files: 1 });
    });

    test('that cannot be written is scanned, without a marker', async () => {
      const ds = await shared({}, { readOnly: true });
      expect(await ds.scan()).toMatchObject({
        kind: 'changed',
        share: {
          marker: null,
          mount: { type: expect.stringMatching(/^fuse/), source: ds.share.source },
        },
      });
      expect(await ds.scan()).toMatchObject({ kind: 'unchanged' });
      expect(readdirSync(ds.base)).toEqual(['ds']);
    });

    test.each<Hang>(['killable', 'unkillable'])(
      'hangs before a scan, which ends in time while we live on (%s)',
      async (how) => {
        const ds = await shared();
        await ds.scan();
        await ds.share.hang(how);
        let beats = 0;
        const beating = setInterval(() => beats++, 20);
        const { result, ms } = await timed(ds.scan()).finally(() => clearInterval(beating));
        expect(result).toEqual(STALLED);
        expect(ms).toBeLessThan(STALL_MS + SOON_MS);
        expect(beats).toBeGreaterThan(20);
        if (how === 'killable') await nothingLeft(ds);
        else {
          expect(await scanningFor(ds)).toHaveLength(1);
          const again = await timed(ds.scan());
          expect(again.result).toEqual(STUCK);
          expect(again.ms).toBeLessThan(STALL_MS / 2);
          expect(await scanningFor(ds)).toHaveLength(1);
        }
        ds.share.resume();
        expect(await scannedAgain(ds)).toMatchObject({ kind: 'unchanged', files: 1 });
        await ds.scanner.close();
        await nothingLeft(ds);
      },
    );

    test('hangs while `find` lists it: until that is gone the dataset is not scanned again', async () => {
      const [ready, go] = [join(scratchFolder(), 'ready'), join(scratchFolder(), 'go')];
      const searchPath = standInForFind(`const { existsSync } = require('node:fs');
writeFileSync(${JSON.stringify(ready)}, '');
while (!existsSync(${JSON.stringify(go)})) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
writeSync(1, run().stdout);`);
      const ds = await shared({ searchPath });
      const scan = ds.scan();
      await waitFor('`find` is started', () => existsSync(ready));
      await ds.share.hang('unkillable');
      writeFileSync(go, '');
      expect(await scan).toEqual(STALLED);
      expect(await scanningFor(ds)).toHaveLength(1);
      expect(await ds.scan()).toEqual(STUCK);
      ds.share.resume();
      await nothingLeft(ds);
      expect(await scannedAgain(ds)).toMatchObject({ kind: 'changed', files: 1 });
    });

    test('hangs while a large file is hashed: the next scan has it right', async () => {
      const ds = await shared({}, SLOW);
      ds.file('big', BIG);
      const scan = ds.scan();
      await isHashing(ds);
      await ds.share.hang('unkillable');
      expect(await scan).toEqual(STALLED);
      ds.share.resume();
      await nothingLeft(ds);
      const found = await leavesOf(await scannedAgain(ds));
      expect(found.get('big')).toMatchObject({ size: BIG.length, checksum: sha256(BIG) });
      expect(found.size).toBe(2);
    });

    test('dies: that is said by its name, and nothing is lost when it is mounted again', async () => {
      const ds = await shared();
      await ds.scan();
      await ds.share.kill();
      const problem = `The base path ${ds.base} cannot be read (the share is not connected).`;
      for (const acceptLoss of [false, true])
        expect(await ds.scan({ acceptLoss })).toEqual({ kind: 'unreachable', problem });
      await ds.share.mountAgain();
      expect(await ds.scan()).toMatchObject({ kind: 'unchanged', files: 1 });
    });

    test('dies while a large file is hashed', async () => {
      const ds = await shared({}, SLOW);
      await ds.scan();
      ds.file('big', BIG);
      const scan = ds.scan();
      await isHashing(ds);
      await ds.share.kill();
      expect(await scan).toEqual({
        kind: 'unreachable',
        // The read that was open is aborted, and later ones fail because the share is not
        // connected.
        problem: expect.stringMatching(
          /\/ds\/big cannot be read \(the share( is not connected|’s connection was aborted)\)/,
        ),
      });
      await ds.share.mountAgain();
      expect((await leavesOf(await ds.scan())).get('big')).toMatchObject({ checksum: sha256(BIG) });
    });

    test('is unmounted: the empty folder under it is not the dataset', async () => {
      const ds = await shared();
      await ds.scan();
      await ds.share.unmount();
      const problem =
        `The share is not mounted: ${ds.base} was ${ds.request.share?.mount?.type} from ` +
        `${ds.share.source} and is now an ordinary folder on the system disk.`;
      expect(await ds.scan()).toEqual({ kind: 'unreachable', problem });
      expect(readdirSync(ds.base)).toEqual([]);
      await ds.share.mountAgain();
      expect(await ds.scan()).toMatchObject({ kind: 'unchanged', files: 1 });
    });

    test('hangs while the scanner is closed, which waits for nobody', async () => {
      const ds = await shared({ stallMs: 60_000 });
      await ds.scan();
      const scans = join(ds.stateDir, 'scans');
      const before = readdirSync(scans);
      await ds.share.hang('unkillable');
      const ended = expect(ds.scan()).rejects.toThrow('the scanner was closed');
      await waitFor('it hangs', async () => (await scanningFor(ds)).some(waitsForAnswer));
      expect((await timed(ds.scanner.close())).ms).toBeLessThan(SOON_MS);
      await ended;
      expect(readdirSync(scans)).toEqual(before);
      ds.share.resume();
      await nothingLeft(ds);
    });

    test('hangs while a whole program ends, which does', async () => {
      const ds = await shared();
      await ds.scan();
      await ds.scanner.close();
      await ds.share.hang('unkillable');
      const { stdout } = await execOk(scanOnce(ds, { stallMs: STALL_MS }), {
        env: { PATH: SYSTEM_PATH },
        timeoutMs: STALL_MS + 4 * SOON_MS,
      });
      expect(JSON.parse(stdout)).toMatchObject({
        kind: 'unreachable',
        problem: expect.stringContaining('made no progress'),
      });
      expect(await scanningFor(ds)).toHaveLength(1);
      ds.share.resume();
      await nothingLeft(ds);
    });

    test.each<Hang>(['killable', 'unkillable'])(
      'hangs when a folder is checked: the check fails after the time limit (%s)',
      async (how) => {
        const ds = await shared();
        const checkFolder = createCheckFolder(ds.base, STALL_MS);
        expect(await checkFolder('ds')).toBeNull();
        await ds.share.hang(how);
        const late = {
          rule: 'unreachable',
          message: `the shared storage did not answer within ${STALL_MS / 1000} s`,
        };
        const looks = await timed(Promise.all(Array.from({ length: 4 }, () => checkFolder('ds'))));
        expect(looks.result).toEqual([late, late, late, late]);
        expect(looks.ms).toBeLessThan(STALL_MS + SOON_MS);
        if (how === 'killable') await nothingLeft(ds);
        else
          expect(await checkFolder('ds')).toMatchObject({
            rule: 'unreachable',
            message: expect.stringContaining('no other check can start'),
          });
        ds.share.resume();
        await nothingLeft(ds);
        // The scanner notices a moment later that they ended.
        await waitFor('it looks again', async () => (await checkFolder('ds')) === null);
        await ds.share.kill();
        expect(await checkFolder('ds')).toEqual({
          rule: 'unreachable',
          message: expect.stringContaining('cannot be read (the share is not connected)'),
        });
      },
    );
  },
);
