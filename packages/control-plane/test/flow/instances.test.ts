/** Several instances of one version: start, switch, scale, loss and return. */
import { describe, expect, it } from 'vitest';
import type { ObservedContainer } from '@berth/wire/node';
import type { Facts } from '../../src/domain/deployments/facts.ts';
import type { InstanceRecord } from '../../src/domain/deployments/instance.ts';
import { isEmptyPlan, type Plan } from '../../src/domain/deployments/plan.ts';
import type { DeviceLease } from '../../src/domain/nodes/room.ts';
import type { DeploymentRecord, TaskRecord } from '../../src/domain/platform/records.ts';
import { advance } from '../../src/flow/deployment.ts';
import type { FlowEvent } from '../../src/flow/events.ts';
import {
  changeOf,
  deployment,
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
    capabilities: ['instances'],
  }),
);
const counted = (count: number): Facts['project'] =>
  project({ processes: [{ name: 'web', count }] });
const ids = Array.from({ length: 40 }, (_, i) => `x${i}`);
const world = (over: Partial<Facts>): Facts =>
  facts({ nodes: [...NODES], freshIds: ids, project: counted(3), ...over });

const third = (over: Partial<InstanceRecord> = {}): InstanceRecord =>
  instance({ id: 'i3', number: 3, node_id: 'n3', host_port: 33_003, container_id: 'k3', ...over });

const container = (
  of: InstanceRecord,
  over: Partial<ObservedContainer> = {},
): ObservedContainer => ({
  id: of.container_id ?? 'k',
  name: 'svc-shop',
  labels: {
    'berth.project': 'p1',
    'berth.deployment': of.deployment_id,
    ...(of.labelled && { 'berth.instance': of.id }),
  },
  host_port: of.host_port,
  state: 'running',
  ...over,
});

const deployTasks = (plan: Plan) =>
  plan.createTasks.flatMap((t) =>
    t.kind === 'deploy' ? [{ node: t.node_id, payload: t.payload }] : [],
  );
const retireTasks = (plan: Plan) =>
  plan.createTasks.flatMap((t) =>
    t.kind === 'retire' ? [{ node: t.node_id, payload: t.payload }] : [],
  );
const put = (plan: Plan): InstanceRecord[] =>
  (plan.instances ?? []).flatMap((c) => ('put' in c ? [c.put] : []));
const removed = (plan: Plan): string[] =>
  (plan.instances ?? []).flatMap((c) => ('remove' in c ? [c.remove] : []));
const draining = (plan: Plan): string[] =>
  put(plan)
    .flatMap(({ id, state }) => (state === 'draining' ? [id] : []))
    .toSorted();
const route = (plan: Plan) => (plan.route !== null && 'set' in plan.route ? plan.route.set : null);
const addresses = (plan: Plan): string[] => {
  const set = route(plan);
  return set === null
    ? []
    : [set, ...(set.servers ?? [])].map((s) => `${s.host_ip}:${s.host_port}`);
};
const taskOf = (of: InstanceRecord): TaskRecord =>
  task('deploy', {
    id: `t-${of.id}`,
    node_id: of.node_id ?? '',
    payload: { instance: { id: of.id, process: 'web', number: of.number } } as never,
  });
const reported = (of: InstanceRecord, over: object = {}): FlowEvent => ({
  type: 'task_reported',
  task: taskOf(of),
  report: {
    status: 'completed',
    result: null,
    host_port: of.host_port ?? 33_000,
    container_id: of.container_id ?? 'k',
    ...over,
  } as never,
});

describe('start of a version', () => {
  it('one instance makes the same task as before, without a word about instances', () => {
    const d = on.built();
    const plan = advance(d, { type: 'tick' }, world({ live: [d], project: counted(1) }));
    expect(deployTasks(plan)).toHaveLength(1);
    expect(JSON.stringify(plan)).not.toContain('instance');
  });
  it('three instances go to three nodes, each with a name of its own', () => {
    const d = on.built();
    const plan = advance(d, { type: 'tick' }, world({ live: [d] }));
    expect(stateOf(plan, 'd2')).toBe('deploying');
    expect(deployTasks(plan).map(({ node: at, payload }) => [at, payload.container_name])).toEqual([
      ['n1', 'svc-shop-g2'],
      ['n2', 'svc-shop-web-2-g2'],
      ['n3', 'svc-shop-web-3-g2'],
    ]);
    expect(put(plan).map((i) => [i.number, i.state, i.node_id])).toEqual([
      [2, 'starting', 'n2'],
      [3, 'starting', 'n3'],
    ]);
  });
  it('a fourth instance goes to a node that has one, and with `pack` all go to the best node', () => {
    const d = on.built();
    const four = advance(d, { type: 'tick' }, world({ live: [d], project: counted(4) }));
    expect(deployTasks(four).map((t) => t.node)).toEqual(['n1', 'n2', 'n3', 'n1']);
    const packed = advance(
      d,
      { type: 'tick' },
      world({ live: [d], project: { ...counted(3), spread: 'pack' } }),
    );
    expect(deployTasks(packed).map((t) => t.node)).toEqual(['n1', 'n1', 'n1']);
  });
  it('with `pack`, what the network of the project on a node cannot take goes elsewhere', () => {
    const d = on.built();
    const pack = (count: number) => ({ ...counted(count), spread: 'pack' as const });
    const plan = advance(d, { type: 'tick' }, world({ live: [d], project: pack(14) }));
    const tasksOn = (id: string) => deployTasks(plan).filter((t) => t.node === id).length;
    expect([tasksOn('n1'), tasksOn('n2'), tasksOn('n3')]).toEqual([6, 6, 2]);
    const alone = advance(
      on.running(),
      { type: 'scaled' },
      world({ live: [on.running()], project: pack(7), nodes: NODES.slice(0, 1) }),
    );
    expect(put(alone).map(({ state, detail }) => [state, detail])).toEqual([
      ...Array.from({ length: 5 }, () => ['starting', null]),
      ['waiting', expect.stringContaining('node-1 has 6 instances of the project: its network')],
    ]);
  });
  it('a node whose agent is silent gets nothing while others can take it', () => {
    const d = on.built();
    const started = (over: Partial<Facts>): string[] =>
      deployTasks(advance(d, { type: 'tick' }, world({ live: [d], ...over }))).map((t) => t.node);
    const silent = { overdue: new Set(['n1']) };
    expect(started({ project: counted(1), ...silent })).toEqual(['n2']);
    expect(started(silent)).toEqual(['n2', 'n3', 'n2']);
    // Until it is offline, it may be the only one.
    expect(started({ project: counted(1), nodes: NODES.slice(0, 1), ...silent })).toEqual(['n1']);
    const why = advance(d, { type: 'tick' }, world({ live: [d], ...silent }));
    const [first] = deployTasks(why);
    expect(first?.node).toBe('n2');
    const { placement } = changeOf(why, 'd2') as Pick<DeploymentRecord, 'placement'>;
    expect(placement?.items.find(({ node_id }) => node_id === 'n1')?.reason).toBe(
      'does not answer now, and other nodes can take it',
    );
  });
  it('a contract-only agent gets one instance at most', () => {
    const d = on.built();
    const nodes = [node({ agent_version: null, capabilities: null }), ...NODES.slice(1)];
    const plan = advance(d, { type: 'tick' }, world({ live: [d], nodes }));
    expect(deployTasks(plan).map((t) => t.node)).toEqual(['n1', 'n2', 'n3']);
    const alone = advance(d, { type: 'tick' }, world({ live: [d], nodes: nodes.slice(0, 1) }));
    expect(deployTasks(alone)).toEqual([]);
    expect(changeOf(alone, 'd2').waiting).toContain('second instance');
  });
});

