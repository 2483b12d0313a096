/** Processes without HTTP: start, switch, scale, restart loop, loss, drain and stop. */
import { describe, expect, it } from 'vitest';
import type { ObservedContainer } from '@berth/wire/node';
import type { Process } from '@berth/wire/project';
import type { Facts } from '../../src/domain/deployments/facts.ts';
import type { InstanceRecord } from '../../src/domain/deployments/instance.ts';
import { isEmptyPlan, type Plan } from '../../src/domain/deployments/plan.ts';
import type { DeploymentRecord } from '../../src/domain/platform/records.ts';
import type { VolumeCopy } from '../../src/domain/data/volume-copy.ts';
import { advance, stop } from '../../src/flow/deployment.ts';
import type { FlowEvent } from '../../src/flow/events.ts';
import {
  changeOf,
  facts,
  instance,
  node,
  NOW,
  old,
  on,
  project,
  routeTo,
  SETTINGS,
  stateOf,
  task,
} from './fixtures.ts';

const NODES = [1, 2, 3].map((n) =>
  node({
    id: `n${n}`,
    hostname: `node-${n}`,
    host_ip: `10.0.0.${n}`,
    free_storage: 1e9 - n,
    capabilities: ['instances', 'processes'],
  }),
);
const GPU = 'nvidia.com/gpu';
const ids = Array.from({ length: 40 }, (_, i) => `x${i}`);
const WORKER: Process = { name: 'worker', command: ['node', 'worker.js'], count: 1 };
const withWorker = (over: Partial<Process> = {}): Process[] => [
  { name: 'web', count: 1 },
  { ...WORKER, ...over },
];
const settings = (over: Partial<Process> = {}) => ({ ...SETTINGS, processes: withWorker(over) });
const version = (over: Partial<DeploymentRecord> = {}, of: Partial<Process> = {}) =>
  on.running({ settings: settings(of), ...over });
const world = (over: Partial<Facts>, of: Partial<Process> = {}): Facts =>
  facts({
    nodes: [...NODES],
    freshIds: ids,
    project: project({ processes: withWorker(of) }),
    ...over,
  });
const worker = (over: Partial<InstanceRecord> = {}): InstanceRecord =>
  instance({
    id: 'w1',
    process: 'worker',
    number: 1,
    node_id: 'n2',
    host_port: null,
    container_id: 'k1',
    memory_bytes: 0,
    ...over,
  });

const container = (
  of: InstanceRecord,
  over: Partial<ObservedContainer> = {},
): ObservedContainer => ({
  id: of.container_id ?? 'k',
  name: 'svc-shop-worker-1',
  labels: {
    'berth.project': 'p1',
    'berth.deployment': of.deployment_id,
    'berth.instance': of.id,
    'berth.process': of.process,
    'berth.number': String(of.number),
  },
  host_port: null,
  state: 'running',
  started_at: new Date(NOW - 60_000).toISOString(),
  ...over,
});
const seen = (of: InstanceRecord, over: Partial<ObservedContainer> = {}): FlowEvent => ({
  type: 'observed',
  node_id: of.node_id ?? '',
  container: container(of, over),
});
const missing = (of: InstanceRecord): FlowEvent => ({
  type: 'observed',
  node_id: of.node_id ?? '',
  container: null,
  instance_id: of.id,
});

const deploys = (plan: Plan) =>
  plan.createTasks.flatMap((t) => (t.kind === 'deploy' ? [{ node: t.node_id, ...t.payload }] : []));
const retires = (plan: Plan) =>
  plan.createTasks.flatMap((t) => (t.kind === 'retire' ? [{ node: t.node_id, ...t.payload }] : []));
const put = (plan: Plan): InstanceRecord[] =>
  (plan.instances ?? []).flatMap((c) => ('put' in c ? [c.put] : []));
const removed = (plan: Plan): string[] =>
  (plan.instances ?? []).flatMap((c) => ('remove' in c ? [c.remove] : []));
const lines = (plan: Plan): string[] => plan.storyLines.map(({ message }) => message);

const workerTask = (of: InstanceRecord, deployment_id = 'd2') =>
  task('deploy', {
    id: 'tw',
    deployment_id,
    node_id: of.node_id ?? '',
    payload: { instance: { id: of.id, process: 'worker', number: 1 } } as never,
  });
