/** Retention: the rows that it removes and keeps, and interruption at any point. */
import { expect, test } from 'vitest';
import type { DatasetMount } from '@berth/wire/dataset';
import type { Keep, Removed } from '../../src/domain/deployments/retention.ts';
import type { Facts } from '../../src/domain/deployments/facts.ts';
import type { ProjectRecord } from '../../src/domain/platform/records.ts';
import type { AllStores } from '../../src/store/open.ts';
import { refuseRelease } from '../../src/flow/release.ts';
import {
  commit,
  deploymentIn,
  freshPath,
  nodeIn,
  NOW,
  open,
  projectIn,
  rowsOf,
  routeOf,
  runOn,
  runsOf,
  taskOf,
  tasksIn,
  urlOf,
} from './fixtures.ts';

const DAY = 86_400_000;
const LATER = NOW + 1_000 * DAY;
const KEEP: Keep = { deployments: 2, ms: 90 * DAY, logBytes: 1e9 };
const ENV = { TOKEN: 'a-secret-of-old' };

async function pass(
  stores: AllStores,
  keep: Keep,
  at: number,
): Promise<Removed & { steps: number }> {
  const work = await stores.retention.begin(keep, () => at);
  for (let steps = 1; ; steps++) {
    const { done, value } = await work.next();
    if (done === true) return { ...value, steps };
  }
}

type Past = { at?: number; lines?: number; status?: 'retired' | 'failed'; image?: string | null };

/**
 * Makes a deployment that was built, ran on the node from `at` on, and was replaced a day later;
 * with a log of `lines` lines.
 */
async function ran(
  stores: AllStores,
  project: ProjectRecord,
  id: string,
  nodeId: string,
  { at = NOW, lines = 3, status = 'retired', image = `registry:5000/shop:${id}` }: Past = {},
): Promise<void> {
  const settings = { ...project, env: ENV };
  const {
    id: _i,
    name: _n,
    flow_version: _f,
    secrets_version: _s,
    last_generation: _l,
    ...record
  } = settings;
  const { deleting_at: _d, created_at: _c, updated_at: _u, ...rest } = record;
  const more = {
    settings: rest,
    image_tag: image,
    created_at: at,
    state_since: at,
    node_id: nodeId,
    builder_id: 'b',
  };
  await deploymentIn(stores, project, id, { ...more, status: 'deploying' });
  const deploy = taskOf(project, `deploy-${id}`, nodeId, { deployment_id: id, kind: 'deploy' });
  if (deploy.kind === 'deploy')
    deploy.payload = { ...deploy.payload, env: ENV, datasets: [] as DatasetMount[] };
  const build = taskOf(project, `build-${id}`, 'b', { deployment_id: id, kind: 'build' });
  await tasksIn(stores, project, build, deploy);
  const source = { task_id: `build-${id}`, attempt: 1, first: 0 };
  const text = (i: number): { stream: 'stdout'; text: string } => ({
    stream: 'stdout',
    text: `line ${i} of ${id}`,
  });
  await stores.logs.append(
    id,
    source,
    Array.from({ length: lines }, (_, i) => text(i)),
    at,
  );
  await commit(stores, project.id, {
    now: at + DAY,
    changeTasks: [
      { id: `build-${id}`, attempt: 0, end: 'completed', report: { status: 'completed' } },
      { id: `deploy-${id}`, attempt: 0, end: 'completed', report: { status: 'completed' } },
    ],
    changeDeployments: [
      {
        id,
        from: 'deploying',
        set: {
          status,
          state_since: at + DAY,
          finished_at: at,
          route_published_at: status === 'failed' ? null : at,
        },
      },
    ],
    storyLines: [
      { deployment_id: id, kind: 'pending', message: 'requested' },
      { deployment_id: id, kind: status, message: 'over' },
    ],
  });
}

const left = async (path: string) => {
  const tables = [
    'deployments',
    'deployment_events',
    'tasks',
    'log_lines',
    'log_heads',
    'log_marks',
    'nodes',
    'idempotency_keys',
  ];
  return Object.fromEntries(
    await Promise.all(tables.map(async (table) => [table, await rowsOf(path, table)] as const)),
  );
};
const of = (rows: Record<string, unknown>[] | undefined, id: string) =>
  (rows ?? []).filter((row) => row['deployment_id'] === id);

