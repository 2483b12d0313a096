/**
 * Clean-ups of the registry in the database: the window without builds, the marks of images, and
 * the end of the task.
 */
import { describe, expect, test } from 'vitest';
import type { CleanPayload, CleanResult } from '@berth/wire/clean-up';
import type { TaskReport } from '@berth/wire/task';
import type { DeploymentRecord, ProjectRecord } from '../../src/domain/platform/records.ts';
import { ofRegistry } from '../../src/domain/notifications/problem-texts.ts';
import type { AllStores } from '../../src/store/open.ts';
import {
  codeOf,
  commit,
  deploymentIn,
  freshPath,
  nodeIn,
  NOW,
  open,
  projectIn,
  rowsOf,
  taskOf,
  tasksIn,
} from './fixtures.ts';

const digest = (n: number): string => `sha256:${String(n).padStart(64, '0')}`;
const image = (name: string, n: number): Partial<DeploymentRecord> => ({
  image_tag: `r:5000/${name}:${n}`,
  image_digest: digest(n),
});
type Scene = { stores: AllStores; path: string; project: ProjectRecord; node: string };

/** Three releases that ran, the third one is running. */
async function scene(): Promise<Scene> {
  const path = freshPath();
  const stores = await open(path);
  const project = await projectIn(stores);
  const { id: node } = await nodeIn(stores, 'b1', {
    agent_version: '1',
    capabilities: ['registry'],
  });
  for (const n of [1, 2, 3])
    await deploymentIn(stores, project, `d${n}`, {
      ...image('shop', n),
      status: n === 3 ? 'running' : 'retired',
    });
  return { stores, path, project, node };
}
const start = async (
  { stores, node }: Scene,
  keepReleases = 1,
  id = 'c',
  now = NOW,
): Promise<string> => {
  await stores.cleanUps.request({ id, by: null }, NOW);
  const input = {
    id,
    taskId: `t-${id}`,
    nodeId: node,
    keepReleases,
    queue_deadline_at: NOW + 60_000,
    wall_deadline_at: NOW + 600_000,
  };
  return stores.cleanUps.start(input, now);
};
const payload = async ({ stores }: Scene, id = 't-c'): Promise<CleanPayload> =>
  (await stores.tasks.get(id)).payload as CleanPayload;
const removedAt = async ({ stores }: Scene): Promise<(number | null | undefined)[]> =>
  (await stores.deployments.getMany(['d1', 'd2', 'd3']))
    .sort((a, b) => a.generation - b.generation)
    .map((d) => d.image_removed_at);
const lease = { token: 'l', expires_at: NOW + 30_000 };
const done = (missing: CleanResult['missing'] = []): TaskReport => {
  const result: CleanResult = { removed: 2, missing, blobs: 4, bytes_before: 100, bytes_after: 40 };
  return { status: 'completed', result: result as Record<string, unknown> };
};
const failed = (code: string) => ({
  status: 'failed' as const,
  result: { error: { code, message: 'why' } },
});

test('two requests are one clean-up, and it does not start while a build is open', async () => {
  const s = await scene();
  const { stores, project, node } = s;
  await tasksIn(stores, project, taskOf(project, 'build', node));
  expect(await start(s)).toBe('builds');
  expect((await stores.cleanUps.request({ id: 'other', by: 'a@b' }, NOW)).id).toBe('c');
  expect(await removedAt(s)).toEqual([null, null, null]);
  expect(await stores.cleanUps.open()).toMatchObject({ state: 'waiting', holds_builds: false });
});

