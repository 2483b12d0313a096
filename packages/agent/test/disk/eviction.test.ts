/**
 * A node keeps its budget: which of images, build cache and datasets go, and when none of them
 * goes.
 */
import { silentLogger } from '@berth/kit/log';
import type { CachedDataset } from '@berth/wire/node';
import { describe, expect, it, vi } from 'vitest';
import type { EngineContents, EngineSpace } from '../../src/disk/engine-space.ts';
import { createLocks } from '../../src/locks.ts';
import { createRoom, type DatasetSpace } from '../../src/disk/eviction.ts';
import type { StorageMeter } from '../../src/disk/storage.ts';
import { TaskFailure } from '../../src/failures.ts';
import { never } from '../data/share.ts';

type Layer = { name: string; bytes: number };
type FakeImage = { name: string; kept: boolean; made: number; layers: Layer[]; runs?: boolean };
const EMPTY: FakeImage[] = [];

/**
 * A machine whose images and build cache share layers, as in a real engine: a layer is freed with
 * the last that has it.
 */
function machine({
  max = 1_000,
  diskFree = 100_000,
  images = EMPTY,
  cache = [] as Layer[],
  datasets = [] as CachedDataset[],
  isOwn = false,
  total = 100_000,
  hasDatasets = true,
} = {}) {
  const state = {
    images: [...images],
    cache: [...cache],
    datasets: [...datasets],
    failure: null as Error | null,
    pruneFailure: null as Error | null,
    others: 0,
    /** Bytes that pulls are about to add. */
    pulling: 0,
    counts: 0,
    /** An eviction from the engine waits for it. */
    gate: Promise.resolve() as Promise<unknown>,
    isCurrent: true,
    evictions: 0,
  };
  const warnings: string[] = [];
  const log: string[] = [];
  const reserved = { bytes: 0 };
  const bytesOf = (layers: readonly Layer[]): number =>
    [...new Map(layers.map((l) => [l.name, l])).values()].reduce((all, l) => all + l.bytes, 0);
  const imageLayers = (): Layer[] => state.images.flatMap((one) => one.layers);
  const cacheOnly = (): Layer[] =>
    state.cache.filter((layer) => !imageLayers().some(({ name }) => name === layer.name));
  const dataBytes = (): number => state.datasets.reduce((all, d) => all + d.bytes, 0);
  const began = { engine: bytesOf([...imageLayers(), ...state.cache]), data: dataBytes() };
  /** Free bytes follow what was removed since the beginning. */
  const freeOf = (withEngine: boolean): number =>
    diskFree -
    state.others +
    began.data -
    dataBytes() +
    (withEngine ? began.engine - bytesOf([...imageLayers(), ...state.cache]) : 0);
  let last: EngineContents | null = null;
  const engine: EngineSpace = {
    last: () => last,
    grew: () => undefined,
    reserve: () => () => undefined,
    reserved: () => state.pulling,
    isCurrent: () => state.isCurrent,
    changed: () => void (state.isCurrent = false),
    async count(_signal, maxAgeMs = 0) {
      if (last !== null && state.isCurrent && maxAgeMs > 0) return last;
      state.counts += 1;
      state.isCurrent = true;
      last = null;
      if (state.failure !== null) throw state.failure;
      const unused = bytesOf(cacheOnly());
      last = {
        root: '/engine',
        images: bytesOf(imageLayers()),
        build_cache: unused,
        build_cache_unused: unused,
        disk: {
          free: isOwn
            ? diskFree - bytesOf([...imageLayers(), ...state.cache]) + began.engine
            : freeOf(true),
          total,
          isOwn,
        },
        candidates: state.images
          .filter((one) => one.runs !== true)
          .map((one) => ({
            name: one.name,
            kept: one.kept,
            created_at: new Date(one.made * 1000).toISOString(),
            refs: [one.name],
            bytes: bytesOf(
              one.layers.filter(({ name }) =>
                state.images.every(
                  (other) => other === one || other.layers.every((l) => l.name !== name),
                ),
              ),
            ),
          })),
      };
      return last;
    },
    async evict(step) {
      if (state.failure !== null) throw state.failure;
      state.evictions += 1;
      await state.gate;
      state.isCurrent = false;
      if (step.kind === 'image') {
        log.push(step.image.name);
        state.images = state.images.filter((one) => one.name !== step.image.name);
        return true;
      }
      if (state.pruneFailure !== null) throw state.pruneFailure;
      log.push('cache');
      const before = state.cache.length;
      while (bytesOf(cacheOnly()) > step.keep && state.cache.length > 0) state.cache.shift();
      return state.cache.length < before;
    },
  };
  const space: DatasetSpace = {
    list: async () => state.datasets,
    keyOf: (d) => d.dataset_id,
    refresh: async () => new Set(),
    async evict(d) {
      log.push(d.dataset_id);
      state.datasets = state.datasets.filter((one) => one !== d);
      return d.bytes;
    },
  };
  const storage = {
    async now() {
      const [budget, disk] = [max - dataBytes() - reserved.bytes, freeOf(!isOwn) - reserved.bytes];
      return { max, budget, disk, free: Math.min(budget, disk) };
    },
    add: () => undefined,
    reserve(bytes: number) {
      reserved.bytes += bytes;
      return { wrote: () => undefined, release: () => void (reserved.bytes -= bytes) };
    },
  } as unknown as StorageMeter;
  const room = createRoom({
    storage,
    datasets: hasDatasets ? space : null,
    engine,
    engineMax: hasDatasets ? null : max,
    locks: createLocks(),
    watermarks: { high: 0.9, low: 0.8 },
    log: {
      ...silentLogger(),
      warn: (fields: { reason?: string }) => void warnings.push(fields.reason ?? ''),
    },
  });
  const used = (): number => bytesOf([...imageLayers(), ...state.cache]) + dataBytes();
  return {
    room,
    log,
    warnings,
    state,
    used,
    copy: (bytes: number) => room.make(bytes, never, (text) => void log.push(text)),
  };
}
const layer = (name: string, bytes: number): Layer => ({ name, bytes });
const image = (
  name: string,
  made: number,
  bytes: number,
  over: Partial<FakeImage> = {},
): FakeImage => ({
  name,
  made,
  kept: false,
  layers: [layer(`of ${name}`, bytes)],
  ...over,
});
const data = (
  dataset_id: string,
  bytes: number,
  over: Partial<CachedDataset> = {},
): CachedDataset => ({
  dataset_id,
  version: 1,
  bytes,
  last_used_at: '2026-11-01T00:00:00Z',
  ...over,
});