/** Makes five deployments that ended long ago and one that runs. */
async function history(path = freshPath()) {
  const stores = await open(path, () => LATER);
  const project = await projectIn(stores);
  const node = await nodeIn(stores, 'w1', { role: 'deploy' });
  for (let i = 1; i <= 5; i++)
    await ran(stores, await stores.projects.get(project.id), `d${i}`, node.id, {
      at: NOW + i * DAY,
    });
  await deploymentIn(stores, project, 'd6', {
    status: 'running',
    node_id: node.id,
    state_since: NOW + 6 * DAY,
  });
  await commit(stores, project.id, { route: { set: routeOf(project, 'd6', node.id) } });
  return { stores, project, node, path };
}

test('only the record stays of old deployments that are not among the newest', async () => {
  const { stores, path } = await history();
  expect(await pass(stores, KEEP, LATER)).toMatchObject({ thinned: 4, logs: 0, nodes: [] });
  const there = await left(path);
  for (const id of ['d1', 'd2', 'd3', 'd4']) {
    expect([
      id,
      of(there['log_lines'], id),
      of(there['log_heads'], id),
      of(there['log_marks'], id),
    ]).toEqual([id, [], [], []]);
    expect([id, of(there['deployment_events'], id)]).toEqual([id, []]);
    expect(of(there['tasks'], id)).toEqual([]);
    const record = await stores.deployments.get(id);
    expect(record).toMatchObject({
      log_removed_at: LATER,
      story_removed_at: LATER,
      placement: null,
      status: 'retired',
    });
    // The parts that a rollback needs.
    expect(record).toMatchObject({
      image_tag: `registry:5000/shop:${id}`,
      settings: { env: ENV, domain_prefix: 'shop' },
    });
  }
  // The newest two; one of them runs.
  expect(of(there['log_lines'], 'd5')).toHaveLength(3);
  expect(of(there['deployment_events'], 'd5')).toHaveLength(2);
  expect(of(there['tasks'], 'd5')).toHaveLength(2);
  expect(await stores.deployments.get('d5')).toMatchObject({
    log_removed_at: null,
    story_removed_at: null,
  });
  expect(await stores.deployments.get('d6')).toMatchObject({
    log_removed_at: null,
    story_removed_at: null,
  });
  // A second pass finds no work.
  expect(await pass(stores, KEEP, LATER)).toMatchObject({ thinned: 0, logs: 0, nodes: [] });
});

/** Makes copies of a deployment: `d1-1`, `d1-2` and so on, with generations from 10 on. */
async function copiesOf(path: string, id: string, count: number): Promise<void> {
  const [row] = (await rowsOf(path, 'deployments')).filter((d) => d['id'] === id);
  const names = Object.keys(row ?? {});
  const columns = names.map((name) => `"${name}"`).join(', ');
  const values = names
    .map((name) =>
      name === 'id' ? `id || '-' || i` : name === 'generation' ? '9 + i' : `"${name}"`,
    )
    .join(', ');
  const numbers = `with recursive n(i) as (select 1 union all select i + 1 from n where i < ${count})`;
  await runOn(
    path,
    `insert into deployments (${columns}) ${numbers} select ${values} from deployments, n ` +
      `where id = '${id}'`,
  );
}

