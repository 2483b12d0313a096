/** Labels, architecture, memory and devices of nodes, and what projects require. */
import { describe, expect, it } from 'vitest';
import { CAN_DEVICES } from '@berth/wire/machine';
import type { NodeRegister } from '@berth/wire/node';
import { CAN_INSTANCES, type DeployPayload, type TaskReport } from '@berth/wire/task';
import { createCacheIndex } from '../../src/domain/nodes/cache-index.ts';
import { DEFAULT_LIMITS, type Facts, type NodeFact } from '../../src/domain/deployments/facts.ts';
import { labelProblems, machineOf, patchedLabels } from '../../src/domain/nodes/machine.ts';
import { choose, place, QUESTION } from '../../src/domain/nodes/placement.ts';
import { refusalsText } from '../../src/domain/nodes/refusal.ts';
import {
  type DeviceLease,
  devicesToTake,
  type Ending,
  type Holder,
  machineNeeds,
  type Room,
} from '../../src/domain/nodes/room.ts';
import type { ProjectSettings } from '../../src/domain/platform/records.ts';
import { advance } from '../../src/flow/deployment.ts';
import {
  changeOf,
  facts,
  instance,
  node,
  NOW,
  old,
  on,
  project,
  SETTINGS,
  stateOf,
  task,
} from './fixtures.ts';

const GIB = 1_073_741_824;
const GPU = 'nvidia.com/gpu';
const AT = { now: NOW, limits: DEFAULT_LIMITS, cacheIndex: createCacheIndex() };
const first = (deployment_id: string): Holder => ({ deployment_id, instance_id: null });
const lease = (over: Partial<DeviceLease> = {}): DeviceLease => ({
  node_id: 'n1',
  kind: GPU,
  name: '0',
  deployment_id: 'other',
  instance_id: null,
  returns_to: null,
  returns_to_instance: null,
  holders: [first('other')],
  ...over,
});
const room = (over: Partial<Room> = {}): Room => ({ memory: new Map(), leases: [], ...over });

type Needs = Partial<Pick<ProjectSettings, 'memory_bytes' | 'requires'>>;
const ask = (nodes: readonly NodeFact[], needs: Needs, held: Room = room()) => {
  const settings = { memory_bytes: null, requires: {}, ...needs };
  const machine = machineNeeds(settings, held, { own: null, freed: [] });
  return choose({ ...QUESTION, machine }, nodes, AT);
};
const reasonOf = (...given: Parameters<typeof ask>): string => refusalsText(ask(...given).refusals);

describe('placement by what a machine has', () => {
  it('a node needs each required label; a label of an admin wins', () => {
    const nodes = [
      node({ id: 'a', hostname: 'a', labels: { zone: 'a' } }),
      node({ id: 'b', hostname: 'b', labels: { zone: 'a' }, admin_labels: { zone: 'b' } }),
      node({ id: 'c', hostname: 'c' }),
    ];
    const requires = { labels: { zone: 'b' } };
    expect(ask(nodes, { requires }).placement.winner).toBe('b');
    expect(reasonOf(nodes, { requires })).toBe(
      'a has the label zone=a, but the project requires b; ' +
        'c has no label zone, but the project requires zone=b',
    );
  });
  it('a contract-only node can have the labels of an admin, but shows no architecture', () => {
    const contract = node({ agent_version: null, admin_labels: { zone: 'a' } });
    expect(ask([contract], { requires: { labels: { zone: 'a' } } }).placement.winner).toBe('n1');
    expect(reasonOf([contract], { requires: { arch: 'amd64' } })).toBe(
      'node-1 does not report its architecture, but the project requires amd64',
    );
    expect(reasonOf([node({ arch: 'arm64' })], { requires: { arch: 'amd64' } })).toBe(
      'node-1 runs arm64, but the project requires amd64',
    );
  });
  it('the memory limits on a node stay within its memory; the refusal has the bytes', () => {
    const full = node({ memory_bytes: 4 * GIB });
    const held = room({ memory: new Map([['n1', 3 * GIB]]) });
    expect(ask([full], { memory_bytes: GIB }, held).placement.winner).toBe('n1');
    expect(reasonOf([full], { memory_bytes: GIB + 1 }, held)).toBe(
      'node-1 has too little free memory for the memory limit of the project: ' +
        `${GIB + 1} bytes needed, ${GIB} bytes free`,
    );
    expect(ask([full], { memory_bytes: null, requires: {} }, held).placement.winner).toBe('n1');
    expect(ask([node()], { memory_bytes: GIB }, held).placement.winner).toBe('n1');
  });
  it('MEMORY_OVERCOMMIT is part of the memory', () => {
    const machine = machineNeeds({ memory_bytes: 3 * GIB, requires: {} }, room(), {
      own: null,
      freed: [],
    });
    const limits = { ...DEFAULT_LIMITS, memoryOvercommit: 1.5 };
    const nodes = [node({ memory_bytes: 2 * GIB })];
    expect(place({ ...QUESTION, machine }, nodes, AT).winner).toBeNull();
    expect(place({ ...QUESTION, machine }, nodes, { ...AT, limits }).winner).toBe('n1');
  });
  it('a device that a container has is not free; the refusal has the numbers', () => {
    const gpus = node({ devices: { [GPU]: ['0', '1'] } });
    const held = room({ leases: [lease(), lease({ name: '1', holders: [] })] });
    expect(ask([gpus], { requires: { devices: { [GPU]: 1 } } }, held).placement.winner).toBe('n1');
    expect(reasonOf([gpus], { requires: { devices: { [GPU]: 2 } } }, held)).toBe(
      `node-1 has too few free devices ${GPU}: 2 needed, 1 free`,
    );
  });
});

