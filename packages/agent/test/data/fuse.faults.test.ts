/** Copies from a real FUSE mount that hangs or dies (@berth/testbed/fuse-share). */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type FuseShare,
  type Hang,
  missingForFuse,
  startFuseShare,
  waitsForAnswer,
} from '@berth/testbed/fuse-share';
import { isRunning } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ProtectedVersion } from '../../src/data/cache.ts';
import { createFindSource } from '../../src/data/source.ts';
import { Stopped } from '../../src/stopped.ts';
import type { FakeDataset } from '../fake-control-plane.ts';
import { ensureCached, PATH, verifyVersion, rsyncsOf, type Share, type Site } from './share.ts';
import { sharePerTest } from './share-per-test.ts';

const missing = await missingForFuse();
const STALL_MS = 1_500;
/**
 * The agent waits so long for a process that cannot be killed, and then abandons it
 * (data/rsync.ts).
 */
const ABANDON_MS = 10_000;
/** Allowance for immediate steps on a busy machine. */
const SOON_MS = 4_000;

describe.skipIf(missing !== undefined)(
  `a share on its own mount${missing === undefined ? '' : ` (skipped: ${missing})`}`,
  () => {
    let share: Share;
    let mount: FuseShare;
    const perTest = sharePerTest();
    beforeEach(async () => {
      share = perTest.share();
      mount = await startFuseShare({
        server: join(share.dir, 'server'),
        behind: join(share.dir, 'behind'),
        at: share.base,
      });
    });
    // End the mount before the folders are removed: a removal would hang in it.
    afterEach(() => mount.end());

    /** A dataset that takes about three seconds to copy, file by file. */
    async function slowSet(): Promise<{ set: FakeDataset; site: Site }> {
      for (let i = 0; i < 60; i += 1) await share.write(`set/f${i}`, Buffer.alloc(50_000, `${i}`));
      return {
        set: await share.dataset('set'),
        site: await perTest.siteWith({ rsync: { stallMs: STALL_MS, bandwidth: '1000' } }),
      };
    }
    /** Starts a copy, and returns when some bytes have arrived. */
    async function copying(
      { set, site }: { set: FakeDataset; site: Site },
      signal = new AbortController().signal,
    ): Promise<{ copy: Promise<ProtectedVersion> }> {
      let bytes = 0;
      const copy = site.data.cache.ensure(
        set.source,
        { onProgress: (p) => void (bytes = p.bytes_done), logLine: () => undefined },
        signal,
      );
      // The caller sees the rejection.
      copy.catch(() => undefined);
      await waitFor('some of it is copied', () => bytes > 0, { intervalMs: 10 });
      return { copy };
    }
    const runningIn = async (root: string): Promise<number[]> =>
      (await rsyncsOf(root)).filter(isRunning);
    /**
     * A process that waits for file pages can be killed even on such a mount, because the kernel
     * asks for the pages itself. So this retries until the process waits in another call.
     */
    async function hangUnkillably({ root }: Site): Promise<void> {
      const hung = async (): Promise<boolean> => (await runningIn(root)).some(waitsForAnswer);
      await waitFor('rsync hangs in a call that cannot be killed', async () => {
        await mount.hang('unkillable');
        // Longer than rsync pauses for its bandwidth limit.
        if (await waitFor('it hangs', hung, { deadlineMs: 400, intervalMs: 10 }).catch(() => false))
          return true;
        mount.resume();
        return false;
      });
    }
    /** Returns what is left below objects/ and .staging, without the marks of processes. */
    async function leftIn(root: string): Promise<string[]> {
      const names = await readdir(join(root, '.staging'), { recursive: true });
      const versions = await readdir(join(root, 'objects', 'set')).catch(() => []);
      return [
        ...names.filter((name) => !/^[^/]+(\/\.process\.json)?$/.test(name)),
        ...versions.filter((name) => name.startsWith('v')),
      ];
    }

    it.each<Hang>(['killable', 'unkillable'])(
      'hangs during a copy: the copy fails in time, and succeeds when the share answers again (%s)',
      async (how) => {
        const { set, site } = await slowSet();
        const { copy } = await copying({ set, site });
        if (how === 'unkillable') await hangUnkillably(site);
        else await mount.hang(how);
        const begun = performance.now();
        await expect(copy).rejects.toMatchObject({ code: 'dataset_unreachable' });
        expect(performance.now() - begun).toBeLessThan(STALL_MS + SOON_MS + ABANDON_MS);
        // The call that the share was answering cannot be killed either; there is at most one.
        const left = (await runningIn(site.root)).length;
        expect(left).toBeLessThanOrEqual(1);
        if (how === 'unkillable') expect(left).toBe(1);
        expect(await leftIn(site.root)).toEqual([]);
        mount.resume();
        await waitFor('rsync is gone', async () => (await runningIn(site.root)).length === 0);
        expect((await ensureCached(site, set)).want.version).toBe(1);
        await verifyVersion(site.root, 'set', 1, set.objects, set.source.manifest_digest);
      },
    );

    it('hangs while the folder of a dataset is searched: the search fails in time', async () => {
      await share.write('set/file', 'x');
      await mount.hang('unkillable');
      const begun = performance.now();
      await expect(
        createFindSource(share.base, { PATH }, 1_000)('set', new AbortController().signal),
      ).rejects.toMatchObject({
        code: 'dataset_unreachable',
        message: expect.stringContaining('did not answer within 1 s'),
      });
      expect(performance.now() - begun).toBeLessThan(1_000 + SOON_MS);
    });

    it('hangs while the agent stops: the agent waits a limited time', async () => {
      const { set, site } = await slowSet();
      const shutdown = new AbortController();
      const { copy } = await copying({ set, site }, shutdown.signal);
      await hangUnkillably(site);
      const begun = performance.now();
      shutdown.abort(new Stopped('shutdown'));
      await expect(copy).rejects.toMatchObject({ why: 'shutdown' });
      await site.data.stop();
      expect(performance.now() - begun).toBeLessThan(ABANDON_MS + SOON_MS);
      expect(await runningIn(site.root)).toHaveLength(1);
      expect(await leftIn(site.root)).toEqual([]);
    });

    it('dies during a copy: the copy fails, and succeeds after a remount', async () => {
      const { set, site } = await slowSet();
      const { copy } = await copying({ set, site });
      await mount.kill();
      await expect(copy).rejects.toMatchObject({
        code: 'dataset_unreachable',
        // A call that was running gets the second message.
        message: expect.stringMatching(
          /Transport endpoint is not connected|Software caused connection abort/,
        ),
      });
      expect(await leftIn(site.root)).toEqual([]);
      await mount.mountAgain();
      expect((await ensureCached(site, set)).want.version).toBe(1);
    });
  },
);
