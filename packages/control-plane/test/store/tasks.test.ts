import { expect, test } from 'vitest';
import type { NodeRecord, ProjectRecord } from '../../src/domain/platform/records.ts';
import type { AllStores } from '../../src/store/open.ts';
import {
  codeOf,
  commit,
  deploymentIn,
  nodeIn,
  NOW,
  open,
  projectIn,
  taskOf,
  tasksIn,
} from './fixtures.ts';

async function scene(
  more: { agent_version?: string } = { agent_version: '1' },
): Promise<{ stores: AllStores; project: ProjectRecord; node: NodeRecord }> {
  const stores = await open();
  const project = await projectIn(stores);
  const node = await nodeIn(stores, 'b1', more);
  await deploymentIn(stores, project, 'd1', { status: 'building' });
  await tasksIn(stores, project, taskOf(project, 't1', node.id, { deployment_id: 'd1' }));
  return { stores, project, node };
}
const lease = (token: string, expires_at = NOW + 30_000) => ({ token, expires_at });

test('a node gets its open tasks of known kinds in order, and the poll is marked', async () => {
  const { stores, project, node } = await scene();
  const plain = await nodeIn(stores, 'contract');
  await tasksIn(
    stores,
    project,
    ...[node, plain].flatMap((n) =>
      (['retire', 'deploy', 'build'] as const).map((kind) =>
        taskOf(project, `${n.hostname}-${kind}`, n.id, { kind }),
      ),
    ),
  );
  const ids = async (id: string, now = NOW): Promise<string[]> =>
    (await stores.tasks.openFor(id, now)).map((t) => t.id);
  expect(await ids(node.id)).toEqual(['t1', 'b1-retire', 'b1-deploy', 'b1-build']);
  expect(await ids(plain.id)).toEqual(['contract-deploy', 'contract-build']);
  await commit(stores, project.id, { changeTasks: [{ id: 't1', attempt: 0, end: 'lost' }] });
  expect(await ids(node.id, NOW + 5000)).toEqual(['b1-retire', 'b1-deploy', 'b1-build']);
  expect((await stores.nodes.get(node.id)).last_polled_at).toBe(NOW + 5000);
  expect(await codeOf(stores.tasks.openFor('nobody', NOW))).toBe('not_found');
});

test('a claim raises the attempt, voids the earlier lease, and writes a story line', async () => {
  const { stores } = await scene();
  expect(await stores.tasks.claim('t1', lease('one'), NOW + 1, 5)).toEqual({
    attempt: 1,
    lease_token: 'one',
    lease_expires_at: NOW + 30_000,
  });
  expect(await stores.tasks.get('t1')).toMatchObject({
    status: 'running',
    attempt: 1,
    started_at: NOW + 1,
    lease_token: 'one',
  });
  expect((await stores.tasks.claim('t1', lease('two'), NOW + 2, 5)).attempt).toBe(2);
  expect(await stores.tasks.get('t1')).toMatchObject({
    status: 'running',
    attempt: 2,
    started_at: NOW + 1,
    lease_token: 'two',
  });
  expect(await codeOf(stores.tasks.renew('t1', 'one', NOW + 9, NOW))).toBe('stale_lease');
  expect((await stores.deployments.events(['d1'])).get('d1')).toEqual([
    { at: NOW + 1, kind: 'task_claimed', message: 'b1 took the build' },
    { at: NOW + 2, kind: 'task_claimed', message: 'b1 took the build (attempt 2)' },
  ]);
});

test('a removal that is retried again and again has one story line with a count', async () => {
  const { stores, project, node } = await scene();
  await deploymentIn(stores, project, 'd2', { status: 'retired' });
  for (const [id, at] of [
    ['t2', NOW],
    ['t3', NOW + 5],
  ] as const) {
    await tasksIn(
      stores,
      project,
      taskOf(project, id, node.id, { kind: 'retire', deployment_id: 'd2' }),
    );
    await stores.tasks.claim(id, lease(id), at, 5);
  }
  expect((await stores.deployments.events(['d2'])).get('d2')).toEqual([
    {
      at: NOW + 5,
      kind: 'task_claimed',
      message: 'b1 started to remove old containers',
      count: 2,
      since: NOW,
    },
  ]);
});

