/**
 * Runs one attempt at one task, from the claim to the report (docs/interfaces.md "Tasks",
 * "Completion").
 *
 *   claim ──> work ──> flush the log ──> report ──> accepted (200)
 *     │ 404, 409  │                        │ 404, 409: another attempt has the task:
 *     │           │                        └> discard the product
 *     └> not this agent's task
 *                 └ meanwhile: renew after each third of the lease;
 *                   409, or no longer listed: `lost`; cancel requested: `cancelled`
 *
 * `cancelled` is reported. `lost` and `shutdown` are not: the work only cleans up after itself. The
 * report is repeated until the control plane answers. If the process dies before that, the control
 * plane offers the task again.
 */
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import type { Tracing } from '@berth/kit/spans';
import { ApiError, type Client } from '@berth/wire/client';
import { FAILURES } from '@berth/wire/errors';
import {
  MAX_NOTE,
  MAX_NOTES,
  type Task,
  type TaskClaim,
  type TaskFacts,
  type TaskNote,
  type TaskReport,
} from '@berth/wire/task';
import { createLogShipper, type LogShipper } from '../link/log-shipper.ts';
import type { TaskOutcome, TaskRun } from '../link/poll-loop.ts';
import { createProgressSender, type ProgressSender } from '../link/progress-sender.ts';
import { retryUntilAnswered } from '../link/retry.ts';
import { createRedact, type Redact, redactError } from '../secrets/redaction.ts';
import { pause, Stopped } from '../stopped.ts';
import { traceTask } from './task-trace.ts';
import type { Handlers, Product, TaskContext } from './task.ts';
import { nothingToDiscard } from './task.ts';
import { TaskFailure, taskErrorOf } from '../failures.ts';

/**
 * How a task ended.
 * - `lost`: another agent has the task, or the task was withdrawn.
 * - `shutdown`: the agent stopped first, and the control plane offers the task again.
 */
export const TASK_ENDS = ['completed', 'failed', 'cancelled', 'lost', 'shutdown'] as const;
export type TaskEnd = (typeof TASK_ENDS)[number];
/** Counts a claimed task. Call the returned function once, when the task has ended. */
export type TaskMeter = { taskBegan(kind: string): (end: TaskEnd) => void };
export type RunTaskDeps = {
  client: Client;
  handlers: Handlers;
  log: Logger;
  /** Called with the failure code of each failed task. */
  onFailure?: (code: string) => void;
  meter?: TaskMeter;
  /** Null or absent if traces are off. */
  tracing?: Tracing | null;
};

/**
 * Timeout in ms for sending the last lines: the control plane accepts log batches for this long.
 */
const FINAL_FLUSH_MS = 60_000;
const CANCELLED = { code: 'cancelled', message: `${FAILURES.cancelled}.` };

/** The state of one run, and first parameter of the functions below. */
type Run = {
  task: Task;
  client: Client;
  handlers: Handlers;
  log: Logger;
  onFailure: ((code: string) => void) | undefined;
  span: TaskContext['span'];
  /** Aborted, with the reason, when the work must stop. */
  work: AbortController;
  /** Aborted only by a shutdown. Also ends the claim and the report. */
  life: AbortController;
  /** Facts and notes for the deployment. A failed or cancelled run reports them too. */
  facts: TaskFacts;
  notes: TaskNote[];
  /** A container that might still run although the task failed. */
  leftContainer: Pick<TaskReport, 'container_id'>;
  /** The outcome that was reported. */
  reportedEnd: TaskEnd;
  failureCode: string | null;
  countEnd: (end: TaskEnd) => void;
};
/** The part of a run that follows the claim. */
type Attempt = {
  claim: TaskClaim;
  headers: Record<string, string>;
  redact: Redact;
  shipper: LogShipper;
  progress: ProgressSender;
};