const reported = (of: InstanceRecord, failed?: { code: string; message: string }): FlowEvent => ({
  type: 'task_reported',
  task: workerTask(of),
  report:
    failed === undefined
      ? { status: 'completed', result: null, container_id: 'k9' }
      : { status: 'failed', result: { error: failed } },
});

describe('a new version', () => {
  it('starts its workers beside web, with their command, without a port', () => {
    const d = on.built({ settings: settings({ count: 2 }) });
    const plan = advance(d, { type: 'tick' }, world({ live: [d] }, { count: 2 }));
    const all = deploys(plan);
    expect(all.map((t) => [t.node, t.container_name, t.command, t.settle_seconds])).toEqual([
      ['n1', 'svc-shop-g2', undefined, undefined],
      ['n1', 'svc-shop-worker-1-g2', ['node', 'worker.js'], 5],
      ['n2', 'svc-shop-worker-2-g2', ['node', 'worker.js'], 5],
    ]);
    expect(all[1]?.instance).toEqual({ id: put(plan)[0]?.id, process: 'worker', number: 1 });
    expect(put(plan).map(({ state, host_port }) => [state, host_port])).toEqual([
      ['starting', null],
      ['starting', null],
    ]);
  });

  it('has its limits from the process, else from the project', () => {
    const limits = { memory_bytes: 1e9, cpus: 2 };
    const processes = [
      { name: 'web', count: 1, memory_bytes: 3e9 },
      { ...WORKER, cpus: 0.5 },
    ];
    const d = on.built({ settings: { ...SETTINGS, ...limits, processes } });
    const big = NODES.map((one) => ({ ...one, memory_bytes: 16e9 }));
    const plan = advance(
      d,
      { type: 'tick' },
      world({ live: [d], nodes: big, project: project({ ...limits, processes }) }),
    );
    expect(deploys(plan).map((t) => [t.memory_bytes, t.cpus])).toEqual([
      [3e9, 2],
      [1e9, 0.5],
    ]);
    expect(plan.takeMemory?.map(({ bytes }) => bytes)).toEqual([4e9]);
    expect(put(plan)[0]?.memory_bytes).toBe(1e9);
  });

  it('is not overcommitted by its workers', () => {
    const limits = { memory_bytes: 1e9 };
    const small = NODES.slice(0, 1).map((one) => ({ ...one, memory_bytes: 15e8 }));
    const d = on.built({ settings: { ...settings(), ...limits } });
    const plan = advance(
      d,
      { type: 'tick' },
      world({ live: [d], nodes: small, project: project({ ...limits, processes: withWorker() }) }),
    );
    expect(plan.createTasks).toEqual([]);
    expect(changeOf(plan, 'd2').waiting).toMatch(/memory/);
  });

  it('has its own device, beside that of web', () => {
    const requires = { devices: { [GPU]: 1 } };
    const d = on.built({ settings: { ...settings(), requires } });
    const start = (devices: string[][]) =>
      advance(
        d,
        { type: 'tick' },
        world({
          live: [d],
          nodes: devices.map((names, i) => ({
            ...(NODES[i] as (typeof NODES)[number]),
            devices: { [GPU]: names },
            capabilities: ['instances', 'processes', 'devices', 'limits'],
          })),
          project: project({ requires, processes: withWorker() }),
        }),
      );
    const taken = (plan: Plan) => deploys(plan).map((t) => [t.node, ...(t.devices ?? [])]);
    expect(taken(start([['0', '1']]))).toEqual([
      ['n1', `${GPU}=0`],
      ['n1', `${GPU}=1`],
    ]);
    expect(taken(start([['0'], ['0']]))).toEqual([
      ['n1', `${GPU}=0`],
      ['n2', `${GPU}=0`],
    ]);
    const one = start([['0']]);
    expect(one.createTasks).toEqual([]);
    expect(changeOf(one, 'd2').waiting).toMatch(/too few free devices/);
  });

  it('waits for an agent that can run them', () => {
    const d = on.built({ settings: settings() });
    const older = NODES.map((one) => ({ ...one, capabilities: ['instances'] }));
    const plan = advance(d, { type: 'tick' }, world({ live: [d], nodes: older }));
    expect(plan.createTasks).toEqual([]);
    expect(lines(plan).join()).toContain('run the process worker');
  });

  it('goes live when its workers run too', () => {
    const d = on.deploying({ settings: settings(), host_port: 32_002, container_id: 'c2' });
    const starting = worker({ state: 'starting', container_id: null });
    const plan = advance(
      d,
      reported(starting),
      world({ live: [d], instances: [starting], tasks: [workerTask(starting)] }),
    );
    expect(put(plan)[0]).toMatchObject({ state: 'serving', container_id: 'k9', host_port: null });
    expect(plan.route).toMatchObject({ set: { deployment_id: 'd2' } });

    const web = task('deploy', { id: 'tweb' });
    const early = on.deploying({ settings: settings() });
    const waits = advance(
      early,
      {
        type: 'task_reported',
        task: web,
        report: { status: 'completed', result: null, host_port: 32_002, container_id: 'c2' },
      },
      world({ live: [early], instances: [starting], tasks: [web, workerTask(starting)] }),
    );
    expect(waits.route).toBeNull();
    expect(lines(waits)).toContain('waits until 1 of 1 other instances have started');
  });

  it('fails if a worker exits before it has settled, and the old version serves', () => {
    const before = old({ settings: settings() });
    const d = on.deploying({ settings: settings(), host_port: 32_002, container_id: 'c2' });
    const starting = worker({ state: 'starting', container_id: null });
    const plan = advance(
      d,
      reported(starting, { code: 'process_exited', message: 'worker 1: exit code 1' }),
      world({
        live: [before, d],
        instances: [starting],
        tasks: [workerTask(starting)],
        route: routeTo(before),
      }),
    );
    expect(stateOf(plan, 'd2')).toBe('failed');
    expect(changeOf(plan, 'd2').error).toMatchObject({ code: 'process_exited' });
    expect(plan.route).toBeNull();
    expect(removed(plan)).toEqual(['w1']);
  });

  it('tries another node if the node of a worker fails', () => {
    const d = on.deploying({ settings: settings(), host_port: 32_002, container_id: 'c2' });
    const starting = worker({ state: 'starting', container_id: null });
    const plan = advance(
      d,
      reported(starting, { code: 'engine_unavailable', message: 'down' }),
      world({ live: [d], instances: [starting], tasks: [workerTask(starting)] }),
    );
    expect(stateOf(plan, 'd2')).toBeNull();
    expect(deploys(plan).map((t) => t.node)).toEqual(['n1']);
  });
});

