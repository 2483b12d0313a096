/** The volumes of a stopped project leave a node that is drained or deleted, without a start. */
import type { TaskReport } from '@berth/wire/task';
import { describe, expect, it } from 'vitest';
import type { Facts, NodeFact } from '../../src/domain/deployments/facts.ts';
import type { Plan } from '../../src/domain/deployments/plan.ts';
import type {
  DeploymentRecord,
  NodeRecord,
  ProjectRecord,
} from '../../src/domain/platform/records.ts';
import { waitingFor } from '../../src/domain/deployments/wait-reason.ts';
import { advance } from '../../src/flow/deployment.ts';
import { changeOf, facts, node, NOW, on, project, SETTINGS, stateOf } from './fixtures.ts';
import {
  can,
  copy,
  done,
  drain,
  from,
  incoming,
  move,
  proven,
  result,
  settings,
  to,
  volumes,
} from './moves.ts';

const atRest = (over: Partial<DeploymentRecord> = {}): DeploymentRecord =>
  on.running({
    settings,
    health: null,
    stopped_first: 'stopped',
    waiting: 'the project is stopped; start it to serve again',
    ...over,
  });
const base: Partial<Facts> = {
  project: project({ volumes, replace: 'recreate', stopped_at: NOW - 50 }),
  nodes: [from, to],
  volumes: [copy],
};
const moving: Partial<Facts> = {
  ...base,
  tasks: [move('send'), move('receive')],
  volumes: [copy, incoming],
};
const leave = (over: Partial<Facts> = {}, d: DeploymentRecord = atRest()): Plan =>
  advance(d, { type: 'volumes_leave' }, facts({ ...base, live: [d], ...over }));
const reported = (
  role: 'send' | 'receive',
  over: Partial<Facts> = {},
  report: TaskReport = done,
  d = atRest(),
): Plan =>
  advance(
    d,
    { type: 'task_reported', task: move(role), report },
    facts({ ...moving, live: [d], ...over }),
  );

describe('a project at count 0', () => {
  const at_zero = {
    ...base.project,
    processes: [{ name: 'web', count: 0 }],
    stopped_by_person: false,
  } as ProjectRecord;
  const rest = 'the project is scaled to 0; scale it up to serve again';
  const cannot = { nodes: [node({ ...from, capabilities: [] }), to] };
  const why = 'the agent of old cannot move volumes, because it is of an earlier version';
  it('is told to scale up, and not to start, while its volumes leave', () => {
    const d = atRest({ waiting: rest, waiting_reason: { kind: 'scaled_to_zero' } });
    const waiting = changeOf(leave({ ...cannot, project: at_zero }, d), 'd2').waiting ?? '';
    expect(waiting.replace(/of \S+ cannot/, 'of old cannot')).toBe(`${rest}; ${why}`);
  });
  it('says so too when its count changes meanwhile', () => {
    const because = { kind: 'container_still_runs' as const };
    const stopped = { kind: 'project_stopped_and' as const, because };
    const scaled = { ...stopped, at_zero: true as const };
    const text = 'its volumes move when its container has stopped';
    const change = (d: DeploymentRecord, project: ProjectRecord) =>
      changeOf(advance(d, { type: 'scaled' }, facts({ ...base, live: [d], project })), 'd2');
    const byPerson = atRest(waitingFor(stopped));
    expect(change(byPerson, at_zero).waiting).toBe(`${rest}; ${text}`);
    const up = { ...at_zero, processes: [{ name: 'web', count: 1 }], stopped_by_person: true };
    expect(change(atRest(waitingFor(scaled)), up).waiting).toBe(
      `the project is stopped; start it to serve again; ${text}`,
    );
  });
});

