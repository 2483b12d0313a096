/** Which images a node may remove to make room. */
import { silentLogger } from '@berth/kit/log';
import { describe, expect, it } from 'vitest';
import { createEvictableImages, neededImages } from '../../src/disk/evictable-images.ts';
import { createImages } from '../../src/disk/old-images.ts';
import type { Docker, Image } from '../../src/engine/docker.ts';
import type { ImageSize } from '../../src/engine/engine-use.ts';
import { never } from '../data/share.ts';

const NOW = Date.now() / 1000;
/** `age` in seconds. */
const image = (id: string, age: number, repositories = ['app'], tags = true): Image => ({
  id,
  created: NOW - age,
  refs: repositories.flatMap((name) => [
    ...(tags ? [`r:5000/${name}:${id}`] : []),
    `r:5000/${name}@sha256:${id}`,
  ]),
});

type Given = { keep?: number; inUse?: string[]; foreign?: Record<string, string[]> };
function site(all: Image[], { keep = 1, inUse = [], foreign = {} }: Given = {}) {
  const present = new Set(all);
  const registry = { lost: new Set<string>(), isDown: false, asked: [] as string[] };
  const docker = {
    images: async () => [...present],
    imagesInUse: async () => new Set(inUse),
    removeImageRef: async (ref: string) => {
      for (const one of present) if (one.refs.includes(ref)) present.delete(one);
      return true;
    },
  } as unknown as Docker;
  const images = createImages({ docker, keepNewest: () => keep, log: silentLogger() });
  const sizes = new Map<string, ImageSize>(
    all.map(({ id, refs }) => [
      id,
      { unique: 10, tags: [...refs.filter((ref) => !ref.includes('@')), ...(foreign[id] ?? [])] },
    ]),
  );
  const space = createEvictableImages({
    docker,
    images,
    sizes: async () => sizes,
    keepNewest: () => keep,
    registry: () => 'r:5000',
    registryHas: async (repository, digest) => {
      registry.asked.push(`${repository} ${digest}`);
      if (registry.isDown) throw new Error('no answer');
      return !registry.lost.has(`${repository} ${digest}`);
    },
    log: silentLogger(),
  });
  const names = async (): Promise<string[]> =>
    (await space.list(never)).map(({ name, kept }) => `${name}${kept ? ' kept' : ''}`);
  return { space, images, registry, names, sizes, left: () => [...present].map(({ id }) => id) };
}

it('lists images that nobody needs first, then those that a rollback needs and that the registry has', async () => {
  const { names, registry } = site([image('new', 10), image('mid', 20), image('old', 30)], {
    keep: 2,
    inUse: ['new'],
  });
  expect(await names()).toEqual(['r:5000/app:old', 'r:5000/app:mid kept']);
  expect(registry.asked).toEqual(['app sha256:mid']);
});

describe('an image stays', () => {
  it('while a container or a task uses it, under any of its names', async () => {
    const { names, images } = site([image('a', 10), image('b', 20), image('c', 30)], {
      inUse: ['c'],
    });
    const release = images.protect('r:5000/app@sha256:b');
    expect(await names()).toEqual(['r:5000/app:a kept']);
    release();
    expect(await names()).toEqual(['r:5000/app:b', 'r:5000/app:a kept']);
  });
  it('if the registry lost it: this node has the only copy', async () => {
    const { names, registry, space, left } = site([image('a', 10), image('b', 20)], { keep: 2 });
    registry.lost.add('app sha256:a');
    expect(await names()).toEqual(['r:5000/app:b kept']);
    const [listed] = await space.list(never);
    // The registry loses it between the list and the eviction.
    registry.lost.add('app sha256:b');
    expect(listed !== undefined && (await space.evict(listed, never))).toBe(false);
    expect(left()).toEqual(['a', 'b']);
  });
  it('if the registry does not answer, or has no digest to ask for', async () => {
    const { names, registry } = site([image('a', 10), image('b', 20)], { keep: 2 });
    registry.isDown = true;
    expect(await names()).toEqual([]);
    expect(registry.asked).toHaveLength(1);
    const local: Image = { id: 'l', created: NOW, refs: ['r:5000/app:l'] };
    expect(await site([local]).names()).toEqual([]);
  });
  it('if somebody gave it a name of their own, because its removal would free nothing', async () => {
    const { names } = site([image('a', 10), image('b', 20)], { foreign: { b: ['backup:1'] } });
    expect(await names()).toEqual(['r:5000/app:a kept']);
  });
  it('if one of two projects that share it needs it, even if the other one does not', async () => {
    const shared = image('shared', 30, ['one', 'two']);
    const all = [shared, image('newer', 10, ['one'])];
    expect([...neededImages(all, { keepNewest: 1, inUse: new Set() })].sort()).toEqual([
      'newer',
      'shared',
    ]);
    const { names, registry } = site(all);
    registry.lost.add('two sha256:shared');
    expect(await names()).toEqual(['r:5000/one:newer kept']);
  });
  it('if a task begins to use it after the list was made', async () => {
    const { space, images, left } = site([image('a', 10), image('b', 20)]);
    const [b] = await space.list(never);
    images.protect('r:5000/app:b');
    expect(b !== undefined && (await space.evict(b, never))).toBe(false);
    expect(left()).toEqual(['a', 'b']);
  });
});

it('a task that protects an image while it is removed waits for the end of the removal', async () => {
  const order: string[] = [];
  let removed: () => void = () => undefined;
  const docker = {
    removeImageRef: (ref: string) =>
      new Promise<boolean>((resolve) => {
        removed = () => {
          order.push(`${ref} removed`);
          resolve(true);
        };
      }),
  } as unknown as Docker;
  const images = createImages({ docker, keepNewest: () => 1, log: silentLogger() });
  const removal = images.remove(['r/app:a', 'r/app@sha256:a']);
  await Promise.resolve();
  images.protect('r/app@sha256:a');
  const waiting = images.removed().then(() => order.push('the task continues'));
  await Promise.resolve();
  removed();
  await waiting;
  // The second name is protected by now, so the image itself stays.
  expect(await removal).toBe(false);
  expect(order).toEqual(['r/app:a removed', 'the task continues']);
});
