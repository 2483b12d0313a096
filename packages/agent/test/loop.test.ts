/** Which tasks begin, how many at once, and what ends them. */
import { silentLogger } from '@berth/kit/log';
import { createClient } from '@berth/wire/client';
import { openTasksText, type Task } from '@berth/wire/task';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createTaskLoop, type TaskLoop } from '../src/loop.ts';
import type { TaskOutcome, TaskRun } from '../src/run-task.ts';
import { buildTask, deployTask, type FakeControlPlane, startFakeControlPlane, until, retireTask } from './fake-control-plane.ts';

const HOLDS = { from: 20, to: 28, short: 1 };
type Begun = { task: Task; stops: string[]; end: (outcome: TaskOutcome) => void };
let plane: FakeControlPlane;
let begun: Begun[];
let unknown: number;
let lostTold = 0;
let firstLists: number;
let ending: AbortController;
let loop: TaskLoop;
let running: Promise<void>;

beforeEach(async () => {
  plane = await startFakeControlPlane();
  begun = [];
  unknown = 0;
  lostTold = 0;
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
      begun.push({ task, stops, end });
      return {
        task,
        done,
        stop: (why) => {
          stops.push(why);
          if (why === 'shutdown') end('shutdown');
        },
      };
    },
    limits: { build: 2, retire: 50, sync: 50, other: 8 },
    onUnknownNode: () => void (unknown += 1),
    onLost: () => void (lostTold += 1),
    onFirstList: async () => void (firstLists += 1),
    holds: HOLDS,
    pollMs: 300,
    doubtMs: 200,
  });
  running = loop.run(ending.signal);
});
afterEach(async () => {
  ending.abort();
  await running;
  await plane.stop();
});
const ids = (): string[] => begun.map((b) => b.task.id);

it('begins each task once, builds as many at once as allowed, the next when one ends', async () => {
  const states = [1, 2, 3].map(() => plane.give(buildTask({})));
  const deploy = plane.give(deployTask('d', {}));
  await until('three begun', () => begun.length === 3);
  expect(new Set(ids())).toEqual(new Set([states[0]?.task.id, states[1]?.task.id, deploy.task.id]));
  const first = begun.find((b) => b.task.kind === 'build');
  const state = plane.state(first?.task.id ?? '');
  state.report = { status: 'completed' };
  first?.end('reported');
  await until('the third build', () => ids().includes(states[2]?.task.id ?? ''));
  expect(begun).toHaveLength(4);
  expect(firstLists).toBe(1);
});

it('a node that drains many old versions still takes a deployment', async () => {
  for (let i = 0; i < 12; i++) plane.give(retireTask({ drain_seconds: 3600 }));
  await until('all retirements wait', () => begun.length === 12);
  const deploy = plane.give(deployTask('d', {}));
  await until('the deployment is begun', () => ids().includes(deploy.task.id));
});

it('is held by the control plane, not polling', async () => {
  await until('the first list', () => loop.lastPollOkAt() !== null);
  await new Promise((r) => setTimeout(r, 700));
  expect(plane.requests.filter((r) => r.startsWith('GET /api/agent/tasks')).length).toBeLessThanOrEqual(2);
  const at = Date.now();
  plane.give(buildTask({}));
  await until('the task', () => begun.length === 1);
  expect(Date.now() - at).toBeLessThan(300);
});

it('what the answer to a register says is open is asked for when no held request told of it', async () => {
  await until('the first list', () => loop.lastPollOkAt() !== null);
  plane.deaf = true;
  await until('a held request', () => plane.waits.length === 2);
  const { task } = plane.give(buildTask({}));
  // The list may just have been on its way: doubted only when it is older than what was said can be.
  await until('the task', () => (loop.heard(openTasksText([task])), begun.length === 1), 5_000);
  // What ended is missed like what began.
  await until('held again', () => plane.waits.at(-1) !== 0);
  plane.takeAway(task.id);
  await until('the loss', () => (loop.heard(''), begun[0]?.stops.includes('lost')), 5_000);
});

it('asks for nothing anew while a register’s answer says what the list does', async () => {
  const { task } = plane.give(buildTask({}));
  await until('begun, and held again', () => begun.length === 1 && plane.waits.length === 2);
  const settled = Date.now() + 400;
  await until('a list old enough to be doubted', () => Date.now() > settled);
  loop.heard(openTasksText([task]));
  plane.give(buildTask({}));
  await until('the next', () => begun.length === 2);
  // Held as before: what ended the request was the news.
  expect(plane.waits.filter((wait) => wait === 0)).toHaveLength(1);
});

