/**
 * Runs one attempt at one task, from the claim to the report (docs/interfaces.md "Tasks",
 * "Completion").
 *
 *   claim ──> work ──> flush the log ──> report ──> accepted (200)
 *     │ 404, 409          │                 │ 404, 409: another attempt has the task: discard the product
 *     └> not our task     └ meanwhile: renew at a third of the lease. 409, or not listed any more: `lost`; cancel requested: `cancelled`
 *
 * `cancelled` is reported. `lost` and `shutdown` are not: the work cleans up after itself. The
 * report is repeated until it is answered. If the process dies before that, the control plane
 * offers the task again.
 */
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import type { Tracing } from '@berth/kit/tracing';
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
 * `shutdown`: the agent stopped first, and the task is offered again. `lost`: another agent has the
 * task, or it was withdrawn.
 */
export const TASK_ENDS = ['completed', 'failed', 'cancelled', 'lost', 'shutdown'] as const;
export type TaskEnd = (typeof TASK_ENDS)[number];
/** Counts a task from its claim. Call the returned function once, when the task has ended. */
export type TaskMeter = { taskBegan(kind: string): (end: TaskEnd) => void };
export type RunTaskDeps = {
  client: Client;
  handlers: Handlers;
  log: Logger;
  /** Called with the failure code of each failed task. */
  onFailure?: (code: string) => void;
  meter?: TaskMeter;
  /** Null or absent: traces are off. */
  tracing?: Tracing | null;
};

/** As long as batches are accepted. */
const FINAL_FLUSH_MS = 60_000;
const CANCELLED = { code: 'cancelled', message: `${FAILURES.cancelled}.` };

