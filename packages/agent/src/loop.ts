/**
 * Which tasks are ours and which of them run (INTERFACES.md "Agent API beyond the contract").
 *
 * The list of unfinished tasks is asked for all the time and held by the control plane while it is as it was (`If-None-Match`);
 * a control plane that does not hold gets the contract's poll every 5 s. Each answer is compared with what runs here:
 * new ones begin (as many at once as allowed), ones to cancel are stopped, ones that are gone are dropped as lost.
 */
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import { openTasksText, type Task } from '@berth/wire/task';
import type { TaskOutcome, TaskRun } from './run-task.ts';
import { pause, type Stopped } from './stopped.ts';

export type TaskLoopDeps = {
  client: Client;
  log: Logger;
  nodeId: () => string | null;
  run: (task: Task) => TaskRun;
  /** How many tasks at once. Retirements and copies mostly wait (a drain may take an hour), so they do not take the place of deployments. */
  limits: { build: number; retire: number; sync: number; other: number };
  /** The node is not known any more: register again. */
  onUnknownNode: () => void;
  /** A task was taken from us. Until we are heard of again we get nothing more of its deployment: register now. */
  onLost: () => void;
  /** Called once, with the first list, before any task of it begins. */
  onFirstList: (tasks: readonly Task[]) => Promise<void>;
  holds?: Holds;
  pollMs?: number;
  /** How old the last list must be at least to be doubted (`heard`). */
  doubtMs?: number;
};
/** Seconds that a request for tasks is held: any time `from`–`to`, so that those of a fleet do not end together, or `short`. */
export type Holds = { from: number; to: number; short: number };
export type TaskLoop = {
  /** Polls until the signal aborts. */
  run(signal: AbortSignal): Promise<void>;
  /** Ends what runs: builds at once, the rest when it is done or after `graceMs`. */
  drain(graceMs: number): Promise<void>;
  lastPollOkAt(): number | null;
  running(): number;
  /** The node is not ours any more: a request that is held for it ends, and none follows until there is a node again. */
  letGo(): void;
  /** What the answer to a register says is open (`open_tasks`); undefined: its control plane does not say. */
  heard(open: string | undefined): void;
};

/**
 * Long where a register's answer tells every 30 s what is open, so that a held request whose connection died unnoticed costs half
 * a minute; with the 15 s that an answer may take, below the 300 s after which `fetch` gives up. Short where it does not tell, and
 * for a while where longer ones were cut: proxies let a request be silent for a minute.
 */
export const HOLDS: Holds = { from: 200, to: 280, short: 50 };
const SHORT_FOR_MS = 3_600_000;
/** The control plane's look at what is open is a few seconds old (loops/task-watch.ts). */
const DOUBT_MS = 5_000;
/** After a task was lost, it is not begun again for so long, however often it is listed. */
const HOLD_OFF_MS = 3_000;