test('a claim is refused if the task has ended, is unknown or was started too often', async () => {
  const { stores, project } = await scene();
  expect(await codeOf(stores.tasks.claim('nobody', lease('x'), NOW, 5))).toBe('not_found');
  await stores.tasks.claim('t1', lease('one'), NOW, 2);
  await stores.tasks.claim('t1', lease('two'), NOW, 2);
  expect(await codeOf(stores.tasks.claim('t1', lease('three'), NOW, 2))).toBe('task_over');
  // The lease of the last attempt is unchanged.
  expect(await stores.tasks.renew('t1', 'two', NOW + 1, NOW)).toEqual({ cancel_requested: false });
  await commit(stores, project.id, {
    changeTasks: [{ id: 't1', attempt: 2, end: 'completed', report: { status: 'completed' } }],
  });
  expect(await codeOf(stores.tasks.claim('t1', lease('x'), NOW, 5))).toBe('task_over');
});

test('each of ten concurrent claims gets its own attempt', async () => {
  const { stores } = await scene();
  const claims = await Promise.all(
    Array.from({ length: 10 }, (_, i) => stores.tasks.claim('t1', lease(`l${i}`), NOW, 50)),
  );
  expect(claims.map((c) => c.attempt).sort((a, b) => a - b)).toEqual([
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
  ]);
  const { attempt, lease_token } = await stores.tasks.get('t1');
  expect(claims.find((c) => c.attempt === attempt)?.lease_token).toBe(lease_token);
});

test('renewing extends the lease, reports a requested cancellation, and fails without the lease', async () => {
  const { stores, project } = await scene();
  expect(await codeOf(stores.tasks.renew('nobody', 'x', NOW, NOW))).toBe('not_found');
  expect(await codeOf(stores.tasks.renew('t1', 'x', NOW, NOW))).toBe('stale_lease');
  await stores.tasks.claim('t1', lease('one'), NOW, 5);
  expect(await stores.tasks.renew('t1', 'one', NOW + 60_000, NOW)).toEqual({
    cancel_requested: false,
  });
  expect((await stores.tasks.get('t1')).lease_expires_at).toBe(NOW + 60_000);
  await commit(stores, project.id, {
    changeTasks: [{ id: 't1', attempt: 1, requestCancel: true }],
  });
  expect(await stores.tasks.renew('t1', 'one', NOW + 90_000, NOW)).toEqual({
    cancel_requested: true,
  });
  await commit(stores, project.id, { changeTasks: [{ id: 't1', attempt: 1, end: 'cancelled' }] });
  expect(await codeOf(stores.tasks.renew('t1', 'one', NOW, NOW))).toBe('task_over');
  expect(await codeOf(stores.tasks.renew('t1', 'other', NOW, NOW))).toBe('task_over');
});

