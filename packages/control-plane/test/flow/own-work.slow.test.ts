/** No deadline runs while a deployment waits for a task of Berth, which has its own deadlines. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createChanges } from '../../src/domain/platform/changes.ts';
import { DEFAULT_LIMITS } from '../../src/domain/deployments/facts.ts';
import type { AllStores } from '../../src/store/open.ts';
import { createCacheIndex } from '../../src/domain/nodes/cache-index.ts';
import { createDriver, type Driver } from '../../src/flow/driver.ts';
import { storesInMemory } from '../store/in-memory.ts';
import { steadyUptime } from '../steady-uptime.ts';
import { COMMIT, DIGEST, facts } from './fixtures.ts';

const MINUTE = 60_000;
let stores: AllStores;
let driver: Driver;
let now = 0;
let ids = 0;

beforeEach(async () => {
  now = 1_000_000;
  stores = await storesInMemory(() => now);
  const deps = {
    stores,
    changes: createChanges(),
    limits: DEFAULT_LIMITS,
    platform: facts().platform,
    now: () => now,
    newId: () => `id-${++ids}`,
  };
  driver = createDriver({
    cacheIndex: createCacheIndex(),
    ...deps,
    uptime: steadyUptime(() => now),
    pause: async () => {},
  });
});
afterEach(() => stores.close());

async function register(role: 'builder' | 'deploy'): Promise<string> {
  const body = {
    hostname: role,
    role,
    host_ip: '10.0.0.1',
    max_storage: 1,
    agent_version: '1',
    containers: [],
  };
  return (await stores.nodes.register(body, now)).node.id;
}
async function requested(name: string): Promise<string> {
  const known = (await stores.projects.list({ limit: 50, cursor: null })).items.find(
    (p) => p.name === name,
  );
  const project =
    known ??
    (await stores.projects.create(
      { name, git_url: 'https://git.example/x.git', domain_prefix: name },
      now,
    ));
  const input = {
    projectId: project.id,
    commit: null,
    note: null,
    rollbackOf: null,
    idempotency: null,
  };
  return (await driver.request(input)).deployment.id;
}
/** Ticks once a minute, like the scheduler; nodes register meanwhile. */
async function pass(minutes: number): Promise<void> {
  for (let i = 0; i < minutes; i++) {
    now += MINUTE;
    await register('builder');
    await register('deploy');
    await tick();
  }
}
async function tick(): Promise<void> {
  for (const { id, status } of await stores.deployments.inProgress())
    if (status !== 'building') await driver.advance(id, { type: 'tick' });
}
/** Handles the task that the agent finds. */
async function work(node: string, report: object): Promise<boolean> {
  const task = (await stores.tasks.openFor(node, now)).find((t) => t.kind !== 'retire');
  if (task === undefined) return false;
  const lease = `lease-${++ids}`;
  await stores.tasks.claim(task.id, { token: lease, expires_at: now + 1 }, now, 5);
  const image =
    task.kind === 'build'
      ? {
          image_tag: `${(task.payload as { image_repository: string }).image_repository}:${COMMIT}`,
        }
      : {};
  await driver.report(task.id, lease, { status: 'completed', ...image, ...report });
  return true;
}
const built = { image_digest: DIGEST, commit: COMMIT };
const stateOf = async (id: string): Promise<string> => {
  const d = await stores.deployments.get(id);
  return d.error === null ? d.status : `${d.status} ${d.error.code}`;
};

it('the newest deployment waits for an older one that copies for 40 minutes, and then goes live', async () => {
  const [builder, node] = [await register('builder'), await register('deploy')];
  const first = await requested('shop');
  await tick();
  await work(builder, built);
  await tick();
  const second = await requested('shop');
  await tick();
  await work(builder, built);
  await pass(40);
  expect([await stateOf(first), await stateOf(second)]).toEqual(['deploying', 'built']);
  await work(node, { host_port: 32_000 });
  await driver.advance(first, { type: 'route_confirmed', host_ip: '10.0.0.1', host_port: 32_000 });
  await tick();
  expect(await stateOf(second)).toBe('deploying');
});

it('one builder builds all ten projects at twelve minutes for each build', async () => {
  const builder = await register('builder');
  const all: string[] = [];
  for (let i = 0; i < 10; i++) all.push(await requested(`shop-${i}`));
  await tick();
  for (let i = 0; i < 10; i++) {
    await pass(12);
    await work(builder, built);
    await tick();
  }
  for (const id of all) expect(await stateOf(id)).toMatch(/^(built|deploying)$/);
});

