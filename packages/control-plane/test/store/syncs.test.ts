import { expect, test } from 'vitest';
import type { NewSync } from '../../src/domain/deployments/task-store.ts';
import type { AllStores } from '../../src/store/open.ts';
import { codeOf, nodeIn, NOW, open } from './fixtures.ts';

const MINUTE = 60_000;
const source = (version: number, id = 'ds') => ({
  dataset_id: id,
  name: 'photos',
  nfs_path: 'data/photos',
  version,
  manifest_digest: `sha256:${'a'.repeat(64)}`,
  bytes: 10,
  files: 1,
});
const sync = (id: string, node: string, version = 1): NewSync => ({
  id,
  node_id: node,
  payload: { dataset: source(version) },
  queue_deadline_at: NOW + MINUTE,
  wall_deadline_at: NOW + 60 * MINUTE,
});
async function scene(): Promise<{ stores: AllStores; node: string }> {
  const stores = await open();
  const { id } = await nodeIn(stores, 'n1', { role: 'deploy', agent_version: '1' });
  return { stores, node: id };
}
const lease = (token: string, expires_at = NOW + 30_000) => ({ token, expires_at });
const done = { status: 'completed' as const };

test('a node has one open sync task for a version, whatever the number of requests', async () => {
  const { stores, node } = await scene();
  // The node polled and found no task, which is cached. The new task must reach it all the same.
  expect(await stores.tasks.openFor(node, NOW)).toEqual([]);
  const asked = await Promise.all(
    [1, 2, 3, 4].map((i) => stores.tasks.createSync(sync(`s${i}`, node), NOW)),
  );
  expect(asked.filter((a) => a.created)).toHaveLength(1);
  expect(new Set(asked.map((a) => a.task.id)).size).toBe(1);
  const [task] = await stores.tasks.openFor(node, NOW);
  expect(task).toMatchObject({
    kind: 'sync',
    project_id: null,
    deployment_id: null,
    payload: { dataset: source(1) },
    progress: null,
  });
  expect((await stores.tasks.createSync(sync('newer', node, 2), NOW)).created).toBe(true);
  const contract = await nodeIn(stores, 'plain', { role: 'deploy' });
  await stores.tasks.createSync(sync('plain', contract.id), NOW);
  expect(await stores.tasks.openFor(contract.id, NOW)).toEqual([]);
  expect(await codeOf(stores.tasks.createSync(sync('x', 'nobody'), NOW))).toBe('not_found');
});

test('a sync task is claimed, reports progress, and ends once even if it is reported again', async () => {
  const { stores, node } = await scene();
  await stores.tasks.createSync(sync('s', node), NOW);
  await stores.tasks.claim('s', lease('t'), NOW, 5);
  const progress = {
    datasets: [
      {
        dataset_id: 'ds',
        name: 'photos',
        version: 1,
        step: 'copying' as const,
        bytes_done: 1,
        bytes_total: 10,
        bytes_per_second: 1,
        remaining_seconds: 9,
      },
    ],
  };
  expect((await stores.tasks.progress('s', 't', progress, NOW)).progress).toEqual(progress);
  expect(await codeOf(stores.tasks.progress('s', 'other', progress, NOW))).toBe('stale_lease');
  expect(await codeOf(stores.tasks.endSync('s', 'other', done, NOW))).toBe('stale_lease');
  expect(await codeOf(stores.tasks.endSync('s', null, done, NOW))).toBe('stale_lease');
  const failed = {
    status: 'failed' as const,
    result: { error: { code: 'no_room', message: 'no room' } },
  };
  expect(await stores.tasks.endSync('s', 't', failed, NOW + 5)).toEqual({ status: 'failed' });
  expect(await stores.tasks.endSync('s', 't', structuredClone(failed), NOW + 6)).toEqual({
    status: 'failed',
  });
  expect(await codeOf(stores.tasks.endSync('s', 't', done, NOW + 6))).toBe('task_over');
  expect(await stores.tasks.get('s')).toMatchObject({
    status: 'failed',
    finished_at: NOW + 5,
    report: failed,
    progress,
  });
  expect(await codeOf(stores.tasks.progress('s', 't', progress, NOW))).toBe('task_over');
  expect(await codeOf(stores.tasks.endSync('nobody', 't', done, NOW))).toBe('not_found');
  expect((await stores.tasks.createSync(sync('s2', node), NOW)).created).toBe(true);
});