export function createTaskLoop(deps: TaskLoopDeps): TaskLoop {
  const { client, log, holds = HOLDS, pollMs = 5_000, doubtMs = DOUBT_MS } = deps;
  const runs = new Map<string, TaskRun>();
  /** Tasks that ended here: not begun again by a list that is older than their end. */
  const ended = new Map<string, { at: number; notBefore: number }>();
  let listed: { tasks: readonly Task[]; askedAt: number } = { tasks: [], askedAt: -Infinity };
  let etag: string | null = null;
  let lastPollOkAt: number | null = null;
  /** Like all times here but `lastPollOkAt` by the clock that nobody sets. */
  let askedAt = 0;
  let saysOpen = false;
  /** Requests in a row that ended without an answer after longer than a short hold. */
  let cuts = 0;
  let shortUntil = -Infinity;
  let first = true;
  let draining = false;
  let again: NodeJS.Timeout | undefined;
  /** Ends a held request, so that the list is asked for anew. */
  let held = new AbortController();

  type Kind = keyof TaskLoopDeps['limits'];
  const kindOf = (task: Task): Kind => (task.kind === 'build' || task.kind === 'retire' || task.kind === 'sync' ? task.kind : 'other');
  const atWork = (kind: Kind): number => [...runs.values()].filter((r) => kindOf(r.task) === kind).length;

  function beginWhatFits(): void {
    for (const task of listed.tasks) {
      if (draining) return;
      if (runs.has(task.id)) continue;
      const end = ended.get(task.id);
      if (end !== undefined && performance.now() < end.notBefore) continue;
      if (end !== undefined && listed.askedAt <= end.at) {
        // Asked for before the task ended here: it may be over or offered anew. The next list says, and is not held.
        etag = null;
        continue;
      }
      if (atWork(kindOf(task)) >= deps.limits[kindOf(task)]) continue;
      const run = deps.run(task);
      runs.set(task.id, run);
      void run.done.then((outcome) => onEnd(task, outcome));
    }
  }
  function onEnd(task: Task, outcome: TaskOutcome): void {
    runs.delete(task.id);
    const now = performance.now();
    ended.set(task.id, { at: now, notBefore: outcome === 'reported' ? now : now + HOLD_OFF_MS });
    if (outcome === 'lost') deps.onLost();
    if (outcome !== 'reported') again ??= setTimeout(askAgain, HOLD_OFF_MS + 50);
    beginWhatFits();
  }
  function askAgain(): void {
    again = undefined;
    etag = null;
    held.abort(new Error('the list is asked for anew'));
  }
  function compare(): void {
    const byId = new Map(listed.tasks.map((t) => [t.id, t]));
    for (const [id, run] of runs) {
      const task = byId.get(id);
      if (task === undefined) run.stop('lost');
      else if (task.cancel_requested) run.stop('cancelled');
    }
    for (const [id, end] of ended) if (!byId.has(id) && listed.askedAt > end.at) ended.delete(id);
    beginWhatFits();
  }

  /** Only a request that says what we have is held: the first answer is what readiness and reconciliation wait for. */
  function holdSeconds(): number {
    if (etag === null) return 0;
    if (!saysOpen || performance.now() < shortUntil) return holds.short;
    return Math.round(holds.from + Math.random() * (holds.to - holds.from));
  }

  const wasLong = (): boolean => performance.now() - askedAt > holds.short * 1000;
  /** Once, the control plane may have ended; twice in a row, something between us and it takes silence for an end. */
  function noteCut(error: unknown): void {
    if (!wasLong() || (error instanceof ApiError && error.status < 500)) return;
    cuts += 1;
    if (cuts > 1) shortUntil = performance.now() + SHORT_FOR_MS;
  }

  async function pollOnce(nodeId: string, signal: AbortSignal): Promise<void> {
    askedAt = performance.now();
    held = new AbortController();
    const headers: Record<string, string> = etag === null ? {} : { 'if-none-match': etag };
    const either = AbortSignal.any([signal, held.signal]);
    const wait = holdSeconds();
    const result = await client.exchange('agentTasks', {
      query: { node_id: nodeId, wait },
      headers,
      signal: either,
      timeoutMs: (wait + 15) * 1000,
    });
    if (wasLong()) cuts = 0;
    lastPollOkAt = Date.now();
    if (result.answer !== null) {
      listed = { tasks: result.answer, askedAt };
      etag = result.etag;
      if (first) {
        first = false;
        await deps.onFirstList(listed.tasks);
      }
      compare();
    }
    // Neither held nor with an ETag to hold by: poll as the contract says.
    if (result.etag === null && performance.now() - askedAt < 1_000) await pause(pollMs, signal);
  }

  return {
    lastPollOkAt: () => lastPollOkAt,
    running: () => runs.size,
    letGo: () => askAgain(),
    heard(open) {
      saysOpen = open !== undefined;
      if (open === undefined || lastPollOkAt === null || Date.now() - lastPollOkAt < doubtMs) return;
      if (open === openTasksText(listed.tasks)) return;
      log.info('the list of tasks has changed and the request for it did not say so; it is asked for anew');
      askAgain();
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
          if (error === held.signal.reason) continue;
          // 401: the node is gone with its secret, or the secret was reset.
          if (error instanceof ApiError && (error.status === 404 || error.status === 401)) deps.onUnknownNode();
          noteCut(error);
          if (failures === 0) log.warn({ err: error }, 'tasks cannot be asked for; tried again');
          await pause(backoff(failures, { min: 500, max: pollMs }), signal).catch(() => undefined);
          failures += 1;
        }
      }
    },
    async drain(graceMs) {
      draining = true;
      clearTimeout(again);
      const stop = (why: Stopped['why'], which: (r: TaskRun) => boolean): void =>
        [...runs.values()].filter(which).forEach((r) => r.stop(why));
      stop('shutdown', (r) => r.task.kind === 'build');
      const all = Promise.all([...runs.values()].map((r) => r.done));
      const late = setTimeout(() => stop('shutdown', () => true), graceMs);
      await all;
      clearTimeout(late);
    },
  };
}
