/**
 * One attempt at a task with a fake control plane and a fake handler: claim, lease, log, report.
 */
import { silentLogger } from '@berth/kit/log';
import { createClient } from '@berth/wire/client';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { renewIn, runTask } from '../../src/tasks/run-task.ts';
import type { TaskRun } from '../../src/link/poll-loop.ts';
import { pause } from '../../src/stopped.ts';
import type { Handler, Handlers, Product } from '../../src/tasks/task.ts';
import { TaskFailure } from '../../src/failures.ts';
import {
  buildTask,
  type FakeControlPlane,
  startFakeControlPlane,
  type TaskState,
  until,
} from '../fake-control-plane.ts';

let plane: FakeControlPlane;
let discarded: number;
beforeEach(async () => {
  plane = await startFakeControlPlane({ leaseMs: 3_000 });
  discarded = 0;
});
afterEach(() => plane.stop());

const done: Product = {
  report: { status: 'completed', image_tag: 'r/app:1' },
  discard: async () => void (discarded += 1),
};
function start(build: Handler<'build'>): { state: TaskState; run: TaskRun } {
  const state = plane.give(buildTask({}));
  const none = (): Promise<Product> => Promise.reject(new Error('not here'));
  const handlers: Handlers = {
    build,
    deploy: none,
    retire: none,
    sync: none,
    look: none,
    clean: none,
    move: none,
    run: none,
  };
  return {
    state,
    run: runTask(state.task, {
      client: createClient({ baseUrl: plane.url }),
      handlers,
      log: silentLogger(),
    }),
  };
}
const forever: Handler<'build'> = async (_, { signal }) => {
  await pause(60_000, signal);
  return done;
};

it('claims the task, sends the log before the report, and reports', async () => {
  const { state, run } = start(async (_, context) => {
    context.logStep('clone', 'hello');
    return done;
  });
  expect(await run.done).toBe('reported');
  expect(state).toMatchObject({
    attempt: 1,
    report: { status: 'completed', image_tag: 'r/app:1' },
  });
  expect(state.lines).toMatchObject([{ stream: 'system', step: 'clone', text: 'hello' }]);
  expect(plane.requests.map((r) => r.split('/').at(-1))).toEqual(['start', 'logs', 'complete']);
  expect(discarded).toBe(0);
});

it('a failure is reported with its code, and logged', async () => {
  const { state, run } = start(() =>
    Promise.reject(new TaskFailure('disk_full', 'no space left on device')),
  );
  expect(await run.done).toBe('reported');
  expect(state.report).toEqual({
    status: 'failed',
    result: { error: { code: 'disk_full', message: 'The disk is full: no space left on device' } },
  });
  expect(plane.text(state.task.id)).toBe('failed| The disk is full: no space left on device');
});

it('facts are sent when they are learned, and a failure and a cancellation report them', async () => {
  const commit = {
    commit: 'a'.repeat(40),
    commit_message: 'Break the build',
    commit_author: 'Ada',
  };
  const { state, run } = start(async (_, context) => {
    context.learned(commit);
    context.note('git_lfs', '1 file is a Git LFS pointer');
    await until('the facts', () => state.learned.length > 0);
    throw new TaskFailure('build_step_failed', 'RUN exit 1');
  });
  expect(await run.done).toBe('reported');
  expect(state.learned).toEqual([commit]);
  expect(state.report).toMatchObject({
    status: 'failed',
    ...commit,
    notes: [{ kind: 'git_lfs', message: '1 file is a Git LFS pointer' }],
  });

  const second = start(async (_, { learned, signal }) => {
    learned(commit);
    await pause(60_000, signal);
    return done;
  });
  await until('the facts', () => second.state.learned.length > 0);
  second.run.stop('cancelled');
  expect(await second.run.done).toBe('reported');
  expect(second.state.report).toMatchObject({ status: 'failed', ...commit });
});

it('facts are sent again until they arrive, also to a control plane that refused them', async () => {
  plane.fail = { match: /progress$/, status: 500 };
  const { state, run } = start(async (_, { learned, signal }) => {
    learned({ commit: 'a'.repeat(40) });
    await until('a refusal', () => plane.requests.some((r) => r.endsWith('/progress')));
    learned({ arch: 'amd64' });
    plane.fail = null;
    await until('the facts', () => state.learned.length > 0);
    await pause(60_000, signal);
    return done;
  });
  await until('the facts', () => state.learned.length > 0);
  expect(state.learned[0]).toEqual({ commit: 'a'.repeat(40), arch: 'amd64' });
  run.stop('cancelled');
  await run.done;
});

it('renews the lease while the handler works', async () => {
  const { state, run } = start(forever);
  await until('two renewals', () => state.renewals >= 2, 5_000);
  run.stop('shutdown');
  expect(await run.done).toBe('shutdown');
  expect(state.report).toBeNull();
});