export function runTask(
  task: Task,
  { client: anyClient, handlers, log: parent, onFailure, meter, tracing = null }: RunTaskDeps,
): TaskRun {
  const trace = tracing === null ? null : traceTask(task, tracing);
  const client = trace === null ? anyClient : withHeaders(anyClient, trace.headers);
  const traceField = trace === null ? {} : { trace_id: trace.traceId };
  const log = parent.child({
    task: task.id,
    kind: task.kind,
    deployment: task.deployment_id,
    ...traceField,
  });
  const work = new AbortController();
  /** Ends the claim and the report too. Only a shutdown aborts it. */
  const life = new AbortController();
  const stop = (why: Stopped['why']): void => {
    work.abort(new Stopped(why));
    if (why === 'shutdown') life.abort(new Stopped(why));
  };
  const params = { id: task.id };
  /** The outcome that was reported. */
  let reportedEnd: TaskEnd = 'failed';
  let countEnd: (end: TaskEnd) => void = () => undefined;
  let failureCode: string | null = null;
  /** Facts and lines for the story. A failure and a cancellation report them too. */
  let facts: TaskFacts = {};
  /** A container that may still run although the task failed. */
  let left: Pick<TaskReport, 'container_id'> = {};
  const notes: TaskNote[] = [];

  async function attempt(): Promise<TaskOutcome> {
    await failPoint('agent.claim.before', () => task.kind);
    const claim = await retryUntilAnswered(
      () => client.call('agentStart', { params, signal: life.signal }),
      {
        signal: life.signal,
        onFailure: (err) => log.warn({ err }, 'claiming the task failed; will retry'),
      },
    );
    const headers = { 'x-lease-token': claim.lease_token };
    log.info({ attempt: claim.attempt }, 'task started');
    if (meter !== undefined) countEnd = meter.taskBegan(task.kind);
    await failPoint('agent.claim.after', () => task.kind);
    const redact = createRedact(secretsIn(claim));
    const shipper = createLogShipper({
      redact,
      send: async (first, lines) => {
        await failPoint('agent.logs.before');
        await retryUntilAnswered(
          () =>
            client.call('agentLogs', {
              params,
              headers,
              body: { first, lines },
              signal: life.signal,
            }),
          {
            signal: life.signal,
          },
        );
        await failPoint('agent.logs.after');
      },
      onDropped: (err) => {
        if (isLost(err)) work.abort(new Stopped('lost'));
        else if (!life.signal.aborted)
          log.warn({ err }, 'the control plane refused log lines; they are dropped');
      },
    });
    const renewing = new AbortController();
    const renewal = renew(claim, renewing.signal, headers);
    const progress = createProgressSender((datasets, signal, learned) =>
      client.call('agentProgress', {
        params,
        headers,
        body: { datasets, ...defined({ learned }) },
        signal,
      }),
    );
    if (task.cancel_requested) stop('cancelled');
    try {
      let product = await perform(claim, shipper, progress, redact);
      const why = work.signal.aborted ? (work.signal.reason as Stopped).why : null;
      // A running container stays: the task is offered again, and the next attempt adopts the
      // container.
      if (why === 'shutdown') return 'shutdown';
      if (why === 'lost') {
        await discard(product);
        return 'lost';
      }
      if (why === 'cancelled' && product.report.status === 'completed') {
        // The cancellation came at the end of the work: the finished product is discarded.
        if (!(await discard(product))) left = { container_id: product.report.container_id ?? null };
        product = failed(CANCELLED, { ...facts, ...left });
      }
      await progress.flush();
      await shipper.flush(AbortSignal.any([life.signal, AbortSignal.timeout(FINAL_FLUSH_MS)]));
      return await deliver(product, headers);
    } finally {
      progress.stop();
      renewing.abort();
      await renewal;
    }
  }

  async function perform(
    claim: TaskClaim,
    shipper: LogShipper,
    progress: ProgressSender,
    redact: Redact,
  ): Promise<Product> {
    const context: TaskContext = {
      attempt: claim.attempt,
      lease: claim.lease_token,
      git: claim.git ?? null,
      secrets: claim.secrets ?? [],
      secretsDigest: claim.secrets_digest ?? null,
      signal: work.signal,
      log: (line) => shipper.push(line),
      room: shipper.room,
      logStep: (step, text) => {
        for (const line of text.split('\n')) shipper.push({ stream: 'system', step, text: line });
      },
      progress: progress.push,
      learned(more) {
        facts = { ...facts, ...more };
        progress.learned(more);
      },
      leaves: (container_id) => void (left = { container_id }),
      note(kind, message) {
        if (notes.length < MAX_NOTES)
          notes.push({ kind, message: redact(message).slice(0, MAX_NOTE).toWellFormed() });
      },
      ...defined({ span: trace === null ? undefined : trace.span }),
    };
    try {
      work.signal.throwIfAborted();
      return await handle(handlers, task, context);
    } catch (error) {
      if (work.signal.aborted && error === work.signal.reason)
        return failed(CANCELLED, { ...facts, ...left });
      const { code, message } = taskErrorOf(error);
      const failure = { code, message: redact(message) };
      log.warn(
        { err: secretsIn(claim).length === 0 ? error : redactError(error, redact), code },
        'task failed',
      );
      onFailure?.(failure.code);
      failureCode = failure.code;
      context.logStep('failed', failure.message);
      return failed(failure, {
        ...facts,
        ...left,
        ...(error instanceof TaskFailure ? error.report : {}),
      });
    }
  }

  async function renew(
    claim: TaskClaim,
    signal: AbortSignal,
    headers: Record<string, string>,
  ): Promise<void> {
    let lease: Pick<TaskClaim, 'lease_expires_at' | 'lease_seconds'> = claim;
    for (;;) {
      try {
        await pause(renewIn(lease), signal);
        const answer = await retryUntilAnswered(
          () => client.call('agentRenew', { params, headers, signal }),
          { signal, maxMs: 3_000 },
        );
        await failPoint('agent.renew.after');
        lease = answer;
        if (answer.cancel_requested) stop('cancelled');
      } catch (error) {
        if (signal.aborted) return;
        if (isLost(error)) return stop('lost');
        log.error({ err: error }, 'renewing the lease failed; will retry');
      }
    }
  }

  async function deliver(product: Product, headers: Record<string, string>): Promise<TaskOutcome> {
    const complete = (report: TaskReport) =>
      retryUntilAnswered(
        () => client.call('agentComplete', { params, headers, body: report, signal: life.signal }),
        {
          signal: life.signal,
          onFailure: (err, waitMs) =>
            log.warn({ err, retry_in_ms: waitMs }, 'delivering the report failed; will retry'),
        },
      );
    try {
      await failPoint('agent.report.before', () => task.kind);
      await complete(notes.length === 0 ? product.report : { ...product.report, notes });
      reportedEnd = endOf(product.report);
      await failPoint('agent.report.after', () => task.kind);
    } catch (error) {
      if (life.signal.aborted) throw error;
      await discard(product);
      if (isLost(error)) {
        log.info({ err: error }, 'the report came too late; the product is discarded');
        return 'lost';
      }
      // The report is invalid; the task must end all the same, as failed.
      log.error({ err: error }, 'the control plane refused the report');
      await complete(
        failed({
          code: 'task_failed',
          message:
            `${FAILURES.task_failed}: the control plane refused its report: ${String(error)}`.slice(
              0,
              4000,
            ),
        }).report,
      );
    }
    log.info({ status: product.report.status }, 'task reported');
    return 'reported';
  }

  /** Returns whether it succeeded. */
  const discard = (product: Product): Promise<boolean> =>
    product.discard().then(
      () => true,
      (error: unknown) => {
        log.error({ err: error }, 'discarding the product of the task failed');
        return false;
      },
    );

  const done = attempt().catch((error: unknown): TaskOutcome => {
    if (life.signal.aborted) return 'shutdown';
    if (!isLost(error)) log.error({ err: error }, 'running the task failed');
    return 'lost';
  });
  void done.then((outcome) => {
    const end = outcome === 'reported' ? reportedEnd : outcome;
    countEnd(end);
    trace?.end(end, end === 'failed' ? (failureCode ?? 'failed') : null);
  });
  return { task, done, stop };
}

