/**
 * Polls the node's open tasks, and runs them (docs/interfaces.md "Tasks").
 *
 * The agent requests the list of open tasks again and again. The control plane holds each request
 * until the list changes (`If-None-Match`). A control plane that does not hold requests is polled
 * every 5 s. Each list is compared with the running tasks: new tasks start within the limits,
 * cancelled tasks are stopped, and tasks that are not in the list any more are dropped as lost.
 */
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import { LOGS_WANTED_HEADER } from '@berth/wire/runtime';
import { openTasksText, type Task } from '@berth/wire/task';
import { pause, type Stopped } from '../stopped.ts';

/**
 * reported: answered with 200; lost: answered with 404 or 409; shutdown: given up, the task is
 * offered again.
 */
export type TaskOutcome = 'reported' | 'lost' | 'shutdown';
export type TaskRun = {
  task: Task;
  done: Promise<TaskOutcome>;
  /** Stops the work. A report that is being sent is not stopped by `lost`: its answer decides. */
  stop(why: Stopped['why']): void;
};
export type TaskLoopDeps = {
  client: Client;
  log: Logger;
  nodeId: () => string | null;
  run: (task: Task) => TaskRun;
  /**
   * Limits of tasks at once. Retirements and copies mostly wait (a drain may take an hour), so they
   * have limits of their own.
   */
  limits: { build: number; retire: number; sync: number; other: number };
  /** Called with each answer: which logs the control plane wants read; null: none. */
  onLogsWanted?: (tag: string | null) => void;
  /** The control plane does not know the node any more: register again. */
  onUnknownNode: () => void;
  /**
   * The agent lost a task. Until its next registration it gets no further task of that deployment:
   * register now.
   */
  onLost: () => void;
  /** Called once, with the first list, before a task of the list starts. */
  onFirstList: (tasks: readonly Task[]) => Promise<void>;
  hold?: PollHold;
  pollMs?: number;
  /** `checkOpenTasks` trusts a list that is younger than this. */
  trustMs?: number;
};
/**
 * How long the control plane may hold a poll, in seconds: a random time between `from` and `to`, so
 * that the polls of many agents do not end together, or `short`.
 */
export type PollHold = { from: number; to: number; short: number };
export type TaskLoop = {
  /** Polls until the signal aborts. */
  run(signal: AbortSignal): Promise<void>;
  /** Ends the running tasks: builds at once, the others when they are done or after `graceMs`. */
  drain(graceMs: number): Promise<void>;
  lastPollOkAt(): number | null;
  running(): number;
  /**
   * Aborts a held poll, because the node belongs to another machine now. Polls resume when `nodeId`
   * returns an id.
   */
  abortPoll(): void;
  /**
   * Compares the list with `open_tasks` of a registration’s answer; undefined if the control plane
   * does not send it.
   */
  checkOpenTasks(open: string | undefined): void;
};

/**
 * Long holds are used if each registration's answer, every 30 s, names the open tasks: a poll whose
 * connection died unnoticed then costs half a minute. With the 15 s that an answer may take, a hold
 * stays below the 300 s after which `fetch` gives up. Short holds are used if the answer does not
 * name them, and for an hour after long polls were cut: many proxies cut a request that is silent
 * for a minute.
 */
export const POLL_HOLD: PollHold = { from: 200, to: 280, short: 50 };
const SHORT_FOR_MS = 3_600_000;
/** `open_tasks` may be a few seconds old (the control plane's loops/task-watch.ts). */
const TRUST_MS = 5_000;
/** A lost task is not started again for this time, even if it is listed. */
const BACKOFF_MS = 3_000;