test('the record of an old deployment takes 1.5 KB on disk, whatever the number of variables', async () => {
  const path = freshPath();
  const stores = await open(path, () => LATER);
  const env = Object.fromEntries(
    Array.from({ length: 20 }, (_, i) => [
      `VARIABLE_${i}`,
      `a value of forty characters or so, number ${i}`,
    ]),
  );
  const project = await projectIn(stores, 'shop', { env });
  const eligible = {
    eligible: true,
    reason: null,
    cached_dataset_count: 0,
    missing_bytes: 0,
    free_storage_bytes: 1e11,
  };
  const hosts = ['w1', 'w2', 'w3', 'w4'];
  const items = hosts.map((hostname) => ({
    ...eligible,
    node_id: `node-${hostname}`,
    hostname,
    score: 812.25,
    estimated_seconds: 12,
  }));
  const times = { created_at: NOW, state_since: NOW, finished_at: NOW, route_published_at: NOW };
  const image = {
    image_tag: `registry.test:5000/shop:${'ab'.repeat(20)}`,
    image_digest: `sha256:${'cd'.repeat(32)}`,
    commit: 'ab'.repeat(20),
  };
  await deploymentIn(stores, project, 'd1', {
    ...times,
    ...image,
    status: 'retired',
    placement: { items, winner: 'node-w1' },
  });
  const each = async (): Promise<number> => {
    if ((await urlOf(path)).startsWith('postgres'))
      await runOn(path, 'vacuum full deployments, kept_settings');
    const { bytes, free } = await stores.metrics.size();
    return bytes - free;
  };
  const empty = await each();
  await copiesOf(path, 'd1', 300);
  const whole = ((await each()) - empty) / 300;
  expect(whole).toBeGreaterThan(2_000);
  expect((await pass(stores, KEEP, LATER)).thinned).toBe(299);
  const record = ((await each()) - empty) / 300;
  expect(record).toBeLessThan(1_500);
  expect((await stores.deployments.get('d1-7')).settings).toEqual(
    (await stores.deployments.get('d1-300')).settings,
  );
});

test('equal settings of a project are stored once, each deployment keeps its settings, and they are deleted with the project', async () => {
  const { stores, project, node, path } = await history();
  const other = await projectIn(stores, 'other');
  for (const id of ['o1', 'o2', 'o3'])
    await ran(stores, await stores.projects.get(other.id), id, node.id);
  await pass(stores, KEEP, LATER);
  const settings = async (id: string) => (await stores.deployments.get(id)).settings;
  expect([(await settings('d1')).domain_prefix, (await settings('o1')).domain_prefix]).toEqual([
    'shop',
    'other',
  ]);
  expect((await rowsOf(path, 'kept_settings')).map((row) => row['project_id'])).toEqual(
    [project.id, other.id].toSorted(),
  );
  expect((await stores.deployments.getMany(['o1', 'd5', 'd1'])).map((d) => d.settings.env)).toEqual(
    [ENV, ENV, ENV],
  );
  await stores.projects.markDeleting(other.id, LATER);
  await expect.poll(() => stores.projects.removeIfGone(other.id)).toBe(true);
  expect((await rowsOf(path, 'kept_settings')).map((row) => row['project_id'])).toEqual([
    project.id,
  ]);
});

test('the previous version shows the record of a deployment with shared settings and refuses a rollback to it', async () => {
  const { stores, project, path } = await history();
  await pass(stores, KEEP, LATER);
  const row = (await rowsOf(path, 'deployments')).find((d) => d['id'] === 'd1');
  // The way that version reads it.
  const settings = JSON.parse(String(row?.['settings'])) as ProjectRecord;
  expect(settings).toMatchObject({
    domain_prefix: 'shop',
    drain_seconds: project.drain_seconds,
    stop_grace_seconds: 10,
  });
  const release = { ...(await stores.deployments.get('d1')), settings };
  const facts = { project, datasets: [], platform: { reservedPrefixes: [] } } as unknown as Facts;
  expect(() => refuseRelease(release, facts)).toThrow(
    'its dataset kept-by-a-newer-version-of-Berth was deleted',
  );
});

test.each([
  ['the newest of each project, however old', { deployments: 100, ms: DAY, logBytes: 1e9 }, LATER],
  [
    'what ended within KEEP_DEPLOYMENT_DAYS, however many came after it',
    { deployments: 1, ms: 90 * DAY, logBytes: 1e9 },
    NOW + 90 * DAY,
  ],
] as const)('%s: stays whole', async (_, keep, at) => {
  const { stores, path } = await history();
  const before = await left(path);
  expect(await pass(stores, keep, at)).toMatchObject({ thinned: 0, logs: 0 });
  expect(await left(path)).toEqual(before);
});

test('the env of a deployment without possible rollback is removed', async () => {
  const { stores, project, node, path } = await history();
  await ran(stores, await stores.projects.get(project.id), 'f1', node.id, {
    status: 'failed',
    image: null,
  });
  await ran(stores, await stores.projects.get(project.id), 'f2', node.id, {
    status: 'failed',
    image: null,
  });
  await ran(stores, await stores.projects.get(project.id), 'f3', node.id, {
    status: 'failed',
    image: null,
  });
  expect((await pass(stores, KEEP, LATER)).thinned).toBe(6);
  expect((await stores.deployments.get('f1')).settings).toMatchObject({
    env: {},
    git_url: project.git_url,
  });
  expect((await stores.deployments.get('f3')).settings.env).toEqual(ENV);
  const payloads = (await left(path))['tasks']?.map((task) => String(task['payload'])) ?? [];
  expect(payloads.filter((payload) => payload.includes(ENV.TOKEN))).toHaveLength(0);
});

