/** Every statement of the stores, as SQLite would run it: none may walk a table that grows with the history of the platform. */
import { join } from 'node:path';
import Sqlite from 'better-sqlite3';
import { expect, onTestFinished, test, vi } from 'vitest';
import {
  commit,
  deploymentIn,
  nodeIn,
  NOW,
  open,
  planFor,
  deploymentOf,
  projectIn,
  routeOf,
  taskOf,
  tasksIn,
  tempDir,
} from './fixtures.ts';

const GROWS = ['deployments', 'deployment_events', 'tasks', 'log_lines', 'log_heads', 'log_marks', 'idempotency_keys'];

test('nothing walks a table that grows', async () => {
  const path = join(tempDir(), 'berth.db');
  const seen = new Set<string>();
  const prepare = Sqlite.prototype.prepare;
  const spy = vi.spyOn(Sqlite.prototype, 'prepare').mockImplementation(function (this: Sqlite.Database, sql: string) {
    seen.add(sql);
    return prepare.call(this, sql);
  });
  onTestFinished(() => spy.mockRestore());

  const stores = await open(path);
  // What the migrator asks at open is not asked again.
  seen.clear();
  const project = await projectIn(stores);
  const node = await nodeIn(stores, 'w1', { role: 'deploy' });
  const page = { limit: 1, cursor: null };
  const lease = { token: 'l', expires_at: NOW };
  await deploymentIn(stores, project, 'd1', { node_id: node.id, status: 'deploying' });
  await tasksIn(stores, project, taskOf(project, 't1', node.id, { deployment_id: 'd1' }), taskOf(project, 't2', node.id));
  await stores.tasks.claim('t1', lease, NOW, 1);
  await stores.tasks.claim('t1', lease, NOW, 1).catch(() => {});
  await stores.tasks.renew('t1', 'l', NOW, NOW);
  await stores.tasks.openFor(node.id, NOW);
  await stores.tasks.overdue(NOW, NOW, 1);
  await stores.tasks.get('t1');
  await commit(stores, project.id, {
    deployments: [{ id: 'd1', from: 'deploying', set: { status: 'running' } }],
    tasks: [
      { id: 't1', attempt: 1, requestCancel: true },
      { id: 't1', attempt: 1, end: 'completed', report: { status: 'completed' } },
    ],
    route: { set: routeOf(project, 'd1', node.id) },
    events: [{ deployment_id: 'd1', kind: 'k', message: 'm' }],
  });
  const present = await stores.projects.get(project.id);
  await stores.flow.commitWithKey(planFor(present, { createDeployment: deploymentOf(present, 'd2') }), {
    key: 'k',
    body_hash: 'h',
    expires_at: NOW,
  });
  await stores.flow.findKey(project.id, 'k', NOW);
  await stores.flow.facts(project.id);
  for (const filter of [
    {},
    { project_id: project.id },
    { status: 'running' as const },
    { project_id: project.id, status: 'running' as const },
  ]) {
    const { next } = await stores.deployments.list(filter, page);
    await stores.deployments.list(filter, { ...page, cursor: next ?? Buffer.from(JSON.stringify([NOW, 'x'])).toString('base64url') });
  }
  await stores.deployments.events(['d1', 'd2']);
  await stores.deployments.getMany(['d1', 'd2']);
  await stores.deployments.get('d1');
  await stores.deployments.unsettled();
  await stores.deployments.awaitingRoute();
  await stores.deployments.servingOn(node.id);
  await stores.deployments.onSilentNodes(NOW);
  await stores.logs.append('d1', { task_id: 't1', attempt: 1, first: 0 }, [{ stream: 'stdout', text: 'x' }], NOW);
  await stores.logs.read('d1', 0, 10);
  await nodeIn(stores, 'w1', { role: 'deploy', host_ip: '10.0.0.2' });
  await stores.nodes.markDeleting(node.id, NOW);
  await stores.nodes.removeIfGone(node.id, false);
  await stores.nodes.removeIfGone(node.id, true);
  await stores.projects.patch(project.id, { domain_prefix: 'x' }, NOW);
  await stores.projects.runningDeployments([project.id]);
  await commit(stores, project.id, { route: { remove: { project_id: project.id } } });
  await stores.routes.all();
  await stores.projects.markDeleting(project.id, NOW);
  expect(await stores.projects.removeIfGone(project.id)).toBe(true);
  spy.mockRestore();

  const db = new Sqlite(path, { readonly: true });
  onTestFinished(() => void db.close());
  const asked = [...seen].filter((sql) => /^(select|insert|update|delete|with)/i.test(sql));
  expect(asked.length).toBeGreaterThan(50);
  const walks = asked.flatMap((sql) => {
    const steps = db.prepare(`explain query plan ${sql}`).all(...Array.from(sql.matchAll(/\?/g), () => null)) as { detail: string }[];
    const scan = new RegExp(`^SCAN (${GROWS.join('|')})\\b(?! USING (COVERING )?INDEX tasks_open_)`);
    // A page in an index's own order ends after as many rows as it has.
    if (
      /order by .* limit \?$/.test(sql) &&
      !steps.some((step) => step.detail.includes('TEMP B-TREE')) &&
      steps.every((step) => / USING (COVERING )?INDEX /.test(step.detail))
    )
      return [];
    return steps.filter((step) => scan.test(step.detail)).map((step) => `${step.detail}: ${sql}`);
  });
  expect(walks).toEqual([]);
});