describe('the devices that a container takes', () => {
  const needs = (count: number, leases: DeviceLease[]) =>
    machineNeeds(
      { memory_bytes: null, requires: { devices: { [GPU]: count } } },
      room({ leases }),
      {
        own: null,
        freed: [],
      },
    );
  const taken = (count: number, leases: DeviceLease[]) =>
    devicesToTake(
      node({ devices: { [GPU]: ['0', '1'] } }),
      first('d2'),
      needs(count, leases) as NonNullable<ReturnType<typeof needs>>,
      { leases, freed: [] },
    );
  it('are as many as the project requires', () => {
    expect(taken(2, [])).toMatchObject([{ name: '0' }, { name: '1' }]);
  });
  it('are none if the node has fewer; the refusal has the numbers', () => {
    expect(taken(2, [lease()])).toEqual({ kind: 'no_device', device: GPU, needed: 2, free: 1 });
  });
});

describe('what an agent reports', () => {
  const report = (over: object): NodeRegister => ({
    hostname: 'a',
    role: 'deploy',
    host_ip: '1',
    max_storage: 1,
    ...over,
  });
  it('bad values are ignored, each by itself', () => {
    expect(
      machineOf(
        report({
          cpus: 'many',
          memory_bytes: -1,
          labels: { zone: 'a', '-x': 'b', disk: 7, long: 'x'.repeat(64) },
          devices: { [GPU]: ['0', '0', '', 5], nonsense: ['0'], 'a.b/c': 'all' },
        }),
      ),
    ).toEqual({ cpus: null, memory_bytes: null, labels: { zone: 'a' }, devices: { [GPU]: ['0'] } });
    expect(machineOf(report({ labels: ['zone=a'], devices: null }))).toEqual({
      cpus: null,
      memory_bytes: null,
      labels: {},
      devices: {},
    });
  });
  it('numbers of labels, kinds and names are limited', () => {
    const many = (count: number, of: (i: number) => unknown): object =>
      Object.fromEntries(Array.from({ length: count }, (_, i) => of(i) as [string, unknown]));
    const { labels, devices } = machineOf(
      report({
        labels: many(100, (i) => [`l${i}`, 'v']),
        devices: many(100, (i) => [`v/c${i}`, Array.from({ length: 500 }, (_, n) => `${n}`)]),
      }),
    );
    expect(Object.keys(labels)).toHaveLength(32);
    expect(Object.keys(devices)).toHaveLength(16);
    expect(devices['v/c0']).toHaveLength(64);
  });
});

describe('labels of admins', () => {
  it('a patch sets labels, and null removes one', () =>
    expect(patchedLabels({ zone: 'a', disk: 'ssd' }, { disk: null, rack: '7' })).toEqual({
      rack: '7',
      zone: 'a',
    }));
  it('each bad label has its field and its rule', () => {
    const patch = { 'a b': 'x', zone: 'a b', gone: null };
    expect(labelProblems({}, patch).map(({ field, rule }) => [field, rule])).toEqual([
      ['labels.a b', 'label_key'],
      ['labels.zone', 'label_value'],
    ]);
  });
});

