/**
 * Polls the node's open tasks and runs them (docs/interfaces.md "Tasks"). The agent requests the
 * list of open tasks by long poll: the control plane holds each request until the list changes
 * (`If-None-Match`). A control plane without long polls is polled every 5 s. Each list is compared
 * with the running tasks: new tasks start within the limits, cancelled tasks are stopped, and tasks
 * that are no longer listed are dropped as lost.
 */
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { ApiError, type Client } from '@berth/wire/client';
import { EXEC_HEADER } from '@berth/wire/exec';
import { LOGS_WANTED_HEADER } from '@berth/wire/runtime';
import { openTasksText, type Task } from '@berth/wire/task';
import { pause, type Stopped } from '../stopped.ts';

/**
 * How a task run ended.
 * - `reported`: the control plane answered the report with 200.
 * - `lost`: the control plane answered with 404 or 409.
 * - `shutdown`: the agent stopped; the control plane offers the task again.
 */
export type TaskOutcome = 'reported' | 'lost' | 'shutdown';
export type TaskRun = {
  task: Task;
  done: Promise<TaskOutcome>;
  /** Stops the work. `lost` does not stop a report that is being sent: its answer decides. */
  stop(why: Stopped['why']): void;
};
export type TaskLoopDeps = {
  client: Client;
  log: Logger;
  nodeId: () => string | null;
  run: (task: Task) => TaskRun;
  /**
   * Maximum numbers of concurrent tasks. Retirements and copies mostly wait (a drain can take an
   * hour), so they have separate limits.
   */
  limits: { build: number; retire: number; sync: number; run: number; other: number };
  /** Called with each answer: a tag if the control plane requests logs, else null. */
  onLogsWanted?: (tag: string | null) => void;
  /** Called with each answer: the ids of exec sessions that wait for this node, else null. */
  onExecWaiting?: (ids: string | null) => void;
  /** Called when the control plane no longer knows the node: register again. */
  onUnknownNode: () => void;
  /**
   * Called when the agent lost a task. The control plane offers no further task of that deployment
   * until the next registration, so register now.
   */
  onLost: () => void;
  /** Called once, with the first list, before any of its tasks starts. */
  onFirstList: (tasks: readonly Task[]) => Promise<void>;
  /** Called with each list, before its tasks start. */
  onList?: (tasks: readonly Task[]) => void;
  hold?: PollHold;
  pollMs?: number;
  /** `checkOpenTasks` trusts a list that is younger than this, in ms. */
  trustMs?: number;
};
/**
 * Hold times of long polls in seconds: a random time between `from` and `to`, so that the polls of
 * many agents do not end together; or `short`.
 */
