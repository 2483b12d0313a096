/**
 * Rare races of the dataset cache: foreign files in its folders, reused version numbers, agents
 * that die while they delete.
 */
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import {
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { beforeEach, expect, it } from 'vitest';
import { inParallel } from '../../src/file-system.ts';
import { createEvict } from '../../src/data/evict.ts';
import { createLayout } from '../../src/data/layout.ts';
import { createMounts } from '../../src/data/mounts.ts';
import { createTrees } from '../../src/data/trees.ts';
import { createVersions } from '../../src/data/versions.ts';
import { createWorkFolders } from '../../src/data/work-folders.ts';
import { deployTask } from '../fake-control-plane.ts';
import { ensureCached, context, never, verifyVersion, type Share, type Site } from './share.ts';
import { sharePerTest } from './share-per-test.ts';

let share: Share;
const perTest = sharePerTest();
const { siteWith } = perTest;
beforeEach(() => void (share = perTest.share()));
const meta = (site: Site, path: string): Promise<string> =>
  readFile(join(site.root, 'objects', path), 'utf8');

it('foreign files beside versions and mounts are ignored and stay', async () => {
  const site = await siteWith();
  await share.write('set/file', 'content');
  const set = await share.dataset('set');
  await mkdir(join(site.root, 'objects/lost+found'));
  await writeFile(join(site.root, 'objects/a note.txt'), 'mine');
  await mkdir(join(site.root, 'mounts/dep-x'));
  await writeFile(join(site.root, 'mounts/dep-x/a note.txt'), 'mine');
  await site.data.removeLeftovers(never);
  (await ensureCached(site, set)).release();
  expect(await site.data.inventory.cached()).toMatchObject([
    { dataset_id: 'set', version: 1, pinned: false },
  ]);
  await site.data.inventory.forget(['set']);
  expect((await readdir(join(site.root, 'objects'))).sort()).toEqual(['a note.txt', 'lost+found']);
});

it('a version with a reused number is replaced when the source has become that number', async () => {
  const site = await siteWith();
  await share.write('set/file', 'a');
  const set = await share.dataset('set');
  await share.write('set/file', 'b');
  await set.scan();
  (await ensureCached(site, set)).release();
  // After a restore of its database the control plane counts versions from the start again.
  set.source = { ...set.source, version: 0, manifest_digest: '' };
  await share.write('set/file', 'c');
  await set.scan();
  await share.write('set/file', 'd');
  const { want, release } = await ensureCached(site, set);
  release();
  expect(want.version).toBe(2);
  await verifyVersion(site.root, 'set', 2, set.objects, set.source.manifest_digest);
});

it('publishing over an existing version does not change its meta data', async () => {
  const site = await siteWith();
  await share.write('set/file', 'a');
  const set = await share.dataset('set');
  (await ensureCached(site, set)).release();
  const metaBefore = await meta(site, 'set/.v1.json');
  const folder = join(site.root, '.staging/other');
  await mkdir(folder);
  const versions = createVersions(createLayout(site.root));
  const other = {
    manifest_digest: `sha256:${'0'.repeat(64)}`,
    name: 'set',
    bytes: 0,
    files: 0,
    last_used_at: new Date().toISOString(),
  };
  expect(await versions.publish('set', 1, folder, other)).toBe(false);
  expect(await meta(site, 'set/.v1.json')).toBe(metaBefore);
});

it('tree objects can be fetched while others of the dataset are pruned', async () => {
  for (let i = 0; i < 40; i += 1) await share.write(`set/folder-${i}/file`, String(i));
  const set = await share.dataset('set');
  const site = await siteWith();
  const trees = createTrees(createLayout(site.root), async (_, digests) =>
    Object.fromEntries(digests.map((digest) => [digest, set.objects.get(digest) ?? ''])),
  );
  let ended = false;
  const pruning = (async () => {
    while (!ended) await trees.prune('set', []);
  })();
  try {
    for (let i = 0; i < 20; i += 1) await trees.complete('set', set.source.manifest_digest, never);
  } finally {
    ended = true;
    await pruning;
  }
}, 40_000);

it('a copy succeeds without links if the manifest of the cached version is lost', async () => {
  const site = await siteWith();
  await share.write('set/file', 'one');
  const set = await share.dataset('set');
  (await ensureCached(site, set)).release();
  await rm(join(site.root, 'objects/set/.trees'), { recursive: true });
  const first = set.source.manifest_digest;
  await share.write('set/file', 'two');
  await set.scan();
  // The control plane has forgotten the version.
  share.plane.datasets.set('set', {
    ...set,
    objects: new Map([...set.objects].filter(([digest]) => digest !== first)),
  });
  (await ensureCached(site, set)).release();
  await verifyVersion(site.root, 'set', 2, set.objects, set.source.manifest_digest);
});

it('a copy does not fail when its rate cannot be saved', async () => {
  const site = await siteWith();
  await share.write('set/file', 'one');
  const set = await share.dataset('set');
  await mkdir(join(site.root, '.copy-rate.json'));
  (await ensureCached(site, set)).release();
  await verifyVersion(site.root, 'set', 1, set.objects, set.source.manifest_digest);
});

it('inParallel closes its source when one item fails', async () => {
  let ended = false;
  async function* source() {
    try {
      for (let i = 0; ; i += 1) yield i;
    } finally {
      ended = true;
    }
  }
  const failing = inParallel(source(), 4, async (i) => {
    if (i === 10) throw new Error('the tenth');
  });
  await expect(failing).rejects.toThrow('the tenth');
  expect(ended).toBe(true);
});

/** `onCheck` is called at each check whether a task uses the version. */
async function evictOf(
  site: Site,
  onCheck: (check: number) => boolean,
  onChange: () => void = () => undefined,
) {
  const layout = createLayout(site.root);
  const [work, versions] = [await createWorkFolders(layout), createVersions(layout)];
  let checks = 0;
  const evict = createEvict({
    layout,
    work,
    versions,
    mounts: createMounts(layout, work),
    trees: createTrees(layout, async () => ({})),
    log: silentLogger(),
    isProtected: () => onCheck((checks += 1)),
    rootsBeingCopied: () => [],
    onChange,
  });
  return { evict, work };
}

it('an eviction does not touch a version that another agent has published in its place', async () => {
  const site = await siteWith();
  await share.write('set/file', 'content');
  const set = await share.dataset('set');
  (await ensureCached(site, set)).release();
  const metaBefore = await meta(site, 'set/.v1.json');
  const { evict, work } = await evictOf(site, (check) => {
    if (check !== 2) return false;
    mkdirSync(join(site.root, 'objects/set/v1'));
    writeFileSync(join(site.root, 'objects/set/v1/file'), 'content');
    return true;
  });
  await evict.version('set', 1);
  work.stop();
  await verifyVersion(site.root, 'set', 1, set.objects, set.source.manifest_digest);
  expect(await meta(site, 'set/.v1.json')).toBe(metaBefore);
});

it('a version that a dead agent has deleted in part is never put back', async () => {
  const site = await siteWith();
  for (const name of ['one', 'two']) await share.write(`set/${name}`, name);
  const set = await share.dataset('set');
  (await ensureCached(site, set)).release();
  const dead = join(site.root, '.trash/dead');
  // The state after a death during the deletion.
  const { evict, work } = await evictOf(
    site,
    () => false,
    () => {
      cpSync(work.trash, dead, { recursive: true });
      for (const name of ['one', 'two']) rmSync(join(dead, 'set.v1.1', name), { force: true });
    },
  );
  await evict.version('set', 1);
  work.stop();
  await mkdir(join(site.root, 'mounts/dep-x'));
  await symlink('../../objects/set/v1', join(site.root, 'mounts/dep-x/set'));
  await site.data.removeLeftovers(never);
  expect(await stat(join(site.root, 'objects/set/v1')).catch(() => null)).toBeNull();
  const task = deployTask('dep-1', {
    datasets: [{ ...set.source, mode: 'dependency', mount_path: '/data/set' }],
  });
  await site.data.prepare.mounts(task, 'dep-1', context());
  await verifyVersion(site.root, 'set', 1, set.objects, set.source.manifest_digest);
});

it('an agent that slept and counts as dead finds its copy complete or not at all', async () => {
  const site = await siteWith();
  const files = join(site.root, '.staging/asleep/copy-1/files');
  await mkdir(files, { recursive: true });
  const names = Array.from({ length: 3_000 }, (_, i) => `file-${i}`);
  for (const name of names) await writeFile(join(files, name), '');
  await writeFile(
    join(site.root, '.staging/asleep/.process.json'),
    JSON.stringify({ pid: 1, started: 'x', boot: 'another', space: '' }),
  );
  await utimes(join(site.root, '.staging/asleep/.process.json'), 0, 0);
  const removing = site.data.removeLeftovers(never);
  // It continues when the first of its files is removed.
  const isWhole = async (): Promise<boolean> =>
    (await stat(join(files, 'file-0')).catch(() => null)) !== null;
  while (await isWhole());
  const woke = await rename(files, join(site.root, 'woke')).then(
    () => true,
    () => false,
  );
  await removing;
  expect(woke ? (await readdir(join(site.root, 'woke'))).length : names.length).toBe(names.length);
});
