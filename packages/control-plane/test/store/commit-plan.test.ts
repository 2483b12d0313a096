import { expect, test } from 'vitest';
import type { Plan } from '../../src/domain/deployments/plan.ts';
import type { ProjectRecord } from '../../src/domain/platform/records.ts';
import type { AllStores } from '../../src/store/open.ts';
import {
  codeOf,
  commit,
  deploymentIn,
  deploymentOf,
  freshPath,
  nodeIn,
  NOW,
  open,
  planFor,
  projectIn,
  routeOf,
  rowsOf,
  taskOf,
  tasksIn,
} from './fixtures.ts';

/**
 * A project with a running and a built deployment, an open task (claimed once) and a finished task.
 */
async function scene(): Promise<{
  stores: AllStores;
  path: string;
  project: ProjectRecord;
  nodeId: string;
}> {
  const path = freshPath();
  const stores = await open(path);
  const project = await projectIn(stores);
  const node = await nodeIn(stores);
  await deploymentIn(stores, project, 'old', { status: 'running', node_id: node.id });
  await deploymentIn(stores, project, 'new', { status: 'deploying', node_id: node.id });
  await tasksIn(
    stores,
    project,
    taskOf(project, 'open', node.id, { deployment_id: 'new' }),
    taskOf(project, 'ended', node.id),
  );
  await stores.tasks.claim('open', { token: 'lease', expires_at: NOW + 1 }, NOW, 5);
  await commit(stores, project.id, {
    changeTasks: [{ id: 'ended', attempt: 0, end: 'cancelled' }],
  });
  return { stores, path, project: await stores.projects.get(project.id), nodeId: node.id };
}

/** Reads everything that the plan could have changed, without the stores. */
async function dump(path: string): Promise<unknown> {
  const tables = [
    'projects',
    'deployments',
    'deployment_events',
    'tasks',
    'routes',
    'idempotency_keys',
  ];
  return Promise.all(tables.map(async (table) => [table, await rowsOf(path, table)]));
}

const fullPlan = (project: ProjectRecord, nodeId: string): Partial<Plan> => ({
  createDeployment: deploymentOf(project, 'next'),
  changeDeployments: [
    // In the wrong order: the store retires the old deployment first.
    {
      id: 'new',
      from: 'deploying',
      set: {
        status: 'running',
        finished_at: NOW,
        host_port: 4000,
        health: { status: 'healthy', since: NOW, detail: null },
      },
    },
    { id: 'old', from: 'running', set: { status: 'retired', waiting: null } },
  ],
  createTasks: [
    taskOf(project, 'clean', nodeId, { kind: 'retire', deployment_id: 'new' }),
    taskOf(project, 'after', nodeId, { deployment_id: 'next' }),
  ],
  changeTasks: [
    { id: 'open', attempt: 1, end: 'completed', report: { status: 'completed', image_tag: 'x' } },
  ],
  route: { set: routeOf(project, 'new', nodeId) },
  storyLines: [{ deployment_id: 'new', kind: 'running', message: 'serves' }],
});

test('a plan is written completely', async () => {
  const { stores, project, nodeId } = await scene();
  expect(await stores.flow.commit(planFor(project, fullPlan(project, nodeId)))).toBe('committed');
  expect(await stores.projects.get(project.id)).toEqual({
    ...project,
    flow_version: project.flow_version + 1,
    last_generation: 3,
  });
  expect((await stores.deployments.get('old')).status).toBe('retired');
  expect(await stores.deployments.get('new')).toMatchObject({
    status: 'running',
    host_port: 4000,
    finished_at: NOW,
    health: { status: 'healthy' },
  });
  expect(await stores.deployments.get('next')).toEqual(deploymentOf(project, 'next'));
  expect(await stores.tasks.get('open')).toMatchObject({
    status: 'completed',
    finished_at: NOW,
    lease_token: 'lease',
    // The end by the uptime clock.
    lease_expires_at: NOW,
    report: { status: 'completed', image_tag: 'x' },
  });
  expect(await stores.tasks.get('clean')).toMatchObject({
    kind: 'retire',
    status: 'pending',
    attempt: 0,
    created_at: NOW,
    finished_at: null,
    project_id: project.id,
  });
  expect(await stores.routes.all()).toEqual([
    { ...routeOf(project, 'new', nodeId), project_name: 'shop', auth_required: false, domains: [] },
  ]);
  expect((await stores.deployments.events(['new'])).get('new')?.at(-1)).toEqual({
    at: NOW,
    kind: 'running',
    message: 'serves',
  });
  const facts = await stores.flow.facts(project.id);
  expect(facts.live.map((d) => d.id)).toEqual(['new', 'next']);
  expect(facts.tasks.map((t) => t.id)).toEqual(['clean', 'after']);
  expect(facts.lastBuilderId).toBe(nodeId);
  expect(facts.nodes).toMatchObject([{ id: nodeId, open_builds: 1 }]);
  expect(facts.route).toEqual(routeOf(project, 'new', nodeId));
});