describe('the switch', () => {
  const before = old({ settings: settings() });
  const oldWorker = worker({ id: 'w0', deployment_id: 'd1', container_id: 'k0' });
  const confirmed: FlowEvent = {
    type: 'route_confirmed',
    host_ip: '10.0.0.1',
    host_port: 32_002,
  };

  it('with recreate the old worker stops first, and the new one starts when it is gone', () => {
    const built = on.built({ settings: settings() });
    const first = advance(
      built,
      { type: 'tick' },
      world({ live: [before, built], instances: [oldWorker], route: routeTo(before) }),
    );
    expect(deploys(first).map((t) => t.container_name)).toEqual(['svc-shop-g2']);

    const d = on.published({ settings: settings() });
    const plan = advance(
      d,
      confirmed,
      world({ live: [before, d], instances: [oldWorker], route: routeTo(d) }),
    );
    expect(stateOf(plan, 'd2')).toBe('running');
    expect(removed(plan)).toEqual(['w0']);
    expect(
      retires(plan).map(({ node: on_, remove }) => [on_, remove.map((r) => r.deployment_id)]),
    ).toEqual([
      ['n1', ['d1']],
      ['n2', ['d1']],
    ]);
    expect(put(plan)).toMatchObject([{ process: 'worker', state: 'waiting', node_id: null }]);

    const live = version({ finished_at: NOW });
    const waiting = put(plan)[0] as InstanceRecord;
    const retire = task('retire', {
      id: 'r1',
      node_id: 'n2',
      payload: { remove: [{ deployment_id: 'd1', reason: 'test' }], keep: null } as never,
    });
    const still = advance(
      live,
      { type: 'scaled' },
      world({ live: [live], instances: [waiting], tasks: [retire], route: routeTo(live) }),
    );
    expect(deploys(still)).toEqual([]);
    const gone = advance(
      live,
      { type: 'scaled' },
      world({ live: [live], instances: [waiting], route: routeTo(live) }),
    );
    expect(deploys(gone).map((t) => t.container_name)).toEqual(['svc-shop-worker-1-g2']);
  });

  it('with recreate it also waits while a node still reports the old container', () => {
    const live = version();
    const waiting = worker({ state: 'waiting', node_id: null, container_id: null });
    const nodes = NODES.map((one) =>
      one.id === 'n2' ? { ...one, containers: [container(oldWorker)] } : one,
    );
    const plan = advance(
      live,
      { type: 'scaled' },
      world({ live: [live], instances: [waiting], nodes, route: routeTo(live) }),
    );
    expect(deploys(plan)).toEqual([]);
  });

  it('with rolling the new worker starts before the switch', () => {
    const rolling = { replace: 'rolling' as const };
    const built = on.built({ settings: settings(rolling) });
    const plan = advance(
      built,
      { type: 'tick' },
      world({ live: [before, built], instances: [oldWorker], route: routeTo(before) }, rolling),
    );
    expect(deploys(plan).map((t) => t.container_name)).toEqual([
      'svc-shop-g2',
      'svc-shop-worker-1-g2',
    ]);
  });

  it('a process that the new version does not have ends with the old one', () => {
    const d = on.published();
    const plan = advance(
      d,
      confirmed,
      world({
        live: [before, d],
        instances: [oldWorker],
        route: routeTo(d),
        project: project(),
      }),
    );
    expect(removed(plan)).toEqual(['w0']);
    expect(put(plan)).toEqual([]);
  });
});