/** Adds headers to each request. */
const withHeaders = (client: Client, more: Record<string, string>): Client => ({
  call: (name, input) => client.call(name, { ...input, headers: { ...more, ...input.headers } }),
  exchange: (name, input) =>
    client.exchange(name, { ...input, headers: { ...more, ...input.headers } }),
});

/** Values that no log may have: secrets of the project and its access to git. */
const secretsIn = ({ secrets, git }: TaskClaim): string[] => [
  ...(secrets ?? []).map(({ value }) => value),
  ...[git?.token?.token, git?.deploy_key?.private_key].filter((value) => value !== undefined),
];

/** 404: unknown task; 409: the lease is stale or the task has ended. */
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
 * Time until the next renewal in ms: a third of the lease's length, because the two clocks may be
 * hours apart. If the control plane does not send the length, a third of the time until the lease
 * expires, between 1 and 20 s.
 */
export function renewIn(
  lease: Pick<TaskClaim, 'lease_expires_at' | 'lease_seconds'>,
  now = Date.now(),
): number {
  if (lease.lease_seconds !== undefined) return Math.max(250, (lease.lease_seconds * 1000) / 3);
  const left = Date.parse(lease.lease_expires_at) - now;
  return Math.min(20_000, Math.max(1_000, Number.isFinite(left) ? left / 3 : 1_000));
}

function handle(handlers: Handlers, task: Task, context: TaskContext): Promise<Product> {
  switch (task.kind) {
    case 'build':
      return handlers.build(task, context);
    case 'deploy':
      return handlers.deploy(task, context);
    case 'retire':
      return handlers.retire(task, context);
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

/** A newer control plane may know more kinds of tasks than this agent. */
function unknownKind(task: never): Promise<Product> {
  return Promise.reject(
    new Error(`this agent does not know tasks of kind ${(task as Task).kind}; update the agent`),
  );
}
