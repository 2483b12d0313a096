/** Counts of the engine: which of them are shared, and which begin anew. */
import { expect, it, vi } from 'vitest';
import { createEngineSpace } from '../../src/disk/engine-space.ts';
import type { DockerCli } from '../../src/engine/docker-cli.ts';
import { createImageSizes, engineUse } from '../../src/engine/engine-use.ts';
import { never } from '../data/share.ts';

/** An engine whose counts wait for `open`. */
function engine({ refusals = 0 } = {}) {
  const state = {
    asked: [] as string[],
    gates: [] as PromiseWithResolvers<void>[],
    isGated: false,
    list: 'sha256:a r/app:1',
  };
  const row = { ID: 'sha256:a', Repository: 'r/app', Tag: '1', UniqueSize: '10MB' };
  let left = refusals;
  const cli = {
    async runOrThrow(args: readonly string[], { signal }: { signal?: AbortSignal } = {}) {
      const what = args.slice(0, 3).join(' ');
      state.asked.push(what);
      if (what.startsWith('image ls')) return { stdout: state.list };
      if (args[0] === 'info') return { stdout: '/no-such-folder\n' };
      if (left-- > 0)
        throw new Error(
          'docker system failed (exit 1): Error response from daemon: a disk usage operation ' +
            'is already running',
        );
      if (what === 'system df --verbose') return { stdout: JSON.stringify({ Images: [row] }) };
      if (what.startsWith('buildx')) return { stdout: 'Total:\t5MB\n' };
      if (state.isGated) {
        const gate = Promise.withResolvers<void>();
        state.gates.push(gate);
        signal?.addEventListener('abort', () => gate.reject(signal.reason));
        await gate.promise;
      }
      return { stdout: 'Images\t20MB\t0B\nBuild Cache\t30MB\t10MB' };
    },
  } as unknown as DockerCli;
  const space = createEngineSpace({
    cli,
    root: '/',
    images: { list: async () => [], evict: async () => true },
  });
  const counts = (): number => state.asked.filter((what) => what === 'system df --format').length;
  return { cli, space, state, counts };
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
  const { cli, counts } = engine({ refusals: 1 });
  expect(await engineUse(cli, never)).toMatchObject({ images: 20_000_000 });
  expect(counts()).toBe(2);
  const busy = engine({ refusals: Number.POSITIVE_INFINITY });
  const ended = new AbortController();
  const asking = engineUse(busy.cli, ended.signal);
  await vi.waitUntil(() => busy.counts() > 0);
  ended.abort();
  await expect(asking).rejects.toThrow();
});

it('the sizes of images are asked again only after images or their names changed', async () => {
  const { cli, state } = engine();
  const sizes = createImageSizes(cli);
  const [first, second] = [await sizes(never), await sizes(never)];
  expect(second).toBe(first);
  expect(first.get('sha256:a')).toEqual({ unique: 10_000_000, tags: ['r/app:1'] });
  state.list += '\nsha256:a mine/app:1';
  expect(await sizes(never)).not.toBe(first);
  expect(state.asked.filter((what) => what === 'system df --verbose')).toHaveLength(2);
});
