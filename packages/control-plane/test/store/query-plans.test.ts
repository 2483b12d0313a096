/**
 * Checks the query plan of every statement of the stores: none may walk a table that grows with the
 * history of the platform.
 */
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { sql } from 'kysely';
import { expect, onTestFinished, test, vi } from 'vitest';
import type { AllStores } from '../../src/store/open.ts';
import { openDatabase } from '../../src/store/engine/database.ts';
import { storesOn } from '../../src/store/open.ts';
import { claimed, datasetIn, scanned } from './datasets-in.ts';
import {
  commit,
  deploymentIn,
  nodeIn,
  NOW,
  planFor,
  deploymentOf,
  projectIn,
  quiet,
  routeOf,
  taskOf,
  tasksIn,
  tempDir,
} from './fixtures.ts';

/**
 * Tables that people and devices fill. (The policy reads all valid rows of two of them on purpose.)
 */
const IDENTITY = ['used_codes', 'device_codes', 'api_sessions', 'api_tokens', 'audit_log'];
const DATA = ['dataset_versions', 'dataset_trees', 'dataset_history'];
const GROWS = [
  'deployments',
  'deployment_events',
  'tasks',
  'log_lines',
  'log_heads',
  'log_marks',
  'container_exits',
  'idempotency_keys',
  ...DATA,
  ...IDENTITY,
];

/** Runs every statement of store/identity. */
async function useIdentity(stores: AllStores): Promise<void> {
  const page = { limit: 1, cursor: null };
  const identity = { email: 'a@b.c', name: null, avatar_url: null, provider: 'oidc' };
  const user = await stores.users.create(
    { email: 'a@b.c', role: 'viewer', password_hash: null },
    NOW,
  );
  const asker = { address: '', user_agent: '' };
  await stores.deviceCodes.create(
    {
      device_hash: 'd',
      user_hash: 'u',
      poll_seconds: 5,
      expires_at: NOW + 9,
      scope: 'projects',
      ...asker,
    },
    NOW,
  );
  await stores.deviceCodes.findPending('u', NOW);
  await stores.deviceCodes.decide('u', true, identity, NOW);
  await stores.deviceCodes.poll('d', { id: 't', hash: 'h', expires_at: NOW + 9 }, NOW);
  await stores.deviceTokens.find('h', NOW);
  for (const cursor of [null, Buffer.from(JSON.stringify([NOW, 'x'])).toString('base64url')])
    for (const filter of [{}, { email: 'a@b.c' }])
      await stores.deviceTokens.list(filter, NOW, { limit: 1, cursor });
  await stores.deviceTokens.used([{ id: 't', at: NOW }]);
  await stores.deviceTokens.revoke('t', 'a@b.c');
  await stores.usedCodes.redeem({ id: 'c', expires_at: NOW }, NOW);
  await stores.revokedSessions.revoke({ id: 's', email: 'a@b.c', expires_at: NOW }, NOW);
  await stores.apiSessions.create(
    { id: 's', user_id: user.id, refresh_hash: 'r', address: '', expires_at: NOW + 9 },
    NOW,
  );
  await stores.apiSessions.find('s', NOW);
  await stores.apiSessions.rotate('s', { old: 'r', next: 'n' }, NOW + 9, NOW);
  await stores.apiSessions.end('s');
  await stores.apiTokens.create(
    {
      id: 't',
      user_id: user.id,
      name: 'n',
      hash: 'h',
      role: 'viewer',
      projects: null,
      expires_at: NOW + 9,
    },
    NOW,
  );
  await stores.apiTokens.find('h', NOW);
  await stores.apiTokens.list(user.id, NOW, page);
  await stores.apiTokens.used('t', NOW);
  await stores.apiTokens.revoke('t', user.id);
  const entry = {
    at: NOW,
    email: 'a@b.c',
    via: 'none',
    action: 'a',
    target: null,
    address: '',
    status: 200,
    code: null,
    request_id: '',
  } as const;
  await stores.audit.append({ ...entry, outcome: 'done' });
  const cursor = Buffer.from(JSON.stringify([NOW, 9])).toString('base64url');
  for (const filter of [
    {},
    { email: 'a@b.c' },
    { action: 'a' },
    { outcome: 'done' as const },
    { since: NOW, until: NOW },
  ]) {
    await stores.audit.list(filter, page);
    await stores.audit.list(filter, { limit: 1, cursor });
  }
  await stores.audit.sweep(NOW, { done: 1, refused: 1, failed: 1 });
  await stores.users.patch(user.id, { disabled: true });
  for (const table of [
    'deviceCodes',
    'deviceTokens',
    'usedCodes',
    'revokedSessions',
    'apiSessions',
    'apiTokens',
  ] as const)
    await stores[table].sweep(NOW);
}

