/** The folders of volumes on a node: created once, never replaced by an empty or another one. */
import { chmod, lstat, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createVolumes, type Volumes } from '../../src/data/volumes/volumes.ts';

let root: string;
let volumes: Volumes;
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'berth-volumes-'));
  volumes = await createVolumes(root);
});
afterEach(() => rm(root, { recursive: true, force: true }));

const mount = (copy: string, create: boolean, name = 'data') =>
  volumes.mounts(
    'p1',
    { copy, mounts: [{ name, mount_path: '/data', create }] },
    async () => process.getuid?.() ?? 0,
  );
const folder = (): string => join(root, 'volumes/p1/data');

it('creates a folder once and mounts the same one afterwards', async () => {
  const wanted = [{ source: folder(), target: '/data', readonly: false }];
  expect(await mount('v1', true)).toEqual(wanted);
  await writeFile(join(folder(), 'file'), 'x');
  expect(await mount('v1', true)).toEqual(wanted);
  expect(await mount('v1', false)).toEqual(wanted);
  expect((await lstat(join(folder(), 'file'))).size).toBe(1);
});

it.each([
  ['nothing is there', async () => undefined, 'does not exist'],
  [
    'the folder is missing',
    async () => mount('v1', true).then(() => rm(folder(), { recursive: true })),
    'does not exist',
  ],
  ['it is another copy', () => mount('v0', true), 'another copy'],
  [
    'the mark is damaged',
    () => mount('v1', true).then(() => writeFile(join(root, 'volumes/p1/.copy.json'), '{')),
    'damaged',
  ],
])('mounts nothing if %s', async (_, before, text) => {
  await before();
  await expect(mount('v1', false)).rejects.toThrow(text);
});

it('does not take over folders without a mark, and follows no symlink', async () => {
  await mkdir(folder(), { recursive: true });
  await expect(mount('v1', true)).rejects.toThrow('but no .copy.json');
  await rm(join(root, 'volumes/p1'), { recursive: true });
  await mount('v1', true);
  await symlink(tmpdir(), join(root, 'volumes/p1/link'));
  await expect(mount('v1', true, 'link')).rejects.toThrow('is not a folder');
});

it('refuses names that lead elsewhere', async () => {
  await expect(mount('v1', true, '../p2')).rejects.toThrow('not the name of a volume');
  await expect(volumes.mounts('../x', { copy: 'v1', mounts: [] }, async () => 0)).rejects.toThrow(
    'not an id',
  );
});

it('no other user of the node reaches a volume: every folder on the way is private, also those of an earlier version', async () => {
  await mount('v1', true);
  const incoming = volumes.incoming('c2');
  await incoming.begin();
  const modes = async (...paths: string[]): Promise<string[]> =>
    Promise.all(
      paths.map(async (path) =>
        ((await lstat(join(root, 'volumes', path))).mode & 0o777).toString(8),
      ),
    );
  expect(await modes('', 'p1', '.incoming', '.incoming/c2')).toEqual(['700', '700', '700', '700']);
  await mkdir(join(root, 'volumes/.left/v0'), { recursive: true });
  for (const path of ['', 'p1', '.incoming', '.incoming/c2', '.left', '.left/v0'])
    await chmod(join(root, 'volumes', path), 0o711);
  await createVolumes(root);
  expect(await modes('', 'p1', '.incoming', '.incoming/c2', '.left', '.left/v0')).toEqual(
    Array.from({ length: 6 }, () => '700'),
  );
  // The folder of the volume belongs to the container and stays as it is.
  expect(await modes('p1/data')).toEqual(['755']);
});