describe('the switch', () => {
  const first = on.deploying();
  it('the route waits for the last instance, and then lists all', () => {
    const starting = [instance({ state: 'starting' }), third({ state: 'starting' })];
    const report: FlowEvent = {
      type: 'task_reported',
      task: task('deploy'),
      report: { status: 'completed', result: null, host_port: 32_002, container_id: 'c2' } as never,
    };
    const one = advance(first, report, world({ live: [first], instances: starting }));
    expect(one.route).toBeNull();
    expect(changeOf(one, 'd2')).toMatchObject({ host_port: 32_002 });
    const answered = { ...first, host_port: 32_002, container_id: 'c2' };
    const last = advance(
      answered,
      reported(third()),
      world({ live: [answered], instances: [instance(), third({ state: 'starting' })] }),
    );
    expect(addresses(last)).toEqual(['10.0.0.1:32002', '10.0.0.2:33002', '10.0.0.3:33003']);
    expect(changeOf(last, 'd2').route_published_at).toBe(NOW);
  });
  it('the switch removes the old instances on every node, and names the new ones', () => {
    const before = old();
    const d = on.published();
    const plan = advance(
      d,
      { type: 'route_confirmed', host_ip: '10.0.0.1', host_port: 32_002 },
      world({
        live: [before, d],
        route: routeTo(d),
        instances: [
          instance({ id: 'o2', deployment_id: 'd1', node_id: 'n3' }),
          instance(),
          third(),
        ],
      }),
    );
    expect(stateOf(plan, 'd2')).toBe('running');
    expect(removed(plan)).toEqual(['o2']);
    const tasks = Object.fromEntries(retireTasks(plan).map((t) => [t.node, t.payload]));
    expect(Object.keys(tasks).toSorted()).toEqual(['n1', 'n2', 'n3']);
    expect(tasks.n1?.remove).toMatchObject([{ deployment_id: 'd1' }]);
    expect(tasks.n3?.remove).toMatchObject([{ deployment_id: 'd1' }]);
    expect(tasks.n2?.remove).toEqual([]);
    expect(tasks.n2?.keep_instances).toMatchObject([{ instance_id: 'i2', name: 'svc-shop' }]);
  });
  it('an instance that fails on its node starts on another one', () => {
    const starting = instance({ state: 'starting' });
    const d = { ...first, host_port: 32_002 };
    const plan = advance(
      d,
      reported(starting, { status: 'failed', error: { code: 'image_pull_failed', message: 'x' } }),
      world({ live: [d], instances: [starting], project: counted(2) }),
    );
    expect(stateOf(plan, 'd2')).toBeNull();
    expect(deployTasks(plan).map((t) => [t.node, t.payload.instance?.number])).toEqual([['n3', 2]]);
    expect(removed(plan)).toEqual(['i2']);
  });
  it('without another node the deployment fails, and the old version serves', () => {
    const starting = instance({ state: 'starting', losses: [] });
    const d = { ...first, host_port: 32_002 };
    const nodes = NODES.slice(0, 2).map((n, i) => (i === 0 ? { ...n, capabilities: [] } : n));
    const plan = advance(
      d,
      reported(starting, { status: 'failed', error: { code: 'probe_failed', message: 'x' } }),
      world({ live: [old(), d], nodes, instances: [starting], project: counted(2) }),
    );
    expect(stateOf(plan, 'd2')).toBe('failed');
    expect(stateOf(plan, 'd1')).toBeNull();
  });
});

describe('scale', () => {
  const d = on.running();
  const scaled = (count: number, instances: InstanceRecord[], over: Partial<Facts> = {}): Plan =>
    advance(
      d,
      { type: 'scaled' },
      world({ live: [d], project: counted(count), instances, route: routeTo(d), ...over }),
    );
  it('up: starts what is missing, with the lowest free numbers, and changes no route yet', () => {
    const plan = scaled(3, []);
    expect(deployTasks(plan).map((t) => [t.node, t.payload.instance?.number])).toEqual([
      ['n2', 2],
      ['n3', 3],
    ]);
    expect(plan.route).toBeNull();
  });
  it('an instance that answers joins the route', () => {
    const plan = advance(
      d,
      reported(instance()),
      world({
        live: [d],
        project: counted(2),
        instances: [instance({ state: 'starting' })],
        route: routeTo(d),
      }),
    );
    expect(addresses(plan)).toEqual(['10.0.0.1:32002', '10.0.0.2:33002']);
  });
  it('down: the route changes first, then the proxy confirms it, then the containers drain', () => {
    const plan = scaled(1, [instance(), third()], {
      route: {
        ...routeTo(d),
        servers: [
          { instance_id: 'i2', node_id: 'n2', host_ip: '10.0.0.2', host_port: 33_002 },
          { instance_id: 'i3', node_id: 'n3', host_ip: '10.0.0.3', host_port: 33_003 },
        ],
      },
    });
    expect(addresses(plan)).toEqual(['10.0.0.1:32002']);
    expect(draining(plan)).toEqual(['i2', 'i3']);
    expect(retireTasks(plan)).toEqual([]);
    const left = advance(
      d,
      { type: 'instance_left', instance_id: 'i3' },
      world({ live: [d], project: counted(1), instances: put(plan), route: routeTo(d) }),
    );
    expect(removed(left)).toEqual(['i3']);
    expect(retireTasks(left)).toMatchObject([
      { node: 'n3', payload: { remove: [{ instance_id: 'i3' }], drain_seconds: 5 } },
    ]);
    const again = scaled(1, put(plan));
    expect([again.instances, again.createTasks]).toEqual([undefined, []]);
  });
  it('down: a second one on a machine ends before a higher number', () => {
    const second = instance({ node_id: 'n1' });
    expect(draining(scaled(2, [second, third()]))).toEqual(['i2']);
  });
  it('what no node can take waits and says why, once', () => {
    const nodes = [{ ...NODES[0], capabilities: [] }] as Facts['nodes'];
    const plan = scaled(2, [], { nodes });
    const [waiting] = put(plan);
    expect(waiting).toMatchObject({ state: 'waiting', number: 2 });
    expect(waiting?.detail).toContain('node-1');
    const again = scaled(2, [waiting as InstanceRecord], { nodes });
    expect(again.instances).toBeUndefined();
    expect(again.storyLines.filter(({ kind }) => kind === 'waiting')).toEqual([]);
    const later = scaled(2, [waiting as InstanceRecord]);
    expect(deployTasks(later).map((t) => t.node)).toEqual(['n2']);
  });
  it('what failed on its node is tried there again after a pause, which grows', () => {
    const d = on.running();
    const loss = (agoMs: number) => ({
      node_id: 'n2',
      at: NOW - agoMs,
      error: { code: 'container_exited' as const, message: 'it ended' },
    });
    const seen = (...agoMs: number[]): Plan =>
      advance(
        d,
        { type: 'scaled' },
        world({
          live: [d],
          project: counted(2),
          nodes: [
            { ...(NODES[0] as Facts['nodes'][number]), schedulable: false },
            NODES[1] as Facts['nodes'][number],
          ],
          instances: [
            instance({ state: 'waiting', node_id: null, losses: agoMs.map(loss), host_port: null }),
          ],
        }),
      );
    expect(deployTasks(seen(30_000))).toEqual([]);
    expect(deployTasks(seen(70_000)).map(({ node: at }) => at)).toEqual(['n2']);
    expect(deployTasks(seen(200_000, 70_000))).toEqual([]);
    expect(deployTasks(seen(200_000, 130_000)).map(({ node: at }) => at)).toEqual(['n2']);
    expect(put(seen(200_000, 130_000))[0]?.losses).toHaveLength(2);
  });
  it('a project that writes has one instance, whatever its count is', () => {
    const volumes = [{ name: 'data', mount_path: '/data' }];
    const writer = { ...d, settings: { ...d.settings, volumes } };
    const plan = advance(writer, { type: 'scaled' }, world({ live: [writer] }));
    expect(deployTasks(plan)).toEqual([]);
  });
});

describe('scale beside another change', () => {
  const d = on.running();
  const all = { live: [d], route: routeTo(d) };
  const scaled = (over: Partial<Facts>): Plan =>
    advance(d, { type: 'scaled' }, world({ ...all, ...over }));
  it('a changed prefix or setting: a new instance is like those of its version', () => {
    const [first] = deployTasks(
      scaled({
        project: {
          ...counted(2),
          name: 'other',
          domain_prefix: 'other',
          env: { MODE: 'new' },
          memory_bytes: 64e6,
        },
      }),
    );
    expect(first?.payload).toMatchObject({
      container_name: 'svc-shop-web-2-g2',
      env: d.settings.env,
      memory_bytes: d.settings.memory_bytes,
    });
  });
  it('two control planes: the second decision of the same scale changes nothing', () => {
    const plan = scaled({});
    const after = { instances: put(plan), tasks: put(plan).map(taskOf) };
    const next = { ...d, ...changeOf(plan, 'd2') };
    const again = advance(next, { type: 'scaled' }, world({ ...all, live: [next], ...after }));
    expect(isEmptyPlan(again)).toBe(true);
  });
  it('a stopped project starts with as many as it wants, and a rollback too', () => {
    for (const trigger of ['start', 'rollback'] as const) {
      const next = { ...on.built(), trigger, settings: counted(1) };
      const project = { ...counted(3), stopped_at: trigger === 'start' ? NOW : null };
      const plan = advance(next, { type: 'tick' }, world({ live: [next], project }));
      expect([trigger, deployTasks(plan).length]).toEqual([trigger, 3]);
    }
  });
});

