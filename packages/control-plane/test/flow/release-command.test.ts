/** The release command: once for each new version, before it starts, while the old one serves. */
import type { RunPayload } from '@berth/wire/run-payload';
import type { TaskReport } from '@berth/wire/task';
import { describe, expect, it, test } from 'vitest';
import type { Facts } from '../../src/domain/deployments/facts.ts';
import type { Plan } from '../../src/domain/deployments/plan.ts';
import type { DeploymentRecord, TaskRecord } from '../../src/domain/platform/records.ts';
import { advance, request, stop } from '../../src/flow/deployment.ts';
import {
  builder,
  changeOf,
  facts,
  node,
  NOW,
  old,
  on,
  SETTINGS,
  stateOf,
  task,
} from './fixtures.ts';

const command = ['node', 'migrate.js'];
const settings = { ...SETTINGS, release_command: command, env: { COLOR: 'blue' } };
const next = on.built({ settings });
const able = node({ capabilities: ['runs'] });
const nodes = [builder(), able];
const payload = { run_id: 'release-d2', command, timeout_seconds: 600 } as RunPayload;
const release = (over: Partial<TaskRecord> = {}): TaskRecord => task('run', { payload, ...over });

const tick = (d: DeploymentRecord = next, over: Partial<Facts> = {}): Plan =>
  advance(d, { type: 'tick' }, facts({ live: [old(), d], nodes, ...over }));
const reported = (report: TaskReport): Plan => {
  const open = release();
  return advance(
    next,
    { type: 'task_reported', task: open, report },
    facts({ live: [old(), next], nodes, tasks: [open] }),
  );
};
const lost = (
  why: 'queue' | 'lease' | 'wall' | 'attempts',
  over: Partial<TaskRecord> = {},
): Plan => {
  const open = release(over);
  return advance(
    next,
    { type: 'task_lost', task: open, why },
    facts({ live: [old(), next], nodes, tasks: [open] }),
  );
};
const exited = (exit_code: number, out_of_memory = false): TaskReport => ({
  status: 'completed',
  result: { exit_code, out_of_memory } as Record<string, unknown>,
});
const failedWith = (code: string): TaskReport => ({
  status: 'failed',
  result: { error: { code, message: 'it was so' } },
});
const kinds = (plan: Plan): string[] => plan.createTasks.map(({ kind }) => kind);

it('runs on the chosen node with the new image, before the first container', () => {
  const plan = tick();
  expect(plan.createTasks).toMatchObject([
    {
      kind: 'run',
      deployment_id: 'd2',
      node_id: 'n1',
      payload: { run_id: 'release-d2', command, env: { COLOR: 'blue' }, timeout_seconds: 600 },
    },
  ]);
  expect(stateOf(plan, 'd2'), 'the old version serves, and nothing is assigned').toBeNull();
  expect(changeOf(plan, 'd2')?.waiting).toBe(
    'the release command runs on node-1, at most 600 s; its output: berth logs --build',
  );
});

it('starts one command only, whatever the loops do', () => {
  expect(kinds(tick(next, { tasks: [release()] }))).toEqual([]);
});

test.each([
  ['a rollback', on.built({ settings, rollback_of: 'd0' })],
  ['a command that succeeded', on.built({ settings, release_done_at: NOW })],
  ['a project without one', on.built({ settings: SETTINGS })],
] as const)('%s goes on to the deploy task', (_, d) => {
  expect(kinds(tick(d))).toEqual(['deploy']);
});

it('an agent that cannot run commands fails it before anything starts', () => {
  const plan = tick(next, { nodes: [builder(), node()] });
  expect(changeOf(plan, 'd2')?.error).toMatchObject({ code: 'agent_cannot' });
});

it('success: the version is placed next', () => {
  const plan = reported(exited(0));
  expect(changeOf(plan, 'd2')?.release_done_at).toBe(NOW);
  expect(stateOf(plan, 'd2')).toBeNull();
});

test.each([
  ['an exit code', exited(3), 'release_failed', 'exit code 3'],
  ['no memory', exited(137, true), 'release_failed', 'memory limit'],
  ['the time limit', failedWith('command_timeout'), 'release_failed', 'it exceeded 600 s'],
  ['no image', failedWith('image_pull_failed'), 'release_failed', 'it was so'],
  ['a container that is gone', failedWith('run_lost'), 'release_unknown', 'it was so'],
  ['nonsense', { status: 'completed', result: 'fine' }, 'release_failed', 'no result'],
] as const)('%s fails the deployment, and the old version serves', (_, report, code, text) => {
  const plan = reported(report);
  expect(stateOf(plan, 'd2')).toBe('failed');
  const { error } = changeOf(plan, 'd2') ?? {};
  expect(error?.code).toBe(code);
  expect(error?.message).toContain(text);
  expect(stateOf(plan, 'd1')).toBeNull();
  expect(kinds(plan)).toEqual([]);
});

