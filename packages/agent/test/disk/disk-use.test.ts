/** The disks in a registration. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { expect, it, onTestFinished } from 'vitest';
import { createDiskUse } from '../../src/disk/disk-use.ts';
import type { EngineContents } from '../../src/disk/engine-space.ts';
import { until } from '../fake-control-plane.ts';

it('disk use is unknown before the first count; the rest besides datasets, images and build cache is "other"', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'agent-disk-'));
  onTestFinished(() => rm(dir, { recursive: true }));
  const image = { name: 'r/app:1', bytes: 40, created_at: '2026-11-01T00:00:00.000Z', kept: false };
  let use: () => Promise<EngineContents> = async () => ({
    root: join(dir, 'not-here'),
    images: 2_000,
    build_cache: 300,
    build_cache_unused: 200,
    candidates: Array.from({ length: 40 }, () => ({ ...image, refs: ['r/app:1'] })),
    disk: { free: 7, total: 9, isOwn: true },
  });
  const make = () =>
    createDiskUse({
      folders: [dir, dir],
      datasets: () => 10,
      engine: () => use(),
      onFirst: () => undefined,
      log: silentLogger(),
    });
  const disk = make();
  expect(disk.now()).toBeNull();
  const counted = await until('counted', () => disk.now() ?? undefined);
  expect(counted).toMatchObject({ datasets: 10, images: 2_000, build_cache: 300 });
  expect(counted.other).toBe(counted.total - counted.free - 2_310);
  expect(counted.evictable).toEqual({
    build_cache: 200,
    images: Array.from({ length: 30 }, () => image),
    own_disk: { free: 7, total: 9 },
  });
  // Without an answer of the engine, its parts are unknown and not zero.
  use = () => Promise.reject(new Error('no engine'));
  const blind = make();
  blind.now();
  const partly = await until('counted', () => blind.now() ?? undefined);
  expect(partly).toMatchObject({ datasets: 10, images: null, build_cache: null, other: null });
  expect(partly.total).toBe(counted.total);
  expect(partly.evictable).toBeUndefined();
});
