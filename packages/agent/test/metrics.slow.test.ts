/**
 * The agent's Prometheus metrics: names that promtool accepts, fixed label values, and no slow work
 * during a scrape.
 */
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { createClient } from '@berth/wire/client';
import { checkMetrics, noPromtool } from '@berth/testbed/promtool';
import { waitFor } from '@berth/testbed/wait';
import type { NodeDisk } from '@berth/wire/node';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createDiskUse } from '../src/disk/disk-use.ts';
import { createMetrics, type Metrics } from '../src/metrics.ts';
import { runTask } from '../src/tasks/run-task.ts';
import { pause } from '../src/stopped.ts';
import type { Handler, Product } from '../src/tasks/task.ts';
import { TaskFailure } from '../src/failures.ts';
import { ensureCached, startShare, startSite } from './data/share.ts';
import { buildTask, type FakeControlPlane, startFakeControlPlane } from './fake-control-plane.ts';

let plane: FakeControlPlane;
beforeAll(async () => {
  plane = await startFakeControlPlane({ leaseMs: 3_000 });
});
afterAll(() => plane.stop());

const DISK: NodeDisk = {
  datasets: 1_000,
  images: 2_000,
  build_cache: 300,
  other: 40,
  free: 5_000,
  total: 8_340,
};
const create = (disk: NodeDisk | null = DISK, engineOk: boolean | null = true): Metrics =>
  createMetrics(
    {
      version: '1.2.3',
      role: 'builder',
      disk: () => disk,
      engineOk: () => engineOk,
      usage: () => [],
    },
    { processMetrics: true },
  );
const scrape = async (metrics: Metrics): Promise<string> => (await metrics.render()).text;
const value = (text: string, series: string): number | undefined => {
  const line = text.split('\n').find((l) => l.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
};

const copied = (text: string, outcome: string): unknown => ({
  copies: value(text, `berth_agent_copy_duration_seconds_count{outcome="${outcome}"}`),
  bytes: value(text, `berth_agent_copy_bytes_sum{outcome="${outcome}"}`),
});

/** Runs one build with this handler. Returns the run and the control plane’s state of the task. */
function build(metrics: Metrics, handler: Handler<'build'>) {
  const state = plane.give(buildTask({}));
  const none = (): Promise<Product> => Promise.reject(new Error('not here'));
  const handlers = {
    build: handler,
    deploy: none,
    retire: none,
    sync: none,
    look: none,
    clean: none,
    move: none,
    run: none,
  };
  const client = createClient({ baseUrl: plane.url });
  return {
    state,
    run: runTask(state.task, { client, handlers, log: silentLogger(), meter: metrics }),
  };
}
const product: Product = {
  report: { status: 'completed', image_tag: 'r/app:1' },
  discard: async () => undefined,
};
const forever: Handler<'build'> = async (_, { signal }) => {
  await pause(60_000, signal);
  return product;
};

it.skipIf(noPromtool !== '')(`promtool check metrics${noPromtool}`, async () => {
  const metrics = create();
  metrics.registered();
  metrics.copyEnded({ outcome: 'completed', bytes: 1, ms: 1 });
  metrics.taskBegan('build')('completed');
  expect(checkMetrics(await scrape(metrics))).toEqual([]);
});

it('counters and only counters end in `_total`, and each metric has a help text', async () => {
  const text = await scrape(create());
  const types = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = '', type = '']) => ({
    name,
    type,
  }));
  expect(types.length).toBeGreaterThan(20);
  expect(
    types.filter(({ name, type }) => (type === 'counter') !== name.endsWith('_total')),
  ).toEqual([]);
  expect(types.filter(({ name }) => !text.includes(`# HELP ${name} `))).toEqual([]);
});

