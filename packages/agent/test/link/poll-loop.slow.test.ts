/** The task loop: which tasks start, how many at once, and what ends them. */
import { silentLogger } from '@berth/kit/log';
import { createClient } from '@berth/wire/client';
import { openTasksText, type Task } from '@berth/wire/task';
import { afterEach, beforeEach, expect, it } from 'vitest';
import {
  createTaskLoop,
  type TaskLoop,
  type TaskOutcome,
  type TaskRun,
} from '../../src/link/poll-loop.ts';
import {
  buildTask,
  deployTask,
  type FakeControlPlane,
  startFakeControlPlane,
  until,
  retireTask,
} from '../fake-control-plane.ts';

const POLL_HOLD = { from: 20, to: 28, short: 1 };
type Started = { task: Task; stops: string[]; end: (outcome: TaskOutcome) => void };
let plane: FakeControlPlane;
let started: Started[];
let unknownCount: number;
let lostCount = 0;
let firstLists: number;
let ending: AbortController;
let loop: TaskLoop;
let running: Promise<void>;

beforeEach(async () => {
  plane = await startFakeControlPlane();
  started = [];
  unknownCount = 0;
  lostCount = 0;
  firstLists = 0;
  ending = new AbortController();
  loop = createTaskLoop({
    client: createClient({ baseUrl: plane.url }),
    log: silentLogger(),
    nodeId: () => 'node-1',
    run: (task): TaskRun => {
      let end: (outcome: TaskOutcome) => void = () => undefined;
      const done = new Promise<TaskOutcome>((resolve) => (end = resolve));
      const stops: string[] = [];
      started.push({ task, stops, end });
      return {
        task,
        done,
        stop: (why) => {
          stops.push(why);
          if (why === 'shutdown') end('shutdown');
        },
      };
    },
    limits: { build: 2, retire: 50, sync: 50, run: 2, other: 8 },
    onUnknownNode: () => void (unknownCount += 1),
    onLost: () => void (lostCount += 1),
    onFirstList: async () => void (firstLists += 1),
    hold: POLL_HOLD,
    pollMs: 300,
    trustMs: 200,
  });
  running = loop.run(ending.signal);
});
afterEach(async () => {
  ending.abort();
  await running;
  await plane.stop();
});
const ids = (): string[] => started.map((b) => b.task.id);

it('starts each task once, builds up to their limit, and the next build when one ends', async () => {
  const states = [1, 2, 3].map(() => plane.give(buildTask({})));
  const deploy = plane.give(deployTask('d', {}));
  await until('three tasks started', () => started.length === 3);
  expect(new Set(ids())).toEqual(new Set([states[0]?.task.id, states[1]?.task.id, deploy.task.id]));
  const first = started.find((b) => b.task.kind === 'build');
  const state = plane.state(first?.task.id ?? '');
  state.report = { status: 'completed' };
  first?.end('reported');
  await until('the third build', () => ids().includes(states[2]?.task.id ?? ''));
  expect(started).toHaveLength(4);
  expect(firstLists).toBe(1);
});

it('a node that drains many old containers still starts a deployment', async () => {
  for (let i = 0; i < 12; i++) plane.give(retireTask({ drain_seconds: 3600 }));
  await until('all retirements wait', () => started.length === 12);
  const deploy = plane.give(deployTask('d', {}));
  await until('the deployment started', () => ids().includes(deploy.task.id));
});

it('a poll is held by the control plane until the list changes', async () => {
  await until('the first list', () => loop.lastPollOkAt() !== null);
  await new Promise((r) => setTimeout(r, 700));
  expect(
    plane.requests.filter((r) => r.startsWith('GET /api/agent/tasks')).length,
  ).toBeLessThanOrEqual(2);
  const polls = (): number =>
    plane.requests.filter((r) => r.startsWith('GET /api/agent/tasks')).length;
  const before = polls();
  plane.give(buildTask({}));
  await until('the task', () => started.length === 1);
  // The held poll brought the task; the next poll follows it.
  expect(polls() - before).toBeLessThanOrEqual(1);
});

it('polls again if a registration’s answer names open tasks that the held poll did not report', async () => {
  await until('the first list', () => loop.lastPollOkAt() !== null);
  plane.deaf = true;
  await until('a held request', () => plane.waits.length === 2);
  const { task } = plane.give(buildTask({}));
  // A young list is trusted: the answer may be older than it.
  await until(
    'the task',
    () => (loop.checkOpenTasks(openTasksText([task])), started.length === 1),
    5_000,
  );
  // A missed end of a task is found in the same way.
  await until('held again', () => plane.waits.at(-1) !== 0);
  plane.takeAway(task.id);
  await until(
    'the loss',
    () => (loop.checkOpenTasks(''), started[0]?.stops.includes('lost')),
    5_000,
  );
});