// ── decisions ────────────────────────────────────────────────────────────────────────────────────

const settings = (over: Partial<ProjectSettings> = {}): ProjectSettings => ({
  ...SETTINGS,
  memory_bytes: GIB,
  ...over,
});
const machine = (over: Partial<NodeFact> = {}): NodeFact =>
  node({ capabilities: [CAN_DEVICES], memory_bytes: 1.5 * GIB, ...over });
const decide = (over: Partial<Facts>) => {
  const d = over.live?.find((one) => one.status === 'built');
  if (d === undefined) throw new Error('no deployment is built');
  return advance(d, { type: 'tick' }, facts({ nodes: [machine()], ...over }));
};
const payloadOf = (plan: ReturnType<typeof decide>): object => plan.createTasks[0]?.payload ?? {};
const held = room({ memory: new Map([['n1', GIB]]) });

describe('two versions need room for both', () => {
  const live = [old({ settings: settings() }), on.built({ settings: settings() })];
  it('without it the old version stops first, and both stories say so', () => {
    const plan = decide({ live, room: held });
    expect(payloadOf(plan)).toMatchObject({ replace: 'recreate', replaces: 'd1' });
    expect(plan.storyLines.map((line) => [line.deployment_id, line.kind])).toEqual([
      ['d2', 'stopped_first'],
      ['d1', 'stopped_first'],
      ['d2', 'deploying'],
    ]);
    expect(plan.storyLines[0]?.message).toContain(`${GIB} bytes needed, ${GIB / 2} bytes free`);
    expect(changeOf(plan, 'd1')).toMatchObject({ stopped_first: 'asked' });
    expect(plan.takeMemory).toEqual([
      { node_id: 'n1', bytes: GIB, most: 1.5 * GIB, without: ['d1'] },
    ]);
  });
  it('another node with room takes it beside the old one', () => {
    const plan = decide({
      live,
      room: held,
      nodes: [machine(), machine({ id: 'n2', hostname: 'node-2' })],
    });
    expect(plan.createTasks[0]).toMatchObject({
      node_id: 'n2',
      payload: { replace: 'rolling' },
    });
  });
  it('with `replace: rolling` set by a person it is refused, and the reason has the bytes', () => {
    const plan = decide({ live, room: held, project: project({ replace_set: true }) });
    expect(plan.createTasks).toEqual([]);
    expect(changeOf(plan, 'd2')).toMatchObject({
      status: 'failed',
      error: { code: 'no_room_for_two' },
    });
    expect(plan.storyLines[0]?.message).toContain(`${GIB} bytes needed, ${GIB / 2} bytes free`);
  });
  describe('of each instance', () => {
    const two = { processes: [{ name: 'web', count: 2 }] };
    const place = { capabilities: [CAN_DEVICES, CAN_INSTANCES] };
    const nodes = ['n1', 'n2', 'n3'].map((id) => machine({ ...place, id, hostname: id }));
    const others = [instance({ deployment_id: 'd1', node_id: 'n2', state: 'serving' })];
    const taken = room({
      memory: new Map([
        ['n1', GIB],
        ['n2', GIB],
      ]),
    });
    const given = { live, nodes, instances: others, room: taken, freshIds: ['f1', 'f2'] };
    it('without room for all, those that lack it start after the old version has ended', () => {
      const plan = decide({ ...given, project: project(two) });
      expect(plan.createTasks.map(({ node_id }) => node_id)).toEqual(['n3']);
      expect(stateOf(plan, 'd2')).toBe('deploying');
      expect(plan.storyLines.at(-1)).toMatchObject({ kind: 'stopped_first' });
      expect(plan.storyLines.at(-1)?.message).toContain(
        'the others start after the containers of deployment 1 have ended: ',
      );
      expect(changeOf(plan, 'd1')).toEqual({});
    });
    it('with `replace: rolling` set by a person it is refused', () => {
      const plan = decide({ ...given, project: project({ ...two, replace_set: true }) });
      expect(plan.createTasks).toEqual([]);
      expect(changeOf(plan, 'd2')).toMatchObject({
        status: 'failed',
        error: { code: 'no_room_for_two' },
      });
    });
    it('it waits if others have the room', () => {
      const full = room({ memory: new Map(['n1', 'n2'].map((id) => [id, 1.5 * GIB])) });
      const plan = decide({
        ...given,
        live: [on.built({ settings: settings() })],
        instances: [],
        room: full,
        project: project(two),
      });
      expect(plan.createTasks).toEqual([]);
      expect(stateOf(plan, 'd2')).toBeNull();
    });
  });
  it('it waits if it has no room even without the old version', () => {
    const more = settings({ memory_bytes: 2 * GIB });
    const plan = decide({
      live: [old({ settings: settings() }), on.built({ settings: more })],
      room: held,
    });
    expect(plan.createTasks).toEqual([]);
    expect(stateOf(plan, 'd2')).toBeNull();
  });
  it('a stop-first project needs room for one version only', () => {
    const recreate = settings({ replace: 'recreate' });
    const plan = decide({
      live: [old({ settings: recreate }), on.built({ settings: recreate })],
      room: held,
      project: project({ replace: 'recreate' }),
    });
    expect(payloadOf(plan)).toMatchObject({ replace: 'recreate' });
    expect(plan.storyLines.map((line) => line.kind)).toEqual(['deploying']);
  });
  it('the old version starts again if the new one fails, whatever another silent node does', () => {
    const failing = on.published({ settings: settings() });
    const stopped = old({ settings: settings(), stopped_first: 'asked' });
    const container = {
      id: 'c1',
      name: 'svc-shop',
      labels: { 'berth.project': 'p1', 'berth.deployment': 'd1' },
      host_port: null,
      state: 'exited',
    };
    const done = task('retire', {
      deployment_id: 'd2',
      payload: { remove: [{ deployment_id: 'd2', reason: 'failed' }], keep: null } as never,
    });
    const plan = advance(
      { ...failing, status: 'failed' },
      { type: 'task_reported', task: done, report: { status: 'completed' } },
      facts({
        live: [stopped],
        tasks: [done],
        nodes: [
          machine({ containers: [container], observed_at: NOW }),
          machine({ id: 'n2', hostname: 'node-2', last_seen_at: NOW - 1e7, observed_at: 1 }),
        ],
        endedWork: [{ node_id: 'n2', ended_at: NOW - 5, claimed_at: NOW - 5, unreported_at: null }],
      }),
    );
    expect(plan.createTasks).toMatchObject([{ kind: 'retire', payload: { start: 'd1' } }]);
  });
});

