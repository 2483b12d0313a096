/** A drain moves the volumes of a project, and the node that receives them is lost for good: loops, driver and store with one clock. */
import { silentLogger } from '@berth/kit/log';
import type { ObservedContainer } from '@berth/wire/node';
import type { TaskReport } from '@berth/wire/task';
import type { TaskKind } from '@berth/wire/vocabulary';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createChanges } from '../../src/domain/changes.ts';
import { DEFAULT_LIMITS } from '../../src/domain/facts.ts';
import type { TaskRecord } from '../../src/domain/records.ts';
import type { Stores } from '../../src/domain/stores.ts';
import { newDrain } from '../../src/flow/drain.ts';
import type { Driver } from '../../src/flow/drive.ts';
import type { LoopDeps } from '../../src/loops/deps.ts';
import { drains } from '../../src/loops/drains.ts';
import { leaseReaper } from '../../src/loops/lease-reaper.ts';
import { scheduler } from '../../src/loops/scheduler.ts';
import { driverOn } from '../flow/driver.ts';
import { can, settings } from '../flow/moves.ts';
import { steadyUptime } from '../steady-uptime.ts';
import { storesInMemory } from '../store/in-memory.ts';
import { COMMIT, DIGEST } from '../flow/fixtures.ts';

let stores: Stores;
let driver: Driver;
let now = 0;
let loops: ((signal: AbortSignal) => Promise<void>)[] = [];
/** The container on the node that is drained. */
let container: ObservedContainer;

const go = new AbortController().signal;
const round = async (): Promise<void> => {
  for (const loop of loops) await loop(go);
};
const registered = async (
  hostname: string,
  role: 'builder' | 'deploy' = 'deploy',
  containers: ObservedContainer[] = [],
): Promise<string> => {
  const of = { hostname, role, host_ip: `10.0.0.${hostname.length}`, max_storage: 1e9, agent_version: '1', ...can, containers };
  const { node } = await stores.nodes.register(of, now);
  await driver.observed(node);
  return node.id;
};
const openTask = async (nodeId: string, kind: TaskKind): Promise<TaskRecord> => {
  const task = (await stores.tasks.openFor(nodeId, now)).find((t) => t.kind === kind);
  if (task === undefined) throw new Error(`no open task ${kind}`);
  return task;
};
async function claimed(nodeId: string, kind: TaskKind): Promise<TaskRecord> {
  const task = await openTask(nodeId, kind);
  await stores.tasks.claim(task.id, { token: `lease of ${task.id}`, expires_at: now + DEFAULT_LIMITS.leaseMs }, now, 5);
  return task;
}
async function done(nodeId: string, kind: TaskKind, report: Partial<TaskReport> = {}): Promise<TaskRecord> {
  const task = await claimed(nodeId, kind);
  await driver.report(task.id, `lease of ${task.id}`, { status: 'completed', ...report });
  now += 1_000;
  return task;
}

beforeEach(async () => {
  now = 1_800_000_000_000;
  stores = await storesInMemory(() => now);
  driver = driverOn(stores, () => now);
  const uptime = steadyUptime(() => now);
  const deps = { stores, driver, changes: createChanges(), limits: DEFAULT_LIMITS, now: () => now, uptime, log: silentLogger() };
  loops = [leaseReaper, drains, scheduler].map((loop) => loop(deps as unknown as LoopDeps));
});
afterEach(() => stores.close());

it('the project starts again on the drained node, with its data, when the receiver has been offline for a while', async () => {
  const builder = await registered('b', 'builder');
  const home = await registered('home');
  const { volumes, replace } = settings;
  const git = { git_url: 'https://git.example/x.git', domain_prefix: 'shop' };
  const project = await stores.projects.create({ name: 'shop', ...git, volumes, replace }, now);
  const { deployment: first } = await driver.request({
    projectId: project.id,
    commit: null,
    note: null,
    rollbackOf: null,
    idempotency: null,
  });
  await round();
  await done(builder, 'build', { image_tag: `registry:5000/shop:${COMMIT}`, image_digest: DIGEST });
  await round();
  await done(home, 'deploy', { host_port: 32_000, container_id: 'c1' });
  await driver.advance(first.id, { type: 'route_confirmed', host_ip: '10.0.0.4', host_port: 32_000 });
  await done(home, 'retire');
  const labels = { 'berth.project': project.id, 'berth.deployment': first.id };
  container = { id: 'c1', name: 'svc-shop', labels, host_port: 32_000, state: 'running' };
  await registered('home', 'deploy', [container]);
  const away = await registered('elsewhere');

  await stores.nodes.setSchedulable(home, false);
  await stores.nodes.setDrain(home, newDrain(now), null);
  await round();
  await round();
  const stop = await openTask(home, 'retire');
  const stopped = { ...container, state: 'exited', host_port: null };
  await done(home, 'retire', { result: { stopped: [first.id] } as never });
  await registered('home', 'deploy', [stopped]);
  await round();
  expect(stop.payload).toMatchObject({ stop: [{ deployment_id: first.id }] });

  // From here on, nothing comes from the receiver.
  const send = await claimed(home, 'move');
  await claimed(away, 'move');
  const since = now;
  const isStarting = async (): Promise<boolean> => (await stores.tasks.openFor(home, now)).some((t) => 'start' in t.payload);
  while (!(await isStarting()) && now - since < DEFAULT_LIMITS.queueMs / 2) {
    now += 10_000;
    const isSending = (await stores.tasks.openFor(home, now)).some((t) => t.id === send.id);
    if (isSending) await stores.tasks.renew(send.id, `lease of ${send.id}`, now + DEFAULT_LIMITS.leaseMs, now);
    await registered('home', 'deploy', [stopped]);
    await round();
  }
  const start = await openTask(home, 'retire');
  expect(start.payload).toMatchObject({ start: first.id });
  expect(now - since).toBeGreaterThanOrEqual(DEFAULT_LIMITS.offlineMs);
  const copies = await stores.volumes.onNode(home);
  expect(copies).toMatchObject([{ state: 'current', names: ['data'] }]);
  expect(await stores.volumes.onNode(away)).toMatchObject([{ state: 'deleting' }]);

  await done(home, 'retire', { result: { started: [first.id] } as never });
  await registered('home', 'deploy', [container]);
  expect(await stores.deployments.get(first.id)).toMatchObject({ status: 'running', stopped_first: null, node_id: home });
  // The drain goes on, and leaves the version alone until a node can take it.
  await round();
  await round();
  expect((await stores.tasks.openFor(home, now)).map((t) => t.kind)).toEqual([]);
  expect(await stores.deployments.get(first.id)).toMatchObject({ status: 'running', stopped_first: null });
});
