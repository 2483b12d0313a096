/** Which images are removed from a node. */
import { silentLogger } from '@berth/kit/log';
import { describe, expect, it } from 'vitest';
import { createImages, removableRefs } from '../../src/disk/old-images.ts';
import { repositoryOf } from '../../src/engine/image-ref.ts';
import type { Docker } from '../../src/engine/docker.ts';

const image = (id: string, created: number): { id: string; created: number; refs: string[] } => ({
  id,
  created,
  refs: [`r:5000/app:${id}`],
});
it('repositoryOf removes the tag or digest and keeps the port', () => {
  expect(repositoryOf('10.0.0.1:5000/app:abc')).toBe('10.0.0.1:5000/app');
  expect(repositoryOf('10.0.0.1:5000/app@sha256:abc')).toBe('10.0.0.1:5000/app');
  expect(repositoryOf('10.0.0.1:5000/app')).toBe('10.0.0.1:5000/app');
});
it('removableRefs returns the oldest first, without the newest few and images in use', () => {
  const images = [image('a', 1), image('d', 4), image('b', 2), image('c', 3)];
  expect(removableRefs(images, { keepNewest: 1, inUse: new Set(['b']), maxRefs: 9 })).toEqual([
    'r:5000/app:a',
    'r:5000/app:c',
  ]);
  expect(removableRefs(images, { keepNewest: 9, inUse: new Set(), maxRefs: 9 })).toEqual([]);
  expect(removableRefs(images, { keepNewest: 1, inUse: new Set(), maxRefs: 1 })).toEqual([
    'r:5000/app:a',
  ]);
});
it('keeps an image that a task protects, and removes it after the release', async () => {
  const removed: string[] = [];
  const docker = {
    images: async () => [image('a', Date.now() / 1000 - 2), image('b', Date.now() / 1000 - 1)],
    imagesInUse: async () => new Set(),
    removeImageRef: async (ref: string) => (removed.push(ref), true),
  } as unknown as Docker;
  const images = createImages({ docker, keepNewest: () => 1, log: silentLogger() });
  const release = images.protect('r:5000/app:a');
  images.cleanLater('r:5000/app');
  await images.settle();
  expect(removed).toEqual([]);
  release();
  images.cleanLater('r:5000/app');
  await images.settle();
  expect(removed).toEqual(['r:5000/app:a']);
});

it('touches no image outside a registry, whatever a task names', async () => {
  const asked: string[] = [];
  const docker = {
    images: async (pattern: string) => (asked.push(pattern), []),
    imagesInUse: async () => new Set(),
  } as unknown as Docker;
  const images = createImages({ docker, keepNewest: () => 1, log: silentLogger() });
  for (const name of ['', 'busybox', 'library/postgres', '*', '*/*', 'r:5000/*', '[a-z]*/app']) {
    images.cleanLater(name);
    images.forgetLater(name);
  }
  for (const registry of ['', 'busybox', '*', '*:*']) images.sweepLater(registry);
  await images.settle();
  expect(asked).toEqual([]);
  images.cleanLater('localhost/app');
  images.sweepLater('registry.example.org');
  await images.settle();
  expect(asked).toEqual(['registry.example.org/*', 'localhost/app']);
});

describe('images of a project without containers on the node', () => {
  const DAY_S = 86_400;
  const image = (id: string, created: number, repository = 'r:5000/app') => ({
    id,
    created,
    refs: [`${repository}:${id}`],
  });
  function engine(all: ReturnType<typeof image>[], inUse: string[] = []) {
    const removed: string[] = [];
    const docker = {
      images: async (pattern: string) =>
        all.filter((i) => pattern === 'r:5000/*' || i.refs[0]?.startsWith(`${pattern}:`)),
      imagesInUse: async () => new Set(inUse),
      removeImageRef: async (ref: string) => (removed.push(ref), true),
    } as unknown as Docker;
    return { docker, removed };
  }
  it('are removed when the project was deleted, except images in use or protected', async () => {
    const { docker, removed } = engine(
      [image('a', 1), image('b', 2), image('c', 3), image('d', 4)],
      ['b'],
    );
    const images = createImages({ docker, keepNewest: () => 10, log: silentLogger() });
    images.protect('r:5000/app:c');
    images.forgetLater('r:5000/app');
    await images.settle();
    expect(removed.sort()).toEqual(['r:5000/app:a', 'r:5000/app:d']);
  });
  it('are removed a week after the newest was built', async () => {
    const now = Date.now() / 1000;
    const [old, fresh] = [now - 8 * DAY_S, now - DAY_S];
    const all = [
      image('a', old, 'r:5000/gone'),
      image('b', old, 'r:5000/runs'),
      image('c', fresh, 'r:5000/new'),
      image('d', old, 'r:5000/new'),
    ];
    const { docker, removed } = engine(all, ['b']);
    const images = createImages({ docker, keepNewest: () => 10, log: silentLogger() });
    images.sweepLater('r:5000');
    await images.settle();
    expect(removed).toEqual(['r:5000/gone:a']);
  });
});
