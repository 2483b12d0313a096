/**
 * Another node reports the container of a deployment, and its own node does not: the machine was
 * renamed.
 */
import { describe, expect, it } from 'vitest';
import type { NodeFact } from '../../src/domain/deployments/facts.ts';
import { isEmptyPlan } from '../../src/domain/deployments/plan.ts';
import type { DeploymentRecord, TaskRecord } from '../../src/domain/platform/records.ts';
import { advance } from '../../src/flow/deployment.ts';
import { copy } from './moves.ts';
import { changeOf, facts, NOW, node, on, routeTo, SETTINGS, task } from './fixtures.ts';

const seen = { id: 'c2', name: 'svc-shop', labels: {}, host_port: 32_002, state: 'running' };
const d = on.running();
const silent = (over: Partial<NodeFact> = {}) =>
  node({ id: 'n1', hostname: 'old-name', last_seen_at: NOW - 300_000, ...over });
const renamed = node({ id: 'n2', hostname: 'new-name', host_ip: '10.0.0.5' });

const told = (
  given: {
    of?: DeploymentRecord;
    own?: NodeFact;
    container?: Partial<typeof seen>;
    gone?: boolean;
  } = {},
) => {
  const { of = d, own = silent(), container = {}, gone = false } = given;
  return advance(
    of,
    { type: 'observed', node_id: 'n2', container: { ...seen, ...container } },
    facts({ live: [of], route: routeTo(of), nodes: gone ? [renamed] : [own, renamed] }),
  );
};

describe('the container of a running deployment on another node', () => {
  it('its own node is silent: deployment and route move to the node that reports it', () => {
    const plan = told();
    expect(changeOf(plan, 'd2')).toMatchObject({ node_id: 'n2' });
    expect(plan.route).toMatchObject({
      set: { node_id: 'n2', host_ip: '10.0.0.5', host_port: 32_002, deployment_id: 'd2' },
    });
    expect(plan.createTasks).toEqual([]);
    expect(plan.storyLines.map((e) => e.message).join()).toMatch(/new-name.*old-name/);
  });
  it('its volumes follow, and those on another node do not', () => {
    const volumes = [{ name: 'data', mount_path: '/data' }];
    const of = on.running({ settings: { ...SETTINGS, replace: 'recreate', volumes } });
    const planFor = (node_id: string) =>
      advance(
        of,
        { type: 'observed', node_id: 'n2', container: seen },
        facts({
          live: [of],
          route: routeTo(of),
          nodes: [silent(), renamed],
          volumes: [{ ...copy, node_id }],
        }),
      );
    expect(planFor('n1').volumes).toMatchObject([
      { id: copy.id, state: 'current', node_id: 'n2', hostname: 'new-name' },
    ]);
    expect(planFor('n9').volumes).toEqual([]);
  });
  it('the route follows a changed port too', () => {
    expect(told({ container: { host_port: 40_000 } }).route).toMatchObject({
      set: { host_port: 40_000 },
    });
  });
  it('its own node is online and does not report it', () => {
    const own = node({ id: 'n1', containers: [], observed_at: NOW - 1000 });
    expect(changeOf(told({ own }), 'd2')).toMatchObject({ node_id: 'n2' });
  });
  it('its own node was deleted', () =>
    expect(changeOf(told({ gone: true }), 'd2')).toMatchObject({ node_id: 'n2' }));
  it.each<[string, Parameters<typeof told>[0]]>([
    ['its own node still reports it', { own: node({ id: 'n1', containers: [seen] }) }],
    [
      'its own node was heard of a moment ago',
      { own: silent({ last_seen_at: NOW - 60_000, containers: [seen] }) },
    ],
    [
      'its own node has a secret: only that secret speaks for it',
      { own: silent({ has_secret: true }) },
    ],
    ['it does not run', { container: { state: 'exited' } }],
  ])('%s: nothing moves, and nothing is removed', (_, given) =>
    expect(isEmptyPlan(told(given))).toBe(true),
  );
  it('another container of the same deployment is a leftover and is removed', () => {
    expect(told({ container: { id: 'c9' } }).createTasks).toMatchObject([
      { kind: 'retire', node_id: 'n2' },
    ]);
  });
});

describe('a deployment that was stopped first, on another node', () => {
  const settings = { ...SETTINGS, replace: 'recreate' as const };
  const stopped = on.running({ settings, stopped_first: 'stopped', waiting: 'stopped first' });
  const container = {
    ...seen,
    labels: { 'berth.project': 'p1', 'berth.deployment': 'd2' },
    host_port: null,
    state: 'exited',
  };
  const before = silent({ observed_at: NOW - 300_000, containers: [container] });
  const asked = (tasks: TaskRecord[] = [], own: NodeFact[] = [before], of = stopped) =>
    advance(
      of,
      { type: 'observed', node_id: 'n2', container },
      facts({
        live: [of],
        tasks,
        route: routeTo(of),
        nodes: [...own, { ...renamed, containers: [container] }],
      }),
    );

  it.each<[string, NodeFact[] | undefined]>([
    ['is silent', undefined],
    ['is gone', []],
  ])('its node %s: it moves with its route, although it stands still', (_, own) => {
    const plan = asked([], own);
    expect(changeOf(plan, 'd2')).toEqual({ node_id: 'n2', host_port: 32_002 });
    expect(plan.route).toMatchObject({
      set: { node_id: 'n2', host_ip: '10.0.0.5', host_port: 32_002 },
    });
    expect(plan.createTasks).toEqual([]);
  });
  it('its unclaimed start on the old node is cancelled', () => {
    const start = task('retire', {
      attempt: 0,
      status: 'pending',
      payload: { remove: [], keep: null, start: 'd2' } as never,
    });
    expect(asked([start]).changeTasks).toEqual([{ id: 't1', attempt: 0, end: 'cancelled' }]);
    expect(asked([{ ...start, attempt: 1 }]).changeTasks).toEqual([]);
  });
  it('it restarts on the new node', () => {
    const plan = asked([], [before], { ...stopped, node_id: 'n2' });
    expect(plan.createTasks).toMatchObject([
      { kind: 'retire', node_id: 'n2', payload: { start: 'd2' } },
    ]);
  });
  it('nothing moves if its own node is online or has its own secret', () => {
    const plans = [
      node({ id: 'n1', containers: [container] }),
      { ...before, has_secret: true },
    ].map((own) => asked([], [own]));
    expect(plans.map((plan) => [changeOf(plan, 'd2').node_id, plan.route])).toEqual([
      [undefined, null],
      [undefined, null],
    ]);
  });
});
