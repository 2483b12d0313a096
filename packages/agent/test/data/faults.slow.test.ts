/**
 * Faults during a dataset copy: the source changes, rsync dies or hangs, the disk is full, the
 * share is unmounted, no task waits.
 */
import { execFileSync } from 'node:child_process';
import { chmod, mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { waitFor } from '@berth/testbed/wait';
import { LABELS } from '@berth/wire/vocabulary';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Stopped } from '../../src/stopped.ts';
import { deployTask, type FakeDataset } from '../fake-control-plane.ts';
import { container } from '../fake-engine.ts';
import { ensureCached, context, PATH, verifyVersion, rsyncsOf, type Share } from './share.ts';
import { sharePerTest } from './share-per-test.ts';

let share: Share;
const perTest = sharePerTest();
const { siteWith } = perTest;
beforeEach(() => void (share = perTest.share()));

const rsyncOf = (root: string): Promise<number[]> =>
  waitFor(
    'rsync runs',
    async () => {
      const pids = await rsyncsOf(root);
      return pids.length >= 2 && pids;
    },
    { deadlineMs: 10_000, intervalMs: 20 },
  );
/** Returns what is left of copies, without the marks of processes. */
async function leftIn(root: string): Promise<string[]> {
  const names = [
    ...(await readdir(join(root, '.staging'), { recursive: true })),
    ...(await readdir(join(root, '.trash'), { recursive: true })),
  ];
  return names.filter((name) => !/^[^/]+(\/\.process\.json)?$/.test(name));
}
const versionsIn = async (root: string): Promise<string[]> =>
  (await readdir(join(root, 'objects', 'set')).catch(() => [])).filter((n) => n.startsWith('v'));

/** An rsync with a shell script in front of it that runs these lines first. */
async function shim(
  ...lines: string[]
): Promise<{ inherit: NodeJS.ProcessEnv; runs(): Promise<number> }> {
  const bin = join(share.dir, 'bin');
  await mkdir(bin, { recursive: true });
  const real = execFileSync('sh', ['-c', 'command -v rsync'], { encoding: 'utf8' }).trim();
  await writeFile(
    join(bin, 'rsync'),
    ['#!/bin/sh', `echo run >> '${bin}/runs'`, ...lines, `exec '${real}' "$@"`, ''].join('\n'),
  );
  await chmod(join(bin, 'rsync'), 0o755);
  const runs = async (): Promise<number> =>
    (await readFile(join(bin, 'runs'), 'utf8').catch(() => '')).split('\n').length - 1;
  return { inherit: { PATH: `${bin}:${PATH}` }, runs };
}

