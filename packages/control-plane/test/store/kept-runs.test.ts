/** Which runs are kept, and which one is the newest, after the machine's clock was set back. */
import { beforeEach, expect, test } from 'vitest';
import type { AllStores } from '../../src/store/open.ts';
import { freshPath, NOW, open, projectIn } from './fixtures.ts';

const HOUR = 3_600_000;
let stores: AllStores;
let projectId: string;

beforeEach(async () => {
  stores = await open(freshPath());
  projectId = (await projectIn(stores, 'shop')).id;
});

/** Creates a run at a time of the machine's clock and of the uptime clock. */
const create = (id: string, wall: number, uptime: number, job: string | null = null) =>
  stores.runs.create(
    {
      id,
      project_id: projectId,
      job,
      trigger: 'person',
      command: ['true'],
      env: {},
      scheduled_for: null,
      timeout_seconds: 60,
      memory_bytes: null,
      cpus: null,
      retries: 0,
      created_by: null,
      queue_deadline_at: uptime,
    },
    wall,
  );
const succeed = (id: string) =>
  stores.runs.end(id, { status: 'succeeded', reason: null, error: null }, NOW);
const ids = async (): Promise<string[]> =>
  (await stores.runs.list(projectId, {}, { limit: 200, cursor: null })).items.map(({ id }) => id);

test('the newest 100 runs stay, whatever the clock says', async () => {
  for (let n = 0; n < 105; n += 1) {
    // From run 50 on, the clock is five hours behind.
    await create(`run-${n}`, NOW + n - (n < 50 ? 0 : 5 * HOUR), n);
    await succeed(`run-${n}`);
  }
  while ((await stores.runs.sweep()) > 0);
  const kept = await ids();
  expect(kept).toHaveLength(100);
  for (const n of [5, 50, 104]) expect(kept).toContain(`run-${n}`);
  for (const n of [0, 4]) expect(kept).not.toContain(`run-${n}`);
});

test('the open runs are in the order in which they were requested', async () => {
  await create('first', NOW, 1, 'report');
  await create('second', NOW - HOUR, 2, 'report');
  expect((await stores.runs.open()).map(({ id }) => id)).toEqual(['first', 'second']);
  expect((await stores.jobs.openRuns(projectId, 'report')).map(({ id }) => id)).toEqual([
    'first',
    'second',
  ]);
});

test('a job shows its newest run, and fails only if that has failed', async () => {
  await stores.jobs.create({
    project_id: projectId,
    name: 'report',
    schedule: '@daily',
    timezone: 'UTC',
    command: ['true'],
    enabled: true,
    overlap: 'skip',
    timeout_seconds: 60,
    memory_bytes: null,
    cpus: null,
    retries: 0,
    next_at: NOW,
    config_file: null,
    config_commit: null,
    created_by: null,
    created_at: NOW,
    updated_at: NOW,
  });
  await create('first', NOW, 1, 'report');
  await stores.runs.end('first', { status: 'failed', reason: null, error: null }, NOW);
  await create('second', NOW - HOUR, 2, 'report');
  await succeed('second');
  expect((await stores.jobs.lastRuns(projectId)).get('report')?.id).toBe('second');
  expect(await stores.jobs.failing()).toEqual([]);
});