export function runTask(
  task: Task,
  { client, handlers, log, onFailure, meter, tracing = null }: RunTaskDeps,
): TaskRun {
  const trace = tracing === null ? null : traceTask(task, tracing);
  const run: Run = {
    task,
    client: trace === null ? client : withHeaders(client, trace.headers),
    handlers,
    log: log.child({
      task: task.id,
      kind: task.kind,
      deployment: task.deployment_id,
      ...defined({ trace_id: trace?.traceId }),
    }),
    onFailure,
    span: trace?.span,
    work: new AbortController(),
    life: new AbortController(),
    facts: {},
    notes: [],
    leftContainer: {},
    reportedEnd: 'failed',
    failureCode: null,
    countEnd: () => undefined,
  };
  const done = claimAndRun(run, meter).catch((error: unknown): TaskOutcome => {
    if (run.life.signal.aborted) return 'shutdown';
    if (!isLost(error)) run.log.error({ err: error }, 'running the task failed');
    return 'lost';
  });
  void done.then((outcome) => {
    const end = outcome === 'reported' ? run.reportedEnd : outcome;
    run.countEnd(end);
    trace?.end(end, end === 'failed' ? (run.failureCode ?? 'failed') : null);
  });
  return { task, done, stop: (why) => stopRun(run, why) };
}

function stopRun({ work, life }: Run, why: Stopped['why']): void {
  work.abort(new Stopped(why));
  if (why === 'shutdown') life.abort(new Stopped(why));
}

async function claimAndRun(run: Run, meter: TaskMeter | undefined): Promise<TaskOutcome> {
  const { task, log } = run;
  await failPoint('agent.claim.before', () => task.kind);
  const claim = await claimTask(run);
  log.info({ attempt: claim.attempt }, 'task started');
  if (meter !== undefined) run.countEnd = meter.taskBegan(task.kind);
  await failPoint('agent.claim.after', () => task.kind);
  const attempt = beginAttempt(run, claim);
  const renewing = new AbortController();
  const renewal = renewLease(run, attempt, renewing.signal);
  if (task.cancel_requested) stopRun(run, 'cancelled');
  try {
    return await workAndReport(run, attempt);
  } finally {
    attempt.progress.stop();
    renewing.abort();
    await renewal;
  }
}

const claimTask = ({ task, client, life, log }: Run): Promise<TaskClaim> =>
  retryUntilAnswered(
    () => client.call('agentStart', { params: { id: task.id }, signal: life.signal }),
    {
      signal: life.signal,
      onFailure: (err) => log.warn({ err }, 'claiming the task failed; will retry'),
    },
  );

function beginAttempt(run: Run, claim: TaskClaim): Attempt {
  const { client, work, life, log } = run;
  const params = { id: run.task.id };
  const headers = { 'x-lease-token': claim.lease_token };
  const redact = createRedact(secretsIn(claim));
  const shipper = createLogShipper({
    redact,
    send: async (first, lines) => {
      const body = { first, lines };
      await failPoint('agent.logs.before');
      await retryUntilAnswered(
        () => client.call('agentLogs', { params, headers, body, signal: life.signal }),
        { signal: life.signal },
      );
      await failPoint('agent.logs.after');
    },
    onDropped: (err) => {
      if (isLost(err)) work.abort(new Stopped('lost'));
      else if (!life.signal.aborted)
        log.warn({ err }, 'the control plane refused log lines; they are dropped');
    },
  });
  const progress = createProgressSender((datasets, signal, learned) => {
    const body = { datasets, ...defined({ learned }) };
    return client.call('agentProgress', { params, headers, body, signal });
  });
  return { claim, headers, redact, shipper, progress };
}

/** Renews the lease until the signal aborts or the task is lost. */
async function renewLease(
  run: Run,
  { claim, headers }: Attempt,
  signal: AbortSignal,
): Promise<void> {
  const { task, client, log } = run;
  let lease: Pick<TaskClaim, 'lease_expires_at' | 'lease_seconds'> = claim;
  for (;;) {
    try {
      await pause(renewIn(lease), signal);
      const answer = await retryUntilAnswered(
        () => client.call('agentRenew', { params: { id: task.id }, headers, signal }),
        { signal, maxMs: 3_000 },
      );
      await failPoint('agent.renew.after');
      lease = answer;
      if (answer.cancel_requested) stopRun(run, 'cancelled');
    } catch (error) {
      if (signal.aborted) return;
      if (isLost(error)) return stopRun(run, 'lost');
      log.error({ err: error }, 'renewing the lease failed; will retry');
    }
  }
}

