/** kill -9 of an agent wherever it may hurt, then a start as it was: the version is there, whole, and nothing is left over. */
import { exec, type ExecResult } from '@berth/kit/exec';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { deployTask, type FakeDataset } from '../fake-control-plane.ts';
import type { ChildOrder } from './killed-child.ts';
import { PATH, proveVersion, type Share, startShare } from './share.ts';

let share: Share;
beforeEach(async () => void (share = await startShare()));
afterEach(() => share.stop());

const MB = 1_000_000;
const root = (): string => join(share.dir, 'svc');
function child(set: FakeDataset, deployment: string, points: string): Promise<ExecResult> {
  const task = deployTask(deployment, { datasets: [{ ...set.source, mode: 'dependency', mount_path: '/data' }] });
  const order: ChildOrder = { root: root(), share: share.base, plane: share.plane.url, maxStorage: 10 * MB, task, points };
  return exec([process.execPath, join(import.meta.dirname, 'killed-child.ts'), JSON.stringify(order)], {
    env: { PATH },
    timeoutMs: 60_000,
  });
}
async function comesUp(set: FakeDataset, deployment: string): Promise<void> {
  const { code, stdout, stderr } = await child(set, deployment, '');
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(JSON.parse(stdout)).toEqual([{ dataset_id: set.source.dataset_id, version: set.source.version }]);
  await proveVersion(root(), set.source.dataset_id, set.source.version, set.objects, set.source.manifest_digest);
  expect((await stat(join(root(), 'mounts', deployment, set.source.name))).isDirectory()).toBe(true);
}
/** Below objects/, and what the dead left: the folders of the last process alone may be there. */
async function leftovers(): Promise<string[]> {
  const [staging, trash] = await Promise.all(['.staging', '.trash'].map((f) => readdir(join(root(), f), { recursive: true })));
  const deep = [...(staging ?? []), ...(trash ?? [])].filter((name) => !/^[^/]+(\/\.process\.json)?$/.test(name));
  return [...deep, ...(staging ?? []).filter((name) => !name.includes('/')).slice(1)];
}

describe.each(['copy.staged', 'copy.verified', 'copy.renamed.before', 'copy.renamed.after', 'mount.linked'])('dies at %s', (point) => {
  it('and comes back', async () => {
    for (let i = 0; i < 30; i += 1) await share.write(`set/d${i % 3}/f${i}`, `${i}`.repeat(3000));
    const set = await share.dataset('set');
    expect((await child(set, 'dep-1', `${point}=kill`)).signal).toBe('SIGKILL');
    const before = await readdir(join(root(), 'objects', 'set'));
    expect(before.includes('v1')).toBe(point === 'copy.renamed.after' || point === 'mount.linked');
    await comesUp(set, 'dep-1');
    expect(await leftovers()).toEqual([]);
    expect((await readdir(join(root(), 'objects', 'set'))).sort()).toEqual(['.trees', '.v1.json', 'v1']);
  }, 60_000);
});

describe.each(['evict.before', 'evict.after'])('dies at %s', (point) => {
  it('and comes back', async () => {
    await share.write('old/file', Buffer.alloc(6 * MB, 'x'));
    const old = await share.dataset('old');
    await comesUp(old, 'dep-1');
    await share.write('new/file', Buffer.alloc(6 * MB, 'y'));
    const set = await share.dataset('new');
    // dep-1 has no container, so that nothing keeps `old`.
    expect((await child(set, 'dep-2', `${point}=kill`)).signal).toBe('SIGKILL');
    await comesUp(set, 'dep-2');
    expect(await leftovers()).toEqual([]);
    expect(await readdir(join(root(), 'objects'))).toEqual(['new']);
  }, 60_000);
});