export function createTaskLoop(deps: TaskLoopDeps): TaskLoop {
  const { client, log, hold = POLL_HOLD, pollMs = 5_000, trustMs = TRUST_MS } = deps;
  const runs = new Map<string, TaskRun>();
  /**
   * Tasks that ended here. A list that was requested before their end must not start them again.
   */
  const ended = new Map<string, { at: number; notBefore: number }>();
  let listed: { tasks: readonly Task[]; askedAt: number } = { tasks: [], askedAt: -Infinity };
  let etag: string | null = null;
  /** Monotonic clock in ms, like all times here. */
  let lastPollOkAt: number | null = null;
  let askedAt = 0;
  let knowsOpenTasks = false;
  /** Consecutive polls that ended without an answer after more than a short hold. */
  let cuts = 0;
  let shortUntil = -Infinity;
  let first = true;
  let draining = false;
  let repoll: NodeJS.Timeout | undefined;
  /** Aborts the held poll, so that the next one starts. */
  let poll = new AbortController();

  type Kind = keyof TaskLoopDeps['limits'];
  const kindOf = (task: Task): Kind =>
    task.kind === 'move'
      ? 'sync'
      : task.kind === 'build' || task.kind === 'retire' || task.kind === 'sync'
        ? task.kind
        : 'other';
  const runningOf = (kind: Kind): number =>
    [...runs.values()].filter((r) => kindOf(r.task) === kind).length;

  function startTasks(): void {
    for (const task of listed.tasks) {
      if (draining) return;
      if (runs.has(task.id)) continue;
      const end = ended.get(task.id);
      if (end !== undefined && performance.now() < end.notBefore) continue;
      if (end !== undefined && listed.askedAt <= end.at) {
        // This list was requested before the task ended here. Drop the ETag, so that the next list
        // is not held and tells the task’s state.
        etag = null;
        continue;
      }
      if (runningOf(kindOf(task)) >= deps.limits[kindOf(task)]) continue;
      const run = deps.run(task);
      runs.set(task.id, run);
      void run.done.then((outcome) => onEnd(task, outcome));
    }
  }
  function onEnd(task: Task, outcome: TaskOutcome): void {
    runs.delete(task.id);
    const now = performance.now();
    ended.set(task.id, { at: now, notBefore: outcome === 'reported' ? now : now + BACKOFF_MS });
    if (outcome === 'lost') deps.onLost();
    if (outcome !== 'reported') repoll ??= setTimeout(pollAgain, BACKOFF_MS + 50);
    startTasks();
  }
  function pollAgain(): void {
    repoll = undefined;
    etag = null;
    poll.abort(new Error('polling the task list again'));
  }
  function applyList(): void {
    const byId = new Map(listed.tasks.map((t) => [t.id, t]));
    for (const [id, run] of runs) {
      const task = byId.get(id);
      if (task === undefined) run.stop('lost');
      else if (task.cancel_requested) run.stop('cancelled');
    }
    for (const [id, end] of ended) if (!byId.has(id) && listed.askedAt > end.at) ended.delete(id);
    startTasks();
  }

  /** The first poll is not held: readiness and reconciliation wait for its answer. */
  function holdSeconds(): number {
    if (etag === null) return 0;
    if (!knowsOpenTasks || performance.now() < shortUntil) return hold.short;
    return Math.round(hold.from + Math.random() * (hold.to - hold.from));
  }

  const wasLong = (): boolean => performance.now() - askedAt > hold.short * 1000;
  /**
   * Counts a long poll without an answer. One may be a restart of the control plane; two in a row
   * mean that a proxy cuts silent requests.
   */
  function noteCut(error: unknown): void {
    if (!wasLong() || (error instanceof ApiError && error.status < 500)) return;
    cuts += 1;
    if (cuts > 1) shortUntil = performance.now() + SHORT_FOR_MS;
  }

  async function pollOnce(nodeId: string, signal: AbortSignal): Promise<void> {
    askedAt = performance.now();
    poll = new AbortController();
    const headers: Record<string, string> = etag === null ? {} : { 'if-none-match': etag };
    const either = AbortSignal.any([signal, poll.signal]);
    const wait = holdSeconds();
    const result = await client.exchange('agentTasks', {
      query: { node_id: nodeId, wait },
      headers,
      signal: either,
      timeoutMs: (wait + 15) * 1000,
    });
    if (wasLong()) cuts = 0;
    lastPollOkAt = performance.now();
    if (result.headers !== undefined) deps.onLogsWanted?.(result.headers.get(LOGS_WANTED_HEADER));
    if (result.answer !== null) {
      listed = { tasks: result.answer, askedAt };
      etag = result.etag;
      if (first) {
        first = false;
        await deps.onFirstList(listed.tasks);
      }
      applyList();
    }
    // The control plane does not hold requests: wait until the next poll is due.
    if (result.etag === null && performance.now() - askedAt < 1_000) await pause(pollMs, signal);
  }

  return {
    lastPollOkAt: () => lastPollOkAt,
    running: () => runs.size,
    abortPoll: () => pollAgain(),
    checkOpenTasks(open) {
      knowsOpenTasks = open !== undefined;
      if (open === undefined || lastPollOkAt === null || performance.now() - lastPollOkAt < trustMs)
        return;
      if (open === openTasksText(listed.tasks)) return;
      log.info('the open tasks differ from the polled list; polling again');
      pollAgain();
    },
    async run(signal) {
      for (let failures = 0; !signal.aborted; ) {
        try {
          const nodeId = deps.nodeId();
          if (nodeId === null) {
            await pause(100, signal);
            continue;
          }
          await pollOnce(nodeId, signal);
          failures = 0;
        } catch (error) {
          if (signal.aborted) return;
          if (error === poll.signal.reason) continue;
          // 401: the node was deleted with its secret, or the secret was reset.
          if (error instanceof ApiError && (error.status === 404 || error.status === 401))
            deps.onUnknownNode();
          noteCut(error);
          if (failures === 0) log.warn({ err: error }, 'polling the task list failed; will retry');
          await pause(backoff(failures, { min: 500, max: pollMs }), signal).catch(() => undefined);
          failures += 1;
        }
      }
    },
    async drain(graceMs) {
      draining = true;
      clearTimeout(repoll);
      const stopWhere = (why: Stopped['why'], which: (r: TaskRun) => boolean): void =>
        [...runs.values()].filter(which).forEach((r) => r.stop(why));
      stopWhere('shutdown', (r) => r.task.kind === 'build');
      const all = Promise.all([...runs.values()].map((r) => r.done));
      const late = setTimeout(() => stopWhere('shutdown', () => true), graceMs);
      await all;
      clearTimeout(late);
    },
  };
}