describe('scaled to 0', () => {
  const d = on.running();
  const zero = (over: Partial<Facts> = {}): Facts =>
    world({ live: [d], project: counted(0), route: routeTo(d), ...over });
  it('the other instances drain, the first one stops, and the page comes', () => {
    const plan = advance(d, { type: 'scaled' }, zero({ instances: [instance(), third()] }));
    expect(plan.stopped?.at).toBe(NOW);
    expect(draining(plan)).toEqual(['i2', 'i3']);
    expect(route(plan)).toMatchObject({ stopped: true });
    expect(changeOf(plan, 'd2')).toMatchObject({ health: null, stopped_first: 'asked' });
    expect(retireTasks(plan)).toMatchObject([
      { node: 'n1', payload: { remove: [], stop: [{ reason: 'the project is scaled to 0' }] } },
    ]);
  });
  it('during a switch: the new version goes live behind the page, and its story says so', () => {
    const next = on.published();
    const before = old();
    const live = [before, next];
    const plan = advance(before, { type: 'scaled' }, zero({ live, route: routeTo(next) }));
    const page = route(plan);
    expect(page).toMatchObject({ deployment_id: next.id, stopped: true });
    const { host_ip, host_port } = routeTo(next);
    const after = advance(
      next,
      { type: 'route_confirmed', host_ip, host_port },
      zero({ live, route: page, project: { ...counted(0), stopped_at: NOW } }),
    );
    expect(stateOf(after, next.id)).toBe('running');
    expect(after.storyLines.map(({ message }) => message)).toContain(
      'live: the reverse proxy serves the page of the project',
    );
  });
  it('is decided once, also by two control planes; a lost or drained node moves nothing', () => {
    const plan = advance(d, { type: 'scaled' }, zero());
    const rests = { ...d, ...changeOf(plan, 'd2') };
    const facts = zero({
      live: [rests],
      project: { ...counted(0), stopped_at: NOW },
      route: route(plan),
    });
    for (const event of [
      { type: 'scaled' },
      { type: 'node_lost', node_id: 'n1' },
      { type: 'node_drained', node_id: 'n1' },
      { type: 'node_silent' },
    ] as const)
      expect([event.type, isEmptyPlan(advance(rests, event, facts))]).toEqual([event.type, true]);
  });
  it('a contract-only agent keeps its container, without requests, and the reason says so', () => {
    const nodes = [{ ...NODES[0], agent_version: null, capabilities: [] }] as Facts['nodes'];
    const plan = advance(d, { type: 'scaled' }, zero({ nodes }));
    expect(retireTasks(plan)).toEqual([]);
    expect(route(plan)).toMatchObject({ stopped: true });
    expect(changeOf(plan, 'd2')['waiting']).toMatch(/^the project is scaled to 0; .*node-1/);
  });
});

describe('a lost node', () => {
  const d = on.running();
  const lost = (id: string, over: Partial<Facts>, of: DeploymentRecord = d): Plan =>
    advance(
      of,
      { type: 'node_lost', node_id: id },
      world({ live: [of], route: routeTo(of), ...over }),
    );
  it('a version that was stopped for one that failed starts elsewhere too', () => {
    const stopped = { ...d, stopped_first: 'stopped' as const };
    const plan = lost('n1', { project: counted(1) }, stopped);
    expect(deployTasks(plan).map((t) => [t.node, t.payload.instance?.number])).toEqual([['n2', 1]]);
    expect(changeOf(plan, 'd2')).toMatchObject({ stopped_first: null, lost_since: NOW });
  });
  it('the same, after the newer version that was in progress has failed', () => {
    const stopped = { ...old(), stopped_first: 'stopped' as const };
    const next = on.deploying({ node_id: 'n2' });
    const both = { live: [stopped, next], project: counted(1) };
    const plan = lost('n1', both, stopped);
    expect(deployTasks(plan)).toEqual([]);
    const held = { ...stopped, ...changeOf(plan, 'd1') };
    expect(held).toMatchObject({ stopped_first: 'stopped', lost_since: NOW });
    const failed = advance(
      next,
      { type: 'cancel' },
      world({ ...both, live: [held, next], tasks: [] }),
    );
    expect(stateOf(failed, 'd2')).toBe('cancelled');
    expect(changeOf(failed, 'd1')).toMatchObject({ stopped_first: null });
  });
  it('a second instance that is lost gets a replacement, and leaves the route', () => {
    const plan = lost('n2', { project: counted(2), instances: [instance()] });
    expect(put(plan).map((i) => [i.state, i.number, i.node_id])).toEqual([
      ['lost', 2, 'n2'],
      ['starting', 2, 'n3'],
    ]);
    expect(addresses(plan)).toEqual([]);
  });
  it('another instance takes the place of a lost first one at once', () => {
    const plan = lost('n1', { project: counted(2), instances: [instance()] });
    expect(addresses(plan)).toEqual(['10.0.0.2:33002']);
    expect(changeOf(plan, 'd2')).toMatchObject({
      node_id: 'n2',
      host_port: 33_002,
      instance_id: 'i2',
      instance_number: 2,
    });
    expect(put(plan).map((i) => [i.state, i.number, i.node_id, i.labelled])).toEqual([
      ['lost', 1, 'n1', false],
      ['starting', 1, 'n3', true],
    ]);
  });
  it('the only instance starts on another node; the route stays until it answers', () => {
    const plan = lost('n1', { project: counted(1) });
    expect(changeOf(plan, 'd2')).toMatchObject({ lost_since: NOW });
    expect(put(plan).map((i) => [i.state, i.number])).toEqual([['starting', 1]]);
    expect(plan.route).toBeNull();
    const gone = { ...d, lost_since: NOW };
    const answers = advance(
      gone,
      reported(instance()),
      world({
        live: [gone],
        project: counted(1),
        instances: [instance({ state: 'starting' })],
        route: routeTo(gone),
      }),
    );
    expect(addresses(answers)).toEqual(['10.0.0.2:33002']);
    expect(changeOf(answers, 'd2')).toMatchObject({ node_id: 'n2', lost_since: null });
  });
  it('its node returns first: the replacement ends, and nothing else changes', () => {
    const gone = {
      ...d,
      lost_since: NOW,
      health: { status: 'unhealthy', since: NOW, detail: 'x' },
    } as const;
    const starting = instance({ state: 'starting', container_id: null, host_port: null });
    const own = container({ ...instance(), labelled: false }, { id: 'c2', host_port: 32_002 });
    const plan = advance(
      gone,
      { type: 'observed', node_id: 'n1', container: own },
      world({
        live: [gone],
        project: counted(1),
        instances: [starting],
        tasks: [taskOf(starting)],
        route: routeTo(gone),
      }),
    );
    expect(changeOf(plan, 'd2')).toMatchObject({ lost_since: null });
    expect(removed(plan)).toEqual(['i2']);
    expect(plan.changeTasks).toMatchObject([{ id: 't-i2', end: 'cancelled' }]);
  });
  it('its node returns after others serve: its container is removed', () => {
    const now = { ...d, node_id: 'n2', host_port: 33_002, instance_id: 'i2', instance_number: 2 };
    const before = instance({
      id: 'f1',
      labelled: false,
      number: 1,
      node_id: 'n1',
      state: 'lost',
      container_id: 'c2',
    });
    const plan = advance(
      now,
      { type: 'observed', node_id: 'n1', container: container(before) },
      world({ live: [now], project: counted(1), instances: [before], route: routeTo(now) }),
    );
    expect(removed(plan)).toEqual(['f1']);
    expect(retireTasks(plan)).toMatchObject([
      { node: 'n1', payload: { remove: [{ deployment_id: 'd2', instance_id: null }] } },
    ]);
    expect(plan.route).toBeNull();
  });
  it.each([
    ['on_node_lost: wait', { on_node_lost: 'wait' as const }, {}],
    ['a volume', {}, { volumes: [{ name: 'data', mount_path: '/data' }] }],
  ])('%s: nothing moves', (_, settings, own) => {
    const of = { ...d, settings: { ...d.settings, ...own } };
    const plan = lost('n1', { project: { ...counted(1), ...settings } }, of);
    expect(plan.createTasks).toEqual([]);
    expect(plan.route).toBeNull();
  });
});

describe('a lost instance returns while another one still waits', () => {
  const d = on.running();
  const lostOne = instance({ id: 'l2', node_id: 'n2', state: 'lost', container_id: 'k2' });
  const waits = third({ state: 'waiting', node_id: null, host_port: null, container_id: null });
  const back = (others: InstanceRecord[], of = d) =>
    advance(
      of,
      { type: 'observed', node_id: 'n2', container: container(lostOne) },
      world({ live: [of], instances: [...others, lostOne, waits], route: routeTo(of) }),
    );
  const replacement = instance({ id: 'r2', node_id: 'n3', host_port: 33_005, container_id: 'k5' });
  it('its replacement serves: it ends, so that no two have one number', () => {
    const plan = back([replacement]);
    expect(removed(plan)).toEqual(['l2']);
    expect(retireTasks(plan)).toMatchObject([
      { node: 'n2', payload: { remove: [{ instance_id: 'l2' }] } },
    ]);
    const first = { ...d, instance_number: 2, instance_id: 'r2' };
    expect(removed(back([], first))).toEqual(['l2']);
  });
  it('its replacement does not serve: it serves again, and the replacement ends', () => {
    const plan = back([{ ...replacement, state: 'unhealthy' }]);
    expect(put(plan).map(({ id, state }) => [id, state])).toContainEqual(['l2', 'serving']);
    expect(removed(plan)).toEqual(['r2']);
  });
});
it('of two that serve with one number, the next decision ends one', () => {
  const d = on.running();
  const twice = [instance(), instance({ id: 'r2', node_id: 'n3', host_port: 33_005 })];
  const plan = advance(
    d,
    { type: 'scaled' },
    world({ live: [d], project: counted(2), instances: twice, route: routeTo(d) }),
  );
  expect(draining(plan)).toEqual(['r2']);
  const asFirst = [instance({ number: 1 })];
  const again = advance(
    d,
    { type: 'scaled' },
    world({ live: [d], project: counted(1), instances: asFirst, route: routeTo(d) }),
  );
  expect(draining(again)).toEqual(['i2']);
});

