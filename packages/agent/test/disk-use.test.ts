/** The disks in a registration. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { expect, it, onTestFinished } from 'vitest';
import { createDiskUse } from '../src/disk-use.ts';
import { until } from './fake-control-plane.ts';

it('disk use is unknown before the first count; the rest besides datasets, images and build cache is "other"', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'agent-disk-'));
  onTestFinished(() => rm(dir, { recursive: true }));
  let use: () => Promise<{ root: string | null; images: number | null; build_cache: number | null }> = async () => ({
    root: join(dir, 'not-here'),
    images: 2_000,
    build_cache: 300,
  });
  const make = () =>
    createDiskUse({ folders: [dir, dir], datasets: () => 10, engineUse: () => use(), onFirst: () => undefined, log: silentLogger() });
  const disk = make();
  expect(disk.now()).toBeNull();
  const counted = await until('counted', () => disk.now() ?? undefined);
  expect(counted).toMatchObject({ datasets: 10, images: 2_000, build_cache: 300 });
  expect(counted.other).toBe(counted.total - counted.free - 2_310);
  // Without an answer of the engine, its parts are unknown and not zero.
  use = () => Promise.reject(new Error('no engine'));
  const blind = make();
  blind.now();
  const partly = await until('counted', () => blind.now() ?? undefined);
  expect(partly).toMatchObject({ datasets: 10, images: null, build_cache: null, other: null });
  expect(partly.total).toBe(counted.total);
});
