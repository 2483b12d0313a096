/** Health of a deployment by its reported container. */
import type { ObservedContainer } from '@berth/wire/node';
import { describe, expect, it } from 'vitest';
import { isEmptyPlan } from '../../src/domain/deployments/plan.ts';
import type { DeploymentRecord } from '../../src/domain/platform/records.ts';
import { advance } from '../../src/flow/deployment.ts';
import { isAsExpected, judge, undeployedSettings } from '../../src/flow/observe.ts';
import {
  changeOf,
  DIGEST,
  facts,
  NOW,
  node,
  on,
  project,
  routeTo,
  SETTINGS,
  task,
} from './fixtures.ts';

/** A reported container without problems. */
const container = (over: Partial<ObservedContainer> = {}): ObservedContainer => ({
  id: 'c2',
  name: 'svc-shop',
  labels: {
    'berth.project': 'p1',
    'berth.deployment': 'd2',
    'berth.generation': '2',
    'berth.node': 'n1',
  },
  host_port: 32_002,
  state: 'running',
  image: `registry:5000/shop@${DIGEST}`,
  exit_code: null,
  out_of_memory: false,
  started_at: new Date(NOW - 60_000).toISOString(),
  memory_bytes: null,
  cpus: null,
  ...over,
});
const at = { now: NOW, retiring: false, holder: null, squatter: null };
const limited = on.running({ settings: { ...SETTINGS, memory_bytes: 1e8, cpus: 0.5 } });
const down = (over: Partial<ObservedContainer>) => container({ host_port: null, ...over });
const started = (msAgo: number) => ({ started_at: new Date(NOW - msAgo).toISOString() });
const ill = on.running({
  health: { status: 'unhealthy', since: NOW - 9000, detail: 'its container is gone' },
});