test('only a route with several servers has the health path of its version', async () => {
  const { stores, project, nodeId } = await scene();
  const plan = fullPlan(project, nodeId);
  const route = routeOf(project, 'new', nodeId);
  const server = { instance_id: 'i2', node_id: nodeId, host_ip: '10.0.0.9', host_port: 4001 };
  await stores.flow.commit(
    planFor(project, { ...plan, route: { set: { ...route, servers: [server] } } }),
  );
  expect(await stores.routes.all()).toMatchObject([
    { deployment_id: 'new', servers: [server], health_path: project.health_path },
  ]);
});

const STALE: Record<string, (project: ProjectRecord, plan: Plan) => Plan> = {
  'the project has a newer version': (_, plan) => ({
    ...plan,
    project: { ...plan.project, flow_version: plan.project.flow_version - 1 },
  }),
  'the project has an older version': (_, plan) => ({
    ...plan,
    project: { ...plan.project, flow_version: plan.project.flow_version + 1 },
  }),
  'the project does not exist': (_, plan) => ({
    ...plan,
    project: { ...plan.project, id: 'nobody' },
  }),
  'a deployment is in another state': (_, plan) => ({
    ...plan,
    changeDeployments: [
      ...plan.changeDeployments.slice(0, 1),
      { id: 'old', from: 'deploying', set: { status: 'retired' } },
    ],
  }),
  'a deployment is in another state and keeps it': (_, plan) => ({
    ...plan,
    changeDeployments: [{ id: 'new', from: 'built', set: {} }],
  }),
  'a deployment does not exist': (_, plan) => ({
    ...plan,
    changeDeployments: [
      ...plan.changeDeployments,
      { id: 'nobody', from: 'running', set: { status: 'retired' } },
    ],
  }),
  'a task was claimed since': (_, plan) => ({
    ...plan,
    changeTasks: [{ id: 'open', attempt: 0, end: 'lost' }],
  }),
  'a task has ended': (_, plan) => ({
    ...plan,
    changeTasks: [...plan.changeTasks, { id: 'ended', attempt: 0, end: 'lost' }],
  }),
  'a cancellation of a task that has ended': (_, plan) => ({
    ...plan,
    changeTasks: [...plan.changeTasks, { id: 'ended', attempt: 0, requestCancel: true }],
  }),
  'a cancellation of a task that was claimed since': (_, plan) => ({
    ...plan,
    changeTasks: [{ id: 'open', attempt: 0, requestCancel: true }],
  }),
  'a task does not exist': (_, plan) => ({
    ...plan,
    changeTasks: [...plan.changeTasks, { id: 'nobody', attempt: 0, end: 'lost' }],
  }),
};

test.each(Object.entries(STALE))('a stale plan writes nothing: %s', async (_, spoil) => {
  const { stores, path, project, nodeId } = await scene();
  const before = await dump(path);
  const plan = spoil(project, planFor(project, fullPlan(project, nodeId)));
  expect(await stores.flow.commit(plan)).toBe('stale');
  expect(await dump(path)).toEqual(before);
  expect(
    await stores.flow.commitWithKey(plan, { key: 'k', body_hash: 'h', expires_at: NOW + 1 }),
  ).toBe('stale');
  expect(await dump(path)).toEqual(before);
});

test.each([
  [
    'another project’s deployment',
    { changeDeployments: [{ id: 'new', from: 'deploying', set: { waiting: 'x' } }] },
  ],
  ['another project’s task', { changeTasks: [{ id: 'open', attempt: 1, end: 'lost' }] }],
] satisfies [string, Partial<Plan>][])(
  'a plan reaches its own project only: %s',
  async (_, more) => {
    const { stores } = await scene();
    const other = await projectIn(stores, 'other');
    expect(await stores.flow.commit(planFor(other, more))).toBe('stale');
  },
);

test('a plan that violates a constraint writes nothing', async () => {
  const { stores, path, project } = await scene();
  const before = await dump(path);
  // Two running deployments of a project.
  await expect(
    commit(stores, project.id, {
      changeDeployments: [{ id: 'new', from: 'deploying', set: { status: 'running' } }],
    }),
  ).rejects.toThrow(/unique/i);
  // A generation that is in use.
  await expect(
    commit(stores, project.id, {
      createDeployment: deploymentOf(project, 'twice', { generation: 1 }),
    }),
  ).rejects.toThrow(/unique/i);
  // A line of story for an unknown deployment.
  await expect(
    commit(stores, project.id, {
      storyLines: [{ deployment_id: 'nobody', kind: 'k', message: 'm' }],
    }),
  ).rejects.toThrow(/foreign key/i);
  expect(await dump(path)).toEqual(before);
});

