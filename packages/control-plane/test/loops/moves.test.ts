/**
 * A drain moves the volumes of a project, and something happens meanwhile: the drain is taken back,
 * a container runs again, or a node is lost for good. Loops, driver and store with one clock.
 */
import { silentLogger } from '@berth/kit/log';
import type { ObservedContainer } from '@berth/wire/node';
import type { TaskReport } from '@berth/wire/task';
import type { TaskKind } from '@berth/wire/vocabulary';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createChanges } from '../../src/domain/platform/changes.ts';
import { DEFAULT_LIMITS } from '../../src/domain/deployments/facts.ts';
import type { TaskRecord } from '../../src/domain/platform/records.ts';
import type { AllStores } from '../../src/store/open.ts';
import { newDrain } from '../../src/flow/drain.ts';
import type { Driver } from '../../src/flow/driver.ts';
import { drains } from '../../src/loops/drains.ts';
import { leaseReaper } from '../../src/loops/lease-reaper.ts';
import { scheduler } from '../../src/loops/scheduler.ts';
import { driverOn } from '../flow/driver.ts';
import { can, result, settings } from '../flow/moves.ts';
import { steadyUptime } from '../steady-uptime.ts';
import { storesInMemory } from '../store/in-memory.ts';
import { COMMIT, DIGEST } from '../flow/fixtures.ts';

let stores: AllStores;
let driver: Driver;
let now = 0;
let loops: ((signal: AbortSignal) => Promise<unknown>)[] = [];
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
  const of = {
    hostname,
    role,
    host_ip: `10.0.0.${hostname.length}`,
    max_storage: 1e9,
    agent_version: '1',
    ...can,
    containers,
  };
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
  await stores.tasks.claim(
    task.id,
    { token: `lease of ${task.id}`, expires_at: now + DEFAULT_LIMITS.leaseMs },
    now,
    5,
  );
  return task;
}
async function done(
  nodeId: string,
  kind: TaskKind,
  report: Partial<TaskReport> = {},
): Promise<TaskRecord> {
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
  const deps = {
    ...stores,
    driver,
    changes: createChanges(),
    limits: DEFAULT_LIMITS,
    now: () => now,
    uptime,
    log: silentLogger(),
  };
  loops = [leaseReaper, drains, scheduler].map((loop) => loop(deps));
});
afterEach(() => stores.close());

const idle = (): ObservedContainer => ({ ...container, state: 'exited', host_port: null });
const equal = { result: result as Record<string, unknown> };
const copies = async (nodeId: string): Promise<string[]> =>
  (await stores.volumes.onNode(nodeId)).map(({ state, digest }) =>
    digest === null ? state : `${state}, proven`,
  );
const kinds = async (nodeId: string): Promise<string[]> =>
  (await stores.tasks.openFor(nodeId, now)).map((t) => t.kind);
const lines = async (id: string): Promise<string> =>
  ((await stores.deployments.events([id])).get(id) ?? []).map(({ message }) => message).join('\n');
const drained = async (nodeId: string): Promise<void> => {
  await stores.nodes.setSchedulable(nodeId, false);
  await stores.nodes.setDrain(nodeId, newDrain(now), (await stores.nodes.get(nodeId)).drain);
  await round();
  await round();
};
const uncordoned = async (nodeId: string): Promise<void> => {
  await stores.nodes.setSchedulable(nodeId, true);
  await driver.reviewMoves();
};

