/**
 * Metrics for Prometheus: names that promtool accepts, labels from fixed sets, and cheap scrapes.
 */
import { readFile } from 'node:fs/promises';
import { get, request } from 'node:http';
import { join } from 'node:path';
import { checkMetrics, noPromtool } from '@berth/testbed/promtool';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { leaseReaper } from '../../src/loops/lease-reaper.ts';
import { createWorld } from './deployed.ts';
import {
  type Api,
  createApi,
  createProject,
  deploy,
  register,
  tick,
  withBuild,
} from './harness.ts';

let api: Api;
beforeAll(async () => {
  api = await createApi({ overrides: { processMetrics: true } });
});
afterAll(() => api.close());

const scrape = async (from = api): Promise<string> => (await from.call('metrics')).text;
const value = (text: string, series: string): number | undefined => {
  const line = text.split('\n').find((l) => l.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
};

test.skipIf(noPromtool !== '')(`promtool check metrics${noPromtool}`, async () => {
  expect(checkMetrics(await scrape())).toEqual([]);
});

test('only counters end in `_total`, and each metric has a help text', async () => {
  const text = await scrape();
  const types = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = '', type = '']) => ({
    name,
    type,
  }));
  expect(types.length).toBeGreaterThan(30);
  expect(
    types.filter(({ name, type }) => (type === 'counter') !== name.endsWith('_total')),
  ).toEqual([]);
  expect(types.filter(({ name }) => !text.includes(`# HELP ${name} `))).toEqual([]);
});