describe('judge', () => {
  it.each<[string, DeploymentRecord, ObservedContainer | null, string, RegExp | null]>([
    ['as it should be', on.running(), container(), 'healthy', null],
    ['within its limits', limited, container({ memory_bytes: 1e8, cpus: 0.5 }), 'healthy', null],
    [
      'an agent that reports the contract’s little',
      on.running(),
      { name: 'svc-shop', labels: {}, host_port: 32_002, state: 'running' },
      'healthy',
      null,
    ],
    [
      'by its tag, where no digest is known',
      on.running({ image_digest: null, image_tag: 'r/shop:1' }),
      container({ image: 'r/shop:1' }),
      'healthy',
      null,
    ],
    ['gone', on.running(), null, 'unhealthy', /missing/],
    [
      'ended',
      on.running(),
      down({ state: 'exited', exit_code: 3 }),
      'unhealthy',
      /exited with exit code 3$/,
    ],
    [
      'killed for memory',
      on.running(),
      down({ state: 'exited', exit_code: 137, out_of_memory: true }),
      'unhealthy',
      /137, killed because it ran out of memory$/,
    ],
    [
      'in a loop of crashes',
      on.running(),
      down({ state: 'restarting', exit_code: 1 }),
      'unhealthy',
      /keeps exiting with exit code 1; the engine restarts it/,
    ],
    ['paused', on.running(), container({ state: 'paused' }), 'unhealthy', /is paused$/],
    [
      'another image',
      on.running(),
      container({ image: 'registry:5000/shop@sha256:00' }),
      'drifted',
      /runs the image registry:5000\/shop@sha256:00 instead of sha256:b+$/,
    ],
    [
      'another generation',
      on.running(),
      container({ labels: { 'berth.generation': '9' } }),
      'drifted',
      /berth\.generation is 9 instead of 2/,
    ],
    [
      'another project',
      on.running(),
      container({ labels: { 'berth.project': 'px' } }),
      'drifted',
      /berth\.project is px instead of p1/,
    ],
    [
      'a limit taken away',
      limited,
      container({ cpus: 0.5 }),
      'drifted',
      /memory limit is none instead of 100000000 bytes$/,
    ],
    [
      'a limit put on',
      on.running(),
      container({ cpus: 2 }),
      'drifted',
      /CPU limit is 2 instead of none$/,
    ],
    [
      'another name',
      on.running(),
      container({ name: 'svc-shop-g2' }),
      'drifted',
      /named svc-shop-g2 instead of svc-shop$/,
    ],
    [
      'two differences',
      on.running(),
      container({ name: 'x', cpus: 2 }),
      'drifted',
      /CPU limit.*; its container is named x/,
    ],
    [
      'short of memory',
      limited,
      container({ memory_bytes: 1e8, cpus: 0.5, pressure: ['memory'] }),
      'healthy',
      /killed a process .* limit of 100000000 bytes$/,
    ],
    [
      'short of memory, by the limit of the node',
      on.running(),
      container({ pressure: ['memory'] }),
      'healthy',
      /reached its memory limit$/,
    ],
    [
      'slowed down',
      limited,
      container({ memory_bytes: 1e8, cpus: 0.5, pressure: ['cpu'] }),
      'healthy',
      /^its CPU limit of 0.5 slows it down/,
    ],
    [
      'drifted and short',
      on.running(),
      container({ cpus: 2, pressure: ['memory', 'cpu'] }),
      'drifted',
      /CPU limit is 2.*; the kernel killed.*; its CPU limit of 2/,
    ],
    [
      'ended, and short before',
      on.running(),
      down({ state: 'exited', exit_code: 3, pressure: ['memory'] }),
      'unhealthy',
      /exited with exit code 3$/,
    ],
    [
      'whose HEALTHCHECK fails',
      on.running(),
      container({ health: { status: 'unhealthy', output: 'no database' } }),
      'unhealthy',
      /^the HEALTHCHECK of its image fails: no database$/,
    ],
    [
      'whose HEALTHCHECK fails and prints nothing',
      on.running(),
      container({ health: { status: 'unhealthy' } }),
      'unhealthy',
      /fails$/,
    ],
    [
      'drifted, and its HEALTHCHECK fails',
      on.running(),
      container({ cpus: 2, health: { status: 'unhealthy' } }),
      'unhealthy',
      /HEALTHCHECK of its image fails$/,
    ],
    [
      'whose HEALTHCHECK has no result yet',
      on.running(),
      container({ health: { status: 'starting' } }),
      'healthy',
      null,
    ],
    [
      'whose HEALTHCHECK passes again',
      ill,
      container({ health: { status: 'healthy' } }),
      'healthy',
      null,
    ],
    [
      'whose HEALTHCHECK failed a moment ago',
      on.running({
        health: {
          status: 'unhealthy',
          since: NOW - 2000,
          detail: 'it fails: no database',
          cause: 'image_health_check',
        },
      }),
      container({ health: { status: 'healthy' } }),
      'unhealthy',
      /no database$/,
    ],
    [
      'ended, and its HEALTHCHECK failed before',
      on.running(),
      down({ state: 'exited', exit_code: 3, health: { status: 'unhealthy' } }),
      'unhealthy',
      /exited with exit code 3$/,
    ],
    [
      'that does not answer at health_path',
      on.running(),
      container({ probe: { status: 'unhealthy', output: 'GET /up: no answer in time' } }),
      'unhealthy',
      /^it does not answer: GET \/up: no answer in time$/,
    ],
    [
      'that has not answered at health_path since it started',
      on.running(),
      container({ probe: { status: 'starting' } }),
      'healthy',
      null,
    ],
    [
      'that has not answered at health_path since it started again',
      ill,
      container({ probe: { status: 'starting' } }),
      'unhealthy',
      /^its container is gone$/,
    ],
    [
      'that answers at health_path again, and its HEALTHCHECK fails',
      on.running({
        health: { status: 'unhealthy', since: NOW - 60_000, detail: 'x', cause: 'health_path' },
      }),
      container({ probe: { status: 'healthy' }, health: { status: 'unhealthy' } }),
      'unhealthy',
      /HEALTHCHECK of its image fails$/,
    ],
    ['running again for a minute', ill, container(), 'healthy', null],
    [
      'just started again after a crash',
      ill,
      container(started(2000)),
      'unhealthy',
      /^its container is gone$/,
    ],
    ['started by a clock ahead of ours', ill, container(started(-3_600_000)), 'healthy', null],
  ])('%s', (_, d, seen, status, detail) => {
    const judged = judge(d, seen, at);
    expect(judged.status).toBe(status);
    if (detail === null) expect(judged.detail).toBeNull();
    else expect(judged.detail).toMatch(detail);
  });
  it('a wrong name is no drift while a retire task is open', () => {
    expect(
      judge(on.running(), container({ name: 'svc-shop-g2' }), { ...at, retiring: true }).status,
    ).toBe('healthy');
  });
});

const see = (
  d: DeploymentRecord,
  seen: ObservedContainer | null,
  tasks: ReturnType<typeof task>[] = [],
) =>
  advance(
    d,
    { type: 'observed', node_id: 'n1', container: seen },
    facts({ live: [d], route: routeTo(d), tasks }),
  );