describe('an agent that is lost', () => {
  it('before it took the task: another node can run it', () => {
    const plan = lost('queue', { attempt: 0, status: 'pending' });
    expect(changeOf(plan, 'd2')?.losses).toMatchObject([{ node_id: 'n1' }]);
    expect(stateOf(plan, 'd2')).toBeNull();
  });

  it('afterwards: only its own node gets the same run again', () => {
    expect(lost('lease').createTasks).toMatchObject([
      { kind: 'run', node_id: 'n1', payload: { run_id: 'release-d2', again: true } },
    ]);
  });

  it('meanwhile the deployment says that the node is silent, not that the command runs', () => {
    const again = { ...payload, again: true } as RunPayload;
    const waiting = (over: Partial<TaskRecord>) =>
      changeOf(tick(next, { tasks: [release({ payload: again, ...over })] }), 'd2')?.waiting;
    expect(waiting({ status: 'pending', attempt: 0 })).toBe(
      'node-1 stopped reporting while the release command ran there; Berth waits 10 minutes for it',
    );
    expect(waiting({ status: 'running' })).toMatch(/^the release command runs on node-1/);
  });

  it('and does not return: release_unknown, never a second start', () => {
    const again = { payload: { ...payload, again: true } as RunPayload, attempt: 0 };
    for (const plan of [lost('queue', again), lost('wall'), lost('attempts')]) {
      expect(changeOf(plan, 'd2')?.error).toMatchObject({ code: 'release_unknown' });
      expect(kinds(plan)).toEqual([]);
    }
  });

  it('because its node was deleted: release_unknown', () => {
    const plan = advance(
      next,
      { type: 'node_deleted', node_id: 'n1', reachable: false },
      facts({ live: [old(), next], nodes: [builder()], tasks: [release()] }),
    );
    expect(changeOf(plan, 'd2')?.error).toMatchObject({ code: 'release_unknown' });
  });
});

describe('a newer request', () => {
  const input = {
    id: 'd3',
    commit: null,
    note: null,
    trigger: 'api' as const,
    created_by: null,
    release: null,
  };
  const newer = (tasks: TaskRecord[]): Plan =>
    request(input, facts({ live: [old(), next], nodes, tasks }));

  it('does not kill a migration', () => {
    const plan = newer([release()]);
    expect(stateOf(plan, 'd2')).toBeNull();
    expect(plan.storyLines.some(({ message }) => message.includes('release command runs'))).toBe(
      true,
    );
  });

  it('supersedes a version whose command has not begun', () => {
    expect(stateOf(newer([]), 'd2')).toBe('superseded');
  });

  it('waits for its turn', () => {
    const third = on.built({ id: 'd3', generation: 3, settings });
    const plan = tick(third, { live: [old(), next, third], tasks: [release()] });
    expect(kinds(plan)).toEqual([]);
    expect(changeOf(plan, 'd3')?.waiting).toContain('deployment 2');
  });
});

describe('a cancellation', () => {
  const cancel = (d: DeploymentRecord, task: TaskRecord): Plan =>
    advance(d, { type: 'cancel' }, facts({ live: [old(), d], nodes, tasks: [task] }));

  it('ends a command that no agent has begun', () => {
    const plan = cancel(next, release({ attempt: 0 }));
    expect(stateOf(plan, 'd2')).toBe('cancelled');
    expect(plan.changeTasks).toMatchObject([{ id: 't1', end: 'cancelled' }]);
  });

  it('asks the agent to stop the command, and the deployment ends with it', () => {
    const plan = cancel(next, release({ attempt: 1 }));
    expect(stateOf(plan, 'd2')).toBeNull();
    expect(plan.changeTasks).toMatchObject([{ id: 't1', requestCancel: true }]);
    const asked = { ...next, cancel_requested_at: NOW };
    expect(cancel(asked, release({ attempt: 1 })).changeTasks).toEqual([]);
    expect(kinds(tick(asked, { live: [old(), asked], tasks: [release({ attempt: 1 })] }))).toEqual(
      [],
    );
    for (const event of [
      {
        type: 'task_reported' as const,
        task: release({ attempt: 1 }),
        report: {
          status: 'failed' as const,
          result: { error: { code: 'cancelled', message: '' } },
        },
      },
      { type: 'task_lost' as const, task: release({ attempt: 1 }), why: 'lease' as const },
    ]) {
      const facts_ = facts({ live: [old(), asked], nodes, tasks: [release({ attempt: 1 })] });
      expect(stateOf(advance(asked, event, facts_), 'd2')).toBe('cancelled');
    }
  });
});

describe.each([
  ['a stop', 'the project was stopped'],
  ['a deletion', 'the project is being deleted'],
] as const)('%s of the project', (what, why) => {
  const ends = (d: DeploymentRecord, task: TaskRecord): Plan => {
    const facts_ = facts({ live: [old(), d], nodes, tasks: [task] });
    return what === 'a stop'
      ? stop('ann@example.com', facts_)
      : advance(d, { type: 'project_deleted' }, facts_);
  };

  it('ends a deployment whose command no agent has begun', () => {
    const plan = ends(next, release({ attempt: 0 }));
    expect(stateOf(plan, 'd2')).toBe('cancelled');
    expect(plan.changeTasks).toMatchObject([{ id: 't1', end: 'cancelled' }]);
  });

  it('lets the command end with its grace, once, and the deployment ends with it', () => {
    const plan = ends(next, release({ attempt: 1 }));
    expect(stateOf(plan, 'd2')).toBeNull();
    expect(plan.changeTasks).toMatchObject([{ id: 't1', requestCancel: true }]);
    expect(JSON.stringify(plan.storyLines)).toContain(
      `${why}; waiting until the release command has stopped`,
    );
    const asked = { ...next, cancel_requested_at: NOW };
    expect(ends(asked, release({ attempt: 1 })).changeTasks).toEqual([]);
  });
});