/** Runs every statement of datasets, scans and sync tasks. */
async function useData(stores: AllStores, nodeId: string): Promise<void> {
  const { id } = await datasetIn(stores);
  const page = { limit: 1, cursor: null };
  await stores.datasets.patch(id, { name: 'other' }, NOW);
  await stores.datasets.requestScan(id, { full: true, acceptLoss: false }, NOW);
  const lost = await claimed(stores, NOW, 'lost');
  await stores.datasets.renewClaim(lost, NOW);
  await stores.datasets.giveBack(lost);
  for (const [content, at] of [
    ['1', NOW + 1],
    ['2', NOW + 5000],
  ] as const)
    await scanned(stores, { 'a/b': content }, at);
  const { next } = await stores.datasets.versions(id, page);
  await stores.datasets.versions(id, { ...page, cursor: next });
  const deep = { folders: [`${'x'.repeat(1950)}/`] };
  for (const filter of [
    {},
    deep,
    { paths: ['a/b'] },
    { folders: ['a/', 'b/'], since: NOW, until: NOW + 9999 },
    { version: 2 },
  ]) {
    const { next: cursor } = await stores.datasets.history(id, filter, page);
    await stores.datasets.history(id, filter, {
      ...page,
      cursor: cursor ?? Buffer.from(JSON.stringify([2, 'a'])).toString('base64url'),
    });
  }
  await stores.datasets.prune(await claimed(stores, NOW + 50_000), 1);
  await stores.datasets.facts();
  await stores.datasets.ids();
  await stores.datasets.overview();
  await stores.datasets.list(page);
  await stores.deployments.runningWith(id);
  await stores.deployments.mountedNow();
  const dataset = {
    dataset_id: id,
    name: 'other',
    nfs_path: 'x',
    version: 2,
    manifest_digest: null,
    bytes: 1,
    files: 1,
  };
  const sync = {
    id: 's',
    node_id: nodeId,
    payload: { dataset },
    queue_deadline_at: NOW,
    wall_deadline_at: NOW,
  };
  const { task } = await stores.tasks.createSync(sync, NOW);
  await stores.tasks.loseSync(task, 'lease', NOW);
  await stores.tasks.loseSync(task, 'wall', NOW);
  await stores.tasks.endSync('s', 't', { status: 'completed' }, NOW).catch(() => {});
  await stores.tasks.progress('s', 't', { datasets: [] }, NOW).catch(() => {});
  await stores.tasks.syncsOf([nodeId], NOW);
  await stores.tasks.moving(['p1', 'p2']);
  await stores.datasets.markDeleting(id, NOW);
  await stores.datasets.listDeleting();
  await stores.datasets.remove(id);
  const written = await datasetIn(stores, 'written');
  const uses = {
    replace: 'recreate' as const,
    datasets: [{ dataset_id: written.id, mode: 'readwrite' as const }],
  };
  const writer = await projectIn(stores, 'writer', uses);
  await deploymentIn(stores, writer, 'w1', { status: 'running' });
  await projectIn(stores, 'second-writer', uses);
}