async function workAndReport(run: Run, attempt: Attempt): Promise<TaskOutcome> {
  let product = await perform(run, attempt);
  const { signal } = run.work;
  const why = signal.aborted ? (signal.reason as Stopped).why : null;
  // Keep a running container: the control plane offers the task again, and the next attempt adopts
  // the container.
  if (why === 'shutdown') return 'shutdown';
  if (why === 'lost') {
    await discard(run, product);
    return 'lost';
  }
  if (why === 'cancelled' && product.report.status === 'completed') {
    // The cancellation came after the work had finished: discard the product.
    if (!(await discard(run, product)))
      run.leftContainer = { container_id: product.report.container_id ?? null };
    product = failed(CANCELLED, { ...run.facts, ...run.leftContainer });
  }
  await attempt.progress.flush();
  await attempt.shipper.flush(
    AbortSignal.any([run.life.signal, AbortSignal.timeout(FINAL_FLUSH_MS)]),
  );
  return deliver(run, product, attempt.headers);
}

/** Does the work of the task. Returns a failure or a cancellation as a product too. */
async function perform(run: Run, attempt: Attempt): Promise<Product> {
  const { signal } = run.work;
  const context = contextOf(run, attempt);
  try {
    signal.throwIfAborted();
    return await handle(run.handlers, run.task, context);
  } catch (error) {
    if (signal.aborted && error === signal.reason)
      return failed(CANCELLED, { ...run.facts, ...run.leftContainer });
    const { code, message } = taskErrorOf(error);
    const failure = { code, message: attempt.redact(message) };
    const hasSecrets = secretsIn(attempt.claim).length > 0;
    run.log.warn(
      { err: hasSecrets ? redactError(error, attempt.redact) : error, code },
      'task failed',
    );
    run.onFailure?.(code);
    run.failureCode = code;
    context.logStep('failed', failure.message);
    const report = error instanceof TaskFailure ? error.report : {};
    return failed(failure, { ...run.facts, ...run.leftContainer, ...report });
  }
}

const contextOf = (run: Run, { claim, redact, shipper, progress }: Attempt): TaskContext => ({
  attempt: claim.attempt,
  lease: claim.lease_token,
  git: claim.git ?? null,
  secrets: claim.secrets ?? [],
  secretsDigest: claim.secrets_digest ?? null,
  loggedUntil: claim.logged_until ?? null,
  signal: run.work.signal,
  log: (line) => shipper.push(line),
  room: shipper.room,
  logStep(step, text) {
    for (const line of text.split('\n')) shipper.push({ stream: 'system', step, text: line });
  },
  progress: progress.push,
  learned(more) {
    run.facts = { ...run.facts, ...more };
    progress.learned(more);
  },
  leaves: (container_id) => void (run.leftContainer = { container_id }),
  note(kind, message) {
    if (run.notes.length < MAX_NOTES)
      run.notes.push({ kind, message: redact(message).slice(0, MAX_NOTE).toWellFormed() });
  },
  ...defined({ span: run.span }),
});

/** Sends the report until the control plane answers. */
async function deliver(
  run: Run,
  product: Product,
  headers: Record<string, string>,
): Promise<TaskOutcome> {
  const { task, notes, life, log } = run;
  try {
    await failPoint('agent.report.before', () => task.kind);
    await complete(run, headers, {
      ...product.report,
      ...defined({ notes: notes.length === 0 ? undefined : notes }),
    });
    run.reportedEnd = endOf(product.report);
    await product.accepted?.().catch((err: unknown) => {
      log.warn({ err }, 'cleaning up after a reported task failed; will retry later');
    });
    await failPoint('agent.report.after', () => task.kind);
  } catch (error) {
    if (life.signal.aborted) throw error;
    await discard(run, product);
    if (isLost(error)) {
      log.info({ err: error }, 'the report came too late; the product is discarded');
      return 'lost';
    }
    // The control plane refused the report as invalid. End the task as failed.
    log.error({ err: error }, 'the control plane refused the report');
    await complete(run, headers, refusedReport(error));
  }
  log.info({ status: product.report.status }, 'task reported');
  return 'reported';
}