export type PollHold = { from: number; to: number; short: number };
export type TaskLoop = {
  /** Polls until the signal aborts. */
  run(signal: AbortSignal): Promise<void>;
  /**
   * Ends the running tasks: builds at once, all others when they have finished or after `graceMs`.
   */
  drain(graceMs: number): Promise<void>;
  lastPollOkAt(): number | null;
  running(): number;
  /**
   * Aborts the long poll, because a different machine now has this node's identity. Polls resume
   * when `nodeId` returns an id.
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
 * connection died unnoticed then delays a task by half a minute at most. A hold plus 15 s for the
 * answer stays below the 300 s timeout of `fetch`. Short holds are used if the answers do not name
 * the tasks, and for an hour after long polls were cut: many proxies cut a request that is silent
 * for a minute.
 */
export const POLL_HOLD: PollHold = { from: 200, to: 280, short: 50 };
const SHORT_FOR_MS = 3_600_000;
/** `open_tasks` can be a few seconds old (the control plane's loops/task-watch.ts). */
const TRUST_MS = 5_000;
/** Time in ms before a lost task can start again, even if it is listed. */
const BACKOFF_MS = 3_000;

/**
 * The dependencies with defaults, and the state of the loop. All times are on the monotonic clock
 * in ms.
 */
type Polling = TaskLoopDeps & {
  hold: PollHold;
  pollMs: number;
  trustMs: number;
  runs: Map<string, TaskRun>;
  /** Tasks that have ended here. A list requested before their end must not start them again. */
  ended: Map<string, { at: number; notBefore: number }>;
  listed: { tasks: readonly Task[]; askedAt: number };
  etag: string | null;
  lastPollOkAt: number | null;
  askedAt: number;
  /** True if the control plane names the open tasks in its answers to registrations. */
  knowsOpenTasks: boolean;
  /** Consecutive polls that lasted longer than a short hold and ended without an answer. */
  cuts: number;
  /** End of the period with short holds. */
  shortUntil: number;
  isFirstList: boolean;
  isDraining: boolean;
  repoll: NodeJS.Timeout | undefined;
  /** Aborts the current long poll, so that the next one starts. */
  poll: AbortController;
};

export function createTaskLoop(deps: TaskLoopDeps): TaskLoop {
  const polling = createPolling(deps);
  return {
    lastPollOkAt: () => polling.lastPollOkAt,
    running: () => polling.runs.size,
    abortPoll: () => pollAgain(polling),
    checkOpenTasks: (open) => checkOpenTasks(polling, open),
    run: (signal) => pollUntilAborted(polling, signal),
    drain: (graceMs) => drain(polling, graceMs),
  };
}

const createPolling = (deps: TaskLoopDeps): Polling => ({
  ...deps,
  hold: deps.hold ?? POLL_HOLD,
  pollMs: deps.pollMs ?? 5_000,
  trustMs: deps.trustMs ?? TRUST_MS,
  runs: new Map(),
  ended: new Map(),
  listed: { tasks: [], askedAt: -Infinity },
  etag: null,
  lastPollOkAt: null,
  askedAt: 0,
  knowsOpenTasks: false,
  cuts: 0,
  shortUntil: -Infinity,
  isFirstList: true,
  isDraining: false,
  repoll: undefined,
  poll: new AbortController(),
});

async function pollUntilAborted(polling: Polling, signal: AbortSignal): Promise<void> {
  const { log, pollMs } = polling;
  for (let failures = 0; !signal.aborted; ) {
    try {
      const nodeId = polling.nodeId();
      if (nodeId === null) {
        await pause(100, signal);
        continue;
      }
      await pollOnce(polling, nodeId, signal);
      failures = 0;
    } catch (error) {
      if (signal.aborted) return;
      if (error === polling.poll.signal.reason) continue;
      // 401 means that the node was deleted with its secret, or that the secret was reset.
      if (error instanceof ApiError && (error.status === 404 || error.status === 401))
        polling.onUnknownNode();
      noteCut(polling, error);
      if (failures === 0) log.warn({ err: error }, 'polling the task list failed; will retry');
      await pause(backoff(failures, { min: 500, max: pollMs }), signal).catch(() => undefined);
      failures += 1;
    }
  }
}

async function pollOnce(polling: Polling, nodeId: string, signal: AbortSignal): Promise<void> {
  const { client, etag } = polling;
  const askedAt = performance.now();
  polling.askedAt = askedAt;
  polling.poll = new AbortController();
  const wait = holdSeconds(polling);
  const result = await client.exchange('agentTasks', {
    query: { node_id: nodeId, wait },
    headers: etag === null ? {} : { 'if-none-match': etag },
    signal: AbortSignal.any([signal, polling.poll.signal]),
    timeoutMs: (wait + 15) * 1000,
  });
  if (wasLong(polling)) polling.cuts = 0;
  polling.lastPollOkAt = performance.now();
  if (result.headers !== undefined) {
    polling.onLogsWanted?.(result.headers.get(LOGS_WANTED_HEADER));
    polling.onExecWaiting?.(result.headers.get(EXEC_HEADER));
  }
  if (result.answer !== null) {
    polling.listed = { tasks: result.answer, askedAt };
    polling.etag = result.etag;
    if (polling.isFirstList) {
      polling.isFirstList = false;
      await polling.onFirstList(polling.listed.tasks);
    }
    polling.onList?.(polling.listed.tasks);
    applyList(polling);
  }
  // The control plane does not support long polls: wait until the next poll is due.
  if (result.etag === null && performance.now() - askedAt < 1_000)
    await pause(polling.pollMs, signal);
}

/**
 * Returns the hold time. The first poll is not held, because readiness and reconciliation wait for
 * its answer.
 */
function holdSeconds({ etag, hold, knowsOpenTasks, shortUntil }: Polling): number {
  if (etag === null) return 0;
  if (!knowsOpenTasks || performance.now() < shortUntil) return hold.short;
  return Math.round(hold.from + Math.random() * (hold.to - hold.from));
}

const wasLong = ({ askedAt, hold }: Polling): boolean =>
  performance.now() - askedAt > hold.short * 1000;

/**
 * Counts a long poll that ended without an answer. A single one can be a restart of the control
 * plane; two in a row mean that a proxy cuts silent requests.
 */
function noteCut(polling: Polling, error: unknown): void {
  if (!wasLong(polling) || (error instanceof ApiError && error.status < 500)) return;
  polling.cuts += 1;
  if (polling.cuts > 1) polling.shortUntil = performance.now() + SHORT_FOR_MS;
}

function pollAgain(polling: Polling): void {
  polling.repoll = undefined;
  polling.etag = null;
  polling.poll.abort(new Error('polling the task list again'));
}

function checkOpenTasks(polling: Polling, open: string | undefined): void {
  const { lastPollOkAt, listed, trustMs, log } = polling;
  polling.knowsOpenTasks = open !== undefined;
  if (open === undefined || lastPollOkAt === null || performance.now() - lastPollOkAt < trustMs)
    return;
  if (open === openTasksText(listed.tasks)) return;
  log.info('the open tasks differ from the polled list; polling again');
  pollAgain(polling);
}

function applyList(polling: Polling): void {
  const { listed, runs, ended } = polling;
  const byId = new Map(listed.tasks.map((t) => [t.id, t]));
  for (const [id, run] of runs) {
    const task = byId.get(id);
    if (task === undefined) run.stop('lost');
    else if (task.cancel_requested) run.stop('cancelled');
  }
  for (const [id, end] of ended) if (!byId.has(id) && listed.askedAt > end.at) ended.delete(id);
  startTasks(polling);
}

function startTasks(polling: Polling): void {
  const { listed, runs, ended, limits } = polling;
  for (const task of listed.tasks) {
    if (polling.isDraining) return;
    if (runs.has(task.id)) continue;
    const end = ended.get(task.id);
    if (end !== undefined && performance.now() < end.notBefore) continue;
    if (end !== undefined && listed.askedAt <= end.at) {
      // This list was requested before the task ended here. Drop the ETag, so that the next list
      // arrives at once with the task’s new state.
      polling.etag = null;
      continue;
    }
    if (runningOf(polling, limitOf(task)) >= limits[limitOf(task)]) continue;
    const run = polling.run(task);
    runs.set(task.id, run);
    void run.done.then((outcome) => onEnd(polling, task, outcome));
  }
}

type LimitKind = keyof TaskLoopDeps['limits'];

function limitOf({ kind }: Task): LimitKind {
  if (kind === 'move') return 'sync';
  return kind === 'deploy' || kind === 'look' || kind === 'clean' ? 'other' : kind;
}

const runningOf = ({ runs }: Polling, kind: LimitKind): number =>
  [...runs.values()].filter(({ task }) => limitOf(task) === kind).length;

function onEnd(polling: Polling, task: Task, outcome: TaskOutcome): void {
  polling.runs.delete(task.id);
  const now = performance.now();
  const notBefore = outcome === 'reported' ? now : now + BACKOFF_MS;
  polling.ended.set(task.id, { at: now, notBefore });
  if (outcome === 'lost') polling.onLost();
  if (outcome !== 'reported')
    polling.repoll ??= setTimeout(() => pollAgain(polling), BACKOFF_MS + 50);
  startTasks(polling);
}

async function drain(polling: Polling, graceMs: number): Promise<void> {
  const { runs } = polling;
  polling.isDraining = true;
  clearTimeout(polling.repoll);
  for (const run of runs.values()) if (run.task.kind === 'build') run.stop('shutdown');
  const allDone = Promise.all([...runs.values()].map(({ done }) => done));
  const late = setTimeout(() => {
    for (const run of [...runs.values()]) run.stop('shutdown');
  }, graceMs);
  await allDone;
  clearTimeout(late);
}
