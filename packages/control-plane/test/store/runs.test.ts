/** Runs whose project was deleted while a node had them: their tasks end. */
import { beforeEach, expect, test } from 'vitest';
import type { AllStores } from '../../src/store/open.ts';
import { newRun } from '../new-run.ts';
import { freshPath, NOW, nodeIn, open, projectIn, runOn } from './fixtures.ts';

let path: string;
let stores: AllStores;
const LEASE = { token: 'lease', expires_at: NOW + 30_000 };

beforeEach(async () => {
  path = freshPath();
  stores = await open(path);
  const project = await projectIn(stores, 'shop');
  const node = await nodeIn(stores);
  await stores.runs.create(
    newRun({ id: 'run-1', project_id: project.id, queue_deadline_at: NOW + 60_000 }),
    NOW,
  );
  const payload = {
    run_id: 'run-1',
    project_id: project.id,
    project: 'shop',
    image: 'r/shop@sha256:1',
    image_tag: 'r/shop:1',
    image_digest: null,
    container_name: 'run-shop',
    command: ['true'],
    env: {},
    datasets: [],
    memory_bytes: null,
    cpus: null,
    timeout_seconds: 60,
    stop_grace_seconds: 1,
  };
  const deadlines = { queue_deadline_at: NOW + 60_000, wall_deadline_at: NOW + 900_000 };
  const task = { id: 'task-1', node_id: node.id, ...deadlines, payload };
  const offered = await stores.runs.offer(
    { run_id: 'run-1', deployment_id: 'd1', task, takes: [] },
    NOW,
  );
  expect(offered).toBe(true);
  await stores.tasks.claim('task-1', LEASE, NOW, 5);
  // As the removal of the project does.
  await runOn(path, "delete from runs where id = 'run-1'");
});

const isOver = async (): Promise<boolean> =>
  (await stores.tasks.get('task-1')).finished_at !== null;

test('with the report of its agent', async () => {
  const report = { status: 'completed' as const, result: null };
  expect(await stores.runs.endTask('task-1', 'lease', report, NOW)).toEqual({
    status: 'completed',
  });
  expect(await isOver()).toBe(true);
});

test('when its lease is lost: no agent could claim it again', async () => {
  const task = await stores.tasks.get('task-1');
  expect(await stores.runs.loseTask(task, 'lease', NOW + 40_000, NOW + 99_000)).toBe(true);
  expect(await isOver()).toBe(true);
});