describe('keep', () => {
  it('evicts build cache, then unneeded images, then datasets, down to the low watermark', async () => {
    const { room, log, used } = machine({
      cache: [layer('c1', 100), layer('c2', 100)],
      images: [image('old', 1, 100), image('runs', 2, 300, { runs: true })],
      datasets: [data('d', 200), data('mounted', 200, { pinned: true })],
    });
    await room.keep(never, { recount: true });
    expect(log).toEqual(['cache', 'old']);
    expect(used()).toBe(800);
  });
  it('does nothing without a count of the engine', async () => {
    const { room, log } = machine({ images: [image('old', 1, 2_000)] });
    await room.keep(never);
    expect(log).toEqual([]);
  });
  it('does not empty the node if images that run exceed the budget by themselves: what a rollback needs stays', async () => {
    const { room, log } = machine({
      images: [image('runs', 2, 1_500, { runs: true }), image('kept', 1, 50, { kept: true })],
      datasets: [data('mounted', 100, { pinned: true })],
    });
    await room.keep(never, { recount: true });
    expect(log).toEqual([]);
  });
  it('evicts images of kept releases one at a time, and none in vain: each tells 10 bytes, and together they would free 330', async () => {
    const base = layer('base', 300);
    const kept = (name: string, made: number): FakeImage => ({
      name,
      made,
      kept: true,
      layers: [base, layer(name, 10)],
    });
    const { room, log, used } = machine({
      images: [kept('k1', 1), kept('k2', 2), kept('k3', 3), image('runs', 9, 640, { runs: true })],
    });
    await room.keep(never, { recount: true });
    expect(log).toEqual([]);
    expect(used()).toBe(970);
  });
  it('prunes again what an image leaves in the build cache', async () => {
    const shared = layer('shared', 500);
    const { room, log, used } = machine({
      cache: [shared],
      images: [
        { name: 'old', made: 1, kept: false, layers: [shared, layer('own', 10)] },
        image('runs', 2, 440, { runs: true }),
      ],
    });
    await room.keep(never, { recount: true });
    expect(log).toEqual(['old', 'cache']);
    expect(used()).toBe(440);
  });
  it('evicts nothing of the engine if the engine does not answer, and still datasets', async () => {
    const { room, log, state } = machine({
      images: [image('old', 1, 100)],
      datasets: [data('d', 950)],
    });
    state.failure = new TaskFailure('engine_unavailable', 'no engine');
    await room.keep(never, { recount: true });
    expect(log).toEqual(['d']);
    expect(state.images).toHaveLength(1);
  });
  it('evicts what comes next if the build cache cannot be pruned, for example because the node lacks buildx', async () => {
    const { room, log, state } = machine({
      cache: [layer('c', 500)],
      images: [image('old', 1, 250)],
      datasets: [data('d', 250)],
    });
    state.pruneFailure = new Error('docker: unknown command: docker buildx');
    await room.keep(never, { recount: true });
    expect(log).toEqual(['old']);
    expect(state.cache).toHaveLength(1);
  });
  it('limits images and build cache to the disk of the engine if that is another one', async () => {
    const { room, log } = machine({
      isOwn: true,
      total: 1_000,
      diskFree: 50,
      max: 100,
      cache: [layer('c', 300)],
      images: [image('old', 1, 200), image('runs', 2, 450, { runs: true })],
      datasets: [data('d', 80)],
    });
    await room.keep(never, { recount: true });
    expect(log).toEqual(['cache']);
  });
  it('on a builder MAX_STORAGE limits images and build cache', async () => {
    const { room, log, used } = machine({
      hasDatasets: false,
      cache: [layer('c1', 800), layer('c2', 150)],
    });
    await room.keep(never, { recount: true });
    expect(log).toEqual(['cache']);
    expect(used()).toBe(150);
  });
  it('makes as much room for a pull as there can be, if not as much as is wanted', async () => {
    const { room, log } = machine({
      max: 100_000,
      diskFree: 5,
      images: [image('old', 1, 100), image('runs', 2, 500, { runs: true })],
    });
    await room.keep(never, { wanted: 5_000, recount: true });
    expect(log).toEqual(['old']);
  });
  it('does not evict for bytes that another program writes, but for the room that is left beside them', async () => {
    const { room, log, state } = machine({
      diskFree: 500,
      max: 100_000,
      images: [image('old', 1, 400)],
    });
    state.others = 400;
    await room.keep(never, { recount: true });
    expect(log).toEqual([]);
    state.others = 490;
    await room.keep(never, { recount: true });
    expect(log).toEqual(['old']);
  });
});

