/**
 * Random sequences of requests, claims, reports, losses and deletions on the real store and driver.
 * All keep the invariants.
 */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { isOpenTask, isSettled, isTerminal } from '@berth/wire/vocabulary';
import { DomainError } from '../../src/domain/platform/errors.ts';
import { DEFAULT_LIMITS } from '../../src/domain/deployments/facts.ts';
import type { AllStores } from '../../src/store/open.ts';
import type { Driver } from '../../src/flow/driver.ts';
import { driverOn } from './driver.ts';
import { openUnnamed, runsOf } from '../store/fixtures.ts';
import { COMMIT } from './fixtures.ts';

type World = {
  stores: AllStores;
  driver: Driver;
  now: number;
  project: string;
  made: string[];
  ended: Map<string, string>;
  nodes: string[];
};

/** `pick` chooses one of the existing records. */
const COMMANDS = [
  'request',
  'rollback',
  'tick',
  'claim',
  'complete',
  'fail',
  'confirm',
  'cancel',
  'lose',
  'see',
  'wait',
  'cordon',
  'register',
] as const;
const NODES = [
  ['b1', 'builder'],
  ['w1', 'deploy'],
  ['w2', 'deploy'],
] as const;
const command = fc.record({ what: fc.constantFrom(...COMMANDS), pick: fc.nat(1000) });

async function create(): Promise<World> {
  const stores = await openUnnamed(Date.now);
  const world: World = {
    stores,
    now: 1_000_000,
    project: '',
    made: [],
    ended: new Map(),
    nodes: [],
    driver: null as never,
  };
  world.driver = driverOn(stores, () => world.now);
  for (const index of NODES.keys()) world.nodes.push(await register(world, index));
  world.project = (
    await stores.projects.create(
      { name: 'shop', git_url: 'https://git.example/x.git', domain_prefix: 'shop' },
      world.now,
    )
  ).id;
  return world;
}

async function register({ stores, now }: World, index: number): Promise<string> {
  const [hostname, role] = NODES[index % NODES.length] ?? NODES[0];
  const facts = {
    hostname,
    role,
    host_ip: `10.0.0.${index % NODES.length}`,
    max_storage: 1,
    agent_version: '1',
  };
  return (await stores.nodes.register(facts, now)).node.id;
}

async function apply(world: World, what: (typeof COMMANDS)[number], pick: number): Promise<void> {
  const { stores, driver, project } = world;
  world.now += 100;
  const { tasks, live } = await stores.flow.facts(project);
  const task = tasks[pick % Math.max(1, tasks.length)];
  const d = world.made[pick % Math.max(1, world.made.length)];
  switch (what) {
    case 'request':
    case 'rollback': {
      const rollbackOf = what === 'rollback' ? (d ?? null) : null;
      const { deployment } = await driver.request({
        projectId: project,
        commit: null,
        note: null,
        rollbackOf,
        idempotency: null,
      });
      world.made.push(deployment.id);
      return;
    }
    case 'tick':
      for (const each of live) await driver.advance(each.id, { type: 'tick' });
      return;
    case 'claim':
      if (task !== undefined)
        await stores.tasks.claim(
          task.id,
          { token: `l-${world.now}`, expires_at: world.now + 30_000 },
          world.now,
          5,
        );
      return;
    case 'complete':
    case 'fail': {
      if (task === undefined) return;
      const product = {
        build: { image_tag: `registry:5000/shop:${COMMIT}` },
        deploy: { host_port: 32_000 + (pick % 50) },
        retire: {},
        sync: {},
        look: {},
        clean: {},
        move: {},
        run: {},
      }[task.kind];
      await driver.report(
        task.id,
        task.lease_token,
        what === 'fail' ? { status: 'failed' } : { status: 'completed', ...product },
      );
      return;
    }
    case 'confirm':
      if (d !== undefined) await confirm(world, d);
      return;
    case 'cancel':
      if (d !== undefined) await driver.advance(d, { type: 'cancel' });
      return;
    case 'lose':
      if (typeof task?.deployment_id === 'string')
        await driver.advance(task.deployment_id, { type: 'task_lost', task, why: 'wall' });
      return;
    case 'see':
      if (d !== undefined)
        await driver.advance(d, {
          type: 'observed',
          node_id: world.nodes[1 + (pick % 2)] ?? '',
          container: null,
        });
      return;
    case 'wait':
      world.now += 20_000;
      return;
    case 'cordon':
      await stores.nodes.setSchedulable(world.nodes[1 + (pick % 2)] ?? '', pick % 3 !== 0);
      return;
    case 'register':
      await register(world, pick);
  }
}