it('the first one follows its port while it waits for the others', () => {
  const d = on.deploying({ host_port: 32_002, container_id: 'c2' });
  const plan = advance(
    d,
    {
      type: 'observed',
      node_id: 'n1',
      container: {
        id: 'c2',
        name: 'svc-shop-g2',
        labels: { 'berth.project': 'p1', 'berth.deployment': 'd2' },
        host_port: 32_009,
        state: 'running',
      },
    },
    world({ live: [d], instances: [third({ state: 'starting' })] }),
  );
  expect(changeOf(plan, 'd2')).toMatchObject({ host_port: 32_009 });
  expect(plan.route).toBeNull();
});

describe('a lost node, further cases', () => {
  const d = on.running();
  const lines = (plan: Plan): string[] =>
    plan.storyLines.filter(({ kind }) => kind === 'failover').map(({ message }) => message);
  const nodeLost = (over: Partial<FlowEvent> = {}): FlowEvent =>
    ({ type: 'node_lost', node_id: 'n1', ...over }) as FlowEvent;
  const lostFirst = instance({
    id: 'f1',
    labelled: false,
    number: 1,
    node_id: 'n1',
    state: 'lost',
    container_id: 'c2',
    since: NOW,
  });
  /** The replacement of the only instance answered. */
  const moved = { ...d, node_id: 'n2', host_port: 33_002, instance_id: 'i2', instance_number: 1 };
  const wait = { ...counted(2), on_node_lost: 'wait' as const };

  it('the sentence says process, number, from, to and reason', () => {
    const plan = advance(d, nodeLost(), world({ live: [d], project: counted(1) }));
    expect(lines(plan)).toEqual(['web 1 moves from node-1 to node-2; node-1 is silent']);
  });
  it('without a node for it, the sentence says why it waits', () => {
    const nodes = NODES.map((n) => (n.id === 'n1' ? n : { ...n, schedulable: false }));
    const plan = advance(d, nodeLost(), world({ live: [d], nodes, project: counted(1) }));
    expect(put(plan)).toMatchObject([{ state: 'waiting', number: 1 }]);
    expect(lines(plan)).toEqual([
      expect.stringMatching(/^web 1 of node-1 waits for a node: .*; node-1 is silent$/),
    ]);
  });
  it('no replacement starts on a node that is silent too', () => {
    const event = nodeLost({ silent: ['n1', 'n2'] });
    const plan = advance(d, event, world({ live: [d], project: counted(1) }));
    expect(deployTasks(plan).map((t) => t.node)).toEqual(['n3']);
  });
  it('an instance that starts on a lost node starts on another one', () => {
    const starting = instance({ state: 'starting', host_port: null, container_id: null });
    const plan = advance(
      d,
      nodeLost({ node_id: 'n2' }),
      world({ live: [d], project: counted(2), instances: [starting], tasks: [taskOf(starting)] }),
    );
    expect(plan.changeTasks).toMatchObject([{ id: 't-i2', end: 'lost' }]);
    expect(deployTasks(plan).map((t) => [t.node, t.payload.instance?.number])).toEqual([['n3', 2]]);
    expect(removed(plan)).toEqual(['i2']);
  });
  it.each<[string, string, DeploymentRecord, Partial<Facts>]>([
    [
      'the only instance, whose replacement starts',
      'n1',
      { ...d, lost_since: NOW },
      { project: counted(1), instances: [instance({ state: 'starting', number: 1 })] },
    ],
    [
      'the only instance, after its replacement answered',
      'n1',
      moved,
      { project: counted(1), instances: [lostFirst] },
    ],
    [
      'a second instance, whose replacement starts',
      'n2',
      d,
      {
        project: counted(2),
        instances: [
          instance({ state: 'lost' }),
          instance({ id: 'i4', state: 'starting', node_id: 'n3' }),
        ],
      },
    ],
    ['a lost instance that waits', 'n1', moved, { project: wait, instances: [lostFirst] }],
  ])('a repeated event changes nothing: %s', (_, node_id, of, over) => {
    const plan = advance(
      of,
      nodeLost({ node_id, silent: [node_id] }),
      world({ live: [of], route: routeTo(of), ...over }),
    );
    expect(isEmptyPlan(plan)).toBe(true);
  });
  it('after the failover of the only instance, one of one serves', () => {
    const gone = { ...d, lost_since: NOW };
    const starting = instance({ state: 'starting', number: 1 });
    const plan = advance(
      gone,
      reported(starting),
      world({ live: [gone], project: counted(1), instances: [starting], route: routeTo(gone) }),
    );
    expect(changeOf(plan, 'd2')).toMatchObject({
      node_id: 'n2',
      instance_number: 1,
      health: { status: 'healthy' },
    });
    expect(lines(plan)).toEqual([
      'web 1 on node-2 (10.0.0.2) takes over from web 1: node-1 is silent',
    ]);
  });
  it('both ran meanwhile: the event says so when the node returns', () => {
    const back = (started_at: string): Plan =>
      advance(
        moved,
        { type: 'observed', node_id: 'n1', container: container(lostFirst, { started_at }) },
        world({
          live: [moved],
          project: counted(1),
          instances: [lostFirst],
          route: routeTo(moved),
        }),
      );
    const cut = back(new Date(NOW - 60_000).toISOString());
    expect(removed(cut)).toEqual(['f1']);
    expect(lines(cut)).toEqual([
      'web 1 kept running on node-1 beside its replacement: only the connection of the node to ' +
        'Berth was cut',
    ]);
    const rebooted = back(new Date(NOW + 1).toISOString());
    expect(removed(rebooted)).toEqual(['f1']);
    expect(lines(rebooted)).toEqual([]);
  });
  it('on_node_lost: wait keeps a second instance lost: degraded, and nothing starts', () => {
    const plan = advance(
      d,
      nodeLost({ node_id: 'n2' }),
      world({ live: [d], project: wait, instances: [instance()], route: routeTo(d) }),
    );
    expect(put(plan).map((i) => i.state)).toEqual(['lost']);
    expect(deployTasks(plan)).toEqual([]);
    expect(changeOf(plan, 'd2').health).toMatchObject({
      status: 'degraded',
      detail: '1 of 2 instances serve',
    });
    expect(lines(plan)).toEqual([
      'web 2 stays on node-2, which is silent: on_node_lost of the project is wait',
    ]);
    const held = [instance({ state: 'lost' })];
    const again = advance(
      d,
      { type: 'scaled' },
      world({ live: [d], project: wait, instances: held }),
    );
    expect(deployTasks(again)).toEqual([]);
    const three = { ...wait, processes: [{ name: 'web', count: 3 }] };
    const scaled = advance(
      d,
      { type: 'scaled' },
      world({ live: [d], project: three, instances: held }),
    );
    expect(deployTasks(scaled).map((t) => t.payload.instance?.number)).toEqual([3]);
  });
  it('a person says that the machine is off: what waits by its setting moves', () => {
    const held = [instance({ state: 'lost' })];
    const forced = (machine_is_off: boolean): Plan =>
      advance(
        d,
        nodeLost({ node_id: 'n2', forced: { machine_is_off } }),
        world({ live: [d], project: wait, instances: held, route: routeTo(d) }),
      );
    expect(deployTasks(forced(false))).toEqual([]);
    expect(deployTasks(forced(true)).map((t) => [t.node, t.payload.instance?.number])).toEqual([
      ['n3', 2],
    ]);
  });
  it('what writes never moves, and says why once', () => {
    const writer = {
      ...d,
      settings: { ...d.settings, volumes: [{ name: 'data', mount_path: '/data' }] },
    };
    const event = nodeLost({ forced: { machine_is_off: true } });
    const plan = advance(writer, event, world({ live: [writer], project: counted(1) }));
    expect(plan.createTasks).toEqual([]);
    expect(changeOf(plan, 'd2').health).toMatchObject({
      status: 'unknown',
      detail: 'node-1 is silent; it waits for that node: its volume data is on that machine',
    });
    const told = { ...writer, health: changeOf(plan, 'd2').health ?? null };
    expect(isEmptyPlan(advance(told, event, world({ live: [told], project: counted(1) })))).toBe(
      true,
    );
  });
  it('a smaller count ends the loss', () => {
    const held = [instance({ state: 'lost' })];
    const one = { ...wait, processes: [{ name: 'web', count: 1 }] };
    const plan = advance(
      d,
      { type: 'scaled' },
      world({ live: [d], project: one, instances: held }),
    );
    expect(removed(plan)).toEqual(['i2']);
  });
  it('the lost node is deleted while the replacement starts: the deployment goes on', () => {
    const gone = { ...d, lost_since: NOW };
    const starting = instance({ state: 'starting', number: 1 });
    const plan = advance(
      gone,
      { type: 'node_deleted', node_id: 'n1', reachable: false },
      world({ live: [gone], project: counted(1), instances: [starting], route: routeTo(gone) }),
    );
    expect(stateOf(plan, 'd2')).toBeNull();
    const answers = advance(
      gone,
      reported(starting),
      world({
        live: [gone],
        nodes: NODES.slice(1),
        project: counted(1),
        instances: [starting],
        route: routeTo(gone),
      }),
    );
    expect(changeOf(answers, 'd2')).toMatchObject({ node_id: 'n2', lost_since: null });
    expect(put(answers)).toEqual([]);
  });
  it('a stopped project moves nothing', () => {
    const project = { ...counted(1), stopped_at: NOW };
    expect(isEmptyPlan(advance(d, nodeLost(), world({ live: [d], project })))).toBe(true);
  });
});