describe('the count', () => {
  it('goes up and down at once', () => {
    const live = version();
    const up = advance(
      live,
      { type: 'scaled' },
      world({ live: [live], instances: [worker()], route: routeTo(live) }, { count: 3 }),
    );
    expect(deploys(up).map((t) => [t.node, t.instance?.number])).toEqual([
      ['n1', 2],
      ['n3', 3],
    ]);
    const three = [worker(), worker({ id: 'w2', number: 2 }), worker({ id: 'w3', number: 3 })];
    const down = advance(
      live,
      { type: 'scaled' },
      world({ live: [live], instances: three, route: routeTo(live) }),
    );
    expect(removed(down)).toEqual(['w3', 'w2']);
    expect(retires(down).map(({ remove }) => remove[0]?.instance_id)).toEqual(['w3', 'w2']);
    expect(down.route).toBeNull();
  });

  it('0 ends all; web goes on', () => {
    const live = version();
    const plan = advance(
      live,
      { type: 'scaled' },
      world({ live: [live], instances: [worker()], route: routeTo(live) }, { count: 0 }),
    );
    expect(removed(plan)).toEqual(['w1']);
    expect(plan.stopped).toBeUndefined();
  });

  it('web at 0 keeps the workers; a stop by a person ends them', () => {
    const live = version();
    const processes = [{ name: 'web', count: 0 }, WORKER];
    const at = world({
      live: [live],
      instances: [worker()],
      route: routeTo(live),
      project: project({ processes }),
    });
    const rest = advance(live, { type: 'scaled' }, at);
    expect(rest.stopped).toMatchObject({ byPerson: false });
    expect(removed(rest)).toEqual([]);
    // The containers of the deployment on this node are not all stopped, only the one of web.
    expect(retires(rest).flatMap(({ stop: s = [] }) => s)).toMatchObject([
      { deployment_id: 'd2', instance_id: null },
    ]);

    const resting = version({ stopped_first: 'stopped', health: null });
    const stopped = {
      live: [resting],
      instances: [worker()],
      route: { ...routeTo(live), stopped: true as const },
    };
    const project0 = { processes, stopped_at: NOW - 5 };
    const atZero = project({ ...project0, stopped_by_person: false });
    const scaled = advance(resting, { type: 'scaled' }, world({ ...stopped, project: atZero }));
    expect(removed(scaled)).toEqual([]);
    const byPerson = stop('ann', world({ ...stopped, project: atZero }));
    expect(removed(byPerson)).toEqual(['w1']);
  });
});