test('a terminal state never changes', async () => {
  const { stores, project } = await scene();
  for (const status of ['retired', 'failed', 'cancelled', 'superseded'] as const) {
    await deploymentIn(stores, project, status, { status });
    await expect(
      commit(stores, project.id, {
        changeDeployments: [{ id: status, from: status, set: { status: 'running' } }],
      }),
    ).rejects.toThrow(/is terminal/);
    expect(
      await commit(stores, project.id, {
        changeDeployments: [{ id: status, from: status, set: { waiting: 'w' } }],
      }),
    ).toBe('committed');
    expect((await stores.deployments.get(status)).status).toBe(status);
  }
});

test('a cancellation is requested once, and the task runs until it ends', async () => {
  const { stores, project } = await scene();
  expect(
    await commit(stores, project.id, {
      changeTasks: [{ id: 'open', attempt: 1, requestCancel: true }],
    }),
  ).toBe('committed');
  expect(
    await commit(stores, project.id, {
      now: NOW + 9,
      changeTasks: [{ id: 'open', attempt: 1, requestCancel: true }],
    }),
  ).toBe('committed');
  expect(await stores.tasks.get('open')).toMatchObject({
    status: 'running',
    cancel_requested_at: NOW,
    finished_at: null,
  });
  // Cancelled and ended in one plan: in the given order.
  expect(
    await commit(stores, project.id, {
      changeTasks: [
        { id: 'open', attempt: 1, requestCancel: true },
        { id: 'open', attempt: 1, end: 'lost' },
      ],
    }),
  ).toBe('committed');
  expect(await stores.tasks.get('open')).toMatchObject({ status: 'lost', report: null });
});

test('a route is replaced and removed', async () => {
  const { stores, project, nodeId } = await scene();
  await commit(stores, project.id, { route: { set: routeOf(project, 'old', nodeId) } });
  await commit(stores, project.id, {
    route: { set: routeOf(project, 'new', nodeId, { host_port: 1 }) },
  });
  expect(await stores.routes.all()).toMatchObject([{ deployment_id: 'new', host_port: 1 }]);
  await commit(stores, project.id, { route: { remove: { project_id: project.id } } });
  await commit(stores, project.id, { route: { remove: { project_id: project.id } } });
  expect(await stores.routes.all()).toEqual([]);
});

test('facts of an empty project and of an unknown one', async () => {
  const stores = await open();
  const project = await projectIn(stores);
  expect(await stores.flow.facts(project.id)).toEqual({
    project,
    live: [],
    tasks: [],
    route: null,
    nodes: [],
    datasets: [],
    endedWork: [],
    volumes: [],
    secrets: [],
    lastBuilderId: null,
    buildsHeld: false,
    gitCredentials: null,
  });
  expect(await codeOf(stores.flow.facts('nobody'))).toBe('not_found');
});

test('an Idempotency-Key means one deployment until it expires', async () => {
  const stores = await open();
  const project = await projectIn(stores);
  const create = async (
    id: string,
    key: string,
    now: number,
    more: Partial<Plan> = {},
  ): Promise<string> => {
    const present = await stores.projects.get(project.id);
    return stores.flow.commitWithKey(
      { ...planFor(present, { createDeployment: deploymentOf(present, id), ...more }), now },
      { key, body_hash: `hash of ${id}`, expires_at: now + 100 },
    );
  };
  expect(await stores.flow.findKey(project.id, 'k', NOW)).toBeNull();
  expect(await create('d1', 'k', NOW)).toBe('committed');
  expect(await stores.flow.findKey(project.id, 'k', NOW + 99)).toEqual({
    body_hash: 'hash of d1',
    deployment_id: 'd1',
  });
  expect(await stores.flow.findKey('other', 'k', NOW)).toBeNull();
  // The facts are current, but the key is in use: the loser must decide again.
  expect(await create('d2', 'k', NOW + 1)).toBe('stale');
  expect(await codeOf(stores.deployments.get('d2'))).toBe('not_found');
  expect(await create('d2', 'other', NOW + 1)).toBe('committed');
  expect(await stores.flow.findKey(project.id, 'k', NOW + 100)).toBeNull();
  expect(await create('d3', 'k', NOW + 100)).toBe('committed');
  expect(await stores.flow.findKey(project.id, 'k', NOW + 101)).toEqual({
    body_hash: 'hash of d3',
    deployment_id: 'd3',
  });
  await expect(create('d4', 'k2', NOW, { createDeployment: null })).rejects.toThrow(
    /creates no deployment/,
  );
});

test('one of two concurrent requests with the same key wins', async () => {
  const stores = await open();
  const project = await projectIn(stores);
  const outcomes = await Promise.all(
    Array.from({ length: 10 }, (_, i) =>
      stores.flow.commitWithKey(
        planFor(project, { createDeployment: deploymentOf(project, `d${i}`) }),
        {
          key: 'k',
          body_hash: 'h',
          expires_at: NOW + 1,
        },
      ),
    ),
  );
  expect(outcomes.filter((o) => o === 'committed')).toHaveLength(1);
  expect((await stores.deployments.list({}, { limit: 50, cursor: null })).items).toHaveLength(1);
});