describe('observed', () => {
  it('adds one line for each different problem', () => {
    const seen = down({ state: 'restarting', exit_code: 1 });
    const plan = see(on.running(), seen);
    const { health } = changeOf(plan, 'd2');
    expect(health).toMatchObject({ status: 'unhealthy', since: NOW });
    expect(plan.storyLines).toEqual([
      { deployment_id: 'd2', kind: 'health', message: `unhealthy: ${health?.detail}` },
    ]);
    const told = on.running({ health: health ?? null });
    expect(isEmptyPlan(see(told, seen))).toBe(true);
    expect(see(told, null).storyLines).toHaveLength(1);
  });
  it('a HEALTHCHECK that fails adds one line, whatever it prints each time, and one when it passes again', () => {
    const failing = (output: string) => container({ health: { status: 'unhealthy', output } });
    const plan = see(on.running(), failing('at 10:00 no database'));
    const { health } = changeOf(plan, 'd2');
    expect(plan.storyLines).toMatchObject([
      { message: 'unhealthy: the HEALTHCHECK of its image fails: at 10:00 no database' },
    ]);
    const told = on.running({ health: health ?? null });
    expect(isEmptyPlan(see(told, failing('at 10:01 no database')))).toBe(true);
    const later = on.running({
      health: health === undefined || health === null ? null : { ...health, since: NOW - 60_000 },
    });
    const recovered = see(later, container({ health: { status: 'healthy' } }));
    expect(changeOf(recovered, 'd2').health).toEqual({
      status: 'healthy',
      since: NOW,
      detail: null,
    });
    expect(recovered.storyLines).toMatchObject([
      { message: expect.stringMatching(/^healthy again/) },
    ]);
  });
  it('health changes from unknown to healthy when its node is back', () => {
    const plan = see(
      on.running({ health: { status: 'unknown', since: 1, detail: 'node-1 is silent' } }),
      container(),
    );
    expect(changeOf(plan, 'd2').health).toEqual({ status: 'healthy', since: NOW, detail: null });
  });
  it('a failed rename is retried once and not at each registration', () => {
    const seen = container({ name: 'svc-shop-g2' });
    const plan = see(on.running(), seen);
    expect(plan.createTasks).toMatchObject([
      { kind: 'retire', payload: { remove: [], keep: { deployment_id: 'd2', name: 'svc-shop' } } },
    ]);
    const told = on.running({ health: changeOf(plan, 'd2').health ?? null });
    expect(isEmptyPlan(see(told, seen))).toBe(true);
    expect(isEmptyPlan(see(on.running(), seen, [task('retire')]))).toBe(true);
  });
  it('drift does not change route or container', () => {
    const plan = see(on.running(), container({ image: 'somebody/else:1' }));
    expect(changeOf(plan, 'd2').health?.status).toBe('drifted');
    expect([plan.route, plan.createTasks]).toEqual([null, []]);
  });
});

describe('another container has the port of one that is down', () => {
  // After a restore from an older copy, or a restart of the engine.
  const other = container({
    id: 'c9',
    name: 'svc-blog',
    labels: { 'berth.deployment': 'forgotten', 'berth.project': 'p9' },
  });
  const seen = (
    d: DeploymentRecord,
    mine: ObservedContainer | null,
    { routed = true, others = [other] } = {},
  ) =>
    advance(
      d,
      { type: 'observed', node_id: 'n1', container: mine },
      facts({
        live: [d],
        route: routed ? routeTo(d) : null,
        nodes: [node({ containers: [...(mine === null ? [] : [mine]), ...others] })],
      }),
    );

  it.each([
    ['missing', null],
    ['exited', down({ state: 'exited', exit_code: 1 })],
  ])(
    'its container is %s: the route is withdrawn, because it would lead to another project',
    (_, mine) => {
      const plan = seen(on.running(), mine);
      expect(plan.route).toEqual({ remove: { project_id: 'p1' } });
      const { health } = changeOf(plan, 'd2');
      expect(health).toMatchObject({ status: 'unhealthy' });
      expect(health?.detail).toMatch(
        /; its port 32002 now belongs to svc-blog, so it gets no requests$/,
      );
      expect(
        isEmptyPlan(seen(on.running({ health: health ?? null }), mine, { routed: false })),
      ).toBe(true);
    },
  );
  it('the route stays while nothing else has the port', () => {
    for (const others of [
      [],
      [{ ...other, state: 'exited' as const }],
      [{ ...other, host_port: 32_009 }],
    ])
      expect(seen(on.running(), null, { others }).route).toBeNull();
  });
  it('the route comes back with the container', () => {
    const d = on.running({
      health: { status: 'unhealthy', since: NOW - 9000, detail: 'its container is gone' },
    });
    const plan = seen(d, container({ host_port: 32_007 }), { routed: false });
    expect(plan.route).toMatchObject({
      set: { deployment_id: 'd2', host_port: 32_007, host_ip: '10.0.0.1' },
    });
    expect(seen(d, container(), { routed: false, others: [] }).route).toMatchObject({
      set: { host_port: 32_002 },
    });
  });
});