async function mustHold({ stores, project, made, ended }: World): Promise<void> {
  const all = await stores.deployments.getMany(made);
  const { tasks, route } = await stores.flow.facts(project);
  expect(all).toHaveLength(made.length);
  for (const d of all) {
    // A terminal state never changes.
    if (ended.has(d.id)) expect(d.status).toBe(ended.get(d.id));
    if (isTerminal(d.status)) ended.set(d.id, d.status);
    // The only open task of a terminal deployment is its removal.
    if (isTerminal(d.status))
      expect(tasks.filter((t) => t.deployment_id === d.id && t.kind !== 'retire')).toEqual([]);
    // A deployment that waits for an agent has exactly one such task.
    const waits =
      d.status === 'building' || (d.status === 'deploying' && d.route_published_at === null);
    if (waits)
      expect(
        tasks.filter(
          (t) => t.deployment_id === d.id && t.kind !== 'retire' && isOpenTask(t.status),
        ),
      ).toHaveLength(1);
    expect(d.losses.length).toBeLessThanOrEqual(DEFAULT_LIMITS.maxLosses);
  }
  const running = all.filter((d) => d.status === 'running');
  expect(running.length).toBeLessThanOrEqual(1);
  expect(all.filter((d) => d.status === 'deploying').length).toBeLessThanOrEqual(1);
  // The route points to the running or upcoming version, at its reported port.
  const routed = all.find((d) => d.id === route?.deployment_id);
  if (route !== null) expect(['running', 'deploying']).toContain(routed?.status);
  if (route !== null) expect(route.host_port).toBe(routed?.host_port);
  if (running[0] !== undefined) expect(route).not.toBeNull();
}

it('the invariants hold after each command, and everything settles when agents do their work', {
  timeout: 60_000,
}, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(command, { minLength: 5, maxLength: 40 }), async (commands) => {
      const world = await create();
      try {
        for (const { what, pick } of commands) {
          await apply(world, what, pick).catch((error: unknown) => {
            // A rejection is a valid answer; any other error is a bug.
            if (!(error instanceof DomainError)) throw error;
          });
          await mustHold(world);
        }
        // Working agents also register. Otherwise a late request rightly waits for a node.
        for (const [index, id] of world.nodes.entries()) {
          await register(world, index);
          await world.stores.nodes.setSchedulable(id, true);
        }
        for (
          let round = 0;
          round < 30 && (await world.stores.deployments.inProgress()).length > 0;
          round++
        ) {
          for (const what of ['tick', 'claim', 'complete'] as const)
            await apply(world, what, 0).catch(ignoreRefusal);
          for (const id of world.made) await confirm(world, id);
          await mustHold(world);
        }
        for (const d of await world.stores.deployments.getMany(world.made))
          expect(isSettled(d.status), `${d.id} is ${d.status}`).toBe(true);
      } finally {
        await world.stores.close();
      }
    }),
    { numRuns: runsOf(60) },
  );
});

function ignoreRefusal(error: unknown): void {
  if (!(error instanceof DomainError)) throw error;
}

/**
 * The proxy serves the route of the deployment; for any other deployment it reports some other
 * address.
 */
async function confirm({ stores, driver }: World, id: string): Promise<void> {
  const route = (await stores.routes.all()).find((r) => r.deployment_id === id);
  await driver.advance(id, {
    type: 'route_confirmed',
    host_ip: route?.host_ip ?? '10.0.0.1',
    host_port: route?.host_port ?? 1,
  });
}
