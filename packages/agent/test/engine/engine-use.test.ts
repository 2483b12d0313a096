/** Sizes as the engine tells them. */
import { afterEach, expect, it } from 'vitest';
import { engineUse, imageSizes, pruneBuildCache } from '../../src/engine/engine-use.ts';
import { never } from '../data/share.ts';
import { type HttpEngine, json, startHttpEngine } from '../http-engine.ts';

let site: HttpEngine | null = null;
afterEach(async () => {
  await site?.stop();
  site = null;
});
const engineWith = async (df: unknown): Promise<HttpEngine> =>
  (site = await startHttpEngine({
    'GET /info': json({ DockerRootDir: '/var/lib/docker' }),
    'GET /system/df': json(df),
    'POST /build/prune': json({ CachesDeleted: null, SpaceReclaimed: 5 }),
  }));

it('counts records that share no bytes with others, and those that no build uses', async () => {
  const { engine } = await engineWith({
    LayersSize: 100,
    BuildCache: [
      { Size: 10, InUse: false, Shared: false },
      { Size: 20, InUse: true, Shared: false },
      { Size: 40, InUse: false, Shared: true },
    ],
  });
  expect(await engineUse(engine, never)).toEqual({
    root: '/var/lib/docker',
    images: 100,
    build_cache: 30,
    build_cache_unused: 10,
  });
});

it('a size that the engine does not tell is null', async () => {
  const { engine } = await engineWith({ Images: null, BuildCache: null });
  expect(await engineUse(engine, never)).toMatchObject({
    images: null,
    build_cache: null,
    build_cache_unused: null,
  });
  await expect(imageSizes(engine, never)).rejects.toThrow('lists no sizes');
});

it('an image has one size for all its tags, and must have one', async () => {
  const image = { Id: 'sha256:a', Size: 30, SharedSize: 20, RepoTags: ['r/a:1', 'mine/a:1'] };
  const { engine } = await engineWith({ Images: [image] });
  expect(await imageSizes(engine, never)).toEqual(
    new Map([['sha256:a', { unique: 10, tags: ['r/a:1', 'mine/a:1'] }]]),
  );
  await site?.stop();
  const untold = await engineWith({ Images: [{ ...image, SharedSize: -1 }] });
  await expect(imageSizes(untold.engine, never)).rejects.toThrow('size of image sha256:a');
});

it('build cache is removed down to a number of bytes', async () => {
  const { engine, requests } = await engineWith({});
  expect(await pruneBuildCache(engine, 12.7, never)).toBe(true);
  expect(requests[0]?.query.toString()).toBe('all=true&keep-storage=12');
});
