/**
 * No deadline runs while the control plane does not serve: stopped, without its database, stalled
 * (SIGSTOP, a long pause), or after a jump of the machine's clock. Uses the real flow, driver,
 * stores and loops; the test moves the clocks.
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
import { leaseReaper } from '../../src/loops/lease-reaper.ts';
import { nodeWatch } from '../../src/loops/node-watch.ts';
import { scheduler } from '../../src/loops/scheduler.ts';
import { type Database, openDatabase } from '../../src/store/engine/database.ts';
import { storesOn } from '../../src/store/open.ts';
import { COMMIT, DIGEST, facts } from '../flow/fixtures.ts';

const L = DEFAULT_LIMITS;
const SECOND = 1_000;
const MINUTE = 60_000;

/** A machine whose wall clock may jump. Its monotonic clock never jumps. */
type ControlPlane = {
  stores: AllStores;
  driver: Driver;
  uptime: UptimeClock;
  /** Kills the process and starts it again. */
  start(): Promise<void>;
  runLoops(): Promise<void>;
  jump(ms: number): void;
};

let db: Database;
let elapsed = 0;
let ids = 0;
const living: { cp: ControlPlane; stopped: boolean }[] = [];

async function controlPlane(): Promise<ControlPlane> {
  let skew = 0;
  const wall = (): number => 1_790_000_000_000 + elapsed + skew;
  let run: ((signal: AbortSignal) => Promise<unknown>)[] = [];
  const cp = { jump: (ms: number) => void (skew += ms) } as ControlPlane;
  cp.start = async () => {
    cp.stores = storesOn(db, wall);
    cp.uptime = await createUptimeClock({
      store: cp.stores.uptime,
      wall,
      monotonic: () => elapsed,
      leaseMs: L.leaseMs,
    });
    const changes = createChanges();
    const { stores, uptime } = cp;
    cp.driver = createDriver({
      cacheIndex: createCacheIndex(),
      stores,
      changes,
      limits: L,
      platform: facts().platform,
      now: wall,
      uptime,
      pause: async () => {},
      newId: () => `id-${++ids}`,
    });
    const deps = {
      ...stores,
      driver: cp.driver,
      changes,
      limits: L,
      now: wall,
      uptime,
      pause: async () => {},
      log: silentLogger(),
    };
    run = [scheduler, leaseReaper, nodeWatch].map((make) => make(deps));
  };
  cp.runLoops = async () => {
    await cp.uptime.now();
    for (const one of run) await one(new AbortController().signal);
  };
  await cp.start();
  living.push({ cp, stopped: false });
  return cp;
}

/** Advances the time. Each control plane that is not stopped runs its loops once a second. */
async function pass(ms: number, each: () => Promise<void> = async () => {}): Promise<void> {
  for (const end = elapsed + ms; elapsed < end; ) {
    elapsed += Math.min(SECOND, end - elapsed);
    for (const { cp, stopped } of living) if (!stopped) await cp.runLoops();
    await each();
  }
}
/** Advances the time while no control plane serves. */
const nobody = (ms: number): void => void (elapsed += ms);

let cp: ControlPlane;
let project = '';

beforeEach(async () => {
  db = await openDatabase('sqlite::memory:', { info() {}, warn() {} }, Date.now);
  [elapsed, living.length] = [0, 0];
  cp = await controlPlane();
  const input = { name: 'shop', git_url: 'https://git.example/x.git', domain_prefix: 'shop' };
  project = (await cp.stores.projects.create(input, 0)).id;
});
afterEach(() => db.close());