describe('a drained node', () => {
  const d = on.running();
  const drained = (...names: string[]): Facts['nodes'] =>
    NODES.map((n) =>
      names.includes(n.id)
        ? {
            ...n,
            schedulable: false,
            drain: { started_at: NOW, finished_at: null, moved: 0, tries: {} },
          }
        : n,
    );
  const servers = [
    { instance_id: 'i2', node_id: 'n2', host_ip: '10.0.0.2', host_port: 33_002 },
    { instance_id: 'i3', node_id: 'n3', host_ip: '10.0.0.3', host_port: 33_003 },
  ];
  const all = { live: [d], route: { ...routeTo(d), servers }, instances: [instance(), third()] };
  const drain = (id: string, over: Partial<Facts> = {}): Plan =>
    advance(
      d,
      { type: 'node_drained', node_id: id },
      world({ ...all, nodes: drained(id), ...over }),
    );
  const replacement = (over: Partial<InstanceRecord> = {}): InstanceRecord =>
    instance({
      id: 'r',
      state: 'starting',
      node_id: 'n1',
      host_port: null,
      container_id: null,
      ...over,
    });

  it('starts a replacement with the same number elsewhere, and changes no route yet', () => {
    const plan = drain('n2');
    expect(put(plan).map((i) => [i.number, i.state, i.node_id])).toEqual([[2, 'starting', 'n1']]);
    expect(deployTasks(plan).map((t) => [t.node, t.payload.instance?.number])).toEqual([['n1', 2]]);
    expect([plan.route, removed(plan), retireTasks(plan), stateOf(plan, 'd2')]).toEqual([
      null,
      [],
      [],
      null,
    ]);
  });
  it('a repeated step starts no second replacement, and the count stays right', () => {
    const instances = [instance(), third(), replacement()];
    expect(deployTasks(drain('n2', { instances }))).toEqual([]);
    const scaled = advance(
      d,
      { type: 'scaled' },
      world({ ...all, instances, nodes: drained('n2') }),
    );
    expect([removed(scaled), deployTasks(scaled), changeOf(scaled, 'd2')]).toEqual([[], [], {}]);
  });
  it('the replacement that answers takes the place in one change of the route; the old one drains', () => {
    const answers = { ...replacement(), host_port: 34_000, container_id: 'kr' };
    const plan = advance(
      d,
      reported(answers),
      world({ ...all, nodes: drained('n2'), instances: [instance(), third(), replacement()] }),
    );
    expect(addresses(plan)).toEqual(['10.0.0.1:32002', '10.0.0.1:34000', '10.0.0.3:33003']);
    expect(draining(plan)).toEqual(['i2']);
    expect(retireTasks(plan)).toMatchObject([
      { node: 'n1', payload: { remove: [], keep_instances: [{ instance_id: 'r' }] } },
    ]);
  });
  it('the replacement of the first instance becomes the first one; the old container drains', () => {
    expect(put(drain('n1')).map((i) => [i.number, i.node_id])).toEqual([[1, 'n2']]);
    const first = replacement({ number: 1, node_id: 'n2' });
    const plan = advance(
      d,
      reported({ ...first, host_port: 34_000, container_id: 'kr' }),
      world({ ...all, nodes: drained('n1'), instances: [first, instance(), third()] }),
    );
    expect(addresses(plan)).toEqual(['10.0.0.2:34000', '10.0.0.2:33002', '10.0.0.3:33003']);
    expect(changeOf(plan, 'd2')).toMatchObject({
      node_id: 'n2',
      host_port: 34_000,
      instance_id: 'r',
      instance_number: 1,
    });
    // The instance that is there already keeps the name of the contract.
    expect(retireTasks(plan)).toMatchObject([
      { node: 'n2', payload: { keep_instances: [{ instance_id: 'r', name: 'svc-shop-web-1' }] } },
    ]);
    const [earlier] = put(plan);
    expect(earlier).toMatchObject({ state: 'draining', number: 1, node_id: 'n1', labelled: false });
    const now = { ...d, ...changeOf(plan, 'd2') };
    const left = advance(
      now,
      { type: 'instance_left', instance_id: earlier?.id ?? '' },
      world({ ...all, live: [now], instances: [earlier as InstanceRecord, instance(), third()] }),
    );
    expect(retireTasks(left)).toMatchObject([
      {
        node: 'n1',
        payload: {
          remove: [{ deployment_id: 'd2', instance_id: null }],
          keep: null,
          drain_seconds: 5,
        },
      },
    ]);
  });
  it('what no other node can take serves on, and its replacement waits with the reason', () => {
    const nodes = drained('n1', 'n2', 'n3');
    const plan = drain('n2', { nodes });
    expect(put(plan)).toMatchObject([{ number: 2, state: 'waiting', node_id: null }]);
    expect([removed(plan), plan.route]).toEqual([[], null]);
    const [waiting] = put(plan);
    const instances = [instance(), third(), waiting as InstanceRecord];
    const healthy = { ...d, health: { status: 'healthy', since: NOW, detail: null } } as const;
    const again = advance(
      healthy,
      { type: 'scaled' },
      world({ ...all, live: [healthy], instances, nodes }),
    );
    expect([again.instances, changeOf(again, 'd2')]).toEqual([undefined, {}]);
    const later = advance(
      d,
      { type: 'scaled' },
      world({ ...all, instances, nodes: drained('n2') }),
    );
    expect(deployTasks(later).map((t) => [t.node, t.payload.instance?.number])).toEqual([
      ['n1', 2],
    ]);
  });
  it('a drain that is taken back ends the replacement, and the instance stays', () => {
    const instances = [instance(), third(), replacement()];
    const tasks = [taskOf(replacement())];
    const plan = advance(d, { type: 'scaled' }, world({ ...all, instances, tasks }));
    expect(removed(plan)).toEqual(['r']);
    expect(plan.changeTasks).toMatchObject([{ id: 't-r', end: 'cancelled' }]);
    expect([plan.route, deployTasks(plan)]).toEqual([null, []]);
  });
  it('a scale down ends an instance together with its replacement', () => {
    const instances = [instance(), third(), replacement({ number: 3 })];
    const plan = advance(
      d,
      { type: 'scaled' },
      world({ ...all, instances, nodes: drained('n3'), project: counted(2) }),
    );
    expect([removed(plan), draining(plan)]).toEqual([['r'], ['i3']]);
  });
  it('a node that became silent meanwhile: the replacement stays, and no second one starts', () => {
    const instances = [instance(), third(), replacement()];
    const plan = advance(
      d,
      { type: 'node_lost', node_id: 'n2' },
      world({ ...all, instances, nodes: drained('n2') }),
    );
    expect(put(plan).map((i) => [i.id, i.state])).toEqual([['i2', 'lost']]);
    expect(deployTasks(plan)).toEqual([]);
  });
  it('a newer version in progress, a stopped project or a node that takes work: nothing moves', () => {
    const nothing = [
      drain('n2', { live: [d, on.deploying({ id: 'd3' })] }),
      drain('n2', { project: { ...counted(3), stopped_at: NOW } }),
      drain('n2', { nodes: [...NODES] }),
    ];
    for (const plan of nothing) expect([plan.createTasks, plan.instances]).toEqual([[], undefined]);
  });
  it('the deletion of a node starts what starts there elsewhere, and leaves the rest to the drain', () => {
    const starting = instance({ state: 'starting', host_port: null, container_id: null });
    const event = { type: 'node_deleted', node_id: 'n2', reachable: true } as const;
    const nodes = drained('n2').map((n) => (n.id === 'n2' ? { ...n, deleting_at: NOW } : n));
    const given = (one: InstanceRecord): Plan =>
      advance(d, event, world({ ...all, nodes, instances: [one, third()] }));
    expect(deployTasks(given(starting)).map((t) => t.node)).toEqual(['n1']);
    for (const state of ['serving', 'unhealthy'] as const)
      expect(given(instance({ state })).createTasks).toEqual([]);
    expect(removed(given(instance({ state: 'lost' })))).toEqual(['i2']);
  });
  it('the deletion of a node with `force` keeps a replacement that already starts', () => {
    const plan = advance(
      d,
      { type: 'node_deleted', node_id: 'n2', reachable: false },
      world({ ...all, nodes: drained('n2'), instances: [instance(), third(), replacement()] }),
    );
    expect([removed(plan), deployTasks(plan), addresses(plan)]).toEqual([
      ['i2'],
      [],
      ['10.0.0.1:32002', '10.0.0.3:33003'],
    ]);
  });
});