/** Every table of the database. */
async function tablesOf(path: string): Promise<string[]> {
  const list = (await urlOf(path)).startsWith('postgres')
    ? `(select tablename as name, schemaname from pg_tables where schemaname = 'public') as t`
    : `(select name, type from sqlite_master where type = 'table') as t`;
  return (await rowsOf(path, list)).map((row) => String(row['name'])).toSorted();
}

/** Moves a variable into a secret. */
async function importToken(stores: AllStores, projectId: string): Promise<void> {
  const secret = {
    name: 'TOKEN',
    sealed: 'sealed',
    bytes: 15,
    fingerprint: 'f',
    scope: 'run',
    as: 'env',
    set_by: null,
  } as const;
  await stores.secrets.importEnv(
    projectId,
    'TOKEN',
    () => secret,
    LATER,
    () => undefined,
  );
}

test('an imported variable is in no table any more: neither in whole deployments nor in shared settings', async () => {
  const { stores, project, path } = await history();
  await stores.projects.patch(project.id, () => ({ env: { ...ENV, OTHER: 'stays' } }), LATER);
  // d5 stays whole; the settings of d1 to d4 are stored once.
  expect((await pass(stores, KEEP, LATER)).thinned).toBe(4);
  const ids = ['d1', 'd2', 'd3', 'd4', 'd5'];
  const places = async (): Promise<string[]> => {
    const tables = await tablesOf(path);
    const found = await Promise.all(
      tables.map(async (table) =>
        JSON.stringify(await rowsOf(path, `(select 1 as one, r.* from ${table} r) as t`)).includes(
          ENV.TOKEN,
        ),
      ),
    );
    return tables.filter((_, i) => found[i]);
  };
  expect(await places()).toEqual(['deployments', 'kept_settings', 'projects']);
  await importToken(stores, project.id);
  expect(await places()).toEqual([]);
  expect((await stores.projects.get(project.id)).env).toEqual({ OTHER: 'stays' });
  for (const d of await stores.deployments.getMany(ids))
    expect([d.id, d.settings.env, d.settings.domain_prefix]).toEqual([d.id, {}, 'shop']);
});

test('a variable that is set again after its import stays in the settings of later deployments', async () => {
  const { stores, project, node } = await history();
  await pass(stores, KEEP, LATER);
  await stores.projects.patch(project.id, () => ({ env: ENV }), LATER);
  await importToken(stores, project.id);
  await stores.secrets.remove(project.id, 'TOKEN', LATER, () => undefined);
  // The same settings as before the import.
  for (const id of ['e1', 'e2', 'e3'])
    await ran(stores, await stores.projects.get(project.id), id, node.id);
  await pass(stores, KEEP, LATER);
  const env = async (id: string) => (await stores.deployments.get(id)).settings.env;
  expect([await env('d1'), await env('e1')]).toEqual([{}, ENV]);
});