test('docs/metrics.md names every metric of the control plane, and no other', async () => {
  const wanted = [...(await scrape()).matchAll(/^# TYPE (berth_\S+) /gm)].map((m) => m[1] ?? '');
  const docs = await readFile(join(import.meta.dirname, '../../../../docs/metrics.md'), 'utf8');
  const tables = docs.match(/^\| metric of the control plane .*\n(?:\|.*\n)+/gm) ?? [];
  const named = tables.join('').match(/berth_\w+/g) ?? [];
  expect(named.toSorted()).toEqual(wanted.toSorted());
});

test('a method that no route has gets no label value', async () => {
  const own = await createApi();
  const base = await own.listen();
  for (const method of ['PROPFIND', 'LOCK', 'GET'])
    await new Promise<void>((resolve, reject) => {
      const sent = request(`${base}/nowhere`, { method, agent: false }, (response) =>
        response.resume().on('end', () => resolve()),
      );
      sent.on('error', reject).end();
    });
  const text = await scrape(own);
  expect(text).not.toMatch(/PROPFIND|LOCK/);
  expect(
    value(
      text,
      'berth_http_request_duration_seconds_count{route="none",method="other",status="404"}',
    ),
  ).toBe(2);
  expect(
    value(
      text,
      'berth_http_request_duration_seconds_count{route="none",method="GET",status="404"}',
    ),
  ).toBe(1);
  await own.close();
});

test('only the datasets with the oldest scans have their own series', async () => {
  const own = await createApi();
  const all = Array.from({ length: 250 }, (_, i) => ({
    id: `s${i}`,
    name: `set-${i}`,
    status: 'ok' as const,
    last_scanned_at: i * 1000,
  }));
  own.stores.datasets.overview = () => Promise.resolve(all.toReversed());
  const text = await scrape(own);
  expect(value(text, 'berth_datasets{status="ok"}')).toBe(250);
  const told = [
    ...text.matchAll(/^berth_dataset_last_scan_timestamp_seconds\{dataset="(\S+)"\}/gm),
  ].map((m) => m[1]);
  expect([
    told.length,
    told.includes('set-0'),
    told.includes('set-199'),
    told.includes('set-200'),
  ]).toEqual([200, true, true, false]);
  await own.close();
});

test('the metrics have the version, the size of the database and the duration of its statements', async () => {
  const text = await scrape();
  expect(text).toMatch(/^berth_build_info\{version="\d+\.\d+\.\d+",node="\d+\.\d+\.\d+"\} 1$/m);
  expect(value(text, 'berth_database_bytes')).toBeGreaterThan(100_000);
  expect(value(text, 'berth_database_free_bytes')).toBeGreaterThanOrEqual(0);
  for (const operation of ['read', 'write', 'commit'])
    expect(
      value(text, `berth_database_query_duration_seconds_count{operation="${operation}"}`),
    ).toBeGreaterThan(0);
});

test('the metrics have the number, age and outcome of nodes, tasks and deployments', async () => {
  const own = await createApi();
  const { deployment, task, builder } = await withBuild(own);
  await register(own, { hostname: 'w1', role: 'deploy', free_storage: 5e9 });
  let text = await scrape(own);
  expect(value(text, 'berth_nodes{role="builder",status="online"}')).toBe(1);
  expect(value(text, 'berth_node_free_bytes{role="deploy",node="w1"}')).toBe(5e9);
  expect(value(text, 'berth_tasks_open{kind="build",status="pending"}')).toBe(1);
  expect(value(text, 'berth_deployments{status="building"}')).toBe(1);
  expect(value(text, 'berth_deployments_running{health="unhealthy"}')).toBe(0);
  own.pass(20_000);
  expect(
    value(await scrape(own), 'berth_tasks_oldest_pending_seconds{kind="build"}'),
  ).toBeGreaterThanOrEqual(20);

  const lease = (await own.call('agentStart', { params: { id: task } })).json[
    'lease_token'
  ] as string;
  own.pass(7_000);
  await own.call('agentComplete', {
    params: { id: task },
    body: {
      status: 'failed',
      result: { error: { code: 'build_step_failed', message: 'RUN false' } },
    },
    headers: { 'x-lease-token': lease },
  });
  expect((await own.stores.deployments.get(deployment)).status).toBe('failed');
  text = await scrape(own);
  expect(
    value(text, 'berth_deployments_settled_total{outcome="failed",code="build_step_failed"}'),
  ).toBe(1);
  expect(value(text, 'berth_task_duration_seconds_count{kind="build",end="failed"}')).toBe(1);
  expect(
    value(text, 'berth_task_duration_seconds_sum{kind="build",end="failed"}'),
  ).toBeGreaterThanOrEqual(7);
  expect(value(text, 'berth_tasks_open{kind="build",status="pending"}')).toBe(0);
  expect(value(text, 'berth_tasks_oldest_pending_seconds{kind="build"}')).toBe(0);
  own.pass(300_000);
  expect(value(await scrape(own), 'berth_nodes{role="builder",status="offline"}')).toBe(1);
  void builder;
  await own.close();
});

test('copies of a deployment have a duration, also failed ones', async () => {
  const own = await createApi();
  const world = await createWorld(own);
  const series = (part: string, labels: string): string =>
    `berth_deployment_phase_duration_seconds_${part}{${labels}}`;
  const deployed = async (
    name: string,
    end: Record<string, unknown>,
    step: 'copying' | 'done',
  ): Promise<string> => {
    const id = await deploy(own, await createProject(own, { name, domain_prefix: name }));
    await tick(own, id);
    await world.built();
    await tick(own, id);
    const [task] = (await own.call('agentTasks', { query: { node_id: world.home } }))
      .json as unknown as { id: string }[];
    const params = { id: task?.id ?? '' };
    const headers = {
      'x-lease-token': String((await own.call('agentStart', { params })).json['lease_token']),
    };
    own.pass(30_000);
    const copy = {
      dataset_id: 's',
      name: 'set',
      version: 1,
      step,
      bytes_done: 5,
      bytes_total: 9,
      bytes_per_second: 1,
      remaining_seconds: 4,
    };
    await own.call('agentProgress', { params, body: { datasets: [copy] }, headers });
    own.pass(10_000);
    await own.call('agentComplete', { params, body: end, headers });
    return id;
  };
  const error = { code: 'dataset_copy_failed', message: 'the share went away' };
  const failed = await deployed('shop', { status: 'failed', result: { error } }, 'copying');
  expect((await own.stores.deployments.get(failed)).status).toBe('failed');
  const live = await deployed('mill', { status: 'completed', host_port: 32_001 }, 'done');
  await own.driver.advance(live, {
    type: 'route_confirmed',
    host_ip: '10.0.0.7',
    host_port: 32_001,
  });
  const text = await scrape(own);
  expect(value(text, series('count', 'phase="copy",outcome="failed"'))).toBe(1);
  expect(Math.round(value(text, series('sum', 'phase="copy",outcome="failed"')) ?? 0)).toBe(40);
  expect(value(text, series('count', 'phase="copy",outcome="completed"'))).toBe(1);
  expect(Math.round(value(text, series('sum', 'phase="copy",outcome="completed"')) ?? 0)).toBe(30);
  expect(value(text, series('count', 'phase="build",outcome="completed"'))).toBe(2);
  expect(value(text, series('count', 'phase="route",outcome="completed"'))).toBe(1);
  if (noPromtool === '') expect(checkMetrics(text)).toEqual([]);
  await own.close();
});

test('an expired lease is counted', async () => {
  const lost: unknown[] = [];
  const task = { id: 't', kind: 'build', node_id: 'n', deployment_id: null };
  const quiet = { warn: () => undefined, error: () => undefined };
  const deps = {
    tasks: { overdue: () => Promise.resolve([{ task, why: 'lease' }]) },
    uptime: { now: () => Promise.resolve(0) },
    telemetry: { emit: (measured: unknown) => lost.push(measured) },
    now: () => 0,
    log: quiet,
  };
  await leaseReaper(deps as unknown as Parameters<typeof leaseReaper>[0])(
    new AbortController().signal,
  );
  expect(lost).toEqual([{ what: 'task lost', kind: 'build', why: 'lease' }]);
  expect(value(await scrape(), 'berth_tasks_lost_total{kind="build",why="lease"}')).toBe(0);
});

test('wrong passwords and limited requests are counted by route, for any account', async () => {
  for (let i = 0; i < 12; i++)
    await api.call('login', { body: { email: 'nobody1@example.com', password: 'wrong password' } });
  const text = await scrape();
  expect(value(text, 'berth_sign_in_failures_total{route="login",status="401"}')).toBeGreaterThan(
    0,
  );
  expect(value(text, 'berth_http_requests_limited_total{route="login"}')).toBeGreaterThan(0);
  expect(text).not.toContain('nobody1');
});

test('a held request does not count as a slow one', async () => {
  const own = await createApi();
  const base = await own.listen();
  const { deployment } = await withBuild(own);
  await own.call('cancelDeployment', { params: { id: deployment } });
  await new Promise<void>((resolve, reject) => {
    const headers = { accept: 'text/event-stream', authorization: `Bearer ${own.token('viewer')}` };
    get(`${base}/api/deployments/${deployment}/logs`, { agent: false, headers }, (response) => {
      response.resume().on('end', () => resolve());
    }).on('error', reject);
  });
  const held = 'berth_http_held_duration_seconds_count{route="deploymentLogs"}';
  await expect.poll(async () => value(await scrape(own), held)).toBe(1);
  expect(await scrape(own)).not.toContain(
    'berth_http_request_duration_seconds_count{route="deploymentLogs"',
  );
  await own.close();
});

test('many ended deployments are counted in pages', async () => {
  const { createStatusCounts } = await import('../../src/store/status-counts.ts');
  const { openDatabase } = await import('../../src/store/engine/database.ts');
  const db = await openDatabase(
    'sqlite::memory:',
    { info: () => undefined, warn: () => undefined },
    () => 0,
  );
  const { sql } = await import('kysely');
  await sql`pragma foreign_keys = off`.execute(db.kysely);
  await sql`insert into deployments (id, project_id, generation, status, settings, domain_prefix, losses, created_at, state_since)
    with recursive n(i) as (select 1 union all select i + 1 from n where i < 4500)
    select 'd' || i, 'p', i, case when i > 4490 then 'building' when i % 9 = 0 then 'failed' else 'retired' end, '{}', 'x', '[]', i / 7, 0 from n`.execute(
    db.kysely,
  );
  let statements = 0;
  db.onQuery((operation) => void (operation === 'read' && statements++));
  const counts = createStatusCounts(db.kysely);
  expect(Object.fromEntries(await counts())).toEqual({ retired: 3_992, failed: 498, building: 10 });
  const first = statements;
  await counts();
  // Ended deployments are not counted again at each scrape.
  expect([first > 5, statements - first]).toEqual([true, 1]);
  await db.close();
});