type Moved = { project: string; first: string; home: string; away: string };
/** A project with a volume runs on `home`, and `away` is free. */
async function running(): Promise<Moved> {
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
  await driver.advance(first.id, {
    type: 'route_confirmed',
    host_ip: '10.0.0.4',
    host_port: 32_000,
  });
  await done(home, 'retire');
  const labels = { 'berth.project': project.id, 'berth.deployment': first.id };
  const started_at = new Date(now).toISOString();
  container = {
    id: 'c1',
    name: 'svc-shop',
    labels,
    host_port: 32_000,
    state: 'running',
    started_at,
  };
  await registered('home', 'deploy', [container]);
  return { project: project.id, first: first.id, home, away: await registered('elsewhere') };
}
/** The same, and `home` is drained: the version has stopped, and both nodes have a task `move`. */
async function leaving(): Promise<Moved & { next: string }> {
  const moved = await running();
  await drained(moved.home);
  const stop = await openTask(moved.home, 'retire');
  await done(moved.home, 'retire', { result: { stopped: [moved.first] } as never });
  await registered('home', 'deploy', [idle()]);
  await round();
  expect(stop.payload).toMatchObject({ stop: [{ deployment_id: moved.first }] });
  return { ...moved, next: (await openTask(moved.home, 'move')).deployment_id ?? '' };
}
/** Takes the deployment live on the node where its deploy task is. */
async function live(nodeId: string, hostname: string, id: string): Promise<void> {
  await done(nodeId, 'deploy', { host_port: 32_001, container_id: `c-${id}` });
  await driver.advance(id, {
    type: 'route_confirmed',
    host_ip: (await stores.nodes.get(nodeId)).host_ip,
    host_port: 32_001,
  });
  while ((await kinds(nodeId)).includes('retire')) await done(nodeId, 'retire');
  container = {
    ...container,
    id: `c-${id}`,
    host_port: 32_001,
    state: 'running',
    started_at: new Date(now).toISOString(),
  };
  container = { ...container, labels: { ...container.labels, 'berth.deployment': id } };
  await registered(hostname, 'deploy', [container]);
}

describe('the drain is taken back while the volumes are copied', () => {
  it('ends the move at once, and the project starts where its data is', async () => {
    const { home, away, next } = await leaving();
    await uncordoned(home);
    expect([await copies(home), await copies(away)]).toEqual([['current'], ['deleting']]);
    expect([await kinds(home), await kinds(away)]).toEqual([[], []]);
    expect(await lines(next)).toContain(
      'the copy of its volumes on elsewhere is not used: home is not drained any more; it is ' +
        'deleted, and the data stays on home',
    );
    await round();
    expect([await kinds(home), await kinds(away)]).toEqual([['deploy'], []]);
  });
  it.each(['sender', 'receiver', 'both'])(
    'a report of the %s that comes later proves nothing',
    async (late) => {
      const { home, away } = await leaving();
      const tasks = [await claimed(home, 'move'), await claimed(away, 'move')];
      await uncordoned(home);
      for (const [i, task] of tasks.entries())
        if (late === 'both' || late === (i === 0 ? 'sender' : 'receiver'))
          await expect(
            driver.report(task.id, `lease of ${task.id}`, { status: 'completed', ...equal }),
          ).rejects.toThrow();
      expect([await copies(home), await copies(away)]).toEqual([['current'], ['deleting']]);
    },
  );
  it.each([
    ['after both have confirmed it', true],
    ['and only the control plane’s loop notices it', false],
  ])('%s, the next drain copies again', async (_, isTold) => {
    const { home, away, next } = await leaving();
    await done(home, 'move', equal);
    await done(away, 'move', equal);
    if (isTold) await uncordoned(home);
    else await stores.nodes.setSchedulable(home, true);
    await round();
    expect([await copies(home), await copies(away)]).toEqual([['current'], ['deleting']]);
    await live(home, 'home', next);
    now += 60_000;
    await registered('elsewhere');
    await registered('home', 'deploy', [container]);
    await drained(home);
    while ((await kinds(home)).includes('retire')) await done(home, 'retire');
    await registered('home', 'deploy', [idle()]);
    await round();
    expect([await kinds(home), await kinds(away)]).toEqual([['move'], ['move']]);
  });
});