test('a stop-first project keeps how its work ended on each node', async () => {
  const path = freshPath();
  const stores = await open(path, () => LATER);
  const project = await projectIn(stores, 'shop', { replace: 'recreate' });
  const present = (): Promise<ProjectRecord> => stores.projects.get(project.id);
  const [first, second] = [
    await nodeIn(stores, 'w1', { role: 'deploy' }),
    await nodeIn(stores, 'w2', { role: 'deploy' }),
  ];
  await ran(stores, await present(), 'd1', first.id);
  // Withdrawn from an agent that had started it: what runs there is unknown.
  await deploymentIn(stores, await present(), 'd2', { status: 'deploying', node_id: second.id });
  await tasksIn(
    stores,
    await present(),
    taskOf(project, 'lost', second.id, { deployment_id: 'd2', kind: 'deploy' }),
  );
  await stores.tasks.claim('lost', { token: 't', expires_at: NOW }, NOW, 5);
  await commit(stores, project.id, {
    now: NOW + 5,
    changeTasks: [{ id: 'lost', attempt: 1, end: 'lost' }],
    changeDeployments: [{ id: 'd2', from: 'deploying', set: { status: 'failed' } }],
  });
  for (let i = 3; i <= 6; i++)
    await ran(stores, await present(), `d${i}`, first.id, { at: NOW + i * DAY });
  const { endedWork: before, lastBuilderId } = await stores.flow.facts(project.id);
  expect(before.find((w) => w.node_id === second.id)).toMatchObject({ unreported_at: NOW + 5 });
  expect((await pass(stores, KEEP, LATER)).thinned).toBe(4);
  const after = await stores.flow.facts(project.id);
  expect(after.endedWork).toEqual(before);
  expect(after.lastBuilderId).toBe(lastBuilderId);
  expect((await left(path))['tasks']?.map((task) => task['id']).toSorted()).toEqual([
    'build-d5',
    'build-d6',
    'deploy-d5',
    'deploy-d6',
    'lost',
  ]);
});

test('the next deployment has the next generation, and the list has every record once', async () => {
  const { stores, project } = await history();
  await pass(stores, { ...KEEP, logBytes: 0 }, LATER);
  const ids: string[] = [];
  for (let cursor: string | null = null; ; ) {
    const { items, next } = await stores.deployments.list(
      { project_id: project.id },
      { limit: 2, cursor },
    );
    ids.push(...items.map((d) => d.id));
    if (next === null) break;
    cursor = next;
  }
  expect(ids.toSorted()).toEqual(['d1', 'd2', 'd3', 'd4', 'd5', 'd6']);
  expect((await deploymentIn(stores, await stores.projects.get(project.id), 'd7')).generation).toBe(
    7,
  );
  expect((await stores.flow.facts(project.id)).live.map((d) => d.id)).toEqual(['d6', 'd7']);
});

test('all logs together stay below their limit: the oldest logs of the largest project are removed first', async () => {
  const stores = await open(freshPath(), () => LATER);
  const node = await nodeIn(stores, 'w1', { role: 'deploy' });
  const [large, small] = [await projectIn(stores, 'large'), await projectIn(stores, 'small')];
  for (let i = 1; i <= 4; i++) {
    await ran(stores, await stores.projects.get(large.id), `l${i}`, node.id, {
      at: NOW + i,
      lines: 100,
    });
    await ran(stores, await stores.projects.get(small.id), `s${i}`, node.id, {
      at: NOW + i - 10_000,
      lines: 10,
    });
  }
  await deploymentIn(stores, await stores.projects.get(large.id), 'runs', { status: 'running' });
  await stores.logs.append(
    'runs',
    { task_id: 'x', attempt: 1, first: 0 },
    [{ stream: 'stdout', text: 'x'.repeat(10_000) }],
    NOW,
  );
  const withLog = async (): Promise<string[]> => {
    const found: string[] = [];
    for (const id of ['l1', 'l2', 'l3', 'l4', 's1', 's2', 's3', 's4', 'runs'])
      if ((await stores.logs.read(id, 0, 1)).length > 0) found.push(id);
    return found;
  };
  // Within the retention time stories stay, and logs follow the limit.
  const keep = (logBytes: number): Keep => ({ deployments: 2, ms: 10_000 * DAY, logBytes });
  expect(await pass(stores, keep(100_000), LATER)).toMatchObject({ thinned: 0, logs: 0 });
  expect(await pass(stores, keep(80_000), LATER)).toMatchObject({ thinned: 0, logs: 1 });
  expect(await withLog()).toEqual(['l2', 'l3', 'l4', 's1', 's2', 's3', 's4', 'runs']);
  expect(await stores.deployments.get('l1')).toMatchObject({
    log_removed_at: LATER,
    story_removed_at: null,
  });
  expect((await stores.deployments.events(['l1'])).get('l1')).toHaveLength(2);
  // First all but the newest of each project, even of the smaller one; then those too. A running
  // deployment keeps its log.
  await pass(stores, keep(55_000), LATER);
  expect(await withLog()).toEqual(['l4', 's1', 's2', 's3', 's4', 'runs']);
  await pass(stores, keep(28_000), LATER);
  expect(await withLog()).toEqual(['s3', 's4', 'runs']);
  await pass(stores, keep(1), LATER);
  expect(await withLog()).toEqual(['runs']);
});

