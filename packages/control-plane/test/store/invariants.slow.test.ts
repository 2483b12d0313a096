/** Random plans, claims and renewals, valid and invalid: the invariants hold after each. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  DEPLOYMENT_STATES,
  type DeploymentState,
  isOpenTask,
  isTerminal,
  type TaskState,
} from '@berth/wire/vocabulary';
import { DomainError } from '../../src/domain/platform/errors.ts';
import type { Plan } from '../../src/domain/deployments/plan.ts';
import type { AllStores } from '../../src/store/open.ts';
import {
  deploymentOf,
  nodeIn,
  NOW,
  openUnnamed,
  planFor,
  projectIn,
  routeOf,
  runsOf,
  taskOf,
} from './fixtures.ts';

const state = fc.constantFrom(...DEPLOYMENT_STATES);
const step = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('create' as const),
      status: fc.constantFrom<DeploymentState>('pending', 'pending', 'running'),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('move' as const),
      which: fc.nat(7),
      from: fc.option(state, { freq: 3 }),
      to: state,
      retireOther: fc.boolean(),
      staleBy: fc.constantFrom(0, 0, 0, 1),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('task' as const), which: fc.nat(7) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('end' as const),
      which: fc.nat(7),
      attempt: fc.option(fc.nat(3), { freq: 3 }),
      to: fc.constantFrom('completed' as const, 'failed' as const, 'lost' as const),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('claim' as const), which: fc.nat(7) }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('renew' as const), which: fc.nat(7), token: fc.nat(5) }),
  },
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

/** Facts that must stay true. */
type Memory = {
  deployments: Map<string, DeploymentState>;
  tasks: Map<string, TaskState>;
  version: number;
  generation: number;
  ids: number;
};

async function play(stores: AllStores, steps: readonly Step[]): Promise<void> {
  const { id: projectId } = await projectIn(stores);
  const node = await nodeIn(stores);
  const memory: Memory = {
    deployments: new Map(),
    tasks: new Map(),
    version: 0,
    generation: 0,
    ids: 0,
  };
  let seen: unknown;
  for (const s of steps) {
    const facts = await stores.flow.facts(projectId);
    const nth = <T>(list: readonly T[], n: number): T | undefined =>
      list.length === 0 ? undefined : list[n % list.length];
    const deployment = 'which' in s ? nth([...memory.deployments.keys()], s.which) : undefined;
    const task = 'which' in s ? nth([...memory.tasks.keys()], s.which) : undefined;
    const more: Partial<Plan> = {};
    if (s.do === 'create')
      more.createDeployment = deploymentOf(facts.project, `d${memory.ids++}`, { status: s.status });
    if (s.do === 'move' && deployment !== undefined) {
      const from = s.from ?? memory.deployments.get(deployment) ?? 'pending';
      more.changeDeployments = [{ id: deployment, from, set: { status: s.to } }];
      const running = facts.live.find((d) => d.status === 'running' && d.id !== deployment);
      if (s.retireOther && running !== undefined)
        more.changeDeployments.push({
          id: running.id,
          from: 'running',
          set: { status: 'retired' },
        });
      more.route = { set: routeOf(facts.project, deployment, node.id) };
    }
    if (s.do === 'task')
      more.createTasks = [
        taskOf(
          facts.project,
          `t${memory.ids++}`,
          node.id,
          deployment === undefined ? {} : { deployment_id: deployment },
        ),
      ];
    if (s.do === 'end' && task !== undefined)
      more.changeTasks = [
        {
          id: task,
          attempt: s.attempt ?? facts.tasks.find((t) => t.id === task)?.attempt ?? 0,
          end: s.to,
        },
      ];
    if (s.do === 'claim' && task !== undefined)
      await allowed(stores.tasks.claim(task, { token: `l${s.which}`, expires_at: NOW }, NOW, 3));
    if (s.do === 'renew' && task !== undefined)
      await allowed(stores.tasks.renew(task, `l${s.token}`, NOW, NOW));

    // Reads the state before the plan, to compare with it.
    const before: unknown =
      s.do === 'claim' || s.do === 'renew' || seen === undefined
        ? await look(stores, projectId, memory)
        : seen;
    const version = facts.project.flow_version - ('staleBy' in s ? s.staleBy : 0);
    let outcome: 'committed' | 'stale' | 'refused' = 'refused';
    try {
      outcome = await stores.flow.commit(planFor({ id: projectId, flow_version: version }, more));
    } catch (error) {
      // A second running deployment, or a change of a terminal state: the store refuses such a bug
      // of a decision.
      expect(String(error)).toMatch(
        /UNIQUE constraint failed: deployments.project_id|deployments_one_running|is terminal/,
      );
    }
    if (
      outcome === 'committed' &&
      more.createDeployment !== undefined &&
      more.createDeployment !== null
    )
      memory.deployments.set(more.createDeployment.id, more.createDeployment.status);
    if (outcome === 'committed')
      for (const t of more.createTasks ?? []) memory.tasks.set(t.id, 'pending');
    seen = await look(stores, projectId, memory);
    if (outcome !== 'committed') expect(seen).toEqual(before);
  }
}