test('it marks what no release needs, and new builds wait until it ends', async () => {
  const s = await scene();
  const { stores, project, node } = s;
  expect(await start(s)).toBe('started');
  expect(await payload(s)).toEqual({
    clean_up_id: 'c',
    repositories: [
      { repository: 'shop', remove: [digest(1), digest(2)], keep: [digest(3)], keep_tags: [] },
    ],
  });
  expect(await removedAt(s)).toEqual([NOW, NOW, null]);
  await expect(tasksIn(stores, project, taskOf(project, 'build', node))).rejects.toThrow('stale');
  expect((await stores.tasks.openFor(node, NOW)).map((t) => t.kind)).toEqual(['clean']);
  await stores.tasks.claim('t-c', lease, NOW, 5);
  expect(await stores.cleanUps.endTask('t-c', 'l', done(), NOW)).toEqual({ status: 'completed' });
  expect(await stores.cleanUps.endTask('t-c', 'l', done(), NOW)).toEqual({ status: 'completed' });
  expect(await codeOf(stores.cleanUps.endTask('t-c', 'other', done(), NOW))).toBe('stale_lease');
  expect(await stores.cleanUps.list()).toMatchObject([
    { state: 'done', removed: 2, bytes_before: 100, bytes_after: 40, images: 2 },
  ]);
  await tasksIn(stores, project, taskOf(project, 'build', node));
  // No image is removed twice.
  await commit(stores, project.id, {
    changeTasks: [{ id: 'build', attempt: 0, end: 'cancelled' }],
  });
  expect(await start(s, 1, 'next')).toBe('started');
  expect(await payload(s, 't-next')).toMatchObject({
    repositories: [{ remove: [], keep: [digest(3)] }],
  });
});

test('a rollback to a marked image is refused, also if it was decided before', async () => {
  const s = await scene();
  await start(s);
  const rollback = { rollback_of: 'd1', ...image('shop', 1) };
  expect(await codeOf(deploymentIn(s.stores, s.project, 'back', rollback))).toBe('no_release');
});

test('an image that a rollback needs since the images were read stays', async () => {
  const s = await scene();
  await deploymentIn(s.stores, s.project, 'back', {
    rollback_of: 'd1',
    ...image('shop', 1),
    status: 'pending',
  });
  await start(s);
  expect(await payload(s)).toMatchObject({ repositories: [{ remove: [digest(2)] }] });
});

test('without deletions at the registry nothing is marked; after another failure the next clean-up tries again', async () => {
  const s = await scene();
  const { stores } = s;
  await start(s);
  await stores.tasks.claim('t-c', lease, NOW, 5);
  await stores.cleanUps.endTask('t-c', 'l', failed('registry_delete_disabled'), NOW);
  expect(await removedAt(s)).toEqual([null, null, null]);
  expect(await stores.cleanUps.list()).toMatchObject([
    { state: 'failed', error_code: 'registry_delete_disabled', error_message: 'why' },
  ]);

  await start(s, 1, 'second');
  await stores.tasks.claim('t-second', lease, NOW, 5);
  await stores.cleanUps.endTask('t-second', 'l', failed('registry_unreachable'), NOW);
  expect(await removedAt(s)).toEqual([NOW, NOW, null]);
  await start(s, 1, 'third');
  expect(await payload(s, 't-third')).toMatchObject({
    repositories: [{ remove: [digest(1), digest(2)] }],
  });
});

test('without deletions at the registry, images that an earlier clean-up may have deleted stay marked', async () => {
  const s = await scene();
  const { stores, project } = s;
  await start(s, 2);
  await stores.tasks.claim('t-c', lease, NOW, 5);
  await stores.cleanUps.endTask('t-c', 'l', failed('registry_collect_failed'), NOW);
  expect(await removedAt(s)).toEqual([NOW, null, null]);
  await deploymentIn(stores, project, 'd4', { ...image('shop', 4), status: 'retired' });
  for (const code of ['registry_delete_disabled', 'registry_other']) {
    expect(await start(s, 1, code, NOW + 5)).toBe('started');
    expect(await removedAt(s)).toEqual([NOW, NOW + 5, null]);
    await stores.tasks.claim(`t-${code}`, lease, NOW, 5);
    await stores.cleanUps.endTask(`t-${code}`, 'l', failed(code), NOW);
    expect(await removedAt(s)).toEqual([NOW, null, null]);
  }
});