describe('a worker that fails', () => {
  const live = version();
  const at = (one: InstanceRecord, over: Partial<Facts> = {}): Facts =>
    world({ live: [live], instances: [one], route: routeTo(live), ...over });

  it('restarts three times in ten minutes: unhealthy, and the health is degraded', () => {
    const one = worker();
    expect(isEmptyPlan(advance(live, seen(one, { restarts: 2 }), at(one)))).toBe(true);
    const plan = advance(live, seen(one, { restarts: 3, state: 'restarting' }), at(one));
    expect(put(plan)[0]).toMatchObject({
      state: 'unhealthy',
      detail: 'it restarted 3 times in the last ten minutes',
    });
    expect(changeOf(plan, 'd2').health).toMatchObject({
      status: 'degraded',
      detail:
        '0 of 1 instances of worker run: worker 1 is unhealthy: it restarted 3 times in the last ' +
        'ten minutes',
    });
    const looping = worker({ state: 'unhealthy', detail: 'loop', since: NOW - 60_000 });
    const back = advance(live, seen(looping, { restarts: 0 }), at(looping));
    expect(put(back)[0]).toMatchObject({ state: 'serving', detail: null });
  });

  it('one restart of the engine changes nothing', () => {
    const one = worker();
    const plan = advance(live, seen(one, { state: 'restarting', restarts: 1 }), at(one));
    expect(isEmptyPlan(plan)).toBe(true);
  });

  it('is replaced when somebody removes its container', () => {
    const one = worker();
    const first = advance(live, missing(one), at(one));
    expect(put(first)[0]).toMatchObject({ state: 'unhealthy' });
    const gone = worker({ ...put(first)[0], since: NOW - 11_000 });
    const plan = advance(live, missing(gone), at(gone));
    expect(removed(plan)).toEqual(['w1']);
    expect(deploys(plan)).toHaveLength(1);
  });

  it('a stray container of a worker is removed, and web is not touched', () => {
    const stray = worker({ id: 'w9', container_id: 'k9' });
    const plan = advance(live, seen(stray), at(worker()));
    expect(retires(plan).map(({ remove }) => remove[0])).toMatchObject([
      { deployment_id: 'd2', instance_id: 'w9' },
    ]);
  });
});

describe('its node', () => {
  const live = version();
  const lost = { type: 'node_lost' as const, node_id: 'n2', silent: ['n2'] };
  it('is lost: the worker starts elsewhere, and the returned one ends', () => {
    const one = worker();
    const plan = advance(
      live,
      lost,
      world({ live: [live], instances: [one], route: routeTo(live) }),
    );
    expect(put(plan).map(({ id, state, node_id }) => [id, state, node_id])).toEqual([
      ['w1', 'lost', 'n2'],
      [expect.any(String), 'starting', 'n1'],
    ]);
    expect(lines(plan).join()).toContain('worker 1 moves from node-2 to node-1');
    const replacement = worker({ id: 'w2', node_id: 'n1', container_id: 'k2' });
    const away = worker({ state: 'lost' });
    const back = advance(
      live,
      seen(away),
      world({ live: [live], instances: [away, replacement], route: routeTo(live) }),
    );
    expect(removed(back)).toEqual(['w1']);
    expect(retires(back)[0]?.remove[0]).toMatchObject({ instance_id: 'w1' });
  });

  it('is lost with on_node_lost wait: it stays', () => {
    const plan = advance(
      live,
      lost,
      world({
        live: [live],
        instances: [worker()],
        route: routeTo(live),
        project: project({ processes: withWorker(), on_node_lost: 'wait' }),
      }),
    );
    expect(put(plan).map(({ state }) => state)).toEqual(['lost']);
    expect(deploys(plan)).toEqual([]);
  });

  it('is drained: with recreate the old one ends first; with rolling it ends after', () => {
    const nodes = NODES.map((one) =>
      one.id === 'n2' ? { ...one, schedulable: false, drain: { finished_at: null } as never } : one,
    );
    const event = { type: 'node_drained' as const, node_id: 'n2' };
    const at = (of: Partial<Process>, d: DeploymentRecord) =>
      world({ live: [d], instances: [worker()], nodes, route: routeTo(d) }, of);
    const plan = advance(live, event, at({}, live));
    expect(removed(plan)).toEqual(['w1']);
    expect(put(plan)).toMatchObject([{ state: 'waiting', number: 1 }]);
    const rolling = version({}, { replace: 'rolling' });
    const second = advance(rolling, event, at({ replace: 'rolling' }, rolling));
    expect(removed(second)).toEqual([]);
    expect(put(second)).toMatchObject([{ state: 'starting', number: 1 }]);
    const next = put(second)[0] as InstanceRecord;
    const end = advance(
      rolling,
      { ...reported(next), task: workerTask(next) } as FlowEvent,
      world(
        { live: [rolling], instances: [worker(), next], tasks: [workerTask(next)], nodes },
        { replace: 'rolling' },
      ),
    );
    expect(removed(end)).toEqual(['w1']);
  });

  it('has its drain taken back: the replacement ends', () => {
    const rolling = version({}, { replace: 'rolling' });
    const next = worker({ id: 'w2', node_id: 'n1', state: 'starting', container_id: null });
    const plan = advance(
      rolling,
      { type: 'scaled' },
      world(
        { live: [rolling], instances: [worker(), next], route: routeTo(rolling) },
        { replace: 'rolling' },
      ),
    );
    expect(removed(plan)).toEqual(['w2']);
  });

  it('is deleted by force: the worker starts elsewhere', () => {
    const plan = advance(
      live,
      { type: 'node_deleted', node_id: 'n2', reachable: false },
      world({
        live: [live],
        instances: [worker()],
        nodes: NODES.filter(({ id }) => id !== 'n2'),
        route: routeTo(live),
      }),
    );
    expect(removed(plan)).toEqual(['w1']);
    expect(deploys(plan).map((t) => t.node)).toEqual(['n1']);
  });
});

