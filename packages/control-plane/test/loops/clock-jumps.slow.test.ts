/**
 * The machine's clock jumps while a stop-first project moves from one node to another. No stale
 * list of containers may count as newer than the end of the tasks on its node, and the move must
 * not be delayed. Uses the real flow, driver, stores and loops.
 */
import { silentLogger } from '@berth/kit/log';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createChanges } from '../../src/domain/platform/changes.ts';
import { DEFAULT_LIMITS } from '../../src/domain/deployments/facts.ts';
import type { TaskRecord } from '../../src/domain/platform/records.ts';
import type { AllStores } from '../../src/store/open.ts';
import { createUptimeClock, type UptimeClock } from '../../src/domain/platform/uptime.ts';
import { createCacheIndex } from '../../src/domain/nodes/cache-index.ts';
import { createDriver, type Driver } from '../../src/flow/driver.ts';
import { removals } from '../../src/loops/removals.ts';
import { scheduler } from '../../src/loops/scheduler.ts';
import { type Database, openDatabase } from '../../src/store/engine/database.ts';
import { storesOn } from '../../src/store/open.ts';
import { COMMIT, DIGEST, facts } from '../flow/fixtures.ts';

const L = DEFAULT_LIMITS;
const SECOND = 1_000;
const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const START = 1_790_000_000_000;

let db: Database;
let [elapsed, skew, ids] = [0, 0, 0];
const wall = (): number => START + elapsed + skew;
let stores: AllStores;
let driver: Driver;
let uptime: UptimeClock;
let loops: ((signal: AbortSignal) => Promise<unknown>)[];
let project = '';
/** As each agent was answered last. */
const answered = new Map<string, string>();

beforeEach(async () => {
  [elapsed, skew] = [0, 0];
  answered.clear();
  db = await openDatabase('sqlite::memory:', { info() {}, warn() {} }, Date.now);
  stores = storesOn(db, wall);
  uptime = await createUptimeClock({
    store: stores.uptime,
    wall,
    monotonic: () => elapsed,
    leaseMs: L.leaseMs,
  });
  const changes = createChanges();
  const log = silentLogger();
  const platform = facts().platform;
  const newId = (): string => `id-${++ids}`;
  driver = createDriver({
    cacheIndex: createCacheIndex(),
    stores,
    changes,
    limits: L,
    platform,
    now: wall,
    uptime,
    pause: async () => {},
    newId,
  });
  const deps = {
    ...stores,
    driver,
    changes,
    limits: L,
    now: wall,
    uptime,
    pause: async () => {},
    log,
  };
  loops = [scheduler, removals].map((make) => make(deps));
  const input = {
    name: 'shop',
    git_url: 'https://git.example/x.git',
    domain_prefix: 'shop',
    replace: 'recreate' as const,
  };
  project = (await stores.projects.create(input, wall())).id;
});
afterEach(() => db.close());

async function pass(ms: number): Promise<void> {
  for (const end = elapsed + ms; elapsed < end; ) {
    elapsed += Math.min(500, end - elapsed);
    await uptime.now();
    await stores.nodes.flush();
    for (const run of loops) await run(new AbortController().signal);
  }
}

type Seen = { deployment: string; state: 'running' | 'exited' };
async function register(
  hostname: string,
  seen: Seen[] | null,
  role: 'builder' | 'deploy' = 'deploy',
): Promise<string> {
  const containers = seen?.map(({ deployment, state }) => ({
    name: 'svc-shop',
    id: `c-${deployment}`,
    labels: { 'berth.project': project, 'berth.deployment': deployment },
    host_port: state === 'running' ? 32_000 : null,
    state,
  }));
  const host_ip = hostname === 'home' ? '10.0.0.1' : '10.0.0.2';
  const body = {
    hostname,
    role,
    host_ip,
    max_storage: 1e9,
    agent_version: '1',
    last_answer_at: answered.get(hostname) ?? null,
  };
  const at = await uptime.now();
  const { node } = await stores.nodes.register(
    { ...body, ...(containers === undefined ? {} : { containers }) },
    wall(),
    undefined,
    at,
  );
  answered.set(hostname, new Date(node.last_seen_at).toISOString());
  await driver.observed(node, at.at);
  return node.id;
}
async function claimed(node: string): Promise<{ task: TaskRecord; lease: string }> {
  const [task] = await stores.tasks.openFor(node, wall());
  if (task === undefined) throw new Error('there is no task');
  const lease = `lease-${++ids}`;
  await stores.tasks.claim(
    task.id,
    { token: lease, expires_at: (await uptime.now()).at + L.leaseMs },
    wall(),
    L.maxAttempts,
  );
  return { task, lease };
}
const kindsOn = async (node: string): Promise<string[]> =>
  (await stores.tasks.openFor(node, wall())).map((t) => t.kind);
