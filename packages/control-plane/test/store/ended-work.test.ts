/** Ended work on deploy nodes: when it ended, and whether it ended without a report. */
import { expect, test } from 'vitest';
import type { NewTask } from '../../src/domain/deployments/plan.ts';
import type { AllStores } from '../../src/store/open.ts';
import {
  commit,
  deploymentIn,
  freshPath,
  NOW,
  open,
  projectIn,
  runOn,
  taskOf,
  tasksIn,
} from './fixtures.ts';

type End = {
  end: 'completed' | 'failed' | 'lost' | 'cancelled';
  reported: boolean;
  claimed: boolean;
};
let ids = 0;

async function ended(
  stores: AllStores,
  project: string,
  node_id: string,
  kind: 'deploy' | 'retire',
  at: number,
  { end, reported, claimed }: End,
  uptime = at,
): Promise<void> {
  const id = `t${++ids}`;
  const task = {
    id,
    kind,
    deployment_id: 'd1',
    node_id,
    queue_deadline_at: NOW,
    wall_deadline_at: NOW,
    payload: { datasets: [], remove: [] },
  };
  await commit(stores, project, { createTasks: [task as unknown as NewTask] });
  if (claimed) await stores.tasks.claim(id, { token: id, expires_at: NOW }, NOW, 5);
  const report = reported ? { report: { status: end as 'completed' } } : {};
  await commit(stores, project, {
    now: at,
    uptime,
    changeTasks: [{ id, attempt: claimed ? 1 : 0, end, ...report }],
  });
}

const DAY = 86_400_000;

async function given(replace: 'rolling' | 'recreate', now = () => NOW) {
  const stores = await open(freshPath(), now);
  const project = await projectIn(stores, 'shop', { replace });
  await deploymentIn(stores, project, 'd1', {});
  return { stores, id: project.id };
}
const work = async (stores: AllStores, id: string) =>
  (await stores.flow.facts(id)).endedWork.toSorted((a, b) => (a.node_id < b.node_id ? -1 : 1));

test('a report tells how work ended; lost or withdrawn tasks and failed removals leave it unknown', async () => {
  const { stores, id } = await given('recreate');
  await ended(stores, id, 'a', 'deploy', NOW + 1, { end: 'failed', reported: true, claimed: true });
  await ended(stores, id, 'b', 'deploy', NOW + 2, { end: 'lost', reported: false, claimed: true });
  await ended(stores, id, 'b', 'retire', NOW + 3, {
    end: 'completed',
    reported: true,
    claimed: true,
  });
  await ended(stores, id, 'c', 'deploy', NOW + 4, {
    end: 'cancelled',
    reported: false,
    claimed: false,
  });
  await ended(stores, id, 'd', 'retire', NOW + 5, { end: 'failed', reported: true, claimed: true });
  expect(await work(stores, id)).toEqual([
    { node_id: 'a', ended_at: NOW + 1, claimed_at: NOW + 1, unreported_at: null },
    { node_id: 'b', ended_at: NOW + 3, claimed_at: NOW + 3, unreported_at: NOW + 2 },
    { node_id: 'c', ended_at: NOW + 4, claimed_at: null, unreported_at: null },
    { node_id: 'd', ended_at: NOW + 5, claimed_at: NOW + 5, unreported_at: NOW + 5 },
  ]);
});

test('the last end is found even after the machine’s clock was set back', async () => {
  const { stores, id } = await given('recreate', () => NOW - DAY + 40);
  const reported: End = { end: 'completed', reported: true, claimed: true };
  const lost: End = { end: 'lost', reported: false, claimed: true };
  for (let i = 1; i <= 40; i++)
    await ended(stores, id, 'a', 'deploy', NOW + i, i % 2 === 0 ? reported : lost, NOW + i);
  await ended(stores, id, 'a', 'retire', NOW - DAY + 1, lost, NOW + 41);
  await ended(stores, id, 'a', 'retire', NOW - DAY + 2, reported, NOW + 42);
  expect(await work(stores, id)).toEqual([
    { node_id: 'a', ended_at: NOW + 42, claimed_at: NOW + 42, unreported_at: NOW + 41 },
  ]);
});

test('an end that an earlier version wrote is before all that a node reports', async () => {
  const path = freshPath();
  const stores = await open(path);
  const project = await projectIn(stores, 'shop', { replace: 'recreate' });
  await deploymentIn(stores, project, 'd1', {});
  const reported: End = { end: 'completed', reported: true, claimed: true };
  for (const at of [NOW + 2, NOW + 1]) await ended(stores, project.id, 'a', 'deploy', at, reported);
  await runOn(path, 'update tasks set lease_expires_at = null');
  const [first] = await work(stores, project.id);
  expect(first?.ended_at).toBeLessThan(0);
  await ended(stores, project.id, 'a', 'deploy', NOW, reported, 1);
  expect(await work(stores, project.id)).toEqual([
    { node_id: 'a', ended_at: 1, claimed_at: 1, unreported_at: null },
  ]);
});

test('ended work is not queried for rolling projects', async () => {
  const { stores, id } = await given('rolling');
  await ended(stores, id, 'a', 'deploy', NOW + 1, { end: 'lost', reported: false, claimed: true });
  expect(await work(stores, id)).toEqual([]);
});

test('the number of ended tasks does not slow a decision down', async () => {
  const path = freshPath();
  const stores = await open(path);
  const project = await projectIn(stores, 'shop', { replace: 'recreate' });
  await deploymentIn(stores, project, 'd1', {});
  await tasksIn(
    stores,
    await stores.projects.get(project.id),
    taskOf(project, 'first', 'w1', { deployment_id: 'd1', kind: 'deploy' }),
  );
  await commit(stores, project.id, {
    now: NOW + 1,
    changeTasks: [{ id: 'first', attempt: 0, end: 'completed', report: { status: 'completed' } }],
  });
  /** CPU time of this thread, which also runs SQLite: a busy machine does not change it. */
  const costOf = async (decisions: number): Promise<number> => {
    const before = process.threadCpuUsage();
    for (let i = 0; i < decisions; i++) await stores.flow.facts(project.id);
    const { user, system } = process.threadCpuUsage(before);
    return user + system;
  };
  await costOf(20);
  const few = await costOf(200);
  // Three years with 30 deployments a day, on three nodes.
  const columns =
    'id, kind, status, project_id, deployment_id, node_id, attempt, payload, report, ' +
    'queue_deadline_at, wall_deadline_at, created_at, finished_at';
  await runOn(
    path,
    `insert into tasks (${columns}) with recursive n(i) as (select 1 union all select i + 1 from n where i < 32000)
     select 'many' || i, case when i % 2 = 0 then 'deploy' else 'retire' end, 'completed', project_id, deployment_id, 'w' || (i % 3), 1, payload,
       report, queue_deadline_at, wall_deadline_at, created_at, ${NOW} + i from n, tasks where tasks.id = 'first'`,
  );
  const many = await costOf(200);
  expect((await work(stores, project.id)).map((w) => w.node_id)).toEqual(['w0', 'w1', 'w2']);
  expect(many / few).toBeLessThan(4);
});