describe('the beginning', () => {
  it('copies the volumes to another node, and starts nothing', () => {
    const plan = leave();
    expect(plan.createTasks).toMatchObject([
      { kind: 'move', deployment_id: 'd2', node_id: 'n1', payload: { role: 'send', copy: 'v1' } },
      {
        kind: 'move',
        deployment_id: 'd2',
        node_id: 'n2',
        payload: { role: 'receive', copy: 'v1' },
      },
    ]);
    expect(plan.volumes).toMatchObject([
      { id: 'v1', state: 'current' },
      { state: 'incoming', node_id: 'n2', source: 'v1' },
    ]);
    expect([plan.stopped, plan.route, stateOf(plan, 'd2')]).toEqual([undefined, null, null]);
  });
  it('waits for a run that uses them', () => {
    const plan = leave({ runs: [{ id: 'r1', node_id: 'n1' }] });
    expect(plan.createTasks).toEqual([]);
    expect(changeOf(plan, 'd2').waiting).toContain('run r1 uses its volumes on');
  });
  it('also leaves a node that is being deleted', () => {
    expect(
      leave({ nodes: [node({ ...from, drain: null, deleting_at: NOW }), to] }).createTasks,
    ).toHaveLength(2);
  });
  it.each<[string, Partial<Facts>, DeploymentRecord?]>([
    ['the node stays', { nodes: [node({ ...from, drain: null, schedulable: true }), to] }],
    ['the project is not stopped', { project: project({ volumes, replace: 'recreate' }) }],
    ['the release has no volumes', {}, atRest({ settings: SETTINGS })],
    ['the data is elsewhere already', { volumes: [{ ...copy, node_id: 'n2' }] }],
    ['a copy is under way', moving],
    [
      'a start is in progress, which moves them itself',
      { live: [atRest(), on.built({ id: 'd3', generation: 3, settings })] },
    ],
  ])('does nothing when %s', (_, over, d) => {
    const plan = leave(over, d);
    expect([plan.createTasks, plan.volumes, plan.changeDeployments]).toEqual([[], [], []]);
  });
  it.each<[string, Partial<Facts>, string, DeploymentRecord?]>([
    [
      'no other node is there',
      { nodes: [from] },
      'no node can take its volumes: home is being drained',
    ],
    [
      'the other node is offline',
      { nodes: [from, node({ ...to, last_seen_at: NOW - 1e6 })] },
      'away is offline',
    ],
    [
      'its node is offline',
      { nodes: [node({ ...from, last_seen_at: NOW - 1e6 }), to] },
      'on home: that node is offline',
    ],
    [
      'its agent cannot move volumes',
      { nodes: [node({ ...from, capabilities: ['volumes'] }), to] },
      'home cannot move volumes',
    ],
    [
      'its container still stops',
      {},
      'when its container has stopped',
      atRest({ stopped_first: 'asked' }),
    ],
  ])('says why it waits when %s, once', (_, over, why, d) => {
    const plan = leave(over, d);
    expect(plan.createTasks).toEqual([]);
    const { waiting } = changeOf(plan, 'd2');
    expect(waiting).toMatch(/^the project is stopped; start it to serve again; /);
    expect(waiting).toContain(why);
    expect(plan.storyLines).toHaveLength(1);
    expect(leave(over, { ...(d ?? atRest()), waiting: waiting ?? null }).storyLines).toEqual([]);
  });
  it('waits until a container on another node is stopped: it may write', () => {
    const labels = { 'berth.project': 'p1', 'berth.deployment': 'd1' };
    const stray = { id: 'c9', name: 'svc-shop', labels, host_port: 1, state: 'running' };
    const third = node({
      ...can,
      id: 'n3',
      hostname: 'third',
      schedulable: false,
      containers: [stray],
    });
    const plan = leave({ nodes: [from, to, third] });
    expect(plan.createTasks).toMatchObject([
      { kind: 'retire', node_id: 'n3', payload: { stop: [{ deployment_id: 'd1' }] } },
    ]);
    expect(plan.volumes).toEqual([]);
  });
});

