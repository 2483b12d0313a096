/** The first container of a running version that somebody removed by hand (flow/missing-container.ts). */
import { describe, expect, it } from 'vitest';
import { LABELS } from '@berth/wire/vocabulary';
import type { Facts } from '../../src/domain/deployments/facts.ts';
import type { DeploymentRecord } from '../../src/domain/platform/records.ts';
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
  task,
} from './fixtures.ts';

const gone: FlowEvent = { type: 'observed', node_id: 'n1', container: null };
const missing = 'its container is missing on its node; Berth creates it again';
/** Its node has listed no container of it for a while. */
const bare = (over: Partial<DeploymentRecord> = {}): DeploymentRecord =>
  old({ health: { status: 'unhealthy', since: NOW - 10_000, detail: missing }, ...over });
const world = (d: DeploymentRecord, over: Partial<Facts> = {}): Facts =>
  facts({
    live: [d],
    nodes: [node(), node({ id: 'n2', hostname: 'node-2', host_ip: '10.0.0.2' })],
    route: routeTo(d),
    ...over,
  });
const created = { kind: 'deploy', node_id: 'n1', deployment_id: 'd1' };
const creation = task('deploy', { deployment_id: 'd1' });
const deletesLabels = (deployment_id: string) => ({
  [LABELS.project]: 'p1',
  [LABELS.deployment]: deployment_id,
});

describe('a first container that somebody removed', () => {
  it('is not created after one list, which can be outdated', () => {
    const d = old();
    const plan = advance(d, gone, world(d));
    expect(plan.createTasks).toEqual([]);
    expect(changeOf(plan, 'd1').health).toMatchObject({ status: 'unhealthy', detail: missing });
  });
  it('is created again on its node after 10 seconds, and the story says so', () => {
    const d = bare();
    const plan = advance(d, gone, world(d));
    expect(plan.createTasks).toMatchObject([created]);
    expect(changeOf(plan, 'd1')).toMatchObject({
      waiting: 'its container does not exist any more on node-1; it is created again',
    });
    expect(plan.storyLines).toContainEqual(
      expect.objectContaining({
        kind: 'started_again',
        message: 'its container does not exist any more; it is created again on node-1',
      }),
    );
    // The version is not "stopped for a newer one".
    expect(changeOf(plan, 'd1').stopped_first).toBeUndefined();
  });
  it('serves again when the new container answers', () => {
    const d = bare({ container_id: null });
    const plan = advance(
      d,
      {
        type: 'task_reported',
        task: creation,
        report: { status: 'completed', host_port: 32_009, container_id: 'c9' },
      },
      world(d, { tasks: [creation] }),
    );
    expect(changeOf(plan, 'd1')).toMatchObject({
      waiting: null,
      host_port: 32_009,
      health: { status: 'healthy' },
    });
    expect(plan.route).toMatchObject({ set: { deployment_id: 'd1', host_port: 32_009 } });
  });
  it('also on a drained node, which serves until another one can take it', () => {
    const d = bare();
    const drained = node({ schedulable: false, drain: { since: NOW, tries: {} } as never });
    expect(advance(d, gone, world(d, { nodes: [drained] })).createTasks).toMatchObject([created]);
  });
  it('also while a newer version is built', () => {
    const d = bare();
    const plan = advance(d, gone, world(d, { live: [d, on.building()] }));
    expect(plan.createTasks).toMatchObject([created]);
  });
  it('also when no other instance serves', () => {
    const d = bare();
    const other = instance({ deployment_id: 'd1', state: 'starting', host_port: null });
    const two = project({ processes: [{ name: 'web', count: 2 }] });
    const plan = advance(d, gone, world(d, { instances: [other], project: two }));
    expect(plan.createTasks).toMatchObject([created]);
  });

  const elsewhere = node({
    id: 'n2',
    hostname: 'node-2',
    containers: [{ name: 'svc-new', labels: deletesLabels('d9'), host_port: 1, state: 'running' }],
  });
  it.each<[string, DeploymentRecord, Partial<Facts>]>([
    ['its project is stopped', bare(), { project: project({ stopped_at: NOW - 1 }) }],
    ['its project is deleted', bare(), { project: project({ deleting_at: NOW - 1 }) }],
    ['a newer version starts', bare(), { live: [bare(), on.deploying()] }],
    ['its creation is open', bare(), { tasks: [creation] }],
    ['another instance takes over', bare(), { instances: [instance({ deployment_id: 'd1' })] }],
    [
      'its replacement starts on another node',
      bare(),
      {
        nodes: [node({ drain: { since: NOW, tries: {} } as never }), node({ id: 'n2' })],
        instances: [instance({ deployment_id: 'd1', number: 1, state: 'starting' })],
      },
    ],
    ['its node is lost', bare({ lost_since: NOW - 1 }), {}],
    ['the agent is contract-only', bare(), { nodes: [node({ agent_version: null })] }],
    [
      'the list is older than its last task',
      bare(),
      {
        endedWork: [
          { node_id: 'n1', claimed_at: NOW, unreported_at: null, reported_at: null } as never,
        ],
      },
    ],
    ['it waits for its next try', bare({ retry: { tries: 3, not_before: NOW + 1 } }), {}],
  ])('is not created while %s', (_, d, over) => {
    expect(
      advance(d, gone, world(d, over)).createTasks.filter(({ kind }) => kind === 'deploy'),
    ).toEqual([]);
  });
  it('is not created beside a container that Berth does not know, and says why', () => {
    const d = bare();
    const plan = advance(d, gone, world(d, { nodes: [node(), elsewhere] }));
    expect(plan.createTasks).toEqual([]);
    expect(changeOf(plan, 'd1').health?.detail).toBe(
      'its container does not exist any more, and cannot be created again: svc-new on node-2 ' +
        'belongs to another version of the project; remove it or deploy the project again',
    );
  });
  it('a project that writes is not created while a node may still run it', () => {
    const writes = { ...SETTINGS, replace: 'recreate' as const };
    const d = bare({ settings: writes });
    const silent = node({ id: 'n2', hostname: 'node-2', containers: elsewhere.containers });
    expect(advance(d, gone, world(d, { nodes: [node(), silent] })).createTasks).toEqual([]);
    expect(advance(d, gone, world(d)).createTasks).toMatchObject([created]);
  });
});

