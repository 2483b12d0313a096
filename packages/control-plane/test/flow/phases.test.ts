import { expect, test } from 'vitest';
import type { PhaseRecord } from '../../src/domain/platform/records.ts';
import { begin, built, end, phasesAfter, started } from '../../src/flow/phases.ts';

const row = (
  name: PhaseRecord['name'],
  started_at: number,
  ended_at: number | null,
): PhaseRecord => ({ name, started_at, ended_at });
const BUILT = [row('queue', 0, 10), row('build', 10, 20), row('place', 20, 30)];

test('phases stay unknown for a deployment of an earlier version', () => {
  expect([
    begin(null, 'build', 1),
    end(null, 1),
    phasesAfter({ phases: null, status: 'pending' }, 'building', 1),
    built(null, { started_at: 1 }),
    started(null, { started_at: 1, progress: null }, 2),
  ]).toEqual([null, null, null, null, null]);
});

test('the wait until the builder claims the task belongs to the queue', () => {
  expect(built([row('queue', 0, 10), row('build', 10, null)], { started_at: 14 })).toEqual([
    row('queue', 0, 14),
    row('build', 14, null),
  ]);
});

test('copies are a phase if the agent reported their end', () => {
  expect(started(BUILT, { started_at: 31, progress: null }, 50)).toEqual([
    ...BUILT,
    row('start', 31, 50),
  ]);
  expect(started(BUILT, { started_at: 31, progress: { datasets: [], copied_at: 40 } }, 50)).toEqual(
    [...BUILT, row('copy', 31, 40), row('start', 40, 50)],
  );
});

test('a task without an answering container ended during copy or start', () => {
  const failed = (progress: Parameters<typeof started>[1]['progress']) =>
    started(BUILT, { started_at: 31, progress }, 50, false);
  const copying = { dataset_id: 's', name: 'set', version: 1, step: 'copying' as const };
  const figures = {
    bytes_done: 1,
    bytes_total: 2,
    bytes_per_second: null,
    remaining_seconds: null,
  };
  expect(failed({ datasets: [{ ...copying, ...figures }] })).toEqual([
    ...BUILT,
    row('copy', 31, 50),
  ]);
  expect(failed({ datasets: [], copied_at: 40 })).toEqual([
    ...BUILT,
    row('copy', 31, 40),
    row('start', 40, 50),
  ]);
  expect(failed(null)).toEqual([...BUILT, row('start', 31, 50)]);
});

test('a contract-only agent reports no copy and start', () => {
  expect(started(BUILT, { started_at: null, progress: null }, 50)).toEqual(BUILT);
});

test('reassigned work has the phases of its last attempt', () => {
  const routed = [...BUILT, row('start', 30, 40), row('route', 40, null)];
  expect(phasesAfter({ phases: routed, status: 'deploying' }, 'built', 60)).toEqual([
    ...BUILT.slice(0, 2),
    row('place', 20, null),
  ]);
  const building = [row('queue', 0, 10), row('build', 10, null)];
  expect(phasesAfter({ phases: building, status: 'building' }, 'pending', 60)).toEqual([
    row('queue', 0, null),
  ]);
});