describe('a project that writes to a volume', () => {
  const writes = {
    processes: withWorker(),
    replace: 'recreate' as const,
    volumes: [{ name: 'data', mount_path: '/data' }],
  };
  const own = { ...SETTINGS, ...writes };
  const copy = {
    id: 'v1',
    project_id: 'p1',
    project: 'shop',
    node_id: 'n1',
    hostname: 'node-1',
    state: 'current',
    names: ['data'],
    digest: null,
    bytes: 1,
    changed_at: NOW - 9,
    created_at: NOW - 9,
  } as unknown as VolumeCopy;
  const capable = NODES.map((one) => ({
    ...one,
    capabilities: ['instances', 'processes', 'volumes'],
  }));
  const at = (over: Partial<Facts>): Facts =>
    world({ nodes: capable, volumes: [copy], project: project(writes), ...over });

  it('starts its worker on the node of web, with the volume, before the switch', () => {
    const d = on.deploying({ settings: own });
    const web = task('deploy', {
      payload: { replace: 'recreate', datasets: [], volumes: { copy: 'v1', mounts: [] } } as never,
    });
    const before = old({ settings: own });
    const oldWorker = worker({ id: 'w0', deployment_id: 'd1', node_id: 'n1' });
    const plan = advance(
      d,
      {
        type: 'task_reported',
        task: web,
        report: { status: 'completed', result: null, host_port: 32_002, container_id: 'c2' },
      },
      at({ live: [before, d], instances: [oldWorker], tasks: [web] }),
    );
    expect(deploys(plan).map((t) => [t.node, t.container_name, t.volumes?.copy])).toEqual([
      ['n1', 'svc-shop-worker-1-g2', 'v1'],
    ]);
    expect(plan.route).toBeNull();
  });

  it('goes live without a worker whose node cannot run it now, and starts it later', () => {
    const d = on.deploying({ settings: own });
    const web = task('deploy', { payload: { replace: 'recreate', datasets: [] } as never });
    const older = capable.map((one) => ({ ...one, capabilities: ['instances', 'volumes'] }));
    const plan = advance(
      d,
      {
        type: 'task_reported',
        task: web,
        report: { status: 'completed', result: null, host_port: 32_002, container_id: 'c2' },
      },
      at({ live: [d], tasks: [web], nodes: older }),
    );
    expect(plan.route).not.toBeNull();
    expect(put(plan)).toEqual([]);
  });

  it('keeps the stopped worker of the old version while a newer one starts', () => {
    const asked = version({ settings: own, stopped_first: 'stopped' });
    const one = worker({ node_id: 'n1', state: 'unhealthy', since: NOW - 60_000 });
    const plan = advance(
      asked,
      seen(one, { state: 'exited' }),
      at({ live: [asked], instances: [one], route: routeTo(asked) }),
    );
    expect([put(plan), removed(plan)]).toEqual([[], []]);
  });

  it('ends its worker too when web has count 0, because the volume can move then', () => {
    const live = version({ settings: own });
    const processes = [{ name: 'web', count: 0 }, WORKER];
    const plan = advance(
      live,
      { type: 'scaled' },
      at({
        live: [live],
        instances: [worker({ node_id: 'n1' })],
        route: routeTo(live),
        project: project({ ...writes, processes }),
      }),
    );
    expect(removed(plan)).toEqual(['w1']);
  });
});

it('the deletion of the project removes the containers of all processes', () => {
  const live = version();
  const plan = advance(
    live,
    { type: 'project_deleted' },
    world({ live: [live], instances: [worker()], route: routeTo(live) }),
  );
  expect(removed(plan)).toEqual(['w1']);
  expect(
    retires(plan)
      .map(({ node: at }) => at)
      .toSorted(),
  ).toEqual(['n1', 'n2']);
});