const complete = (
  { task, client, life, log }: Run,
  headers: Record<string, string>,
  body: TaskReport,
): Promise<unknown> =>
  retryUntilAnswered(
    () =>
      client.call('agentComplete', {
        params: { id: task.id },
        headers,
        body,
        signal: life.signal,
      }),
    {
      signal: life.signal,
      onFailure: (err, waitMs) =>
        log.warn({ err, retry_in_ms: waitMs }, 'delivering the report failed; will retry'),
    },
  );

function refusedReport(error: unknown): TaskReport {
  const message = `${FAILURES.task_failed}: the control plane refused its report: ${String(error)}`;
  return failed({ code: 'task_failed', message: message.slice(0, 4000) }).report;
}

/** Discards the product. Returns whether this succeeded. */
const discard = ({ log }: Run, product: Product): Promise<boolean> =>
  product.discard().then(
    () => true,
    (error: unknown) => {
      log.error({ err: error }, 'discarding the product of the task failed');
      return false;
    },
  );

/** Returns a client that adds the headers to each request. */
const withHeaders = (client: Client, more: Record<string, string>): Client => ({
  call: (name, input) => client.call(name, { ...input, headers: { ...more, ...input.headers } }),
  exchange: (name, input) =>
    client.exchange(name, { ...input, headers: { ...more, ...input.headers } }),
});

/** Returns values that must not appear in a log: the project's secrets and its git credentials. */
const secretsIn = ({ secrets, git }: TaskClaim): string[] => [
  ...(secrets ?? []).map(({ value }) => value),
  ...[git?.token?.token, git?.deploy_key?.private_key].filter((value) => value !== undefined),
];

/** 404 means an unknown task; 409 means that the lease is stale or the task has ended. */
const isLost = (error: unknown): boolean =>
  error instanceof ApiError && (error.status === 404 || error.status === 409);

function endOf({ status, result }: TaskReport): TaskEnd {
  if (status === 'completed') return 'completed';
  return (result as { error?: { code?: unknown } } | null)?.error?.code === CANCELLED.code
    ? 'cancelled'
    : 'failed';
}

const failed = (
  error: { code: string; message: string },
  more: Partial<TaskReport> = {},
): Product => ({
  report: { status: 'failed', result: { error }, ...more },
  discard: nothingToDiscard,
});

/**
 * Returns the time until the next renewal in ms: a third of the lease's length, because the two
 * clocks can differ by hours. If the control plane does not send the length, a third of the time
 * until the lease expires, between 1 and 20 s.
 */
export function renewIn(
  lease: Pick<TaskClaim, 'lease_expires_at' | 'lease_seconds'>,
  now = Date.now(),
): number {
  if (lease.lease_seconds !== undefined) return Math.max(250, (lease.lease_seconds * 1000) / 3);
  const leftMs = Date.parse(lease.lease_expires_at) - now;
  return Math.min(20_000, Math.max(1_000, Number.isFinite(leftMs) ? leftMs / 3 : 1_000));
}

function handle(handlers: Handlers, task: Task, context: TaskContext): Promise<Product> {
  switch (task.kind) {
    case 'build':
      return handlers.build(task, context);
    case 'deploy':
      return handlers.deploy(task, context);
    case 'retire':
      return handlers.retire(task, context);
    case 'run':
      return handlers.run(task, context);
    case 'sync':
      return handlers.sync(task, context);
    case 'look':
      return handlers.look(task, context);
    case 'clean':
      return handlers.clean(task, context);
    case 'move':
      return handlers.move(task, context);
    default:
      return unknownKind(task);
  }
}

/** A newer control plane can send kinds of tasks that this agent does not know. */
function unknownKind(task: never): Promise<Product> {
  return Promise.reject(
    new Error(`this agent does not know tasks of kind ${(task as Task).kind}; update the agent`),
  );
}