test('a batch after the removal of its log does not start a new log', async () => {
  const { stores } = await history();
  await pass(stores, KEEP, LATER);
  const again = { task_id: 'build-d1', attempt: 1, first: 3 };
  expect(await stores.logs.append('d1', again, [{ stream: 'stdout', text: 'late' }], LATER)).toBe(
    0,
  );
  expect(await stores.logs.read('d1', 0, 10)).toEqual([]);
});

test('retention that is interrupted anywhere and restarted has the same result, and no step removes more than a few hundred rows', async () => {
  const whole = await history();
  await ran(
    whole.stores,
    await whole.stores.projects.get(whole.project.id),
    'long',
    whole.node.id,
    { at: NOW - 9 * DAY, lines: 1_000 },
  );
  const keep = { ...KEEP, logBytes: 0 };
  const { steps } = await pass(whole.stores, keep, LATER);
  const shape = async (path: string) =>
    Object.fromEntries(
      Object.entries(await left(path)).map(([table, rows]) => [table, (rows as object[]).length]),
    );
  const end = await shape(whole.path);
  expect(end).toMatchObject({ log_lines: 0, log_heads: 0, deployments: 7 });
  expect(steps).toBeGreaterThan(5);

  const broken = await history();
  await ran(
    broken.stores,
    await broken.stores.projects.get(broken.project.id),
    'long',
    broken.node.id,
    {
      at: NOW - 9 * DAY,
      lines: 1_000,
    },
  );
  for (const killedAt of [1, 2, 3, 5, 8].slice(0, runsOf(5))) {
    const work = await broken.stores.retention.begin(keep, () => LATER);
    for (let i = 0, before = await shape(broken.path); i < killedAt; i++) {
      await work.next();
      const after = await shape(broken.path);
      for (const [table, count] of Object.entries(after))
        expect([table, (before[table] ?? 0) - count <= 200]).toEqual([table, true]);
      before = after;
      // A log that is partly removed never looks complete.
      for (const { id, log_removed_at } of (
        await broken.stores.deployments.list({}, { limit: 50, cursor: null })
      ).items) {
        const [first] = await broken.stores.logs.read(id, 0, 1);
        expect([id, log_removed_at !== null || first === undefined || first.seq === 1]).toEqual([
          id,
          true,
        ]);
      }
    }
  }
  await pass(broken.stores, keep, LATER);
  expect(await shape(broken.path)).toEqual(end);
});

test('two concurrent passes have the same result as one', async () => {
  const one = await history();
  await pass(one.stores, { ...KEEP, logBytes: 0 }, LATER);
  const two = await history();
  await Promise.all([
    pass(two.stores, { ...KEEP, logBytes: 0 }, LATER),
    pass(two.stores, { ...KEEP, logBytes: 0 }, LATER),
  ]);
  const strip = async (path: string) =>
    Object.fromEntries(
      Object.entries(await left(path)).map(([table, rows]) => [table, (rows as object[]).length]),
    );
  expect(await strip(two.path)).toEqual(await strip(one.path));
});

test('nodes that were silent for long and have no work are removed; all others stay', async () => {
  const stores = await open(freshPath(), () => LATER);
  const project = await projectIn(stores);
  const container = (labels: Record<string, string>) => ({
    id: 'c',
    name: 'c',
    state: 'running' as const,
    host_port: 1,
    started_at: null,
    labels,
    image: null,
    env_digest: null,
    health: null,
  });
  const silent = { role: 'deploy' as const, agent_version: '1', boot_id: 'x', containers: [] };
  const node = (hostname: string, more: object = {}, at = NOW) =>
    nodeIn(stores, hostname, { ...silent, ...more }, at);
  await node('pod-1');
  await node('pod-2', { role: 'builder' });
  const routed = await node('routed');
  await commit(stores, project.id, { route: { set: routeOf(project, 'd', routed.id) } });
  const placed = await node('placed');
  await deploymentIn(stores, project, 'live', { status: 'running', node_id: placed.id });
  const busy = await node('busy');
  await tasksIn(stores, await stores.projects.get(project.id), taskOf(project, 'open', busy.id));
  const unsure = await node('unsure');
  await tasksIn(
    stores,
    await stores.projects.get(project.id),
    taskOf(project, 'ended', unsure.id, { kind: 'deploy' }),
  );
  await stores.tasks.claim('ended', { token: 'l', expires_at: NOW + 10 }, NOW, 5);
  await commit(stores, project.id, {
    now: NOW + 9,
    changeTasks: [{ id: 'ended', attempt: 1, end: 'cancelled' }],
  });
  await node('holds', { containers: [container({ 'berth.project': project.id })] });
  await node('heard', {}, LATER - DAY);
  const deleting = await node('deleting');
  await stores.nodes.markDeleting(deleting.id, NOW);
  expect((await pass(stores, KEEP, LATER)).nodes.toSorted()).toEqual([
    'builder:pod-2',
    'deploy:pod-1',
  ]);
  expect((await stores.nodes.all()).map((n) => n.hostname)).toEqual([
    'busy',
    'deleting',
    'heard',
    'holds',
    'placed',
    'routed',
    'unsure',
  ]);
  // It returns as a new node.
  expect((await node('pod-1', {}, LATER)).created_at).toBe(LATER);
});

