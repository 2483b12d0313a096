/**
 * Evictions from the dataset cache: which versions go, which never go, and that no container loses
 * its mounts.
 */
import { renameSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { LABELS } from '@berth/wire/vocabulary';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { keptDeployments } from '../../src/data/sweep-mounts.ts';
import { deployTask, type FakeDataset } from '../fake-control-plane.ts';
import { container } from '../fake-engine.ts';
import { ensureCached, context, never, verifyVersion, type Share, type Site } from './share.ts';
import { sharePerTest } from './share-per-test.ts';

let share: Share;
const perTest = sharePerTest();
const { siteWith } = perTest;
beforeEach(() => void (share = perTest.share()));
const MB = 1_000_000;
async function dataset(name: string, bytes: number): Promise<FakeDataset> {
  await share.write(`${name}/file`, Buffer.alloc(bytes, name));
  return share.dataset(name);
}
const cachedIn = async (site: Site): Promise<string[]> =>
  ((await site.data.inventory.cached()) ?? [])
    .map((c) => `${c.dataset_id} v${c.version}${c.pinned === true ? ' pinned' : ''}`)
    .sort();
const running = (deployment: string, over: { project?: string; generation?: number } = {}) =>
  container({
    id: deployment,
    labels: { [LABELS.deployment]: deployment, [LABELS.project]: over.project ?? 'p1' },
  });
const row = ({ source }: FakeDataset, over: object = {}) => ({
  ...source,
  mode: 'dependency' as const,
  mount_path: `/data/${source.name}`,
  ...over,
});
const deploying = (deployment: string, generation: number, ...sets: FakeDataset[]) =>
  deployTask(deployment, { project_id: 'p1', generation, datasets: sets.map((s) => row(s)) });
/** Does what a deploy task does: prepares the mounts, and then the container exists. */
async function deploy(
  site: Site,
  deployment: string,
  generation: number,
  ...sets: FakeDataset[]
): Promise<void> {
  await site.data.prepare.mounts(deploying(deployment, generation, ...sets), deployment, context());
  site.containers.push(running(deployment));
}

describe('making room', () => {
  it('evicts the least recently used versions first, down to the low watermark; mounted versions stay', async () => {
    const site = await siteWith({ maxStorage: 20.5 * MB });
    const [a, b, c, d] = [
      await dataset('a', 4 * MB),
      await dataset('b', 4 * MB),
      await dataset('c', 4 * MB),
      await dataset('d', 4 * MB),
    ];
    await deploy(site, 'dep-a', 1, a);
    for (const set of [b, c, d]) (await ensureCached(site, set)).release();
    // b was copied before c, but used again since.
    (await ensureCached(site, b)).release();
    const e = await dataset('e', 4 * MB);
    (await ensureCached(site, e)).release();
    // The copy would make 20 MB of 16.4 MB: c is the oldest version that is not mounted.
    expect(await cachedIn(site)).toEqual(['a v1 pinned', 'b v1', 'd v1', 'e v1']);
    expect(await readdir(join(site.root, 'objects'))).not.toContain('c');
    const { max, free } = await site.storage.now(never);
    expect(max - free).toBeGreaterThan(16 * MB);
    expect(max - free).toBeLessThan(16.2 * MB);
  });

  it('fails with no_room and the reason, and evicts nothing, if there is not enough room', async () => {
    const site = await siteWith({ maxStorage: 10 * MB });
    const [a, b] = [await dataset('a', 4 * MB), await dataset('b', 4 * MB)];
    await deploy(site, 'dep-a', 1, a);
    (await ensureCached(site, b)).release();
    const big = await dataset('big', 7 * MB);
    await expect(ensureCached(site, big)).rejects.toMatchObject({
      code: 'no_room',
      message: expect.stringMatching(
        /needs 7\.0 MB; [12]\.\d MB of 10\.0 MB are free, 4\.0 MB could be evicted, 4\.0 MB are in use/,
      ),
    });
    expect(await cachedIn(site)).toEqual(['a v1 pinned', 'b v1']);
  });

  it('shares one budget between parallel copies', async () => {
    const site = await siteWith({ maxStorage: 10 * MB, rsync: { bandwidth: '4000' } });
    const [a, b] = [await dataset('a', 6 * MB), await dataset('b', 6 * MB)];
    const ends = await Promise.allSettled([ensureCached(site, a), ensureCached(site, b)]);
    expect(
      ends
        .map((e) => (e.status === 'fulfilled' ? 'here' : (e.reason as { code: string }).code))
        .sort(),
    ).toEqual(['here', 'no_room']);
  });

  it('counts a file that two versions share once: the newer version fits, and evicting the older frees only its own files', async () => {
    const site = await siteWith({ maxStorage: 10 * MB });
    await share.write('set/big', Buffer.alloc(6 * MB, 'x'));
    await share.write('set/small', 'one');
    const set = await share.dataset('set');
    (await ensureCached(site, set)).release();
    await share.write('set/small', 'two');
    await set.scan();
    (await ensureCached(site, set)).release();
    expect(await cachedIn(site)).toEqual(['set v1', 'set v2']);
    const before = (await site.storage.now(never)).free;
    expect(before).toBeGreaterThan(3.8 * MB);
    await site.data.inventory.forget(['other']);
    // Both versions go for 8 MB more: v1 alone frees nearly nothing.
    (await ensureCached(site, await dataset('next', 8 * MB))).release();
    expect(await cachedIn(site)).toEqual(['next v1']);
  });
});

describe('a disk full of versions that only kept releases pin', () => {
  /** Deployment 1 ran on `a` and is kept for a rollback; deployment 2 runs now, on `b`. */
  async function siteFullOfKeptVersions(): Promise<Site> {
    const site = await siteWith({ maxStorage: 10 * MB, keepReleases: () => 2 });
    await deploy(site, 'dep-1', 1, await dataset('a', 5 * MB));
    await deploy(site, 'dep-2', 2, await dataset('b', 2 * MB));
    site.containers.splice(0, 1);
    return site;
  }
  it('evicts a version that the share still has, and logs that a rollback copies it again', async () => {
    const site = await siteFullOfKeptVersions();
    const logged: string[] = [];
    (await ensureCached(site, await dataset('c', 6 * MB), never, logged)).release();
    expect(await cachedIn(site)).toEqual(['b v1 pinned', 'c v1']);
    expect(logged).toContainEqual(
      expect.stringMatching(/evicted a v1 .*kept for a rollback.*a rollback copies it again/),
    );
  });
  it('keeps a version that the share no longer has, because the dataset has a newer version', async () => {
    const site = await siteFullOfKeptVersions();
    await share.write('a/file', Buffer.alloc(5 * MB, 'newer'));
    await share.plane.datasets.get('a')?.scan();
    await expect(ensureCached(site, await dataset('c', 6 * MB))).rejects.toMatchObject({
      code: 'no_room',
    });
    expect(await cachedIn(site)).toContain('a v1 pinned');
  });
  it('keeps it while the share is unreadable, and while the state of the dataset is unknown', async () => {
    const site = await siteFullOfKeptVersions();
    const a = share.plane.datasets.get('a');
    if (a !== undefined) a.status = 'suspicious';
    await expect(ensureCached(site, await dataset('c', 6 * MB))).rejects.toMatchObject({
      code: 'no_room',
    });
    share.plane.datasets.delete('a');
    await expect(ensureCached(site, await dataset('d', 6 * MB))).rejects.toMatchObject({
      code: 'no_room',
    });
    expect(await cachedIn(site)).toContain('a v1 pinned');
  });
  it('reports to the control plane which pinned versions are recopyable', async () => {
    const site = await siteFullOfKeptVersions();
    const rows = (await site.data.inventory.cached()) ?? [];
    expect(
      Object.fromEntries(rows.map((c) => [c.dataset_id, [c.pinned, c.recopyable ?? false]])),
    ).toEqual({
      a: [true, true],
      b: [true, false],
    });
  });
});

describe('unmounted versions', () => {
  /** Copies each version up to `last` while it is the newest. */
  async function copyUpTo(site: Site, set: FakeDataset, last: number): Promise<void> {
    while (set.source.version < last) {
      await share.write(`${set.source.name}/file`, `v${set.source.version + 1}`);
      await set.scan();
      (await ensureCached(site, set)).release();
    }
  }

  it('are evicted beyond the newest few of each dataset; mounted versions do not count, and protected versions stay', async () => {
    const site = await siteWith({ keepVersions: 2 });
    const [a, b] = [await dataset('a', 10), await dataset('b', 10)];
    await deploy(site, 'dep-1', 1, a);
    (await ensureCached(site, b)).release();
    await copyUpTo(site, a, 2);
    const ensured = await ensureCached(site, a);
    await copyUpTo(site, a, 6);
    await vi.waitFor(
      async () =>
        expect(await cachedIn(site)).toEqual(['a v1 pinned', 'a v2', 'a v5', 'a v6', 'b v1']),
      5_000,
    );
    // The manifest of a version goes after its files.
    const kept = ['v1', 'v2', 'v5', 'v6'].flatMap((name) => [name, `.${name}.json`]);
    await vi.waitFor(
      async () =>
        expect((await readdir(join(site.root, 'objects/a'))).sort()).toEqual(
          ['.trees', ...kept].sort(),
        ),
      5_000,
    );
    await verifyVersion(site.root, 'a', 6, a.objects, a.source.manifest_digest);
    ensured.release();
    await copyUpTo(site, a, 7);
    await vi.waitFor(
      async () => expect(await cachedIn(site)).toEqual(['a v1 pinned', 'a v6', 'a v7', 'b v1']),
      5_000,
    );
  });

  it('are never evicted right after they were copied, however old they are', async () => {
    const site = await siteWith({ keepVersions: 1 });
    const set = await dataset('a', 10);
    const first = set.source;
    await copyUpTo(site, set, 3);
    await vi.waitFor(async () => expect(await cachedIn(site)).toEqual(['a v3']), 5_000);
    await share.write('a/file', Buffer.alloc(10, 'a'));
    await set.scan();
    // An older version number comes back after a restore of the control plane's database.
    set.source = first;
    (await ensureCached(site, set)).release();
    await site.data.stop();
    expect(await cachedIn(site)).toEqual(['a v1', 'a v3']);
  });
});

describe('a sweep of mount folders', () => {
  it('keeps the folders of the newest generations of a project with a container, and removes the others', async () => {
    const site = await siteWith({ keepReleases: () => 2 });
    const sets = [
      await dataset('a', 10),
      await dataset('b', 10),
      await dataset('c', 10),
      await dataset('d', 10),
    ];
    for (const [i, set] of sets.entries())
      await site.data.prepare.mounts(
        deploying(`dep-${i + 1}`, i + 1, set),
        `dep-${i + 1}`,
        context(),
      );
    // A stopped container counts too.
    site.containers.push({ ...running('dep-1'), state: 'exited' });
    await site.data.sweepMounts(never);
    expect((await readdir(join(site.root, 'mounts'))).sort()).toEqual(['dep-1', 'dep-3', 'dep-4']);
    expect(await cachedIn(site)).toEqual(['a v1 pinned', 'b v1', 'c v1 pinned', 'd v1 pinned']);
    site.containers.splice(0);
    await site.data.sweepMounts(never);
    expect(await readdir(join(site.root, 'mounts'))).toEqual([]);
  });

  it('counts releases, not folders: the newest release without datasets unpins those of older releases', async () => {
    const site = await siteWith({ keepReleases: () => 1 });
    await deploy(site, 'dep-1', 1, await dataset('a', 10));
    await deploy(site, 'dep-2', 2);
    site.containers.splice(0, 1);
    await site.data.sweepMounts(never);
    expect(await cachedIn(site)).toEqual(['a v1']);
    // A project that never had a dataset has no folder at all.
    await site.data.prepare.mounts(
      deployTask('dep-9', { project_id: 'p9', generation: 1, datasets: [] }),
      'dep-9',
      context(),
    );
    expect(await readdir(join(site.root, 'mounts'))).not.toContain('dep-9');
  });

  it('keeps the folders of another agent on this SVC_ROOT, and a folder that a task is preparing', async () => {
    const site = await siteWith();
    const other = await siteWith({ root: site.root, agent: 'agent-2' });
    await deploy(other, 'dep-other', 1, await dataset('a', 10));
    const release = site.data.prepare.protect('dep-mine');
    await site.data.prepare.mounts(
      deploying('dep-mine', 1, await dataset('b', 10)),
      'dep-mine',
      context(),
    );
    await site.data.sweepMounts(never);
    expect((await readdir(join(site.root, 'mounts'))).sort()).toEqual(['dep-mine', 'dep-other']);
    release();
    await site.data.sweepMounts(never);
    expect(await readdir(join(site.root, 'mounts'))).toEqual(['dep-other']);
    expect(await cachedIn(site)).toEqual(['a v1 pinned', 'b v1']);
  });

  it('keeps all folders while the engine does not answer', async () => {
    const site = await siteWith({
      listContainers: () => Promise.reject(new Error('no engine')),
      maxStorage: 10 * MB,
    });
    await deploy(site, 'dep-a', 1, await dataset('a', 6 * MB));
    await expect(ensureCached(site, await dataset('b', 6 * MB))).rejects.toMatchObject({
      code: 'no_room',
    });
    expect(await cachedIn(site)).toEqual(['a v1 pinned']);
  });

  it('compares generations only within one project (keptDeployments)', () => {
    const folder = (deploymentId: string, project_id: string, generation: number) => ({
      deploymentId,
      owner: { agent: 'x', process: 'x', project_id, generation, task_id: 't', attempt: 1 },
      links: [],
    });
    const folders = [
      folder('a1', 'a', 1),
      folder('a2', 'a', 2),
      folder('b9', 'b', 9),
      folder('c1', 'c', 1),
    ];
    const containers = [
      container({ labels: { [LABELS.project]: 'a', [LABELS.deployment]: 'a0' } }),
    ];
    expect([...keptDeployments(folders, containers, 1)].sort()).toEqual(['a0', 'a2']);
  });
});

describe('a dataset that the control plane has deleted', () => {
  it('is evicted with all its versions, except mounted ones', async () => {
    const site = await siteWith();
    const [a, b] = [await dataset('a', 10), await dataset('b', 10)];
    await deploy(site, 'dep-a', 1, a);
    (await ensureCached(site, b)).release();
    await site.data.inventory.forget(['a', 'b']);
    expect(await cachedIn(site)).toEqual(['a v1 pinned']);
    expect(await readdir(join(site.root, 'objects'))).toEqual(['a']);
  });
});

describe('two agents on one SVC_ROOT', () => {
  it('do not evict versions that the other one mounts', async () => {
    const one = await siteWith({ maxStorage: 10 * MB });
    const two = await siteWith({ root: one.root, agent: 'agent-2', maxStorage: 10 * MB });
    await deploy(one, 'dep-a', 1, await dataset('a', 6 * MB));
    await expect(ensureCached(two, await dataset('b', 6 * MB))).rejects.toMatchObject({
      code: 'no_room',
    });
  });

  it('put back a version that a dead agent had moved to .trash and that was mounted in the meantime', async () => {
    const site = await siteWith();
    const set = await dataset('a', 10);
    (await ensureCached(site, set)).release();
    // The state after an agent was killed between the rename and the second check.
    const dead = join(site.root, '.trash', 'dead');
    await mkdir(dead);
    await rename(join(site.root, 'objects/a/v1'), join(dead, 'a.v1.1'));
    await mkdir(join(site.root, 'mounts/dep-x'));
    await symlink('../../objects/a/v1', join(site.root, 'mounts/dep-x/a'));
    await site.data.removeLeftovers(never);
    await verifyVersion(site.root, 'a', 1, set.objects, set.source.manifest_digest);
    expect(await readdir(join(site.root, '.trash'))).not.toContain('dead');
    expect(await cachedIn(site)).toEqual(['a v1 pinned']);
  });

  it('copy a version again that was evicted right before it was linked', async () => {
    const site = await siteWith();
    const set = await dataset('a', 10);
    (await ensureCached(site, set)).release();
    const taskContext = context();
    const task = deploying('dep-1', 1, set);
    // The other agent evicts it right after this one has checked it. An eviction is one rename
    // (evict.ts).
    const logStep = (step: string, text: string): void => {
      taskContext.logStep(step, text);
      if (/is already cached/.test(text))
        renameSync(join(site.root, 'objects/a/v1'), join(site.root, '.trash/evicted'));
    };
    const { datasets } = await site.data.prepare.mounts(task, 'dep-1', { ...taskContext, logStep });
    expect(datasets).toEqual([{ dataset_id: 'a', version: 1 }]);
    await verifyVersion(site.root, 'a', 1, set.objects, set.source.manifest_digest);
  });
});

describe('the mounts of a deployment', () => {
  it('are a relative symlink for a read-only dataset, and the share itself for a readwrite one', async () => {
    const site = await siteWith();
    const [a, b] = [await dataset('a', 10), await dataset('b', 10)];
    const task = deployTask('dep-1', {
      generation: 3,
      datasets: [
        row(a),
        row(b, { mode: 'readwrite', version: null, manifest_digest: null, mount_path: '/rw' }),
      ],
    });
    const { mounts, datasets } = await site.data.prepare.mounts(task, 'dep-1', context());
    expect(mounts).toEqual([
      { source: join(site.root, 'mounts/dep-1/a'), target: '/data/a', readonly: true },
      { source: share.path('b'), target: '/rw', readonly: false },
    ]);
    expect(datasets).toEqual([
      { dataset_id: 'a', version: 1 },
      { dataset_id: 'b', version: null },
    ]);
    expect(await readFile(join(site.root, 'mounts/dep-1/a/file'), 'utf8')).toBe('a'.repeat(10));
    expect(await cachedIn(site)).toEqual(['a v1 pinned']);
    expect(await site.data.prepare.mounted(task, 'dep-1', 2)).toEqual(datasets);
  });

  it('are removed after a failed attempt, unless a later attempt has taken them over', async () => {
    const site = await siteWith();
    const set = await dataset('a', 10);
    const task = deploying('dep-1', 1, set);
    const exists = async (): Promise<boolean> =>
      (await stat(join(site.root, 'mounts/dep-1')).catch(() => null)) !== null;
    await site.data.prepare.mounts(task, 'dep-1', context({ attempt: 1 }));
    await site.data.prepare.mounts(task, 'dep-1', context({ attempt: 2 }));
    await site.data.prepare.undo(task, 'dep-1', 1);
    expect(await exists()).toBe(true);
    await site.data.prepare.undo(task, 'dep-1', 2);
    expect(await exists()).toBe(false);
    expect(await cachedIn(site)).toEqual(['a v1']);
  });

  it('of two instances that start at once are linked once, and stay when one of them fails', async () => {
    const site = await siteWith();
    const set = await dataset('a', 10);
    const { prepare } = site.data;
    const [one, two] = [deploying('dep-1', 1, set), deploying('dep-1', 1, set)];
    const release = [prepare.protect('dep-1'), prepare.protect('dep-1')];
    const both = [];
    for (let i = 0; i < 20; i++)
      both.push(...[one, two].map((task) => prepare.mounts(task, 'dep-1', context())));
    await Promise.all(both);
    await prepare.mounts(one, 'dep-1', context());
    await prepare.undo(one, 'dep-1', 1);
    expect(await readFile(join(site.root, 'mounts/dep-1/a/file'), 'utf8')).toBe('a'.repeat(10));
    release.pop()?.();
    await prepare.undo(one, 'dep-1', 1);
    await expect(stat(join(site.root, 'mounts/dep-1'))).rejects.toThrow('ENOENT');
  });

  it('fail together when one dataset cannot be copied', async () => {
    const site = await siteWith({ rsync: { bandwidth: '100' } });
    const a = await dataset('a', 5 * MB);
    const task = deployTask('dep-1', {
      datasets: [row(a), row(a, { name: 'b', dataset_id: 'b', nfs_path: 'b', version: null })],
    });
    const taskContext = context();
    await expect(site.data.prepare.mounts(task, 'dep-1', taskContext)).rejects.toMatchObject({
      code: 'dataset_not_ready',
    });
    expect(await cachedIn(site)).toEqual([]);
  });

  it('refuse ids and names that would lead elsewhere', async () => {
    const site = await siteWith();
    const set = await dataset('a', 10);
    await writeFile(join(share.dir, 'precious'), 'x');
    for (const [deployment, over] of [
      ['../../x', {}],
      ['dep', { name: '../x' }],
      ['dep', { dataset_id: '../..' }],
    ] as const) {
      const task = deployTask(deployment, { datasets: [row(set, over)] });
      await expect(site.data.prepare.mounts(task, deployment, context())).rejects.toThrow(
        /not an id|not the name|does not know/,
      );
    }
  });
});