describe('a source that changes', () => {
  it('before the copy: it is rescanned and copied, and correct files of the first round are linked', async () => {
    const site = await siteWith();
    for (let i = 0; i < 20; i += 1) await share.write(`set/f${i}`, `${i}`.repeat(5000));
    const set = await share.dataset('set');
    const { source } = set;
    await share.write('set/f3', 'rewritten');
    await rm(share.path('set/f4'));
    await share.write('set/new', 'new');
    const logged: string[] = [];
    const ensured = await site.data.cache.ensure(
      source,
      { onProgress: () => undefined, logLine: (t) => void logged.push(t) },
      new AbortController().signal,
    );
    expect(ensured.want.version).toBe(2);
    expect(logged.join('\n')).toMatch(
      /changed during the copy: f[34], f[34]; rescanning the dataset\nthe dataset is now v2/,
    );
    expect(logged.at(-1)).toContain('18 of 20 files were already on this node');
    expect(await versionsIn(site.root)).toEqual(['v2']);
    await verifyVersion(site.root, 'set', 2, set.objects, set.source.manifest_digest);
    expect(await leftIn(site.root)).toEqual([]);
  });

  it('in each round: the failure names files, and no version is published', async () => {
    const site = await siteWith();
    await share.write('set/steady', 'x');
    await share.write('set/log', 'x');
    const set = await share.dataset('set');
    // Each scan sees a state that has changed before the copy.
    const { scan } = set;
    let n = 0;
    set.scan = async () => {
      await scan();
      await share.write('set/log', `line ${(n += 1)}`);
    };
    await share.write('set/log', 'line 0');
    await expect(ensureCached(site, set)).rejects.toMatchObject({
      code: 'dataset_moving',
      message: expect.stringContaining('set v3: log'),
    });
    expect(await versionsIn(site.root)).toEqual([]);
    expect(await leftIn(site.root)).toEqual([]);
  });

  it('while rsync reads it: no published version ever differs from its manifest', async () => {
    const site = await siteWith();
    const content = (i: number, n: number): string => `${i} ${n} `.repeat(20_000);
    for (let i = 0; i < 12; i += 1) await share.write(`set/f${i}`, content(i, 0));
    const set = await share.dataset('set');
    const manifests = new Map([[1, set.source.manifest_digest]]);
    const { scan } = set;
    set.scan = async () => {
      await scan();
      manifests.set(set.source.version, set.source.manifest_digest);
    };
    let writing = true;
    const writer = (async () => {
      for (let n = 1; writing; n += 1) {
        const i = n % 12;
        // In place, and by rename.
        if (n % 2 === 0) await share.write(`set/f${i}`, content(i, n));
        else {
          await share.write('.new', content(i, n));
          await rename(share.path('.new'), share.path(`set/f${i}`));
        }
      }
    })();
    const ends: string[] = [];
    for (let i = 0; i < 3; i += 1) {
      const end = await ensureCached(site, set).then(
        ({ release, want }) => (release(), `v${want.version}`),
        (error: { code?: string }) => error.code ?? 'no code',
      );
      ends.push(end);
    }
    writing = false;
    await writer;
    expect(ends.filter((e) => e !== 'dataset_moving' && !/^v\d+$/.test(e))).toEqual([]);
    for (const name of await versionsIn(site.root)) {
      const version = Number(name.slice(1));
      await verifyVersion(site.root, 'set', version, set.objects, manifests.get(version) ?? '');
    }
    // When the source stops changing, it is copied.
    await set.scan();
    const { want } = await ensureCached(site, set);
    await verifyVersion(site.root, 'set', want.version, set.objects, set.source.manifest_digest);
    expect(await leftIn(site.root)).toEqual([]);
  }, 40_000);

  it('and whose rescan is suspicious: dataset_unreachable', async () => {
    const site = await siteWith();
    await share.write('set/file', 'x');
    const set = await share.dataset('set');
    await share.write('set/file', 'y');
    set.status = 'suspicious';
    await expect(ensureCached(site, set)).rejects.toMatchObject({
      code: 'dataset_unreachable',
      message: expect.stringContaining('it is suspicious'),
    });
  });
});

describe('a share', () => {
  it.each([
    [
      'is not set',
      async (): Promise<string | undefined> => undefined,
      'no_share',
      'DATASET_NFS_BASE_PATH',
    ],
    [
      'does not exist',
      async () => join(share.dir, 'nowhere'),
      'dataset_unreachable',
      'No such file',
    ],
    [
      'lacks the folder',
      async () => (await rm(share.path('set'), { recursive: true }), share.base),
      'dataset_unreachable',
      'No such file',
    ],
    [
      'has a file in its place',
      async () => (
        await rm(share.path('set'), { recursive: true }),
        await writeFile(share.path('set'), 'x'),
        share.base
      ),
      'dataset_unreachable',
      'Not a directory',
    ],
    [
      'leads outside itself through a symlink',
      async () => (
        await rename(share.path('set'), join(share.dir, 'out')),
        await symlink('../out', share.path('set')),
        share.base
      ),
      'dataset_unreachable',
      'leads outside the shared storage',
    ],
  ])('that %s fails the copy', async (_, change, code, words) => {
    await share.write('set/file', 'x');
    const set = await share.dataset('set');
    const site = await siteWith({ share: await change() });
    await expect(ensureCached(site, set)).rejects.toMatchObject({
      code,
      message: expect.stringContaining(words),
    });
    expect(await leftIn(site.root)).toEqual([]);
  });

  it('that does not answer fails the copy after the stall time, even if rsync cannot be killed', async () => {
    await share.write('set/file', 'x');
    const set = await share.dataset('set');
    const { inherit } = await shim('sleep 300');
    const site = await siteWith({ rsync: { inherit, stallMs: 1_000 } });
    await expect(ensureCached(site, set)).rejects.toMatchObject({
      code: 'dataset_unreachable',
      message: expect.stringContaining('the share delivered no data for 1 s'),
    });
    expect(await leftIn(site.root)).toEqual([]);
  });

  it('that stalls during the copy (rsync is stopped) fails it', async () => {
    await share.write('set/file', Buffer.alloc(4_000_000, 'x'));
    const set = await share.dataset('set');
    const site = await siteWith({ rsync: { stallMs: 2_000, bandwidth: '500' } });
    const coming = ensureCached(site, set);
    const ended = expect(coming).rejects.toMatchObject({ code: 'dataset_unreachable' });
    for (const pid of await rsyncOf(site.root)) process.kill(pid, 'SIGSTOP');
    await ended;
    expect(await rsyncsOf(site.root)).toEqual([]);
    expect(await versionsIn(site.root)).toEqual([]);
  });
});

