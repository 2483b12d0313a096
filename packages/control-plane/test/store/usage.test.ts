/** Points of what containers use: slots, repeated and late points, retention. */
import { expect, onTestFinished, test } from 'vitest';
import {
  MINUTES,
  QUARTERS,
  type UsagePoint,
  type UsageStep,
} from '../../src/domain/nodes/usage.ts';
import type { AllStores } from '../../src/store/open.ts';
import { deploymentIn, nodeIn, open, projectIn } from './fixtures.ts';

const MINUTE = 60_000;
const DAY = 86_400_000;
/** Begins a quarter of an hour. */
const START = 1_790_000_100_000 - (1_790_000_100_000 % QUARTERS.ms);

const point = (at: number, given: Partial<UsagePoint> = {}): UsagePoint => ({
  deployment_id: 'd1',
  at,
  started_at: START - MINUTE,
  cpu_seconds: (at - START) / 1000,
  throttled_seconds: null,
  memory_bytes: 100,
  memory_limit: 5e9,
  restarts: 0,
  oom_kills: 0,
  net_rx: 3e12,
  net_tx: 4,
  ...given,
});

async function scene() {
  const stores: AllStores = await open();
  onTestFinished(() => stores.close());
  const project = await projectIn(stores);
  const { id: node } = await nodeIn(stores, 'n1', { role: 'deploy' });
  await deploymentIn(stores, project, 'd1', { node_id: node, status: 'running' });
  const record = (...points: UsagePoint[]): Promise<number> => stores.usage.record(node, points);
  const read = (
    step: UsageStep,
    from = START,
    to = START + 40 * DAY,
    most = 10_000,
  ): Promise<UsagePoint[]> => stores.usage.read({ project_id: project.id, step, from, to }, most);
  return { stores, project, node, record, read };
}

test('the present use is that of the newest points by project, those with the most memory first, and not more than asked for', async () => {
  const { stores, project, node, record } = await scene();
  const other = await projectIn(stores, 'other');
  await deploymentIn(stores, other, 'd2', { node_id: node, status: 'running' });
  await deploymentIn(stores, other, 'd3', { node_id: node, status: 'deploying' });
  await record(
    point(START, { memory_bytes: 1e9, memory_limit: null }),
    point(START + MINUTE, { memory_bytes: 250, memory_limit: null, oom_kills: 1 }),
    point(START + MINUTE, { deployment_id: 'd2', memory_bytes: 200, memory_limit: 500 }),
    point(START + MINUTE, { deployment_id: 'd3', memory_bytes: 100, memory_limit: null }),
  );
  const present = async (from: number, most: number) =>
    (await stores.usage.present(from, most)).map(({ project, values }) => [
      project,
      values.memory_bytes,
      values.memory_limit,
    ]);
  expect(await present(START, 10)).toEqual([
    ['other', 300, 500],
    [project.name, 250, null],
  ]);
  expect(await present(START, 1)).toEqual([['other', 300, 500]]);
  expect(await present(START + MINUTE + 1, 10)).toEqual([]);
});

test('a minute has one point, and a quarter of an hour the last counters and the highest memory', async () => {
  const { record, read } = await scene();
  expect(
    await record(
      point(START + 1_000),
      point(START + MINUTE, { memory_bytes: 900 }),
      point(START + 2 * MINUTE),
    ),
  ).toBe(3);
  await record(point(START + 16 * MINUTE));
  expect(await read(MINUTES)).toEqual([
    point(START + 1_000),
    point(START + MINUTE, { memory_bytes: 900 }),
    point(START + 2 * MINUTE),
    point(START + 16 * MINUTE),
  ]);
  expect(await read(QUARTERS)).toEqual([
    point(START + 2 * MINUTE, { memory_bytes: 900 }),
    point(START + 16 * MINUTE),
  ]);
});

test('a point that arrives twice, late or in the wrong order changes nothing that is newer', async () => {
  const { record, read } = await scene();
  const newest = point(START + 30_000, { restarts: 2, memory_bytes: null });
  await record(newest, point(START + 10_000, { memory_bytes: 700 }));
  await record(point(START + 20_000));
  await record(newest);
  expect(await read(MINUTES)).toEqual([newest]);
  expect(await read(QUARTERS)).toEqual([{ ...newest, memory_bytes: 700 }]);
  await record(point(START + 30_000, { restarts: 3 }));
  expect((await read(MINUTES))[0]?.restarts).toBe(3);
});

test('only deployments on this node get points', async () => {
  const { stores, project, node, record, read } = await scene();
  await deploymentIn(stores, project, 'd2', {
    node_id: (await nodeIn(stores, 'n2', { role: 'deploy' })).id,
  });
  await deploymentIn(stores, project, 'd3', { node_id: node });
  expect(
    await record(
      ...['d1', 'd2', 'd3', 'unknown'].map((deployment_id) => point(START, { deployment_id })),
    ),
  ).toBe(2);
  expect((await read(MINUTES)).map((p) => p.deployment_id)).toEqual(['d1', 'd3']);
  expect(await record()).toBe(0);
});

test('a range has its bounds and at most the newest points', async () => {
  const { record, read } = await scene();
  await record(...Array.from({ length: 20 }, (_, i) => point(START + i * MINUTE)));
  const minutes = (points: readonly UsagePoint[]): number[] =>
    points.map(({ at }) => (at - START) / MINUTE);
  expect(minutes(await read(MINUTES, START + 3 * MINUTE, START + 5 * MINUTE))).toEqual([3, 4, 5]);
  expect(minutes(await read(MINUTES, START, START + DAY, 2))).toEqual([18, 19]);
  expect(await read(MINUTES, START + DAY)).toEqual([]);
});

test('minutes are removed after a day and quarters after 30 days, many in several steps', async () => {
  const { stores, record, read } = await scene();
  const late = START + 31 * DAY;
  await record(...Array.from({ length: 3_000 }, (_, i) => point(START + i * MINUTE)));
  await record(point(late));
  const left = async (): Promise<number[]> => [
    (await read(MINUTES)).length,
    (await read(QUARTERS)).length,
  ];
  expect(await left()).toEqual([3_001, 201]);
  expect(await stores.usage.sweep(START + 1_000)).toBe(0);
  let steps = 0;
  while ((await stores.usage.sweep(START + 2 * DAY)) > 0) steps += 1;
  // The second day has 1,560 minutes of the 3,000.
  expect([steps > 0, await left()]).toEqual([true, [1_561, 201]]);
  while ((await stores.usage.sweep(late)) > 0);
  // The quarters of the first day are gone.
  expect(await left()).toEqual([1, 105]);
  while ((await stores.usage.sweep(late + 40 * DAY)) > 0);
  expect(await left()).toEqual([0, 0]);
});

test('the points of a project go with it', async () => {
  const { stores, project, record } = await scene();
  await record(point(START));
  await stores.projects.markDeleting(project.id, START);
  expect(await stores.projects.removeIfGone(project.id)).toBe(true);
  expect(
    await stores.usage.read({ project_id: project.id, step: QUARTERS, from: 0, to: START * 2 }, 10),
  ).toEqual([]);
});