async function built(builder: string): Promise<string> {
  const { deployment } = await driver.request({
    projectId: project,
    commit: null,
    note: null,
    rollbackOf: null,
    idempotency: null,
  });
  await pass(SECOND);
  const build = await claimed(builder);
  const image = { image_tag: `registry:5000/shop:${COMMIT}`, image_digest: DIGEST, commit: COMMIT };
  await driver.report(build.task.id, build.lease, { status: 'completed', ...image });
  return deployment.id;
}

const FAILED = {
  status: 'failed',
  result: { error: { code: 'container_remove_failed', message: '' } },
} as const;

const JUMPS: [string, { before: number; after: number }][] = [
  ['none', { before: 0, after: 0 }],
  ['back 2 s', { before: -2 * SECOND, after: 0 }],
  ['back 1 h', { before: -HOUR, after: 0 }],
  ['back 1 day', { before: -DAY, after: 0 }],
  ['forward 1 h', { before: HOUR, after: 0 }],
  ['forward 1 h, and back when the work has ended', { before: HOUR, after: -HOUR }],
  ['forward 1 day, and back when the work has ended', { before: DAY, after: -DAY }],
  ['back 1 h when the work has ended', { before: 0, after: -HOUR }],
  ['back 2 s when the work has ended', { before: 0, after: -2 * SECOND }],
];

describe.each(JUMPS)('the clock jumps: %s', (_name, { before, after }) => {
  it('the new version waits only for a report that is newer than the end of the tasks', async () => {
    const [builder, home] = [
      await register('builder', null, 'builder'),
      await register('home', []),
    ];
    const first = await built(builder);
    await pass(SECOND);
    const away = await register('away', []);
    const work = await claimed(home);
    await stores.nodes.setSchedulable(home, false);
    await built(builder);
    await register('home', []);
    await register('away', []);

    elapsed += 200;
    skew += before;
    elapsed += 200;
    await driver.report(work.task.id, work.lease, {
      status: 'completed',
      host_port: 32_000,
      container_id: `c-${first}`,
    });
    await driver.advance(first, {
      type: 'route_confirmed',
      host_ip: '10.0.0.1',
      host_port: 32_000,
    });
    const naming = await claimed(home);
    await driver.report(naming.task.id, naming.lease, { status: 'completed' });
    skew += after;
    await register('away', []);
    for (let i = 0; i < 8; i++) {
      await pass(SECOND);
      expect(await kindsOn(away)).toEqual([]);
    }

    await register('builder', null, 'builder');
    await register('away', []);
    await register('home', [{ deployment: first, state: 'running' }]);
    await pass(SECOND);
    expect(await kindsOn(home)).toEqual(['retire']);
    const stop = await claimed(home);
    await driver.report(stop.task.id, stop.lease, { status: 'completed' });
    elapsed += 100;
    await register('away', []);
    await register('home', [{ deployment: first, state: 'exited' }]);
    await pass(SECOND);
    expect(await kindsOn(away)).toEqual(['deploy']);
  });

  it('a deleted project is removed after the next report of its node, and not later', async () => {
    const [builder, home] = [
      await register('builder', null, 'builder'),
      await register('home', []),
    ];
    const first = await built(builder);
    await pass(SECOND);
    const work = await claimed(home);
    await register('home', []);
    await register('home', []);
    elapsed += 200;
    skew += before;
    elapsed += 200;
    await driver.report(work.task.id, work.lease, {
      status: 'completed',
      host_port: 32_000,
      container_id: `c-${first}`,
    });
    await driver.deleteProject(project);
    await pass(SECOND);
    const removal = await claimed(home);
    await driver.report(removal.task.id, removal.lease, FAILED);
    skew += after;
    await pass(3 * SECOND);
    expect(await stores.projects.get(project)).toMatchObject({ name: 'shop' });

    for (let i = 0; i < 3; i++) {
      await register('home', []);
      await pass(SECOND);
    }
    await expect(stores.projects.get(project)).rejects.toMatchObject({ code: 'not_found' });
  });
});
