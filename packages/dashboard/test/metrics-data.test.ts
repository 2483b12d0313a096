/** The lines of the charts: rates of counters, gaps, restarts, and two containers at a time. */
import { describe, expect, test } from 'vitest';
import type { MetricPoint } from '@berth/wire/metrics';
import { instanceNumbers, linesOf, rowsOf, summaryOf } from '../src/pages/project/metrics-data.ts';

const BEGIN = Date.parse('2026-11-24T12:00:00Z');
const time = (second: number): string => new Date(BEGIN + second * 1_000).toISOString();
const START = time(-3_600);
const point = (second: number, given: Partial<MetricPoint> = {}): MetricPoint => ({
  at: time(second),
  deployment_id: 'a',
  started_at: START,
  cpu_seconds: null,
  throttled_seconds: null,
  memory_bytes: null,
  memory_limit: null,
  restarts: 0,
  oom_kills: 0,
  net_rx: null,
  net_tx: null,
  ...given,
});
const lines = (...points: MetricPoint[]) => linesOf({ points, step_seconds: 60 });

test('no points are no lines', () => expect(lines()).toMatchObject({ at: [], cpu: [] }));

describe('rates of counters', () => {
  const cpu = (...given: [second: number, value: number | null, started?: string | null][]) =>
    lines(
      ...given.map(([second, cpu_seconds, started_at = START]) =>
        point(second, { cpu_seconds, started_at }),
      ),
    ).cpu;
  test.each([
    ['a steady load', cpu([0, 10], [60, 40], [120, 70]), [null, 0.5, 0.5]],
    ['points that are not exactly a minute apart', cpu([0, 10], [63, 41.5]), [null, 0.5]],
    [
      'a gap: no rate over it, and none is invented',
      cpu([0, 10], [60, 40], [300, 400], [360, 430]),
      [null, 0.5, null, null, null, null, 0.5],
    ],
    [
      'a value that the node could not read',
      cpu([0, 10], [60, null], [120, 70]),
      [null, null, null],
    ],
    [
      'a restart: the counter began at 0 when the container started',
      cpu([0, 100], [60, 10, time(40)]),
      [null, 0.5],
    ],
    [
      'a restart with a counter that is higher than before',
      cpu([0, 1], [60, 10, time(40)]),
      [null, 0.5],
    ],
    [
      'a restart, by a node whose clock is an hour behind',
      cpu([0, 100], [60, 10, time(-3_560)]),
      [null, null],
    ],
    ['a restart, by a node whose clock is ahead', cpu([0, 100], [60, 10, time(90)]), [null, null]],
    [
      'a counter that went back without a restart',
      cpu([0, 100, null], [60, 10, null]),
      [null, null],
    ],
    ['the first point of a container that has just started', cpu([30, 10, time(10)]), [0.5]],
    ['two points in one minute: the later one', cpu([0, 10], [60, 40], [110, 65]), [null, 0.5]],
  ])('%s', (_what, found, expected) => expect(found).toEqual(expected));
});

test('while a deployment switches, both containers count, each with its own counters', () => {
  const [old, next] = [
    [0, 60, 120].map((second) =>
      point(second, { cpu_seconds: 1_000 + second, memory_bytes: 300, memory_limit: 500 }),
    ),
    [70, 130].map((second) =>
      point(second, {
        deployment_id: 'b',
        started_at: time(50),
        cpu_seconds: (second - 50) / 2,
        memory_bytes: 100,
        memory_limit: 500,
      }),
    ),
  ];
  const found = lines(...[...old, ...next].toSorted((a, b) => a.at.localeCompare(b.at)));
  expect(found.cpu).toEqual([null, 1.5, 1.5]);
  expect(found.memory).toEqual([300, 400, 400]);
  expect(found.limit).toEqual([500, 1_000, 1_000]);
});

test('a container without a limit, and one that uses nothing', () =>
  expect(lines(point(0, { memory_bytes: 0 }))).toMatchObject({ memory: [0], limit: [null] }));

test('the summary and the rows of the table', () => {
  expect(summaryOf([0, 60, 120], [1, 5, null])).toEqual({ now: null, most: 5, mostAt: 60 });
  expect(summaryOf([0], [0])).toEqual({ now: 0, most: 0, mostAt: 0 });
  expect(summaryOf([0, 60], [null, null])).toBeNull();
  expect(rowsOf([0, 60, 120, 180, 240], [[1, 3, null, null, 2]], 3)).toEqual([
    { at: 0, values: [3] },
    { at: 120, values: [null] },
    { at: 240, values: [2] },
  ]);
  expect(rowsOf([], [[]], 3)).toEqual([]);
});

test.each([
  ['one instance: nothing to choose', [1, [1], null], [1]],
  ['the counted instances, before the deployment is known', [3, [], null], [1, 2, 3]],
  ['a replacement has a further number', [3, [1, 2, 4], null], [1, 2, 3, 4]],
  ['scaled down: the chosen one stays', [1, [1], 3], [1, 3]],
] as const)('the numbers of instances: %s', (_, [wanted, running, chosen], expected) =>
  expect(
    instanceNumbers(
      wanted,
      running.map((number) => ({ number })),
      chosen,
    ),
  ).toEqual(expected),
);
