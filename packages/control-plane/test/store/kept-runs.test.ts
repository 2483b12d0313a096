/**
 * Which runs and which output are kept, and which run is the newest, also after the machine's clock
 * was set back.
 */
import { beforeEach, expect, test } from 'vitest';
import type { AllStores } from '../../src/store/open.ts';
import { newRun } from '../new-run.ts';
import { deploymentIn, freshPath, NOW, open, projectIn } from './fixtures.ts';

const HOUR = 3_600_000;
let stores: AllStores;
let projectId: string;

beforeEach(async () => {
  stores = await open(freshPath());
  projectId = (await projectIn(stores, 'shop')).id;
});

/** Creates a run at a time of the machine's clock and of the uptime clock. */
const create = (id: string, wall: number, uptime: number, job: string | null = null) =>
  stores.runs.create(newRun({ id, project_id: projectId, job, queue_deadline_at: uptime }), wall);
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
    devices: null,
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

test('the output of old runs counts in KEEP_LOG_BYTES, and goes first', async () => {
  const printed = { stream: 'stdout' as const, text: 'x'.repeat(1_000) };
  for (let n = 0; n < 8; n += 1) {
    await create(`run-${n}`, NOW - n * HOUR, n);
    const source = { task_id: `task-${n}`, attempt: 1, first: 0 };
    const lines = Array.from({ length: 300 }, () => printed);
    await stores.runs.appendLog(`run-${n}`, source, lines, NOW);
    if (n !== 0) await succeed(`run-${n}`);
  }
  const limitTo = async (logBytes: number): Promise<void> => {
    const pass = await stores.retention.begin(
      { deployments: 1, ms: 1e12, logBytes },
      () => NOW + HOUR,
    );
    while ((await pass.next()).done !== true);
  };
  const kept = async (): Promise<string[]> => {
    const logs = await Promise.all(
      [0, 1, 2, 3, 4, 5, 6, 7].map((n) => stores.runs.readLog(`run-${n}`, 0, 1_000)),
    );
    return logs.map((lines) => `${lines.length} ${lines[0]?.text.slice(0, 37) ?? ''}`);
  };
  const whole = `300 ${'x'.repeat(37)}`;
  const removed = '1 the output of this run was removed, b';
  await limitTo(10_000_000);
  expect(await kept()).toEqual(Array.from({ length: 8 }, () => whole));
  // Room for six of the eight.
  await limitTo(6.5 * 300 * 1_180);
  expect(await kept(), 'run 0 has not ended').toEqual([
    whole,
    removed,
    removed,
    ...Array.from({ length: 5 }, () => whole),
  ]);
  await limitTo(0);
  expect(await kept()).toEqual([whole, ...Array.from({ length: 7 }, () => removed)]);
});

test('the time of the last line of a release command is kept, and that of other steps is not', async () => {
  const { id: deployment } = await deploymentIn(stores, await stores.projects.get(projectId), 'd1');
  const at = (n: number): string => `2026-11-28T01:00:00.00000000${n}Z`;
  const out = (n: number) => ({ at: at(n), stream: 'stdout' as const, text: `line ${n}` });
  const append = (task_id: string, first: number, keepsTime: boolean, n: number) =>
    stores.logs.append(deployment, { task_id, attempt: 1, first, keepsTime }, [out(n)], NOW);
  await append('build', 0, false, 9);
  expect(await stores.logs.loggedUntil(deployment)).toBeNull();
  await append('release', 0, true, 1);
  await append('release', 1, true, 2);
  await append('again', 0, true, 3);
  expect(await stores.logs.loggedUntil(deployment)).toBe(at(3));
});
