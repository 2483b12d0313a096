/**
 * Readwrite mounts of folders of the share: the engine follows symlinks out of the share, so the
 * path must contain none.
 */
import { mkdir, rename, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { deployHandlerOn } from '../deploy-handler.ts';
import { deployTask } from '../fake-control-plane.ts';
import { type FakeEngine, startFakeEngine } from '../fake-engine.ts';
import { context, never, type Share, type Site, startSite } from './share.ts';
import { sharePerTest } from './share-per-test.ts';

let share: Share;
let site: Site;
const perTest = sharePerTest();
beforeEach(async () => {
  share = perTest.share();
  await mkdir(share.path('lab/genomes'), { recursive: true });
  site = await perTest.siteWith();
});

const IMAGE = 'r/app@sha256:1';
const writing = (nfs_path: string) =>
  deployTask('d2', {
    image: IMAGE,
    image_digest: 'sha256:1',
    container_name: 'svc-app-g2',
    generation: 2,
    replace: 'recreate',
    replaces: 'd1',
    probe_seconds: 5,
    datasets: [
      {
        dataset_id: 'rw',
        name: 'rw',
        nfs_path,
        mode: 'readwrite',
        mount_path: '/data/rw',
        version: null,
        manifest_digest: null,
        bytes: 0,
        files: 0,
      },
    ],
  });

describe('a path', () => {
  it('without a symlink below the share is mounted, even if the share itself is reached through one', async () => {
    await symlink('share', join(share.dir, 'by-link'));
    const other = await startSite(share, { share: join(share.dir, 'by-link') });
    try {
      const { mounts } = await other.data.prepare.mounts(writing('lab/genomes'), 'd2', context());
      expect(mounts).toEqual([
        { source: share.path('lab/genomes'), target: '/data/rw', readonly: false },
      ]);
      await other.data.prepare.checkWritten(writing('lab/genomes'), mounts, never);
    } finally {
      await other.data.stop();
    }
  });

  it.each([
    ['a symlink at its end', 'alias', 'lab/genomes', 'alias'],
    ['a symlink on its way', 'way', 'lab', 'way/genomes'],
  ])('with %s is refused, although it stays inside the share', async (_, name, target, nfsPath) => {
    await symlink(target, share.path(name));
    await expect(site.data.prepare.mounts(writing(nfsPath), 'd2', context())).rejects.toMatchObject(
      {
        code: 'dataset_unreachable',
        message: expect.stringContaining(
          `${share.path(nfsPath)} contains a symlink and leads to ${share.path('lab/genomes')}`,
        ),
      },
    );
  });
});

describe('a folder that becomes a symlink after the first check', () => {
  let engine: FakeEngine;
  beforeEach(async () => void (engine = await startFakeEngine()));
  afterEach(() => engine.stop());

  it.each([
    ['inside the share', 'other', 'contains a symlink'],
    ['to the outside', '/', 'leads outside the shared storage'],
  ])(
    '%s is not mounted: no container starts, and the old one is restarted',
    async (_, target, words) => {
      await mkdir(share.path('other'));
      engine.put({
        id: 'old',
        name: 'svc-app-g1',
        labels: {
          'berth.project': 'prj-1',
          'berth.node': 'node-1',
          'berth.deployment': 'd1',
          'berth.generation': '1',
        },
      });
      const docker: FakeEngine['docker'] = {
        ...engine.docker,
        // The old version replaces the folder right before it stops.
        async stop(...args) {
          await rename(share.path('lab/genomes'), share.path('lab/moved'));
          await symlink(target === '/' ? '/' : share.path(target), share.path('lab/genomes'));
          return engine.docker.stop(...args);
        },
      };
      const handler = deployHandlerOn({ docker, prepare: site.data.prepare });
      await expect(handler(writing('lab/genomes'), context())).rejects.toMatchObject({
        code: 'dataset_unreachable',
        message: expect.stringContaining(words),
      });
      expect(engine.all()).toEqual(['svc-app-g1 running']);
    },
  );
});