describe('a pull', () => {
  const full = () =>
    machine({
      isOwn: true,
      total: 1_000,
      diskFree: 50,
      max: 10_000,
      images: [image('old', 1, 200), image('runs', 2, 450, { runs: true })],
      datasets: [data('d', 80), data('kept', 80, { pinned: true, recopyable: true })],
    });
  it('that finds the engine’s own disk full evicts nothing of another disk', async () => {
    // Both disks have 50 bytes free, and each could free the rest.
    const { room, log } = full();
    await room.keep(never, { wanted: 120, recount: true });
    expect(log).toEqual(['old']);
  });
  it('counts before it begins: with what runs it would exceed the budget, so images of kept releases go', async () => {
    const images = [
      image('k1', 1, 100, { kept: true }),
      image('k2', 2, 100, { kept: true }),
      image('runs', 3, 650, { runs: true }),
    ];
    const { room, log, state } = machine({ images });
    await room.keep(never, { recount: true });
    expect(log).toEqual([]);
    state.pulling = 130;
    await room.keep(never, { logLine: () => undefined });
    expect(log).toEqual(['k1']);
    // A second one at the same time.
    state.pulling = 240;
    await room.keep(never, { logLine: () => undefined });
    expect(log).toEqual(['k1', 'k2']);
  });
  it('counts on the engine’s own disk too', async () => {
    const images = [image('k1', 1, 200, { kept: true }), image('runs', 2, 450, { runs: true })];
    const { room, log, state } = machine({
      isOwn: true,
      total: 1_000,
      diskFree: 200,
      max: 10_000,
      images,
    });
    state.pulling = 100;
    await room.keep(never, { recount: true });
    expect(log).toEqual([]);
    state.pulling = 190;
    await room.keep(never, { recount: true });
    expect(log).toEqual(['k1']);
  });
  it('that can never fit evicts nothing, and is not refused', async () => {
    const images = [image('k1', 1, 100, { kept: true }), image('runs', 3, 650, { runs: true })];
    const { room, log, state } = machine({ images });
    state.pulling = 900;
    await room.keep(never, { recount: true });
    expect(log).toEqual([]);
  });
  it('finds datasets evicted if the engine shares their disk', async () => {
    const { room, log } = machine({ max: 10_000, diskFree: 50, datasets: [data('d', 80)] });
    await room.keep(never, { wanted: 100, recount: true });
    expect(log).toEqual(['d']);
  });
});