it('is held for long where registers’ answers say what is open, else for less than a proxy waits', async () => {
  await until('held', () => plane.waits.length === 2);
  expect(plane.waits[1]).toBe(HOLDS.short);
  loop.heard('');
  plane.give(buildTask({}));
  await until('held again', () => plane.waits.length === 3);
  expect(plane.waits[2]).toBeGreaterThanOrEqual(HOLDS.from);
  expect(plane.waits[2]).toBeLessThanOrEqual(HOLDS.to);
  loop.heard(undefined);
  plane.give(buildTask({}));
  await until('held again', () => plane.waits.length === 4);
  expect(plane.waits[3]).toBe(HOLDS.short);
});

it('where something on the way cuts what is held for long, it is held for less', async () => {
  await until('the first list', () => loop.lastPollOkAt() !== null);
  loop.heard('');
  plane.cutAfterMs = 1_100;
  await until('cut twice', () => plane.waits.filter((wait) => wait === HOLDS.short).length >= 3, 10_000);
  const long = plane.waits.filter((wait) => wait >= HOLDS.from);
  expect(long).toHaveLength(2);
  plane.give(buildTask({}));
  await until('the task', () => begun.length === 1);
});

it('stops what is to be cancelled and what is gone', async () => {
  const a = plane.give(buildTask({}));
  const b = plane.give(buildTask({}));
  await until('both', () => begun.length === 2);
  plane.cancel(a.task.id);
  await until('the cancel', () => begun.find((x) => x.task.id === a.task.id)?.stops.includes('cancelled'));
  plane.takeAway(b.task.id);
  await until('the loss', () => begun.find((x) => x.task.id === b.task.id)?.stops.includes('lost'));
});

it('does not begin again what it reported, even when an older list still has it; begins again what is offered anew', async () => {
  const state = plane.give(buildTask({}));
  await until('begun', () => begun.length === 1);
  state.report = { status: 'completed' };
  begun[0]?.end('reported');
  await new Promise((r) => setTimeout(r, 300));
  expect(begun).toHaveLength(1);
  state.report = null;
  plane.give(buildTask({}));
  await until('begun again', () => ids().filter((id) => id === state.task.id).length === 2);
});

it('begins again what is offered anew although the clock was set back meanwhile', async () => {
  plane.give(deployTask('d', {}));
  await until('begun', () => begun.length === 1);
  const real = Date.now;
  begun[0]?.end('reported');
  await until('its end is noted', () => loop.running() === 0);
  Date.now = () => real() - 3_600_000;
  try {
    // It is still in the list: given to us again. What else is new lets the request for the list end.
    plane.give(buildTask({}));
    await until('begun again', () => new Set(ids()).size === 2 && begun.length === 3);
  } finally {
    Date.now = real;
  }
});

it('holds off from a task that it lost', async () => {
  plane.give(buildTask({}));
  await until('begun', () => begun.length === 1);
  const at = Date.now();
  begun[0]?.end('lost');
  expect(lostTold).toBe(0);
  await until('it was told', () => lostTold === 1);
  await until('begun again', () => begun.length === 2, 6_000);
  expect(Date.now() - at).toBeGreaterThan(2_500);
});

it('goes on after errors; a node that is not known registers again', async () => {
  plane.fail = { match: /tasks$/, status: 503 };
  plane.give(buildTask({}));
  await new Promise((r) => setTimeout(r, 500));
  plane.fail = { match: /tasks$/, status: 404 };
  await until('the complaint', () => unknown > 0, 3_000);
  plane.fail = null;
  await until('begun', () => begun.length === 1, 3_000);
});

it('drains: builds end at once, the rest may finish', async () => {
  plane.give(buildTask({}));
  plane.give(deployTask('d', {}));
  await until('both', () => begun.length === 2);
  const deploy = begun.find((b) => b.task.kind === 'deploy');
  setTimeout(() => deploy?.end('reported'), 100);
  await loop.drain(5_000);
  expect(begun.find((b) => b.task.kind === 'build')?.stops).toEqual(['shutdown']);
  expect(deploy?.stops).toEqual([]);
});