test('a lost lease offers the task again, and an agent that stays away ends the clean-up', async () => {
  const s = await scene();
  const { stores } = s;
  await start(s);
  await stores.tasks.claim('t-c', lease, NOW, 5);
  expect(await stores.cleanUps.loseTask(await stores.tasks.get('t-c'), 'lease', NOW, NOW + 1)).toBe(
    true,
  );
  expect(await stores.tasks.get('t-c')).toMatchObject({
    status: 'pending',
    queue_deadline_at: NOW + 1,
    finished_at: null,
  });
  expect(await stores.cleanUps.loseTask(await stores.tasks.get('t-c'), 'queue', NOW, 0)).toBe(true);
  expect(await stores.cleanUps.list()).toMatchObject([
    { state: 'failed', error_code: 'task_not_claimed' },
  ]);
  expect(await stores.cleanUps.open()).toBeNull();
});

test('images of a deleted project are removed, but not those that a new project of that name needs', async () => {
  const s = await scene();
  const { stores, project, path } = s;
  await stores.projects.markDeleting(project.id, NOW);
  expect(await stores.projects.removeIfGone(project.id)).toBe(true);
  const again = await projectIn(stores, 'shop', { domain_prefix: 'again' });
  await deploymentIn(stores, again, 'new', { ...image('shop', 2), status: 'running' });
  await start(s);
  expect(await payload(s)).toMatchObject({
    repositories: [{ repository: 'shop', remove: [digest(1), digest(3)], keep: [digest(2)] }],
  });
  await stores.tasks.claim('t-c', lease, NOW, 5);
  await stores.cleanUps.endTask('t-c', 'l', done(), NOW);
  expect(await rowsOf(path, 'orphan_images')).toMatchObject([{ digest: digest(2) }]);
});

test('a kept image that the registry lost is no release any more', async () => {
  const s = await scene();
  await start(s, 3);
  await s.stores.tasks.claim('t-c', lease, NOW, 5);
  const missing = [2, 3].map((n) => ({ repository: 'shop', digest: digest(n) }));
  await s.stores.cleanUps.endTask('t-c', 'l', done(missing), NOW + 5);
  // The running release may still move to another node.
  expect(await removedAt(s)).toEqual([null, NOW + 5, null]);
});

