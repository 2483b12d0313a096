/** Which images the space of the engine lists, by what this machine sees of the engine's disk. */
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { createEngineSpace } from '../../src/disk/engine-space.ts';
import type { EvictableImages, ImageCandidate } from '../../src/disk/evictable-images.ts';
import type { EngineClient } from '../../src/engine/engine-client.ts';
import { never } from '../data/share.ts';

const image: ImageCandidate = {
  name: 'r/app:1',
  bytes: 40,
  created_at: '2026-11-01T00:00:00.000Z',
  kept: true,
  refs: ['r/app:1'],
};
function spaceAt(root: string) {
  const asked: string[] = [];
  const images: EvictableImages = {
    async list() {
      asked.push('list');
      return [image];
    },
    evict: async () => true,
  };
  const engine = {
    call: async (call: string) =>
      call === 'GET /info'
        ? { DockerRootDir: root }
        : { LayersSize: 2e9, BuildCache: [{ Size: 3e9 }] },
  } as unknown as EngineClient;
  return { space: createEngineSpace({ engine, images, root: tmpdir() }), asked };
}

it('lists what can go where it sees the disk of the engine', async () => {
  const { space, asked } = spaceAt(tmpdir());
  expect(await space.count(never)).toMatchObject({
    images: 2e9,
    candidates: [image],
    disk: { isOwn: false },
  });
  expect(asked).toEqual(['list']);
});

it('asks nobody about images that it never evicts: the agent is in a container or the engine on another machine', async () => {
  const { space, asked } = spaceAt(join(tmpdir(), 'not-the-folder-of-an-engine'));
  expect(await space.count(never)).toMatchObject({
    images: 2e9,
    build_cache: 3e9,
    candidates: [],
    disk: null,
  });
  expect(space.last()).toMatchObject({ candidates: [], disk: null });
  expect(asked).toEqual([]);
});