describe('a task', () => {
  const crowded = () =>
    machine({
      images: [image('old', 1, 100), image('older', 0, 50), image('runs', 2, 700, { runs: true })],
    });
  it('goes on at once if the last count has nothing that must go, also while another run has the lock', async () => {
    const { room, log, state } = crowded();
    const gate = Promise.withResolvers<void>();
    state.gate = gate.promise;
    const said: string[] = [];
    await room.keep(never, { recount: true });
    expect(log).toEqual([]);
    // The budget needs no eviction; a copy evicts, and holds the lock.
    const copying = room.make(200, never, (text) => said.push(text));
    await vi.waitUntil(() => state.evictions > 0);
    await room.keep(never, { logLine: (text) => said.push(text) });
    expect(said).toEqual([]);
    gate.resolve();
    await copying;
    expect(log).toEqual(['older', 'old']);
  });
  it('says that it waits for room on the disk', async () => {
    const { room, state, log } = crowded();
    const said: string[] = [];
    await room.keep(never, { recount: true });
    state.images.push(image('new', 3, 200));
    await room.keep(never, { wanted: 1, recount: true, logLine: (text) => said.push(text) });
    expect(said).toEqual(['making room on the disk']);
    expect(log).toEqual(['older', 'old', 'new']);
  });
  it('does not wait for all evictions of the background: a copy gets the lock after the round that runs', async () => {
    const kept = ['k1', 'k2', 'k3', 'k4', 'k5', 'k6'].map((name, i) =>
      image(name, i, 100, { kept: true }),
    );
    const { room, log, state } = machine({
      images: [...kept, image('runs', 9, 600, { runs: true })],
    });
    const gate = Promise.withResolvers<void>();
    state.gate = gate.promise;
    const said: string[] = [];
    const background = room.keep(never, { recount: true });
    await vi.waitUntil(() => state.evictions > 0);
    const copying = room.make(1, never, (text) => said.push(text));
    gate.resolve();
    await Promise.all([background, copying]);
    expect(log).toEqual(['k1', 'k2', 'k3']);
    // The copy evicted the second one itself.
    expect(said.map((text) => text.slice(0, 22))).toContain('evicted the image k2, ');
    expect(said[0]).toBe(
      'waiting for room on the disk: this node makes room for something else first',
    );
  });
  it('counts the engine once for several tasks, and again after something was removed', async () => {
    const { room, state } = crowded();
    for (let i = 0; i < 5; i++) await room.keep(never, { recount: true });
    expect(state.counts).toBe(1);
    state.isCurrent = false;
    await room.keep(never, { recount: true });
    expect(state.counts).toBe(2);
  });
  it('repeats a prune that removed only records which share their bytes with an image, but not for ever', async () => {
    const shared = Array.from({ length: 9 }, (_, i) => layer(`s${i}`, 10));
    const { room, log } = machine({
      cache: [...shared, layer('c', 400)],
      images: [image('runs', 1, 600, { runs: true, layers: [...shared, layer('own', 510)] })],
    });
    await room.keep(never, { recount: true });
    expect(log.length).toBeGreaterThan(0);
    expect(log.length).toBeLessThan(10);
  });
});