test('a sync task with an expired lease is offered again, other deadlines end it, and a renewed one stays', async () => {
  const { stores, node } = await scene();
  await stores.tasks.createSync(sync('s', node), NOW);
  await stores.tasks.claim('s', lease('one'), NOW, 2);
  const [lost] = await stores.tasks.overdue(
    { uptime: { at: NOW + 30_001, since: 0 }, now: NOW + 30_001, silentSince: NOW },
    { leaseMs: 30_000, maxAttempts: 2 },
  );
  expect(lost).toMatchObject({ why: 'lease', task: { id: 's' } });
  await stores.tasks.renew('s', 'one', NOW + MINUTE, NOW);
  if (lost === undefined) throw new Error('nothing is overdue');
  expect(await stores.tasks.loseSync(lost.task, 'lease', NOW + 30_001)).toBe(false);
  expect(await stores.tasks.loseSync(await stores.tasks.get('s'), 'lease', NOW + 2 * MINUTE)).toBe(
    true,
  );
  expect(await stores.tasks.get('s')).toMatchObject({
    status: 'pending',
    attempt: 1,
    finished_at: null,
  });
  expect(await codeOf(stores.tasks.endSync('s', 'one', done, NOW))).toBe('stale_lease');
  await stores.tasks.claim('s', lease('two'), NOW, 2);
  expect(await stores.tasks.loseSync(await stores.tasks.get('s'), 'attempts', NOW + MINUTE)).toBe(
    true,
  );
  expect(await stores.tasks.get('s')).toMatchObject({ status: 'lost', finished_at: NOW + MINUTE });
  expect(await stores.tasks.loseSync(await stores.tasks.get('s'), 'wall', NOW)).toBe(false);
});

test('a node shows its sync tasks, newest first: open ones and those of the last hour', async () => {
  const { stores, node } = await scene();
  const other = await nodeIn(stores, 'n2', { role: 'deploy', agent_version: '1' });
  for (const [id, at] of [
    ['old', NOW],
    ['new', NOW + 30 * MINUTE],
  ] as const) {
    await stores.tasks.createSync(sync(id, node), NOW);
    await stores.tasks.claim(id, lease(id), NOW, 5);
    await stores.tasks.endSync(id, id, done, at);
  }
  for (let v = 2; v < 25; v++) await stores.tasks.createSync(sync(`v${v}`, other.id, v), NOW);
  await stores.tasks.createSync(sync('open', node), NOW);
  const shown = await stores.tasks.syncsOf([node, other.id, 'nobody'], NOW + 61 * MINUTE);
  expect(shown.get(node)?.map((t) => t.id)).toEqual(['open', 'new']);
  expect(shown.get(other.id)).toHaveLength(20);
  expect(shown.get('nobody')).toEqual([]);
});

test('sync tasks that ended a week ago are removed', async () => {
  const { stores, node } = await scene();
  await stores.tasks.createSync(sync('s', node), NOW);
  await stores.tasks.claim('s', lease('s'), NOW, 5);
  await stores.tasks.endSync('s', 's', done, NOW);
  const week = 7 * 24 * 60 * MINUTE;
  await stores.tasks.createSync(sync('t', node, 2), NOW + week - 1);
  expect(await stores.tasks.get('s')).toMatchObject({ status: 'completed' });
  await stores.tasks.createSync(sync('u', node, 3), NOW + week);
  expect(await codeOf(stores.tasks.get('s'))).toBe('not_found');
  expect((await stores.tasks.openFor(node, NOW)).map((t) => t.id)).toEqual(['t', 'u']);
});

test('a sync task does not block the deletion of its node, is removed with it, and cannot start on a deleted node', async () => {
  const { stores, node } = await scene();
  await stores.tasks.createSync(sync('s', node), NOW);
  await stores.nodes.markDeleting(node, NOW);
  expect(await codeOf(stores.tasks.createSync(sync('t', node, 2), NOW))).toBe('being_deleted');
  expect(await stores.nodes.removeIfGone(node, false)).toBe(true);
  // No other place would remove the task.
  expect(await codeOf(stores.tasks.get('s'))).toBe('not_found');
});