describe('something writes to a proven copy', () => {
  async function proven(): Promise<Moved & { next: string }> {
    const moved = await leaving();
    await done(moved.home, 'move', equal);
    await done(moved.away, 'move', equal);
    return moved;
  }
  const restarted = (state: string): ObservedContainer => ({
    ...idle(),
    state,
    started_at: new Date(now).toISOString(),
  });

  it('the new version starts only after the old node has listed its containers once more', async () => {
    const { home, away } = await proven();
    await round();
    expect([await kinds(home), await kinds(away)]).toEqual([[], []]);
    await registered('home', 'deploy', [idle()]);
    await round();
    expect([await kinds(home), await kinds(away)]).toEqual([[], ['deploy']]);
  });
  it.each(['running', 'exited', 'restarting'])(
    'somebody started the old container, and it is %s now',
    async (state) => {
      const { home, away, next } = await proven();
      await registered('home', 'deploy', [restarted(state)]);
      await round();
      while ((await kinds(home)).includes('retire')) await done(home, 'retire');
      await registered('home', 'deploy', [restarted('exited')]);
      await round();
      await round();
      expect([await kinds(home), await kinds(away)]).toEqual([['move'], ['move']]);
      expect(await lines(next)).toMatch(/on elsewhere is not used: svc-shop r[ua]ns? on home/);
    },
  );
  it('a container that Berth does not know ran beside the data', async () => {
    const { home, away } = await proven();
    const other = {
      ...restarted('exited'),
      id: 'c9',
      labels: { ...container.labels, 'berth.deployment': 'unknown' },
    };
    await registered('home', 'deploy', [idle(), other]);
    await round();
    expect([await kinds(home), await kinds(away)]).toEqual([['move'], ['move']]);
  });
  it('a container ran on the receiver', async () => {
    const { home, away } = await proven();
    await registered('home', 'deploy', [idle()]);
    await registered('elsewhere', 'deploy', [
      {
        ...restarted('exited'),
        id: 'c9',
        labels: { ...container.labels, 'berth.deployment': 'x' },
      },
    ]);
    await round();
    expect([await kinds(home), await kinds(away)]).toEqual([['move'], ['move']]);
  });
  it('the old container runs while the new version starts: the new one does not go live with the older data', async () => {
    const { home, away, next, first } = await proven();
    await registered('home', 'deploy', [idle()]);
    await round();
    await registered('home', 'deploy', [restarted('running')]);
    await done(away, 'deploy', { host_port: 32_005, container_id: 'c5' });
    expect(await stores.deployments.get(next)).toMatchObject({
      status: 'failed',
      error: { code: 'volume_failed' },
    });
    expect([await copies(home), await copies(away)]).toEqual([['current'], ['deleting']]);
    expect(await stores.deployments.get(first)).toMatchObject({ status: 'running' });
  });
  it('the new version may have written: after the loss of its task the data is copied again', async () => {
    const { home, away } = await proven();
    await registered('home', 'deploy', [idle()]);
    await round();
    await claimed(away, 'deploy');
    for (let i = 0; i < 12; i++) {
      now += 10_000;
      await registered('home', 'deploy', [idle()]);
      await registered('elsewhere');
      await stores.tasks.openFor(away, now);
      await round();
    }
    expect([await kinds(home), await kinds(away)]).toEqual([['move'], ['move']]);
  });
});

describe('a node of the move is deleted', () => {
  const third = async (): Promise<string> => registered('third');
  it.each([true, false])(
    'the receiver, force %s: another node takes the volumes at once',
    async (force) => {
      const { home, away, next } = await leaving();
      await done(home, 'move', equal);
      const other = await third();
      await driver.deleteNode(away, force);
      await round();
      await round();
      expect([await kinds(home), await kinds(other)]).toEqual([['move'], ['move']]);
      expect(await lines(next)).toMatch(
        /elsewhere (was|is being) deleted|a node was deleted during the copy/,
      );
    },
  );
  it.each([true, false])(
    'the receiver of a stopped project, force %s: a start takes another node at once',
    async (force) => {
      const { project, first, home, away } = await running();
      await driver.stop(project, 'anna');
      await done(home, 'retire', { result: { stopped: [first] } as never });
      await registered('home', 'deploy', [idle()]);
      await drained(home);
      await done(home, 'move', equal);
      const other = await third();
      await driver.deleteNode(away, force);
      expect(await kinds(home)).toEqual([]);
      const by = {
        commit: null,
        note: null,
        rollbackOf: { find: 'last' as const },
        idempotency: null,
        trigger: 'start' as const,
      };
      const { deployment } = await driver.request({ projectId: project, ...by });
      await round();
      await round();
      expect([await kinds(home), await kinds(other)]).toEqual([['move'], ['move']]);
      expect((await stores.deployments.get(deployment.id)).waiting).toContain(
        'are being copied from home to third',
      );
    },
  );
  it('the receiver is drained too: another node takes the volumes at once', async () => {
    const { home, away } = await leaving();
    const other = await third();
    await drained(away);
    expect([await kinds(home), await kinds(away), await kinds(other)]).toEqual([
      ['move'],
      [],
      ['move'],
    ]);
  });
  it('the sender, with force, after both have confirmed the files: the copy counts', async () => {
    const { home, away, first } = await leaving();
    await done(home, 'move', equal);
    await done(away, 'move', equal);
    await driver.deleteNode(home, true);
    expect(await copies(away)).toEqual(['current']);
    await round();
    expect(await kinds(away)).toEqual(['deploy']);
    expect(await lines(first)).toContain('from now on the data is on elsewhere');
  });
  it('the sender of a stopped project, with force, after both have confirmed the files: the copy counts', async () => {
    const { project, first, home, away } = await running();
    await driver.stop(project, 'anna');
    await done(home, 'retire', { result: { stopped: [first] } as never });
    await registered('home', 'deploy', [idle()]);
    await drained(home);
    await done(away, 'move', equal);
    await done(home, 'move', equal);
    await driver.deleteNode(home, true);
    expect(await copies(away)).toEqual(['current']);
  });
  it('the sender, with force, before it has confirmed them: what arrived whole stays on the disk', async () => {
    const { home, away } = await leaving();
    await done(away, 'move', equal);
    await driver.deleteNode(home, true);
    await round();
    expect(await copies(away)).toEqual(['left']);
  });
});