describe('what instances need of their machines', () => {
  const GIB = 1_073_741_824;
  const GPU = 'nvidia.com/gpu';
  const machines = NODES.map((one) => ({
    ...one,
    memory_bytes: 1.5 * GIB,
    agent_version: '0.3.0',
    devices: { [GPU]: ['0'] },
    capabilities: ['instances', 'devices', 'limits'],
  }));
  const limited = { ...SETTINGS, memory_bytes: GIB };
  const held = (bytes: number) => ({ memory: new Map([['n3', bytes]]), leases: [] });
  it('instances that start together do not take the same memory', () => {
    const d = on.built({ settings: limited });
    const two = machines.slice(0, 2);
    const plan = (count: number): Plan =>
      advance(
        d,
        { type: 'tick' },
        world({
          live: [d],
          project: project({ memory_bytes: GIB, processes: [{ name: 'web', count }] }),
          nodes: two,
          room: held(0),
        }),
      );
    expect(deployTasks(plan(2)).map(({ node: at }) => at)).toEqual(['n1', 'n2']);
    expect(plan(2).takeMemory?.map(({ node_id, bytes }) => [node_id, bytes])).toEqual([
      ['n1', GIB],
      ['n2', GIB],
    ]);
    // A third one has no room, so the deployment waits and says why.
    expect(deployTasks(plan(3))).toEqual([]);
    expect(plan(3).storyLines.find(({ kind }) => kind === 'waiting')?.message).toContain(
      `${GIB} bytes needed, ${GIB / 2} bytes free`,
    );
  });
  it('a scale counts the memory that others hold, and takes its own in the plan', () => {
    const d = on.running({ settings: limited });
    const plan = advance(
      d,
      { type: 'scaled' },
      world({
        live: [d],
        project: project({ memory_bytes: GIB, processes: [{ name: 'web', count: 3 }] }),
        nodes: machines,
        room: {
          memory: new Map([
            ['n1', GIB],
            ['n3', GIB],
          ]),
          leases: [],
        },
      }),
    );
    expect(put(plan).map(({ number, state, node_id }) => [number, state, node_id])).toEqual([
      [2, 'starting', 'n2'],
      [3, 'waiting', null],
    ]);
    expect(plan.takeMemory).toEqual([{ node_id: 'n2', bytes: GIB, most: 1.5 * GIB, without: [] }]);
  });
  const gpu = { ...SETTINGS, requires: { devices: { [GPU]: 1 } } };
  const leased = (node_id: string, name: string, deployment_id: string): DeviceLease => ({
    node_id,
    kind: GPU,
    name,
    deployment_id,
    instance_id: null,
    returns_to: null,
    returns_to_instance: null,
    holders: [{ deployment_id, instance_id: null }],
  });
  const gpus = (count: number, leases: DeviceLease[], over: Partial<Facts>): Facts =>
    world({
      project: project({ requires: gpu.requires, processes: [{ name: 'web', count }] }),
      nodes: machines.slice(0, 2).map((one, i) => ({
        ...one,
        devices: { [GPU]: i === 0 ? ['0', '1'] : ['0'] },
      })),
      room: { memory: new Map(), leases },
      ...over,
    });
  const devicesOf = (plan: Plan): string[] =>
    deployTasks(plan)
      .map(({ node: at, payload }) => [at, ...(payload.devices ?? ['no device'])].join(' '))
      .toSorted();
  const waiting = { state: 'waiting', node_id: null, host_port: null, container_id: null } as const;
  it('two waiting instances do not take one device together', () => {
    const d = on.running({ settings: gpu });
    const leases = [leased('n1', '0', 'd2'), leased('n2', '0', 'other')];
    const instances = [instance(waiting), third(waiting)];
    const over = { live: [d], route: routeTo(d), instances };
    const plan = advance(d, { type: 'scaled' }, gpus(3, leases, over));
    expect(devicesOf(plan)).toEqual([`n1 ${GPU}=1`]);
  });
  it('two waiting instances do not take the same memory', () => {
    const d = on.running({ settings: limited });
    const plan = advance(
      d,
      { type: 'scaled' },
      world({
        live: [d],
        route: routeTo(d),
        project: project({ memory_bytes: GIB, processes: [{ name: 'web', count: 3 }] }),
        nodes: machines.slice(0, 2),
        room: { memory: new Map([['n1', GIB]]), leases: [] },
        instances: [instance(waiting), third(waiting)],
      }),
    );
    expect(plan.takeMemory).toMatchObject([{ node_id: 'n2', bytes: GIB }]);
  });
  it('a device that an earlier attempt may still have is not free for a further instance', () => {
    const d = on.built({ settings: gpu });
    const leases = [leased('n1', '0', 'other'), leased('n2', '0', 'd2')];
    const plan = advance(d, { type: 'tick' }, gpus(2, leases, { live: [d] }));
    expect(devicesOf(plan).filter((one) => one.includes('no device'))).toEqual([]);
  });
  it('the own containers that still end on a node count for its first instance', () => {
    const d = on.built({ settings: limited });
    const over = { live: [d], room: held(0), project: project({ memory_bytes: GIB }) };
    const plan = advance(d, { type: 'tick' }, world({ ...over, nodes: machines.slice(0, 1) }));
    expect(plan.takeMemory).toEqual([{ node_id: 'n1', bytes: GIB, most: 1.5 * GIB, without: [] }]);
  });
  it('a failover takes a device of the new machine, or waits for one', () => {
    const settings = { ...SETTINGS, requires: { devices: { [GPU]: 1 } } };
    const d = on.running({ settings });
    const lost = (leases: readonly object[]): Plan =>
      advance(
        d,
        { type: 'node_lost', node_id: 'n1' },
        world({
          live: [d],
          project: project({ requires: settings.requires }),
          nodes: machines.slice(0, 2),
          route: routeTo(d),
          room: { memory: new Map(), leases: leases as never },
        }),
      );
    const own = { node_id: 'n1', kind: GPU, name: '0', deployment_id: 'd2', returns_to: null };
    const plan = lost([{ ...own, holders: ['d2'] }]);
    expect(deployTasks(plan)).toMatchObject([{ node: 'n2', payload: { devices: [`${GPU}=0`] } }]);
    expect(plan.takeDevices).toMatchObject([{ node_id: 'n2', name: '0', deployment_id: 'd2' }]);
    // An earlier container of the same deployment is still being removed there.
    const before = { ...own, node_id: 'n2', holders: ['d2'] };
    expect(deployTasks(lost([{ ...own, holders: ['d2'] }, before]))).toEqual([]);
    const other = { ...own, node_id: 'n2', deployment_id: 'other', holders: ['other'] };
    const waits = lost([{ ...own, holders: ['d2'] }, other]);
    expect(deployTasks(waits)).toEqual([]);
    expect(put(waits)).toMatchObject([{ number: 1, state: 'waiting' }]);
    expect(put(waits)[0]?.detail).toMatch(/nvidia\.com\/gpu/);
  });
});

describe('a cancellation while instances start', () => {
  const first = task('deploy', { id: 't1', node_id: 'n1', attempt: 1 });
  const second = { ...taskOf(instance({ state: 'starting' })), attempt: 1 };
  const agents = NODES.map((one) => ({ ...one, agent_version: '0.2.0' }));
  const starting = instance({ state: 'starting', host_port: null, container_id: null });
  it('asks every agent that has a task', () => {
    const d = on.deploying();
    const there = { live: [d], instances: [starting], nodes: agents };
    const both = advance(d, { type: 'cancel' }, world({ ...there, tasks: [first, second] }));
    expect(both.changeTasks.map(({ id }) => id)).toEqual(['t1', 't-i2']);
    // The first instance answers already.
    const one = advance(d, { type: 'cancel' }, world({ ...there, tasks: [second] }));
    expect(one.changeTasks.map(({ id }) => id)).toEqual(['t-i2']);
    expect(stateOf(one, 'd2')).toBeNull();
  });
  it('the report of any instance ends the deployment, and no other node is tried', () => {
    const d = on.deploying({ cancel_requested_at: NOW });
    const failed = { error: { code: 'cancelled', message: 'cancelled' } };
    const plan = advance(
      d,
      reported(starting, { status: 'failed', result: failed, host_port: null }),
      world({ live: [d], instances: [starting], nodes: agents, tasks: [second] }),
    );
    expect(stateOf(plan, 'd2')).toBe('cancelled');
    expect(deployTasks(plan)).toEqual([]);
  });
});