test('an overdue task is reported with the deadline that passed', async () => {
  const stores = await open();
  const project = await projectIn(stores);
  const [ours, polls, mute, quiet] = [
    await nodeIn(stores, 'ours', { agent_version: '1' }),
    await nodeIn(stores, 'polls'),
    await nodeIn(stores, 'mute'),
    await nodeIn(stores, 'quiet'),
  ];
  const at = NOW + 100_000;
  await stores.tasks.openFor(ours.id, at);
  await stores.tasks.openFor(polls.id, at);
  await stores.tasks.openFor(quiet.id, at - 20_000);
  // A poll may be held for 5 minutes. Registrations show that the agent is alive meanwhile, but
  // never replace polls.
  const holds = await nodeIn(stores, 'holds');
  const stopped = await nodeIn(stores, 'stopped-polling');
  const never = await nodeIn(stores, 'never-polled');
  await stores.tasks.openFor(holds.id, at - 300_000);
  await stores.tasks.openFor(stopped.id, at - 331_000);
  for (const name of ['holds', 'stopped-polling', 'never-polled'])
    await nodeIn(stores, name, {}, at - 9_000);
  const due = { queue: at - 1 };
  await tasksIn(
    stores,
    project,
    taskOf(project, 'ours', ours.id, due),
    taskOf(project, 'ours-not-yet', ours.id, { queue: at }),
    taskOf(project, 'polls', polls.id, due),
    taskOf(project, 'mute', mute.id, due),
    taskOf(project, 'quiet', quiet.id, due),
    taskOf(project, 'holds', holds.id, due),
    taskOf(project, 'stopped-polling', stopped.id, due),
    taskOf(project, 'never-polled', never.id, due),
    taskOf(project, 'no-node', 'gone', due),
    taskOf(project, 'claimed', ours.id, due),
    taskOf(project, 'expired', ours.id, due),
    taskOf(project, 'last-attempt', ours.id, due),
    taskOf(project, 'wall', polls.id, { queue: at - 1, wall: at - 1 }),
    taskOf(project, 'wall-claimed', ours.id, { wall: at - 1 }),
    taskOf(project, 'over', ours.id, { queue: at - 1, wall: at - 1 }),
  );
  await stores.tasks.claim('claimed', lease('l', at), NOW, 2);
  await stores.tasks.claim('expired', lease('l', at - 1), NOW, 2);
  await stores.tasks.claim('last-attempt', lease('l', at - 1), NOW, 2);
  await stores.tasks.claim('last-attempt', lease('l', at - 1), NOW, 2);
  await stores.tasks.claim('wall-claimed', lease('l', at + 1), NOW, 2);
  await commit(stores, project.id, { changeTasks: [{ id: 'over', attempt: 0, end: 'lost' }] });

  const overdue = await stores.tasks.overdue(
    { uptime: { at, since: 0 }, now: at, silentSince: at - 10_000 },
    { leaseMs: 30_000, maxAttempts: 2 },
  );
  expect(overdue.map(({ task, why }) => [task.id, why])).toEqual([
    ['ours', 'queue'],
    ['mute', 'queue'],
    ['quiet', 'queue'],
    ['stopped-polling', 'queue'],
    ['never-polled', 'queue'],
    ['no-node', 'queue'],
    ['expired', 'lease'],
    ['last-attempt', 'attempts'],
    ['wall', 'wall'],
    ['wall-claimed', 'wall'],
  ]);
  expect(overdue[0]?.task).toEqual(await stores.tasks.get('ours'));
  expect(
    await stores.tasks.overdue(
      { uptime: { at: NOW, since: 0 }, now: NOW, silentSince: NOW },
      { leaseMs: 30_000, maxAttempts: 2 },
    ),
  ).toEqual([]);
});

test('a jump of the machine’s clock takes no task from a contract-only agent that works on it', async () => {
  const stores = await open();
  const project = await projectIn(stores);
  const node = await nodeIn(stores, 'polls');
  await stores.tasks.openFor(node.id, NOW);
  await tasksIn(stores, project, taskOf(project, 't', node.id, { queue: NOW + 1 }));
  const overdueAt = async (ms: number) => {
    const [at, now] = [NOW + ms, NOW + ms + 3_600_000];
    const lost = await stores.tasks.overdue(
      { uptime: { at, since: 0 }, now, silentSince: now - 90_000 },
      { leaseMs: 30_000, maxAttempts: 2 },
    );
    return lost.map(({ task, why }) => [task.id, why]);
  };
  expect(await overdueAt(40_000)).toEqual([]);
  // It does not register any more.
  expect(await overdueAt(91_000)).toEqual([['t', 'queue']]);
});