describe('rsync', () => {
  it('killed during the copy: its files are kept, and the rest is copied', async () => {
    for (let i = 0; i < 8; i += 1) await share.write(`set/f${i}`, Buffer.alloc(100_000, `${i}`));
    const set = await share.dataset('set');
    const site = await siteWith({ rsync: { bandwidth: '400' } });
    const logged: string[] = [];
    const coming = ensureCached(site, set, undefined, logged);
    for (const pid of await rsyncOf(site.root)) process.kill(pid, 'SIGKILL');
    expect((await coming).want.version).toBe(1);
    expect(logged.join('\n')).toContain('copying the remaining files');
    await verifyVersion(site.root, 'set', 1, set.objects, set.source.manifest_digest);
    expect(set.scans).toBe(1);
  });

  it('killed in each round: the copy fails', async () => {
    await share.write('set/file', 'x');
    const set = await share.dataset('set');
    const { inherit, runs } = await shim('kill -9 $$');
    const site = await siteWith({ rsync: { inherit } });
    await expect(ensureCached(site, set)).rejects.toMatchObject({
      code: 'dataset_copy_failed',
      message: expect.stringContaining('SIGKILL'),
    });
    expect(await runs()).toBe(3);
  });

  it('that refuses its options: the copy fails with its message', async () => {
    await share.write('set/file', 'x');
    const set = await share.dataset('set');
    const { inherit } = await shim('echo "rsync: unknown option" >&2; exit 1');
    const site = await siteWith({ rsync: { inherit } });
    await expect(ensureCached(site, set)).rejects.toMatchObject({
      code: 'dataset_copy_failed',
      message: expect.stringContaining('unknown option'),
    });
  });
});

describe('tasks that wait for a copy', () => {
  it('share one copy of a version, even if one of them is cancelled', async () => {
    await share.write('set/file', Buffer.alloc(1_000_000, 'x'));
    const set = await share.dataset('set');
    const { inherit, runs } = await shim();
    const site = await siteWith({ rsync: { inherit, bandwidth: '1000' } });
    const cancelled = new AbortController();
    const first = ensureCached(site, set, cancelled.signal);
    const others = [ensureCached(site, set), ensureCached(site, set)];
    const gone = expect(first).rejects.toMatchObject({ why: 'cancelled' });
    await rsyncOf(site.root);
    cancelled.abort(new Stopped('cancelled'));
    await gone;
    const ensured = await Promise.all(others);
    expect(ensured.map((h) => h.want.version)).toEqual([1, 1]);
    expect(await runs()).toBe(1);
  });

  it('end the copy when the last of them is cancelled, and leave no files', async () => {
    await share.write('set/file', Buffer.alloc(4_000_000, 'x'));
    const set = await share.dataset('set');
    const site = await siteWith({ rsync: { bandwidth: '100' } });
    const cancelled = new AbortController();
    const both = [
      ensureCached(site, set, cancelled.signal),
      ensureCached(site, set, cancelled.signal),
    ].map((c) => expect(c).rejects.toMatchObject({ why: 'cancelled' }));
    await rsyncOf(site.root);
    cancelled.abort(new Stopped('cancelled'));
    await Promise.all(both);
    expect([
      await rsyncsOf(site.root),
      await leftIn(site.root),
      await versionsIn(site.root),
    ]).toEqual([[], [], []]);
    expect((await site.storage.now(new AbortController().signal)).free).toBeGreaterThan(0);
  });

  it('start a new copy while a cancelled one ends, and do not see its failure', async () => {
    await share.write('set/file', Buffer.alloc(2_000_000, 'x'));
    const set = await share.dataset('set');
    const site = await siteWith({ rsync: { bandwidth: '2000' } });
    const cancelled = new AbortController();
    const first = expect(ensureCached(site, set, cancelled.signal)).rejects.toMatchObject({
      why: 'cancelled',
    });
    await rsyncOf(site.root);
    cancelled.abort(new Stopped('cancelled'));
    // Let the abort take effect first.
    await Promise.resolve();
    const second = ensureCached(site, set);
    await first;
    expect((await second).want.version).toBe(1);
    expect(await leftIn(site.root)).toEqual([]);
  });

  it('of two agents on one SVC_ROOT both get the complete version, in one folder', async () => {
    for (let i = 0; i < 50; i += 1) await share.write(`set/f${i}`, `${i}`.repeat(1000));
    const set = await share.dataset('set');
    const one = await siteWith();
    const two = await siteWith({ root: one.root, agent: 'agent-2' });
    const [a, b] = await Promise.all([ensureCached(one, set), ensureCached(two, set)]);
    expect([a.want.version, b.want.version]).toEqual([1, 1]);
    await verifyVersion(one.root, 'set', 1, set.objects, set.source.manifest_digest);
    expect(await leftIn(one.root)).toEqual([]);
  });
});