describe('a container that does not serve', () => {
  it('leaves the route, makes the project degraded, and comes back', () => {
    const d = on.running();
    const servers = [{ instance_id: 'i2', node_id: 'n2', host_ip: '10.0.0.2', host_port: 33_002 }];
    const there = { live: [d], project: counted(2), route: { ...routeTo(d), servers } };
    const down = advance(
      d,
      {
        type: 'observed',
        node_id: 'n2',
        container: container(instance(), { state: 'restarting' }),
      },
      world({ ...there, instances: [instance()] }),
    );
    expect(addresses(down)).toEqual(['10.0.0.1:32002']);
    expect(changeOf(down, 'd2').health).toMatchObject({
      status: 'degraded',
      detail: '1 of 2 instances serve',
    });
    const degraded = {
      ...d,
      health: { status: 'degraded', since: NOW, detail: '1 of 2 instances serve' },
    } as const;
    const back = advance(
      degraded,
      { type: 'observed', node_id: 'n2', container: container(instance(), { host_port: 33_009 }) },
      world({
        live: [degraded],
        project: counted(2),
        instances: [instance({ state: 'unhealthy' })],
        route: routeTo(d),
      }),
    );
    expect(addresses(back)).toEqual(['10.0.0.1:32002', '10.0.0.2:33009']);
    expect(changeOf(back, 'd2').health?.status).toBe('healthy');
  });
  it('a first one that does not serve changes places with one that does, and leaves the route', () => {
    const d = on.running({ container_id: 'k1' });
    const servers = [{ instance_id: 'i2', node_id: 'n2', host_ip: '10.0.0.2', host_port: 33_002 }];
    const seen = (first: ObservedContainer | null, others = [instance()]): Plan =>
      advance(
        d,
        { type: 'observed', node_id: 'n1', container: first },
        world({
          live: [d],
          project: counted(2),
          route: { ...routeTo(d), servers },
          instances: others,
        }),
      );
    const own = { ...container(instance(), { host_port: 32_002 }), id: 'k1' };
    const running: ObservedContainer = {
      ...own,
      labels: { 'berth.project': 'p1', 'berth.deployment': 'd2' },
    };
    const fails = { status: 'unhealthy', output: 'no answer' } as const;
    for (const [first, detail] of [
      [{ ...running, state: 'exited', host_port: null }, 'its container is exited'],
      [{ ...running, health: fails }, 'the HEALTHCHECK of its image fails: no answer'],
      [{ ...running, probe: fails }, 'it does not answer: no answer'],
      [null, 'its container is missing'],
    ] as const) {
      const plan = seen(first);
      expect(addresses(plan), detail).toEqual(['10.0.0.2:33002']);
      expect(changeOf(plan, 'd2'), detail).toMatchObject({
        node_id: 'n2',
        instance_number: 2,
        health: { status: 'degraded', detail: '1 of 2 instances serve' },
      });
      expect(put(plan), detail).toMatchObject([
        { number: 1, node_id: 'n1', container_id: 'k1', state: 'unhealthy', detail },
      ]);
    }
    // The last one stays in the route.
    const alone = seen(null, [instance({ state: 'unhealthy' })]);
    expect(alone.route).toBeNull();
    expect(changeOf(alone, 'd2').health?.status).toBe('unhealthy');
  });
  it('one whose HEALTHCHECK fails leaves the route, and comes back when it passes', () => {
    const d = on.running();
    const servers = [{ instance_id: 'i2', node_id: 'n2', host_ip: '10.0.0.2', host_port: 33_002 }];
    const seen = (of: InstanceRecord, over: Partial<ObservedContainer>): Plan =>
      advance(
        d,
        { type: 'observed', node_id: 'n2', container: container(of, over) },
        world({
          live: [d],
          project: counted(2),
          route: { ...routeTo(d), ...(of.state === 'serving' && { servers }) },
          instances: [of],
        }),
      );
    const fails = seen(instance(), { health: { status: 'unhealthy', output: 'no answer' } });
    expect(addresses(fails)).toEqual(['10.0.0.1:32002']);
    const [down] = put(fails) as [InstanceRecord];
    expect(down.detail).toBe('the HEALTHCHECK of its image fails: no answer');
    const back = seen(down, { health: { status: 'healthy' } });
    expect(addresses(back)).toEqual(['10.0.0.1:32002', '10.0.0.2:33002']);
  });
  it('one that does not answer at health_path leaves the route, and comes back after an answer', () => {
    const d = on.running();
    const servers = [{ instance_id: 'i2', node_id: 'n2', host_ip: '10.0.0.2', host_port: 33_002 }];
    const seen = (of: InstanceRecord, probe: NonNullable<ObservedContainer['probe']>): Plan =>
      advance(
        d,
        { type: 'observed', node_id: 'n2', container: container(of, { probe }) },
        world({
          live: [d],
          project: counted(2),
          route: { ...routeTo(d), ...(of.state === 'serving' && { servers }) },
          instances: [of],
        }),
      );
    const hangs = seen(instance(), { status: 'unhealthy', output: 'GET /up: no answer in time' });
    expect(addresses(hangs)).toEqual(['10.0.0.1:32002']);
    const [down] = put(hangs) as [InstanceRecord];
    expect(down.detail).toBe('it does not answer: GET /up: no answer in time');
    expect(addresses(seen(down, { status: 'starting' }))).toEqual([]);
    const back = seen(down, { status: 'healthy' });
    expect(addresses(back)).toEqual(['10.0.0.1:32002', '10.0.0.2:33002']);
  });
  it('one that just started again serves after a while: it can end again', () => {
    const d = on.running();
    const down = instance({ state: 'unhealthy', detail: 'its container is restarting' });
    const seen = (startedMs: number): Plan =>
      advance(
        d,
        {
          type: 'observed',
          node_id: 'n2',
          container: container(down, { started_at: new Date(NOW - startedMs).toISOString() }),
        },
        world({ live: [d], project: counted(2), route: routeTo(d), instances: [down] }),
      );
    expect(addresses(seen(2_000))).toEqual([]);
    expect(addresses(seen(20_000))).toEqual(['10.0.0.1:32002', '10.0.0.2:33002']);
  });
  it('one that serves again takes the place of a first one that is down', () => {
    const health = { status: 'unhealthy', since: NOW, detail: 'its container exited' } as const;
    const d = on.running({ health, container_id: 'k1' });
    const down = instance({ state: 'unhealthy', detail: 'its container is exited' });
    const plan = advance(
      d,
      { type: 'observed', node_id: 'n2', container: container(down) },
      world({ live: [d], project: counted(2), route: routeTo(d), instances: [down] }),
    );
    expect(addresses(plan)).toEqual(['10.0.0.2:33002']);
    expect(changeOf(plan, 'd2')).toMatchObject({ node_id: 'n2', health: { status: 'degraded' } });
  });
  it('a container that somebody removed is replaced after a while', () => {
    const d = on.running();
    const seen = (given: Partial<InstanceRecord>): Plan =>
      advance(
        d,
        { type: 'observed', node_id: 'n2', container: null, instance_id: 'i2' },
        world({
          live: [d],
          project: counted(2),
          route: routeTo(d),
          instances: [instance(given)],
        }),
      );
    const [missing] = put(seen({}));
    expect(missing).toMatchObject({ state: 'unhealthy', detail: 'its container is missing' });
    expect(put(seen({ ...missing, since: NOW - 5_000 }))).toEqual([]);
    const replaced = seen({ ...missing, since: NOW - 20_000 });
    expect(removed(replaced)).toEqual(['i2']);
    expect(deployTasks(replaced).map((t) => [t.node, t.payload.instance?.number])).toEqual([
      ['n2', 2],
    ]);
  });
  it('a renamed machine keeps its instance: the route follows, and no container ends', () => {
    const d = on.running();
    const servers = [{ instance_id: 'i2', node_id: 'n2', host_ip: '10.0.0.2', host_port: 33_002 }];
    const heir = node({ id: 'n9', hostname: 'new-name', host_ip: '10.0.0.9' });
    const seen = (own: Partial<(typeof NODES)[number]> | null, of = instance()): Plan =>
      advance(
        d,
        { type: 'observed', node_id: 'n9', container: container(of) },
        world({
          live: [d],
          project: counted(2),
          route: { ...routeTo(d), servers },
          instances: [of],
          nodes: [
            NODES[0] as Facts['nodes'][number],
            ...(own === null ? [] : [{ ...(NODES[1] as Facts['nodes'][number]), ...own }]),
            heir,
          ],
        }),
      );
    const there = { observed_at: 1, last_seen_at: NOW };
    for (const plan of [seen({ ...there, containers: [] }), seen(null)]) {
      expect(retireTasks(plan)).toEqual([]);
      expect(put(plan)).toMatchObject([{ id: 'i2', node_id: 'n9', state: 'serving' }]);
      expect(addresses(plan)).toEqual(['10.0.0.1:32002', '10.0.0.9:33002']);
    }
    // One that was the first: its container has no label of an instance.
    expect(put(seen(null, instance({ labelled: false })))).toMatchObject([{ node_id: 'n9' }]);
    // The old node still has it, or a renamed machine would have its secret: nothing happens.
    for (const own of [
      { ...there, containers: [container(instance())] },
      { ...there, containers: [], has_secret: true },
    ])
      expect(isEmptyPlan(seen(own))).toBe(true);
  });
  it('a container of an ended instance is removed', () => {
    const d = on.running();
    const plan = advance(
      d,
      { type: 'observed', node_id: 'n2', container: container(instance()) },
      world({ live: [d], project: counted(1) }),
    );
    expect(retireTasks(plan)).toMatchObject([
      { node: 'n2', payload: { remove: [{ deployment_id: 'd2', instance_id: 'i2' }] } },
    ]);
  });
});