describe('the route of a reported container', () => {
  const blog = (over: Partial<ObservedContainer> = {}) =>
    container({
      id: 'cb',
      name: 'svc-blog',
      labels: { 'berth.deployment': 'db', 'berth.project': 'blog' },
      ...over,
    });
  const node3 = (over = {}) =>
    node({ id: 'n3', hostname: 'node-3', containers: [blog()], ...over });
  const decide = (
    seen: ObservedContainer | null,
    over: Parameters<typeof facts>[0] = {},
    d = on.running(),
  ) =>
    advance(
      d,
      { type: 'observed', node_id: 'n1', container: seen },
      facts({ live: [d], route: routeTo(d), ...over }),
    );
  const there = [node({ containers: [container()] })];

  it('is published again when the container runs, with the present time', () => {
    const plan = decide(container(), { route: null, nodes: there });
    expect(plan.route).toMatchObject({
      set: { deployment_id: 'd2', host_port: 32_002, published_at: NOW },
    });
  });
  it('follows a new port as the latest observation', () => {
    expect(decide(container({ host_port: 32_005 })).route).toMatchObject({
      set: { host_port: 32_005, published_at: NOW },
    });
  });
  it('gets the address of its node if it has another one', () => {
    const plan = decide(container(), {
      route: { ...routeTo(on.running()), host_ip: '10.0.0.99' },
      nodes: there,
    });
    expect(plan.route).toMatchObject({ set: { host_ip: '10.0.0.1' } });
  });
  it('ends while the container is down and another machine has its address and port', () => {
    const plan = decide(down({ state: 'exited', exit_code: 1 }), {
      nodes: [node({ containers: [] }), node3()],
    });
    expect(plan.route).toEqual({ remove: { project_id: 'p1' } });
    expect(changeOf(plan, 'd2').health?.detail).toContain(
      'its port 32002 now belongs to svc-blog on node-3, so it gets no requests',
    );
  });
  it('is not published while another machine has the address and port, and the health says what to do', () => {
    const plan = decide(container(), { route: null, nodes: [...there, node3()] });
    expect(plan.route).toBeNull();
    expect(changeOf(plan, 'd2').health).toMatchObject({
      status: 'unhealthy',
      detail: expect.stringMatching(/10\.0\.0\.1:32002.*HOST_IP/),
    });
    expect(
      decide(container(), { route: null, nodes: [...there, node3({ last_seen_at: NOW - 1e6 })] })
        .route,
    ).toMatchObject({ set: {} });
  });

  const isExpected = (
    seen: ObservedContainer,
    route: ReturnType<typeof routeTo> | null,
    d = on.running(),
    nodes = there,
  ) => isAsExpected(d, nodes[0] as never, seen, route);
  it('is compared before a report counts as expected', () => {
    const route = routeTo(on.running());
    expect(isExpected(container(), route)).toBe(true);
    expect(isExpected(container(), null)).toBe(false);
    expect(isExpected(container(), { ...route, host_port: 32_009 })).toBe(false);
    expect(isExpected(container(), { ...route, host_ip: '10.0.0.9' })).toBe(false);
    expect(isExpected(container(), { ...route, node_id: 'n9' })).toBe(false);
    expect(isExpected(container(), { ...route, stopped: true })).toBe(false);
    expect(isExpected(container(), { ...route, deployment_id: 'd3' })).toBe(true);
    const detail =
      'its container exited; its port 32002 now belongs to svc-blog, so it gets no requests';
    const ill = on.running({ health: { status: 'unhealthy', since: NOW, detail } });
    const squatted = [node({ containers: [blog()] })];
    expect(isExpected(down({ state: 'exited' }), null, ill, squatted)).toBe(true);
    expect(isExpected(down({ state: 'exited' }), routeTo(ill), ill, squatted)).toBe(false);
  });
  it('of a stopped project is its page, or the report is not as expected', () => {
    const resting = on.running({ stopped_first: 'stopped', health: null });
    const route = routeTo(resting);
    expect(isExpected(down({ state: 'exited' }), { ...route, stopped: true }, resting)).toBe(true);
    expect(isExpected(down({ state: 'exited' }), null, resting)).toBe(true);
    expect(isExpected(down({ state: 'exited' }), route, resting)).toBe(false);
    const plan = decide(
      down({ state: 'exited' }),
      { project: project({ stopped_at: NOW }) },
      resting,
    );
    expect(plan.route).toEqual({ set: { ...route, stopped: true } });
  });
});