it('with pushes faster than a build each third build goes live, and finally the newest push', async () => {
  const [builder, node] = [await register('builder'), await register('deploy')];
  const all: string[] = [];
  let begun = now;
  /** A build takes three minutes, and a deployment ends at once. */
  const agents = async (): Promise<void> => {
    const [task] = await stores.tasks.openFor(builder, now);
    begun = task === undefined ? now : task.created_at;
    if (task !== undefined && now - begun >= 3 * MINUTE) await work(builder, built);
    await tick();
    await work(node, { host_port: 32_000 + all.length });
    for (const r of await stores.routes.all())
      await driver.advance(r.deployment_id, {
        type: 'route_confirmed',
        host_ip: r.host_ip,
        host_port: r.host_port,
      });
    await tick();
  };
  const live = async (): Promise<number> =>
    (await stores.deployments.getMany(all)).filter((d) => d.route_published_at !== null).length;
  for (let push = 0; push < 20; push++) {
    all.push(await requested('shop'));
    for (let minute = 0; minute < 2; minute++) {
      await pass(1);
      await agents();
    }
  }
  expect(await live()).toBeGreaterThanOrEqual(3);
  for (let minute = 0; minute < 10; minute++) {
    await pass(1);
    await agents();
  }
  const states = await Promise.all(all.map(stateOf));
  expect(states.at(-1)).toBe('running');
  for (const state of states.slice(0, -1)) expect(['superseded', 'retired']).toContain(state);
});

it('a builder with an engine that is down gets no builds while healthy builders exist', async () => {
  const body = {
    role: 'builder' as const,
    host_ip: '10.0.0.1',
    max_storage: 1,
    agent_version: '1',
    max_builds: 5,
  };
  const join = async (hostname: string): Promise<string> =>
    (await stores.nodes.register({ ...body, hostname }, now)).node.id;
  const [dead, healthy] = [await join('a-dead'), await join('b-healthy')];
  const error = { code: 'engine_unavailable', message: 'Cannot connect to the Docker daemon' };
  const all: string[] = [];
  for (let i = 0; i < 10; i++) {
    now += MINUTE;
    await Promise.all(['a-dead', 'b-healthy'].map(join));
    all.push(await requested(`shop-${i}`));
    await tick();
    await work(dead, { status: 'failed', result: { error } });
    await tick();
    await work(healthy, built);
  }
  for (const id of all) expect(await stateOf(id)).toBe('built');
});

it('a builder that registers with an engine that is down gets no tasks, and the deployment says why', async () => {
  const engine = { ok: false, version: null, error: 'Cannot connect to the Docker daemon' };
  const body = {
    hostname: 'dead',
    role: 'builder' as const,
    host_ip: '10.0.0.1',
    max_storage: 1,
    agent_version: '1',
  };
  const { node } = await stores.nodes.register({ ...body, engine }, now);
  const id = await requested('shop');
  await tick();
  expect(await stores.tasks.openFor(node.id, now)).toEqual([]);
  const { waiting } = await stores.deployments.get(id);
  expect(waiting).toBe(
    'no builder node has a working container engine: dead has a container engine that does not ' +
      'respond',
  );
  const told = (await stores.deployments.events([id])).get(id)?.map((e) => e.message);
  expect(told).toContain(`${waiting}: Cannot connect to the Docker daemon`);
});

it('the newest push waits for a build that may not be superseded', async () => {
  const builder = await register('builder');
  await register('deploy');
  const all: string[] = [];
  for (let push = 0; push < 4; push++) {
    all.push(await requested('shop'));
    await tick();
  }
  expect(await Promise.all(all.map(stateOf))).toEqual([
    'superseded',
    'superseded',
    'building',
    'pending',
  ]);
  await work(builder, built);
  expect(await stateOf(all[2] ?? '')).toBe('built');
});

it('the deadline runs while the only builder is full and silent', async () => {
  await register('builder');
  await requested('one');
  await tick();
  const second = await requested('two');
  await tick();
  now += 10 * MINUTE;
  await tick();
  now += 31 * MINUTE;
  await tick();
  expect(await stateOf(second)).toBe('failed no_builder');
});

it('the waiting times before and after Berth’s own work add up', async () => {
  const [builder, node] = [await register('builder'), await register('deploy')];
  const first = await requested('shop');
  await tick();
  await work(builder, built);
  await tick();
  const second = await requested('shop');
  await tick();
  await work(builder, built);
  await pass(20);
  await work(node, { host_port: 32_000 });
  await driver.advance(first, { type: 'route_confirmed', host_ip: '10.0.0.1', host_port: 32_000 });
  await stores.nodes.setSchedulable(node, false);
  await pass(29);
  expect(await stateOf(second)).toBe('built');
  await pass(3);
  expect(await stateOf(second)).toBe('failed no_deploy_node');
});
