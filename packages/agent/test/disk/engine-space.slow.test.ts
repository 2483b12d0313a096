/** Counts of the engine: which of them are shared, and which begin anew. */
import { expect, it, vi } from 'vitest';
import { createEngineSpace } from '../../src/disk/engine-space.ts';
import { type EngineClient, EngineError } from '../../src/engine/engine-client.ts';
import { createImageSizes, engineUse } from '../../src/engine/engine-use.ts';
import { never } from '../data/share.ts';

/** An engine whose counts wait for `open`. */
function engine({ refusals = 0 } = {}) {
  const state = {
    asked: [] as string[],
    gates: [] as PromiseWithResolvers<void>[],
    isGated: false,
    tags: ['r/app:1'],
  };
  const image = { Id: 'sha256:a', Size: 15_000_000, SharedSize: 5_000_000, RepoTags: ['r/app:1'] };
  let left = refusals;
  const client = {
    async call(call: string, { signal }: { signal?: AbortSignal } = {}) {
      state.asked.push(call);
      if (call === 'GET /images/json') return [{ ...image, RepoTags: [...state.tags] }];
      if (call === 'GET /info') return { DockerRootDir: '/no-such-folder' };
      if (call === 'POST /build/prune') return { SpaceReclaimed: 5_000_000 };
      if (left-- > 0) throw new EngineError(call, 409, 'a disk usage operation is already running');
      if (state.isGated) {
        const gate = Promise.withResolvers<void>();
        state.gates.push(gate);
        signal?.addEventListener('abort', () => gate.reject(signal.reason));
        await gate.promise;
      }
      return {
        LayersSize: 20_000_000,
        Images: [image],
        BuildCache: [
          { Size: 10_000_000, InUse: false },
          { Size: 20_000_000, InUse: true },
        ],
      };
    },
  } as unknown as EngineClient;
  const space = createEngineSpace({
    engine: client,
    root: '/',
    images: { list: async () => [], evict: async () => true },
  });
  const counts = (): number => state.asked.filter((what) => what === 'GET /system/df').length;
  return { client, space, state, counts };
}
const prune = { kind: 'build_cache', bytes: 1, keep: 0, isNeeded: false } as const;

it('callers share an open count', async () => {
  const { space, state, counts } = engine();
  state.isGated = true;
  const all = [space.count(never), space.count(never, 60_000), space.count(never)];
  await vi.waitUntil(() => state.gates.length > 0);
  state.gates[0]?.resolve();
  const [first, ...others] = await Promise.all(all);
  expect(others).toEqual([first, first]);
  expect(counts()).toBe(1);
});

it('a count that began before an eviction does not answer a caller after it', async () => {
  const { space, state, counts } = engine();
  state.isGated = true;
  const before = space.count(never);
  await vi.waitUntil(() => state.gates.length === 1);
  await space.evict(prune, never);
  const after = space.count(never, 60_000);
  state.gates[0]?.resolve();
  await before;
  expect(space.isCurrent()).toBe(false);
  await vi.waitUntil(() => state.gates.length === 2);
  state.gates[1]?.resolve();
  await after;
  expect(counts()).toBe(2);
  expect(space.isCurrent()).toBe(true);
});

it('a count whose own task ends is counted again for the others, and only for them', async () => {
  const { space, state, counts } = engine();
  state.isGated = true;
  const ended = new AbortController();
  const [mine, other] = [space.count(ended.signal), space.count(never)];
  await vi.waitUntil(() => state.gates.length === 1);
  ended.abort(new Error('the task ended'));
  await expect(mine).rejects.toThrow('the task ended');
  await vi.waitUntil(() => state.gates.length === 2);
  state.gates[1]?.resolve();
  expect(await other).toMatchObject({ images: 20_000_000, build_cache_unused: 10_000_000 });
  expect(counts()).toBe(2);
});

it('a caller whose task ends does not wait for the count of another', async () => {
  const { space, state } = engine();
  state.isGated = true;
  const ended = new AbortController();
  const [other, mine] = [space.count(never), space.count(ended.signal)];
  await vi.waitUntil(() => state.gates.length === 1);
  ended.abort(new Error('the task ended'));
  await expect(mine).rejects.toThrow('the task ended');
  state.gates[0]?.resolve();
  await other;
});

it('a recent count is good until something is removed', async () => {
  const { space, counts } = engine();
  await space.count(never);
  await space.count(never, 60_000);
  expect(counts()).toBe(1);
  space.changed();
  await space.count(never, 60_000);
  expect(counts()).toBe(2);
  await space.count(never);
  expect(counts()).toBe(3);
});

it('asks again while another program counts, until its own task ends', async () => {
  const { client, counts } = engine({ refusals: 1 });
  expect(await engineUse(client, never)).toMatchObject({ images: 20_000_000 });
  expect(counts()).toBe(2);
  const busy = engine({ refusals: Number.POSITIVE_INFINITY });
  const ended = new AbortController();
  const asking = engineUse(busy.client, ended.signal);
  await vi.waitUntil(() => busy.counts() > 0);
  ended.abort();
  await expect(asking).rejects.toThrow();
});

it('the sizes of images are asked again only after images or their names changed', async () => {
  const { client, state } = engine();
  const sizes = createImageSizes(client);
  const [first, second] = [await sizes(never), await sizes(never)];
  expect(second).toBe(first);
  expect(first.get('sha256:a')).toEqual({ unique: 10_000_000, tags: ['r/app:1'] });
  state.tags.push('mine/app:1');
  expect(await sizes(never)).not.toBe(first);
  expect(state.asked.filter((what) => what === 'GET /system/df')).toHaveLength(2);
});