it('a cancellation that arrives with a renewal or the task list is reported as cancelled', async () => {
  const { state, run } = start(forever);
  await until('the claim', () => state.attempt === 1);
  state.task.cancel_requested = true;
  expect(await run.done).toBe('reported');
  expect(state.report).toMatchObject({
    status: 'failed',
    result: { error: { code: 'cancelled' } },
  });

  const second = start(forever);
  await until('the claim', () => second.state.attempt === 1);
  second.run.stop('cancelled');
  expect(await second.run.done).toBe('reported');
  expect(second.state.report).toMatchObject({ result: { error: { code: 'cancelled' } } });
});

it('a void lease stops the work without a report', async () => {
  const { state, run } = start(forever);
  await until('the claim', () => state.attempt === 1);
  state.token = 'somebody else’s';
  expect(await run.done).toBe('lost');
  expect(plane.requests.some((r) => r.endsWith('/complete'))).toBe(false);
});

it('the product is discarded if the report comes too late', async () => {
  const { state, run } = start(async () => {
    state.token = 'somebody else’s';
    return done;
  });
  expect(await run.done).toBe('lost');
  expect(discarded).toBe(1);
});

it('a cancellation at the end of the work discards the product and is reported', async () => {
  const { state, run } = start(async () => {
    run.stop('cancelled');
    return done;
  });
  expect(await run.done).toBe('reported');
  expect(discarded).toBe(1);
  expect(state.report).toMatchObject({
    status: 'failed',
    result: { error: { code: 'cancelled' } },
  });
});

it('a container that could not be removed is named in the report of the failure and of the cancellation', async () => {
  const first = start(async (_, context) => {
    context.leaves?.('c1');
    throw new TaskFailure('container_exited', 'exit 1');
  });
  expect(await first.run.done).toBe('reported');
  expect(first.state.report).toMatchObject({ status: 'failed', container_id: 'c1' });
  const second = start(async () => {
    second.run.stop('cancelled');
    return {
      report: { status: 'completed', image_tag: 'r/app:1', container_id: 'c2' },
      discard: () => Promise.reject(new Error('no engine')),
    };
  });
  expect(await second.run.done).toBe('reported');
  expect(second.state.report).toMatchObject({
    result: { error: { code: 'cancelled' } },
    container_id: 'c2',
  });
});

it('the product is discarded if the task is lost before the report', async () => {
  const { run } = start(async () => {
    run.stop('lost');
    return done;
  });
  expect(await run.done).toBe('lost');
  expect(discarded).toBe(1);
});

it.each([500, 503, 401, 429, 0])(
  'repeats claim, logs and report until they are answered (%d)',
  async (status) => {
    plane.fail = { match: /tasks\//, status };
    const { state, run } = start(async (_, context) => {
      context.logStep('x', 'line');
      return done;
    });
    await pause(400, new AbortController().signal);
    plane.fail = null;
    await until('the claim', () => state.attempt >= 1, 5_000);
    plane.fail = { match: /(logs|complete)$/, status };
    await pause(300, new AbortController().signal);
    plane.fail = null;
    expect(await run.done).toBe('reported');
    expect(state.lines.map((l) => l.text)).toEqual(['line']);
  },
);

it('after an invalid report the product is discarded and a failure is reported', async () => {
  plane.fail = { match: /complete$/, status: 422 };
  const { state, run } = start(async () => done);
  expect(await run.done).toBe('lost');
  expect(discarded).toBe(1);
  expect(plane.requests.filter((r) => r.endsWith('/complete'))).toHaveLength(2);
  expect(state.report).toBeNull();
});

it('a task whose claim is refused is not run', async () => {
  plane.fail = { match: /start$/, status: 409 };
  const { run } = start(async () => done);
  expect(await run.done).toBe('lost');
  expect(discarded).toBe(0);
});

it('an unknown kind of task is reported as failed', async () => {
  const state = plane.give({ ...buildTask({}), kind: 'juggle' } as unknown as ReturnType<
    typeof buildTask
  >);
  const none = (): Promise<Product> => Promise.reject(new Error('not here'));
  const run = runTask(state.task, {
    client: createClient({ baseUrl: plane.url }),
    handlers: {
      build: none,
      deploy: none,
      retire: none,
      sync: none,
      look: none,
      clean: none,
      move: none,
      run: none,
    },
    log: silentLogger(),
  });
  expect(await run.done).toBe('reported');
  expect(JSON.stringify(state.report)).toContain('does not know tasks of kind juggle');
});

it('renewIn is a third of the lease’s length, independent of the clocks', () => {
  const now = Date.parse('2026-01-01T00:00:00Z');
  expect(renewIn({ lease_expires_at: '2026-01-01T00:00:30Z' }, now)).toBe(10_000);
  expect(renewIn({ lease_expires_at: '2025-12-31T23:00:00Z' }, now)).toBe(1_000);
  expect(renewIn({ lease_expires_at: '2026-01-01T05:00:00Z' }, now)).toBe(20_000);
  expect(renewIn({ lease_expires_at: 'soon' }, now)).toBe(1_000);
  // With clocks an hour apart the length counts.
  expect(renewIn({ lease_expires_at: '2026-01-01T01:00:00Z', lease_seconds: 6 }, now)).toBe(2_000);
  expect(renewIn({ lease_expires_at: '2025-12-31T23:00:00Z', lease_seconds: 30 }, now)).toBe(
    10_000,
  );
});