describe('images that run and use most of the budget', () => {
  const big = () =>
    machine({
      images: [image('runs', 1, 900, { runs: true })],
      datasets: [data('new', 40), data('old', 40, { last_used_at: '2026-10-01T00:00:00Z' })],
    });
  it('leave the datasets that fit beside them, and are reported once', async () => {
    const { room, log, warnings, state } = big();
    for (let i = 0; i < 3; i++) await room.keep(never, { recount: true });
    expect(log).toEqual([]);
    expect(warnings).toEqual(room.notes());
    expect(room.notes()).toEqual([
      expect.stringContaining('images that stay use 900 B of the 1.0 kB of MAX_STORAGE'),
    ]);
    state.images.pop();
    state.isCurrent = false;
    await room.keep(never, { recount: true });
    expect(room.notes()).toEqual([]);
  });
  it('says once, with the bytes, that the datasets alone are above MAX_STORAGE', async () => {
    const { room, warnings } = machine({ datasets: [data('mounted', 1_300, { pinned: true })] });
    for (let i = 0; i < 3; i++) await room.keep(never, { recount: true });
    expect(warnings).toEqual([
      'SVC_ROOT and running copies use 300 B more than the 1.0 kB of MAX_STORAGE; 1.3 kB of ' +
        'datasets are in use or kept for the last releases',
    ]);
  });
});

describe('a copy', () => {
  it('takes the place of build cache and unneeded images before a dataset goes', async () => {
    const { copy, log, room } = machine({
      cache: [layer('c', 300)],
      images: [image('old', 1, 300)],
      datasets: [data('d', 300)],
    });
    await room.keep(never, { recount: true });
    expect(log).toEqual([]);
    await copy(300);
    expect(log).toEqual(['cache', 'old']);
  });
  it('is refused only for datasets and for the disk, never because images run', async () => {
    const { copy, log } = machine({
      images: [image('runs', 1, 900, { runs: true })],
      datasets: [data('mounted', 300, { pinned: true })],
    });
    await copy(600);
    await expect(copy(200)).rejects.toMatchObject({ code: 'no_room' });
    expect(log).toEqual([]);
  });
  it('is refused, and nothing goes, if even all evictions free too little of the disk', async () => {
    const { copy, log, room } = machine({
      max: 100_000,
      diskFree: 60,
      images: [image('kept', 1, 50, { kept: true })],
      datasets: [data('d', 50)],
    });
    await room.keep(never, { recount: true });
    await expect(copy(200)).rejects.toMatchObject({ code: 'no_room' });
    expect(log).toEqual([]);
  });
  it('gets the room of images that a rollback pulls again, if nothing else is left, and says so', async () => {
    const { copy, log, room } = machine({
      max: 100_000,
      diskFree: 100,
      images: [image('kept', 1, 500, { kept: true })],
    });
    await room.keep(never, { recount: true });
    await copy(200);
    expect(log).toEqual([
      'kept',
      'evicted the image kept, which was kept for a rollback; a rollback pulls it again',
    ]);
  });
});