describe('a registry that lacks images', () => {
  const lacking = (...n: number[]): CleanResult['missing'] =>
    n.map((one) => ({ repository: 'shop', digest: digest(one) }));
  async function cleaned(
    s: Scene,
    id: string,
    missing: CleanResult['missing'],
    { keepReleases = 3, removed = 0, now = NOW } = {},
  ) {
    expect(await start(s, keepReleases, id, now)).toBe('started');
    await s.stores.tasks.claim(`t-${id}`, lease, NOW, 5);
    const result: CleanResult = { removed, missing, blobs: 0, bytes_before: 0, bytes_after: 0 };
    await s.stores.cleanUps.endTask(
      `t-${id}`,
      'l',
      { status: 'completed', result: result as Record<string, unknown> },
      now,
    );
    return s.stores.cleanUps.last();
  }

  test.each([
    ['all', [1, 2, 3]],
    ['most', [1, 2]],
  ])(
    'that lacks %s of them is not believed: nothing changes, and it is a problem until it has them',
    async (_, gone) => {
      const s = await scene();
      expect(await cleaned(s, 'a', lacking(...gone))).toMatchObject({
        state: 'failed',
        error_code: 'registry_images_missing',
      });
      expect(await removedAt(s)).toEqual([null, null, null]);
      expect(ofRegistry(await s.stores.cleanUps.last())).toMatchObject([
        { kind: 'disk', isProblem: true },
      ]);
      expect(await cleaned(s, 'b', [])).toMatchObject({ state: 'done' });
      expect((await payload(s, 't-b')).repositories).toMatchObject([
        { keep: [digest(3), digest(2), digest(1)], remove: [] },
      ]);
      expect(ofRegistry(await s.stores.cleanUps.last())).toMatchObject([
        { kind: 'disk', isProblem: false },
      ]);
    },
  );

  test('images that were to be deleted stay marked, so that the next clean-up deletes them', async () => {
    const s = await scene();
    await cleaned(s, 'a', lacking(2, 3), { keepReleases: 2 });
    await cleaned(s, 'b', [], { keepReleases: 2, removed: 1 });
    expect((await payload(s, 't-b')).repositories).toMatchObject([{ remove: [digest(1)] }]);
    await cleaned(s, 'c', [], { keepReleases: 2 });
    expect((await payload(s, 't-c')).repositories).toMatchObject([{ remove: [] }]);
  });

  test('one missing image cannot be rolled back to until a clean-up finds it, and each clean-up looks', async () => {
    const s = await scene();
    await deploymentIn(s.stores, s.project, 'd4', { ...image('shop', 4), status: 'retired' });
    await cleaned(s, 'a', lacking(2), { keepReleases: 4, now: NOW + 5 });
    expect(await removedAt(s)).toEqual([null, NOW + 5, null]);
    const back = { rollback_of: 'd2', ...image('shop', 2) };
    expect(await codeOf(deploymentIn(s.stores, s.project, 'back', back))).toBe('no_release');
    await cleaned(s, 'b', lacking(2), { keepReleases: 4, now: NOW + 10 });
    expect(await removedAt(s)).toEqual([null, NOW + 5, null]);
    expect(await cleaned(s, 'c', [], { keepReleases: 4, now: NOW + 15 })).toMatchObject({
      state: 'done',
      missing: 0,
    });
    expect(await removedAt(s)).toEqual([null, null, null]);
    await deploymentIn(s.stores, s.project, 'back', back);
  });

  test('a missing image that no release needs any more is deleted, and pushes no other one out', async () => {
    const s = await scene();
    await deploymentIn(s.stores, s.project, 'd4', { ...image('shop', 4), status: 'retired' });
    await cleaned(s, 'a', lacking(2), { keepReleases: 4 });
    await cleaned(s, 'b', lacking(2), { keepReleases: 3 });
    expect((await payload(s, 't-b')).repositories).toMatchObject([
      { keep: [digest(4), digest(3), digest(2), digest(1)], remove: [] },
    ]);
    await cleaned(s, 'c', [], { keepReleases: 2, removed: 1 });
    expect((await payload(s, 't-c')).repositories).toMatchObject([
      { keep: [digest(4), digest(3)], remove: [digest(1), digest(2)] },
    ]);
    await cleaned(s, 'd', [], { keepReleases: 2 });
    expect((await payload(s, 't-d')).repositories).toMatchObject([{ remove: [] }]);
  });

  test('images of a deleted project that were missing are deleted when they are back', async () => {
    const s = await scene();
    await cleaned(s, 'a', lacking(1), { removed: 0 });
    await s.stores.projects.markDeleting(s.project.id, NOW);
    await s.stores.projects.removeIfGone(s.project.id);
    expect(await start(s, 3, 'b')).toBe('started');
    expect((await payload(s, 't-b')).repositories).toMatchObject([
      { remove: [digest(1), digest(2), digest(3)] },
    ]);
  });

  test('an empty registry is no deletion when only images of deleted projects are left: each clean-up asks again', async () => {
    const s = await scene();
    await s.stores.projects.markDeleting(s.project.id, NOW);
    await s.stores.projects.removeIfGone(s.project.id);
    const all = [{ remove: [digest(1), digest(2), digest(3)] }];
    await cleaned(s, 'a', [], { removed: 0 });
    await cleaned(s, 'b', [], { removed: 3 });
    expect((await payload(s, 't-b')).repositories).toMatchObject(all);
    await cleaned(s, 'c', []);
    expect((await payload(s, 't-c')).repositories).toEqual([]);
  });

  test('a build that pushes the image again makes its releases possible again', async () => {
    const s = await scene();
    await cleaned(s, 'a', [], { keepReleases: 2, removed: 1 });
    expect(await removedAt(s)).toEqual([NOW, null, null]);
    const building = await deploymentIn(s.stores, s.project, 'd4', { status: 'building' });
    await commit(s.stores, s.project.id, {
      changeDeployments: [
        { id: building.id, from: 'building', set: { status: 'built', ...image('shop', 1) } },
      ],
    });
    expect(await removedAt(s)).toEqual([null, null, null]);
  });
});