it('the project starts again on the drained node, with its data, when the receiver has been offline for a while', async () => {
  const { first, home, away } = await leaving();
  // From here on, nothing comes from the receiver.
  const send = await claimed(home, 'move');
  await claimed(away, 'move');
  const since = now;
  const isStarting = async (): Promise<boolean> =>
    (await stores.tasks.openFor(home, now)).some((t) => 'start' in t.payload);
  while (!(await isStarting()) && now - since < DEFAULT_LIMITS.queueMs / 2) {
    now += 10_000;
    const isSending = (await stores.tasks.openFor(home, now)).some((t) => t.id === send.id);
    if (isSending)
      await stores.tasks.renew(send.id, `lease of ${send.id}`, now + DEFAULT_LIMITS.leaseMs, now);
    await registered('home', 'deploy', [idle()]);
    await round();
  }
  const start = await openTask(home, 'retire');
  expect(start.payload).toMatchObject({ start: first });
  expect(now - since).toBeGreaterThanOrEqual(DEFAULT_LIMITS.offlineMs);
  expect([await copies(home), await copies(away)]).toEqual([['current'], ['deleting']]);

  await done(home, 'retire', { result: { started: [first] } as never });
  await registered('home', 'deploy', [container]);
  expect(await stores.deployments.get(first)).toMatchObject({
    status: 'running',
    stopped_first: null,
    node_id: home,
  });
  // The drain goes on, and leaves the version alone until a node can take it.
  await round();
  await round();
  expect((await stores.tasks.openFor(home, now)).map((t) => t.kind)).toEqual([]);
  expect(await stores.deployments.get(first)).toMatchObject({
    status: 'running',
    stopped_first: null,
  });
});

describe('the data has moved, and the new version failed after the switch', () => {
  async function failed(): Promise<Moved & { next: string }> {
    const moved = await leaving();
    await done(moved.home, 'move', equal);
    await done(moved.away, 'move', equal);
    await registered('home', 'deploy', [idle()]);
    await round();
    await done(moved.away, 'deploy', { host_port: 32_005, container_id: 'c5' });
    expect([await copies(moved.home), await copies(moved.away)]).toEqual([['left'], ['current']]);
    const { host_ip } = await stores.nodes.get(moved.away);
    await driver.advance(moved.next, {
      type: 'route_unreachable',
      host_ip,
      host_port: 32_005,
      proxy: 'http://p',
      saw: '502',
    });
    while ((await kinds(moved.away)).includes('retire')) await done(moved.away, 'retire');
    await registered('elsewhere');
    return moved;
  }

  it('somebody starts the old container: it gets no requests, because it has the older data, and Berth stops it again', async () => {
    const { project, home, first } = await failed();
    const [older] = await stores.volumes.onNode(home);
    const labels = { ...container.labels, 'berth.volumes': older?.id ?? '' };
    const again = { ...container, labels, started_at: new Date(now).toISOString() };
    now += 60_000;
    await registered('home', 'deploy', [again]);
    expect((await stores.flow.facts(project)).route).toBeNull();
    expect(await kinds(home)).toEqual(['retire']);
    const stopping = await done(home, 'retire', { result: { stopped: [first] } as never });
    expect(stopping.payload).toMatchObject({ stop: [{ deployment_id: first }] });
    for (let i = 0; i < 2; i += 1)
      await registered('home', 'deploy', [{ ...again, state: 'exited', host_port: null }]);
    expect(await kinds(home)).toEqual([]);
    expect((await stores.flow.facts(project)).route).toBeNull();
    expect((await stores.deployments.get(first)).health).toMatchObject({
      status: 'unhealthy',
      detail: expect.stringContaining('its volumes are on elsewhere now; deploy the project again'),
    });
  });
});