describe('room that containers of the project free soon', () => {
  const live = [old({ settings: settings() }), on.built({ settings: settings() })];
  const rolling = project({ replace_set: true });
  const nodes = [machine({ memory_bytes: 2.5 * GIB, devices: { [GPU]: ['0', '1'] } })];
  const ending = (over: Partial<Ending> = {}): Ending => ({
    project_id: 'p1',
    deployment_id: 'd0',
    generation: 0,
    node_id: 'n1',
    containers: 1,
    bytes: GIB,
    ...over,
  });
  const full = { memory: new Map([['n1', 2 * GIB]]) };
  const waits = 'waits for the room of the container of deployment 0 on node-1, which is ending';

  it.each([
    ['with `replace: rolling`', rolling],
    ['before it becomes stop-first', project()],
  ])('%s it waits for a container that is being removed', (_, of) => {
    const plan = decide({ live, nodes, project: of, room: room({ ...full, ending: [ending()] }) });
    expect([plan.createTasks, stateOf(plan, 'd2')]).toEqual([[], null]);
    expect(changeOf(plan, 'd2')).toMatchObject({ waiting: waits, timer: { running_since: null } });
    expect(changeOf(plan, 'd1')).toEqual({});
  });
  it('it waits for a device in the same way', () => {
    const gpu = settings({ memory_bytes: null, requires: { devices: { [GPU]: 1 } } });
    const leases = [
      lease({ deployment_id: 'd1', holders: [first('d1')] }),
      lease({ name: '1', deployment_id: 'd0', holders: [first('d0')] }),
    ];
    const given = {
      live: [old({ settings: gpu }), on.built({ settings: gpu })],
      nodes,
      project: rolling,
    };
    const plan = decide({ ...given, room: room({ leases, ending: [ending({ bytes: 0 })] }) });
    expect(changeOf(plan, 'd2')).toMatchObject({ waiting: waits });
    expect(stateOf(decide({ ...given, room: room({ leases }) }), 'd2')).toBe('failed');
  });
  it('it waits for an instance that drains', () => {
    const draining = instance({ deployment_id: 'd1', node_id: 'n1', state: 'draining' });
    const plan = decide({ live, nodes, project: rolling, room: room(full), instances: [draining] });
    expect(changeOf(plan, 'd2')).toMatchObject({
      waiting: 'waits for the room of instance 2 of deployment 1 on node-1, which is ending',
    });
  });
  it('its further instances wait too', () => {
    const plan = decide({
      live,
      nodes: [{ ...nodes[0], capabilities: [CAN_DEVICES, CAN_INSTANCES] } as NodeFact],
      project: project({ replace_set: true, processes: [{ name: 'web', count: 2 }] }),
      // Two instances beside the old one need 3 GiB.
      room: room({ memory: new Map([['n1', 1.5 * GIB]]), ending: [ending({ bytes: GIB })] }),
    });
    expect(changeOf(plan, 'd2')).toMatchObject({ waiting: waits });
  });
  it.each([
    ['does not suffice', ending({ bytes: GIB / 4 })],
    ['belongs to another project', ending({ project_id: 'p2' })],
    ['is on another node', ending({ node_id: 'n2' })],
  ])('it is refused if what ends %s', (_, one) => {
    const plan = decide({ live, nodes, project: rolling, room: room({ ...full, ending: [one] }) });
    expect(changeOf(plan, 'd2')).toMatchObject({ error: { code: 'no_room_for_two' } });
  });
});