test('expired keys and old sync tasks are removed', async () => {
  const path = freshPath();
  const stores = await open(path, () => LATER);
  const project = await projectIn(stores);
  const node = await nodeIn(stores, 'w1', { role: 'deploy' }, LATER);
  const plan = {
    project: await stores.projects.get(project.id),
    now: NOW,
    uptime: NOW,
    changeDeployments: [],
    createTasks: [],
    changeTasks: [],
    route: null,
    push: null,
    volumes: [],
  };
  const created = await deploymentIn(stores, project, 'd0');
  const createDeployment = { ...created, id: 'd1', generation: 2 };
  const key = { key: 'k', body_hash: 'h', expires_at: NOW + DAY };
  const fresh = {
    ...plan,
    project: await stores.projects.get(project.id),
    createDeployment,
    storyLines: [],
  };
  expect(await stores.flow.commitWithKey(fresh, key)).toBe('committed');
  const dataset = {
    dataset_id: 'x',
    name: 'x',
    nfs_path: 'x',
    version: 2,
    manifest_digest: null,
    bytes: 1,
    files: 1,
  };
  const sync = (id: string) => ({
    id,
    node_id: node.id,
    payload: { dataset },
    queue_deadline_at: NOW,
    wall_deadline_at: NOW,
  });
  for (const [id, at] of [
    ['old', NOW],
    ['new', LATER - DAY],
  ] as const) {
    const { task } = await stores.tasks.createSync(sync(id), at);
    await stores.tasks.loseSync(task, 'wall', at);
  }
  await pass(stores, KEEP, LATER);
  const there = await left(path);
  expect(there['idempotency_keys']).toEqual([]);
  expect(there['tasks']?.map((task) => task['id'])).toEqual(['new']);
});

test('one of several control planes runs retention, and another takes over when it is gone', async () => {
  const path = freshPath();
  const stores = await open(path);
  // A SQLite file has one control plane, so a start after a crash need not wait for a claim.
  const alone = !(await urlOf(path)).startsWith('postgres');
  const rival = alone ? stores : await open(path);
  expect(await stores.retention.claim('a', NOW, NOW + 60)).toBe(true);
  expect(await rival.retention.claim('b', NOW + 1, NOW + 61)).toBe(alone);
  expect(await stores.retention.claim('a', NOW + 2, NOW + 62)).toBe(true);
  expect(await rival.retention.claim('b', NOW + 63, NOW + 99)).toBe(true);
});

test('every table has a bound, and docs/operating.md names it', async () => {
  const { readFileSync } = await import('node:fs');
  const docs = readFileSync(new URL('../../../../docs/operating.md', import.meta.url), 'utf8');
  const source = readFileSync(new URL('../../src/store/engine/tables.ts', import.meta.url), 'utf8');
  const section = docs.slice(docs.indexOf('## What is kept'), docs.indexOf('## Backup'));
  const tables = [
    ...source.slice(source.indexOf('type Tables =')).matchAll(/^ {2}([a-z_]+): /gm),
  ].map(([, name]) => name ?? '');
  expect(tables.length).toBeGreaterThan(20);
  expect(tables.filter((table) => !section.includes(`\`${table}\``))).toEqual([]);
});
