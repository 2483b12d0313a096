/**
 * Steps of a deployment from the answers of the API: the reason for a node, the progress of a copy,
 * the end of the old version.
 */
import type { Deployment } from '@berth/wire/deployment';
import type { PlacementRow } from '@berth/wire/node';
import { describe, expect, test } from 'vitest';
import { placeText, stepsOf } from '../src/deploy/steps.ts';

const at = (second: number): string =>
  new Date(Date.UTC(2026, 10, 23, 10, 0, second)).toISOString();
const GIB = 1024 ** 3;
const row = (hostname: string, given: Partial<PlacementRow> = {}): PlacementRow => ({
  node_id: hostname,
  hostname,
  eligible: true,
  reason: null,
  cached_dataset_count: 0,
  missing_bytes: 0,
  free_storage_bytes: 100 * GIB,
  score: 900,
  estimated_seconds: null,
  ...given,
});
const stations = {
  dataset_id: 's',
  name: 'stations',
  mode: 'dependency',
  version: 3,
  current_version: 3,
  moved_on: false,
} as const;
const deployment = (given: Partial<Deployment>): Deployment =>
  ({
    id: 'd2',
    generation: 2,
    status: 'deploying',
    error: null,
    waiting: null,
    rollback_of: null,
    commit: '4f1d2c3b5a697887766554433221100ffeeddccb',
    commit_message: 'Add the checkout page\n\nmore',
    phases: [],
    node_id: 'node-1',
    host_ip: '10.0.0.7',
    host_port: 32_001,
    datasets: [],
    progress: null,
    events: [],
    placement: null,
    created_at: at(0),
    finished_at: null,
    ...given,
  }) as Deployment;
const steps = (given: Partial<Deployment>, old: Deployment | null = null, drains = false) =>
  stepsOf({ deployment: deployment(given), old, drains });

describe('why this node', () => {
  test.each([
    ['the only node', [row('node-1')], [], 'node-1: the only node'],
    [
      'others are refused',
      [row('node-1'), row('node-2', { eligible: false, reason: 'offline' })],
      [],
      'node-1: the only node that can take it',
    ],
    [
      'cached data',
      [row('node-1', { cached_dataset_count: 1 }), row('node-2', { missing_bytes: 3 * GIB })],
      [stations],
      'node-1: it has 1 of 1 dataset, 0 B to copy; the next node would copy 3.0 GiB',
    ],
    [
      'free storage',
      [row('node-1'), row('node-2', { free_storage_bytes: GIB })],
      [],
      'node-1: most free storage of 2 nodes (100 GiB)',
    ],
    [
      'the score alone',
      [row('node-1', { score: 910 }), row('node-2', { free_storage_bytes: 200 * GIB, score: 905 })],
      [],
      'node-1: score 910.0, the next node 905.0',
    ],
  ])('%s', (_, items, datasets, text) => {
    expect(
      placeText(deployment({ placement: { items, winner: 'node-1' }, datasets: [...datasets] })),
    ).toBe(text);
  });
});

// The control plane ends the phase `place` when it assigns the task; earlier versions of the
// command assumed that it stays open.
test.each([at(2), null])(
  'a copy shows bytes, rate and time left, although the agent reports the phase only at its end (%s)',
  (ended_at) => {
    const copying = {
      dataset_id: 's',
      name: 'stations',
      version: 3,
      step: 'copying',
      bytes_done: GIB,
      bytes_total: 4 * GIB,
      bytes_per_second: GIB / 8,
      remaining_seconds: 24,
    } as const;
    const found = steps({
      datasets: [stations],
      progress: { datasets: [copying] },
      phases: [{ name: 'place', started_at: at(1), ended_at }],
      events: [{ at: at(2), kind: 'deploying', message: 'assigned to node-1' }],
    });
    expect(found.map((s) => [s.name, s.state])).toEqual([
      ['place', 'done'],
      ['copy', 'running'],
    ]);
    expect(found.at(-1)).toMatchObject({
      detail: 'stations v3',
      live: '1.0 GiB of 4.0 GiB, 128 MiB/s, 24 s left',
    });
  },
);

test('while no container answers, the step says which node has the task, and whether it took it', () => {
  const phases = [{ name: 'place', started_at: at(1), ended_at: at(2) } as const];
  const assigned = { at: at(2), kind: 'deploying', message: 'assigned to node-1 (10.0.0.7)' };
  const taken = { at: at(3), kind: 'task_claimed', message: 'node-1 took the deployment' };
  expect(steps({ phases, events: [assigned] }).at(-1)).toMatchObject({
    name: 'start',
    state: 'running',
    detail: assigned.message,
  });
  expect(steps({ phases, events: [assigned, taken] }).at(-1)).toMatchObject({
    name: 'start',
    state: 'running',
    detail: taken.message,
  });
});

test('a deployment that waits says why, and a failure marks the step in which it happened', () => {
  const queue = { name: 'queue', started_at: at(0), ended_at: null } as const;
  expect(
    steps({ status: 'pending', waiting: 'no builder is online', phases: [queue] }),
  ).toMatchObject([{ name: 'build', state: 'running', detail: 'waiting: no builder is online' }]);
  const failed = steps({
    status: 'failed',
    error: { code: 'build_failed', message: 'x' },
    phases: [
      { ...queue, ended_at: at(1) },
      { name: 'build', started_at: at(1), ended_at: at(2) },
    ],
    finished_at: at(2),
  });
  expect(failed).toMatchObject([{ name: 'build', state: 'failed', detail: 'build_failed' }]);
});

describe('drain', () => {
  const live = { status: 'running', finished_at: at(10) } as const;
  const event = (kind: string, second: number) => ({
    at: at(second),
    kind,
    message: `${kind} happened`,
  });

  test('ends with the report about the old version, on its own node if it ran on another one', () => {
    expect(steps({ ...live, events: [] }, null, true).at(-1)).toMatchObject({
      name: 'drain',
      state: 'running',
    });
    expect(steps({ ...live, events: [event('retire_done', 12)] }, null, true).at(-1)).toMatchObject(
      { state: 'done' },
    );
    // The name of the new container is no matter of the old version.
    const named = [event('retire_failed', 11)];
    expect(
      steps({ ...live, events: named }, deployment({ id: 'd1', events: [] }), true).at(-1),
    ).toMatchObject({ state: 'running' });
    expect(
      steps(
        { ...live, events: named },
        deployment({ id: 'd1', events: [event('retire_done', 13)] }),
        true,
      ).at(-1),
    ).toMatchObject({
      state: 'done',
    });
  });

  test('a report from before this deployment does not count, and a failure is told', () => {
    expect(steps({ ...live, events: [event('retire_done', 5)] }, null, true).at(-1)).toMatchObject({
      state: 'running',
    });
    expect(
      steps({ ...live, events: [event('retire_failed', 11)] }, null, true).at(-1),
    ).toMatchObject({
      state: 'failed',
      detail: 'retire_failed happened',
    });
  });
});