describe('an instance whose container does not come back', () => {
  const d = on.running();
  const seen = (of: InstanceRecord, given: ObservedContainer): Plan =>
    advance(
      d,
      { type: 'observed', node_id: 'n2', container: given },
      world({ live: [d], project: counted(2), instances: [of], route: routeTo(d) }),
    );
  it('one that was stopped for a failed version is replaced, and one that just exited is not', () => {
    const exited = (of: InstanceRecord): ObservedContainer =>
      container(of, { state: 'exited', host_port: null });
    const recent = instance({ state: 'unhealthy', since: NOW - 2_000 });
    expect(deployTasks(seen(recent, exited(recent)))).toEqual([]);
    const down = instance({ state: 'unhealthy', since: NOW - 20_000 });
    const plan = seen(down, exited(down));
    expect(deployTasks(plan).map((t) => t.payload.instance?.number)).toEqual([2]);
    expect(retireTasks(plan)).toMatchObject([
      { node: 'n2', payload: { remove: [{ deployment_id: 'd2', instance_id: 'i2' }] } },
    ]);
  });
});

describe('a version that must run alone', () => {
  const recreate = { ...on.running().settings, replace: 'recreate' as const };
  it.each([
    ['a newer one starts', { stopped_first: null }, 'deploying' as const],
    ['it was stopped for a newer one', { stopped_first: 'stopped' as const }, 'built' as const],
  ])('gets no further instance while %s', (_, own, status) => {
    const d = { ...old(), settings: recreate, ...own };
    const next = { ...on.deploying(), status, settings: recreate };
    const facts = { live: [d, next], project: counted(2) };
    expect(deployTasks(advance(d, { type: 'scaled' }, world(facts)))).toEqual([]);
    const lost = advance(
      { ...d, stopped_first: null },
      { type: 'node_lost', node_id: 'n2' },
      world({ ...facts, instances: [instance({ deployment_id: 'd1' })] }),
    );
    expect(deployTasks(lost)).toEqual([]);
  });
  it('a count that no node can take any more does not fail it after the old one has stopped', () => {
    const d = { ...on.deploying(), settings: recreate };
    const plan = advance(
      d,
      {
        type: 'task_reported',
        task: task('deploy', { payload: { replace: 'recreate' } as never }),
        report: {
          status: 'completed',
          result: null,
          host_port: 32_002,
          container_id: 'c',
        },
      },
      world({ live: [d], nodes: [{ ...NODES[0], capabilities: [] }] as Facts['nodes'] }),
    );
    expect(stateOf(plan, 'd2')).toBeNull();
    expect(addresses(plan)).toEqual(['10.0.0.1:32002']);
  });
});

it('one instance that is down again does not delay the route of the others', () => {
  const d = { ...on.deploying(), host_port: 32_002, container_id: 'c2' };
  const plan = advance(
    d,
    reported(third()),
    world({
      live: [d],
      instances: [instance({ state: 'unhealthy' }), third({ state: 'starting' })],
    }),
  );
  expect(addresses(plan)).toEqual(['10.0.0.1:32002', '10.0.0.3:33003']);
});

it('a left first container goes without the instance beside it', () => {
  const d = { ...on.deploying(), node_id: 'n1' };
  const left = container({ ...instance(), labelled: false }, { id: 'left' });
  const plan = advance(
    d,
    { type: 'observed', node_id: 'n2', container: left },
    world({ live: [d], instances: [instance()] }),
  );
  expect(retireTasks(plan)).toMatchObject([
    { node: 'n2', payload: { remove: [{ deployment_id: 'd2', instance_id: null }] } },
  ]);
});

describe('ends', () => {
  it('the switch to a newer version ends the tasks of instances that still start', () => {
    const d = on.published();
    const starting = instance({ id: 'o2', deployment_id: 'd1', state: 'starting' });
    const plan = advance(
      d,
      { type: 'route_confirmed', host_ip: '10.0.0.1', host_port: 32_002 },
      world({
        live: [old(), d],
        route: routeTo(d),
        project: counted(1),
        instances: [starting],
        tasks: [{ ...taskOf(starting), deployment_id: 'd1' }],
      }),
    );
    expect(plan.changeTasks).toMatchObject([{ id: 't-o2', end: 'cancelled' }]);
  });
  it('a deletion removes the containers of all instances', () => {
    const d = on.running();
    const plan = advance(
      d,
      { type: 'project_deleted' },
      world({ live: [d], instances: [instance(), third()], route: routeTo(d) }),
    );
    expect(
      retireTasks(plan)
        .map((t) => t.node)
        .toSorted(),
    ).toEqual(['n1', 'n2', 'n3']);
    expect(removed(plan).toSorted()).toEqual(['i2', 'i3']);
  });
  it('a stop removes the other instances and keeps the first one', () => {
    const d = on.running();
    const plan = advance(
      d,
      { type: 'project_stopped' },
      world({
        live: [d],
        project: { ...counted(2), stopped_at: NOW },
        instances: [instance()],
        route: routeTo(d),
      }),
    );
    expect(draining(plan)).toEqual(['i2']);
    expect(route(plan)).toMatchObject({ stopped: true });
  });
  it('the loss of the first node during a deployment starts all instances again', () => {
    const d = on.deploying();
    const plan = advance(
      d,
      { type: 'task_lost', task: task('deploy'), why: 'lease' },
      world({
        live: [d],
        tasks: [task('deploy'), taskOf(instance())],
        instances: [instance({ state: 'starting' })],
      }),
    );
    expect(stateOf(plan, 'd2')).toBe('built');
    expect(removed(plan)).toEqual(['i2']);
    expect(plan.changeTasks).toMatchObject([{ end: 'lost' }, { id: 't-i2', end: 'cancelled' }]);
  });
  it('the loss removes each instance by its id: a new first one can start beside them', () => {
    const d = on.deploying();
    const there = { node_id: 'n2', state: 'serving' as const };
    const plan = advance(
      d,
      { type: 'task_lost', task: task('deploy'), why: 'lease' },
      world({ live: [d], tasks: [task('deploy')], instances: [instance(there), third(there)] }),
    );
    expect(retireTasks(plan).map((t) => [t.node, t.payload.remove])).toMatchObject([
      [
        'n2',
        [
          { deployment_id: 'd2', instance_id: 'i2' },
          { deployment_id: 'd2', instance_id: 'i3' },
        ],
      ],
    ]);
  });
});

it('the id of a deployment without instances is unchanged', () => {
  expect(deployment()).toMatchObject({ instance_id: null, instance_number: 1, lost_since: null });
});

describe('a version that stopped for a newer one, which failed', () => {
  const settings = { ...SETTINGS, replace: 'recreate' as const };
  const first = old({ settings, count: 2, stopped_first: 'stopped' } as Partial<DeploymentRecord>);
  const second = instance({ deployment_id: 'd1' });
  const stoppedFirst: ObservedContainer = {
    id: 'c1',
    name: 'svc-shop',
    labels: { 'berth.project': 'p1', 'berth.deployment': 'd1' },
    host_port: null,
    state: 'exited',
  };
  const seen = (runsOnSecond: ObservedContainer) =>
    advance(
      first,
      { type: 'observed', node_id: 'n1', container: stoppedFirst },
      world({
        live: [first],
        instances: [second],
        project: { ...counted(2), replace: 'recreate' },
        nodes: NODES.map((one) => {
          if (one.id === 'n1') return { ...one, containers: [stoppedFirst] };
          return one.id === 'n2' ? { ...one, containers: [runsOnSecond] } : one;
        }),
      }),
    );

  it('its first instance starts again although its second one runs already on another node', () => {
    expect(retireTasks(seen(container(second)))).toMatchObject([
      { node: 'n1', payload: { start: 'd1' } },
    ]);
  });
  it('it stays stopped while a container of another version runs on that node', () => {
    const foreign = { ...container(second), id: 'k9' };
    foreign.labels = { ...foreign.labels, 'berth.deployment': 'd2' };
    expect(retireTasks(seen(foreign))).toEqual([]);
  });
});

it('a renamed machine ends no task of another instance, which would start nowhere', () => {
  const d = on.deploying({ host_port: 32_002, container_id: 'c2' });
  const starting = instance({ state: 'starting', node_id: 'n1', host_port: null });
  const own = {
    ...container(starting),
    id: 'c2',
    host_port: 32_002,
    labels: { 'berth.project': 'p1', 'berth.deployment': 'd2' },
  };
  const unclaimed = { ...taskOf(starting), attempt: 0 };
  const plan = advance(
    d,
    { type: 'observed', node_id: 'n3', container: own },
    world({
      live: [d],
      instances: [starting],
      tasks: [unclaimed],
      nodes: NODES.map((one) => (one.id === 'n3' ? { ...one, containers: [own] } : one)),
    }),
  );
  expect(changeOf(plan, 'd2')).toMatchObject({ node_id: 'n3' });
  expect(plan.changeTasks).toEqual([]);
});
