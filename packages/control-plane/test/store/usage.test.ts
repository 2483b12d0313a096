/** Points of what containers use: slots, repeated and late points, retention. */
import { describe, expect, onTestFinished, test } from 'vitest';
import type { InstanceRecord } from '../../src/domain/deployments/instance.ts';
import { emptyPlan } from '../../src/domain/deployments/plan.ts';
import {
  MINUTES,
  QUARTERS,
  sumsOf,
  type UsagePoint,
  type UsageStep,
} from '../../src/domain/nodes/usage.ts';
import type { AllStores } from '../../src/store/open.ts';
import { deploymentIn, freshPath, nodeIn, open, projectIn, runOn } from './fixtures.ts';

const MINUTE = 60_000;
const DAY = 86_400_000;
/** Begins a quarter of an hour. */
const START = 1_790_000_100_000 - (1_790_000_100_000 % QUARTERS.ms);

const point = (at: number, given: Partial<UsagePoint> = {}): UsagePoint => ({
  deployment_id: 'd1',
  instance_id: null,
  process: 'web',
  number: 1,
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
  const path = freshPath();
  const stores: AllStores = await open(path);
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
  return { stores, path, project, node, record, read };
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

const second: InstanceRecord = {
  id: 'i2',
  project_id: '',
  deployment_id: 'd1',
  process: 'web',
  number: 2,
  state: 'serving',
  labelled: true,
  node_id: null,
  host_port: 32_002,
  container_id: 'c2',
  detail: null,
  memory_bytes: null,
  losses: [],
  placement: null,
  since: START,
  created_at: START,
};

test('each instance has its own points, and only on its node', async () => {
  const { stores, project, record, read } = await scene();
  const { id: other } = await nodeIn(stores, 'n2', { role: 'deploy' });
  await stores.flow.commit({
    ...emptyPlan(await stores.projects.get(project.id), START, START),
    instances: [{ put: { ...second, project_id: project.id, node_id: other } }],
  });
  const its = { instance_id: 'i2', number: 2, memory_bytes: 700 };
  expect(await record(point(START), point(START, its))).toBe(1);
  expect(await stores.usage.record(other, [point(START), point(START + 1, its)])).toBe(1);
  expect(await stores.usage.record(other, [point(START + 2, its)])).toBe(1);
  expect(await read(MINUTES)).toEqual([point(START), point(START + 2, its)]);
  expect(await read(QUARTERS)).toEqual([point(START), point(START + 2, its)]);
  const filtered = (filter: { process?: string; number?: number }): Promise<UsagePoint[]> =>
    stores.usage.read(
      { project_id: project.id, step: MINUTES, from: START, to: START + DAY, ...filter },
      10,
    );
  expect(await filtered({ number: 2 })).toEqual([point(START + 2, its)]);
  expect(await filtered({ number: 1, process: 'web' })).toEqual([point(START)]);
  expect(await filtered({ process: 'worker' })).toEqual([]);
  expect((await stores.usage.present(START, 10)).map(({ values }) => values.memory_bytes)).toEqual([
    800,
  ]);
});

test('points of a version without instances are those of the first one', async () => {
  const { stores, path, project, record, read } = await scene();
  await record(point(START));
  // As an earlier version writes them.
  await runOn(path, 'update usage_points set process = null, instance = null');
  expect(await read(MINUTES)).toEqual([point(START)]);
  const range = { project_id: project.id, step: MINUTES, from: START, to: START + DAY };
  expect(await stores.usage.read({ ...range, process: 'web', number: 1 }, 10)).toHaveLength(1);
  expect(await stores.usage.read({ ...range, number: 2 }, 10)).toEqual([]);
});

describe('the sum of the instances', () => {
  const two = (at: number, given: Partial<UsagePoint> = {}): UsagePoint =>
    point(at, { instance_id: 'i2', number: 2, ...given });
  const NOW = START + 10 * MINUTE;

  test('adds what is known, and its counters begin at the last start of a container', () => {
    const started = START + 1_000;
    const [sum, ...more] = sumsOf(
      [
        point(START, { cpu_seconds: 1, memory_limit: null }),
        two(START + 20_000, { cpu_seconds: 2, net_rx: null, started_at: started }),
      ],
      MINUTES,
      NOW,
    );
    expect(more).toEqual([]);
    expect(sum).toEqual({
      deployment_id: 'd1',
      process: 'web',
      number: null,
      at: START + 20_000,
      started_at: started,
      cpu_seconds: 3,
      throttled_seconds: null,
      memory_bytes: 200,
      memory_limit: 5e9,
      restarts: 0,
      oom_kills: 0,
      net_rx: 3e12,
      net_tx: 8,
    });
  });

  test('of one instance is its point', () => {
    const { instance_id: _, ...only } = point(START);
    expect(sumsOf([point(START)], MINUTES, START)).toEqual([only]);
  });

  test.each([
    ['while it can still come', START + MINUTE + 40_000, [2]],
    ['after its minute', START + 2 * MINUTE, [2, 1]],
  ])('a minute in which an instance has no point %s', (_, now, counts) => {
    const points = [point(START), two(START + 20_000), point(START + MINUTE)];
    const memory = sumsOf(points, MINUTES, now).map(({ memory_bytes }) => memory_bytes);
    expect(memory).toEqual(counts.map((count) => count * 100));
  });
});