describe('devices', () => {
  const gpu = settings({ memory_bytes: null, requires: { devices: { [GPU]: 1 } } });
  const withGpus = machine({ devices: { [GPU]: ['0', '1'] } });
  it('the deployment takes a free one, and the agent gets its name', () => {
    const plan = decide({
      live: [on.built({ settings: gpu })],
      nodes: [withGpus],
      room: room({ leases: [lease()] }),
    });
    expect(payloadOf(plan)).toMatchObject({ devices: [`${GPU}=1`] });
    expect(plan.takeDevices).toEqual([
      {
        node_id: 'n1',
        kind: GPU,
        name: '1',
        deployment_id: 'd2',
        instance_id: null,
        returns_to: null,
        returns_to_instance: null,
        replaces: null,
      },
    ]);
  });
  it('the only device passes from the old version, which stops first, and returns to it', () => {
    const own = lease({ deployment_id: 'd1', holders: [first('d1')] });
    const plan = decide({
      live: [old({ settings: gpu }), on.built({ settings: gpu })],
      nodes: [machine({ devices: { [GPU]: ['0'] } })],
      room: room({ leases: [own] }),
    });
    expect(payloadOf(plan)).toMatchObject({ replace: 'recreate', devices: [`${GPU}=0`] });
    expect(plan.storyLines[0]?.message).toContain(`too few free devices ${GPU}: 1 needed, 0 free`);
    expect(plan.takeDevices).toMatchObject([
      { name: '0', deployment_id: 'd2', returns_to: 'd1', replaces: first('d1') },
    ]);
  });
  it('instances that start together take different devices, each with its own lease', () => {
    const several = [CAN_DEVICES, CAN_INSTANCES];
    const plan = decide({
      live: [on.built({ settings: gpu })],
      nodes: [{ ...withGpus, capabilities: several }],
      project: project({ processes: [{ name: 'web', count: 2 }] }),
      freshIds: ['t1', 'i2', 't2'],
      room: room(),
    });
    expect(plan.createTasks.map(({ payload }) => (payload as DeployPayload).devices)).toEqual([
      [`${GPU}=0`],
      [`${GPU}=1`],
    ]);
    expect(plan.takeDevices).toMatchObject([
      { name: '0', ...first('d2') },
      { name: '1', deployment_id: 'd2', instance_id: 'i2' },
    ]);
  });
  it('a third instance finds no device on a machine with two', () => {
    const plan = decide({
      live: [on.built({ settings: gpu })],
      nodes: [{ ...withGpus, capabilities: [CAN_DEVICES, CAN_INSTANCES] }],
      project: project({ processes: [{ name: 'web', count: 3 }] }),
      room: room(),
    });
    expect(plan.createTasks).toEqual([]);
    expect(plan.storyLines[0]?.message).toContain(`too few free devices ${GPU}: 1 needed, 0 free`);
  });
  it('a lease of an instance is not free for the first one of the same deployment', () => {
    const own = { deployment_id: 'd2', instance_id: 'i2' };
    const plan = decide({
      live: [on.built({ settings: gpu })],
      nodes: [withGpus],
      room: room({ leases: [lease({ ...own, holders: [own] })] }),
    });
    expect(payloadOf(plan)).toMatchObject({ devices: [`${GPU}=1`] });
  });
  it('a row whose containers are gone is taken over', () => {
    const plan = decide({
      live: [on.built({ settings: gpu })],
      nodes: [withGpus],
      room: room({ leases: [lease({ holders: [] })] }),
    });
    expect(plan.takeDevices).toMatchObject([
      { name: '0', returns_to: null, replaces: first('other') },
    ]);
  });
  it('a failed start frees them', () => {
    const starting = task('deploy');
    const plan = advance(
      on.deploying({ settings: gpu }),
      {
        type: 'task_reported',
        task: starting,
        report: { status: 'failed', result: { error: { code: 'probe_failed', message: 'x' } } },
      },
      facts({ live: [on.deploying({ settings: gpu })], tasks: [starting], nodes: [withGpus] }),
    );
    expect(plan.freeDevices).toEqual([{ node_id: 'n1', ...first('d2') }]);
  });
  describe('of a further instance that does not start', () => {
    const several = { ...withGpus, capabilities: [CAN_DEVICES, CAN_INSTANCES] };
    const nodes = [several, { ...several, id: 'n2', hostname: 'node-2' }];
    const held = { deployment_id: 'd2', instance_id: 'i2' };
    const start = task('deploy', {
      node_id: 'n2',
      payload: { instance: { id: 'i2', process: 'web', number: 2 } } as never,
    });
    const error = { code: 'probe_failed', message: 'x' };
    const failed: TaskReport = { status: 'failed', result: { error } };
    const ended = (event: Parameters<typeof advance>[1]) =>
      advance(
        on.running({ settings: gpu }),
        event,
        facts({
          live: [on.running({ settings: gpu })],
          tasks: [start],
          nodes,
          project: project({ processes: [{ name: 'web', count: 2 }] }),
          instances: [instance({ state: 'starting', node_id: 'n2', container_id: null })],
          room: room({ leases: [lease({ ...held, node_id: 'n2', holders: [held] })] }),
        }),
      );
    const kept = (plan: ReturnType<typeof ended>): string[] =>
      plan.storyLines.flatMap(({ message }) => (message.includes('reserved') ? [message] : []));
    it('are free if its agent has removed the container', () => {
      const plan = ended({ type: 'task_reported', task: start, report: failed });
      expect(plan.freeDevices).toEqual([{ node_id: 'n2', ...held }]);
      expect(kept(plan)).toEqual([]);
    });
    it.each<[string, Parameters<typeof advance>[1]]>([
      [
        'its agent could not remove the container',
        { type: 'task_reported', task: start, report: { ...failed, container_id: 'k2' } },
      ],
      ['its task was lost', { type: 'task_lost', task: start, why: 'lease' }],
    ])('stay reserved if %s, and the story says so', (_, event) => {
      const plan = ended(event);
      expect(plan.freeDevices).toBeUndefined();
      expect(kept(plan)).toEqual([
        `${GPU}=0 on node-2 stays reserved for instance 2 until node-2 lists no container of it`,
      ]);
    });
    it('are free if no agent had claimed the task', () => {
      const plan = ended({ type: 'task_lost', task: { ...start, attempt: 0 }, why: 'queue' });
      expect(plan.freeDevices).toEqual([{ node_id: 'n2', ...held }]);
    });
  });
  it('the first instance frees them too when another node gets its task', () => {
    const starting = task('deploy');
    const d = on.deploying({ settings: gpu });
    const error = { code: 'engine_unavailable', message: 'x' };
    const plan = advance(
      d,
      { type: 'task_reported', task: starting, report: { status: 'failed', result: { error } } },
      facts({
        live: [d],
        tasks: [starting],
        nodes: [withGpus, { ...withGpus, id: 'n2', hostname: 'node-2' }],
      }),
    );
    expect(stateOf(plan, 'd2')).toBe('built');
    expect(plan.freeDevices).toEqual([{ node_id: 'n1', ...first('d2') }]);
  });
  it('agents that cannot pass devices are refused before anything starts', () => {
    const plan = decide({
      live: [on.built({ settings: gpu })],
      nodes: [machine({ agent_version: null, capabilities: null })],
      room: room(),
    });
    expect(stateOf(plan, 'd2')).toBe('failed');
    expect(changeOf(plan, 'd2').error).toMatchObject({
      code: 'agent_cannot',
      message: expect.stringContaining(`pass ${GPU} to a container`),
    });
  });
});