it('docs/metrics.md names exactly the metrics of the agent', async () => {
  const text = await scrape(create());
  const wanted = [...text.matchAll(/^# TYPE (berth_\S+) /gm)].map((m) => m[1] ?? '');
  const docs = await readFile(join(import.meta.dirname, '../../../docs/metrics.md'), 'utf8');
  const table = /^\| metric of an agent .*\n(?:\|.*\n?)+/m.exec(docs)?.[0] ?? '';
  const named = [...table.matchAll(/berth_\w+/g)].map((m) => m[0]);
  expect([...new Set(named)].toSorted()).toEqual(wanted.toSorted());
});

it('counts tasks by kind and outcome, and measures builds', async () => {
  const metrics = create();
  await build(metrics, () => Promise.resolve(product)).run.done;
  await build(metrics, () => Promise.reject(new TaskFailure('build_step_failed', 'RUN false'))).run
    .done;
  const given = build(metrics, forever);
  await waitFor(
    'the third runs',
    async () => value(await scrape(metrics), 'berth_agent_tasks_in_progress{kind="build"}') === 1,
  );
  given.run.stop('cancelled');
  await given.run.done;
  const away = build(metrics, forever);
  await waitFor(
    'the fourth runs',
    async () => value(await scrape(metrics), 'berth_agent_tasks_in_progress{kind="build"}') === 1,
  );
  away.run.stop('shutdown');
  await away.run.done;
  const text = await scrape(metrics);
  const ended = (outcome: string): number | undefined =>
    value(text, `berth_agent_tasks_finished_total{kind="build",outcome="${outcome}"}`);
  expect(['completed', 'failed', 'cancelled', 'shutdown', 'lost'].map(ended)).toEqual([
    1, 1, 1, 1, 0,
  ]);
  expect(value(text, 'berth_agent_tasks_in_progress{kind="build"}')).toBe(0);
  expect(value(text, 'berth_agent_tasks_finished_total{kind="deploy",outcome="completed"}')).toBe(
    0,
  );
  expect(value(text, 'berth_agent_build_duration_seconds_count{outcome="completed"}')).toBe(1);
  expect(value(text, 'berth_agent_build_duration_seconds_count{outcome="failed"}')).toBe(1);
  // A cancelled build does not count for the duration of builds.
  expect(text).not.toContain('berth_agent_build_duration_seconds_count{outcome="cancelled"}');
});

it('a task with a refused claim is not counted; a task with a refused report counts as lost', async () => {
  const metrics = create();
  const gone = { ...buildTask({}), id: 'nobody-knows-it' };
  const none = (): Promise<Product> => Promise.reject(new Error('not here'));
  const deps = {
    client: createClient({ baseUrl: plane.url }),
    handlers: {
      build: none,
      deploy: none,
      retire: none,
      sync: none,
      look: none,
      clean: none,
      move: none,
      run: none,
    },
  };
  expect(await runTask(gone, { ...deps, log: silentLogger(), meter: metrics }).done).toBe('lost');
  expect(
    value(await scrape(metrics), 'berth_agent_tasks_finished_total{kind="build",outcome="lost"}'),
  ).toBe(0);
  const { state, run } = build(metrics, async () => {
    state.token = 'a token of another attempt';
    return product;
  });
  expect(await run.done).toBe('lost');
  const text = await scrape(metrics);
  expect(value(text, 'berth_agent_tasks_finished_total{kind="build",outcome="lost"}')).toBe(1);
  expect(value(text, 'berth_agent_tasks_finished_total{kind="build",outcome="completed"}')).toBe(0);
});

it('an unknown kind of task counts as other', async () => {
  const metrics = create();
  metrics.taskBegan('polish')('failed');
  metrics.taskBegan('varnish')('failed');
  const text = await scrape(metrics);
  expect(value(text, 'berth_agent_tasks_finished_total{kind="other",outcome="failed"}')).toBe(2);
  expect(text).not.toMatch(/polish|varnish/);
});

it('reports the last count of the disks without unknown parts', async () => {
  const text = await scrape(create());
  expect(
    Object.keys(DISK).map((use) => value(text, `berth_agent_disk_bytes{use="${use}"}`)),
  ).toEqual([1_000, 2_000, 300, 40, undefined, undefined]);
  expect(value(text, 'berth_agent_disk_free_bytes')).toBe(5_000);
  expect(value(text, 'berth_agent_disk_size_bytes')).toBe(8_340);
  const partly = await scrape(create({ ...DISK, images: null, other: null }));
  expect(partly).toContain('berth_agent_disk_bytes{use="datasets"} 1000');
  expect(partly).not.toMatch(/use="(images|other)"/);
  expect(await scrape(create(null))).not.toMatch(/^berth_agent_disk/m);
});

it('a scrape starts no count of the disks', async () => {
  let counts = 0;
  const use = createDiskUse({
    folders: ['/'],
    datasets: () => 0,
    engine: async () => {
      counts += 1;
      return {
        root: null,
        images: 1,
        build_cache: 1,
        build_cache_unused: 1,
        candidates: [],
        disk: null,
      };
    },
    onFirst: () => undefined,
    log: silentLogger(),
  });
  const metrics = createMetrics(
    { version: '1', role: 'deploy', disk: use.last, engineOk: () => true, usage: () => [] },
    { processMetrics: false },
  );
  for (let i = 0; i < 3; i++) await scrape(metrics);
  expect(counts).toBe(0);
  use.now();
  await waitFor(
    'a registration has counted',
    async () => value(await scrape(metrics), 'berth_agent_disk_bytes{use="images"}') === 1,
  );
  expect(counts).toBe(1);
  await use.stop();
});

it('reports failed registrations and the age of the last successful one', async () => {
  const metrics = create();
  let text = await scrape(metrics);
  expect(value(text, 'berth_agent_registrations_failed_total')).toBe(0);
  expect(value(text, 'berth_agent_last_registration_age_seconds')).toBe(-1);
  metrics.registrationFailed();
  metrics.registered();
  text = await scrape(metrics);
  expect(value(text, 'berth_agent_registrations_failed_total')).toBe(1);
  expect(value(text, 'berth_agent_last_registration_age_seconds')).toBeGreaterThanOrEqual(0);
  expect(value(text, 'berth_agent_last_registration_age_seconds')).toBeLessThan(10);
});

it('a copy is measured once, however many tasks wait for it; a cached version is not measured', async () => {
  const metrics = create();
  const share = await startShare();
  const site = await startSite(share, { onCopyEnded: metrics.copyEnded });
  await share.write('set/a', 'x'.repeat(3_000));
  await share.write('set/b', 'y'.repeat(96));
  const set = await share.dataset('set');
  for (const version of await Promise.all([ensureCached(site, set), ensureCached(site, set)]))
    version.release();
  (await ensureCached(site, set)).release();
  await site.data.stop();
  await share.stop();
  const text = await scrape(metrics);
  expect(copied(text, 'completed')).toEqual({ copies: 1, bytes: 3_096 });
  expect(copied(text, 'failed')).toEqual({ copies: 0, bytes: 0 });
});

it('failed and cancelled copies are measured, each with its outcome', async () => {
  const metrics = create();
  const share = await startShare();
  const site = await startSite(share, { onCopyEnded: metrics.copyEnded });
  await share.write('set/a', 'x'.repeat(3_000));
  const set = await share.dataset('set');
  await rm(share.path('set'), { recursive: true });
  await expect(ensureCached(site, set)).rejects.toMatchObject({ code: 'dataset_unreachable' });
  expect(copied(await scrape(metrics), 'failed')).toMatchObject({ copies: 1 });
  await share.write('slow/a', 'z'.repeat(3_000));
  const slow = await share.dataset('slow');
  const leaving = new AbortController();
  const steps: string[] = [];
  const listener = {
    logLine: () => undefined,
    onProgress({ step }: { step: string }) {
      steps.push(step);
      if (step === 'copying') leaving.abort(new Error('the task was cancelled'));
    },
  };
  await expect(site.data.cache.ensure(slow.source, listener, leaving.signal)).rejects.toThrow(
    'the task was cancelled',
  );
  expect(steps).toContain('copying');
  expect(copied(await scrape(metrics), 'cancelled')).toMatchObject({ copies: 1 });
  expect(copied(await scrape(metrics), 'completed')).toEqual({ copies: 0, bytes: 0 });
  await site.data.stop();
  await share.stop();
});

it('reports copies, removed images, the engine state and the build info', async () => {
  const metrics = create();
  metrics.copyEnded({ outcome: 'completed', bytes: 1_000, ms: 2_500 });
  metrics.copyEnded({ outcome: 'completed', bytes: 24, ms: 10 });
  metrics.imageRemoved();
  const text = await scrape(metrics);
  expect(copied(text, 'completed')).toEqual({ copies: 2, bytes: 1_024 });
  expect(value(text, 'berth_agent_copy_duration_seconds_sum{outcome="completed"}')).toBeCloseTo(
    2.51,
  );
  expect(value(text, 'berth_agent_images_removed_total')).toBe(1);
  expect(value(text, 'berth_agent_engine_ok')).toBe(1);
  expect(text).toMatch(
    /^berth_agent_build_info\{version="1\.2\.3",role="builder",node="\d+\.\d+\.\d+"\} 1$/m,
  );
  expect(await scrape(create(DISK, false))).toContain('berth_agent_engine_ok 0\n');
  expect(await scrape(create(DISK, null))).not.toMatch(/^berth_agent_engine_ok /m);
});