it('does not poll again while a registration’s answer equals the list', async () => {
  const { task } = plane.give(buildTask({}));
  await until('started, and held again', () => started.length === 1 && plane.waits.length === 2);
  const settled = Date.now() + 400;
  await until('a list that is not trusted any more', () => Date.now() > settled);
  loop.checkOpenTasks(openTasksText([task]));
  plane.give(buildTask({}));
  await until('the next', () => started.length === 2);
  // The poll stayed held; the new task ended it.
  expect(plane.waits.filter((wait) => wait === 0)).toHaveLength(1);
});

it('holds polls long if registrations report the open tasks, else shorter than the idle timeout of proxies', async () => {
  await until('held', () => plane.waits.length === 2);
  expect(plane.waits[1]).toBe(POLL_HOLD.short);
  loop.checkOpenTasks('');
  plane.give(buildTask({}));
  await until('held again', () => plane.waits.length === 3);
  expect(plane.waits[2]).toBeGreaterThanOrEqual(POLL_HOLD.from);
  expect(plane.waits[2]).toBeLessThanOrEqual(POLL_HOLD.to);
  loop.checkOpenTasks(undefined);
  plane.give(buildTask({}));
  await until('held again', () => plane.waits.length === 4);
  expect(plane.waits[3]).toBe(POLL_HOLD.short);
});

it('holds polls short after long polls were cut twice', async () => {
  await until('the first list', () => loop.lastPollOkAt() !== null);
  loop.checkOpenTasks('');
  plane.cutAfterMs = 1_100;
  await until(
    'cut twice',
    () => plane.waits.filter((wait) => wait === POLL_HOLD.short).length >= 3,
    10_000,
  );
  const long = plane.waits.filter((wait) => wait >= POLL_HOLD.from);
  expect(long).toHaveLength(2);
  plane.give(buildTask({}));
  await until('the task', () => started.length === 1);
});

it('stops tasks that are cancelled and tasks that are gone from the list', async () => {
  const a = plane.give(buildTask({}));
  const b = plane.give(buildTask({}));
  await until('both', () => started.length === 2);
  plane.cancel(a.task.id);
  await until('the cancel', () =>
    started.find((x) => x.task.id === a.task.id)?.stops.includes('cancelled'),
  );
  plane.takeAway(b.task.id);
  await until('the loss', () =>
    started.find((x) => x.task.id === b.task.id)?.stops.includes('lost'),
  );
});

it('does not restart a reported task that an older list still has, and starts it when it is offered again', async () => {
  const state = plane.give(buildTask({}));
  await until('started', () => started.length === 1);
  state.report = { status: 'completed' };
  started[0]?.end('reported');
  await new Promise((r) => setTimeout(r, 300));
  expect(started).toHaveLength(1);
  state.report = null;
  plane.give(buildTask({}));
  await until('started again', () => ids().filter((id) => id === state.task.id).length === 2);
});

it('starts a task that is offered again even if the clock was set back meanwhile', async () => {
  plane.give(deployTask('d', {}));
  await until('started', () => started.length === 1);
  const real = Date.now;
  started[0]?.end('reported');
  await until('its end is noted', () => loop.running() === 0);
  Date.now = () => real() - 3_600_000;
  try {
    // The task is still in the list, so it is offered again. A new task ends the held poll.
    plane.give(buildTask({}));
    await until('started again', () => new Set(ids()).size === 2 && started.length === 3);
  } finally {
    Date.now = real;
  }
});

it('waits before it starts a lost task again', async () => {
  plane.give(buildTask({}));
  await until('started', () => started.length === 1);
  const at = Date.now();
  started[0]?.end('lost');
  expect(lostCount).toBe(0);
  await until('the loss was reported', () => lostCount === 1);
  await until('started again', () => started.length === 2, 6_000);
  expect(Date.now() - at).toBeGreaterThan(2_500);
});

it('goes on polling after errors, and an unknown node registers again', async () => {
  plane.fail = { match: /tasks$/, status: 503 };
  plane.give(buildTask({}));
  await new Promise((r) => setTimeout(r, 500));
  plane.fail = { match: /tasks$/, status: 404 };
  await until('the unknown node is reported', () => unknownCount > 0, 3_000);
  plane.fail = null;
  await until('started', () => started.length === 1, 3_000);
});

it('drain ends builds at once and lets other tasks finish', async () => {
  plane.give(buildTask({}));
  plane.give(deployTask('d', {}));
  await until('both', () => started.length === 2);
  const deploy = started.find((b) => b.task.kind === 'deploy');
  setTimeout(() => deploy?.end('reported'), 100);
  await loop.drain(5_000);
  expect(started.find((b) => b.task.kind === 'build')?.stops).toEqual(['shutdown']);
  expect(deploy?.stops).toEqual([]);
});