const isRoot = process.getuid?.() === 0;
describe.skipIf(!isRoot)('disks', () => {
  const mounted: string[] = [];
  afterEach(() =>
    mounted.splice(0).forEach((path) => execFileSync('/usr/bin/umount', ['--lazy', path])),
  );
  async function tmpfs(name: string, megabytes: number): Promise<string> {
    const path = join(share.dir, name);
    await mkdir(path, { recursive: true });
    execFileSync('/usr/bin/mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', path]);
    mounted.push(path);
    return path;
  }

  it('that fill up during a copy: disk_full, and no files are left', async () => {
    await share.write('set/file', Buffer.alloc(4_000_000, 'x'));
    const set = await share.dataset('set');
    const root = await tmpfs('small', 10);
    const site = await siteWith({ root, rsync: { bandwidth: '1000' } });
    const ended = expect(ensureCached(site, set)).rejects.toMatchObject({ code: 'disk_full' });
    await rsyncOf(root);
    await writeFile(join(root, 'filler'), Buffer.alloc(9_000_000)).catch(() => undefined);
    await ended;
    expect([await versionsIn(root), await leftIn(root)]).toEqual([[], []]);
  });

  it('that are full: cached versions can be used, and released containers are recorded', async () => {
    await share.write('set/file', 'x');
    const set = await share.dataset('set');
    const root = await tmpfs('full', 10);
    const site = await siteWith({ root });
    const task = deployTask('dep-1', {
      datasets: [{ ...set.source, mode: 'dependency', mount_path: '/data/set' }],
    });
    await site.data.prepare.mounts(task, 'dep-1', context());
    await expect(writeFile(join(root, 'filler'), Buffer.alloc(11_000_000))).rejects.toMatchObject({
      code: 'ENOSPC',
    });
    expect((await ensureCached(site, set)).copied).toBeNull();
    await site.data.inventory.released([container({ labels: { [LABELS.deployment]: 'dep-1' } })]);
  });

  it('with a share that is not mounted any more: dataset_unreachable', async () => {
    const base = await tmpfs('share', 10);
    await share.write('set/file', 'x');
    const set = await share.dataset('set');
    const site = await siteWith();
    execFileSync('/usr/bin/umount', [base]);
    mounted.splice(0);
    await expect(ensureCached(site, set)).rejects.toMatchObject({ code: 'dataset_unreachable' });
  });
});

it('a cached version with the same number and other contents is replaced if it is unused, and refused if it is in use', async () => {
  const site = await siteWith();
  await share.write('set/file', 'one');
  const set = await share.dataset('set');
  (await ensureCached(site, set)).release();
  const before: FakeDataset['source'] = set.source;
  await share.write('set/file', 'two');
  await set.scan();
  // After a restore of its database the control plane counts versions again.
  set.source = { ...set.source, version: 1 };
  const ensured = await ensureCached(site, set);
  expect(await readFile(join(site.root, 'objects/set/v1/file'), 'utf8')).toBe('two');
  set.source = before;
  await expect(ensureCached(site, set)).rejects.toMatchObject({
    code: 'dataset_copy_failed',
    message: expect.stringContaining('does not match'),
  });
  ensured.release();
});

it('leftovers of a dead agent are removed, and running copies of another agent are not', async () => {
  await share.write('set/file', Buffer.alloc(2_000_000, 'x'));
  const set = await share.dataset('set');
  const one = await siteWith({ rsync: { bandwidth: '500' } });
  const coming = ensureCached(one, set);
  await rsyncOf(one.root);
  const [living] = await readdir(join(one.root, '.staging'));
  const dead = join(one.root, '.staging', 'dead');
  await mkdir(join(dead, 'copy-1'), { recursive: true });
  // The mark of a process that had this process id at another time.
  const mark = JSON.parse(
    await readFile(join(one.root, '.staging', living ?? '', '.process.json'), 'utf8'),
  ) as object;
  await writeFile(join(dead, '.process.json'), JSON.stringify({ ...mark, started: '1' }));
  const two = await siteWith({ root: one.root, agent: 'agent-2' });
  await two.data.removeLeftovers(new AbortController().signal);
  expect((await readdir(join(one.root, '.staging'))).includes('dead')).toBe(false);
  expect((await coming).want.version).toBe(1);
});
