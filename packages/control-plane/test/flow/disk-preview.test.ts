/** The preview of evictions from a node. */
import { describe, expect, it } from 'vitest';
import type { CachedDataset, NodeDisk } from '@berth/wire/node';
import { previewDisk } from '../../src/domain/nodes/disk-preview.ts';

const data = (dataset_id: string, over: Partial<CachedDataset> = {}): CachedDataset => ({
  dataset_id,
  version: 1,
  bytes: 100,
  last_used_at: '2026-11-01T00:00:00.000Z',
  ...over,
});
const image = (name: string, kept: boolean) => ({
  name,
  bytes: 100,
  created_at: '2026-10-01T00:00:00.000Z',
  kept,
});
const evictable = {
  build_cache: 150,
  images: [image('r/app:1', false), image('r/app:2', true)],
  own_disk: null,
};
const disk: NodeDisk = {
  datasets: 200,
  images: 400,
  build_cache: 200,
  other: 0,
  free: 5_000,
  total: 9_000,
  evictable,
};
const node = { cached: [data('d'), data('mounted', { pinned: true })], max_storage: 1_000, disk };
const asked = { free: 800, wanted: 0, namesImages: true };
const rows = (preview: ReturnType<typeof previewDisk>): string[] =>
  preview.evict.map(({ kind, name, bytes }) => `${kind} ${name} ${bytes}`);

describe('the preview of evictions', () => {
  it('lists build cache, images and datasets in the order of eviction, with the reason', () => {
    const preview = previewDisk(node, { ...asked, wanted: 270 });
    expect(rows(preview)).toEqual([
      'build_cache build cache 100',
      'image r/app:1 100',
      'dataset d v1 100',
    ]);
    expect(preview.evict.map((row) => row.why)).toEqual([
      'least recently used; builds make it again',
      'no container and no kept release uses it; created 2026-10-01T00:00:00.000Z',
      'no container and no kept release uses it; last used 2026-11-01T00:00:00.000Z',
    ]);
    // 200 bytes are left of the budget; the mounted dataset, two running images and the cache of a
    // build stay.
    expect(preview).toMatchObject({ free_bytes: 200, enough: true, kept_bytes: 350 });
    expect(preview.unavailable).toBeUndefined();
  });
  it('names last what a rollback would fetch again', () => {
    const preview = previewDisk(node, { ...asked, wanted: 640 });
    expect(preview.evict.slice(3).map(({ name, why }) => `${name}: ${why}`)).toEqual([
      'build cache: nothing cheaper makes enough room; the next builds take longer',
      'r/app:2: only a rollback needs it, and the registry still has it; created ' +
        '2026-10-01T00:00:00.000Z',
    ]);
  });
  it('agrees with the agent: what containers run refuses no copy, only datasets and the free disk do', () => {
    // The budget has room for 800 bytes beside the datasets; one of these can go.
    const enough = (wanted: number, over: Partial<NodeDisk> = {}, free = 800) => {
      const preview = previewDisk(
        { ...node, disk: { ...disk, ...over } },
        { ...asked, free, wanted },
      );
      return [preview.enough, preview.evict.filter(({ kind }) => kind === 'dataset').length];
    };
    expect(enough(700)).toEqual([true, 1]);
    expect(enough(900)).toEqual([true, 1]);
    expect(enough(901)).toEqual([false, 1]);
    // Images that run use twice the budget.
    const running = {
      images: 2_000,
      build_cache: 0,
      evictable: { build_cache: 0, images: [], own_disk: null },
    };
    expect(enough(700, running)).toEqual([true, 1]);
    expect(enough(901, running)).toEqual([false, 1]);
    // The disk is full: even without the dataset it has only 150 bytes.
    expect(enough(150, { ...running, free: 50 }, 50)).toEqual([true, 1]);
    expect(enough(151, { ...running, free: 50 }, 50)).toEqual([false, 1]);
  });
  it('hides the names of images from a caller who does not see all projects', () => {
    expect(rows(previewDisk(node, { ...asked, wanted: 250, namesImages: false }))[1]).toBe(
      'image image 2 100',
    );
  });
  it('limits images and build cache to the disk of the engine, if the datasets are on another one', () => {
    const own = { ...disk, evictable: { ...evictable, own_disk: { free: 20, total: 650 } } };
    const preview = previewDisk({ ...node, disk: own }, { ...asked, free: 300, wanted: 350 });
    expect(preview.free_bytes).toBe(300);
    expect(rows(preview)).toEqual(['dataset d v1 100', 'build_cache build cache 104']);
  });
  it('covers datasets only where no image or build cache is evicted, and says why', () => {
    const { evictable: _, ...older } = disk;
    const of = (reported: NodeDisk | null) =>
      previewDisk({ ...node, disk: reported }, { ...asked, free: 50, wanted: 100 });
    for (const preview of [of(older), of(null)])
      expect(rows(preview)).toEqual(['dataset d v1 100']);
    expect(of(older).unavailable).toMatch(
      /datasets only: it does not see the data folder of the container engine .*compose.*earlier version/,
    );
    expect(of({ ...older, images: null }).unavailable).toMatch(
      /could not count images and build cache.*datasets only/,
    );
    expect(of(null).unavailable).toContain('has not reported its disk');
  });
});