const now = (one = cp): number => 1_790_000_000_000 + elapsed + (one === cp ? 0 : 0);
async function register(role: 'builder' | 'deploy', one = cp, wall = now()): Promise<string> {
  const body = { hostname: role, role, host_ip: '10.0.0.1', max_storage: 1, agent_version: '1' };
  return (await one.stores.nodes.register(body, wall)).node.id;
}
async function requested(): Promise<string> {
  const { deployment } = await cp.driver.request({
    projectId: project,
    commit: null,
    note: null,
    rollbackOf: null,
    idempotency: null,
  });
  return deployment.id;
}
async function claimed(node: string, one = cp): Promise<{ task: TaskRecord; lease: string }> {
  const [task] = await one.stores.tasks.openFor(node, now());
  if (task === undefined) throw new Error('there is no task');
  const lease = `lease-${++ids}`;
  await one.stores.tasks.claim(
    task.id,
    { token: lease, expires_at: (await one.uptime.now()).at + L.leaseMs },
    now(),
    L.maxAttempts,
  );
  return { task, lease };
}
async function renewed(
  { task, lease }: { task: TaskRecord; lease: string },
  one = cp,
): Promise<void> {
  await one.stores.tasks.renew(task.id, lease, (await one.uptime.now()).at + L.leaseMs, now());
}
const stateOf = async (id: string): Promise<string> => {
  const d = await cp.stores.deployments.get(id);
  return d.error === null ? d.status : `${d.status} ${d.error.code}`;
};
const built = {
  status: 'completed',
  image_tag: `registry:5000/shop:${COMMIT}`,
  image_digest: DIGEST,
  commit: COMMIT,
} as const;

/** Interruptions during which no deadline may advance. */
const INTERRUPTIONS: [string, (ms: number) => Promise<void>][] = [
  [
    'away',
    async (ms) => {
      nobody(ms);
      await cp.start();
    },
  ],
  ['stalled', async (ms) => nobody(ms)],
  ['clock forward', async (ms) => cp.jump(ms)],
  ['clock back', async (ms) => cp.jump(-ms)],
];

describe.each(INTERRUPTIONS)('%s', (_name, interrupt) => {
  it('31 minutes: a deployment that waits for a builder keeps waiting and gets one', async () => {
    const id = await requested();
    await pass(5 * SECOND);
    await interrupt(31 * MINUTE);
    await pass(5 * SECOND);
    expect(await stateOf(id)).toBe('pending');
  });

  it('46 minutes: the report of a build that ended meanwhile is accepted', async () => {
    const node = await register('builder');
    const id = await requested();
    await pass(2 * SECOND);
    const held = await claimed(node);
    await pass(5 * SECOND);
    await interrupt(46 * MINUTE);
    await pass(20 * SECOND);
    expect(await stateOf(id)).toBe('building');
    await cp.driver.report(held.task.id, held.lease, built);
    expect(await stateOf(id)).toBe('built');
  });

  it('40 seconds: no lease is lost', async () => {
    const node = await register('builder');
    const id = await requested();
    await pass(2 * SECOND);
    const held = await claimed(node);
    await pass(9 * SECOND);
    await interrupt(40 * SECOND);
    await pass(10 * SECOND);
    await renewed(held);
    await pass(10 * SECOND);
    expect(await stateOf(id)).toBe('building');
    expect((await cp.stores.tasks.get(held.task.id)).attempt).toBe(1);
  });

  it('3 minutes after a route was published: it can still be confirmed', async () => {
    const [builder, node] = [await register('builder'), await register('deploy')];
    const id = await requested();
    await pass(2 * SECOND);
    const build = await claimed(builder);
    await cp.driver.report(build.task.id, build.lease, built);
    await pass(2 * SECOND);
    const deploy = await claimed(node);
    await cp.driver.report(deploy.task.id, deploy.lease, {
      status: 'completed',
      host_port: 32_000,
    });
    await interrupt(3 * MINUTE);
    await pass(5 * SECOND);
    expect(await stateOf(id)).toBe('deploying');
    await cp.driver.advance(id, {
      type: 'route_confirmed',
      host_ip: '10.0.0.1',
      host_port: 32_000,
    });
    expect(await stateOf(id)).toBe('running');
  });
});
