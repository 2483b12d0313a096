/** The report of the volumes on a node, and their deletion. */
import { mkdir, mkdtemp, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { waitFor } from '@berth/testbed/wait';
import { silentLogger } from '@berth/kit/log';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createVolumeInventory, type VolumeInventory } from '../../src/data/volumes/inventory.ts';
import { createVolumes, type Volumes } from '../../src/data/volumes/volumes.ts';
import type { ListNodeContainers } from '../../src/engine/node-ids.ts';

let root: string;
let volumes: Volumes;
let inventory: VolumeInventory;
let containers: { name: string }[];
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'berth-inventory-'));
  volumes = await createVolumes(root);
  containers = [];
  const listContainers = (async () => containers) as unknown as ListNodeContainers;
  inventory = createVolumeInventory({
    root,
    listContainers,
    inherit: process.env,
    onChange: () => undefined,
    log: silentLogger(),
  });
  await volumes.mounts(
    'p1',
    { copy: 'v1', mounts: [{ name: 'data', mount_path: '/data', create: true }] },
    async () => process.getuid?.() ?? 0,
  );
});
afterEach(async () => {
  await inventory.stop();
  await rm(root, { recursive: true, force: true });
});
const copies = async () => (await inventory.reported())?.volumes;
const isThere = (path: string): Promise<boolean> =>
  stat(join(root, 'volumes', path)).then(
    () => true,
    () => false,
  );

it('reports copies with sizes, also older ones, and nothing without a mark', async () => {
  await writeFile(join(root, 'volumes/p1/data/file'), Buffer.alloc(100_000, 'x'));
  await mkdir(join(root, 'volumes/strange/data'), { recursive: true });
  await mkdir(join(root, 'volumes/.left/v0/data'), { recursive: true });
  await writeFile(
    join(root, 'volumes/.left/v0/.copy.json'),
    JSON.stringify({ copy: 'v0', project_id: 'p1', created_at: 'x' }),
  );
  const counted = async () => (await copies())?.find((c) => (c.folders[0]?.bytes ?? 0) > 90_000);
  expect((await copies())?.map((c) => c.copy)).toEqual(['v0', 'v1']);
  expect(await waitFor('the size is counted', counted)).toMatchObject({
    copy: 'v1',
    project_id: 'p1',
    folders: [{ name: 'data' }],
  });
});

it('deletes the copy that is named, and no other', async () => {
  await volumes.mounts(
    'p2',
    { copy: 'v2', mounts: [{ name: 'data', mount_path: '/data', create: true }] },
    async () => process.getuid?.() ?? 0,
  );
  inventory.work({ remove: ['v1', 'unknown', '../p2'], setAside: [] });
  await waitFor(
    'it is gone',
    async () => !(await isThere('p1')) && !(await isThere('.removing/v1')),
  );
  expect(await isThere('p2/data')).toBe(true);
  expect((await copies())?.map((c) => c.copy)).toEqual(['v2']);
  // Only what was deleted here: the disk may not have been mounted when the request came.
  expect((await inventory.reported())?.removed_volumes).toEqual(['v1']);
});

it('confirms a deletion on the disk itself: a disk that is not mounted confirms nothing', async () => {
  inventory.work({ remove: ['v1'], setAside: [] });
  await waitFor('it is confirmed', async () =>
    (await inventory.reported())?.removed_volumes.includes('v1'),
  );
  await rename(join(root, 'volumes'), join(root, 'elsewhere'));
  expect(await inventory.reported()).toEqual({ volumes: [], removed_volumes: [] });
  await rename(join(root, 'elsewhere'), join(root, 'volumes'));
  expect(await inventory.reported()).toEqual({ volumes: [], removed_volumes: ['v1'] });
});

it('deletes nothing that a container mounts', async () => {
  containers = [{ name: 'svc-shop' }];
  inventory.work({ remove: ['v1'], setAside: ['v1'] });
  await inventory.stop();
  expect(await isThere('p1/data')).toBe(true);
});

it('sets a copy aside: it stays, and no task mounts it', async () => {
  inventory.work({ remove: [], setAside: ['v1'] });
  await waitFor(
    'it is out of the way',
    async () => !(await isThere('p1')) && (await isThere('.left/v1/data')),
  );
  expect(await copies()).toMatchObject([{ copy: 'v1', in_place: false }]);
  const mounted = volumes.mounts(
    'p1',
    { copy: 'v1', mounts: [{ name: 'data', mount_path: '/data', create: false }] },
    async () => 0,
  );
  await expect(mounted).rejects.toThrow('does not exist');
});