async function allowed(promise: Promise<unknown>): Promise<void> {
  await promise.catch((error: unknown) =>
    expect(error instanceof DomainError ? error.code : error).toMatch(/^(task_over|stale_lease)$/),
  );
}

/** Reads everything, checks it against the earlier state, and remembers it. */
async function look(stores: AllStores, projectId: string, memory: Memory): Promise<unknown> {
  const facts = await stores.flow.facts(projectId);
  const deployments = await stores.deployments.getMany([...memory.deployments.keys()]);
  const tasks = await Promise.all([...memory.tasks.keys()].map((id) => stores.tasks.get(id)));
  expect(deployments.filter((d) => d.status === 'running').length).toBeLessThanOrEqual(1);
  for (const d of deployments) {
    const was = memory.deployments.get(d.id) ?? 'pending';
    if (isTerminal(was)) expect(d.status).toBe(was);
    memory.deployments.set(d.id, d.status);
  }
  for (const t of tasks) {
    const was = memory.tasks.get(t.id) ?? 'pending';
    if (!isOpenTask(was)) expect(t.status).toBe(was);
    expect(isOpenTask(t.status)).toBe(t.finished_at === null);
    expect(t.attempt).toBeLessThanOrEqual(3);
    memory.tasks.set(t.id, t.status);
  }
  expect(facts.live.map((d) => d.id)).toEqual(
    deployments.filter((d) => !isTerminal(d.status)).map((d) => d.id),
  );
  expect(facts.tasks.map((t) => t.id)).toEqual(
    tasks.filter((t) => isOpenTask(t.status)).map((t) => t.id),
  );
  expect(new Set(deployments.map((d) => d.generation)).size).toBe(deployments.length);
  expect(facts.project.last_generation).toBe(Math.max(0, ...deployments.map((d) => d.generation)));
  expect(facts.project.flow_version).toBeGreaterThanOrEqual(memory.version);
  expect(facts.project.last_generation).toBeGreaterThanOrEqual(memory.generation);
  memory.version = facts.project.flow_version;
  memory.generation = facts.project.last_generation;
  return { facts, deployments, tasks };
}

/** Opens a database in memory if the engine can, else a separate one. */
const fresh = (): Promise<AllStores> => openUnnamed(Date.now);

test('random plans keep the invariants', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 40 }), async (steps) => {
      const stores = await fresh();
      try {
        await play(stores, steps);
      } finally {
        await stores.close();
      }
    }),
    { numRuns: runsOf(40) },
  );
}, 60_000);

test('exactly one of several concurrent plans from one state is written', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 2, max: 8 }),
      fc.integer({ min: 1, max: 4 }),
      async (width, rounds) => {
        const stores = await fresh();
        try {
          const { id } = await projectIn(stores);
          for (let round = 1; round <= rounds; round++) {
            const project = await stores.projects.get(id);
            const outcomes = await Promise.all(
              Array.from({ length: width }, (_, i) =>
                stores.flow.commit(
                  planFor(project, { createDeployment: deploymentOf(project, `r${round}-${i}`) }),
                ),
              ),
            );
            expect(outcomes.filter((o) => o === 'committed')).toHaveLength(1);
            expect(await stores.projects.get(id)).toMatchObject({
              flow_version: round,
              last_generation: round,
            });
          }
        } finally {
          await stores.close();
        }
      },
    ),
    { numRuns: runsOf(15) },
  );
}, 60_000);