describe('an unknown container has the name', () => {
  const mine = container({ name: 'svc-shop-g2' });
  const stranger = container({
    id: 'c9',
    name: 'svc-shop',
    labels: { 'berth.deployment': 'forgotten', 'berth.project': 'p1' },
  });
  const seen = (d: DeploymentRecord, present: ObservedContainer[]) =>
    advance(
      d,
      { type: 'observed', node_id: 'n1', container: mine },
      facts({ live: [d], route: routeTo(d), nodes: [node({ containers: present })] }),
    );
  const failed = (
    d: DeploymentRecord,
    present: ObservedContainer[],
    code = 'container_name_taken',
  ) => {
    const retire = task('retire', {
      payload: { remove: [], keep: { deployment_id: 'd2', name: 'svc-shop' } } as never,
    });
    const report = {
      status: 'failed',
      result: { error: { code, message: 'the name belongs to somebody else' } },
    } as const;
    const event = { type: 'task_reported', task: retire, report } as const;
    return advance(
      d,
      event,
      facts({
        live: [d],
        route: routeTo(d),
        tasks: [retire],
        nodes: [node({ containers: present })],
      }),
    );
  };

  it('the rename is tried once, shown as drift and not retried at each report', () => {
    const plan = failed(on.running(), [mine, stranger]);
    expect(plan.storyLines.map((e) => e.kind)).toEqual(['retire_failed', 'health']);
    const told = on.running({ ...changeOf(plan, 'd2'), status: 'running' });
    expect(told.health).toMatchObject({ status: 'drifted' });
    expect(told.health?.detail).toBe(
      'its container is named svc-shop-g2 instead of svc-shop; that name belongs to a ' +
        'container of deployment forgotten',
    );
    expect(isEmptyPlan(seen(told, [mine, stranger]))).toBe(true);
  });
  it('the rename is retried after an engine failure', () => {
    const plan = failed(on.running(), [mine], 'engine_unavailable');
    expect(plan.storyLines.map((e) => e.kind)).toEqual(['retire_failed']);
    expect(seen(on.running(changeOf(plan, 'd2')), [mine]).createTasks).toHaveLength(1);
  });
  it('the rename is not retried after its container was down', () => {
    const plan = seen(
      on.running({ health: { status: 'unhealthy', since: 1, detail: 'its container is gone' } }),
      [mine, stranger],
    );
    expect(changeOf(plan, 'd2').health?.status).toBe('drifted');
    expect(plan.createTasks).toEqual([]);
  });
  it('the rename happens when the other container is gone', () => {
    const told = on.running(changeOf(seen(on.running(), [mine, stranger]), 'd2'));
    const plan = seen(told, [mine]);
    expect(plan.createTasks).toMatchObject([
      { kind: 'retire', payload: { remove: [], keep: { deployment_id: 'd2' } } },
    ]);
    // During that task the health does not change.
    const after = on.running({ ...told, ...changeOf(plan, 'd2') });
    expect(isEmptyPlan(see(after, mine, [task('retire')]))).toBe(true);
  });
  it('a failing removal adds one line, however often it is retried', () => {
    const over = on.ended('retired', { id: 'd1', generation: 1 });
    const retire = task('retire', { deployment_id: 'd1' });
    const event = {
      type: 'task_reported',
      task: retire,
      report: { status: 'failed', result: 'device is busy' },
    } as const;
    const first = advance(over, event, facts({ tasks: [retire] }));
    expect(first.storyLines).toHaveLength(1);
    expect(
      advance({ ...over, ...changeOf(first, 'd1') }, event, facts({ tasks: [retire] })).storyLines,
    ).toEqual([]);
  });
});

it('changed settings are listed', () => {
  expect(undeployedSettings(on.running(), project())).toBeNull();
  expect(
    undeployedSettings(on.running(), project({ domain_prefix: 'store', env: { A: '1' } })),
  ).toBe(
    'the project’s domain_prefix, env changed since this deployment; deploy the project to ' +
      'apply the change',
  );
});
