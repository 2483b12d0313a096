/**
 * kill -9 of an agent at each critical step, then a restart: the version is complete, and no
 * leftovers remain.
 */
import { exec, type ExecResult } from '@berth/kit/exec';
import { spawn } from 'node:child_process';
import { mkdir, readdir, readFile, readlink, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { deployTask, type FakeDataset } from '../fake-control-plane.ts';
import type { ChildOrder } from './killed-child.ts';
import { never, PATH, verifyVersion, type Share, startShare, startSite } from './share.ts';
import { waitFor } from '@berth/testbed/wait';

let share: Share;
beforeEach(async () => void (share = await startShare()));
afterEach(() => share.stop());

const MB = 1_000_000;
const root = (): string => join(share.dir, 'svc');
function child(set: FakeDataset, deployment: string, points: string): Promise<ExecResult> {
  const task = deployTask(deployment, {
    datasets: [{ ...set.source, mode: 'dependency', mount_path: '/data' }],
  });
  const order: ChildOrder = {
    root: root(),
    share: share.base,
    plane: share.plane.url,
    maxStorage: 10 * MB,
    task,
    points,
  };
  return exec(
    [process.execPath, join(import.meta.dirname, 'killed-child.ts'), JSON.stringify(order)],
    {
      env: { PATH },
      timeoutMs: 60_000,
    },
  );
}
async function comesUp(set: FakeDataset, deployment: string): Promise<void> {
  const { code, stdout, stderr } = await child(set, deployment, '');
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(JSON.parse(stdout)).toEqual([
    { dataset_id: set.source.dataset_id, version: set.source.version },
  ]);
  await verifyVersion(
    root(),
    set.source.dataset_id,
    set.source.version,
    set.objects,
    set.source.manifest_digest,
  );
  expect((await stat(join(root(), 'mounts', deployment, set.source.name))).isDirectory()).toBe(
    true,
  );
}
/** Leftovers of killed processes; the folders of the last process are not counted. */
async function leftovers(): Promise<string[]> {
  const [staging, trash] = await Promise.all(
    ['.staging', '.trash'].map((f) => readdir(join(root(), f), { recursive: true })),
  );
  const deep = [...(staging ?? []), ...(trash ?? [])].filter(
    (name) => !/^[^/]+(\/\.process\.json)?$/.test(name),
  );
  return [...deep, ...(staging ?? []).filter((name) => !name.includes('/')).slice(1)];
}

describe.each([
  'copy.staged',
  'copy.verified',
  'copy.renamed.before',
  'copy.renamed.after',
  'mount.linked',
])('killed at %s', (point) => {
  it('the agent completes the work after a restart', async () => {
    for (let i = 0; i < 30; i += 1) await share.write(`set/d${i % 3}/f${i}`, `${i}`.repeat(3000));
    const set = await share.dataset('set');
    expect((await child(set, 'dep-1', `${point}=kill`)).signal).toBe('SIGKILL');
    const before = await readdir(join(root(), 'objects', 'set'));
    expect(before.includes('v1')).toBe(point === 'copy.renamed.after' || point === 'mount.linked');
    await comesUp(set, 'dep-1');
    expect(await leftovers()).toEqual([]);
    expect((await readdir(join(root(), 'objects', 'set'))).sort()).toEqual([
      '.trees',
      '.v1.json',
      'v1',
    ]);
  }, 60_000);
});

describe('the leftover copy of a killed agent', () => {
  const dead = async (mark: object, age_s = 0): Promise<string> => {
    const folder = join(root(), '.staging/dead/copy-1/round-1/files');
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, 'data'), 'half of a file');
    const path = join(root(), '.staging/dead/.process.json');
    await writeFile(path, JSON.stringify(mark));
    const at = Date.now() / 1000 - age_s;
    await utimes(path, at, at);
    return join(root(), '.staging/dead');
  };
  const isThere = (path: string): Promise<boolean> =>
    stat(path).then(
      () => true,
      () => false,
    );
  const boot = async (): Promise<string> =>
    (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();

  it('is removed if its process is a zombie', async () => {
    // The child of the sleeping parent stays a zombie for as long as the parent lives.
    const parent = spawn(process.execPath, [
      '-e',
      "const c = require('node:child_process').spawn('sleep', ['0']); console.log(c.pid); " +
        'Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 60000)',
    ]);
    try {
      const pid = Number(
        await new Promise((resolve) =>
          parent.stdout.once('data', (data: Buffer) => resolve(String(data).trim())),
        ),
      );
      const started = await waitFor('the process is a zombie', async () => {
        const fields =
          (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ')[1]?.split(' ') ?? [];
        return fields[0] === 'Z' ? fields[19] : undefined;
      });
      const left = await dead({
        pid,
        started,
        boot: await boot(),
        space: await readlink('/proc/self/ns/pid'),
      });
      const site = await startSite(share, { root: root() });
      await site.data.removeLeftovers(never);
      expect(await isThere(left)).toBe(false);
      await site.data.stop();
    } finally {
      parent.kill('SIGKILL');
    }
  });

  it('is removed after the silence limit if its process is in another pid namespace', async () => {
    const left = await dead({ pid: 1, started: 'x', boot: 'another boot', space: '' });
    const site = await startSite(share, { root: root(), silentMs: 300, cleanupMs: 100 });
    await site.data.removeLeftovers(never);
    // The process may be alive: its last heartbeat is young.
    expect(await isThere(left)).toBe(true);
    await waitFor('the leftover copy is removed', async () => !(await isThere(left)), {
      deadlineMs: 20_000,
    });
    await site.data.stop();
  });
});

describe.each(['evict.before', 'evict.after'])('killed at %s', (point) => {
  it('the agent completes the work after a restart', async () => {
    await share.write('old/file', Buffer.alloc(6 * MB, 'x'));
    const old = await share.dataset('old');
    await comesUp(old, 'dep-1');
    await share.write('new/file', Buffer.alloc(6 * MB, 'y'));
    const set = await share.dataset('new');
    // dep-1 has no container, so its mount folder does not pin `old`.
    expect((await child(set, 'dep-2', `${point}=kill`)).signal).toBe('SIGKILL');
    await comesUp(set, 'dep-2');
    expect(await leftovers()).toEqual([]);
    expect(await readdir(join(root(), 'objects'))).toEqual(['new']);
  }, 60_000);
});