describe('the end', () => {
  it('waits for both ends', () => {
    const plan = reported('send');
    expect(plan.volumes).toMatchObject([{ id: 'v1', state: 'current', digest: result.digest }]);
    expect(plan.createTasks).toEqual([]);
  });
  it('the new copy counts when both ends have equal files; the old container is removed, and the project stays stopped', () => {
    const last = reported('receive', { volumes: [{ ...copy, digest: result.digest }, incoming] });
    expect(last.volumes.map(({ state }) => state).toSorted()).toEqual(['current', 'incoming']);
    expect(changeOf(last, 'd2').waiting).toContain('home has not listed its containers since then');
    const plan = leave({ volumes: proven });
    expect(plan.volumes).toMatchObject([
      { id: 'v1', state: 'left', digest: null },
      { id: 'v2', state: 'current', digest: null },
    ]);
    expect(plan.createTasks).toMatchObject([
      { kind: 'retire', node_id: 'n1', payload: { remove: [{ deployment_id: 'd2' }] } },
    ]);
    expect([plan.stopped, stateOf(plan, 'd2'), changeOf(plan, 'd2').waiting]).toEqual([
      undefined,
      null,
      'the project is stopped; start it to serve again',
    ]);
  });
  it.each<[string, () => Plan]>([
    [
      'the files differ',
      () => reported('receive', { volumes: [{ ...copy, digest: 'b'.repeat(64) }, incoming] }),
    ],
    [
      'the sender cannot read',
      () =>
        reported(
          'send',
          {},
          { status: 'failed', result: { error: { code: 'volume_failed', message: 'x' } } },
        ),
    ],
    [
      'the disk is full',
      () =>
        reported(
          'receive',
          {},
          { status: 'failed', result: { error: { code: 'disk_full', message: 'x' } } },
        ),
    ],
    [
      'a node is lost',
      () =>
        advance(
          atRest(),
          { type: 'task_lost', task: move('send'), why: 'lease' },
          facts({ ...moving, live: [atRest()] }),
        ),
    ],
  ])('the data stays where it was when %s', (_, decide) => {
    const plan = decide();
    expect(plan.volumes.find((c) => c.id === 'v2')).toMatchObject({ state: 'deleting' });
    expect(plan.volumes.find((c) => c.id === 'v1')?.state ?? 'current').toBe('current');
    expect(plan.changeTasks.filter((t) => 'end' in t)).toHaveLength(2);
    expect(changeOf(plan, 'd2')).toMatchObject({
      losses: [{ at: NOW }],
      waiting: expect.stringContaining('its volumes were not moved: '),
    });
    expect([plan.createTasks, stateOf(plan, 'd2')]).toEqual([[], null]);
  });
  describe('a node with a full disk', () => {
    const error = { code: 'disk_full', message: 'x' } as const;
    const third = node({ ...can, id: 'n3', hostname: 'third', max_storage: 1 });
    const tries = { p1: { count: 1, deployment_id: null, problem: null, at: NOW - 3 } };
    const full = (at: number): DeploymentRecord =>
      atRest({ losses: [{ node_id: 'n2', at, error }] });
    const leaving = (over: Partial<NodeRecord>) => node({ ...from, ...over });
    it.each<[string, NodeFact, number]>([
      ['was full in this drain', leaving({ drain: { ...drain, started_at: NOW - 9 } }), NOW - 5],
      [
        'was full since the last request of the drain',
        leaving({ drain: { ...drain, started_at: NOW - 9, tries } }),
        NOW - 3,
      ],
      ['was full during the deletion', leaving({ drain: null, deleting_at: NOW - 9 }), NOW - 5],
    ])('is not tried again when it %s', (_, source, at) => {
      expect(leave({ nodes: [source, to, third] }, full(at)).createTasks).toMatchObject([
        { node_id: 'n1' },
        { node_id: 'n3' },
      ]);
      const plan = leave({ nodes: [source, to] }, full(at));
      expect(plan.createTasks).toEqual([]);
      expect(changeOf(plan, 'd2').waiting).toMatch(
        /away reported a failure of its own.*requested again$/,
      );
    });
    it.each<[string, NodeFact, number]>([
      ['was full before the drain', leaving({ drain: { ...drain, started_at: NOW - 4 } }), NOW - 5],
      [
        'was full before the drain was requested again',
        leaving({ drain: { ...drain, started_at: NOW - 9, tries } }),
        NOW - 4,
      ],
      ['was full before the deletion', leaving({ drain: null, deleting_at: NOW - 4 }), NOW - 5],
    ])('is tried again when it %s', (_, source, at) => {
      expect(leave({ nodes: [source, to] }, full(at)).createTasks).toMatchObject([
        { node_id: 'n1' },
        { node_id: 'n2' },
      ]);
    });
  });
  it.each<[string, (d: DeploymentRecord) => Plan, string]>([
    [
      'its project is deleted',
      (d) => advance(d, { type: 'project_deleted' }, facts({ ...moving, live: [d] })),
      'retired',
    ],
    [
      'its node is deleted with force',
      (d) =>
        advance(
          d,
          { type: 'node_deleted', node_id: 'n1', reachable: false },
          facts({ ...moving, live: [d] }),
        ),
      'retired',
    ],
  ])('both ends are void, and the new copy is deleted, when %s', (_, decide, state) => {
    const plan = decide(atRest());
    expect(stateOf(plan, 'd2')).toBe(state);
    expect(plan.volumes.find((c) => c.id === 'v2')).toMatchObject({ state: 'deleting' });
    expect(plan.changeTasks.filter((t) => 'end' in t && t.end === 'cancelled')).toHaveLength(2);
  });
  it('a start that was requested meanwhile waits, and its cancellation leaves the copy alone', () => {
    const start = on.built({ id: 'd3', generation: 3, settings, trigger: 'start' });
    const given = facts({ ...moving, live: [atRest(), start] });
    const waits = advance(start, { type: 'tick' }, given);
    expect([waits.createTasks, changeOf(waits, 'd3').waiting]).toEqual([
      [],
      expect.stringContaining('are being copied from home to away'),
    ]);
    const cancelled = advance(start, { type: 'cancel' }, given);
    expect([stateOf(cancelled, 'd3'), cancelled.volumes, cancelled.changeTasks]).toEqual([
      'cancelled',
      [],
      [],
    ]);
  });
});