test('no statement walks a table that grows', async () => {
  const path = join(tempDir(), 'berth.db');
  const seen = new Set<string>();
  const prepare = Sqlite.prototype.prepare;
  const spy = vi.spyOn(Sqlite.prototype, 'prepare').mockImplementation(function (
    this: Sqlite.Database,
    sql: string,
  ) {
    seen.add(sql);
    return prepare.call(this, sql);
  });
  onTestFinished(() => spy.mockRestore());

  const opened = await openDatabase(`sqlite:${path}`, quiet, () => NOW);
  onTestFinished(() => opened.close());
  // Statements of the recording thread are not visible here.
  const stores = storesOn({ ...opened, recorder: null }, () => NOW);
  // The statements of the migrator run only at open.
  seen.clear();
  const project = await projectIn(stores);
  const node = await nodeIn(stores, 'w1', { role: 'deploy' });
  const page = { limit: 1, cursor: null };
  const lease = { token: 'l', expires_at: NOW };
  await deploymentIn(stores, project, 'd1', { node_id: node.id, status: 'deploying' });
  await tasksIn(
    stores,
    project,
    taskOf(project, 't1', node.id, { deployment_id: 'd1' }),
    taskOf(project, 't2', node.id),
  );
  await stores.tasks.claim('t1', lease, NOW, 1);
  await stores.tasks.claim('t1', lease, NOW, 1).catch(() => {});
  await stores.tasks.renew('t1', 'l', NOW, NOW);
  await stores.tasks.openFor(node.id, NOW);
  await stores.tasks.overdue(
    { uptime: { at: NOW, since: 0 }, now: NOW, silentSince: NOW },
    { leaseMs: 1, maxAttempts: 1 },
  );
  await stores.tasks.get('t1');
  await commit(stores, project.id, {
    changeDeployments: [{ id: 'd1', from: 'deploying', set: { status: 'running' } }],
    changeTasks: [
      { id: 't1', attempt: 1, requestCancel: true },
      { id: 't1', attempt: 1, end: 'completed', report: { status: 'completed' } },
    ],
    route: { set: routeOf(project, 'd1', node.id) },
    storyLines: [{ deployment_id: 'd1', kind: 'k', message: 'm' }],
  });
  const present = await stores.projects.get(project.id);
  await stores.flow.commitWithKey(
    planFor(present, { createDeployment: deploymentOf(present, 'd2') }),
    {
      key: 'k',
      body_hash: 'h',
      expires_at: NOW,
    },
  );
  await stores.flow.findKey(project.id, 'k', NOW);
  await stores.flow.facts(project.id);
  for (const filter of [
    {},
    { project_id: project.id },
    { status: 'running' as const },
    { project_id: project.id, status: 'running' as const },
    { attention: true },
    { ids: ['d1', 'd2'] },
  ]) {
    const { next } = await stores.deployments.list(filter, page);
    const key = 'project_id' in filter ? [9] : [NOW, 'x'];
    await stores.deployments.list(filter, {
      ...page,
      cursor: next ?? Buffer.from(JSON.stringify(key)).toString('base64url'),
    });
  }
  // A stop-first project also queries its ended work.
  await stores.flow.facts((await projectIn(stores, 'stop-first', { replace: 'recreate' })).id);
  await stores.deployments.events(['d1', 'd2']);
  await stores.deployments.getMany(['d1', 'd2']);
  await stores.deployments.get('d1');
  await stores.deployments.inProgress();
  // The queries of each scrape by Prometheus.
  await stores.metrics.openTasks();
  await stores.metrics.running();
  await stores.metrics.nodes(NOW, 10);
  await stores.deployments.countByStatus();
  await stores.deployments.awaitingRoute();
  await stores.deployments.servingOn(node.id);
  await stores.deployments.onSilentNodes({ before: NOW, after: NOW });
  await stores.logs.append(
    'd1',
    { task_id: 't1', attempt: 1, first: 0 },
    [{ stream: 'stdout', text: 'x' }],
    NOW,
  );
  await stores.logs.read('d1', 0, 10);
  await nodeIn(stores, 'w1', { role: 'deploy', host_ip: '10.0.0.2' });
  await useData(stores, node.id);
  for (const logBytes of [1e9, 0])
    for await (const _step of await stores.retention.begin(
      { deployments: 1, ms: 1, logBytes },
      () => NOW + 1e12,
    ));
  await stores.nodes.setDrain(node.id, null, null);
  await stores.nodes.markDeleting(node.id, NOW);
  await stores.nodes.removeIfGone(node.id, false);
  await stores.nodes.removeIfGone(node.id, true);
  await stores.projects.patch(project.id, { domain_prefix: 'x' }, NOW);
  await stores.projects.runningDeployments([project.id]);
  await commit(stores, project.id, { route: { remove: { project_id: project.id } } });
  await stores.routes.all();
  await useIdentity(stores);
  await stores.projects.markDeleting(project.id, NOW);
  expect(await stores.projects.removeIfGone(project.id)).toBe(true);
  spy.mockRestore();

  const db = new Sqlite(path, { readonly: true });
  onTestFinished(() => void db.close());
  const asked = [...seen].filter((sql) => /^(select|insert|update|delete|with)/i.test(sql));
  expect(asked.length).toBeGreaterThan(50);
  const walks = asked.flatMap((sql) => {
    const steps = db
      .prepare(`explain query plan ${sql}`)
      .all(...Array.from(sql.matchAll(/\?/g), () => null)) as { detail: string }[];
    const scan = new RegExp(
      `^SCAN (${GROWS.join('|')})\\b(?! USING (COVERING )?INDEX tasks_open_)`,
    );
    // A page in the order of an index reads only its own rows.
    if (
      /order by .* limit \+\?$/.test(sql) &&
      !steps.some((step) => step.detail.includes('TEMP B-TREE')) &&
      steps.every((step) => / USING (COVERING )?INDEX /.test(step.detail))
    )
      return [];
    return steps.filter((step) => scan.test(step.detail)).map((step) => `${step.detail}: ${sql}`);
  });
  expect(walks).toEqual([]);
  const planOf = (sql: string): string =>
    (
      db
        .prepare(`explain query plan ${sql}`)
        .all(...Array.from(sql.matchAll(/\?/g), () => null)) as { detail: string }[]
    )
      .map((step) => step.detail)
      .join('; ');
  // A registration at a new address reads the nodes of this address, not thousands of others.
  const ofAddress = asked
    .filter((sql) => /^select .* from "nodes" where .*"host_ip" = \+\? and "id" != /.test(sql))
    .map(planOf);
  expect(ofAddress).toHaveLength(1);
  for (const plan of ofAddress) expect(plan).toContain('INDEX nodes_host_ip');
  // A page of retention reads only its own rows: from its index, without a sort.
  const pages = asked.filter(
    (sql) =>
      /"(thinned_at|log_removed_at)" is null.* order by /.test(sql) && sql.startsWith('select'),
  );
  const plans = pages.map(planOf);
  expect(plans).toHaveLength(2);
  for (const plan of plans)
    expect(plan).toMatch(/INDEX deployments_(whole|with_log) (?!.*TEMP B-TREE)/);
});

test('a prepared statement is not prepared again for other bound values', async () => {
  const db = await openDatabase('sqlite::memory:', quiet, () => NOW);
  onTestFinished(() => db.close());
  await sql`create table some_work (kind text not null, n integer not null)`.execute(db.kysely);
  await sql`create index jobs_sync on some_work (n) where kind = 'sync'`.execute(db.kysely);
  const plan = async (kind: string): Promise<unknown> =>
    (
      await sql`explain query plan select * from some_work where kind = ${kind} order by n`.execute(
        db.kysely,
      )
    ).rows;
  expect(await plan('sync')).toEqual(await plan('build'));
});