describe('a container that is removed again and again', () => {
  const answers = (d: DeploymentRecord): DeploymentRecord => {
    const plan = advance(
      d,
      {
        type: 'task_reported',
        task: creation,
        report: { status: 'completed', host_port: 32_009, container_id: 'c9' },
      },
      world(d, { tasks: [creation] }),
    );
    return { ...d, ...changeOf(plan, 'd1') };
  };
  it('is created later each time, and its health says that something removes it', () => {
    let d = bare();
    const waits: number[] = [];
    for (let n = 0; n < 6; n++) {
      d = answers(d);
      waits.push((d.retry?.not_before ?? 0) - NOW);
      const removed = advance(d, gone, world(d));
      d = { ...d, ...changeOf(removed, 'd1') };
    }
    expect(waits).toEqual([0, 60_000, 120_000, 240_000, 300_000, 300_000]);
    expect(d.health?.detail).toBe(
      'its container is missing on its node again: something removes it. Berth creates it again ' +
        'within 5 minutes',
    );
    expect(advance(d, gone, world(d)).createTasks).toEqual([]);
  });
  it('is created at once after it ran for 10 minutes', () => {
    const healthy = { status: 'healthy' as const, since: NOW - 600_000, detail: null };
    const d = old({ health: healthy, retry: { tries: 5, not_before: NOW - 300_000 } });
    const plan = advance(d, gone, world(d));
    expect(changeOf(plan, 'd1')).toMatchObject({ retry: null, health: { detail: missing } });
  });
});

it('a container that is there again needs no creation', () => {
  const waiting = { kind: 'created_again' as const, node: 'node-1' };
  const d = bare({
    waiting: 'its container does not exist any more on node-1; it is created again',
    waiting_reason: waiting,
  });
  const container = {
    id: 'c1',
    name: 'svc-shop',
    labels: deletesLabels('d1'),
    host_port: 32_001,
    state: 'running' as const,
  };
  const plan = advance(d, { type: 'observed', node_id: 'n1', container }, world(d));
  expect(changeOf(plan, 'd1')).toMatchObject({ waiting: null, health: { status: 'healthy' } });
});

it('an instance that takes over ends the creation of the first container', () => {
  const waiting = { kind: 'created_again' as const, node: 'node-1' };
  const d = bare({
    waiting: 'its container does not exist any more on node-1; it is created again',
    waiting_reason: waiting,
  });
  const plan = advance(
    d,
    gone,
    world(d, { tasks: [creation], instances: [instance({ deployment_id: 'd1' })] }),
  );
  expect(changeOf(plan, 'd1')).toMatchObject({ node_id: 'n2', waiting: null });
  expect(plan.changeTasks).toMatchObject([{ id: creation.id, end: 'cancelled' }]);
});

it('is not decided for a deployment that is not live yet', () => {
  const d = deployment({ status: 'deploying', node_id: 'n1' });
  expect(advance(d, gone, facts({ live: [d] })).createTasks).toEqual([]);
});
